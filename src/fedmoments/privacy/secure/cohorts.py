"""FedCOF under secure sums in one message: sums inside cohorts, each cohort's class mean is one row.

Clients are dealt to cohorts of m from randomness that neither server can steer
(:mod:`~fedmoments.privacy.secure.cohort_draw`). Of each cohort the contributors are opened first, then the sums of
classes that enough of its clients hold; what is left of a class is pooled over cohorts into one row
(:mod:`~fedmoments.privacy.secure.cohort_cells`). Clients send one report and are not asked again: blocks of it are
unmasked one after the other, every coordinate once.

**Law** rows are sums over disjoint groups of clients that depend on who holds which class and on chance, never on a
feature. So the free covariance of these rows is unbiased, as that of client means is; there are fewer rows, so it
varies more. **Law** class counts and class sums are those of all clients present, bit for bit, unless a class is
suppressed.
"""

import hashlib
import secrets
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedmoments.errors import InputError, NotEnoughDataError, PrivacyError
from fedmoments.privacy.dense import DenseLayout
from fedmoments.privacy.secure.cohort_cells import Opening, plan_openings
from fedmoments.privacy.secure.cohort_draw import (
    NONCE_BYTES,
    Roster,
    commitment_to,
    deal_cohorts,
    join_nonces,
    merge_small,
)
from fedmoments.privacy.secure.cohort_helper import CohortHelper
from fedmoments.privacy.secure.context import Context
from fedmoments.privacy.secure.leader import Leader
from fedmoments.privacy.secure.parties import SIMULATED, LocalParties, named_statistics
from fedmoments.privacy.secure.report import OVERHEAD_BYTES
from fedmoments.privacy.secure.two_phase import Gate, learn_contributors
from fedmoments.statistics import FixedPoint, Statistics, StatisticsSpec

__all__ = ["CohortGate", "CohortLeader", "rows_of", "run_cohorts"]

Words = NDArray[np.uint64]
Ints = NDArray[np.int64]

#: What the statistics of cohorts hold.
RESULT = StatisticsSpec.of("client_means")


class CohortGate(Gate, Protocol):
    """The helper of cohorts: :class:`CohortHelper`, in this process or at another party."""

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
    See :func:`run_cohorts`.
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
        block = self.layout.contributor_block
        requests = [leader.request(group, [(block.start, block.stop)]) for group in groups]
        envelopes = [sealed for request in requests for _, sealed in request.reports]
        if helper.admit(leader.context, envelopes) != groups:
            raise PrivacyError("the helper merges cohorts differently: let both servers agree on the smallest batch")
        held = np.stack([learn_contributors(leader, helper, request) for request in requests])
        openings, suppressed = plan_openings(held, self.contributors)
        parts = [self._open(leader, helper, groups, opening) for opening in openings]
        stats = rows_of(openings, parts, self.layout, self.form)
        return stats, {
            "clients": len(present),
            "cohorts": tuple(len(group) for group in groups),
            "rows": len(stats.row_labels),
            "pooled": sum(len(each.labels) for each in openings if len(each.cohorts) > 1),
            "suppressed": suppressed,
            "bytes_up": OVERHEAD_BYTES + 8 * self.layout.size,
        }

    def _open(self, leader: Leader, helper: CohortGate, groups: Sequence[Sequence[str]], opening: Opening) -> Words:
        ids = [name for cohort in opening.cohorts for name in groups[cohort]]
        blocks = [self.layout.class_block(label) for label in opening.labels]
        request = leader.request(ids, [(block.start, block.stop) for block in blocks])
        return leader.finish(request, helper.open(request))


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
    labels = np.array([label for each in openings for label in each.labels], np.int64)
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


def run_cohorts(
    statistics: Mapping[Any, Statistics],
    *,
    size: int = 10,
    batch: int = 3,
    contributors: int = 3,
    randomness: bytes | None = None,
    context: Context = SIMULATED,
    dropped: Collection[str] = (),
) -> tuple[Statistics, dict[str, Any]]:
    """Run the whole protocol in one process, with masks, seals, signatures and a draw as between several parties.

    Parameters
    ----------
    statistics
        Client -> its statistics in fixed point: counts and sums, or client means (one a class).
    size
        m, clients of a cohort.
    batch
        Fewest clients of a sum; smaller cohorts are merged.
    contributors
        Fewest clients that an opened class must be held by.
    randomness
        Deals the same cohorts to the same clients again, for simulations; None: other ones every time.
    context
        Federation, round and fingerprint.
    dropped
        Clients (as text) that never report.

    Returns
    -------
    tuple
        Statistics of client means whose rows are cohorts', in fixed point, and facts: ``clients``, size of the
        ``cohorts``, ``rows``, ``pooled`` rows (of several cohorts), ``suppressed`` classes, ``bytes_up`` of a client.

    Examples
    --------
    >>> form, rng = FixedPoint(norm_bound=8.0, max_samples=1000), np.random.default_rng(0)
    >>> parts = {
    ...     site: Statistics.of(rng.normal(size=(4, 2)), [0, 0, 0, 1], StatisticsSpec.of("client_means"),
    ...                         n_classes=3, fixed_point=form)
    ...     for site in range(9)
    ... }
    >>> stats, facts = run_cohorts(parts, size=4)
    >>> facts["cohorts"], stats.row_labels.tolist(), stats.row_counts.tolist()
    ((5, 4), [0, 1, 0, 1], [15, 5, 12, 4])
    >>> bool((stats.raw("sums") == Statistics.merge(parts.values()).raw("sums")).all())
    True
    """
    named = named_statistics(statistics)
    first = next(iter(named.values()))
    assert first.fixed_point is not None  # noqa: S101 - checked with the names
    layout = DenseLayout(StatisticsSpec(), first.n_classes, first.dim)
    parties = LocalParties(named, batch, seed=randomness)
    nonces = [randomness and hashlib.sha256(who + randomness).digest() for who in (b"leader", b"helper")]
    roster = Roster.of(parties.public)
    helper = CohortHelper(parties.helper, layout, size=size, batch=batch, contributors=contributors, nonce=nonces[1])
    ours = CohortLeader(
        roster, layout, first.fixed_point, size=size, batch=batch, contributors=contributors, nonce=nonces[0]
    )
    cohorts = ours.deal(context, helper)
    leader = parties.report({name: layout.pack(part) for name, part in named.items()}, context, dropped)
    return ours.collect(leader, helper, cohorts)
