"""What a federation agrees on about privacy, as people type it and as commands show it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from fedmoments.errors import InputError

__all__ = ["Epsilon", "HelperCard", "Releases", "agreed_from", "privacy_rows", "spent_text"]

_PANEL = "Privacy and poison"

Epsilon = Annotated[
    float | None,
    typer.Option(
        metavar="EPSILON",
        rich_help_panel=_PANEL,
        help="Budget of central differential privacy: heads are fitted from noised sums.",
    ),
]
Releases = Annotated[
    int | None,
    typer.Option(metavar="N", rich_help_panel=_PANEL, help="Releases that the budget is planned for; 1."),
]
HelperCard = Annotated[
    Path | None,
    typer.Option(
        metavar="CARD", rich_help_panel=_PANEL, help="With --secure: the helper's card, of 'fedmoments keys helper'."
    ),
]

_OF_MASKS = ("batch", "cohort", "contributors", "helper")
_OF_NOISE = ("delta", "unit", "neighbours", "clip", "client_norm", "budget", "releases")


def agreed_from(typed: Mapping[str, Any]) -> Any:
    """Return what was typed as an agreement; what was not typed has its default.

    Parameters
    ----------
    typed
        Rules of :class:`fedmoments.privacy.protection.Agreed` by name; None: not typed.

    Examples
    --------
    >>> agreed_from({"secure": "sums", "batch": 5, "epsilon": None}).batch
    5
    >>> agreed_from({"batch": 5})
    Traceback (most recent call last):
    fedmoments.errors.InputError: --batch belongs to secure sums: give --secure sums, cohorts or two-phase with it
    """
    from fedmoments.privacy.protection import Agreed

    given = {name: value for name, value in typed.items() if value is not None}
    for names, owner, advice in (
        (_OF_MASKS, "secure", "belongs to secure sums: give --secure sums, cohorts or two-phase with it"),
        (_OF_NOISE, "epsilon", "belongs to differential privacy: give --epsilon with it"),
    ):
        for name in names:
            if name in given and owner not in given:
                raise InputError(f"--{name.replace('_', '-')} {advice}")
    if "cohort" in given and given.get("secure") != "cohorts":
        raise InputError("--cohort says how many clients a cohort has: give --secure cohorts with it")
    return Agreed(**given)


def privacy_rows(terms: Any) -> dict[str, str]:
    """Return what the terms of a federation agree on about privacy, for a table."""
    agreed = terms.privacy
    rows = {"the server sees": "every contribution" if agreed.secure is None else f"secure {agreed.secure} only"}
    if agreed.secure:
        rows |= {"smallest sum": f"{agreed.batch} clients", "helper": agreed.helper}
    if agreed.secure == "cohorts":
        rows |= {"cohorts": f"of {agreed.cohort} clients; a class is opened if {agreed.contributors} of them hold it"}
    if agreed.epsilon is not None:
        what = f"ε = {agreed.epsilon:g}, δ = {agreed.delta:g}, hiding one {agreed.unit} ({agreed.neighbours})"
        rows |= {"noise": what, "releases": str(agreed.releases)}
        rows |= {"features": "scaled to length 1" if agreed.clip is None else f"clipped to norm {agreed.clip:g}"}
    return rows


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
