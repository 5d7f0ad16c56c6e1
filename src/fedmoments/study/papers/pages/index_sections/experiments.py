"""Every reproduced table and figure, in a line.

Each claim over all experiments that bear on it, and all data.

Tables on all data sets side by side.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from fedmoments.pages.markup import Html, breakable, join, tag
from fedmoments.pages.plain import mapping
from fedmoments.pages.shell import section
from fedmoments.pages.table import Cell, Column, Row, Table
from fedmoments.study.papers.overview import data_label, folder_of
from fedmoments.study.papers.pages.answer import answer, claim_counts, claim_figures, verdict_counts
from fedmoments.study.papers.pages.index import Documents, claim_verdict, claims_by_id, counts_words
from fedmoments.study.papers.pages.sides import read_sides
from fedmoments.study.papers.pages.words import CLAIM_MARKS, MARKS, verdict_class

__all__ = ["every_claim_section", "experiments_section", "sides_section"]


@section("claims", "Every claim, over all of them", place=20)
def every_claim_section(documents: Documents) -> Html | None:
    """Return the section, or None without a claim."""
    shown = []
    for name, rows in claims_by_id(documents).items():
        verdict = claim_verdict(rows)
        sign = tag("span", CLAIM_MARKS.get(verdict, ""), class_="sign", aria_hidden="true")
        texts = dict.fromkeys(row["text"] for row in rows)
        statements = [tag("div", tag("p", text), _found(rows, text)) for text in texts]
        badge = tag("span", sign, verdict, class_="word")
        about = tag("div", *statements, tag("p", name, class_="id"))
        shown.append(tag("li", badge, about, class_=verdict_class(verdict)))
    return join([tag("ul", *shown, class_="claims")]) if shown else None


def _found(rows: Sequence[Mapping[str, Any]], text: str) -> Html:
    """Return what was found of one wording of a claim, experiment by experiment and data by data."""
    listed = []
    for row in rows:
        if row["text"] != text:
            continue
        for label, (document, claim) in row["found"].items():
            mark = CLAIM_MARKS.get(str(claim.get("verdict")), "")
            link = tag("a", row["experiment"], href=f"{folder_of(document)}/report.html#claims")
            where = "" if document.get("mode") == "computed" else f" on {label}"
            listed.append(tag("li", f"{mark} {claim.get('verdict')}: ", claim_figures(claim), " – ", link, where))
    return tag("ul", *listed, class_="plain")


@section("sides", "Tables on all data, and the paper's range", place=30, short="Side by side")
def sides_section(documents: Documents) -> Html | None:
    """Return the tables for the page; None where there is none."""
    parts = []
    for side in read_sides(documents):
        titles = ("", *side.labels, "the paper, on its data")
        columns = tuple(Column(breakable(title), number=place > 0) for place, title in enumerate(titles))
        rows = [Row(Cell(name), tuple(Cell(text, kind="number") for text in cells)) for name, *cells in side.rows]
        parts.append(tag("h3", f"{side.title} ({side.name})", class_="below"))
        parts.append(Table(side.title, columns, tuple(rows)).html())
    return tag("div", *parts) if parts else None


@section("experiments", "Tables and figures", place=10)
def experiments_section(documents: Documents) -> Html | None:
    """Return the section."""
    columns = tuple(Column(title) for title in ("", "data", "what", "numbers", "claims"))
    rows = tuple(_row(document) for document in documents)
    return Table("Every reproduced table and figure", columns, rows, "runs").html()


def _row(document: Mapping[str, Any]) -> Row:
    experiment = mapping(document.get("experiment"))
    link = tag("a", breakable(str(experiment.get("name", ""))), href=f"{folder_of(document)}/report.html")
    about = join([tag("b", f"{experiment.get('source')}: {experiment.get('title')}"), tag("br"), answer(document)])
    counts = counts_words(verdict_counts(document), MARKS), counts_words(claim_counts(document), CLAIM_MARKS)
    cells = [Cell(breakable(data_label(document))), Cell(about, kind="wordy")]
    cells += [Cell(join(text.split(", "), "<br>"), kind="count") for text in counts]
    return Row(Cell(link), tuple(cells))
