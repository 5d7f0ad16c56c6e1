"""Our numbers beside the paper's: cell by cell, and claim by claim."""

import math
import statistics
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from fedmoments.core.observations import Observation, is_share, matching, student_interval
from fedmoments.core.observations.observation import difference, differences
from fedmoments.study.papers.experiment import ORIGINS, Block, Claim, Experiment, Line, Misprint

__all__ = [
    "CLAIM_VERDICTS",
    "VERDICTS",
    "compare_claims",
    "compare_numbers",
    "compare_settings",
    "our_cells",
    "place_of",
]

#: A cell of a table, ready for JSON.
Cell = dict[str, Any]
#: What may be said of a claim, and what it means.
CLAIM_VERDICTS: Mapping[str, str] = {
    "holds": "in every setting that was measured, and beyond chance in one at least",
    "in part": "in some settings",
    "unclear": "within chance in every setting: Student's 95 % interval over seeds, or four test samples; of one seed, "
    "two standard errors of its test samples",
    "fails": "in every setting, and beyond chance in one at least",
    "did not train": "a run of one side diverged, or has the same accuracy after every round: it shows nothing",
    "not tested": "these data cannot show it",
}
#: Accuracies of one run, one observation a round.
CURVE = "accuracy by round"
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


def place_of(row: Line, column: Line) -> dict[str, Any]:
    """Return the place of a cell."""
    return {**row.where, **column.where}


def our_cells(experiment: Experiment, measurements: Sequence[Observation]) -> list[list[dict[str, Any]]]:
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
    list of list of dict
        ``mean``, ``spread``, ``values`` and ``reason`` of every cell, and whether there were ``several`` measurements;
        a mean of None where there is none.
    """

    def ours(i: int, j: int) -> Cell:
        place = place_of(experiment.rows[i], experiment.columns[j])
        return _ours(matching(measurements, place), place)

    return _cells(experiment, ours)


def _cells(experiment: Experiment, cell: Callable[[int, int], Cell]) -> list[list[Cell]]:
    """Return what a function makes of every row and column of a table."""
    return [[cell(i, j) for j in range(len(experiment.columns))] for i in range(len(experiment.rows))]


def _ours(at_place: Sequence[Observation], place: Mapping[str, Any]) -> Cell:
    if not at_place:
        return {"mean": None, "spread": None, "values": [], "reason": "not measured on these data", "several": False}
    first, factor = at_place[0], 100.0 if is_share(place) else 1.0
    mean, spread, *values = (
        None if value is None else factor * value for value in (first.mean, first.spread, *first.values)
    )
    several = len(at_place) > 1
    return {"mean": mean, "spread": spread, "values": values, "reason": first.reason, "several": several}


def compare_numbers(
    experiment: Experiment, block: Block, cells: Sequence[Sequence[Mapping[str, Any]]], *, judged: bool = True
) -> list[list[dict[str, Any]]]:
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

    def compared(i: int, j: int) -> Cell:
        row, column = experiment.rows[i], experiment.columns[j]
        spread = block.spreads[i][j] if block.spreads else math.nan
        cell = _beside(cells[i][j], block.values[i][j], spread, misprints.get((row.name, column.name)))
        comparable = judged and (experiment.is_free or is_share(place_of(row, column)))
        verdict = _verdict(cell, tolerance) if comparable else ""
        return {**cell, "verdict": ORIGINS[experiment.origin] if verdict == "agrees" else verdict}

    return _cells(experiment, compared)


def _beside(ours: Mapping[str, Any], printed: float, spread: float, misprint: Misprint | None) -> Cell:
    """Return our cell with the paper's number, and the difference from what the paper should have printed."""
    right = printed if misprint is None else misprint.right
    return {
        **ours,
        "paper": _number(printed),
        "paper_spread": _number(spread),
        "difference": None if ours["mean"] is None or math.isnan(right) else ours["mean"] - right,
        "misprint": None if misprint is None else {"right": right, "why": misprint.why},
    }


