"""What notebooks show of our values: one small table, whose text nobody's class name can turn into markup."""

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from html import escape
from importlib import import_module
from typing import Any

__all__ = ["Drawn", "html_table", "interval", "notebook_progress", "progress_html"]

#: Seconds between two drawings of a bar.
REDRAW = 0.2
#: Rows that a notebook shows; a last line says how many more there are.
MOST_ROWS = 20
CAPTION = "text-align:left;white-space:nowrap"


class Drawn(str):
    """Markup of our own making, which a table shows as it is."""

    __slots__ = ()


def interval(mean: float, spread: float, lowest: float, highest: float) -> Drawn:
    """Return a dot with its spread to both sides, on a line from the lowest to the highest value of a table.

    Examples
    --------
    >>> interval(0.5, 0.25, 0.0, 1.0).count("<circle"), interval(0.5, 0.0, 0.5, 0.5)[:4]
    (1, '<svg')
    """
    reach = (highest - lowest) or 1.0
    at, left, right = (
        5 + 130 * min(max((value - lowest) / reach, 0.0), 1.0) for value in (mean, mean - spread, mean + spread)
    )
    line = f'<line x1="{left:.1f}" x2="{right:.1f}" y1="7" y2="7" stroke="currentColor"/>'
    said = f"{mean:.3f} between {lowest:.3f} and {highest:.3f}"
    dot = f'<circle cx="{at:.1f}" cy="7" r="4" fill="#0b62a8"/>'
    return Drawn(f'<svg width="140" height="14" role="img" aria-label="{said}">{line}{dot}</svg>')


def html_table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a table as HTML; all text is escaped.

    Parameters
    ----------
    caption
        Above the table.
    columns
        Headings; empty where the first column says it all.
    rows
        Cells, as many as there are columns; :class:`Drawn` ones are markup already.

    Examples
    --------
    >>> html_table("Door", ["", "metres"], [("<width>", 0.9)])[-84:]
    '<tr><th></th><th>metres</th></tr><tr><td>&lt;width&gt;</td><td>0.9</td></tr></table>'
    """
    every = list(rows)
    lines = [_line("th", columns), *(_line("td", row) for row in every[:MOST_ROWS])]
    if len(every) > MOST_ROWS:
        lines.append(f'<tr><td colspan="{len(columns)}">… and {len(every) - MOST_ROWS} more</td></tr>')
    return f'<table><caption style="{CAPTION}">{escape(caption)}</caption>{"".join(lines)}</table>'


def _line(kind: str, cells: Iterable[Any]) -> str:
    texts = (cell if isinstance(cell, Drawn) else escape(str(cell)) for cell in cells)
    return f"<tr>{''.join(f'<{kind}>{text}</{kind}>' for text in texts)}</tr>"


def notebook_progress(what: str) -> Callable[[int, int, str], None] | None:
    """Return a callback (done, total, text) that draws a bar below the cell of a notebook; None outside of notebooks.

    Examples
    --------
    >>> notebook_progress("simulating") is None
    True
    """
    # Only IPython itself knows whether a notebook runs us, and where it does, it is imported already.
    ipython = sys.modules.get("IPython")
    if ipython is None or getattr(ipython.get_ipython(), "kernel", None) is None:
        return None
    page: Any = import_module("IPython.display")
    shown = page.display(page.HTML(progress_html(what, 0, 0, "")), display_id=True)
    last = 0.0

    def move(done: int, total: int, text: str = "") -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= REDRAW or done >= total:
            last = now
            shown.update(page.HTML(progress_html(what, done, total, text)))

    return move


def progress_html(what: str, done: int, total: int, text: str) -> str:
    """Return a bar as HTML; all text is escaped.

    Examples
    --------
    >>> progress_html("simulating", 1, 4, "iid, <seed 0>")
    'simulating <progress value="1" max="4"></progress> 1 of 4, iid, &lt;seed 0&gt;'
    """
    behind = f", {escape(text)}" if text else ""
    return f'{escape(what)} <progress value="{done}" max="{max(total, 1)}"></progress> {done} of {total}{behind}'
