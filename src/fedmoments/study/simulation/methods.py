"""What can be simulated by name: heads, which are fitted from statistics, and baselines, for comparison."""

from collections.abc import Iterable, Mapping
from typing import Any

from fedmoments.core.heads import Head, head_names, make_head, presets
from fedmoments.core.heads.choosing import labelled
from fedmoments.core.heads.preset import label_of
from fedmoments.errors import InputError, UnknownNameError
from fedmoments.study.baselines import Baseline, baseline_names, baselines, make_baseline

__all__ = ["Method", "all_names", "choose_methods", "require_head", "standard_heads"]

Method = Head | Baseline


def standard_heads() -> tuple[str, ...]:
    """Return all heads but those with a feature map of their own, which are slow at their papers' sizes.

    Examples
    --------
    >>> "fedcof" in standard_heads(), "fed3r-rf" in standard_heads()
    (True, False)
    """
    return tuple(name for name in head_names() if not make_head(name).has_own_map)


def all_names(words: Iterable[str]) -> tuple[str, ...]:
    """Return names, each once; ``all`` stands for all heads that share one upload, ``baselines`` for all baselines.

    Examples
    --------
    >>> all_names(["gh-lda", "fedcof", "gh-lda"])
    ('gh-lda', 'fedcof')
    """
    several = {"all": standard_heads, "baselines": baseline_names}
    return tuple(dict.fromkeys(name for word in words for name in (several[word]() if word in several else (word,))))


def require_head(name: str) -> None:
    """Refuse the name of a baseline where only a head will do.

    Examples
    --------
    >>> require_head("gh-lda")
    """
    if name in baseline_names() and name not in head_names():
        raise InputError(
            f"'{name}' is a baseline, for comparison in simulations only: what its clients send does not add up, so "
            "that no federation collects it. Run it with 'fedmoments simulate', or choose a head here"
        )


def choose_methods(methods: Iterable[str | Method], hyper: Mapping[str, Mapping[str, Any]]) -> dict[str, Method]:
    """Return heads and baselines by name, each with its hyper-parameters; those given as they are have their own.

    Examples
    --------
    >>> choose_methods(["fedncm"], {})
    {'fedncm': NearestMean(metric='cosine')}
    >>> choose_methods(["fedcov"], {})
    Traceback (most recent call last):
    fedmoments.errors.UnknownNameError: unknown head 'fedcov': did you mean 'fedcof'? ...
    """
    wanted: dict[str, str | Method] = labelled(methods, hyper, _label)
    return {
        name: _make(method, hyper.get(method, {})) if isinstance(method, str) else method
        for name, method in wanted.items()
    }


def _label(method: Method) -> str:
    return label_of(presets(), method) if isinstance(method, Head) else label_of(baselines(), method)


def _make(name: str, hyper: Mapping[str, Any]) -> Method:
    if name in head_names():
        return make_head(name, **hyper)
    if name in baseline_names():
        return make_baseline(name, **hyper)
    raise UnknownNameError("head", name, [*head_names(), *baseline_names()])
