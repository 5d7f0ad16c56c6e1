"""The report of a simulation, a federation, rounds of tuning or diagnostics: a list of sections under an answer."""

import os
from collections.abc import Mapping
from typing import Any

from fedmoments.core.observations import Report
from fedmoments.files import write_whole
from fedmoments.pages.answer import answer, facts, question
from fedmoments.pages.shell import Opening, Page, Top

__all__ = ["REPORT", "render", "write_report"]

#: The page, whose sections are the files of :mod:`fedmoments.pages.sections`.
REPORT: Page[Report] = Page(
    "fedmoments · one-shot federated learning", "fedmoments.pages.sections", "fedmoments.report_sections"
)
#: What the page says of heads; one without heads opens with what it is about.
HEADS: Opening[Report] = Opening(question, answer, "what one upload teaches")


def render(report: Report | Mapping[str, Any]) -> str:
    """Return a report as one HTML page that needs nothing else.

    Parameters
    ----------
    report
        A report, or what ``results.json`` holds of it. A section without its part is left out.

    Raises
    ------
    InputError
        When this is not a report, or of another format.
    FileFormatError
        When a part of the file is not what belongs there.

    Examples
    --------
    See the package's docstring.
    """
    known = report if isinstance(report, Report) else Report.from_dict(report)
    alone = [] if known.rows else [own for own in REPORT.sections() if own.opens and own.parts(known) is not None]
    opening, parts = (alone[0].opens or HEADS, alone[0].parts(known) or ()) if alone else (HEADS, ())
    window = f"{known.data.name or 'fedmoments'}: {opening.topic}"
    top = Top(window, opening.question(known, *parts), opening.answer(known, *parts), [facts(known)])
    return REPORT.render(known, top, version=known.version, created=known.created[:10])


def write_report(path: str | os.PathLike[str], report: Report | Mapping[str, Any]) -> None:
    """Write the page of :func:`render` as a file, which appears whole or not at all.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_report(Path(folder, "report.html"), {"rows": []})
    ...     Path(folder, "report.html").stat().st_size > 1000
    True
    """
    write_whole(path, render(report).encode("utf-8"))
