"""What a federation agrees on about privacy, as people type it and as commands show it."""

from collections.abc import Mapping
from typing import Any

from fedmoments.cli.given import Taken, leaves_of
from fedmoments.errors import InputError
from fedmoments.privacy.modes import secure_names, takers
from fedmoments.privacy.protection import Agreed

__all__ = ["agreed_from", "spent_text"]


def agreed_from(rules: Mapping[str, Any]) -> Agreed:
    """Return what was typed as an agreement; what was not typed has its default.

    Parameters
    ----------
    rules
        Rules of :class:`fedmoments.privacy.protection.Agreed` by name.

    Examples
    --------
    >>> agreed_from({"secure": "sums", "batch": 5}).batch
    5
    >>> agreed_from({"batch": 5})
    Traceback (most recent call last):
    fedmoments.errors.InputError: --batch belongs to secure sums: give --secure cohorts, sums or two-phase with it
    """
    for leaf in leaves_of(Agreed, Taken()):
        owner, rule = leaf.option.needs, leaf.path[0]
        if owner and rule in rules and owner not in rules:
            raise InputError(f"{leaf.name} {_of_owner(owner, rule)}")
        modes = takers(rule) if rule in rules else ()
        if modes and rules["secure"] not in modes and rules["secure"] in secure_names():
            raise InputError(f"{leaf.name} belongs to secure {' and '.join(modes)}: give --secure {modes[0]} with it")
    return Agreed.from_dict(rules)


def _of_owner(owner: str, rule: str) -> str:
    """Return what is said of a rule that says nothing without another."""
    if owner == "epsilon":
        return "belongs to differential privacy: give --epsilon with it"
    *others, last = takers(rule)
    modes = f"{', '.join(others)} or {last}" if others else last
    return f"belongs to secure sums: give --secure {modes} with it"


def spent_text(spent: Mapping[str, Any]) -> str:
    """Return what was spent of a budget, in one line.

    Examples
    --------
    >>> spent_text({"epsilon": 1.99999, "left": 0.00001, "budget": 2.0, "delta": 1e-5, "releases": 1, "unit": "sample"})
    'privacy: ε = 2 of 2 spent in 1 release, 0 left, at δ = 1e-05 for one sample'
    """
    times = "1 release" if spent["releases"] == 1 else f"{spent['releases']} releases"
    left = f"{spent['left']:.3f}".rstrip("0").rstrip(".")
    return (
        f"privacy: ε = {spent['epsilon']:.4g} of {spent['budget']:g} spent in {times}, {left} left, at δ = "
        f"{spent['delta']:g} for one {spent['unit']}"
    )
