"""The methods that can be priced: one-shot ones by the moments they send, iterative ones by what they exchange."""

from dataclasses import dataclass
from typing import Literal

from fedmoments.errors import UnknownNameError

__all__ = ["IterativeMethod", "OneShotMethod", "iterative_method", "known_methods", "one_shot_method"]

Stage = Literal["all", "head", "encoder"]


@dataclass(frozen=True)
class OneShotMethod:
    """A method that uploads moments once.

    Parameters
    ----------
    moments
        Names of the moments it sends.
    needs_map
        Whether it is defined only after a feature map, whose output dimension must then be given.
    dense_sums
        Whether its paper counts dC (Fed3R) or d (FedNCM) FLOPs a sample for class sums.
    """

    moments: tuple[str, ...]
    needs_map: bool = False
    dense_sums: bool = True


@dataclass(frozen=True)
class IterativeMethod:
    """A method that exchanges parameters every round.

    Parameters
    ----------
    trains
        What is trained and therefore exchanged: ``all`` (fine-tuning, FT), ``head`` (linear probing, LP) or ``encoder``
        (FEAT, the head is frozen).
    copies
        How many tensors of that size travel each way: 2 for SCAFFOLD (parameters and control variates), else 1.
    """

    trains: Stage
    copies: int = 1


_WITH_GRAM = ("counts", "sums", "gram")
_WITH_CLASS_GRAMS = ("counts", "sums", "class_grams")

# ``fedcof-oracle`` is this package's Oracle, which needs no more than Fed3R's payload; ``fedcof-oracle-paper`` sends a
# covariance per client and class as FedCOF's Table 3 charges it. A rank-r part per class (``gh-dlr-qda``) cannot be had
# from the pooled gram, so it is priced as QDA, not as in GH-OFL's Table 8. Proto-Hyper's teacher is 0.7 LDA + 0.3 NB.
_ONE_SHOT = {
    "fed3r": OneShotMethod(_WITH_GRAM),
    "fed3r-rf": OneShotMethod(_WITH_GRAM, needs_map=True),
    "fedcgs": OneShotMethod(_WITH_GRAM),
    "fedcof": OneShotMethod(("client_means",)),
    "fedcof-oracle": OneShotMethod(_WITH_GRAM),
    "fedcof-oracle-paper": OneShotMethod(_WITH_CLASS_GRAMS),
    "fedncm": OneShotMethod(("counts", "sums"), dense_sums=False),
    "fishermix": OneShotMethod(_WITH_GRAM),
    "gh-dlr-qda": OneShotMethod(_WITH_CLASS_GRAMS),
    "gh-lda": OneShotMethod(_WITH_GRAM),
    "gh-nb": OneShotMethod(("counts", "sums", "class_squares")),
    "gh-qda": OneShotMethod(_WITH_CLASS_GRAMS),
    "proto-hyper": OneShotMethod((*_WITH_GRAM, "class_squares")),
}

_COPIES = {"fedadam": 1, "fedavg": 1, "fedavgm": 1, "fedprox": 1, "scaffold": 2}
_STAGES: dict[str, Stage] = {"": "all", "-feat": "encoder", "-lp": "head"}
_ITERATIVE = {
    optimiser + suffix: IterativeMethod(trains, copies)
    for optimiser, copies in _COPIES.items()
    for suffix, trains in _STAGES.items()
}


def known_methods(kind: Literal["one-shot", "iterative"] | None = None) -> tuple[str, ...]:
    """Names of the methods that can be priced, sorted.

    Parameters
    ----------
    kind
        ``one-shot`` (moments travel once), ``iterative`` (parameters travel every round), or both.

    Examples
    --------
    >>> known_methods("one-shot")[:4]
    ('fed3r', 'fed3r-rf', 'fedcgs', 'fedcof')
    >>> known_methods("iterative")[:3]
    ('fedadam', 'fedadam-feat', 'fedadam-lp')
    """
    known = {"one-shot": tuple(_ONE_SHOT), "iterative": tuple(_ITERATIVE)}
    if kind is None:
        return tuple(sorted(_ONE_SHOT | _ITERATIVE))
    if kind not in known:
        raise UnknownNameError("kind of method", kind, known)
    return tuple(sorted(known[kind]))


def one_shot_method(name: str) -> OneShotMethod:
    """Find a one-shot method by name.

    Examples
    --------
    >>> one_shot_method("gh-nb").moments
    ('counts', 'sums', 'class_squares')
    """
    if name not in _ONE_SHOT:
        raise UnknownNameError("one-shot method", name, _ONE_SHOT)
    return _ONE_SHOT[name]


def iterative_method(name: str) -> IterativeMethod:
    """Find an iterative method by name.

    Examples
    --------
    >>> iterative_method("scaffold-lp")
    IterativeMethod(trains='head', copies=2)
    """
    if name not in _ITERATIVE:
        raise UnknownNameError("iterative method", name, _ITERATIVE)
    return _ITERATIVE[name]
