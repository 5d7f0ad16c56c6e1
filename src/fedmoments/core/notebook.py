"""What notebooks show of our values: one small table, whose text nobody's class name can turn into markup."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

__all__ = ["html_table"]

#: Rows that a notebook shows; a last line says how many more there are.
MOST_ROWS = 20


def html_table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a table as HTML; all text is escaped.

    Parameters
    ----------
    caption
        Above the table.
    columns
        Headings; empty where the first column says it all.
    rows
        Cells, as many as there are columns.

    Examples
    --------
    >>> html_table("Door", ["", "metres"], [("<width>", 0.9)])
    '<table><caption>Door</caption><tr><th></th><th>metres</th></tr><tr><td>&lt;width&gt;</td><td>0.9</td></tr></table>'
    """
    every = list(rows)
    lines = [_line("th", columns), *(_line("td", row) for row in every[:MOST_ROWS])]
    if len(every) > MOST_ROWS:
        lines.append(f'<tr><td colspan="{len(columns)}">… and {len(every) - MOST_ROWS} more</td></tr>')
    return f"<table><caption>{escape(caption)}</caption>{''.join(lines)}</table>"


def _line(kind: str, cells: Iterable[Any]) -> str:
    return f"<tr>{''.join(f'<{kind}>{escape(str(cell))}</{kind}>' for cell in cells)}</tr>"
