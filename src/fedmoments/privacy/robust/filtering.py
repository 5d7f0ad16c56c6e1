"""Clients whose statistics are possible but lie too far from the others': a filter by medians.

Five questions are asked of every client, each answered on a robust scale (:mod:`fedmoments.privacy.robust.centres`):

- **samples**: log N against the median and the median absolute deviation (MAD) of all clients', and ten times the
  median at least;
- **a class**: the squared distance of its mean over n samples from the median of the holders' means, against 1/n;
- **all classes**: the mean of these logarithms over its classes, which finds many small deviations;
- **places**: how much nearer its means lie to the centres of other classes than of their own, over all its samples.
  It finds wrong labels that distances hide, unless domains differ more than classes do, and only clients whose means
  lie nearer to other centres;
- **scatter**: size and directions of its second moments (:mod:`fedmoments.privacy.robust.spread`).

Who is found is left out whole, and the medians are taken again without them, until nobody more is found. A class of
fewer than three holders has no majority: nothing is said about its means.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.statistics import Statistics
from fedmoments.errors import InputError, UnknownNameError
from fedmoments.privacy.robust.centres import Cells, class_centres, excess, mad, margins, own_share, stack
from fedmoments.privacy.robust.consistency import cap_reason, inconsistencies
from fedmoments.privacy.robust.spread import measure_scatter

__all__ = ["FILTERS", "Filter", "Suspicion", "check_strictness", "suspects"]

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

FILTERS = ("mad",)
#: Deviations (robust standard deviations) beyond which a client is left out, at strictness 1.
LIMITS = {"samples": 6.0, "class": 8.0, "classes": 6.0, "places": 4.0, "scatter": 7.0}
#: A client with fewer than so many times the median samples is never left out for them.
MANY = 10.0
#: Holders that a class needs for a majority.
MAJORITY = 3
#: Medians are taken again at most so many times.
ROUNDS = 10
#: Least standard deviation of a logarithm: what differs by less is alike.
ALIKE = 0.05
#: The same for the shapes of scatters, which differ between honest domains.
SIMILAR = 0.3
#: Median of the square of a standard normal number.
HALF_CHI = 0.4549364231195724


@dataclass(frozen=True)
class Suspicion:
    """Whom a server leaves out, and why.

    Parameters
    ----------
    dropped
        Client -> reason, in the order of the clients.
    scores
        Client -> the largest of its deviations, as a share of what is allowed: above 1 it is left out. Clients that
        were found inconsistent have none.
    untested
        Cells (client, class) of classes with too few holders for a majority.
    """

    dropped: dict[Hashable, str]
    scores: dict[Hashable, float] = field(default_factory=dict)
    untested: int = 0

    def keep(self, statistics: Mapping[Any, Statistics]) -> dict[Hashable, Statistics]:
        """Return the statistics of those who stay."""
        return {client: stats for client, stats in statistics.items() if client not in self.dropped}

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "dropped": {str(client): reason for client, reason in self.dropped.items()},
            "scores": {str(client): round(score, 4) for client, score in self.scores.items()},
            "untested": self.untested,
        }


def suspects(
    statistics: Mapping[Any, Statistics],
    *,
    max_samples: int | None = None,
    max_class_samples: int | None = None,
    norm_bound: float | None = None,
    filter: str | None = "mad",  # noqa: A002 - the word that settings use
    strictness: float = 1.0,
    checked: bool = False,
) -> Suspicion:
    """Return the clients that a server should leave out. Deterministic, whatever the clients' order.

    Parameters
    ----------
    statistics
        Client -> statistics of the same kind, in float64 or fixed point. A cohort is a client too.
    max_samples, max_class_samples
        Public caps on the samples of a client, and of one class of a client; None: any number.
    norm_bound
        Public bound on the norm of features, see :func:`~fedmoments.privacy.robust.inconsistencies`.
    filter
        ``mad``: see the module; None: consistency alone.
    strictness
        1 by default; at 2, deviations half as large are too many.
    checked
        Whether the moments were examined already, as those of a decoded contribution are; the caps are always checked.

    Examples
    --------
    >>> from fedmoments.core.statistics import StatisticsSpec
    >>> rng, spec = np.random.default_rng(0), StatisticsSpec()
    >>> data = {k: (rng.normal(size=(20, 8)), rng.integers(0, 2, 20)) for k in "abcdefgh"}
    >>> honest = {k: Statistics.of(X + 5 * y[:, None], y, spec, n_classes=2) for k, (X, y) in data.items()}
    >>> suspects(honest).dropped
    {}
    >>> X, y = data["c"]
    >>> list(suspects({**honest, "c": Statistics.of(X + 5 * y[:, None], 1 - y, spec, n_classes=2)}).dropped)
    ['c']
    """
    if filter is not None and filter not in FILTERS:
        raise UnknownNameError("robust filter", filter, FILTERS)
    check_strictness(strictness)
    if checked:
        reasons = _over_caps(statistics, max_samples, max_class_samples)
    else:
        reasons = inconsistencies(
            statistics, max_samples=max_samples, max_class_samples=max_class_samples, norm_bound=norm_bound
        )
    left = {client: stats for client, stats in statistics.items() if client not in reasons}
    if filter is None or not left:
        return Suspicion(_ordered(reasons, statistics))
    suspicion = Filter(stack(left), list(left.values()), strictness).run()
    dropped = _ordered({**reasons, **suspicion.dropped}, statistics)
    return Suspicion(dropped, suspicion.scores, suspicion.untested)


def _ordered(reasons: Mapping[Hashable, str], statistics: Mapping[Any, Statistics]) -> dict[Hashable, str]:
    """Return the reasons in the order of all clients."""
    return {client: reasons[client] for client in statistics if client in reasons}


def _over_caps(
    statistics: Mapping[Any, Statistics], max_samples: int | None, max_class_samples: int | None
) -> dict[Hashable, str]:
    """Return the clients with more samples than the caps allow, and why."""
    reasons: dict[Hashable, str] = {}
    for client, stats in statistics.items():
        reason = cap_reason(stats, max_samples=max_samples, max_class_samples=max_class_samples)
        if reason is not None:
            reasons[client] = reason
    return reasons


def check_strictness(strictness: float) -> None:
    """Refuse a strictness that is not a number above 0."""
    if not (math.isfinite(strictness) and strictness > 0):
        raise InputError(f"strictness must be a finite number above 0, not {strictness!r}")


@dataclass
class _Finding:
    """Deviations of K clients as a share of what is allowed, and the reason for each."""

    shares: Floats
    reasons: list[str]


class Filter:
    """The rounds of a filter over clients that are consistent.

    Parameters
    ----------
    cells
        Their means.
    parts
        Their statistics, for the scatter; none where only means are known.
    strictness
        See :func:`suspects`.
    single
        Whether every client is one cell: its samples are then compared with those of the same class.
    """

    def __init__(self, cells: Cells, parts: Sequence[Statistics], strictness: float, *, single: bool = False) -> None:
        self.cells, self.parts, self.single = cells, parts, single
        self.limits = {name: limit / strictness for name, limit in LIMITS.items()}
        self.untested = 0

    def run(self) -> Suspicion:
        """Return whom it finds."""
        n = len(self.cells.clients)
        keep: Mask = np.ones(n, bool)
        worst, reasons = np.zeros(n), [""] * n
        for _ in range(ROUNDS):
            worst[keep] = 0.0
            findings = [self._samples(keep), *self._means(keep), *self._scatter(keep)]
            for finding in findings:
                for k in np.flatnonzero(keep & (finding.shares > worst)):
                    worst[k], reasons[k] = finding.shares[k], finding.reasons[k]
            now = keep & (worst <= 1)
            if now.sum() == keep.sum():
                break
            keep = now
        dropped = {client: reasons[k] for k, client in enumerate(self.cells.clients) if not keep[k]}
        return Suspicion(dropped, dict(zip(self.cells.clients, worst.tolist(), strict=True)), self.untested)

    def _samples(self, keep: Mask) -> _Finding:
        samples = self.cells.samples
        usable = keep & (samples > 0)
        shares, reasons = np.zeros(len(samples)), [""] * len(samples)
        if usable.sum() < MAJORITY:
            return _Finding(shares, reasons)
        logs = np.log(np.maximum(samples, 1))
        base = self._class_medians(logs, usable) if self.single else np.zeros(len(logs))
        centre, spread = mad((logs - base)[usable])
        allowed = max(self.limits["samples"] * spread, math.log(MANY))
        shares[usable] = (logs - base - centre)[usable] / allowed
        for k in np.flatnonzero(shares > 1):
            most = math.exp(base[k] + centre + allowed)
            reasons[k] = f"samples: it claims {samples[k]}, but among the others {most:.0f} would already be unusual"
        return _Finding(shares, reasons)

    def _class_medians(self, logs: Floats, usable: Mask) -> Floats:
        """Return for every client, which is one cell, the median over the clients of its class."""
        labels = np.empty(len(logs), np.int64)
        labels[self.cells.holders] = self.cells.labels
        medians = np.zeros(self.cells.n_classes)
        for label in np.unique(labels[usable]):
            medians[label] = np.median(logs[usable & (labels == label)])
        return np.asarray(medians[labels])

    def _means(self, keep: Mask) -> list[_Finding]:
        cells, n = self.cells, len(self.cells.clients)
        centres, variances, voices = class_centres(cells, cells.kept(keep))
        tested = cells.kept(keep) & (voices[cells.labels] >= MAJORITY)
        self.untested = int((cells.kept(keep) & ~tested).sum())
        at = np.flatnonzero(tested)
        if len(at) < MAJORITY:
            return []
        labels, holders = cells.labels[at], cells.holders[at]
        gaps = cells.means[at]
        gaps -= centres[labels]
        logs = excess(np.einsum("ij,ij->i", gaps, gaps), variances[labels] + 1.0 / cells.counts[at])
        _, spread = mad(logs)
        spread = max(spread, ALIKE)
        one, one_reasons = np.zeros(n), [""] * n
        shares = logs / (spread * self.limits["class"])
        order = np.argsort(shares, kind="stable")
        one[holders[order]] = np.maximum(shares[order], 0.0)
        for i in order[shares[order] > 1]:
            one_reasons[holders[i]] = (
                f"a class: its mean of class {labels[i]} over {cells.counts[at[i]]} samples lies "
                f"{math.exp(logs[i] / 2):.1f} times as far from the others' as is usual"
            )
        sizes = np.bincount(holders, minlength=n).astype(np.float64)
        some = np.flatnonzero(sizes)
        scores = np.bincount(holders, weights=logs, minlength=n)[some] / sizes[some]
        centre, _ = mad(scores)
        deviations = np.maximum(own_share(scores, sizes[some], spread), ALIKE)
        every, every_reasons = np.zeros(n), [""] * n
        every[some] = (scores - centre) / (deviations * self.limits["classes"])
        for k, score in zip(some.tolist(), scores.tolist(), strict=True):
            every_reasons[k] = (
                f"all classes: its means of {sizes[k]:.0f} classes lie {math.exp((score - centre) / 2):.1f} times as "
                "far from the others' as is usual"
            )
        return [_Finding(one, one_reasons), _Finding(every, every_reasons), self._places(at, centres, voices)]

    def _places(self, at: NDArray[np.int64], centres: Floats, voices: NDArray[np.int64]) -> _Finding:
        """Ask whether the means of a client lie nearer to the centres of other classes than of their own."""
        cells, n = self.cells, len(self.cells.clients)
        shares, reasons = np.zeros(n), [""] * n
        known = np.flatnonzero(voices >= MAJORITY)
        if len(known) < 2:
            return _Finding(shares, reasons)
        nearer = margins(cells.means[at], cells.labels[at], centres[known], known)
        samples = np.bincount(cells.holders[at], weights=cells.counts[at], minlength=n)
        some = np.flatnonzero(samples)
        scores = np.bincount(cells.holders[at], weights=nearer * cells.counts[at], minlength=n)[some] / samples[some]
        gaps = np.median(scores) - scores
        z = np.sqrt(HALF_CHI * np.exp(excess(np.square(gaps), 1.0 / samples[some])))
        z = np.where((gaps > 0) & (scores < 0), np.minimum(z, gaps / ALIKE), 0.0)
        shares[some] = z / self.limits["places"]
        for k in some:
            reasons[k] = "places: its class means lie nearer to the centres of other classes than of their own"
        return _Finding(shares, reasons)

    def _scatter(self, keep: Mask) -> list[_Finding]:
        scatter = measure_scatter(self.parts, keep) if self.parts else None
        if scatter is None:
            return []
        findings = []
        for name, numbers in scatter.numbers.items():
            known = np.flatnonzero(keep & np.isfinite(numbers))
            if len(known) < MAJORITY:
                continue
            usual = float(np.median(numbers[known]))
            gaps = np.log(np.maximum(numbers[known], usual * 1e-9) / usual) if usual > 0 else np.zeros(len(known))
            freedom = np.maximum(scatter.freedom[known], 1)
            z = np.sqrt(HALF_CHI * np.exp(excess(np.square(gaps), 1.0 / freedom)))
            z = np.minimum(z, np.abs(gaps) / ALIKE)
            shares, reasons = np.zeros(len(keep)), [""] * len(keep)
            shares[known] = z / self.limits["scatter"]
            for k, gap in zip(known.tolist(), gaps.tolist(), strict=True):
                reasons[k] = (
                    f"scatter: the {SCATTER_NAMES[name]} of its second moments is {math.exp(gap):.3g} times what is "
                    "usual"
                )
            findings.append(_Finding(shares, reasons))
        if scatter.shape is not None:
            findings.append(self._shape(scatter.shape, 1.0 / np.maximum(scatter.freedom, 1) + scatter.variance, keep))
        return findings

    def _shape(self, distances: Floats, variances: Floats, keep: Mask) -> _Finding:
        shares, reasons = np.zeros(len(keep)), [""] * len(keep)
        known = np.flatnonzero(keep & np.isfinite(distances))
        if len(known) < MAJORITY:
            return _Finding(shares, reasons)
        logs = excess(distances[known], variances[known])
        shares[known] = logs / (max(mad(logs)[1], SIMILAR) * self.limits["scatter"])
        for k, log in zip(known.tolist(), logs.tolist(), strict=True):
            reasons[k] = (
                f"scatter: the directions of its second moments differ {math.exp(log / 2):.1f} times as much from the "
                "others' as is usual"
            )
        return _Finding(shares, reasons)


#: What the numbers of a scatter are, in words.
SCATTER_NAMES = {"size": "size", "narrow": "weight in narrow directions"}
