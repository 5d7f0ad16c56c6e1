"""The head of every page: one file with its own style and script, which fetches nothing."""

import base64
import hashlib

from fedmoments.report.markup import Html, tag

__all__ = ["page_head"]


def page_head(title: str, *, style: Html, script: Html, version: str) -> Html:
    """Return the head of a page.

    Parameters
    ----------
    title
        Of the window.
    style, script
        Those of the page; nothing else runs.
    version
        Of the program, or nothing.

    Examples
    --------
    >>> "<title>A &lt;table&gt;</title>" in page_head("A <table>", style=Html(""), script=Html(""), version="0.1.0")
    True
    """
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_policy(script)),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("meta", name="generator", content=f"fedmoments {version}".strip()),
        tag("link", rel="icon", href="data:,"),
        tag("title", title),
        tag("style", style),
    )


def _policy(script: str) -> str:
    """Return a policy under which only our own script runs and nothing is fetched, whatever a class is called."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
