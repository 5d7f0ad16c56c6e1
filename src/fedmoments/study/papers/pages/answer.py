"""What came out, in a sentence or two; and claims in words."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from fedmoments.core.observations import is_share
from fedmoments.pages.formats import list_of
from fedmoments.pages.plain import as_number, items, mapping
from fedmoments.study.papers.comparison import VERDICTS
from fedmoments.study.papers.pages.grid import judged_cells
from fedmoments.study.papers.pages.words import (
    data_words,
    number_words,
    place_words,
    signed_words,
    spread_words,
    varying_keys,
)

__all__ = [
    "answer",
    "claim_asked",
    "claim_counts",
    "claim_figures",
    "disagrees",
    "is_ours",
    "misprint_words",
    "pair_rows",
    "verdict_counts",
]

_UNJUDGED = "Settings were changed, so that numbers are not compared with the paper’s."
_WORDS = {
    "holds": ("holds", "hold"),
    "in part": ("holds in part", "hold in part"),
    "unclear": ("is unclear", "are unclear"),
    "did not train": ("is about a run that did not train", "are about runs that did not train"),
    "fails": ("fails", "fail"),
    "not tested": ("is not tested", "are not tested"),
}
#: Of one number and of several: why they do not agree; and of gains outside the paper's range.
_DISAGREEING = {
    "unexplained": ("is near a number that no formula explains", "are near numbers that no formula explains"),
    "misprint": ("is a misprint of the paper", "are misprints of the paper"),
    "near": ("is near", "are near"),
    "differs": ("differs", "differ"),
}
_OUTSIDE = {
    "same sign": ("has its sign but another size", "have its sign but another size"),
    "flat": ("is none where the paper has one", "are none where the paper has one"),
    "opposite": ("has the opposite sign", "have the opposite sign"),
}
_CLAIM_ORDER = ("holds", "in part", "unclear", "fails", "did not train", "not tested")


def verdict_counts(document: Mapping[str, Any]) -> dict[str, int]:
    """Return how many cells have each verdict.

    Examples
    --------
    >>> verdict_counts({"mode": "stand-in", "table": {"ours": [[{"verdict": "in range"}, {"verdict": ""}]]}})
    {'in range': 1}
    """
    counts = Counter(str(cell["verdict"]) for cell in judged_cells(document))
    return {name: counts[name] for name in VERDICTS if counts[name]}


def is_ours(claim: Mapping[str, Any]) -> bool:
    """Say whether a claim goes beyond the paper: the same with defaults of our own, or corrected.

    Examples
    --------
    >>> is_ours({"id": "fedcof-like-fed3r/automatic"}), is_ours({"id": "fedcof-like-fed3r"})
    (True, False)
    """
    return str(claim.get("id")).endswith(("/automatic", ", corrected"))


def claim_counts(document: Mapping[str, Any], *, own: bool | None = None) -> dict[str, int]:
    """Return how many claims have each verdict: all, or those of our own, or those of the paper."""
    claims = [mapping(claim) for claim in items(document.get("claims"))]
    counts = Counter(str(claim.get("verdict")) for claim in claims if own is None or is_ours(claim) == own)
    return {name: counts[name] for name in _CLAIM_ORDER if counts[name]}


def disagrees(document: Mapping[str, Any]) -> bool:
    """Say whether numbers that need no data are not the paper's, misprints apart.

    Examples
    --------
    >>> cell = {"verdict": "near"}
    >>> disagrees({"mode": "computed", "table": {"blocks": [{"cells": [[cell]]}]}})
    True
    """
    counts = verdict_counts(document)
    return document.get("mode") == "computed" and bool(counts.get("near") or counts.get("differs"))


def answer(document: Mapping[str, Any]) -> str:
    """Return what came out: how many numbers agree, or that the setting alone is the paper's; which claims hold.

    Examples
    --------
    >>> table = {"blocks": [{"cells": [[{"verdict": "agrees"}, {"verdict": "misprint"}]]}]}
    >>> answer({"mode": "computed", "table": table, "claims": []})
    '1 of 2 numbers agrees with the paper’s, 1 is a misprint of the paper.'
    """
    parts = [_numbers(document), _claims(document), _own_claims(document)]
    sentences = " ".join(part for part in parts if part)
    return sentences or "There is nothing of the paper’s to compare with here: the numbers are ours alone."


def _numbers(document: Mapping[str, Any]) -> str:
    counts = verdict_counts(document)
    total, agree = sum(counts.values()), counts.get("agrees", 0)
    if document.get("mode") == "stand-in":
        return _stand_in(document, counts, total)
    if derived := counts.get("as derived", 0):
        first = (
            f"{_all(total) if derived == total else f'{derived} of {total}'} numbers are what the paper’s formulas give"
        )
        return f"{', '.join([first, *_counted(counts, _DISAGREEING)])}."
    if not total:
        return _UNJUDGED if document.get("changed") else ""
    whose = f"the paper’s on {document['same_as']}" if document.get("same_as") else "the paper’s"
    if agree == total:
        return f"The number agrees with {whose}." if total == 1 else f"{_all(total)} numbers agree with {whose}."
    first = f"{agree} of {total} numbers {'agrees' if agree == 1 else 'agree'} with {whose}"
    return f"{', '.join([first, *_counted(counts, _DISAGREEING)])}."


def _counted(counts: Mapping[str, int], phrases: Mapping[str, tuple[str, str]]) -> list[str]:
    """Return how many there are of each verdict, in the words of one and of several."""
    return [f"{counts[name]} {said[counts[name] != 1]}" for name, said in phrases.items() if counts.get(name)]


def _all(number: int) -> str:
    return "Both" if number == 2 else f"All {number}"


def _stand_in(document: Mapping[str, Any], counts: Mapping[str, int], total: int) -> str:
    data = mapping(document.get("data"))
    name = f"{data_words(data['name'])} stands" if data.get("name") else "these data stand"
    first = f"The setting is reproduced, not the number: {name} in for the paper’s data."
    if not total:
        return first
    reference, inside = mapping(document.get("table")).get("reference"), counts.get("in range", 0)
    over = f"over {reference} " if reference else ""
    within = f"{inside} of {total} gains {over}{'lies' if inside == 1 else 'lie'} within the paper’s range"
    return f"{first} {', '.join([within, *_counted(counts, _OUTSIDE)])}."


def _claims(document: Mapping[str, Any]) -> str:
    counts = claim_counts(document, own=False)
    total = sum(counts.values())
    if not total:
        return ""
    held = counts.get("holds", 0)
    if held == total:
        return "The claim holds." if total == 1 else f"{_all(total)} claims hold."
    rest = [f"{counts[name]} {_WORDS[name][counts[name] != 1]}" for name in _CLAIM_ORDER[1:] if name in counts]
    if total == 1:
        return f"The claim {_WORDS[next(iter(counts))][0]}."
    return f"{held} of {total} claims {'holds' if held == 1 else 'hold'}, {list_of(rest)}."


def _own_claims(document: Mapping[str, Any]) -> str:
    counts = claim_counts(document, own=True)
    phrases = [f"{counts[name]} {_WORDS[name][counts[name] != 1]}" for name in _CLAIM_ORDER if name in counts]
    return f"Beyond the paper, with our defaults or corrected: {list_of(phrases)}." if phrases else ""


def misprint_words(misprint: Mapping[str, Any]) -> str:
    """Return what the paper prints and what is right, with as many digits as tell them apart.

    Examples
    --------
    >>> misprint_words({"printed": 2554.1, "right": 2554.19})
    'the paper prints 2,554.1, right is 2,554.19.'
    """
    printed, right = (as_number(misprint.get(key)) for key in ("printed", "right"))
    numbers = [f"{value:,.10g}" if value is not None else "–" for value in (printed, right)]
    return f"the paper prints {numbers[0]}, right is {numbers[1]}."


def claim_figures(claim: Mapping[str, Any]) -> str:
    """Return by how much the sides of a claim differ, over all settings.

    Examples
    --------
    >>> pair = {"where": {}, "left": 0.9, "right": 0.8, "difference": 0.1, "error": 0.004, "holds": True}
    >>> claim_figures({"left": {"head": "fedcof"}, "right": {"head": "fedncm"}, "pairs": [pair]})
    '+10.0 ± 0.4 points'
    >>> claim_figures({"left": {}, "right": {"head": "fedncm"}, "pairs": [pair, {**pair, "difference": -0.02}]})
    '−2.0 to +10.0 points in 2 settings'
    """
    times, unit, decimals = _units(claim)
    pairs = map(mapping, items(claim.get("pairs")))
    known = [pair for pair in pairs if as_number(pair.get("difference")) is not None]
    if not known:
        return "–"
    if len(known) == 1:
        return f"{_difference(known[0], times, decimals)}{unit}"
    sizes = [times * (as_number(pair.get("difference")) or 0.0) for pair in known]
    held = sum(bool(pair.get("holds")) for pair in known)
    some = "" if held in (0, len(known)) else f", kept in {held}"
    ends = dict.fromkeys(signed_words(end, decimals) for end in (min(sizes), max(sizes)))
    return f"{' to '.join(ends)}{unit} in {len(known)} settings{some}"


def _units(claim: Mapping[str, Any]) -> tuple[float, str, int | None]:
    """Return what numbers of a claim are multiplied by, their unit, and their decimals."""
    return (100.0, " points", 1) if is_share(mapping(claim.get("left"))) else (1.0, "", None)


def _difference(pair: Mapping[str, Any], times: float, decimals: int | None) -> str:
    difference, error = as_number(pair.get("difference")) or 0.0, as_number(pair.get("error"))
    spread = f" ± {spread_words(times * error, decimals)}" if error else ""
    return f"{signed_words(times * difference, decimals)}{spread}"


def claim_asked(claim: Mapping[str, Any]) -> str:
    """Return what a claim asks of the difference.

    Examples
    --------
    >>> claim_asked({"left": {"head": "fedcof"}, "relation": "at least", "margin": 0.01})
    'asked: at least −1.0 points'
    >>> claim_asked({"left": {"quantity": "megabytes"}, "relation": "below", "margin": 0})
    'asked: below 0'
    """
    relation, margin = str(claim.get("relation") or ""), as_number(claim.get("margin")) or 0.0
    sign = {"above": 1, "below": -1, "at least": -1, "at most": 1}.get(relation)
    share = is_share(mapping(claim.get("left")))
    unit = " points" if share else ""
    size = number_words(100 * margin, 1) if share else number_words(margin)
    if sign is None:
        return f"asked: {relation}{f' within {size}{unit}' if margin else ''}" if relation else ""
    return f"asked: {relation} {('+' if sign > 0 else '−') + size if margin else '0'}{unit}"


def pair_rows(claim: Mapping[str, Any]) -> list[tuple[str, str, str, str, str]]:
    """Return every comparison of a claim: setting, left, right, difference, and what it says.

    Examples
    --------
    >>> pair = {"where": {"clients": 10}, "left": 0.9, "right": 0.8, "difference": 0.1, "error": 0.0, "holds": True,
    ...         "clear": True}
    >>> pair_rows({"left": {}, "right": {"head": "fedncm"}, "pairs": [pair]})
    [('10 clients', '90.0', '80.0', '+10.0', 'holds')]
    """
    pairs = [mapping(pair) for pair in items(claim.get("pairs"))]
    places = [mapping(pair.get("where")) for pair in pairs]
    keys = varying_keys(places) if len(places) > 1 else None
    times, _, decimals = _units(claim)

    def side(pair: Mapping[str, Any], name: str) -> str:
        number = as_number(pair.get(name))
        return number_words(None if number is None else times * number, decimals)

    return [
        (
            place_words(place, keys),
            side(pair, "left"),
            side(pair, "right"),
            _difference(pair, times, decimals),
            ("holds" if pair.get("holds") else "fails") + ("" if pair.get("clear") else ", within chance"),
        )
        for pair, place in zip(pairs, places, strict=True)
    ]
