"""Secure sums inside cohorts that public randomness deals: each cohort's class mean is one row, in one message."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedmoments.errors import InputError
from fedmoments.privacy.modes.class_by_class import ClassByClass
from fedmoments.privacy.modes.opened import Summed
from fedmoments.privacy.secure.cohort_draw import Roster
from fedmoments.privacy.secure.cohort_helper import CohortHelper, Draw
from fedmoments.privacy.secure.cohorts import CohortLeader
from fedmoments.privacy.secure.context import Context
from fedmoments.privacy.secure.envelope import read_envelope
from fedmoments.privacy.secure.helper import Helper

if TYPE_CHECKING:
    from fedmoments.privacy.modes.opened import Opened
    from fedmoments.privacy.modes.parties import Asked, Ledger, Sitting, Waiting

__all__ = ["MODES", "Cohorts"]


class _Dealer(CohortHelper):
    """A helper of cohorts that takes in no stranger, and fixes who is present only once all seeds have opened.

    A draw holds for all attempts: who is with whom cannot be drawn again by giving batches up.
    """

    def __init__(self, helper: Helper, *args: Any, **rules: Any) -> None:
        super().__init__(helper, *args, **rules)
        self._sums = helper

    def draw(self, context: Context, roster: Roster, commitment: bytes) -> bytes:
        self._sums.require_known(roster.members)
        return super().draw(context, roster, commitment)

    def admit(self, context: Context, envelopes: Sequence[bytes]) -> tuple[tuple[str, ...], ...]:
        for sealed in envelopes:
            self._sums.require_opens(read_envelope(sealed, context))
        return super().admit(context, envelopes)

    def _drawn(self, context: Context) -> Draw:
        return super()._drawn(context.drawing)

    def _dealt(self, context: Context) -> tuple[tuple[str, ...], ...]:
        return super()._dealt(context.drawing)


class Cohorts(ClassByClass):
    """Sums of small groups of clients, in which a class is opened where enough members hold it.

    Examples
    --------
    >>> from fedmoments.privacy.protection import Agreed
    >>> Agreed(secure="cohorts", cohort=4).mode.facts()[1]
    ('Cohorts', 'of 4 clients, drawn by public randomness')
    """

    name = "cohorts"
    title = "secure sums inside cohorts"
    preparing = ("draw", "reveal")
    steps = (*preparing, "admit", "learn", "open")
    takes = (*ClassByClass.takes, "cohort")

    def check_agreed(self) -> None:
        """Refuse cohorts that are smaller than a batch."""
        if self.agreed.cohort < self.agreed.batch:
            raise InputError(
                f"cohorts of {self.agreed.cohort} clients can never be a batch of {self.agreed.batch}: raise cohort, "
                "or lower batch"
            )
        super().check_agreed()

    def check_clients(self, clients: int) -> None:
        super().check_clients(clients)
        if clients < 2 * self.agreed.cohort:
            raise InputError(
                f"{clients} clients make one cohort of {self.agreed.cohort}, and one mean a class shows no spread: "
                "choose --cohort at most half of the clients, --secure two-phase, or more clients"
            )

    @property
    def is_repeatable(self) -> bool:
        """Whether two federations of the same clients open the same bits: cohorts are drawn by chance."""
        return False

    def ready(self, ledger: "Ledger") -> tuple[list["Waiting"], str]:
        """Return the reports that wait, of clients that are in a cohort."""
        waiting, why = super().ready(ledger)
        if not why:
            _, roster = ledger.cohort_draw()
            waiting = [report for report in waiting if report.client in roster]
            few = len(waiting) < self.agreed.batch
            why = f"a sum is over {self.agreed.batch} clients or more (batch)" if few else ""
        return waiting, why

    def gate(
        self,
        helper: Helper,
        asked: "Asked",
        *,
        minimum: int,
        folder: Path | None = None,
        randomness: bytes | None = None,
    ) -> CohortHelper:
        """Return what deals cohorts and opens sums over them at the helper's end."""
        agreed, place = self.agreed, None if folder is None else folder / "cohorts.db"
        rules = {"size": agreed.cohort, "batch": minimum, "contributors": agreed.contributors}
        nonce = randomness and hashlib.sha256(b"helper" + randomness).digest()
        return _Dealer(helper, asked.layout, **rules, path=place, nonce=nonce)

    def prepare(self, sitting: "Sitting") -> None:
        """Draw cohorts together with the helper."""
        cohorts = self._leader(sitting).deal(sitting.terms.context.drawing, sitting.helper)
        sitting.say(f"{len(cohorts)} cohorts are dealt")

    def open(self, sitting: "Sitting") -> "Opened":
        """Open the rows of cohorts of those who are present."""
        ours, reports = self._leader(sitting), sitting.leader
        stats, facts = ours.collect(reports, sitting.helper, ours.deal(reports.context.drawing, sitting.helper))
        facts |= {"suppressed": [sitting.terms.classes[label] for label in facts["suppressed"]]}
        return Summed(stats, self.name, facts=facts)

    def _leader(self, sitting: "Sitting") -> CohortLeader:
        """Return the leader of cohorts; its nonce and its roster are those that the ledger wrote down first."""
        nonce, members = sitting.ledger.cohort_draw()
        agreed, terms = self.agreed, sitting.terms
        rules = {"size": agreed.cohort, "batch": agreed.batch, "contributors": agreed.contributors}
        return CohortLeader(Roster.of(members), terms.layout, terms.fixed_point, **rules, nonce=nonce)

    def facts(self) -> list[tuple[str, str]]:
        smallest, *rest = super().facts()
        return [smallest, ("Cohorts", f"of {self.agreed.cohort} clients, drawn by public randomness"), *rest]

    def sees(self) -> list[tuple[str, str]]:
        return [
            ("The leader", "how many members of a cohort hold a class, and class means where enough do"),
            ("The helper", "who takes part, and how many members of a cohort hold a class"),
        ]

    def rows_of_classes(self) -> dict[str, str]:
        """Return what the terms say of how classes are opened, for a table."""
        agreed = self.agreed
        return {"cohorts": f"of {agreed.cohort} clients; a class is opened if {agreed.contributors} of them hold it"}


MODES = (Cohorts,)