def _verdict(cell: Mapping[str, Any], tolerance: float) -> str:
    if cell["difference"] is None:
        return ""
    off = abs(cell["difference"]) / tolerance * (1 - 1e-9)  # a half that rounds either way agrees
    if cell["misprint"]:
        return "misprint" if off <= 1 else "differs"
    return "agrees" if off <= 1 else "near" if off <= 3 else "differs"


def compare_settings(
    experiment: Experiment, cells: Sequence[Sequence[Mapping[str, Any]]]
) -> list[list[dict[str, Any]]]:
    """Return our cells with a verdict on gains: data that stand in for the paper's have other numbers, not other signs.

    Parameters
    ----------
    experiment
        The table. Its reference row is what gains are taken over, column by column.
    cells
        Ours, as :func:`our_cells` returns them.

    Returns
    -------
    list of list of dict
        Our cells with ``gain``, the least and largest gain of the paper (``gains``) and the ``verdict``.
    """
    names = [row.name for row in experiment.rows]
    base = names.index(experiment.reference) if experiment.reference in names else None

    def gained(i: int, j: int) -> Cell:
        cell: Cell = {**cells[i][j], "gain": None, "gains": None, "verdict": ""}
        if base is None or i == base or not is_share(place_of(experiment.rows[i], experiment.columns[j])):
            return cell
        printed = [block.values[i][j] - block.values[base][j] for block in experiment.paper]
        return cell | _gain(
            cells[i][j]["mean"],
            cells[base][j]["mean"],
            [gain for gain in printed if not math.isnan(gain)],
            experiment.tolerance,
        )

    return _cells(experiment, gained)


def _gain(ours: float | None, reference: float | None, printed: Sequence[float], slack: float) -> Cell:
    """Return our gain over the reference beside those that the paper prints; nothing where one of them is missing."""
    if ours is None or reference is None or not printed:
        return {}
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


def compare_claims(
    claims: Sequence[Claim], measurements: Sequence[Observation], samples: int | None = None
) -> list[dict[str, Any]]:
    """Return whether claims hold, in every setting that both of their sides have.

    Parameters
    ----------
    claims
        What the paper says.
    measurements
        Ours.
    samples
        How many samples accuracies were measured on. Of two accuracies on the same n samples that differ by m samples,
        the difference has a standard error of √m samples at least: with m ≤ 4 it is within two of them whatever else.

    Returns
    -------
    list of dict
        ``verdict`` and ``pairs``: where, both sides, the mean difference over the seeds that both have with its
        standard error, whether it ``holds``, and whether that is ``clear``: outside Student's 95 % interval over seeds.
        "Above" and "below" of accuracies must differ by more than four samples, too. One seed alone has the standard
        error of two accuracies on test sets of their own. A claim holds or fails if it does so in every setting and
        clearly in one; it is ``unclear`` if it is clear in none, ``in part`` if it holds in some, ``did not train`` if
        a run in rounds diverged or its accuracy never changed, and ``not tested`` if nothing was measured.

    Examples
    --------
    >>> claim = Claim("ridge", "Ridge is better", {"head": "fed3r"}, {"head": "fedncm"})
    >>> found = [Observation({"head": "fed3r", "clients": 10}, (0.9, 0.91), seeds=(0, 1)),
    ...          Observation({"head": "fedncm", "clients": 10}, (0.8, 0.82), seeds=(0, 1))]
    >>> [(each["verdict"], each["pairs"][0]["where"]) for each in compare_claims([claim], found)]
    [('holds', {'clients': 10})]
    """
    return [_judged(claim, measurements, samples) for claim in claims]


def _judged(claim: Claim, measurements: Sequence[Observation], samples: int | None) -> dict[str, Any]:
    tested = samples if is_share(claim.left) else None
    places = list(_sides(claim, measurements))
    still = _any_stood_still(filter(None, chain.from_iterable(both for _, *both in places)), measurements)
    every = (_pair(claim, where, left, right, tested) for where, left, right in places)
    pairs = [pair for pair in every if pair["difference"] is not None]
    verdict = "did not train" if still and pairs else _together(pairs)
    said: dict[str, Any] = {"id": claim.id, "text": claim.text, "relation": claim.relation, "margin": claim.margin}
    return {**said, "left": dict(claim.left), "right": dict(claim.right), "verdict": verdict, "pairs": pairs}


