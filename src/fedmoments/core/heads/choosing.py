"""Several heads, each by name with its hyper-parameters, or given as it is."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from fedmoments.core.heads.head import Head
from fedmoments.core.heads.registry import HEADS, label_of, make_head
from fedmoments.errors import InputError

__all__ = ["choose_heads", "labelled", "map_rule_of"]


def choose_heads(heads: Iterable[str | Head], hyper: Mapping[str, Mapping[str, Any]]) -> dict[str, Head]:
    """Return heads by name, each with its hyper-parameters; one that is given as it is, has its own.

    Examples
    --------
    >>> choose_heads(["fedncm"], {"fedncm": {"metric": "euclidean"}})
    {'fedncm': NearestMean(metric='euclidean')}
    >>> choose_heads([make_head("fedncm"), make_head("fedncm", metric="euclidean")], {})
    {'fedncm': NearestMean(metric='cosine'), 'nearest-mean(metric=euclidean)': NearestMean(metric='euclidean')}
    """
    wanted = labelled(heads, hyper, lambda head: label_of(HEADS, head))
    return {
        label: make_head(head, **hyper.get(head, {})) if isinstance(head, str) else head
        for label, head in wanted.items()
    }


def map_rule_of(heads: Iterable[str]) -> str:
    """Return which public map heads stand behind where nobody says so: ``auto`` if all of them choose, else ``none``.

    Examples
    --------
    >>> map_rule_of(["auto"]), map_rule_of(["auto", "fedcof"])
    ('auto', 'none')
    """
    rules = {HEADS[name].make().map_rule if name in HEADS else "none" for name in heads}
    return rules.pop() if len(rules) == 1 else "none"


def labelled(
    methods: Iterable[Any], hyper: Mapping[str, Mapping[str, Any]], label: Callable[[Any], str]
) -> dict[str, Any]:
    """Return names and recipes by what they are called, each once.

    Refuses none at all, two that are called alike, and hyper-parameters of what is not among them by name.

    Examples
    --------
    >>> labelled(["fedcof", "fedncm", "fedcof"], {}, str)
    {'fedcof': 'fedcof', 'fedncm': 'fedncm'}
    """
    wanted: dict[str, Any] = {}
    for method in methods:
        name = method if isinstance(method, str) else label(method)
        if wanted.setdefault(name, method) != method:
            raise InputError(f"two different heads are called '{name}': register one of them under another name")
    if not wanted:
        raise InputError("there is no head to fit: give at least one")
    for name in hyper:
        if not isinstance(wanted.get(name), str):
            raise InputError(
                f"hyper-parameters are given for '{name}', which is not among the heads: {', '.join(wanted)}"
                if name not in wanted
                else f"hyper-parameters are given for '{name}', which is a head that has its own already"
            )
    return wanted
