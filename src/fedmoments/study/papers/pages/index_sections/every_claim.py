"""Each claim over all experiments that bear on it, and all data."""

from collections.abc import Mapping, Sequence
from typing import Any

from fedmoments.pages.markup import Html, join, tag
from fedmoments.pages.shell import section
from fedmoments.study.papers.overview import folder_of
from fedmoments.study.papers.pages.answer import claim_figures
from fedmoments.study.papers.pages.index import Documents, claim_verdict, claims_by_id
from fedmoments.study.papers.pages.words import CLAIM_MARKS, verdict_class

__all__ = ["every_claim_section"]


@section("claims", "Every claim, over all of them", place=20)
def every_claim_section(documents: Documents) -> Html | None:
    """Return the section, or None without a claim."""
    shown = []
    for name, rows in claims_by_id(documents).items():
        verdict = claim_verdict(rows)
        sign = tag("span", CLAIM_MARKS.get(verdict, ""), class_="sign", aria_hidden="true")
        texts = dict.fromkeys(row["text"] for row in rows)
        statements = [tag("div", tag("p", text), _found(rows, text)) for text in texts]
        badge = tag("span", sign, verdict, class_="word")
        about = tag("div", *statements, tag("p", name, class_="id"))
        shown.append(tag("li", badge, about, class_=verdict_class(verdict)))
    return join([tag("ul", *shown, class_="claims")]) if shown else None


def _found(rows: Sequence[Mapping[str, Any]], text: str) -> Html:
    """Return what was found of one wording of a claim, experiment by experiment and data by data."""
    listed = []
    for row in rows:
        if row["text"] != text:
            continue
        for label, (document, claim) in row["found"].items():
            mark = CLAIM_MARKS.get(str(claim.get("verdict")), "")
            link = tag("a", row["experiment"], href=f"{folder_of(document)}/report.html#claims")
            where = "" if document.get("mode") == "computed" else f" on {label}"
            listed.append(tag("li", f"{mark} {claim.get('verdict')}: ", claim_figures(claim), " – ", link, where))
    return tag("ul", *listed, class_="plain")
