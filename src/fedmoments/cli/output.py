"""What commands print: tables for people, one JSON document for machines, progress on stderr.

A terminal gets rules, bold heads and its own width. Anything else (a pipe, a file) gets the same table as plain lines
without control codes, wide enough that no cell is cut.

Names of clients, classes and files come from others and may hold what moves a cursor, rewrites a line or turns the
direction of text. All that is printed goes through :func:`visible` here, and nowhere else.
"""

import json
import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Literal, NoReturn

import click
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

__all__ = [
    "LOG_JSON",
    "SHOWN",
    "csv_text",
    "fail",
    "fits_width",
    "log_json",
    "plural",
    "print_clients",
    "print_files",
    "print_json",
    "print_line",
    "print_note",
    "print_problems",
    "print_table",
    "print_tracked",
    "progress_bar",
    "readable_bytes",
    "readable_seconds",
    "visible",
]

#: Width of lines that no terminal limits.
PLAIN_WIDTH = 200
#: How many problems of samples are named.
PROBLEMS = 5
#: Spaces between columns.
GAP = 2
#: A longer word than this may be broken, so that other columns keep some room.
LONGEST_WORD = 13
#: Rows of a long table that are shown.
SHOWN = 20
#: What begins a formula in spreadsheets, with the full-width letters that some of them take for the same.
FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?", re.ASCII)
#: Seconds between two lines of progress where there is no terminal.
QUIET = 10.0


def _console() -> Console:
    terminal = sys.stdout.isatty()
    width = None if terminal or os.environ.get("COLUMNS") else PLAIN_WIDTH
    return Console(file=sys.stdout, width=width, highlight=False, markup=False, emoji=False)


def visible(text: str) -> str:
    r"""Return text with everything that is not printable (control codes, line ends, marks of direction) written out.

    Examples
    --------
    >>> visible("caf\u00e9"), visible("\x1b[2Jclinic\n\u202e")
    ('café', '\\x1b[2Jclinic\\n\\u202e')
    """
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


def csv_text(text: str) -> str:
    """Return a text for a CSV file, visible, and with an apostrophe before what a spreadsheet would run as a formula.

    Names come with files and terms of others; numbers stay as they are.

    Examples
    --------
    >>> csv_text("=HYPERLINK(A1)"), csv_text("-1.5"), csv_text("cat")
    ("'=HYPERLINK(A1)", '-1.5', 'cat')
    """
    shown = visible(text)
    return f"'{shown}" if shown[:1] in FORMULA and not _NUMBER.fullmatch(shown) else shown


def print_json(document: Any) -> None:
    """Print one JSON document; numbers that JSON does not know (NaN, infinity) are a bug and are refused."""
    lines = json.dumps(document, allow_nan=False, ensure_ascii=False, indent=2).split("\n")
    sys.stdout.writelines(f"{_visible_json(line)}\n" for line in lines)


def _visible_json(line: str) -> str:
    """Return a line of JSON with what is not printable, which only texts hold, as JSON writes it out."""
    if line.isprintable():
        return line
    return "".join(letter if letter.isprintable() else json.dumps(letter)[1:-1] for letter in line)


def fail(sentence: str) -> NoReturn:
    """End the command with exit code 1: it was understood and tried, but what it was to do or to prove is not so."""
    print_note(f"error: {sentence}")
    raise click.exceptions.Exit(1)


def print_note(sentence: str) -> None:
    """Print one line on stderr, at once, whatever a sentence holds; as JSON where logs are structured."""
    line = " ".join(sentence.split())
    sys.stderr.write(f"{_logged(line) if _LOG['json'] else visible(line)}\n")
    sys.stderr.flush()


#: What the help says of structured lines.
LOG_JSON = "Write every line on stderr as one JSON document."
#: Whether lines on stderr are JSON documents: what a command that runs for long was requested.
_LOG = {"json": False}


def log_json(*, on: bool) -> None:
    """Let every line on stderr be one JSON document from now on, or words again."""
    _LOG["json"] = on


def _logged(line: str) -> str:
    """Return a line as JSON: when, how serious, and the sentence."""
    kind, colon, rest = line.partition(": ")
    level, message = (kind, rest) if colon and kind in ("error", "warning", "note") else ("info", line)
    moment = datetime.now(UTC).isoformat(timespec="milliseconds")
    return json.dumps({"time": moment, "level": level, "message": message})


def print_line(text: str = "") -> None:
    """Print a line, wrapped at words to the width of the terminal; line ends at its beginning are empty lines."""
    line = text.lstrip("\n")
    gap = "\n" * (len(text) - len(line))
    _console().print(gap + visible(line), soft_wrap=not sys.stdout.isatty())


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[str] = ()) -> None:
    """Print a table; the columns named in ``right`` hold numbers and are aligned to the right, unbroken.

    Parameters
    ----------
    columns
        Heads of the columns.
    rows
        A text for every column.
    right
        Which columns hold numbers.
    """
    console = _console()
    columns, right = [visible(name) for name in columns], [visible(name) for name in right]
    rows = [[visible(cell) for cell in row] for row in rows]
    style = box.SIMPLE_HEAD if sys.stdout.isatty() else None
    # A box has a column of its own between two others.
    table = Table(box=style, padding=(0, GAP - 1 if style else GAP, 0, 0), pad_edge=False, show_edge=False)
    widths = _widths(columns, rows, right, console.width)
    for name, width in zip(columns, widths, strict=True):
        justify: Literal["left", "right"] = "right" if name in right else "left"
        table.add_column(name, justify=justify, width=width, overflow="fold", header_style="bold")
    for row in rows:
        table.add_row(*row)
    console.print(table)


