"""What several seeds measure at one place: many quantities, one value a seed."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fedmoments.core.observations import Observation
from fedmoments.core.observations.observation import ACCURACY

__all__ = ["Spot", "across_seeds"]


@dataclass(frozen=True)
class Spot:
    """A place and the seeds that were run there.

    Parameters
    ----------
    where
        Key -> value, as in an :class:`~fedmoments.core.observations.Observation`.
    seeds
        One for every value that is observed here.

    Examples
    --------
    >>> spot = Spot({"head": "fedcof"}, (0, 1))
    >>> seen = spot.observe((3.0, 4.0), "rounds", target=0.9)
    >>> seen.mean, seen.quantity, dict(seen.where)
    (3.5, 'rounds', {'head': 'fedcof', 'target': 0.9})
    """

    where: Mapping[str, Any]
    seeds: tuple[int, ...]

    def observe(
        self, values: Iterable[float | None], quantity: str = ACCURACY, reason: str | None = None, **more: Any
    ) -> Observation:
        """Return one value a seed of a quantity; ``more`` narrows the place down."""
        return Observation({**self.where, **more}, tuple(values), quantity, reason, self.seeds)


def across_seeds(by_seed: Iterable[tuple[int, Iterable[Observation]]]) -> list[Observation]:
    """Return measurements with one value for every seed, of measurements that have one value each.

    Parameters
    ----------
    by_seed
        A seed, and what was measured with it; every seed measures at the same places.

    Examples
    --------
    >>> both = [(seed, [Observation({"head": "fed3r"}, (0.8 + seed / 10,))]) for seed in (0, 1)]
    >>> [(one.values, one.seeds) for one in across_seeds(both)]
    [((0.8, 0.9), (0, 1))]
    """
    joined: dict[Any, Observation] = {}
    for seed, measurements in by_seed:
        for new in measurements:
            key = (new.quantity, tuple(sorted(new.where.items())))
            before = joined.get(key, replace(new, values=(), seeds=()))
            values, seeds = (*before.values, *new.values), (*before.seeds, seed)
            joined[key] = replace(before, values=values, reason=before.reason or new.reason, seeds=seeds)
    return list(joined.values())
