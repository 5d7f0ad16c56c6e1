"""Our numbers beside the paper's: cell by cell, and claim by claim."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from fedmoments.core.observations import Observation, is_share, matching, student_interval
from fedmoments.core.observations.paired import difference, differences
from fedmoments.study.papers.experiment import Block, Claim, Experiment, Line

__all__ = [
    "CLAIM_VERDICTS",
    "VERDICTS",
    "compare_claims",
    "compare_numbers",
    "compare_settings",
    "our_cells",
    "place_of",
]

#: What may be said of a claim, and what it means.
CLAIM_VERDICTS: Mapping[str, str] = {
    "holds": "in every setting that was measured, and beyond chance in one at least",
    "in part": "in some settings",
    "unclear": "within chance in every setting: Student's 95 % interval over seeds, or four test samples; of one seed, "
    "two standard errors of its test samples",
    "fails": "in every setting, and beyond chance in one at least",
    "not tested": "these data cannot show it",
}
#: What may be said of a cell, from agreement to disagreement, and what it means.
VERDICTS: Mapping[str, str] = {
    "agrees": "within the tolerance of the paper's number",
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
    return [
        [_ours(matching(measurements, place_of(row, column)), place_of(row, column)) for column in experiment.columns]
        for row in experiment.rows
    ]


def _ours(found: Sequence[Observation], place: Mapping[str, Any]) -> dict[str, Any]:
    if not found:
        return {"mean": None, "spread": None, "values": [], "reason": "not measured on these data", "several": False}
    times = 100.0 if is_share(place) else 1.0
    first = found[0]
    values = [None if value is None else times * value for value in first.values]
    scaled = [None if each is None else times * each for each in (first.mean, first.spread)]
    told = {"mean": scaled[0], "spread": scaled[1], "values": values, "reason": first.reason}
    return {**told, "several": len(found) > 1}


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
    wrong = {(each.row, each.column): each for each in experiment.misprints if each.block == block.name}
    made = []
    for i, row in enumerate(experiment.rows):
        line = []
        for j, column in enumerate(experiment.columns):
            ours, printed = cells[i][j]["mean"], block.values[i][j]
            misprint = wrong.get((row.name, column.name))
            right = printed if misprint is None else misprint.right
            spread = block.spreads[i][j] if block.spreads else math.nan
            cell = {
                **cells[i][j],
                "paper": _number(printed),
                "paper_spread": _number(spread),
                "difference": None if ours is None or math.isnan(right) else ours - right,
                "misprint": None if misprint is None else {"right": right, "why": misprint.why},
            }
            comparable = judged and (experiment.is_free or is_share(place_of(row, column)))
            line.append({**cell, "verdict": _verdict(cell, tolerance) if comparable else ""})
        made.append(line)
    return made


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
    made = []
    for i, row in enumerate(experiment.rows):
        line = []
        for j, column in enumerate(experiment.columns):
            cell: dict[str, Any] = {**cells[i][j], "gain": None, "gains": None, "verdict": ""}
            if base is not None and i != base and is_share(place_of(row, column)):
                cell |= _gain(experiment, cells, (i, base), j)
            line.append(cell)
        made.append(line)
    return made


def _gain(
    experiment: Experiment, cells: Sequence[Sequence[Mapping[str, Any]]], rows: tuple[int, int], j: int
) -> dict[str, Any]:
    ours, theirs = cells[rows[0]][j]["mean"], cells[rows[1]][j]["mean"]
    gains = [block.values[rows[0]][j] - block.values[rows[1]][j] for block in experiment.paper]
    gains = [gain for gain in gains if not math.isnan(gain)]
    if ours is None or theirs is None or not gains:
        return {}
    gain, low, high = ours - theirs, min(gains), max(gains)
    slack = experiment.tolerance
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
        clearly in one; it is ``unclear`` if it is clear in none, ``in part`` if it holds in some, and ``not tested`` if
        nothing was measured.

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
    pairs = []
    tested = samples if is_share(claim.left) else None
    for left in matching(measurements, claim.left):
        rest = {key: value for key, value in left.where.items() if key not in claim.left}
        if claim.value is not None:
            pairs.append(_pair(claim, rest, (left, None), tested))
            continue
        loose = {key: value for key, value in rest.items() if key not in claim.right}
        others = [
            each
            for each in matching(measurements, claim.right)
            if {key: value for key, value in each.where.items() if key not in claim.right and key not in claim.left}
            == loose
        ]
        pairs += [_pair(claim, loose, (left, other), tested) for other in others[:1]]
    pairs = [pair for pair in pairs if pair["difference"] is not None]
    verdict = _together(pairs)
    told = {"id": claim.id, "text": claim.text, "relation": claim.relation, "margin": claim.margin}
    return {**told, "left": dict(claim.left), "right": dict(claim.right), "verdict": verdict, "pairs": pairs}


def _together(pairs: Sequence[Mapping[str, Any]]) -> str:
    if not pairs:
        return "not tested"
    if not any(pair["clear"] for pair in pairs):
        return "unclear"
    kept = sum(pair["holds"] for pair in pairs)
    return "holds" if kept == len(pairs) else "fails" if not kept else "in part"


def _pair(
    claim: Claim, where: Mapping[str, Any], sides: tuple[Observation, Observation | None], samples: int | None
) -> dict[str, Any]:
    """Return one comparison: seeds that both sides have are compared with one another."""
    left, right = sides
    apart = _differences(claim, left, right)
    pair = {"where": dict(where), "left": left.mean, "right": claim.value if right is None else right.mean}
    if not apart:
        return {**pair, "difference": None, "error": None, "holds": False, "clear": False}
    mean = statistics.fmean(apart)
    if abs(mean) <= 1e-12 * max(map(abs, apart)):
        mean = 0.0
    interval = student_interval(apart)
    error = interval.error if interval else _alone(mean, pair, samples)
    room = _room(claim.relation, mean, claim.margin)
    holds = room > 0 if claim.relation in ("above", "below") else room >= 0
    least = 4 / samples * (1 + 1e-9) if samples and claim.relation in ("above", "below") else 0.0
    reach = interval.reach if interval else 2.0 * error
    clear = abs(room) > max(reach, least) or not (error or least)
    return {**pair, "difference": mean, "error": error, "holds": holds, "clear": clear}


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
