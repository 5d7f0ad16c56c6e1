"""What ``fedmoments reproduce`` prints: the list of what there is; ours beside the paper's, claims, deviations."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fedmoments.cli.output import fits_width, plural, print_line, print_table, readable_seconds

__all__ = ["listing", "show_document", "show_line", "show_listing"]

#: Blocks of the paper that stand beside our table.
MOST_BLOCKS = 2
#: A figure with more places across is left to the page.
MOST_PLACES = 12


def listing(data: Any, encoders: Sequence[str | None]) -> list[dict[str, Any]]:
    """Return every experiment, and whether it can be run with some data; without data, which it would need."""
    from fedmoments.study.papers import experiments
    from fedmoments.study.papers.library import limits, obstacle, wanted

    rows = []
    for experiment in experiments():
        here = wanted(experiment)
        able = here.startswith("yes")
        if data is not None and not experiment.is_free:
            why = obstacle(experiment, data, encoders)
            able, limit = why is None, limits(experiment, data)
            here = f"no: {why}" if why else f"yes, {limit}" if limit else "yes"
        row = {
            "name": experiment.name,
            "source": experiment.source,
            "title": experiment.title,
            "needs": experiment.needs,
        }
        rows.append({**row, "engine": experiment.engine, "long": experiment.long, "runs": able, "here": here})
    return rows


def show_listing(experiments: Sequence[Mapping[str, Any]]) -> None:
    """Print the list, paper by paper."""
    from fedmoments.study.papers import PAPERS

    columns = ["name", "source", "needs", "engine", "here", "what it shows"]
    for paper, title in PAPERS.items():
        mine = [row for row in experiments if row["name"].partition("/")[0] == paper]
        if mine:
            print_line(f"{title}")
            print_table(columns, [_listed(row) for row in mine])
            print_line()
    print_line(
        f"{plural(len(experiments), 'experiment')}; run one with 'fedmoments reproduce NAME --data … --out FOLDER'"
    )


def _listed(row: Mapping[str, Any]) -> list[str]:
    title = f"{row['title']} (long)" if row["long"] else str(row["title"])
    return [*(str(row[key]) for key in ("name", "source", "needs", "engine", "here")), title]


def show_document(document: Mapping[str, Any]) -> None:
    """Print a document for people."""
    from fedmoments.study.papers.comparison import VERDICTS
    from fedmoments.study.papers.pages.answer import answer, misprint_words, verdict_counts
    from fedmoments.study.papers.pages.words import MARKS

    experiment = document["experiment"]
    print_line(f"{experiment['name']} – {experiment['source']}: {experiment['title']}")
    print_line(experiment["paper"])
    print_line(answer(document))
    _show_table(document)
    _show_figures(document)
    counts = verdict_counts(document)
    for verdict, meaning in VERDICTS.items():
        if verdict in counts:
            print_line(f"{MARKS[verdict]} {verdict}: {counts[verdict]} ({meaning}{_tolerance(document, verdict)})")
    for misprint in experiment["misprints"]:
        where = ", ".join(str(misprint[key]) for key in ("block", "row", "column"))
        print_line(f"misprint: {where}: {misprint_words(misprint)} {misprint['why']}")
    if document["claims"]:
        _show_claims(document["claims"])
    if document["deviations"]:
        print_line("\nwhere this run departs from the paper:")
        for sentence in document["deviations"]:
            print_line(f"- {sentence}")
    for sentence in experiment["notes"]:
        print_line(f"note: {sentence}")
    known = f", {plural(document['cached'], 'result')} known from before" if document["cached"] else ""
    print_line(f"took {readable_seconds(document['seconds'])}{known}")


def _show_claims(claims: Sequence[Mapping[str, Any]]) -> None:
    from fedmoments.study.papers.claims import CLAIM_VERDICTS
    from fedmoments.study.papers.pages.answer import claim_figures, is_ours
    from fedmoments.study.papers.pages.words import CLAIM_MARKS

    print_line()
    rows = []
    for claim in claims:
        verdict, whose = claim["verdict"], "ours: " if is_ours(claim) else ""
        rows.append([f"{CLAIM_MARKS[verdict]} {verdict}", claim_figures(claim), f"{whose}{claim['text']}"])
    print_table(["", "difference", "claim of the paper, or ours beyond it"], rows)
    if any(claim["verdict"] == "unclear" for claim in claims):
        print_line(f"unclear: {CLAIM_VERDICTS['unclear']}; ± is a standard error over seeds")


def _tolerance(document: Mapping[str, Any], verdict: str) -> str:
    """Return the tolerance behind a verdict, where all of the table has one."""
    tolerance = document["experiment"].get("tolerance")
    units = document["table"].get("units") if document["table"] else None
    fixed = document["mode"] != "computed" and verdict in ("agrees", "near", "in range", "flat")
    return (
        f": {tolerance:g} {'points' if units == 'percent' else ''}".rstrip() if fixed and tolerance is not None else ""
    )


def _show_figures(document: Mapping[str, Any]) -> None:
    """Print what figures draw, where there is no table: a line for every series, unless places are many."""
    from fedmoments.study.papers.pages.figures import drawings

    for drawing in () if document["table"] else drawings(document):
        if len(drawing.places) <= MOST_PLACES:
            columns = [drawing.across.title, *(word for _, word in drawing.places)]
            rows = [_series(drawing, panel, series) for panel in drawing.panels for series in panel.series]
            print_line(f"\n{drawing.title} ({drawing.y_title})")
            print_table(columns, rows, right=columns[1:])


def _series(drawing: Any, panel: Any, series: Any) -> list[str]:
    from fedmoments.study.papers.pages.words import number_words

    times, decimals = (100.0, 1) if drawing.share else (1.0, None)
    known = {point.x: number_words(times * point.y, decimals) for point in series.points}
    name = f"{panel.title}: {series.name}" if panel.title else series.name
    return [name, *(known.get(place, "–") for place, _ in drawing.places)]


def show_line(document: Mapping[str, Any]) -> None:
    """Print one of many documents in a line."""
    from fedmoments.study.papers.pages.answer import answer

    experiment = document["experiment"]
    print_line(
        f"{experiment['name']} – {experiment['source']}: {answer(document)} ({readable_seconds(document['seconds'])})"
    )


def _show_table(document: Mapping[str, Any]) -> None:
    """Print our table with the nearest blocks of the paper beside it; without data, one table for each block."""
    from fedmoments.study.papers.pages.grid import Grid, read_grid

    grid = read_grid(document)
    if grid is None:
        return
    print_line()
    if document["mode"] == "computed":
        for group in grid.groups:
            print_line(group.name)
            _print(Grid(grid.rows, (group,)), several=False)
    else:
        _show_beside(grid, document["same_as"])


def _show_beside(grid: Any, same_as: str | None) -> None:
    blocks = sorted((group for group in grid.groups if group.kind != "ours"), key=lambda group: group.distance or 0.0)
    nearest = [group for group in blocks if group.name == same_as] or blocks[:MOST_BLOCKS]
    shown = _print_beside(grid, nearest)
    if shown < len(blocks):
        which = f"the {shown} nearest to ours are shown" if shown > 1 else "the nearest to ours is shown"
        print_line(f"of the paper’s {plural(len(blocks), 'part')}, {which}; --out writes all")


def _print_beside(grid: Any, nearest: Sequence[Any]) -> int:
    """Print ours beside as many of the nearest blocks as fit, or above the nearest; return how many blocks."""
    from fedmoments.study.papers.pages.grid import Grid

    ours = [replace(group, name="ours") for group in grid.groups if group.kind == "ours"]
    beside = list(nearest)
    while beside and not fits_width(*_texts(Grid(grid.rows, (*ours, *beside)), several=True)):
        beside.pop()
    _print(Grid(grid.rows, (*ours, *beside)), several=True)
    if not beside and nearest:
        print_line()
        _print(Grid(grid.rows, (nearest[0],)), several=True)
    return max(len(beside), min(len(nearest), 1))


def _texts(grid: Any, *, several: bool) -> tuple[list[str], list[list[str]]]:
    columns = [""]
    for group in grid.groups:
        one = len(group.columns) == 1
        columns += [
            group.name if one and several else f"{group.name}: {name}" if several else name for name in group.columns
        ]
    rows = [[grid.rows[i], *(_cell(cell, group) for group in grid.groups for cell in group.row(i))] for i in grid.shown]
    return columns, rows


def _cell(cell: Any, group: Any) -> str:
    beside = cell.beside
    if group.kind == "both":  # the paper's number, where it is another one
        beside = "" if beside.removeprefix("paper ").removeprefix("formula ") == cell.main else beside
    if group.kind != "ours" and beside:
        beside = f"({beside})"
    return " ".join(part for part in (cell.main, cell.mark, beside) if part)


def _print(grid: Any, *, several: bool) -> None:
    columns, rows = _texts(grid, several=several)
    print_table(columns, rows, right=columns[1:])
