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
    LedgerError,
    PrivacyError,
    RefusedError,
)
from fedmoments.federation.flower.second import SecondCollection
from fedmoments.federation.flower.unmask import RemoteHelper, find_helper
from fedmoments.federation.store import Batch, FederationStore
from fedmoments.privacy.modes.parties import Sitting
from fedmoments.privacy.secure.broadcast import Broadcast
from fedmoments.settings.server import ServerSettings

__all__ = ["AloneRun", "SecureRun", "lead"]

#: Reports that the helper cannot open are left out one by one; more of them than this end the run.
MOST_LEFT_OUT = 100


class AloneRun:
    """The part of a server that adds up by itself: there is nobody to agree with."""

    def clients(self, nodes: list[int]) -> list[int]:
        """Return the nodes that are no helper: all."""
        return nodes

    def prepare(self) -> None:
        """Prepare nothing."""

    def collect(self) -> None:
        """Add up nothing: contributions are added up as they arrive."""


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
        self._mode = store.terms.privacy.mode
        self.helper = RemoteHelper(grid, settings, store.terms, self._find)

    def clients(self, nodes: list[int]) -> list[int]:
        """Return the nodes that are no helper, of this federation or of another."""
        self._find()
        return [node for node in nodes if not self._said.get(node)]

    def prepare(self) -> None:
        """Do what the mode does before anybody reports, if it does anything and the helper is there already."""
        if self._mode.preparing and self._find() is not None:
            self._mode.prepare(self._sitting())

    def _sitting(self, batch: Batch | None = None) -> Sitting:
        terms = self._store.terms
        helper = self._mode.remote(terms, self.helper.ask, self._settings.bundle_bytes)
        reports = None if batch is None else self._store.leader(batch)
        return Sitting(terms, self._store, reports, helper, self._second, self._say)

    def _second(self, broadcast: Broadcast, clients: frozenset[str]) -> SecondCollection:
        """Ask all nodes for reports of a second phase of these clients."""
        second = SecondCollection(self._grid, self._store, self._settings, broadcast, clients)
        second.run(self.clients(sorted(self._grid.get_node_ids())))
        return second

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
            plan = {"helper": self._store.terms.privacy.helper, **self._mode.record}
            self._require_helper(len(ready))
            if self._finish(self._store.open_batch(ready, plan)):
                return

    def _ready(self) -> list[str]:
        """Return the ids of reports that can be added up now."""
        waiting, why = self._mode.ready(self._store)
        if why and waiting:
            self._store.note("reports wait", clients=len(waiting), reason=why)
            self._say(f"{len(waiting)} reports wait: {why}")
        return [] if why else [report.report for report in waiting]

    def _require_helper(self, n: int) -> None:
        """Wait for the helper before anything is requested: a batch that was requested takes nobody else in."""
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
            opened = self._mode.open(self._sitting(batch))
        except RefusedError as error:
            return self._leave_out(batch, error)
        except PrivacyError as error:
            if self.helper.opened == before:  # else it remembers this batch, and no other can take its place
                self._store.reopen(batch.name, [], str(error))
            raise
        except (InputError, FixedPointOverflowError) as error:  # of others, such as a failing disk, the sum is innocent
            self._doubt(batch, error)
        try:
            opened.keep(self._store, batch)
        except RefusedError as error:
            self._doubt(batch, error)
        self._say(f"the sum of {len(batch.members)} reports is in the ledger as {batch.name}")
        return True

    def _leave_out(self, batch: Batch, error: RefusedError) -> bool:
        """Take a report that the helper cannot open out of a batch; others wait again."""
        if error.client is None:
            self._doubt(batch, error)
        if error.client not in batch.clients:
            raise DeploymentError(f"the helper refused a report that is not in the batch: {error}") from error
        self._store.reopen(batch.name, [error.client], str(error))
        self._say(f"the report of {error.client} was left out: {error.sentence}")
        return False

    def _doubt(self, batch: Batch, error: FedMomentsError) -> NoReturn:
        """Leave a batch as it is whose sum is such as no data have: the helper's answer may have been wrong.

        The same request again gets the same masks from a helper that is well, and tells nobody anything new.
        """
        self._store.note("no sum", batch=batch.name, reason=str(error)[:500])
        unless = {"": "", "client": ", unless the helper opened their sum with its noise"}
        again = "its clients are asked again then" + unless.get(
            self._mode.opens_once, ", and their sums are opened unless the helper opened some in this attempt"
        )
        raise LedgerError(
            f"the sum is such as no data have ({error}): the helper's answer was wrong, or somebody in it did not send "
            "statistics, and the masks hide which client it was. All reports are kept: run again to ask the helper for "
            "the same sum again. If that does not help, give the batch up with "
            f"'fedmoments leave LEDGER {batch.name}': {again}"
        ) from error


def lead(
    grid: Grid, store: FederationStore, settings: ServerSettings, say: Callable[[str], None] | None = None
) -> SecureRun | AloneRun:
    """Return the server's part of adding up, as the terms' mode has it: with a helper, or alone."""
    return SecureRun(grid, store, settings, say) if store.terms.privacy.mode.has_helper else AloneRun()
