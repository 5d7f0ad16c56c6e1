"""What went wrong or needs a word: unreadable samples, heads that made do or chose, and what the splits report."""

from collections.abc import Mapping
from typing import Any

from fedmoments.report.formats import count, split_words
from fedmoments.report.markup import Html, join, tag
from fedmoments.report.plain import as_number, items, mapping
from fedmoments.report.reading import Results, Row
from fedmoments.report.table import sortable

__all__ = ["notes_section"]

#: Problems and splits that are listed.
MOST_PROBLEMS, MOST_SPLITS = 50, 60


def notes_section(results: Results) -> Html | None:
    """Return the section, or None when there is nothing to say."""
    problems = [mapping(each) for each in items(results.data.get("problems"))]
    splits = [mapping(each) for each in items(results.raw.get("splits"))]
    lesser = list(dict.fromkeys((row.head, note) for row in results.rows for note in row.notes))
    choices: dict[str, str] = {}
    for row in results.rows:
        if row.choice:
            choices.setdefault(row.head, row.choice + _where(results, row))
    if not problems and not splits and not lesser and not choices:
        return None
    return join(
        [
            _problems(problems) if problems else None,
            _lesser(lesser) if lesser else None,
            _chosen(choices) if choices else None,
            _splits(splits) if splits else None,
        ]
    )


def _lesser(notes: list[tuple[str, str]]) -> Html:
    """Return what heads warned of while they were fitted."""
    shown = [tag("li", tag("b", head), ": ", note) for head, note in notes]
    return join([tag("h3", "Fitted in a lesser way than asked for"), tag("ul", *shown, class_="plain")])


def _where(results: Results, row: Row) -> str:
    words = results.setting_words(row.setting)
    return f" ({words})" if words else ""


def _chosen(choices: Mapping[str, str]) -> Html:
    """Return what heads chose for themselves."""
    shown = [tag("li", tag("b", head), " ", choice) for head, choice in choices.items()]
    return join([tag("h3", "Chosen from the statistics, on the first seed"), tag("ul", *shown, class_="plain")])


def _problems(problems: list[Mapping[str, Any]]) -> Html:
    shown = [
        tag("li", tag("code", str(each.get("where", "?"))), ": ", str(each.get("why", "")))
        for each in problems[:MOST_PROBLEMS]
    ]
    more = len(problems) - len(shown)
    return join(
        [
            tag("h3", f"{count(len(problems), 'sample')} could not be used"),
            tag(
                "ul", *shown, tag("li", f"… and {count(more)} more, in results.json") if more else None, class_="plain"
            ),
        ]
    )


def _splits(splits: list[Mapping[str, Any]]) -> Html:
    columns = [("Split", False), ("Seed", True), ("Clients", True), ("Empty", True), ("Samples", True)]
    columns += [("Smallest", True), ("Largest", True), ("Dropped", True), ("Notes", False)]
    keys = ("seed", "clients", "empty_clients", "samples", "smallest", "largest", "dropped")
    rows = []
    for split in splits[:MOST_SPLITS]:
        numbers = [as_number(split.get(key)) for key in keys]
        cells = [
            tag("td", count(value), data_value="" if value is None else value, class_="number") for value in numbers
        ]
        words = [str(word) for word in (split.get("why"), *items(split.get("notes"))) if word]
        rows.append(
            tag(
                "tr",
                tag("th", split_words(split.get("scheme", "?")), scope="row"),
                *cells,
                tag("td", " · ".join(words) or "–", class_="minor"),
            )
        )
    cut = f"The first {MOST_SPLITS} of {len(splits)} splits." if len(splits) > MOST_SPLITS else None
    return join(
        [
            tag("h3", "Splits"),
            sortable("Sizes of every split", columns, rows),
            tag("p", cut, class_="note") if cut else None,
        ]
    )
