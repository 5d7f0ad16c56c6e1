"""Which moments an upload holds: a join semi-lattice.

``a | b`` is the least upload that serves both a and b; ``a <= b`` says that an upload of b suffices for a. Counts and
sums are part of every upload. Finer moments imply coarser ones (class grams ⇒ gram, class squares ⇒ class norms), so
the join of "gram" and "class grams" sends class grams alone.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from fedmoments.errors import InputError
from fedmoments.statistics.moments import DERIVED, MOMENTS, Layout, moment

__all__ = ["StatisticsSpec"]


def _closure(names: Iterable[str]) -> frozenset[str]:
    """Return the names and everything that follows from them."""
    known: set[str] = set()
    todo = [*names, "sums"]
    while todo:
        name = todo.pop()
        if name not in known:
            known.add(name)
            todo.extend(moment(name).implies)
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

    Examples
    --------
    >>> lda, qda = StatisticsSpec.of("gram"), StatisticsSpec.of("class_grams")
    >>> lda <= qda, qda <= lda
    (True, False)
    >>> (lda | qda).sent
    ('sums', 'class_grams')
    >>> (StatisticsSpec.of("client_means") | lda).sent
    ('gram', 'client_means')
    """

    moments: frozenset[str] = frozenset()
    means_per_client: int = 1

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

    @classmethod
    def of(cls, *moments: str, means_per_client: int = 1) -> "StatisticsSpec":
        """Return the spec of these moments and all that they imply."""
        return cls(frozenset(moments), means_per_client)

    @property
    def sent(self) -> tuple[str, ...]:
        """The fewest moments from which all others follow, in registry order: what an upload really holds."""
        implied = {coarse for name in self.moments for coarse in moment(name).implies}
        return tuple(name for name in (*MOMENTS, *DERIVED) if name in self.moments and name not in implied)

    @property
    def keeps_clients_apart(self) -> bool:
        """Whether clients' contributions must not be added up."""
        return any(moment(name).layout is Layout.ROWS for name in self.moments)

    @property
    def additive(self) -> "StatisticsSpec":
        """The part that may be added up across clients."""
        return StatisticsSpec(frozenset(n for n in self.moments if moment(n).layout is not Layout.ROWS))

    def __or__(self, other: "StatisticsSpec") -> "StatisticsSpec":
        return StatisticsSpec(self.moments | other.moments, max(self.means_per_client, other.means_per_client))

    def __le__(self, other: "StatisticsSpec") -> bool:
        return self.moments <= other.moments and self.means_per_client <= other.means_per_client

    def __ge__(self, other: "StatisticsSpec") -> bool:
        return other <= self

    def __str__(self) -> str:
        shares = f" × {self.means_per_client}" if self.means_per_client > 1 else ""
        return " + ".join(("counts", *self.sent)) + shares
