"""The methods that can be priced: one-shot ones by the moments they send, iterative ones by what they exchange."""

from dataclasses import dataclass
from functools import cache
from typing import Literal

from fedmoments.core.heads import presets
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
        How many tensors of that size a client sends: 2 for SCAFFOLD (parameters and control variates), MimeLite and
        Mime (parameters and gradients), else 1.
    down
        How many it is sent: 3 by Mime, whose second exchange repeats the parameters beside the momentum, else as many.
    """

    trains: Stage
    copies: int = 1
    down: int = 1


# Methods that papers price but that are no head here. ``fedcof-oracle-paper`` sends a covariance per client and class,
# as FedCOF's Table 3 charges it (our ``fedcof-oracle`` needs no more than Fed3R's payload). ``fishermix-paper`` is
# priced as LDA, and ``proto-hyper-paper`` with squares too, for its teacher of 0.7 LDA + 0.3 NB (GH-OFL, Tables 2 and
# 6); the heads of those names here send what they are fitted from.
_PAPERS = {
    "fedcof-oracle-paper": OneShotMethod(("sums", "class_grams")),
    "fishermix-paper": OneShotMethod(("sums", "gram")),
    "proto-hyper-paper": OneShotMethod(("sums", "gram", "class_squares")),
}
_CHEAP_SUMS = ("fedncm",)


@cache
def _one_shot() -> dict[str, OneShotMethod]:
    """Every head of the registry by the moments it sends, and what only papers price."""
    table = dict(_PAPERS)
    for name, preset in presets().items():
        head = preset.make()
        dense = name not in _CHEAP_SUMS
        table[name] = OneShotMethod(head.needs.sent, needs_map=head.has_own_map, dense_sums=dense)
    return table


_COPIES = {
    "fedadam": (1, 1),
    "fedavg": (1, 1),
    "fedavgm": (1, 1),
    "feddyn": (1, 1),
    "fedprox": (1, 1),
    "fedyogi": (1, 1),
    "mime": (2, 3),
    "mimelite": (2, 2),
    "scaffold": (2, 2),
}
_STAGES: dict[str, Stage] = {"": "all", "-feat": "encoder", "-lp": "head"}
_ITERATIVE = {
    optimiser + suffix: IterativeMethod(trains, *copies)
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
    >>> [method for method in known_methods("one-shot") if method.startswith("fed3r")]
    ['fed3r', 'fed3r-rf']
    >>> known_methods("iterative")[:3]
    ('fedadam', 'fedadam-feat', 'fedadam-lp')
    """
    known = {"one-shot": tuple(_one_shot()), "iterative": tuple(_ITERATIVE)}
    if kind is None:
        return tuple(sorted({*_one_shot(), *_ITERATIVE}))
    if kind not in known:
        raise UnknownNameError("kind of method", kind, known)
    return tuple(sorted(known[kind]))


def one_shot_method(name: str) -> OneShotMethod:
    """Find a one-shot method by name.

    Examples
    --------
    >>> one_shot_method("gh-nb").moments
    ('sums', 'class_squares')
    """
    if name not in _one_shot():
        raise UnknownNameError("one-shot method", name, _one_shot())
    return _one_shot()[name]


def iterative_method(name: str) -> IterativeMethod:
    """Find an iterative method by name.

    Examples
    --------
    >>> iterative_method("scaffold-lp")
    IterativeMethod(trains='head', copies=2, down=2)
    """
    if name not in _ITERATIVE:
        raise UnknownNameError("iterative method", name, _ITERATIVE)
    return _ITERATIVE[name]
