"""The page of one table or figure: ours beside the paper's, figures, claims, deviations, how to repeat it."""

from collections.abc import Mapping
from typing import Any

from fedmoments.report.formats import count, seconds
from fedmoments.report.labels import text_width
from fedmoments.report.markup import Html, Node, breakable, join, tag
from fedmoments.report.plain import as_number, items, mapping
from fedmoments.report.toml import to_toml
from fedmoments.reproduction.comparison import CLAIM_VERDICTS, VERDICTS
from fedmoments.reproduction.pages.answer import (
    answer,
    claim_asked,
    claim_figures,
    is_ours,
    misprint_words,
    pair_rows,
    verdict_counts,
)
from fedmoments.reproduction.pages.figures import drawings, figure_html
from fedmoments.reproduction.pages.grid import Cell, Grid, Group, read_grid
from fedmoments.reproduction.pages.shell import shell
from fedmoments.reproduction.pages.words import CLAIM_MARKS, MARKS, data_words, number_words

__all__ = ["render_page", "verdict_class"]

#: Pixels that tables have beside one another, those beside a cell's words, and the widest that a row's name takes.
ROOM, BESIDE, WIDEST = 860.0, 26.0, 200.0
#: Pixels after which the name of a group breaks.
HEADING = 128.0
_MODES = {
    "computed": "computed, without data",
    "same data": "the paper’s own data",
    "stand-in": "data that stand in for the paper’s",
}


def render_page(document: Mapping[str, Any]) -> str:
    """Return a document as one HTML page that needs nothing else.

    Parameters
    ----------
    document
        What :func:`fedmoments.reproduction.run_experiment` returns, or its ``results.json``.

    Examples
    --------
    >>> experiment = {"name": "fedcof/table1", "source": "Table 1", "title": "Bytes", "paper": "A paper, 2025"}
    >>> page = render_page({"experiment": experiment, "mode": "computed"})
    >>> "Table 1: Bytes" in page, "<script src" in page
    (True, False)
    """
    told = mapping(document.get("experiment"))
    title = f"{told.get('source', '')}: {told.get('title', '')}"
    top: list[Node] = [
        tag("h1", title),
        tag("p", answer(document), class_="answer"),
        tag("p", str(told["about"]), class_="lead") if told.get("about") else None,
        _facts(document),
    ]
    numbers = [figure_html(drawing, number) for number, drawing in enumerate(drawings(document), 1)]
    source = str(mapping(document.get("experiment")).get("source"))
    drawn = "Drawn as in the paper" if source.startswith("Figure") else "Drawn"
    sections = [
        ("table", "Table", "Ours beside the paper’s", _table(document)),
        ("figures", "Figures", drawn, join(numbers) if numbers else None),
        ("claims", "Claims", "What the paper says of it", _claims(document)),
        ("deviations", "Deviations", "Where this run departs from the paper", _deviations(document)),
        ("repeat", "Repeat", "How to repeat this", _repeat(document)),
    ]
    return shell(f"{told.get('name', '')}: {title}", top, sections, version=str(document.get("version") or ""))


def verdict_class(verdict: str) -> str:
    """Return the style of a verdict.

    Examples
    --------
    >>> verdict_class("in range")
    'v-in-range'
    """
    return f"v-{verdict.replace(' ', '-')}"


def _facts(document: Mapping[str, Any]) -> Html:
    told, data = mapping(document.get("experiment")), mapping(document.get("data"))
    encoder = mapping(data.get("encoder")).get("name")
    known = [
        tag("b", str(told.get("paper", ""))),
        str(told.get("name", "")),
        _MODES.get(str(document.get("mode"))),
        f"same as {document['same_as']}" if document.get("same_as") else None,
        f"{data_words(data['name'])} behind {encoder}" if data.get("name") else None,
        count(len(items(document.get("seeds"))), "seed") if data else None,
    ]
    return tag("ul", *(tag("li", each) for each in known if each), class_="facts")


# ---------------------------------------------------------------------------------------------- the table


def _table(document: Mapping[str, Any]) -> Html | None:
    grid = read_grid(document)
    if grid is None:
        return None
    table = mapping(document.get("table"))
    tables = tag("div", *(_one(each, table.get("reference")) for each in _packed(grid)), class_="tables")
    return join([tag("p", _lead(document, grid), class_="lead"), tables, _legend(document), _misprints(document)])


