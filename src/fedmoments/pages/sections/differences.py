"""One head against all others on the same splits, with intervals; and heads by setting, where one is swept."""

from collections.abc import Sequence

from fedmoments.core.observations import SWEPT, Comparison, Report, Row, Setting
from fedmoments.pages.blocks import lead, note
from fedmoments.pages.markup import Html, Node, join
from fedmoments.pages.shell import section
from fedmoments.pages.table import Cell, Column, Table, name_cell, number_cell, share_cell
from fedmoments.pages.table import Row as TableRow
from fedmoments.settings.setting import spelled

__all__ = ["differences_section"]

#: The head that is compared with the others, where it was run; else the most accurate one.
ADVISED = "auto"
NOTE = (
    "Differences in accuracy, in points. From, to: 95 % confidence interval (Student's t) of their mean over "
    "seeds. If it contains 0, the difference may be chance. The last column counts test samples that just "
    "one of the two classifies correctly, over all seeds."
)


@section("differences", "Are differences real?", place=35)
def differences_section(report: Report) -> Html | None:
    """Return the section, or None with fewer than two heads that were fitted."""
    first = _first(report)
    if first is None:
        return None
    against = (_against(report, first, head) for head in _others(report, first.head))
    compared = [comparison for comparison in against if comparison is not None]
    pivot = _pivot(report)
    if not compared and pivot is None:
        return None
    parts: list[Node] = [pivot] if pivot is not None else []
    if compared:
        opening = lead(f"{first.head} compared with the other heads, on the same splits.")
        parts = [opening, Table("Differences", COLUMNS, tuple(map(_row, compared))).html(), note(NOTE), *parts]
    return join(parts)


COLUMNS = (
    Column("Against"),
    Column("Points", number=True),
    Column("From", number=True),
    Column("To", number=True),
    Column("Clear"),
    Column("Only one right", number=True),
)


def _first(report: Report) -> Row | None:
    """Return the row that others are compared with: the advised head's, or that of the highest accuracy."""
    rows = [row for row in report.rows_of(report.main_setting) if row.accuracy is not None] if report.rows else []
    advised = [row for row in rows if row.head == ADVISED]
    return next(iter(advised or sorted(rows, key=lambda row: -(row.accuracy or 0.0))), None)


def _others(report: Report, head: str) -> list[str]:
    rows = sorted(report.rows_of(report.main_setting), key=lambda row: -(row.accuracy or 0.0))
    return list(dict.fromkeys(row.head for row in rows if row.head != head and row.accuracy is not None))


def _against(report: Report, first: Row, head: str) -> Comparison | None:
    """Return a comparison in the first setting, where the seeds give an interval."""
    place = {key: getattr(first.setting, key) for key in SWEPT}
    several = report.results.compare(first.head, head)
    return next((one for one in several if _at(one, place) and one.interval is not None), None)


def _at(comparison: Comparison, place: dict[str, object]) -> bool:
    return all(comparison.place.get(key, value) == value for key, value in place.items())


def _row(compared: Comparison) -> TableRow:
    middle, reach = (compared.interval.mean, compared.interval.reach) if compared.interval else (0.0, 0.0)
    ends = (middle, middle - reach, middle + reach)
    points = [number_cell(value, f"{100 * value:+.1f}") for value in ends]
    alone = [(test.only_first, test.only_second) for test in compared.samples]
    counts = f"{sum(a for a, _ in alone)} : {sum(b for _, b in alone)}" if alone else "–"
    clear = Cell("yes" if compared.is_clear else "no", kind="minor")
    return TableRow(name_cell(compared.second), (*points, clear, Cell(counts, kind="number")), head=compared.second)


def _pivot(report: Report) -> Html | None:
    """Return heads by the one setting that is swept, or None where none is, or several are."""
    if len(report.swept) != 1:
        return None
    [key] = report.swept
    settings: Sequence[Setting] = report.settings
    columns = (Column("Head"), *(Column(spelled(key, getattr(setting, key)), number=True) for setting in settings))
    cells = {(row.head, row.setting): row for row in report.rows}
    rows = [
        TableRow(
            name_cell(head),
            tuple(
                share_cell(row.accuracy, row.accuracy_std)
                if (row := cells.get((head, setting)))
                else Cell("–", kind="number")
                for setting in settings
            ),
            head=head,
        )
        for head in dict.fromkeys(row.head for row in report.rows)
    ]
    subject = SWEPT[key].subject or SWEPT[key].name
    return join([lead(f"Accuracy by {subject}."), Table(f"Accuracy by {subject}", columns, tuple(rows)).html()])
