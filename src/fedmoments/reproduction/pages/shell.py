"""What all pages of reproductions have in common: one file with its style and script, which fetches nothing."""

from collections.abc import Sequence
from importlib.resources import files

from fedmoments.report.markup import Html, Node, tag
from fedmoments.report.page_head import page_head

__all__ = ["Section", "shell"]

#: Anchor, short title for the contents, title, and what it shows; None leaves it out.
Section = tuple[str, str, str, Html | None]


def shell(title: str, top: Sequence[Node], sections: Sequence[Section], *, version: str = "") -> str:
    """Return a whole page.

    Parameters
    ----------
    title
        Of the window.
    top
        Under the brand: heading, answer, facts.
    sections
        In order.
    version
        Of the program.

    Examples
    --------
    >>> page = shell("A <table>", [tag("h1", "Hello")], [("one", "One", "One", tag("p", "text"))])
    >>> page[:15], "<title>A &lt;table&gt;</title>" in page
    ('<!doctype html>', True)
    """
    report = files("fedmoments.report")
    style = Html(report.joinpath("report.css").read_text("utf-8") + _own_style())
    script = Html(report.joinpath("report.js").read_text("utf-8"))
    head = page_head(title, style=style, script=script, version=version)
    present = [each for each in sections if each[3] is not None]
    links = [tag("a", short, href=f"#{anchor}") for anchor, short, _, _ in present]
    contents = tag("nav", *links, aria_label="Contents") if len(present) > 2 else None
    toggle = tag("button", "Dark", type="button", id="theme", class_="quiet", hidden=True)
    brand = tag("p", "fedmoments · reproduced from a paper", class_="brand")
    shown = [
        tag("section", tag("h2", words, id=f"{anchor}-title"), inner, id=anchor, aria_labelledby=f"{anchor}-title")
        for anchor, _, words, inner in present
    ]
    made = f"Made by fedmoments {version}".strip()
    body = tag(
        "body",
        tag("a", "Skip to the results", href="#main", class_="skip"),
        tag("header", tag("div", brand, toggle, class_="row"), *top, contents),
        tag("main", *shown, id="main"),
        tag("footer", tag("p", f"{made}. This page is one file and fetches nothing.")),
        tag("div", id="tip", role="tooltip", hidden=True),
        tag("script", script),
    )
    return "<!doctype html>\n" + tag("html", head, body, lang="en") + "\n"


def _own_style() -> str:
    return files(__package__).joinpath("reproduce.css").read_text("utf-8")
