"""FedCOF under secure sums, exactly, in two phases over the same clients.

1. Contributors 1[n_kc > 0] are added up; classes that too few clients hold are suppressed; counts and sums of the
   others are added up. The server broadcasts class means, weights and a scale
   (:class:`~fedmoments.privacy.secure.broadcast.Broadcast`).
2. Each client sends Σ_c w_c n_kc (μ_kc − μ_c)(μ_kc − μ_c)ᵀ, and Σ_c n_kc ‖μ_kc − μ_c‖², as integers; they are added up.

**Law** the result is FedCOF's pooled free scatter of the classes that were kept, to the resolution of the fixed-point
numbers, whatever the order of the clients. It holds only if the clients are the same in both phases: w_c counts those
of the first. One client more or less is noticed by both servers, and nothing is opened.

Reports of the second phase are bound to the broadcast: its digest is part of their context. So a server that tells
clients different means cannot add them up, for the helper does not open them together.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.statistics import FixedPoint, Statistics, StatisticsSpec
from fedmoments.errors import InputError, NotEnoughDataError, PrivacyError
from fedmoments.privacy.dense import DenseLayout
from fedmoments.privacy.secure.broadcast import Broadcast
from fedmoments.privacy.secure.context import Context
from fedmoments.privacy.secure.leader import Leader
from fedmoments.privacy.secure.request import SumRequest

__all__ = ["RESULT", "FirstPhase", "Gate", "SecondGate", "learn_contributors", "open_classes"]

Words = NDArray[np.uint64]
Ints = NDArray[np.int64]

#: What the statistics of the second phase hold.
RESULT = StatisticsSpec.of("contributors", "free_scatter")


class Gate(Protocol):
    """Whoever minds thresholds: a :class:`~fedmoments.privacy.secure.threshold.ThresholdHelper`, here or elsewhere."""

    def learn(self, request: SumRequest, masked: Words) -> Words:
        """Return the masks of contributors."""
        ...

    def open(self, request: SumRequest) -> Words:
        """Return the masks of classes."""
        ...


class SecondGate(Gate, Protocol):
    """One that minds the second phase, too: :class:`TwoPhaseHelper`."""

    def second(self, request: SumRequest, first: Context, broadcast: Broadcast) -> Words:
        """Return the masks of the second phase."""
        ...


def learn_contributors(leader: Leader, gate: Gate, request: SumRequest) -> Ints:
    """Return how many clients of a group of reports hold each class, (C,); the helper learns the same.

    Parameters
    ----------
    leader, gate
        The two servers.
    request
        The group's reports, and the block of contributors.
    """
    masked = leader.finish(request, np.zeros(request.size, np.uint64))
    held = leader.finish(request, gate.learn(request, masked)).view(np.int64)
    if held.min(initial=0) < 0 or held.max(initial=0) > len(request.reports):
        raise InputError(
            f"of {len(request.reports)} clients from 0 to all can hold a class, but from {held.min()} to {held.max()} "
            "came out: masks that do not cancel"
        )
    return held


def open_classes(leader: Leader, gate: Gate, layout: DenseLayout, contributors: int) -> tuple[Words, Ints]:
    """Open how many clients hold each class, then the classes that enough hold, and moments of all classes together.

    Parameters
    ----------
    leader, gate
        The two servers, with the reports of all clients that take part.
    layout
        Where contributors, classes and moments of all classes stand.
    contributors
        Fewest clients that a class must be held by.

    Returns
    -------
    tuple
        (size,) uint64, 0 where nothing was opened, and (C,) clients that hold a class.

    Raises
    ------
    NotEnoughDataError
        When no class is held by so many.
    """
    block, names = layout.contributor_block, leader.present.values()
    held = learn_contributors(leader, gate, leader.request(names, [(block.start, block.stop)]))
    kept = np.flatnonzero(held >= max(contributors, 1))
    if not len(kept):
        raise NotEnoughDataError(
            f"no class is held by {contributors} clients or more, so all are suppressed: let more clients take "
            "part, or agree on a lower threshold"
        )
    blocks = [layout.class_block(int(label)) for label in kept]
    blocks += [layout.global_block] if layout.global_width else []
    request = leader.request(names, [(block.start, block.stop) for block in blocks])
    whole = np.zeros(layout.size, np.uint64)
    whole[np.concatenate([np.arange(layout.size)[block] for block in blocks])] = leader.finish(
        request, gate.open(request)
    )
    return whole, held


@dataclass(frozen=True, eq=False)
class FirstPhase:
    """What the first phase gave, and what the second must agree with.

    Parameters
    ----------
    statistics
        Counts and sums of the classes that were kept, fixed point.
    contributors
        (C,) clients that hold a class.
    clients
        Whose reports were added up: their names.
    broadcast
        What all clients are told.
    context
        Of the first phase.
    """

    statistics: Statistics
    contributors: Ints
    clients: frozenset[str]
    broadcast: Broadcast
    context: Context

    @property
    def suppressed(self) -> tuple[int, ...]:
        """Classes that somebody holds, but too few."""
        held = np.flatnonzero(self.contributors)
        return tuple(int(label) for label in held if label not in self.statistics.classes)

    @classmethod
    def collect(
        cls, leader: Leader, gate: Gate, layout: DenseLayout, form: FixedPoint, contributors: int
    ) -> "FirstPhase":
        """Open contributors, then the classes that enough clients hold.

        Parameters
        ----------
        leader
            With the reports of all clients that take part.
        gate
            The helper.
        layout
            Of counts and sums: ``DenseLayout(StatisticsSpec(), …)``.
        form
            The federation's fixed-point form.
        contributors
            Fewest clients that a class must be held by.

        Raises
        ------
        NotEnoughDataError
            When no class is held by so many.
        """
        whole, held = open_classes(leader, gate, layout, contributors)
        stats = layout.unpack(whole, form)
        return cls(stats, held, frozenset(leader.present), Broadcast.of(stats, held), leader.context)

    def finish(self, leader: Leader, gate: SecondGate) -> Statistics:
        """Open the sum of the second phase, and return statistics that heads on the pooled free covariance need.

        Parameters
        ----------
        leader
            With the reports of the second phase.
        gate
            The helper.

        Raises
        ------
        PrivacyError
            When the clients are not exactly those of the first phase; nothing was asked of the helper then.
        """
        now = frozenset(leader.present)
        if now != self.clients:
            missing, new = sorted(self.clients - now), sorted(now - self.clients)
            raise PrivacyError(
                f"both phases must be over the same clients, but {len(missing)} of the first are missing in the second "
                f"({', '.join(missing[:3]) or 'none'}) and {len(new)} are new ({', '.join(new[:3]) or 'none'}): the "
                "weights belong to the first, so the round is given up. Repeat it with all of them, begin a new "
                "federation, or use cohorts, which need one message only"
            )
        request = leader.request()
        scatter = self.broadcast.read(leader.finish(request, gate.second(request, self.context, self.broadcast)))
        stats = self.statistics
        arrays = {
            "sums": stats.class_array("sums"),
            "contributors": self.contributors[stats.classes, None].astype(np.float64),
            "free_scatter": scatter,
        }
        return Statistics(RESULT, stats.n_classes, stats.dim, stats.classes, stats.class_counts, arrays)
