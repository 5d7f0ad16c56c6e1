"""FedCOF under secure sums in one message: sums inside cohorts, each cohort's class mean is one row.

Clients are dealt to cohorts of m from randomness that neither server can steer
(:mod:`~fedmoments.privacy.secure.cohort_draw`). Of each cohort the contributors are opened first, then the sums of
classes that enough of its clients hold; what is left of a class is pooled over cohorts into one row
(:mod:`~fedmoments.privacy.secure.cohorts`). Clients send one report and are not asked again: blocks of it are
unmasked one after the other, every coordinate once.

**Law** rows are sums over disjoint groups of clients that depend on who holds which class and on chance, never on a
feature. So the free covariance of these rows is unbiased, as that of client means is; there are fewer rows, so it
varies more. **Law** class counts and class sums are those of all clients present, bit for bit, unless a class is
suppressed.

Which sums of a class may be opened, once it is known how many clients of each cohort hold the class.

A cell (cohort, class) with at least ``contributors`` clients is opened by itself and becomes a row of client means.
What remains of a class, cells of some clients but fewer, is pooled: cohort after cohort joins, in the order of the
cohorts, until the pool has enough clients; that is one row, and the next pool begins. What is left at the end joins the
last pool, or the open cell that has fewest clients. A class that too few clients hold in *all* cohorts together is
suppressed. So

- no opened sum has fewer contributors than the threshold, and each client's cell is in one opened sum at most;
- counts and sums of a class are those of all clients, unless the class is suppressed whole;
- which cells go together depends on who holds what, never on a feature: rows stay unbiased.

(One pool for all that remains of a class would do as well, but with cohorts of 5 most cells remain, and would be one
row: BANKING77, 100 clients, threshold 3: 86.3 % instead of 88.2 %.)
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.statistics import FixedPoint, Statistics, StatisticsSpec
from fedmoments.errors import InputError, NotEnoughDataError, PrivacyError
from fedmoments.privacy.dense import DenseLayout
from fedmoments.privacy.secure.cohort_draw import (
    NONCE_BYTES,
    Roster,
    commitment_to,
    deal_cohorts,
    join_nonces,
    merge_small,
)
from fedmoments.privacy.secure.context import Context
from fedmoments.privacy.secure.leader import Leader
from fedmoments.privacy.secure.request import SumRequest
from fedmoments.privacy.secure.two_phase import Gate

__all__ = ["CohortGate", "CohortLeader", "Opening", "plan_openings", "rows_of"]


Ints = NDArray[np.int64]


@dataclass(frozen=True, order=True)
class Opening:
    """Classes whose sums are opened over the same cohorts together.

    Parameters
    ----------
    cohorts
        Their numbers, ascending.
    labels
        Classes, ascending: each becomes one row.
    """

    cohorts: tuple[int, ...]
    labels: tuple[int, ...]


def plan_openings(held: Ints, contributors: int) -> tuple[tuple[Opening, ...], tuple[int, ...]]:
    """Return what is opened, and which classes that somebody holds are suppressed.

    Parameters
    ----------
    held
        (J, C) how many clients of cohort j hold class c.
    contributors
        Fewest clients that an opened sum of a class may be over.

    Examples
    --------
    >>> held = np.array([[3, 1, 1], [4, 1, 0], [1, 1, 1]])
    >>> openings, suppressed = plan_openings(held, 3)
    >>> [(opening.cohorts, opening.labels) for opening in openings]  # of class 0 the third cohort joins the first
    [((0, 1, 2), (1,)), ((0, 2), (0,)), ((1,), (0,))]
    >>> suppressed
    (2,)
    """
    if contributors < 1:
        raise InputError(f"contributors must be 1 or more, not {contributors}")
    by_group: dict[tuple[int, ...], list[int]] = {}
    suppressed: list[int] = []
    for label, column in enumerate(held.T.tolist()):
        groups = _groups(column, contributors)
        if not groups and any(column):
            suppressed.append(label)
        for group in groups:
            by_group.setdefault(group, []).append(label)
    openings = sorted(Opening(cohorts, tuple(labels)) for cohorts, labels in by_group.items())
    return tuple(openings), tuple(suppressed)


def _groups(column: list[int], contributors: int) -> list[tuple[int, ...]]:
    """Return which cohorts are opened together for a class that column[j] clients of cohort j hold."""
    alone: list[tuple[int, ...]] = [(j,) for j, n in enumerate(column) if n >= contributors]
    pools, waiting = _pools(column, contributors)
    if waiting and pools:
        pools[-1] += waiting
    elif waiting and alone:
        least = min(range(len(alone)), key=lambda i: column[alone[i][0]])
        alone[least] = tuple(sorted((*alone[least], *waiting)))
    return alone + pools


def _pools(column: list[int], contributors: int) -> tuple[list[tuple[int, ...]], tuple[int, ...]]:
    """Return neighbouring cohorts of too few holders, pooled until they have enough, and those left at the end."""
    pools: list[tuple[int, ...]] = []
    waiting: tuple[int, ...] = ()
    for j, n in enumerate(column):
        if 0 < n < contributors:
            waiting += (j,)
            if sum(column[i] for i in waiting) >= contributors:
                pools.append(waiting)
                waiting = ()
    return pools, waiting


Words = NDArray[np.uint64]

#: What the statistics of cohorts hold.
RESULT = StatisticsSpec.of("client_means")


class CohortGate(Gate, Protocol):
    """The helper of cohorts: :class:`CohortHelper`, in this process or at another party; one question may be many."""

    def learn_many(self, requests: Sequence[SumRequest], masked: Sequence[Words]) -> list[Words]:
        """Return the masks of the contributors of many groups."""
        ...

    def open_many(self, requests: Sequence[SumRequest]) -> list[Words]:
        """Return the masks of many sums of classes."""
        ...

    def draw(self, context: Context, roster: Roster, commitment: bytes) -> bytes:
        """Return the helper's nonce."""
        ...

    def reveal(self, context: Context, nonce: bytes) -> tuple[tuple[str, ...], ...]:
        """Take the leader's nonce; return the clients of every cohort."""
        ...

    def admit(self, context: Context, envelopes: Sequence[bytes]) -> tuple[tuple[str, ...], ...]:
        """Take the envelopes of all who are present; return the report ids of every cohort."""
        ...


