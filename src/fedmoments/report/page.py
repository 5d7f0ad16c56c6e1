"""The page: sections in order, each left out when the results do not have what it shows."""

import os
from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import Any

from fedmoments.files import write_whole
from fedmoments.report.answer import answer, question
from fedmoments.report.bias import bias_section
from fedmoments.report.budget import budget_answer, budget_question, budget_section, is_budget
from fedmoments.report.calibration import calibration_section
from fedmoments.report.classes import classes_section
from fedmoments.report.diagnostics import diagnosis_answer, diagnosis_question, diagnostics_section, is_diagnosis
from fedmoments.report.events import events_section
from fedmoments.report.frontier import frontier_section
from fedmoments.report.holders import holders_section
from fedmoments.report.influence import influence_section
from fedmoments.report.markup import Html, join, tag
from fedmoments.report.notes import notes_section
from fedmoments.report.page_head import page_head
from fedmoments.report.privacy import privacy_section
from fedmoments.report.reading import Results, read_results
from fedmoments.report.reproduce import facts, reproduce_section
from fedmoments.report.rounds import rounds_section
from fedmoments.report.sweeps import sweep_section
from fedmoments.report.table import table_section
from fedmoments.report.tuning import curves_section, is_tuning, tuning_answer, tuning_question
from fedmoments.report.tuning_run import run_section
from fedmoments.report.tuning_table import starts_section

__all__ = ["render", "write_report"]

#: Anchor, short title for the contents, title, and what draws it.
SECTIONS: tuple[tuple[str, str, str, Callable[[Results], Html | None]], ...] = (
    ("bytes", "Bytes", "What bytes buy", frontier_section),
    ("budget", "Budget", "What a budget buys", budget_section),
    ("heads", "Heads", "All heads", table_section),
    ("federation", "Federation", "What happened", events_section),
    ("privacy", "Privacy", "What protects the parties", privacy_section),
    ("sweep", "Sweep", "What the settings change", sweep_section),
    ("rounds", "Rounds", "Accuracy per round", rounds_section),
    ("curves", "Curves", "What rounds add to a head", curves_section),
    ("starts", "Starts", "Every start and optimiser", starts_section),
    ("run", "What was run", "What was run", run_section),
    ("holders", "Who holds what", "Who holds what", holders_section),
    ("influence", "Influence", "Who moves the head, and who was left out", influence_section),
    ("classes", "Classes", "Classes and confusions", classes_section),
    ("calibration", "Calibration", "Is confidence earned?", calibration_section),
    ("diagnostics", "Assumptions", "Do the assumptions hold?", diagnostics_section),
    ("bias", "Bias", "Does the free covariance fit?", bias_section),
    ("notes", "Notes", "Problems and splits", notes_section),
    ("reproduce", "Reproduce", "How to reproduce this", reproduce_section),
)


def render(results: Mapping[str, Any]) -> str:
    """Return results of a simulation as one HTML page that needs nothing else.

    Parameters
    ----------
    results
        What ``results.json`` holds. Only ``rows`` must be there; a section without its part is left out.

    Raises
    ------
    InputError
        When these are no results, or of another format.

    Examples
    --------
    See the package's docstring.
    """
    known = read_results(results)
    drawn = [(*names, draw(known)) for *names, draw in SECTIONS]
    present = [each for each in drawn if each[3] is not None]
    style, script = (Html(files(__package__).joinpath(name).read_text("utf-8")) for name in ("report.css", "report.js"))
    topic = "what tuning adds to a head" if is_tuning(known) else "what one upload teaches"
    title = f"{known.data.get('name') or 'fedmoments'}: {topic}"
    head = page_head(title, style=style, script=script, version=str(known.raw.get("version") or ""))
    contents = tag(
        "nav", *(tag("a", short, href=f"#{anchor}") for anchor, short, _, _ in present), aria_label="Contents"
    )
    sections = [
        tag("section", tag("h2", title, id=f"{anchor}-title"), body, id=anchor, aria_labelledby=f"{anchor}-title")
        for anchor, _, title, body in present
    ]
    body = tag(
        "body",
        tag("a", "Skip to the results", href="#main", class_="skip"),
        _header(known, contents if len(present) > 2 else None),
        tag("main", *sections, id="main"),
        _footer(known),
        tag("div", id="tip", role="tooltip", hidden=True),
        tag("script", script),
    )
    return "<!doctype html>\n" + tag("html", head, body, lang="en") + "\n"


def write_report(path: str | os.PathLike[str], results: Mapping[str, Any]) -> None:
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


def _header(results: Results, contents: Html | None) -> Html:
    toggle = tag("button", "Dark", type="button", id="theme", class_="quiet", hidden=True)
    ask, say = (diagnosis_question, diagnosis_answer) if is_diagnosis(results) else (question, answer)
    ask, say = (tuning_question, tuning_answer) if is_tuning(results) else (ask, say)
    ask, say = (budget_question, budget_answer) if is_budget(results) else (ask, say)
    return tag(
        "header",
        tag("div", tag("p", "fedmoments · one-shot federated learning", class_="brand"), toggle, class_="row"),
        tag("h1", ask(results)),
        tag("p", say(results), class_="answer"),
        facts(results),
        contents,
    )


def _footer(results: Results) -> Html:
    made = f"fedmoments {results.raw['version']}" if results.raw.get("version") else "fedmoments"
    when = f", {str(results.raw['created'])[:10]}" if results.raw.get("created") else ""
    return tag("footer", tag("p", join([f"Made by {made}{when}. This page is one file and fetches nothing."])))
