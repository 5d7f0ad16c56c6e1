"""Secure sums in a run: who is the helper, which reports are added up together, and what happens when that fails."""

from collections.abc import Callable
from functools import partial
from typing import NoReturn

from flwr.serverapp import Grid

from fedmoments.errors import (
    DeploymentError,
    FedMomentsError,
    FixedPointOverflowError,
    InputError,
    PrivacyError,
    RefusedError,
)
from fedmoments.federation.masked_sums import (
    LedgerLeader,
    cohort_leader,
    cohort_rows,
    first_phase,
    noised_sum,
    parts_of,
    plain_sum,
    spoiled,
)
from fedmoments.federation.store import Batch, FederationStore
from fedmoments.flower.second import SecondCollection
from fedmoments.flower.settings import ServerSettings
from fedmoments.flower.unmask import RemoteHelper, find_helper
from fedmoments.privacy.secure import OVERHEAD_BYTES

__all__ = ["SecureRun"]

#: Reports that the helper cannot open are left out one by one; more of them than this end the run.
MOST_LEFT_OUT = 100


class SecureRun:
    """The leader's part in one run of a federation with secure sums.

    Parameters
    ----------
    grid, store, settings
        Whom to ask, where reports and sums are, and how.
    say
        Called with what happened.
    """

    def __init__(
        self, grid: Grid, store: FederationStore, settings: ServerSettings, say: Callable[[str], None] | None = None
    ) -> None:
        self._grid, self._store, self._settings = grid, store, settings
        self._say = say or (lambda _: None)
        self._said: dict[int, str] = {}
        self._find = partial(find_helper, grid, settings, store.terms.privacy.helper, self._said)
        self.helper = RemoteHelper(grid, settings, store.terms, self._find)

    def clients(self, nodes: list[int]) -> list[int]:
        """Return the nodes that are no helper, of this federation or of another."""
        self._find()
        return [node for node in nodes if not self._said.get(node)]

    def deal(self) -> None:
        """Draw cohorts together with the helper before anybody reports, if it is there already."""
        if self._store.terms.privacy.secure == "cohorts" and self._find() is not None:
            cohorts = cohort_leader(self._store).deal(self._store.terms.context, self.helper)
            self._say(f"{len(cohorts)} cohorts are dealt")

    def collect(self) -> None:
        """Add up all that waits, if it is enough for a batch; what was asked before a crash is asked again first.

        Raises
        ------
        DeploymentError
            When the helper is not there; all reports stay in the ledger.
        PrivacyError
            When the helper forbids the sum, or the budget does not allow another one.
        """
        for batch in self._store.batches():
            if batch.status == "asked":
                self._finish(batch)
        for _ in range(MOST_LEFT_OUT):
            ready = self._ready()
            if not ready:
                return
            plan = {"helper": self._store.terms.privacy.helper, "secure": self._store.terms.privacy.secure}
            self._require_helper(len(ready))
            if self._finish(self._store.open_batch(ready, plan)):
                return

    def _ready(self) -> list[str]:
        """Return the ids of reports that can be added up now."""
        agreed, waiting = self._store.terms.privacy, self._store.waiting()
        why = ""
        if agreed.secure in ("cohorts", "two-phase"):
            if any(batch.status != "left" for batch in self._store.batches()):
                why = f"secure {agreed.secure} are over once, and were before: found a new federation"
            elif agreed.secure == "cohorts":
                _, roster = self._store.cohort_draw()
                waiting = tuple(each for each in waiting if each.client in roster)
        if not why and len(waiting) < agreed.batch:
            why = f"a sum is over {agreed.batch} clients or more (batch)"
        if why and waiting:
            self._store.note("reports wait", clients=len(waiting), reason=why)
            self._say(f"{len(waiting)} reports wait: {why}")
        return [] if why else [each.report for each in waiting]

    def _require_helper(self, n: int) -> None:
        """Wait for the helper before anything is asked for: a batch that was asked for takes nobody else in."""
        if self.helper.wait() is None:
            key = self._store.terms.privacy.helper
            raise DeploymentError(
                f"the helper with the key {key[:16]}… is not there, so that nothing can be added up: the reports of "
                f"{n} clients are kept; start 'fedmoments helper' and run again"
            )

    def _finish(self, batch: Batch) -> bool:
        """Add up one batch; False if the helper could not open a report, which was taken out of it."""
        before = self.helper.opened
        try:
            keep = self._added_up(batch)
        except RefusedError as error:
            return self._leave_out(batch, error)
        except PrivacyError as error:
            if self.helper.opened == before:  # else it remembers this batch, and no other can take its place
                self._store.reopen(batch.name, [], str(error))
            raise
        except (InputError, FixedPointOverflowError) as error:  # of others, such as a failing disk, the sum is innocent
            self._spoil(batch, error)
        try:
            keep()
        except RefusedError as error:
            self._spoil(batch, error)
        self._say(f"the sum of {len(batch.members)} reports is in the ledger as {batch.name}")
        return True

    def _added_up(self, batch: Batch) -> Callable[[], None]:
        """Add up one batch with the helper, and return what takes the result into the ledger."""
        agreed, leader = self._store.terms.privacy, LedgerLeader(self._store, batch)
        if agreed.secure == "two-phase":
            return self._two_phases(batch, leader)
        if agreed.epsilon is not None:
            return partial(self._store.keep_noised, batch, noised_sum(leader, self.helper, self._store))
        if agreed.secure == "cohorts":
            stats, facts = cohort_rows(leader, self.helper, self._store)
            self._store.note("cohorts", batch=batch.name, **facts)
        else:
            stats = plain_sum(leader, self.helper, self._store)
        source = f"sum of {len(batch.members)} reports"
        return partial(self._store.keep_sums, batch, parts_of(stats, batch.name), source=source)

    def _two_phases(self, batch: Batch, leader: LedgerLeader) -> Callable[[], None]:
        """Add up both phases; a batch whose second phase lacks somebody is kept, and asked for again next time."""
        first = first_phase(leader, self.helper, self._store)
        self._say(f"the first phase is over {len(first.clients)} clients and {len(first.statistics.classes)} classes")
        second = SecondCollection(self._grid, self._store, self._settings, first.broadcast)
        try:
            reports = second.run(self.clients(sorted(self._grid.get_node_ids())), first.clients)
            found = first.finish(reports, self.helper)
        except (PrivacyError, RefusedError) as error:
            raise DeploymentError(str(error)) from error

        def keep() -> None:
            size = OVERHEAD_BYTES + 8 * first.broadcast.size
            self._store.keep_scatter(batch, found, second_bytes=size)
            second.acknowledge()

        return keep

    def _leave_out(self, batch: Batch, error: RefusedError) -> bool:
        """Take a report that the helper cannot open out of a batch; others wait again."""
        if error.client not in batch.clients:
            raise DeploymentError(f"the helper refused a report that is not in the batch: {error}") from error
        self._store.reopen(batch.name, [error.client], str(error))
        self._say(f"the report of {error.client} was left out: {error.sentence}")
        return False

    def _spoil(self, batch: Batch, error: FedMomentsError) -> NoReturn:
        """Take a batch out whose sum is such as no data have."""
        self._store.dissolve(batch.name, str(error))
        raise spoiled(error) from error
