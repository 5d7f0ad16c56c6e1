"""A fragment of Markdown: our table beside the paper's, claims, deviations and figures, ready for a larger document."""

from collections.abc import Mapping, Sequence
from typing import Any

from fedmoments.pages.formats import plain_words
from fedmoments.pages.plain import items, mapping
from fedmoments.study.papers.comparison import VERDICTS
from fedmoments.study.papers.pages.answer import answer, claim_figures, is_ours, misprint_words, verdict_counts
from fedmoments.study.papers.pages.figures import drawings
from fedmoments.study.papers.pages.grid import Grid, Group, Number, read_grid
from fedmoments.study.papers.pages.words import CLAIM_MARKS, MARKS

__all__ = ["markdown_table", "summary"]


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Sequence[int] = ()) -> str:
    """Return a table; the columns of these places hold numbers, which stand to the right.

    Examples
    --------
    >>> print(markdown_table(["head", "accuracy"], [["FedCOF", "56.1"]], numbers=[1]))
    | head | accuracy |
    | --- | ---: |
    | FedCOF | 56.1 |
    """
    rule = ["---:" if place in numbers else "---" for place in range(len(columns))]
    return "\n".join(f"| {' | '.join(line)} |" for line in ([*columns], rule, *rows))


def summary(document: Mapping[str, Any]) -> str:
    """Return a document as a fragment of Markdown.

    Parameters
    ----------
    document
        What :func:`fedmoments.study.papers.run_experiment` returns. Figures are referred to as ``figure-N.svg``.

    Examples
    --------
    >>> experiment = {"name": "fedcof/table1", "source": "Table 1", "title": "Bytes", "paper": "A paper, 2025"}
    >>> print(summary({"experiment": experiment, "mode": "computed"}).splitlines()[0])
    ## Table 1: Bytes
    """
    experiment = mapping(document.get("experiment"))
    parts = [
        f"## {plain_words(experiment.get('source', ''))}: {plain_words(experiment.get('title', ''))}",
        _about(experiment),
        plain_words(answer(document)),
        _table(document),
        _misprints(experiment),
        _claims(document),
        _figures(document),
        _listed("Where this run departs from the paper", document.get("deviations")),
        _listed("Notes", experiment.get("notes")),
    ]
    return "\n\n".join(part.strip() for part in parts if part) + "\n"


def _about(experiment: Mapping[str, Any]) -> str:
    paper, name, about = (plain_words(experiment.get(key, "")) for key in ("paper", "name", "about"))
    return f"{paper} ({name}). {about}"


def _table(document: Mapping[str, Any]) -> str:
    grid = read_grid(document)
    if grid is None:
        return ""
    whole = _one_table(grid) if grid.width <= 12 else "\n\n".join(_alone(grid, group) for group in grid.groups)
    counts = verdict_counts(document)
    legend = "; ".join(
        f"{MARKS[name]} {name} ({counts[name]}): {meaning}" for name, meaning in VERDICTS.items() if name in counts
    )
    return f"{whole}\n\n{legend}." if legend else whole


def _one_table(grid: Grid) -> str:
    columns = [""]
    for group in grid.groups:
        many = len(group.columns) > 1
        columns += [plain_words(f"{group.name}: {name}" if many else group.name) for name in group.columns]
    rows = [
        [plain_words(grid.rows[i]), *(_cell(cell, group) for group in grid.groups for cell in group.row(i))]
        for i in grid.shown
    ]
    return markdown_table(columns, rows, numbers=range(1, len(columns)))


def _alone(grid: Grid, group: Group) -> str:
    rows = [[plain_words(grid.rows[i]), *(_cell(cell, group) for cell in group.cells[i])] for i in group.rows]
    columns = ["", *(plain_words(name) for name in group.columns)]
    return f"**{plain_words(group.name)}**\n\n" + markdown_table(columns, rows, numbers=range(1, len(columns)))


def _cell(cell: Number, group: Group) -> str:
    beside = cell.beside
    if group.kind == "both" and beside.removeprefix("paper ").removeprefix("formula ") == cell.main:
        beside = ""
    if beside and not (group.kind == "ours" and "(" in beside):
        beside = f"({beside})"
    return plain_words(" ".join(part for part in (cell.main, cell.mark, beside) if part))


def _misprints(experiment: Mapping[str, Any]) -> str:
    rows = [
        f"- ‡ {', '.join(plain_words(misprint.get(key)) for key in ('block', 'row', 'column'))}: "
        f"{misprint_words(misprint)} {plain_words(misprint.get('why'))}"
        for misprint in map(mapping, items(experiment.get("misprints")))
    ]
    return "\n".join(["Misprints of the paper:", "", *rows]) if rows else ""


def _claims(document: Mapping[str, Any]) -> str:
    rows = [
        [
            f"{CLAIM_MARKS.get(str(claim.get('verdict')), '')} {plain_words(claim.get('verdict'))}",
            plain_words(f"{'ours: ' if is_ours(claim) else ''}{claim.get('text')}"),
            plain_words(claim_figures(claim)),
        ]
        for claim in map(mapping, items(document.get("claims")))
    ]
    return markdown_table(["", "claim of the paper, or ours beyond it", "our difference"], rows) if rows else ""


def _figures(document: Mapping[str, Any]) -> str:
    titles = [plain_words(drawing.title) for drawing in drawings(document)]
    return "\n\n".join(f"![{title}](figure-{number}.svg)" for number, title in enumerate(titles, 1))


def _listed(title: str, sentences: Any) -> str:
    rows = [f"- {plain_words(sentence)}" for sentence in items(sentences)]
    return "\n".join([f"{title}:", "", *rows]) if rows else ""
