"""What the live page, the terminal and the metrics show of a federation: plain values, made by whoever has a ledger."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fedmoments.core.observations.federated import PrivacyCard
from fedmoments.pages.markup import Html, join, tag
from fedmoments.pages.shell import Page, Top

__all__ = ["LIVE_PAGE", "LiveView", "Party", "page_of", "sections_of"]

#: States of a party, in the order in which it goes through them.
STATES = ("invited", "enrolled", "connected", "measuring", "contributed", "refused", "failed", "left", "revoked")


@dataclass(frozen=True)
class Party:
    """One party.

    Parameters
    ----------
    name, state
        Who, and one of `STATES`.
    detail
        Why, or since when.
    samples, bytes
        What it contributed; None: nothing, or nobody knows.
    accuracy
        By head, on its own held-out samples.
    share
        How far it has got with measuring: from 0 to 1; None: unknown.
    """

    name: str
    state: str
    detail: str = ""
    samples: int | None = None
    bytes: int | None = None
    accuracy: Mapping[str, float] = field(default_factory=dict)
    share: float | None = None


@dataclass(frozen=True)
class LiveView:
    """A federation at one moment.

    Parameters
    ----------
    name, federation
        What people call it, and its id.
    phase, waiting
        What the run does, and what it waits for, in words.
    parties
        Everybody who was ever invited or enrolled.
    classes
        Samples by class; empty where nobody may know.
    n_classes, covered
        How many there are, and how many have samples.
    clients, samples, bytes
        In the ledger, in all.
    rounds
        What the log says of each round that was closed.
    accuracy
        By head, over all parties.
    refusals
        The latest, in words.
    card
        Who learns what.
    """

    name: str
    federation: str
    phase: str
    waiting: str
    parties: tuple[Party, ...] = ()
    classes: Mapping[str, int] = field(default_factory=dict)
    n_classes: int = 0
    covered: int = 0
    clients: int = 0
    samples: int = 0
    bytes: int = 0
    rounds: tuple[Mapping[str, Any], ...] = ()
    accuracy: Mapping[str, float | None] = field(default_factory=dict)
    refusals: tuple[str, ...] = ()
    refused: int = 0
    card: PrivacyCard | None = None

    @property
    def states(self) -> dict[str, int]:
        """How many parties are in each state."""
        count = Counter(party.state for party in self.parties)
        return {state: count[state] for state in STATES}


#: The page, whose sections are the files of :mod:`fedmoments.pages.live`.
LIVE_PAGE: Page[LiveView] = Page(
    "fedmoments · live", "fedmoments.pages.live", "fedmoments.live_sections", scripts=(("fedmoments.pages", "live.js"),)
)


def page_of(view: LiveView, *, version: str = "") -> str:
    """Return the page as it is now; it keeps itself up to date by the events of the server that it came from."""
    return LIVE_PAGE.render(view, Top(f"{view.name}: live", view.name, _answer(view)), version=version)


def sections_of(view: LiveView) -> dict[str, str]:
    """Return what stands in each part of the page, by its id."""
    drawn = {section.name: section(view) for section in LIVE_PAGE.sections()}
    return {"answer": _answer(view), **{name: body for name, body in drawn.items() if body is not None}}


def _answer(view: LiveView) -> Html:
    waiting = f" {view.waiting[:1].upper()}{view.waiting[1:]}." if view.waiting else ""
    return join([tag("b", view.phase[:1].upper() + view.phase[1:]), ".", waiting])