def _any_stood_still(sides: Iterable[Observation], measurements: Sequence[Observation]) -> bool:
    curves = [curve for curve in measurements if curve.quantity == CURVE]
    return any(_stood_still(side, curves) for side in sides)


def _stood_still(side: Observation, curves: Sequence[Observation]) -> bool:
    """Say whether one side is a run in rounds that diverged, or whose accuracy never changed for any seed."""
    if "diverged" in (side.reason or ""):
        return True
    own = [curve for curve in curves if all(curve.where.get(key) == value for key, value in side.where.items())]
    return len(own) > 1 and side.where.get("stage", "none") != "none" and len({curve.values for curve in own}) == 1


def _sides(
    claim: Claim, measurements: Sequence[Observation]
) -> Iterator[tuple[dict[str, Any], Observation, Observation | None]]:
    """Yield where a claim can be tested, and its two sides there; a claim about a value has no right side."""
    named = {*claim.left, *claim.right}
    rights = [] if claim.value is not None else matching(measurements, claim.right)
    for left in matching(measurements, claim.left):
        where = _without(left.where, named)
        if claim.value is not None:
            yield where, left, None
            continue
        right = next((other for other in rights if _without(other.where, named) == where), None)
        if right is not None:
            yield where, left, right


def _without(where: Mapping[str, Any], names: Container[str]) -> dict[str, Any]:
    return {name: value for name, value in where.items() if name not in names}


def _together(pairs: Sequence[Mapping[str, Any]]) -> str:
    if not pairs:
        return "not tested"
    if not any(pair["clear"] for pair in pairs):
        return "unclear"
    kept = sum(pair["holds"] for pair in pairs)
    return "holds" if kept == len(pairs) else "fails" if not kept else "in part"


def _pair(
    claim: Claim, where: Mapping[str, Any], left: Observation, right: Observation | None, samples: int | None
) -> dict[str, Any]:
    """Return one comparison: seeds that both sides have are compared with one another."""
    apart = _differences(claim, left, right)
    pair = {"where": dict(where), "left": left.mean, "right": claim.value if right is None else right.mean}
    if not apart:
        return {**pair, "difference": None, "error": None, "holds": False, "clear": False}
    mean = statistics.fmean(apart)
    if abs(mean) <= 1e-12 * max(map(abs, apart)):
        mean = 0.0
    interval = student_interval(apart)
    error = interval.error if interval else _alone(mean, pair, samples)
    reach = interval.reach if interval else 2.0 * error
    return {**pair, "difference": mean, "error": error, **_kept(claim, mean, reach, samples)}


def _kept(claim: Claim, mean: float, reach: float, samples: int | None) -> dict[str, bool]:
    """Return whether a claim holds for a mean difference, and whether that is clear: beyond the reach of chance."""
    strict = claim.relation in ("above", "below")
    room = _room(claim.relation, mean, claim.margin)
    chance = max(reach, 4 / samples * (1 + 1e-9) if samples and strict else 0.0)
    return {"holds": room > 0 if strict else room >= 0, "clear": abs(room) > chance or not chance}


def _alone(difference: float, pair: Mapping[str, Any], samples: int | None) -> float:
    """Return the standard error of one difference: of two accuracies on samples of their own; 0 without samples."""
    if not samples or not difference:
        return 0.0
    sides = [min(max(side, 0.0), 1.0) for side in (pair["left"], pair["right"]) if side is not None]
    return math.sqrt(sum(side * (1 - side) for side in sides) / samples)


def _room(relation: str, difference: float, margin: float) -> float:
    """Return by how much a relation is kept; negative where it is not."""
    return {
        "above": difference - margin,
        "below": -difference - margin,
        "at least": difference + margin,
        "at most": margin - difference,
        "equal": margin - abs(difference),
    }[relation]


def _differences(claim: Claim, left: Observation, right: Observation | None) -> list[float]:
    if right is None:
        return [value - (claim.value or 0.0) for value in left.known]
    if left.seeds and right.seeds:
        return differences(left.values, left.seeds, right.values, right.seeds)
    means = left.mean, right.mean
    return [] if means[0] is None or means[1] is None else [difference(means[0], means[1])]


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value
