"""The shell of every page: head, contents, sections in order, footer; one file with its own style and script.

A kind of page is a :class:`Page`. Its sections are files of one package, each with one declaration, so that a new
section is one new file::

    @section("bytes", "Accuracy for bytes", place=10)
    def bytes_section(results: Results) -> Html | None: ...

A section that returns None is left out, and one that is ``of`` a part of the subject where there is no such part.
Sections of other packages join by the entry points of the page's group, or at
run time by ``page.registry.register``.
"""

import base64
import hashlib
import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Concatenate, Generic, Protocol, TypeVar

from fedmoments.errors import InputError
from fedmoments.pages.markup import Html, Node, tag
from fedmoments.registry import Registry

__all__ = ["Opening", "Page", "Section", "Top", "section"]

Subject = TypeVar("Subject")

_ALONE = "This page is one file and fetches nothing."
_ASKS = "This page only reads, and asks nobody but the server that it came from."
_CONNECT = "connect-src 'self'; "


@dataclass(frozen=True)
class Opening(Generic[Subject]):
    """The question and the answer at the top of a page, and the topic of the window's title.

    Those of a section are asked with the part that the section is about, as its function is.
    """

    question: Callable[Concatenate[Subject, ...], Node]
    answer: Callable[Concatenate[Subject, ...], Node]
    topic: str


@dataclass(frozen=True)
class Section(Generic[Subject]):
    """One part of a page: ``draw`` returns what it shows of a subject, or None when there is nothing to show."""

    name: str
    title: str
    short: str
    place: float
    draw: Callable[Concatenate[Subject, ...], Html | None]
    opens: Opening[Subject] | None = None
    of: str = ""

    def parts(self, subject: Subject) -> tuple[Any, ...] | None:
        """Return what :attr:`draw` is given beside the subject; None where the part that this is about is missing."""
        if not self.of:
            return ()
        part = getattr(subject, self.of)
        return None if part in (None, ()) else (part,)

    def __call__(self, subject: Subject) -> Html | None:
        parts = self.parts(subject)
        return None if parts is None else self.draw(subject, *parts)


class Declare(Protocol):
    """Makes a section of a function."""

    def __call__(self, draw: Callable[Concatenate[Subject, ...], Html | None], /) -> Section[Subject]: ...


def section(
    anchor: str, title: str, *, place: float, short: str = "", of: str = "", opens: Opening[Any] | None = None
) -> Declare:
    """Declare the decorated function as a section of the page whose package its file lies in.

    Parameters
    ----------
    anchor
        Its id on the page, no other section's.
    title, short
        Above it, and in the contents (the anchor with a capital letter by default).
    place
        Sections stand in ascending order of it.
    of
        The attribute of the subject that it is about, and that the function is given behind the subject. Where that is
        None or an empty tuple, the section is left out.
    opens
        The question and answer of a page that is about this section above all.

    Examples
    --------
    >>> @section("twice", "Twice as much", place=1)
    ... def twice(number: int) -> Html:
    ...     return tag("p", 2 * number)
    >>> twice.short, twice(21)
    ('Twice', '<p>42</p>')
    """

    def declare(draw: Callable[Concatenate[Subject, ...], Html | None], /) -> Section[Subject]:
        return Section(anchor, title, short or anchor.capitalize(), place, draw, opens, of)

    return declare


@dataclass(frozen=True)
class Top:
    """What stands above the sections: the window's title, the heading, the answer, and more under it."""

    window: str
    heading: Node
    answer: Node
    more: Sequence[Node] = ()


