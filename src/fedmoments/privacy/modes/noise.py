"""The noise on what is opened: a layer that lies on a privacy mode. This one adds none, and says what that means.

Callers never ask whether there is an epsilon. They ask the noise: what features must be bounded by, which rules and
heads it goes with, what heads are fitted from, what may be published, which lines the privacy card has.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.maps import FeatureMap
from fedmoments.core.observations.federated import FederationEvents
from fedmoments.core.statistics import FixedPoint, Statistics, StatisticsSpec
from fedmoments.privacy.dp import clip_client

if TYPE_CHECKING:  # the agreement makes its mode and noise from these files
    from fedmoments.privacy.modes.mode import Mode
    from fedmoments.privacy.modes.opened import Opened
    from fedmoments.privacy.modes.parties import Asked, Crowd, Ledger, TermsLike
    from fedmoments.privacy.protection import Agreed

__all__ = ["Noise"]

#: Returns integers for coordinates, (m,) int64 both.
Draws = Callable[[NDArray[np.int64]], NDArray[np.int64]]


class Noise:
    """No noise, and the contract of one.

    Parameters
    ----------
    agreed
        What all parties agreed on.

    Examples
    --------
    >>> from fedmoments.privacy.protection import Agreed
    >>> Agreed().mode.noise.is_on, Agreed(epsilon=2.0).mode.noise.is_on
    (False, True)
    """

    #: Whether there is any.
    is_on = False
    #: What it adds to the name of a mode.
    title = ""
    #: What it promises, as the terms put it; empty for nothing.
    promise = ""
    #: ε as a column of a table has it, and as a line of text has it.
    label, text = "∞", ""
    #: What everybody gets to read.
    published = "the classifier"
    #: Whether it hides single samples, so that a rule on how many a class must have goes against it.
    hides_samples = False

    def __init__(self, agreed: "Agreed") -> None:
        self.agreed = agreed

    # ---------------------------------------------------------------------------------------------- check

    def carrier(self, mode: "type[Mode]") -> "type[Mode]":
        """Return the mode that it lies on where ``mode`` was agreed on."""
        return mode

    def forbid(self, error: Exception) -> None:
        """Raise ``error`` if there is noise: what it says does not go with any."""

    def check_rules(self, **rules: Any) -> None:
        """Refuse rules of clients and server that it does not account for (``dp.check_rules``)."""

    def check_spec(self, spec: StatisticsSpec) -> None:
        """Refuse moments that it cannot protect."""

    def check_terms(self, terms: "TermsLike") -> None:
        """Refuse terms under which it would hide less than they promise."""

    def check_grid(self, asked: "Asked") -> None:
        """Refuse what is requested where its noise does not fit the grid's 64 bits."""

    def check_fits(self, fits: int) -> None:
        """Refuse to fit so many states of the sums, each a release, where fewer were planned for."""

    def weaker_than(self, epsilon: float) -> str:
        """Return what is promised, as text, if it is less than a budget of ``epsilon`` promises; else nothing."""
        del epsilon
        return "no noise at all"

    # ---------------------------------------------------------------------------------------------- measuring

    def bounded(self, feature_map: FeatureMap | None) -> FeatureMap | None:
        """Return a feature map behind which no vector is longer than the public bound; as it was without one."""
        return feature_map

    def form(self, form: FixedPoint | None = None) -> FixedPoint:
        """Return a fixed-point form whose norm bound is the public one."""
        return form or FixedPoint()

    def clipped(self, stats: Statistics) -> Statistics:
        """Return a client's contribution as it may leave: clipped as a whole where whole clients are hidden."""
        return clip_client(stats, self.agreed) if self.agreed.unit == "client" else stats

    # ---------------------------------------------------------------------------------------------- sum

    def released(self, merged: Statistics) -> Statistics:
        """Return sums that one trusted server added up, as they may be computed with."""
        return merged

    def simulated(self, crowd: "Crowd") -> Statistics:
        """Return what a simulated server that reads contributions may compute with."""
        apart = crowd.asked.spec.keeps_clients_apart
        return self.released(Statistics.merge(crowd.parts.values()) if apart and self.is_on else crowd.merged())

    def draws(self, asked: "Asked") -> Draws | None:
        """Return what draws the helper's noise at coordinates of a batch; None where it adds none."""

    def opened(self, total: Any, asked: "Asked") -> "Opened":
        """Return what two servers opened together, from the vector that has the helper's noise on it.

        Parameters
        ----------
        total
            (size,) uint64, modulo 2⁶⁴; the contributors' block is 0.
        asked
            What the vector holds.
        """
        from fedmoments.privacy.modes.opened import Summed

        return Summed(asked.layout.unpack(total, asked.fixed_point))

    def read(self, ledger: "Ledger") -> tuple[Statistics, Mapping[str, Any] | None]:
        """Return what heads are fitted from, and facts about the noise in it, if there is any."""
        return ledger.statistics(), None

    def part_for(self, merged: Statistics, spec: StatisticsSpec) -> Statistics:
        """Return the part of what was released that a head with ``spec`` is fitted from."""
        return merged.restricted(spec)

    def spent(self, asked: "Asked") -> dict[str, Any] | None:
        """Return what one release costs, ready for JSON; None where nothing is spent."""

    # ---------------------------------------------------------------------------------------------- publishing

    def publishable(self, events: FederationEvents) -> FederationEvents:
        """Return what happened in a federation, as it may be published."""
        return events

    def publishable_bytes(self, sent: int, dense: int) -> int:
        """Return the bytes for publication: those that were sent, or those of contributions that hold every class."""
        del dense
        return sent

    @property
    def notes(self) -> dict[str, Any]:
        """What a classifier remembers of it."""
        return {}

    # ---------------------------------------------------------------------------------------------- text

    def facts(self) -> list[tuple[str, str]]:
        """Return pairs (name, value) for the privacy card."""
        return []

    def assumptions(self, who: str) -> list[str]:
        """Return what must be true for its promise to hold; ``who`` says who adds it."""
        del who
        return []

    def not_promised(self, *, simulated: bool) -> list[str]:
        """Return what a reader might think is promised, and is not."""
        del simulated
        return ["Differential privacy: sums over few clients, or over all but one, reveal single contributions."]

    def rows(self) -> dict[str, str]:
        """Return what the terms say of it, for a table."""
        return {}
