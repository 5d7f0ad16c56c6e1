"""What the paper says, and whether it holds; every comparison behind it, folded.

Where a run departs from the paper, and notes.

The figures of a reproduction.

How to run a reproduction again: command, settings, and fingerprints of what went in.
"""

from collections.abc import Iterable, Mapping
from itertools import filterfalse
from typing import Any

from fedmoments.pages.blocks import bullets, copied, fold, pairs, titled
from fedmoments.pages.formats import count, seconds
from fedmoments.pages.markup import Html, join, tag
from fedmoments.pages.plain import as_number, items, mapping
from fedmoments.pages.shell import section
from fedmoments.pages.table import Cell, Column, Row, Table
from fedmoments.settings.files import to_toml
from fedmoments.study.papers.claims import CLAIM_VERDICTS
from fedmoments.study.papers.pages.answer import claim_asked, claim_figures, is_ours, pair_rows
from fedmoments.study.papers.pages.figures import drawings, figure_html
from fedmoments.study.papers.pages.words import CLAIM_MARKS, verdict_class

__all__ = ["claims_section", "deviations_section", "figures_section", "repeat_section"]


@section("deviations", "Where this run departs from the paper", place=40)
def deviations_section(document: Mapping[str, Any]) -> Html | None:
    """Return the section, or None when there is neither a deviation nor a note."""
    deviations = [str(sentence) for sentence in items(document.get("deviations"))]
    notes = [str(sentence) for sentence in items(mapping(document.get("experiment")).get("notes"))]
    if not deviations and not notes:
        return None
    none = tag("p", "Nowhere, besides what the notes say.")
    below = tag("div", titled("Notes", bullets(notes)), class_="below") if notes else None
    return join([bullets(deviations) or none, below])


@section("figures", "Drawn from our numbers", place=20)
def figures_section(document: Mapping[str, Any]) -> Html | None:
    """Return the section, or None when nothing of a figure was measured."""
    drawn = [figure_html(drawing, number) for number, drawing in enumerate(drawings(document), 1)]
    return join(drawn) if drawn else None


#: Sizes of data: key and words.
SIZES = {"train": "training samples", "test": "test samples", "classes": "classes", "dim": "dimensions"}


@section("repeat", "How to repeat this", place=50)
def repeat_section(document: Mapping[str, Any]) -> Html | None:
    """Return the section."""
    data = mapping(document.get("data"))
    encoder = mapping(data.get("encoder"))
    sizes = [f"{count(as_number(data.get(key)))} {unit}" for key, unit in SIZES.items() if data.get(key) is not None]
    prints = {f"Fingerprint behind {name}": digest for name, digest in mapping(data.get("fingerprints")).items()}
    known = [
        ("fedmoments", document.get("version")),
        ("Engine", mapping(document.get("experiment")).get("engine")),
        ("Seeds", ", ".join(str(seed) for seed in items(document.get("seeds")))),
        ("Took", seconds(as_number(document.get("seconds")))),
        ("Known from before", count(as_number(document.get("cached")), "result")),
        ("Data", data.get("name")),
        ("", data.get("description")),
        ("Size", ", ".join(sizes)),
        ("Digest of the data", data.get("digest")),
        ("Encoder", encoder.get("name")),
        ("Fingerprint of the encoder", encoder.get("fingerprint")),
        *prints.items(),
    ]
    settings = mapping(document.get("settings"))
    origin = pairs(known, code=["Digest of the data", "Fingerprint of the encoder", *prints])
    return join(
        [
            copied("Command", str(document["command"])) if document.get("command") else None,
            copied("Settings", to_toml(settings).strip(), wrap=False) if settings else None,
            tag("h3", "Origin", class_="below"),
            origin,
        ]
    )


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
