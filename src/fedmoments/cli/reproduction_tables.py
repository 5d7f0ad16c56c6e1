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
    from fedmoments.reproduction import experiments
    from fedmoments.reproduction.availability import limits, obstacle, wanted

    found = []
    for each in experiments():
        here = wanted(each)
        able = here.startswith("yes")
        if data is not None and not each.is_free:
            why = obstacle(each, data, encoders)
            able, limit = why is None, limits(each, data)
            here = f"no: {why}" if why else f"yes, {limit}" if limit else "yes"
        row = {"name": each.name, "source": each.source, "title": each.title, "needs": each.needs}
        found.append({**row, "engine": each.engine, "long": each.long, "runs": able, "here": here})
    return found


def show_listing(found: Sequence[Mapping[str, Any]]) -> None:
    """Print the list, paper by paper."""
    from fedmoments.reproduction import PAPERS

    columns = ["name", "source", "needs", "engine", "here", "what it shows"]
    for paper, words in PAPERS.items():
        mine = [each for each in found if each["name"].partition("/")[0] == paper]
        if mine:
            print_line(f"{words}")
            print_table(columns, [_listed(each) for each in mine])
            print_line()
    print_line(f"{plural(len(found), 'experiment')}; run one with 'fedmoments reproduce NAME --data … --out FOLDER'")


def _listed(each: Mapping[str, Any]) -> list[str]:
    title = f"{each['title']} (long)" if each["long"] else str(each["title"])
    return [*(str(each[key]) for key in ("name", "source", "needs", "engine", "here")), title]


def show_document(document: Mapping[str, Any]) -> None:
    """Print a document for people."""
    from fedmoments.reproduction.comparison import CLAIM_VERDICTS, VERDICTS
    from fedmoments.reproduction.pages.answer import answer, claim_figures, is_ours, misprint_words, verdict_counts
    from fedmoments.reproduction.pages.words import CLAIM_MARKS, MARKS

    told = document["experiment"]
    print_line(f"{told['name']} – {told['source']}: {told['title']}")
    print_line(told["paper"])
    print_line(answer(document))
    _show_table(document)
    _show_figures(document)
    counts = verdict_counts(document)
    for verdict, meaning in VERDICTS.items():
        if verdict in counts:
            print_line(f"{MARKS[verdict]} {verdict}: {counts[verdict]} ({meaning}{_tolerance(document, verdict)})")
    for misprint in told["misprints"]:
        where = ", ".join(str(misprint[key]) for key in ("block", "row", "column"))
        print_line(f"misprint: {where}: {misprint_words(misprint)} {misprint['why']}")
    if document["claims"]:
        print_line()
        rows = [
            [
                f"{CLAIM_MARKS[claim['verdict']]} {claim['verdict']}",
                claim_figures(claim),
                f"{'ours: ' if is_ours(claim) else ''}{claim['text']}",
            ]
            for claim in document["claims"]
        ]
        print_table(["", "difference", "claim of the paper, or ours beyond it"], rows)
        if any(claim["verdict"] == "unclear" for claim in document["claims"]):
            print_line(f"unclear: {CLAIM_VERDICTS['unclear']}; ± is a standard error over seeds")
    if document["deviations"]:
        print_line("\nwhere this run departs from the paper:")
        for words in document["deviations"]:
            print_line(f"- {words}")
    for words in told["notes"]:
        print_line(f"note: {words}")
    known = f", {plural(document['cached'], 'result')} known from before" if document["cached"] else ""
    print_line(f"took {readable_seconds(document['seconds'])}{known}")


def _tolerance(document: Mapping[str, Any], verdict: str) -> str:
    """Return the tolerance behind a verdict, where all of the table has one."""
    told = document["experiment"].get("tolerance")
    units = document["table"].get("units") if document["table"] else None
    fixed = document["mode"] != "computed" and verdict in ("agrees", "near", "in range", "flat")
    return f": {told:g} {'points' if units == 'percent' else ''}".rstrip() if fixed and told is not None else ""


def _show_figures(document: Mapping[str, Any]) -> None:
    """Print what figures draw, where there is no table: a line for every series, unless places are many."""
    from fedmoments.reproduction.pages.figures import drawings
    from fedmoments.reproduction.pages.words import number_words

    for drawing in () if document["table"] else drawings(document):
        places = drawing.across.places
        if len(places) > MOST_PLACES:
            continue
        columns = [drawing.across.title, *(word for _, word in places)]
        times, decimals = (100.0, 1) if drawing.share else (1.0, None)
        rows = []
        for panel in drawing.panels:
            for series in panel.series:
                known = {dot.x: number_words(times * dot.y, decimals) for dot in series.dots}
                name = f"{panel.title}: {series.name}" if panel.title else series.name
                rows.append([name, *(known.get(place, "–") for place, _ in places)])
        print_line(f"\n{drawing.title} ({drawing.y_title})")
        print_table(columns, rows, right=columns[1:])


def show_line(document: Mapping[str, Any]) -> None:
    """Print one of many documents in a line."""
    from fedmoments.reproduction.pages.answer import answer

    told = document["experiment"]
    print_line(f"{told['name']} – {told['source']}: {answer(document)} ({readable_seconds(document['seconds'])})")


def _show_table(document: Mapping[str, Any]) -> None:
    """Print our table with the nearest blocks of the paper beside it; without data, one table for each block."""
    from fedmoments.reproduction.pages.grid import Grid, read_grid

    grid = read_grid(document)
    if grid is None:
        return
    print_line()
    if document["mode"] == "computed":
        for group in grid.groups:
            print_line(group.name)
            _print(Grid(grid.rows, (group,)), several=False)
        return
    ours = [replace(group, name="ours") for group in grid.groups if group.kind == "ours"]
    blocks = sorted((group for group in grid.groups if group.kind != "ours"), key=lambda group: group.distance or 0.0)
    nearest = [group for group in blocks if group.name == document["same_as"]] or blocks[:MOST_BLOCKS]
    beside = list(nearest)
    while beside and not fits_width(*_texts(Grid(grid.rows, (*ours, *beside)), several=True)):
        beside.pop()
    _print(Grid(grid.rows, (*ours, *beside)), several=True)
    if not beside and nearest:
        print_line()
        _print(Grid(grid.rows, (nearest[0],)), several=True)
    shown = max(len(beside), min(len(nearest), 1))
    if shown < len(blocks):
        words = f"the {shown} nearest to ours are shown" if shown > 1 else "the nearest to ours is shown"
        print_line(f"of the paper’s {plural(len(blocks), 'part')}, {words}; --out writes all")


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
        beside = "" if beside.removeprefix("paper ") == cell.main else beside
    if group.kind != "ours" and beside:
        beside = f"({beside})"
    return " ".join(part for part in (cell.main, cell.mark, beside) if part)


def _print(grid: Any, *, several: bool) -> None:
    columns, rows = _texts(grid, several=several)
    print_table(columns, rows, right=columns[1:])
