"""Adding up the masked reports of a ledger: the leader's half of secure sums, without a word on how messages travel."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from fedmoments.errors import InputError, LedgerError, PrivacyError
from fedmoments.federation.store import Batch, FederationStore
from fedmoments.privacy.dp import noise_vector, plan
from fedmoments.privacy.secure import Leader, Report, SumRequest
from fedmoments.privacy.secure.cohort_cells import plan_openings
from fedmoments.privacy.secure.cohort_draw import Roster, merge_small
from fedmoments.privacy.secure.cohorts import CohortGate, CohortLeader, rows_of
from fedmoments.privacy.secure.two_phase import FirstPhase, Gate
from fedmoments.statistics import Statistics

__all__ = [
    "Adds",
    "LedgerLeader",
    "cohort_leader",
    "cohort_rows",
    "first_phase",
    "noised_sum",
    "parts_of",
    "plain_sum",
    "spoiled",
]

Words = NDArray[np.uint64]

#: Reports of so many bytes together are kept in memory while a batch is added up; more are read again when needed.
CACHE_BYTES = 2**28
#: Noise of so many standard deviations does not happen: what is larger is no sum.
MOST_SIGMAS = 100.0


class Adds(Protocol):
    """Whoever adds up masks."""

    def sum(self, request: SumRequest) -> Words:
        """Return the masks of a batch, added up at the blocks of the request."""
        ...


class LedgerLeader:
    """The reports of one batch, as the protocols of :mod:`fedmoments.privacy.secure` ask for them.

    Parameters
    ----------
    store
        The ledger that holds them.
    batch
        Which ones. It was written down before, so that requests follow from it, after a crash as before.
    """

    def __init__(self, store: FederationStore, batch: Batch) -> None:
        self._store, self.batch = store, batch
        self.context, self.size = store.terms.context, store.terms.layout.size
        self._keeps = len(batch.members) * 8 * self.size <= CACHE_BYTES
        self._reports: dict[str, Report] = {}
        self._sealed: dict[str, bytes] = {}

    @property
    def present(self) -> dict[str, str]:
        """Report id of every client of the batch, by client."""
        return dict(self.batch.members)

    def request(self, ids: Iterable[str] | None = None, blocks: Iterable[tuple[int, int]] | None = None) -> SumRequest:
        """Return what to ask of the helper; the same for the same batch."""
        names = list(self.batch.reports if ids is None else ids)
        asked = [(0, self.size)] if blocks is None else list(blocks)
        new = [name for name in names if name not in self._sealed]
        self._sealed |= dict(zip(new, self._store.envelopes(new), strict=True))
        return SumRequest(self.context, [(name, self._sealed[name]) for name in names], asked)

    def finish(self, request: SumRequest, answer: Words) -> Words:
        """Return the sum of the clients' numbers at the blocks of a request, modulo 2⁶⁴."""
        if answer.shape != (request.size,):
            raise InputError(f"{request.size} masks were asked for, but {answer.shape} arrived")
        total = answer.astype(np.uint64, copy=True)
        for name in request.ids:
            masked, at = self._report(name).masked, 0
            for start, stop in request.blocks:
                total[at : at + stop - start] += masked[start:stop]
                at += stop - start
        return total

    def _report(self, name: str) -> Report:
        found = self._reports.get(name) or self._store.report(name)
        if self._keeps:
            self._reports[name] = found
        return found


def plain_sum(leader: LedgerLeader, helper: Adds, store: FederationStore) -> Statistics:
    """Return the sum of a batch: all moments, but not how many clients hold a class, which nobody needs."""
    layout = store.terms.layout
    return layout.unpack(_whole(leader, helper, store), store.terms.fixed_point)


def noised_sum(leader: LedgerLeader, helper: Adds, store: FederationStore) -> bytes:
    """Return the sum of a batch with the noise of both servers on it; without this end's it exists in memory only.

    Raises
    ------
    InputError
        When what came out cannot be a noised sum: masks that do not cancel.
    """
    terms = store.terms
    total = _whole(leader, helper, store)
    sigma = plan(terms.layout, terms.fixed_point, terms.privacy).sigmas["counts"]
    counts = terms.layout.signed(total)[terms.layout.classes_block].reshape(terms.layout.n_classes, -1)[:, 0]
    most = terms.fixed_point.max_samples + MOST_SIGMAS * sigma
    if counts.min() < -MOST_SIGMAS * sigma or counts.max() > most:
        raise InputError(f"a noised count must be below {most:.0f}, but counts from {counts.min()} on came out")
    total += noise_vector(terms.layout, terms.fixed_point, terms.privacy).view(np.uint64)
    return total.astype("<u8").tobytes()


def _whole(leader: LedgerLeader, helper: Adds, store: FederationStore) -> Words:
    layout = store.terms.layout
    request = leader.request(blocks=[(layout.n_classes, layout.size)])
    whole = np.zeros(layout.size, np.uint64)
    whole[layout.n_classes :] = leader.finish(request, helper.sum(request))
    return whole


