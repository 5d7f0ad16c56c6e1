"""Secure sums in two phases: class means first, then how clients' means lie around them; exact, for heads on means."""

from pathlib import Path
from typing import TYPE_CHECKING

from fedmoments.core.linalg import packed_size
from fedmoments.core.statistics import Statistics, StatisticsSpec
from fedmoments.errors import DeploymentError, PrivacyError, RefusedError
from fedmoments.privacy.modes.class_by_class import ClassByClass
from fedmoments.privacy.modes.mode import Cost
from fedmoments.privacy.modes.opened import Derived
from fedmoments.privacy.secure.envelope import ENVELOPE_BYTES
from fedmoments.privacy.secure.helper import Helper
from fedmoments.privacy.secure.report import OVERHEAD_BYTES
from fedmoments.privacy.secure.threshold import TwoPhaseHelper
from fedmoments.privacy.secure.two_phase import FirstPhase

if TYPE_CHECKING:
    from fedmoments.privacy.modes.opened import Opened
    from fedmoments.privacy.modes.parties import Asked, Ledger, Sitting

__all__ = ["MODES", "TwoPhase"]


class TwoPhase(ClassByClass):
    """One matrix over all clients, around class means that are broadcast to all clients.

    Examples
    --------
    >>> from fedmoments.privacy.protection import Agreed
    >>> Agreed(secure="two-phase", contributors=4).mode.facts()[-1]
    ('A class is opened', 'if at least 4 clients hold it')
    """

    name = "two-phase"
    title = "secure sums in two phases"
    exchanges = 2
    steps = ("learn", "open", "second")

    def gate(
        self,
        helper: Helper,
        asked: "Asked",
        *,
        minimum: int,
        folder: Path | None = None,
        randomness: bytes | None = None,
    ) -> TwoPhaseHelper:
        """Return what minds thresholds in both phases at the helper's end."""
        del minimum, randomness
        place = None if folder is None else folder / "phases.db"
        return TwoPhaseHelper(helper, asked.layout, self.agreed.contributors, place)

    def open(self, sitting: "Sitting") -> "Opened":
        """Add up both phases; a batch whose second phase lacks somebody is kept, and asked for again next time."""
        terms, gate = sitting.terms, sitting.helper
        first = FirstPhase.collect(sitting.leader, gate, terms.layout, terms.fixed_point, self.agreed.contributors)
        classes = len(first.statistics.classes)
        sitting.say(f"the first phase is over {len(first.clients)} clients and {classes} classes")
        try:
            second = sitting.second(first.broadcast, first.clients)
            stats = first.finish(second.leader, gate)
        except (PrivacyError, RefusedError) as error:
            raise DeploymentError(str(error)) from error
        suppressed = [terms.classes[label] for label in first.suppressed]
        facts = {"clients": len(first.clients), "bits": first.broadcast.bits, "suppressed": suppressed}
        return Derived(stats, OVERHEAD_BYTES + 8 * first.broadcast.size, second.acknowledge, facts=facts)

    def read(self, ledger: "Ledger") -> tuple[Statistics, None]:
        return ledger.scatter(), None

    def part_for(self, merged: Statistics, spec: StatisticsSpec) -> Statistics:
        """Return all that was opened: it holds the scatter of client means, not the means."""
        del spec
        return merged

    @property
    def is_in_ledger(self) -> bool:
        """Whether the running sums of the ledger may be published: no, they hold nothing of the second phase."""
        return False

    def cost(self, asked: "Asked", *, clear: int, clients: int = 1) -> Cost:
        """Return the bytes of both reports, of the broadcast between them, and of the helper's part in both."""
        first, layout = super().cost(asked, clear=clear, clients=clients), asked.layout
        second = packed_size(layout.dim) + 1
        down = 8 * layout.n_classes * (layout.dim + 2)  # classes, means, weights
        helper = 2 * clients * ENVELOPE_BYTES + 8 * (2 * layout.n_classes + second) + down
        return Cost(first.up + OVERHEAD_BYTES + 8 * second, down, first.helper + helper)

    def sees(self) -> list[tuple[str, str]]:
        return [
            ("The leader", "how many clients hold a class, class means, and one matrix over all clients"),
            ("The helper", "who takes part, how many clients hold a class, and the class means of all together"),
            ("The clients", "the class means of all together, which are sent back to them"),
        ]


MODES = (TwoPhase,)
