"""What the paper says, and whether it holds; every comparison behind it, folded."""

from collections.abc import Iterable, Mapping
from itertools import filterfalse
from typing import Any

from fedmoments.pages.blocks import fold
from fedmoments.pages.formats import count
from fedmoments.pages.markup import Html, join, tag
from fedmoments.pages.plain import items, mapping
from fedmoments.pages.shell import section
from fedmoments.pages.table import Cell, Column, Row, Table
from fedmoments.study.papers.comparison import CLAIM_VERDICTS
from fedmoments.study.papers.pages.answer import claim_asked, claim_figures, is_ours, pair_rows
from fedmoments.study.papers.pages.words import CLAIM_MARKS, verdict_class

__all__ = ["claims_section"]

#: Columns of numbers.
NUMBERS = ("left", "right", "difference")


@section("claims", "What the paper says of it", place=30)
def claims_section(document: Mapping[str, Any]) -> Html | None:
    """Return the section, or None without a claim."""
    claims = [mapping(claim) for claim in items(document.get("claims"))]
    if not claims:
        return None
    verdicts = {str(claim.get("verdict")) for claim in claims}
    meanings = [tag("li", f"{name}: {meaning}.") for name, meaning in CLAIM_VERDICTS.items() if name in verdicts]
    heading = tag("h3", "Beyond the paper: the same with defaults of our own, or corrected", class_="below")
    ours = _list(filter(is_ours, claims))
    theirs = _list(filterfalse(is_ours, claims))
    return join([theirs, heading if ours else None, ours, tag("ul", *meanings, class_="legend-words")])


def _list(claims: Iterable[Mapping[str, Any]]) -> Html | None:
    shown = list(map(_claim, claims))
    return tag("ul", *shown, class_="claims") if shown else None


def _claim(claim: Mapping[str, Any]) -> Html:
    verdict = str(claim.get("verdict") or "not tested")
    sign = tag("span", CLAIM_MARKS.get(verdict, ""), class_="sign", aria_hidden="true")
    pairs = pair_rows(claim)
    figures = "; ".join(text for text in (claim_figures(claim), claim_asked(claim)) if text)
    return tag(
        "li",
        tag("span", sign, verdict, class_="word"),
        tag(
            "div",
            tag("p", str(claim.get("text", ""))),
            tag("p", figures, class_="figures"),
            _pairs(pairs) if pairs else None,
        ),
        class_=verdict_class(verdict),
    )


def _pairs(rows: list[tuple[str, str, str, str, str]]) -> Html:
    titles = ("setting", "left", "right", "difference", "")
    columns = tuple(Column(title, number=title in NUMBERS) for title in titles)
    shown = [
        Row(Cell(place), (*(Cell(text, kind="number") for text in numbers), Cell(verdict)))
        for place, *numbers, verdict in rows
    ]
    table = Table("Every comparison of the claim", columns, tuple(shown))
    return fold(f"{count(len(rows), 'setting')}, one by one", table.html())