def cohort_leader(store: FederationStore) -> CohortLeader:
    """Return the leader of cohorts; its nonce and its roster are those that the ledger wrote down first."""
    agreed, terms = store.terms.privacy, store.terms
    nonce, members = store.cohort_draw()
    return CohortLeader(
        Roster.of(members),
        terms.layout,
        terms.fixed_point,
        size=agreed.cohort,
        batch=agreed.batch,
        contributors=agreed.contributors,
        nonce=nonce,
    )


class ManyGate(CohortGate, Protocol):
    """A helper of cohorts to which one message may carry many questions."""

    def learn_many(self, requests: Sequence[SumRequest], masked: Sequence[Words]) -> list[Words]:
        """Return the masks of the contributors of many groups."""
        ...

    def open_many(self, requests: Sequence[SumRequest]) -> list[Words]:
        """Return the masks of many sums of classes."""
        ...


def cohort_rows(leader: LedgerLeader, helper: ManyGate, store: FederationStore) -> tuple[Statistics, dict[str, Any]]:
    """Return the rows of cohorts, and facts about them.

    The protocol is that of :class:`fedmoments.privacy.secure.cohorts.CohortLeader`, with all questions of a step in
    one message: a message to another party takes seconds, however much it carries.
    """
    ours, present = cohort_leader(store), leader.present
    layout = ours.layout
    merged = merge_small(ours.deal(leader.context, helper), present, ours.batch)
    groups = tuple(tuple(sorted(present[client] for client in group)) for group in merged)
    asked = [leader.request(group, [(0, layout.n_classes)]) for group in groups]
    envelopes = [sealed for request in asked for _, sealed in request.reports]
    if helper.admit(leader.context, envelopes) != groups:
        raise PrivacyError("the helper merges cohorts differently: let both servers agree on the smallest batch")
    masked = [leader.finish(request, np.zeros(request.size, np.uint64)) for request in asked]
    masks = helper.learn_many(asked, masked)
    held = np.stack([(one + other).view(np.int64) for one, other in zip(masked, masks, strict=True)])
    openings, suppressed = plan_openings(held, ours.contributors)
    opened = []
    for opening in openings:
        blocks = [layout.class_block(label) for label in opening.labels]
        names = [name for cohort in opening.cohorts for name in groups[cohort]]
        opened.append(leader.request(names, [(block.start, block.stop) for block in blocks]))
    masks = helper.open_many(opened)
    parts = [leader.finish(request, mask) for request, mask in zip(opened, masks, strict=True)]
    stats = rows_of(openings, parts, layout, store.terms.fixed_point)
    facts = {"clients": len(present), "cohorts": [len(group) for group in groups], "rows": len(stats.row_labels)}
    return stats, {**facts, "suppressed": [store.terms.classes[label] for label in suppressed]}


def first_phase(leader: LedgerLeader, gate: Gate, store: FederationStore) -> FirstPhase:
    """Return what the first of two phases gives: class means, and what all clients are told."""
    terms = store.terms
    return FirstPhase.collect(cast("Leader", leader), gate, terms.layout, terms.fixed_point, terms.privacy.contributors)


def parts_of(stats: Statistics, name: str) -> dict[str, Statistics]:
    """Return statistics cut into contributions: sums are one, rows of cohorts as many as have one row a class each.

    Examples
    --------
    >>> from fedmoments.statistics import StatisticsSpec
    >>> one = Statistics.of([[1.0], [2.0]], [0, 1], StatisticsSpec.of("client_means"), n_classes=2)
    >>> list(parts_of(one + one, "batch-1")), list(parts_of(one.restricted(StatisticsSpec()), "batch-1"))
    (['batch-1.0001', 'batch-1.0002'], ['batch-1'])
    """
    if stats.spec.has_sketch:
        raise InputError(
            f"secure sums open no scatter sketches, but {stats.spec} arrived: cut client means into contributions"
        )
    if not stats.spec.keeps_clients_apart:
        return {name: stats}
    cuts = np.flatnonzero(np.diff(stats.row_labels) <= 0) + 1
    edges = [0, *cuts.tolist(), len(stats.row_labels)]
    parts: dict[str, Statistics] = {}
    for start, stop in pairwise(edges):
        labels, counts = stats.row_labels[start:stop], stats.row_counts[start:stop]
        arrays = {key: np.ascontiguousarray(array[start:stop]) for key, array in stats.arrays.items()}
        index = (labels, counts, arrays, labels, counts)
        part = Statistics(stats.spec, stats.n_classes, stats.dim, *index, stats.fixed_point)
        parts[f"{name}.{len(parts) + 1:04d}"] = part
    return parts


def spoiled(error: Exception) -> LedgerError:
    """Return the error of a batch whose sum is such as no data have."""
    return LedgerError(
        f"the sum is such as no data have ({error}): somebody in it did not send statistics, and behind masks nobody "
        "can tell who. The batch was taken out; found a federation without masks to find out, or with other members"
    )
