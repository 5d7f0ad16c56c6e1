"""What a person must still write before a model is used, and where its card lies."""

from fedmoments.core.observations import Report
from fedmoments.core.observations.federated import FederationEvents
from fedmoments.pages.blocks import bullets
from fedmoments.pages.markup import Html, join, tag
from fedmoments.pages.shell import section

__all__ = ["card_section"]


@section("card", "Before a model is used", place=55, short="Model card", of="federation")
def card_section(report: Report, _: FederationEvents) -> Html | None:
    """Return the section, or None where no head was fitted."""
    if not report.details:
        return None
    links = [tag("a", f"heads/{detail.head}.md", href=f"heads/{detail.head}.md") for detail in report.details]
    return join(
        [
            tag(
                "p",
                "Each classifier has a model card beside it: encoder and licence, classes, parties by number and their "
                "counts, protection, accuracy by site and class with intervals, calibration. ",
                tag("b", "Intended use and limits are to be filled in by a person."),
                " Every export has the card, too.",
            ),
            bullets(links),
        ]
    )