def _lead(document: Mapping[str, Any], grid: Grid) -> str:
    table, told = mapping(document.get("table")), mapping(document.get("experiment"))
    units = "Accuracies are in percent" if table.get("units") == "percent" else f"Units: {table.get('units')}"
    tolerance = as_number(told.get("tolerance"))
    spread = " ± is the standard deviation over seeds." if len(items(document.get("seeds"))) > 1 else ""
    if document.get("mode") == "stand-in":
        compared = any(cell.verdict for group in grid.groups for row in group.cells for cell in row)
        over = f"Below are gains over {table.get('reference')}: ours, and the paper’s over all its data."
        over += "" if tolerance is None else f" A gain within {number_words(tolerance)} is none."
        return f"{units}.{spread} {over if compared else ''}".strip()
    within = "" if tolerance is None else f" A number agrees within {number_words(tolerance)} of the paper’s."
    if within and any(group.tolerance not in (None, tolerance) for group in grid.groups):
        within = f"{within[:-1]}, or within what a part of the table says."
    below = " The paper’s numbers stand below ours." if any(group.kind == "both" for group in grid.groups) else ""
    return f"{units}.{spread}{below}{within}"


def _packed(grid: Grid) -> list[Grid]:
    """Return tables of as many groups as fit beside one another; the first group of a table has all of its rows."""
    kinds = list(dict.fromkeys(group.rows for group in grid.groups))
    found: list[list[Group]] = []
    used = 0.0
    for group in sorted(grid.groups, key=lambda each: kinds.index(each.rows)):
        wide = _width(group)
        fits = bool(found) and used + wide <= ROOM and set(group.rows) <= set(found[-1][0].rows)
        if not fits:
            found.append([])
            used = max(min(text_width(grid.rows[i], 13), WIDEST) for i in group.rows) + BESIDE
        found[-1].append(group)
        used += wide
    return [Grid(grid.rows, tuple(groups)) for groups in found]


def _width(group: Group) -> float:
    """Return about how wide the columns of a group are."""
    widths = []
    for j, column in enumerate(group.columns):
        cells = [group.cells[i][j] for i in group.rows]
        mains = [text_width(f"{cell.main} {cell.mark}", 13) for cell in cells]
        widths.append(
            max([text_width(column, 12), *mains, *(text_width(cell.beside, 10.5) for cell in cells)]) + BESIDE
        )
    return max(sum(widths), min(text_width(group.name, 12.5), HEADING) + BESIDE) + 14


def _one(grid: Grid, reference: Any) -> Html:
    names: list[Node] = [tag("th", class_="corner")]
    heads: list[Node] = [tag("td")]
    for place, group in enumerate(grid.groups):
        begins = "begins" if place else None
        over = "group begins" if place else "group"
        own = None if group.tolerance is None else tag("span", f" ± {number_words(group.tolerance)}", class_="minor")
        name = tag("span", group.name, own, class_="name")
        heads.append(tag("th", name, colspan=len(group.columns), scope="colgroup", class_=over))
        names += [tag("th", name, scope="col", class_=None if i else begins) for i, name in enumerate(group.columns)]
    body = []
    for i in grid.shown:
        row = grid.rows[i]
        cells = [
            _cell(cell, group, begins=bool(place) and not j)
            for place, group in enumerate(grid.groups)
            for j, cell in enumerate(group.row(i))
        ]
        style = "reference" if row == reference else None
        body.append(tag("tr", tag("th", breakable(row), scope="row"), *cells, class_=style))
    table = tag("table", tag("thead", tag("tr", *heads), tag("tr", *names)), tag("tbody", *body), class_="compared")
    return tag("div", table, class_="scroll", tabindex="0", role="region", aria_label="Table, which may scroll")


def _cell(cell: Cell, group: Group, *, begins: bool) -> Html:
    style = [f"verdict {verdict_class(cell.verdict)}"] if cell.verdict else []
    style += ["begins"] if begins else []
    sign = tag("span", cell.mark, class_="sign", aria_hidden="true") if cell.mark else None
    unseen = tag("span", f" {cell.verdict}", class_="unseen") if cell.verdict else None
    main = tag("b", cell.main) if group.kind != "paper" else cell.main
    beside = tag("span", cell.beside, class_="beside") if cell.beside else None
    return tag("td", main, sign, unseen, beside, class_=" ".join(style) or None, data_tip=cell.told or None)


def _legend(document: Mapping[str, Any]) -> Html | None:
    found = verdict_counts(document)
    shown = []
    for verdict, meaning in VERDICTS.items():
        if verdict in found:
            sign = tag("span", MARKS[verdict], class_="sign")
            words = f"{verdict}: {found[verdict]}"
            sample = tag("span", sign, words, class_=f"sample verdict {verdict_class(verdict)}")
            shown.append(tag("li", sample, meaning))
    return tag("ul", *shown, class_="legend-words") if shown else None


def _misprints(document: Mapping[str, Any]) -> Html | None:
    rows = [mapping(each) for each in items(mapping(document.get("experiment")).get("misprints"))]
    if not rows:
        return None
    shown = []
    for each in rows:
        where = ", ".join(str(each.get(key)) for key in ("block", "row", "column") if each.get(key))
        words = f": {misprint_words(each)} {each.get('why') or ''}"
        shown.append(tag("li", tag("b", where), words))
    return join([tag("h3", "‡ Misprints of the paper", class_="below"), tag("ul", *shown, class_="plain")])