def print_clients(
    columns: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[str], everybody: bool
) -> None:
    """Print a table with one row a client: all of them, or the first ones and how many are left."""
    shown = rows if everybody else rows[:SHOWN]
    print_table(columns, shown, right=right)
    if len(shown) < len(rows):
        print_line(f"… and {len(rows) - len(shown):,} more clients; --all lists them")


def print_files(files: Sequence[object]) -> None:
    """Print which files were written, if any were."""
    if files:
        print_line(f"wrote {', '.join(map(str, files))}")


def print_tracked(trackers: Sequence[Any]) -> None:
    """Print where results were logged, if they were."""
    for tracker in trackers:
        if tracker.place:
            print_line(f"logged in {tracker.place}")


def _widths(
    columns: Sequence[str], rows: Sequence[Sequence[str]], unbroken: Sequence[str], available: int
) -> list[int]:
    """Return the width of every column: the widest columns of text give way until the table fits."""
    cells = list(zip(columns, *rows, strict=True))
    widths = [max(len(cell) for cell in column) for column in cells]
    longest = [max((len(word) for cell in column for word in cell.split()), default=1) for column in cells]
    text = [place for place, name in enumerate(columns) if name not in unbroken]
    for least in (longest, [min(word, LONGEST_WORD) for word in longest], [1] * len(longest)):
        _shrink(widths, text, least, available)
    return widths


def _shrink(widths: list[int], places: Sequence[int], least: Sequence[int], available: int) -> None:
    """Take from the widest of these columns, never below their least, until the table fits."""
    while sum(widths) + GAP * (len(widths) - 1) > available:
        shrinkable = [place for place in places if widths[place] > least[place]]
        if not shrinkable:
            return
        widths[max(shrinkable, key=widths.__getitem__)] -= 1


def fits_width(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Return whether a table has room beside itself without breaking a cell.

    Examples
    --------
    >>> fits_width(["head", "accuracy"], [["fedcof", "92.0"]])
    True
    """
    widths = [max(len(visible(cell)) for cell in column) for column in zip(columns, *rows, strict=True)]
    return sum(widths) + GAP * (len(widths) - 1) <= _console().width


@contextmanager
def progress_bar(what: str) -> Iterator[Any]:
    """Give a callback (done, total, text) that moves a bar on stderr; no terminal gets a line now and then."""
    if not sys.stderr.isatty():
        yield _plain_progress(what)
        return
    columns = (
        TextColumn(what),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=Console(file=sys.stderr, markup=False), transient=True) as bar:
        task = bar.add_task("loading", total=None)

        def move(done: int, total: int, text: str) -> None:
            bar.update(task, completed=done, total=total, description=visible(text))

        yield move


def _plain_progress(what: str) -> Any:
    """Return a callback that writes how far something is, once in QUIET seconds; what takes less time says nothing."""
    last = time.monotonic()

    def move(done: int, total: int, text: str) -> None:
        nonlocal last
        if time.monotonic() - last >= QUIET:
            last = time.monotonic()
            print_note(f"{what}: {done} of {total}{f', {text}' if text else ''}")

    return move


def readable_bytes(size: float) -> str:
    """Return bytes in the largest unit (of 1000) that leaves at least one whole.

    Examples
    --------
    >>> readable_bytes(3091968), readable_bytes(640)
    ('3.1 MB', '640 B')
    """
    for power, unit in ((4, "TB"), (3, "GB"), (2, "MB"), (1, "kB")):
        if size >= 1000**power:
            return f"{size / 1000**power:,.1f} {unit}"
    return f"{size:.0f} B"


def readable_seconds(seconds: float | None) -> str:
    """Return a time with two or three digits.

    Examples
    --------
    >>> readable_seconds(0.00034), readable_seconds(0.0971), readable_seconds(7.4), readable_seconds(None)
    ('0.34 ms', '97.1 ms', '7.40 s', '–')
    """
    if seconds is None:
        return "–"
    if seconds >= 1:
        return f"{seconds:.2f} s"
    milliseconds = 1000 * seconds
    return f"{milliseconds:.1f} ms" if milliseconds >= 10 else f"{milliseconds:.2f} ms"


def plural(number: int, what: str) -> str:
    """Return a number of things.

    Examples
    --------
    >>> plural(1, "client"), plural(2000, "client"), plural(2, "class"), plural(2, "entry")
    ('1 client', '2,000 clients', '2 classes', '2 entries')
    """
    if number == 1:
        return f"1 {what}"
    if what.endswith("y"):
        return f"{number:,} {what[:-1]}ies"
    return f"{number:,} {what}{'es' if what.endswith('s') else 's'}"


def print_problems(problems: Sequence[Any], all_of_them: str) -> None:
    """Print what was noticed of samples: those that cannot be used, and why.

    Parameters
    ----------
    problems
        All of them; the first few are printed.
    all_of_them
        Where the others stand.
    """
    if not problems:
        return
    print_line(f"{plural(len(problems), 'problem')}:")
    for problem in problems[:PROBLEMS]:
        print_line(f"  {problem.where}: {problem.why}")
    if len(problems) > PROBLEMS:
        print_line(f"  … and {len(problems) - PROBLEMS} more, {all_of_them}")