class CohortLeader:
    """The leader's side: it commits to a nonce, and opens the rows of cohorts.

    Parameters
    ----------
    roster
        Who is enrolled.
    layout
        Of counts and sums: ``DenseLayout(StatisticsSpec(), …)``.
    form
        The federation's fixed-point form.
    size, batch, contributors
        Clients of a cohort; fewest clients of a cohort once some dropped out; fewest clients that hold an opened class.
    nonce
        Its nonce, 32 bytes, in a simulation that must deal the same cohorts again; None: from the operating system.

    Examples
    --------
    See :mod:`fedmoments.privacy.modes.cohorts`.
    """

    def __init__(
        self,
        roster: Roster,
        layout: DenseLayout,
        form: FixedPoint,
        *,
        size: int,
        batch: int,
        contributors: int,
        nonce: bytes | None = None,
    ) -> None:
        if layout.spec != StatisticsSpec():
            raise InputError(f"cohorts add up counts and sums, but the layout has {layout.spec}")
        self.roster, self.layout, self.form = roster, layout, form
        self.size, self.batch, self.contributors = size, batch, contributors
        self.nonce = nonce or secrets.token_bytes(NONCE_BYTES)

    def deal(self, context: Context, helper: CohortGate) -> tuple[tuple[str, ...], ...]:
        """Draw cohorts together with the helper, before anybody reports; return the clients of every cohort.

        Raises
        ------
        PrivacyError
            When the helper deals others than this end does.
        """
        theirs = helper.draw(context, self.roster, commitment_to(self.nonce, context, self.roster))
        cohorts = deal_cohorts(self.roster, context, join_nonces(self.nonce, theirs), self.size)
        if helper.reveal(context, self.nonce) != cohorts:
            raise PrivacyError(
                "the helper deals other cohorts than this server from the same nonces: let both agree on the size of "
                "cohorts and use the same release"
            )
        return cohorts

    def collect(
        self, leader: Leader, helper: CohortGate, cohorts: Sequence[Sequence[str]]
    ) -> tuple[Statistics, dict[str, Any]]:
        """Open what may be opened of the reports that are present; return rows, and facts.

        Parameters
        ----------
        leader
            With the reports of all clients that take part.
        helper
            The helper that the cohorts were drawn with.
        cohorts
            What :meth:`deal` returned.
        """
        present = leader.present
        merged = merge_small(cohorts, present, self.batch)
        groups = tuple(tuple(sorted(present[client] for client in group)) for group in merged)
        openings, suppressed = plan_openings(self._contributors(leader, helper, groups), self.contributors)
        opened = [self._request(leader, groups, opening) for opening in openings]
        masks = helper.open_many(opened)
        parts = [leader.finish(request, mask) for request, mask in zip(opened, masks, strict=True)]
        stats = rows_of(openings, parts, self.layout, self.form)
        return stats, {
            "clients": len(present),
            "cohorts": [len(group) for group in groups],
            "rows": len(stats.row_labels),
            "pooled": sum(len(opening.labels) for opening in openings if len(opening.cohorts) > 1),
            "suppressed": suppressed,
        }

    def _contributors(
        self, leader: Leader, helper: CohortGate, groups: tuple[tuple[str, ...], ...]
    ) -> NDArray[np.int64]:
        """Return how many clients of every group of reports hold a class, (groups, C); the helper learns the same."""
        block = self.layout.contributor_block
        requests = [leader.request(group, [(block.start, block.stop)]) for group in groups]
        envelopes = [sealed for request in requests for _, sealed in request.reports]
        if helper.admit(leader.context, envelopes) != groups:
            raise PrivacyError("the helper merges cohorts differently: let both servers agree on the smallest batch")
        masked = [leader.finish(request, np.zeros(request.size, np.uint64)) for request in requests]
        masks = helper.learn_many(requests, masked)  # all at once: a message to another party takes seconds
        return np.stack([(one + other).view(np.int64) for one, other in zip(masked, masks, strict=True)])

    def _request(self, leader: Leader, groups: Sequence[Sequence[str]], opening: Opening) -> SumRequest:
        ids = [name for cohort in opening.cohorts for name in groups[cohort]]
        blocks = [self.layout.class_block(label) for label in opening.labels]
        return leader.request(ids, [(block.start, block.stop) for block in blocks])


