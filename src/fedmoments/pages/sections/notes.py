"""What went wrong or needs a word: unreadable samples, heads that made do or chose, and what the splits report."""

from collections.abc import Mapping, Sequence

from fedmoments.core.observations import Report
from fedmoments.core.observations.parts import SplitReport
from fedmoments.pages.blocks import bullets, note, titled
from fedmoments.pages.formats import count
from fedmoments.pages.markup import Html, join, tag
from fedmoments.pages.reading import setting_words
from fedmoments.pages.shell import section
from fedmoments.pages.table import Cell, Column, Row, number_cell, sortable
from fedmoments.settings.setting import split_words

__all__ = ["notes_section"]

#: Notes and splits that are listed.
MOST_PROBLEMS, MOST_SPLITS = 50, 60
#: Numbers of a split: key and title.
SIZES = {
    "seed": "Seed",
    "clients": "Clients",
    "empty_clients": "Empty",
    "samples": "Samples",
    "smallest": "Smallest",
    "largest": "Largest",
    "dropped": "Dropped",
}


@section("notes", "Notes and splits", place=170)
def notes_section(report: Report) -> Html | None:
    """Return the section, or None when there is nothing to say."""
    problems = report.data.problems
    shown = [join([tag("code", problem.where), ": ", problem.why]) for problem in problems]
    lesser = dict.fromkeys((row.head, sentence) for row in report.rows for sentence in row.notes)
    parts = [
        titled(
            f"{count(len(problems), 'sample')} could not be used",
            bullets(shown, most=MOST_PROBLEMS, elsewhere="results.json"),
        ),
        titled("The data", bullets(list(report.data.notes))),
        titled(
            "Fitted with a fallback",
            bullets([join([tag("b", head), ": ", sentence]) for head, sentence in lesser]),
        ),
        titled(
            "Chosen from the statistics, on the first seed",
            bullets([join([tag("b", head), " ", choice]) for head, choice in _choices(report).items()]),
        ),
        _splits(report.splits),
    ]
    return join(parts) if any(parts) else None


def _choices(report: Report) -> Mapping[str, str]:
    """Return what heads chose for themselves, in the first setting in which they did."""
    choices: dict[str, str] = {}
    for row in report.rows:
        if row.choice:
            where = setting_words(report, row.setting)
            choices.setdefault(row.head, f"{row.choice} ({where})" if where else row.choice)
    return choices


def _splits(splits: Sequence[SplitReport]) -> Html | None:
    if not splits:
        return None
    columns = [Column("Split"), *(Column(title, number=True) for title in SIZES.values()), Column("Notes")]
    table = sortable("Sizes of every split", columns, [_split(split) for split in splits[:MOST_SPLITS]])
    cut = f"The first {MOST_SPLITS} of {len(splits)} splits." if len(splits) > MOST_SPLITS else None
    return titled("Splits", table, note(cut))


def _split(split: SplitReport) -> Row:
    numbers = [getattr(split, key) for key in SIZES]
    words = [word for word in (split.why, *split.notes) if word]
    cells = [number_cell(number, count(number)) for number in numbers]
    return Row(Cell(split_words(split.scheme)), (*cells, Cell(" · ".join(words) or "–", kind="minor")))
