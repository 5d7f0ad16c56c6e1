"""Contributions that grow old: how much each weighs in a head, and how far new class means lie from old ones.

**The rule of forgetting.** With a half-life of h days, contribution k, taken in a_k days before the newest one, weighs
m_k = round(16 · 2^(−a_k/h)), divided by the greatest common divisor of all weights; with weight 0 it takes no part. A
head is fitted from Σ m_k S_k: as if every sample of client k had been measured m_k times. The ledger's integers are
never weighed, so leaving and replacing stay exact, and another half-life is another fit. Weights are whole numbers, so
sums stay in fixed point. Moments that keep clients apart (client means, scatter sketches) say how well each mean is
known, which measuring twice does not change: heads on them are not fitted with a half-life.

**Drift** of a class is ‖μ_new − μ_old‖ / √tr Σ, in units of the spread within classes, and its *ratio* is
‖μ_new − μ_old‖² / (tr Σ · (1/n_new + 1/n_old)): about 1 where nothing but chance moved the mean.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np

from fedmoments.core.statistics import Statistics
from fedmoments.errors import InputError, NotEnoughDataError
from fedmoments.federation.company import require_company
from fedmoments.federation.store import FederationStore

__all__ = ["Drift", "aged_statistics", "drift_since", "weights_of_ages"]

#: The weight of what was just taken in; a sixteenth of it is the least.
NEWEST = 16
DAY = 86_400.0


def weights_of_ages(days: Sequence[float], half_life: float) -> list[int]:
    """Return the weight of each contribution, by its age in days.

    Examples
    --------
    >>> weights_of_ages([0.0, 30.0, 60.0, 300.0], 30.0)
    [4, 2, 1, 0]
    >>> weights_of_ages([5.0, 5.0], 30.0)
    [1, 1]
    """
    if not half_life > 0:
        raise InputError(f"a half-life is a number of days above 0, not {half_life!r}")
    youngest = min(days, default=0.0)
    weights = [round(NEWEST * 2.0 ** (-(age - youngest) / half_life)) for age in days]
    common = math.gcd(*weights) if weights else 1
    return [weight // common for weight in weights]


def aged_statistics(store: FederationStore, half_life: float) -> Statistics:
    """Return all moments that add up, each contribution weighed by its age.

    Parameters
    ----------
    store
        The ledger.
    half_life
        Days after which a contribution weighs half as much.

    Raises
    ------
    InputError
        Where contributions cannot be told apart, or noise was made for unweighed ones.
    NotEnoughDataError
        When too few of several contributions would have a weight (:mod:`fedmoments.federation.company`).
    """
    mode = store.terms.privacy.mode
    if not mode.reads_contributions or mode.noise.is_on:
        raise InputError(f"under {mode.title} single contributions have no age: leave --half-life out")
    terms, spec = store.terms, store.terms.spec.additive
    ages = _ages(store)
    weights = dict(zip(ages, weights_of_ages(list(ages.values()), half_life), strict=True))
    parties = [party.client for party in store.status().contributors if party.samples]
    weighty = [client for client in parties if weights[client]]
    choice = f"with a half-life of {half_life:g} days"
    require_company(terms, weighty, len(parties), choice, "choose a longer half-life")
    total = Statistics.zero(spec, n_classes=len(terms.classes), dim=terms.dim, fixed_point=terms.fixed_point)
    for client, part in store.contributions():
        if weights.get(client, 0):
            total += _times(part.restricted(spec), weights[client])
    return total


def _times(part: Statistics, weight: int) -> Statistics:
    """Return the statistics of samples that were measured so many times."""
    arrays = {name: array * weight for name, array in part.arrays.items()}
    return replace(part, class_counts=part.class_counts * weight, arrays=arrays)


def _ages(store: FederationStore) -> dict[str, float]:
    """Return by client how many days before the newest contribution its own was taken in."""
    times = {party.client: datetime.fromisoformat(party.time).timestamp() for party in store.status().contributors}
    newest = max(times.values(), default=0.0)
    return {client: (newest - time) / DAY for client, time in times.items()}


@dataclass(frozen=True)
class Drift:
    """How far the mean of a class moved.

    Parameters
    ----------
    name
        Of the class.
    before, since
        Samples of older and of newer contributions.
    distance, ratio
        See the module.
    """

    name: str
    before: int
    since: int
    distance: float
    ratio: float


def drift_since(store: FederationStore, moment_in_time: datetime) -> list[Drift]:
    """Return the drift of every class that contributions before and since a moment hold, the farthest first.

    Parameters
    ----------
    store
        The ledger; a client's contribution counts as it is now, by when it was taken in.
    moment_in_time
        With a time zone.

    Raises
    ------
    NotEnoughDataError
        When nothing is older or newer, or nothing tells how far samples of a class spread.
    """
    if not store.terms.privacy.mode.reads_contributions:
        raise InputError(f"under {store.terms.privacy.mode.title} nobody sees single contributions, so no drift either")
    times = {party.client: datetime.fromisoformat(party.time) for party in store.status().contributors}
    parts: tuple[list[Statistics], list[Statistics]] = ([], [])
    for client, part in store.contributions():
        parts[times[client] >= moment_in_time].append(part.to_float())
    if not parts[0] or not parts[1]:
        raise NotEnoughDataError(f"contributions before and since {moment_in_time} are needed to measure a drift")
    old, new = (Statistics.merge(some) for some in parts)
    return sorted(_drifts(store.terms.classes, old, new), key=lambda drift: -drift.distance)


def _drifts(names: Sequence[str], old: Statistics, new: Statistics) -> Iterator[Drift]:
    spread = _spread(old + new)
    for label in np.flatnonzero((old.counts > 0) & (new.counts > 0)).tolist():
        n, m = int(old.counts[label]), int(new.counts[label])
        squared = float(((new.sums[label] / m - old.sums[label] / n) ** 2).sum())
        ratio = squared / (spread * (1 / n + 1 / m))
        yield Drift(names[label], n, m, math.sqrt(squared / spread), ratio)


def _spread(stats: Statistics) -> float:
    """Return tr Σ, the variance within classes summed over dimensions, from whatever tells it."""
    counts = stats.counts
    held = counts > 0
    between = float((stats.sums[held] ** 2 / counts[held, None]).sum())
    moments, freedom = stats.spec.moments, stats.n_samples - int(held.sum())
    if "gram" in moments:
        scatter = float(np.trace(stats.gram)) - between
    elif "class_squares" in moments:
        scatter = float(stats.class_array("class_squares").sum()) - between
    else:  # the means of clients of one class, n‖μ_k − μ‖², have tr Σ for each beyond the first
        rows, n = stats.rows.block_means(), stats.row_counts
        scatter = float((n[:, None] * rows**2).sum()) - between
        freedom = len(n) - int(held.sum())
    if freedom < 1 or not scatter > 0:
        raise NotEnoughDataError("the spread within classes is not known: too few samples, or one client a class")
    return scatter / freedom
