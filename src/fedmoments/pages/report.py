"""The report of a simulation, a federation, rounds of tuning or diagnostics: a list of sections under an answer."""

import os
from collections.abc import Mapping
from typing import Any

from fedmoments.files import write_whole
from fedmoments.pages.answer import answer, facts, question
from fedmoments.pages.reading import Results, read_results
from fedmoments.pages.shell import Opening, Page, Top

__all__ = ["REPORT", "render", "write_report"]

#: The page, whose sections are the files of :mod:`fedmoments.pages.sections`.
REPORT: Page[Results] = Page(
    "fedmoments · one-shot federated learning", "fedmoments.pages.sections", "fedmoments.report_sections"
)
#: What the page says when it is about no section alone.
HEADS: Opening[Results] = Opening(lambda _: True, question, answer, "what one upload teaches")


def render(results: Results | Mapping[str, Any]) -> str:
    """Return results of a simulation as one HTML page that needs nothing else.

    Parameters
    ----------
    results
        Results, or what ``results.json`` holds of them. Only ``rows`` must be there; a section without its part is left
        out.

    Raises
    ------
    InputError
        When these are no results, or of another format.
    FileFormatError
        When a row of the file is not one.

    Examples
    --------
    See the package's docstring.
    """
    known = results if isinstance(results, Results) else read_results(results)
    openings = [section.opens for section in REPORT.sections() if section.opens is not None]
    opening = next((each for each in openings if each.applies(known)), HEADS)
    window = f"{known.data.get('name') or 'fedmoments'}: {opening.topic}"
    top = Top(window, opening.question(known), opening.answer(known), [facts(known)])
    version, created = (str(known.raw.get(key) or "") for key in ("version", "created"))
    return REPORT.render(known, top, version=version, created=created[:10])


def write_report(path: str | os.PathLike[str], results: Results | Mapping[str, Any]) -> None:
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
    write_whole(path, render(results).encode("utf-8"))
