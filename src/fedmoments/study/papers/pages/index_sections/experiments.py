"""Every reproduced table and figure, in a line."""

from collections.abc import Mapping
from typing import Any

from fedmoments.pages.markup import Html, breakable, join, tag
from fedmoments.pages.plain import mapping
from fedmoments.pages.shell import section
from fedmoments.pages.table import Cell, Column, Row, Table
from fedmoments.study.papers.overview import data_label, folder_of
from fedmoments.study.papers.pages.answer import answer, claim_counts, verdict_counts
from fedmoments.study.papers.pages.index import Documents, counts_words
from fedmoments.study.papers.pages.words import CLAIM_MARKS, MARKS

__all__ = ["experiments_section"]


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
