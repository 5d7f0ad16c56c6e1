"""Which moments an upload holds: a join semi-lattice.

``a | b`` is the least upload that serves both a and b; ``a <= b`` says that an upload of b suffices for a. Counts and
sums are part of every upload. Finer moments imply coarser ones (class grams ⇒ gram, class squares ⇒ class norms), so
the join of "gram" and "class grams" sends class grams alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from fedmoments.core.statistics.moments import DERIVED, MOMENTS, Layout, moment
from fedmoments.core.statistics.sketch_plan import SketchPlan
from fedmoments.errors import InputError

__all__ = ["StatisticsSpec", "told_apart"]


def _closure(names: Iterable[str]) -> frozenset[str]:
    """Return the names and everything that follows from them."""
    known: set[str] = set()
    todo = [*names, "sums"]
    while todo:
        name = todo.pop()
        if name not in known:
            known.add(name)
            todo.extend((*moment(name).implies, *moment(name).beside))
    return frozenset(known)


@dataclass(frozen=True)
class StatisticsSpec:
    """A set of moments, closed under implication; hashable.

    Parameters
    ----------
    moments
        Names of moments; whatever they imply is added.
    means_per_client
        Into how many disjoint random shares a client splits a class for its client means (FedCOF §4.2). A class with
        fewer than twice as many samples stays whole. Must be 1 without client means.
    sketch
        How large a scatter sketch is, where one is measured. None in what a head needs: any will do; in what is
        measured: the default :class:`SketchPlan`.

    Examples
    --------
    >>> lda, qda = StatisticsSpec.of("gram"), StatisticsSpec.of("class_grams")
    >>> lda <= qda, qda <= lda
    (True, False)
    >>> (lda | qda).sent
    ('sums', 'class_grams')
    >>> (StatisticsSpec.of("client_means") | lda).sent
    ('gram', 'client_means')
    >>> str(StatisticsSpec.of("scatter_sketch", sketch=SketchPlan("means/2")))
    'counts + client_means + scatter_sketch (budget means/2)'
    """

    moments: frozenset[str] = frozenset()
    means_per_client: int = 1
    sketch: SketchPlan | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "moments", _closure(self.moments))
        if self.means_per_client < 1:
            raise InputError(
                "means_per_client says into how many means a client splits a class: "
                f"1 or more, not {self.means_per_client}"
            )
        if self.means_per_client > 1 and not self.keeps_clients_apart:
            raise InputError(
                f"means_per_client={self.means_per_client} has a meaning only with the moment 'client_means', "
                f"but the spec holds {', '.join(sorted(self.moments))}"
            )
        self._check_sketch()

    def _check_sketch(self) -> None:
        if self.sketch is not None and not self.has_sketch:
            raise InputError(
                f"a sketch plan ({self.sketch}) has a meaning only with the moment 'scatter_sketch', "
                f"but the spec holds {', '.join(sorted(self.moments))}"
            )

    @classmethod
    def of(cls, *moments: str, means_per_client: int = 1, sketch: SketchPlan | None = None) -> StatisticsSpec:
        """Return the spec of these moments and all that they imply."""
        return cls(frozenset(moments), means_per_client, sketch)

    @property
    def sent(self) -> tuple[str, ...]:
        """The fewest moments from which all others follow, in registry order: what an upload really holds."""
        implied = {coarse for name in self.moments for coarse in moment(name).implies}
        return tuple(name for name in (*MOMENTS, *DERIVED) if name in self.moments and name not in implied)

    @property
    def keeps_clients_apart(self) -> bool:
        """Whether clients' contributions must not be added up."""
        return any(moment(name).layout.apart for name in self.moments)

    @property
    def has_sketch(self) -> bool:
        """Whether clients send scatter sketches."""
        return any(moment(name).layout is Layout.SKETCH for name in self.moments)

    @property
    def plan(self) -> SketchPlan | None:
        """How large sketches are that are measured by this spec; None where there are none."""
        return (self.sketch or SketchPlan()) if self.has_sketch else None

    def with_plan(self, plan: SketchPlan | None) -> StatisticsSpec:
        """Return the same moments, with sketches by this plan if there are any.

        Examples
        --------
        >>> StatisticsSpec.of("gram").with_plan(SketchPlan("means")) == StatisticsSpec.of("gram")
        True
        """
        return replace(self, sketch=plan) if self.has_sketch else self

    def numbers(self, n_classes: int, dim: int) -> int:
        """Return how many numbers a client that holds every class sends of it, without counts and labels.

        Examples
        --------
        >>> StatisticsSpec.of("gram").numbers(10, 100) == 10 * 100 + 5050
        True
        """
        times = {Layout.CLASS: n_classes, Layout.GLOBAL: 1, Layout.ROWS: n_classes * self.means_per_client}
        times[Layout.SKETCH] = self.plan.capacity(n_classes, dim) if self.plan else 0
        return sum(MOMENTS[name].width(dim) * times[MOMENTS[name].layout] for name in self.sent)

    def settled(self, n_classes: int) -> StatisticsSpec:
        """Return the same moments, with all of the sketch plan settled for a federation of so many classes.

        Examples
        --------
        >>> StatisticsSpec.of("scatter_sketch").settled(77).plan.rows
        'class'
        """
        return self.with_plan(self.plan.settled(n_classes)) if self.plan else self

    @property
    def additive(self) -> StatisticsSpec:
        """The part that may be added up across clients."""
        return StatisticsSpec(frozenset(n for n in self.moments if not moment(n).layout.apart))

    def __or__(self, other: StatisticsSpec) -> StatisticsSpec:
        if self.sketch and other.sketch and self.sketch != other.sketch:
            raise InputError(
                f"one upload has one scatter sketch, but {self.sketch} and {other.sketch} are requested: choose one"
            )
        shares = max(self.means_per_client, other.means_per_client)
        return StatisticsSpec(self.moments | other.moments, shares, self.sketch or other.sketch)

    def __le__(self, other: StatisticsSpec) -> bool:
        plans = self.sketch is None or (other.plan is not None and other.plan.serves(self.sketch))
        return plans and self.moments <= other.moments and self.means_per_client <= other.means_per_client

    def __ge__(self, other: StatisticsSpec) -> bool:
        return other <= self

    def __str__(self) -> str:
        shares = f" × {self.means_per_client}" if self.means_per_client > 1 else ""
        return " + ".join(("counts", *self.sent)) + shares + (f" ({self.sketch})" if self.sketch else "")


def told_apart(one: object, other: object) -> tuple[str, str]:
    """Return two things that differ in words that differ: in short, or in full where short words hide it.

    Examples
    --------
    >>> fine, coarse = (StatisticsSpec.of("scatter_sketch", sketch=SketchPlan(share=s)) for s in (0.5, 0.25))
    >>> str(fine) == str(coarse), "share=0.5" in told_apart(fine, coarse)[0]
    (True, True)
    """
    return (str(one), str(other)) if str(one) != str(other) else (repr(one), repr(other))