def rows_of(openings: Sequence[Opening], parts: Sequence[Words], layout: DenseLayout, form: FixedPoint) -> Statistics:
    """Return opened sums as statistics of client means: one row an opening and class.

    Parameters
    ----------
    openings
        What was opened.
    parts
        For each of them, the numbers of its classes one after the other, uint64.
    layout, form
        Of counts and sums; the federation's fixed-point form.
    """
    if not openings:
        raise NotEnoughDataError(
            "no class is held by enough clients, so all are suppressed: let more clients take part, or agree on a "
            "lower threshold"
        )
    table = np.concatenate([part.view(np.int64).reshape(-1, layout.class_width) for part in parts])
    labels = np.array([label for opening in openings for label in opening.labels], np.int64)
    counts = table[:, 0].copy()
    if counts.min() < 1 or counts.max() > form.max_samples or counts.sum() > form.max_samples:
        raise InputError(
            f"opened counts must be 1 or more, and {form.max_samples} at most together, but they are from "
            f"{counts.min()} to {counts.max()}: masks that do not cancel, or a contributor that sent no statistics"
        )
    classes, where = np.unique(labels, return_inverse=True)
    totals = np.zeros(len(classes), np.int64)
    np.add.at(totals, where, counts)
    rows = {"client_means": np.ascontiguousarray(table[:, 1:])}
    return Statistics(RESULT, layout.n_classes, layout.dim, classes, totals, rows, labels, counts, form)
