"""Our numbers beside the paper's, cell by cell: dicts that are ready for JSON."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict, TypeVar

from fedmoments.core.observations import Observation, is_share, matching
from fedmoments.study.papers.experiment import ORIGINS, Block, Experiment, Line, Misprint

__all__ = [
    "VERDICTS",
    "Compared",
    "Gained",
    "Ours",
    "compare_numbers",
    "compare_settings",
    "our_cells",
    "place_of",
]

Cell = TypeVar("Cell")
#: What may be said of a cell, from agreement to disagreement, and what it means.
VERDICTS: Mapping[str, str] = {
    "agrees": "within the tolerance of the paper's number",
    "as derived": "within the tolerance of what the paper's formula or law gives: worked out by us, not printed",
    "unexplained": "within the stated tolerance of a printed number that no formula of the paper gives: no agreement",
    "misprint": "the paper's number is a slip: ours follows from its own formula or its other tables, as is told",
    "near": "within three times the tolerance",
    "differs": "further off",
    "in range": "the gain over the reference lies within the gains that the paper shows on its data",
    "same sign": "the gain over the reference has the paper's sign, but another size",
    "flat": "no gain over the reference within the tolerance, where the paper has one",
    "opposite": "the gain over the reference has the opposite sign",
    "": "nothing to compare with",
}


class Ours(TypedDict):
    """Our number in a cell: mean and spread over seeds, why there is none, and whether others stand there, too."""

    mean: float | None
    spread: float | None
    values: list[float | None]
    reason: str | None
    several: bool


class Slip(TypedDict):
    """What the paper should have printed, and why."""

    right: float
    why: str


class Compared(Ours):
    """Our number beside the paper's."""

    paper: float | None
    paper_spread: float | None
    difference: float | None
    misprint: Slip | None
    verdict: str


class _Gain(TypedDict):
    gain: float | None
    gains: list[float] | None
    verdict: str


class Gained(Ours, _Gain):
    """Our number with its gain over the reference, beside the least and largest gain that the paper has."""


def place_of(row: Line, column: Line) -> dict[str, Any]:
    """Return the place of a cell."""
    return {**row.where, **column.where}


def our_cells(experiment: Experiment, measurements: Sequence[Observation]) -> list[list[Ours]]:
    """Return our numbers in the rows and columns of the table, accuracies in percent.

    Parameters
    ----------
    experiment
        Its rows and columns.
    measurements
        Ours. Where several stand at the place of a cell, the first one is taken: put into the rows and columns whatever
        tells them apart.

    Returns
    -------
    list of list of Ours
        A mean of None where there is no measurement.
    """

    def ours(i: int, j: int) -> Ours:
        place = place_of(experiment.rows[i], experiment.columns[j])
        return _ours(matching(measurements, place), place)

    return _cells(experiment, ours)


def _cells(experiment: Experiment, cell: Callable[[int, int], Cell]) -> list[list[Cell]]:
    """Return what a function makes of every row and column of a table."""
    return [[cell(i, j) for j in range(len(experiment.columns))] for i in range(len(experiment.rows))]


def _ours(at_place: Sequence[Observation], place: Mapping[str, Any]) -> Ours:
    if not at_place:
        return {"mean": None, "spread": None, "values": [], "reason": "not measured on these data", "several": False}
    first, factor = at_place[0], 100.0 if is_share(place) else 1.0
    mean, spread, *values = (
        None if value is None else factor * value for value in (first.mean, first.spread, *first.values)
    )
    several = len(at_place) > 1
    return {"mean": mean, "spread": spread, "values": values, "reason": first.reason, "several": several}


def compare_numbers(
    experiment: Experiment, block: Block, cells: Sequence[Sequence[Ours]], *, judged: bool = True
) -> list[list[Compared]]:
    """Return every cell of a block beside ours: the paper's number, the difference and a verdict.

    Parameters
    ----------
    experiment, block
        The table and one of its parts.
    cells
        Ours, as :func:`our_cells` returns them.
    judged
        False leaves out all verdicts: of numbers that were measured with other settings. Where data are needed, the
        tolerance is one of accuracies, and other quantities have no verdict.
    """
    tolerance = experiment.tolerance if block.tolerance is None else block.tolerance
    misprints = {(slip.row, slip.column): slip for slip in experiment.misprints if slip.block == block.name}

    def compared(i: int, j: int) -> Compared:
        row, column = experiment.rows[i], experiment.columns[j]
        spread = block.spreads[i][j] if block.spreads else math.nan
        cell = _beside(cells[i][j], block.values[i][j], spread, misprints.get((row.name, column.name)))
        comparable = judged and (experiment.is_free or is_share(place_of(row, column)))
        verdict = _verdict(cell, tolerance) if comparable else ""
        return {**cell, "verdict": ORIGINS[experiment.origin] if verdict == "agrees" else verdict}

    return _cells(experiment, compared)


def _beside(ours: Ours, printed: float, spread: float, misprint: Misprint | None) -> Compared:
    """Return our cell with the paper's number, and the difference from what the paper should have printed."""
    right = printed if misprint is None else misprint.right
    return {
        **ours,
        "paper": _number(printed),
        "paper_spread": _number(spread),
        "difference": None if ours["mean"] is None or math.isnan(right) else ours["mean"] - right,
        "misprint": None if misprint is None else {"right": right, "why": misprint.why},
        "verdict": "",
    }


def _verdict(cell: Compared, tolerance: float) -> str:
    if cell["difference"] is None:
        return ""
    off = abs(cell["difference"]) / tolerance * (1 - 1e-9)  # a half that rounds either way agrees
    if cell["misprint"]:
        return "misprint" if off <= 1 else "differs"
    return "agrees" if off <= 1 else "near" if off <= 3 else "differs"


def compare_settings(experiment: Experiment, cells: Sequence[Sequence[Ours]]) -> list[list[Gained]]:
    """Return our cells with a verdict on gains: data that stand in for the paper's have other numbers, not other signs.

    Parameters
    ----------
    experiment
        The table. Its reference row is what gains are taken over, column by column.
    cells
        Ours, as :func:`our_cells` returns them.
    """
    names = [row.name for row in experiment.rows]
    base = names.index(experiment.reference) if experiment.reference in names else None

    def gained(i: int, j: int) -> Gained:
        ours = cells[i][j]
        if base is None or i == base or not is_share(place_of(experiment.rows[i], experiment.columns[j])):
            return {**ours, **_gain(None, None, [], experiment.tolerance)}
        printed = [block.values[i][j] - block.values[base][j] for block in experiment.paper]
        known = [gain for gain in printed if not math.isnan(gain)]
        return {**ours, **_gain(ours["mean"], cells[base][j]["mean"], known, experiment.tolerance)}

    return _cells(experiment, gained)


def _gain(ours: float | None, reference: float | None, printed: Sequence[float], slack: float) -> _Gain:
    """Return our gain over the reference beside those that the paper prints; nothing where one of them is missing."""
    if ours is None or reference is None or not printed:
        return {"gain": None, "gains": None, "verdict": ""}
    gain, low, high = ours - reference, min(printed), max(printed)
    if low - slack <= gain <= high + slack:
        verdict = "in range"
    elif abs(gain) <= slack:
        verdict = "flat"
    elif (gain > 0 and high > 0) or (gain < 0 and low < 0):
        verdict = "same sign"
    else:
        verdict = "opposite"
    return {"gain": gain, "gains": [low, high], "verdict": verdict}


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value