class Page(Generic[Subject]):
    """A kind of page: its brand, its style, and its sections.

    Parameters
    ----------
    brand
        Words at the upper left.
    package
        Dotted name of the package whose files declare sections.
    group
        Entry-point group of sections of other packages.
    styles
        Style sheets besides that of all pages: package and file name.
    scripts
        Scripts besides that of all pages. They may ask the server that the page came from, and nobody else.
    """

    def __init__(
        self,
        brand: str,
        package: str,
        group: str,
        styles: Sequence[tuple[str, str]] = (),
        scripts: Sequence[tuple[str, str]] = (),
    ) -> None:
        self.brand = brand
        self.asks = bool(scripts)
        self.scripts = (("fedmoments.pages", "report.js"), *scripts)
        self.styles = (("fedmoments.pages", "report.css"), *styles)
        self.registry: Registry[Section[Subject]] = Registry(
            "section", group=group, accept=_accepted, built_in=lambda: _declared(package)
        )

    def sections(self) -> list[Section[Subject]]:
        """Return all sections in order."""
        return sorted(self.registry.values(), key=lambda one: one.place)

    def render(self, subject: Subject, top: Top, *, version: str = "", created: str = "") -> str:
        """Return the page of a subject as one HTML file that needs nothing else.

        Parameters
        ----------
        subject
            What sections draw from.
        top
            What stands above them.
        version, created
            Of the program, and the day, for the footer; or nothing.
        """
        bodies = [(section, section(subject)) for section in self.sections()]
        present = [(section, body) for section, body in bodies if body is not None]
        style, script = (
            Html("".join(files(package).joinpath(name).read_text("utf-8") for package, name in parts))
            for parts in (self.styles, self.scripts)
        )
        body = tag(
            "body",
            tag("a", "Skip to the results", href="#main", class_="skip"),
            self._header(top, [section for section, _ in present]),
            tag("main", *(_section(section, inner) for section, inner in present), id="main"),
            _footer(version, created, asks=self.asks),
            tag("div", id="tip", role="tooltip", hidden=True),
            tag("script", script),
        )
        head = _head(top.window, style=style, script=script, version=version, asks=self.asks)
        return "<!doctype html>\n" + tag("html", head, body, lang="en") + "\n"

    def _header(self, top: Top, present: Sequence[Section[Subject]]) -> Html:
        links = [tag("a", section.short, href=f"#{section.name}") for section in present]
        toggle = tag("button", "Dark", type="button", id="theme", class_="quiet", hidden=True)
        return tag(
            "header",
            tag("div", tag("p", self.brand, class_="brand"), toggle, class_="row"),
            tag("h1", top.heading),
            tag("p", top.answer, class_="answer"),
            *top.more,
            tag("nav", *links, aria_label="Contents") if len(present) > 2 else None,
        )


def _declared(package: str) -> list[Section[Any]]:
    """Return the sections that the files of a package declare."""
    files_of_package = pkgutil.iter_modules(importlib.import_module(package).__path__, f"{package}.")
    modules = [importlib.import_module(file.name) for file in files_of_package]
    return [value for module in modules for value in vars(module).values() if isinstance(value, Section)]


def _accepted(given: Any, _: str | None) -> Section[Any]:
    if not isinstance(given, Section):
        raise InputError("a section is a function under @section(anchor, title, place=…)")
    return given


def _section(section: Section[Subject], inner: Html) -> Html:
    title = tag("h2", section.title, id=f"{section.name}-title")
    return tag("section", title, inner, id=section.name, aria_labelledby=f"{section.name}-title")


def _footer(version: str, created: str, *, asks: bool) -> Html:
    origin = f"Made by fedmoments {version}".strip() + (f", {created}" if created else "")
    return tag("footer", tag("p", f"{origin}. {_ASKS if asks else _ALONE}"))


def _head(title: str, *, style: Html, script: Html, version: str, asks: bool) -> Html:
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_policy(script, asks=asks)),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("meta", name="generator", content=f"fedmoments {version}".strip()),
        tag("link", rel="icon", href="data:,"),
        tag("title", title),
        tag("style", style),
    )


def _policy(script: str, *, asks: bool = False) -> str:
    """Return a policy under which only our own script runs and nothing is fetched, whatever a class is called."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:; "
        f"{_CONNECT if asks else ''}base-uri 'none'; form-action 'none'"
    )
