"""Whether our numbers bear out what a paper says in words: claim by claim, as dicts that are ready for JSON."""

import math
import statistics
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, TypedDict

from fedmoments.core.observations import Observation, is_share, matching, student_interval
from fedmoments.core.observations.observation import difference, differences
from fedmoments.study.papers.experiment import Claim

__all__ = ["CLAIM_VERDICTS", "Judged", "Pair", "compare_claims"]

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


class Pair(TypedDict):
    """Both sides of a claim in one setting, and the mean difference over seeds with its standard error."""

    where: dict[str, Any]
    left: float | None
    right: float | None
    difference: float | None
    error: float | None
    holds: bool
    clear: bool


class Judged(TypedDict):
    """A claim of the paper, with what ours say of it."""

    id: str
    text: str
    relation: str
    margin: float
    left: dict[str, Any]
    right: dict[str, Any]
    verdict: str
    pairs: list[Pair]


def compare_claims(
    claims: Sequence[Claim], measurements: Sequence[Observation], samples: int | None = None
) -> list[Judged]:
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
    list of Judged
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


def _judged(claim: Claim, measurements: Sequence[Observation], samples: int | None) -> Judged:
    tested = samples if is_share(claim.left) else None
    places = list(_sides(claim, measurements))
    still = _any_stood_still(filter(None, chain.from_iterable(both for _, *both in places)), measurements)
    every = (_pair(claim, where, left, right, tested) for where, left, right in places)
    pairs = [pair for pair in every if pair["difference"] is not None]
    verdict = "did not train" if still and pairs else _together(pairs)
    return {
        "id": claim.id,
        "text": claim.text,
        "relation": claim.relation,
        "margin": claim.margin,
        "left": dict(claim.left),
        "right": dict(claim.right),
        "verdict": verdict,
        "pairs": pairs,
    }


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


def _together(pairs: Sequence[Pair]) -> str:
    if not pairs:
        return "not tested"
    if not any(pair["clear"] for pair in pairs):
        return "unclear"
    kept = sum(pair["holds"] for pair in pairs)
    return "holds" if kept == len(pairs) else "fails" if not kept else "in part"


def _pair(
    claim: Claim, where: Mapping[str, Any], left: Observation, right: Observation | None, samples: int | None
) -> Pair:
    """Return one comparison: seeds that both sides have are compared with one another."""
    apart = _differences(claim, left, right)
    pair: Pair = {
        "where": dict(where),
        "left": left.mean,
        "right": claim.value if right is None else right.mean,
        "difference": None,
        "error": None,
        "holds": False,
        "clear": False,
    }
    if not apart:
        return pair
    mean = statistics.fmean(apart)
    if abs(mean) <= 1e-12 * max(map(abs, apart)):
        mean = 0.0
    interval = student_interval(apart)
    error = interval.error if interval else _alone(mean, pair, samples)
    reach = interval.reach if interval else 2.0 * error
    holds, clear = _kept(claim, mean, reach, samples)
    return {**pair, "difference": mean, "error": error, "holds": holds, "clear": clear}


def _kept(claim: Claim, mean: float, reach: float, samples: int | None) -> tuple[bool, bool]:
    """Return whether a claim holds for a mean difference, and whether that is clear: beyond the reach of chance."""
    strict = claim.relation in ("above", "below")
    room = _room(claim.relation, mean, claim.margin)
    chance = max(reach, 4 / samples * (1 + 1e-9) if samples and strict else 0.0)
    return room > 0 if strict else room >= 0, abs(room) > chance or not chance


def _alone(difference: float, pair: Pair, samples: int | None) -> float:
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
