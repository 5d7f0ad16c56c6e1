"""The page of one table or figure of a paper: ours beside the paper's, figures, claims, how to repeat it."""

from collections.abc import Mapping
from typing import Any

from fedmoments.pages.formats import count
from fedmoments.pages.markup import Html, tag
from fedmoments.pages.plain import items, mapping
from fedmoments.pages.shell import Page, Top
from fedmoments.study.papers.pages.answer import answer
from fedmoments.study.papers.pages.words import data_words

__all__ = ["BRAND", "PAPER", "STYLES", "render_page"]

#: What pages of reproductions have in common.
BRAND = "fedmoments · reproduced from a paper"
STYLES = [("fedmoments.study.papers.pages", "reproduce.css")]
#: The page of one document.
PAPER: Page[Mapping[str, Any]] = Page(
    BRAND, "fedmoments.study.papers.pages.sections", "fedmoments.paper_sections", STYLES
)
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
        What :func:`fedmoments.study.papers.run_experiment` returns, or its ``results.json``.

    Examples
    --------
    >>> experiment = {"name": "fedcof/table1", "source": "Table 1", "title": "Bytes", "paper": "A paper, 2025"}
    >>> page = render_page({"experiment": experiment, "mode": "computed"})
    >>> "Table 1: Bytes" in page, "<script src" in page
    (True, False)
    """
    experiment = mapping(document.get("experiment"))
    title = f"{experiment.get('source', '')}: {experiment.get('title', '')}"
    about = tag("p", str(experiment["about"]), class_="lead") if experiment.get("about") else None
    top = Top(f"{experiment.get('name', '')}: {title}", title, answer(document), [about, _facts(document)])
    return PAPER.render(document, top, version=str(document.get("version") or ""))


def _facts(document: Mapping[str, Any]) -> Html:
    experiment, data = mapping(document.get("experiment")), mapping(document.get("data"))
    encoder = mapping(data.get("encoder")).get("name")
    known = [
        tag("b", str(experiment.get("paper", ""))),
        str(experiment.get("name", "")),
        _MODES.get(str(document.get("mode"))),
        f"same as {document['same_as']}" if document.get("same_as") else None,
        f"{data_words(data['name'])} behind {encoder}" if data.get("name") else None,
        count(len(items(document.get("seeds"))), "seed") if data else None,
    ]
    return tag("ul", *(tag("li", fact) for fact in known if fact), class_="facts")