# ---------------------------------------------------------------------------------------------- claims and deviations


def _claims(document: Mapping[str, Any]) -> Html | None:
    told = [mapping(each) for each in items(document.get("claims"))]
    theirs, ours = ([_claim(each) for each in told if is_ours(each) == own] for own in (False, True))
    found = {str(each.get("verdict")) for each in told}
    meanings = [tag("li", f"{name}: {words}.") for name, words in CLAIM_VERDICTS.items() if name in found]
    heading = "Beyond the paper: the same with defaults of our own, or corrected"
    lists = [
        tag("ul", *theirs, class_="claims") if theirs else None,
        tag("h3", heading, class_="below") if ours else None,
        tag("ul", *ours, class_="claims") if ours else None,
        tag("ul", *meanings, class_="legend-words") if told else None,
    ]
    return join(lists) if told else None


def _claim(claim: Mapping[str, Any]) -> Html:
    verdict = str(claim.get("verdict") or "not tested")
    sign = tag("span", CLAIM_MARKS.get(verdict, ""), class_="sign", aria_hidden="true")
    pairs = pair_rows(claim)
    figures = "; ".join(words for words in (claim_figures(claim), claim_asked(claim)) if words)
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
    heads = ["setting", "left", "right", "difference", ""]
    number = {1, 2, 3}
    head = tag("tr", *(tag("th", name, class_="number" if i in number else None) for i, name in enumerate(heads)))
    body = [
        tag("tr", *(tag("td", word, class_="number" if i in number else None) for i, word in enumerate(row)))
        for row in rows
    ]
    table = tag("table", tag("thead", head), tag("tbody", *body), class_="list")
    words = count(len(rows), "setting")
    return tag("details", tag("summary", f"{words}, one by one"), tag("div", table, class_="scroll", tabindex="0"))


def _deviations(document: Mapping[str, Any]) -> Html | None:
    told = [str(each) for each in items(document.get("deviations"))]
    notes = [str(each) for each in items(mapping(document.get("experiment")).get("notes"))]
    if not told and not notes:
        return None
    none = tag("p", "Nowhere, besides what the notes say.") if not told else None
    lists = [none, tag("ul", *(tag("li", each) for each in told), class_="plain") if told else None]
    if notes:
        lists += [tag("h3", "Notes", class_="below"), tag("ul", *(tag("li", each) for each in notes), class_="plain")]
    return join(lists)


# ---------------------------------------------------------------------------------------------- how to repeat it


def _repeat(document: Mapping[str, Any]) -> Html:
    data = mapping(document.get("data"))
    encoder = mapping(data.get("encoder"))
    sizes = [f"{count(as_number(data.get(key)))} {words}" for key, words in _SIZES if data.get(key) is not None]
    known: list[tuple[str, Any, bool]] = [
        ("fedmoments", document.get("version"), False),
        ("Engine", mapping(document.get("experiment")).get("engine"), False),
        ("Seeds", ", ".join(str(seed) for seed in items(document.get("seeds"))), False),
        ("Took", seconds(as_number(document.get("seconds"))), False),
        ("Known from before", count(as_number(document.get("cached")), "result"), False),
        ("Data", data.get("name"), False),
        ("", data.get("description"), False),
        ("Size", ", ".join(sizes), False),
        ("Digest of the data", data.get("digest"), True),
        ("Encoder", encoder.get("name"), False),
        ("Fingerprint of the encoder", encoder.get("fingerprint"), True),
        *((f"Fingerprint behind {name}", digest, True) for name, digest in mapping(data.get("fingerprints")).items()),
    ]
    rows = [
        join([tag("dt", name), tag("dd", tag("code", str(value)) if code else str(value))])
        for name, value, code in known
        if value
    ]
    command = _copied("Command", str(document["command"])) if document.get("command") else None
    settings = mapping(document.get("settings"))
    written = _copied("Settings", to_toml(settings), wrap=False) if settings else None
    return join([command, written, tag("h3", "Origin", class_="below"), tag("dl", *rows)])


_SIZES = (("train", "training samples"), ("test", "test samples"), ("classes", "classes"), ("dim", "dimensions"))


def _copied(title: str, words: str, *, wrap: bool = True) -> Html:
    button = tag("button", "Copy", type="button", class_="copy", aria_label=f"Copy the {title.lower()}")
    block = tag("pre", tag("code", words), tabindex="0", class_="wrap" if wrap else None)
    return tag("div", tag("div", tag("h3", title), button, class_="row"), block, class_="copied")
