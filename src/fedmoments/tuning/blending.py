"""A client's blend of global and local class means, and heads fitted as if every class had moved to the blended mean.

Of a class c of which the federation holds N_c samples with the mean μ_c, and this client n_c with the mean μ_kc, the
blended mean is

    m_c = (1 − β_c) μ_c + β_c μ_kc,    β_c fixed, or β_c = n_c/(n_c + τ);

classes of which the client has no sample keep the global mean, and classes that nobody contributed stay unknown. A head
is then fitted from the statistics of the same samples with those of class c translated by t_c = m_c − μ_c, which follow
from the statistics alone:

    Σx → Σx + N t,    Σ x xᵀ → Σ x xᵀ + Σ_c (s_c t_cᵀ + t_c s_cᵀ + N_c t_c t_cᵀ),    client means → client means + t,

while scatters within classes stay as they are. For nearest means these are the blended means themselves; LDA keeps its
covariance and ridge regression sees the moved classes.

τ says how many samples the global mean is worth. ``auto`` chooses it by leave-one-out on the client's own samples: each
sample is compared with the blended mean of its class that the others give. With a = β of n_c − 1 samples, S_c the
scatter Σ‖x − μ_kc‖² and D_c = ‖μ_kc − μ_c‖², the sum of squared distances of class c is, in closed form,

    (1 − a)² g² (S_c + n_c D_c) + 2 a (1 − a) g h S_c + a² h² S_c,    h = n_c/(n_c − 1),  g = N_c/(N_c − 1),

because leaving x out moves the local mean by (x − μ_kc)/(n_c − 1) and the global one by (x − μ_c)/(N_c − 1). Where the
client's samples are not among the global ones, or their number is not known, g = 1. A class with one sample of the
client's tells nothing of τ and is left out. Distances scale with features, so that τ does not.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmoments.core.classifier import Classifier, LinearClassifier
from fedmoments.core.heads import Head
from fedmoments.core.linalg import pack_symmetric
from fedmoments.core.statistics import Statistics, StatisticsSpec
from fedmoments.errors import InputError

__all__ = ["TAUS", "Blend", "blend", "leave_one_out", "means_of", "read_beta", "statistics_of_means", "translated"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Values of τ that are tried: from the local mean alone, over samples that the global mean is worth, to it alone.
TAUS: tuple[float, ...] = (0.0, *(2.0**power for power in range(-2, 11)), math.inf)
#: Sums of squares that differ by less than this share are equal: the larger τ, which trusts the federation, wins.
TIE = 1e-9

_MOVED = frozenset({"sums", "gram", "client_means"})
_UNMOVED = frozenset({"contributors", "free_scatter"})


@dataclass(frozen=True, eq=False)
class Blend:
    """Class means of one client's own.

    Parameters
    ----------
    stats
        Of the federation, with every class moved to its blended mean.
    betas
        (C,) weight of the local mean; 0 where the client or the federation has no sample.
    counts
        (C,) samples of the client.
    tau
        What the weights followed from; None where β was fixed.
    """

    stats: Statistics
    betas: Floats
    counts: Ints
    tau: float | None = None

    @property
    def means(self) -> Floats:
        """(C, d) blended means; 0 for classes of which the federation has no sample."""
        return means_of(self.stats)

    def fit(self, head: Head) -> Classifier:
        """Return the head of this client, with notes on the blend."""
        fitted = head.fit(self.stats)
        tau = None if self.tau is None else "inf" if math.isinf(self.tau) else self.tau
        mean = float(self.betas[self.counts > 0].mean()) if (self.counts > 0).any() else 0.0
        return fitted.noting(blend={"tau": tau, "mean_beta": mean, "samples": int(self.counts.sum())})


def blend(
    source: Statistics | ArrayLike, X: ArrayLike, y: ArrayLike, *, beta: float | str = "auto", included: bool = True
) -> Blend:
    """Blend global class means with those of a client's own samples.

    Parameters
    ----------
    source
        Merged statistics of the federation, or class means (C, d) alone; a row of NaN is a class that nobody holds.
    X, y
        The client's samples, (n, d) in the space that the statistics were measured in, and their labels (n,).
    beta
        Weight of the local means, from 0 to 1; ``auto`` for n_c/(n_c + τ), with τ by leave-one-out.
    included
        Whether the client's samples are among the federation's; leave-one-out then takes a sample out of both means.

    Examples
    --------
    >>> stats = Statistics.of([[0.0, 1.0], [0.0, 3.0], [4.0, 0.0]], [0, 0, 1], StatisticsSpec(), n_classes=2)
    >>> mine = blend(stats, [[0.0, 6.0]], [0], beta=0.5)
    >>> mine.means
    array([[0., 4.],
           [4., 0.]])
    >>> mine.betas
    array([0.5, 0. ])
    """
    given = read_beta(beta)
    known = isinstance(source, Statistics)
    stats = source.to_float() if isinstance(source, Statistics) else statistics_of_means(source)
    own = _measured(X, y, stats)
    both = (own.counts > 0) & (stats.counts > 0)
    tau = None
    if given is None:
        totals = stats.counts.astype(np.float64) if known and included else np.full(stats.n_classes, np.inf)
        tau = _best(*_summary(own, stats, X, y, both), totals[both])
        betas = np.where(both, _weights(own.counts, tau), 0.0)
    else:
        betas = np.where(both, given, 0.0)
    shifts = betas[:, None] * np.where(both[:, None], means_of(own) - means_of(stats), 0.0)
    return Blend(translated(stats, shifts), betas, own.counts, tau)


def read_beta(beta: float | str) -> float | None:
    """Return a weight from 0 to 1, or None for ``auto``.

    Examples
    --------
    >>> read_beta("0.25"), read_beta("auto")
    (0.25, None)
    """
    if beta == "auto":
        return None
    try:
        value = float(beta)
    except ValueError:
        value = math.nan
    if not 0.0 <= value <= 1.0:
        raise InputError(f"beta, the weight of local class means, is from 0 to 1 or 'auto'; {beta!r} arrived")
    return value


def leave_one_out(
    counts: ArrayLike, scatters: ArrayLike, distances: ArrayLike, totals: ArrayLike, taus: ArrayLike = TAUS
) -> Floats:
    """Return the sum of squared distances of a client's samples to the blended means of all others, for each τ.

    Sums of several clients add up.

    Parameters
    ----------
    counts, scatters, distances
        (p,) n_c, S_c = Σ‖x − μ_kc‖² and D_c = ‖μ_kc − μ_c‖² of classes that the client and the federation hold.
    totals
        (p,) N_c; infinite where the client's samples are not among the federation's.
    taus
        (G,) values to try, 0 to infinity.

    Examples
    --------
    >>> leave_one_out([2], [8.0], [1.0], [np.inf], [0.0, np.inf])
    array([32., 10.])
    """
    n, scatter, distance, N = (np.asarray(values, np.float64) for values in (counts, scatters, distances, totals))
    several = (n > 1) & (N > 1)
    n, scatter, distance, N = n[several], scatter[several], distance[several], N[several]
    h, g = n / (n - 1), np.where(np.isinf(N), 1.0, 1.0 / (1.0 - 1.0 / N))
    a = _weights(n[None, :] - 1, np.asarray(taus, np.float64)[:, None])
    alone, crossed, local = g * g * (scatter + n * distance), g * h * scatter, h * h * scatter
    return np.asarray(((1 - a) ** 2 * alone + 2 * a * (1 - a) * crossed + a**2 * local).sum(axis=1))


def translated(stats: Statistics, shifts: ArrayLike) -> Statistics:
    """Return the statistics of the same samples, those of class c moved by row c of ``shifts`` (C, d).

    Counts, sums, the gram matrix, client means and the pooled free scatter can be moved; other moments are refused.

    Examples
    --------
    >>> X, y = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([0, 1])
    >>> moved = translated(Statistics.of(X, y, StatisticsSpec.of("gram"), n_classes=2), [[1.0, 0.0], [0.0, 0.0]])
    >>> moved.gram
    array([[13., 16.],
           [16., 20.]])
    """
    other = sorted(set(stats.spec.sent) - _MOVED - _UNMOVED)
    if other:
        raise InputError(
            f"class means are moved in counts, sums, gram, client_means and free_scatter, but these statistics hold "
            f"{', '.join(other)}: choose a head that needs none of these, or restrict the statistics to what it needs"
        )
    plain = stats.to_float()
    wanted = np.asarray(shifts, np.float64)
    if wanted.shape != (stats.n_classes, stats.dim) or not np.isfinite(wanted).all():
        raise InputError(
            f"shifts must be finite, one row a class, {(stats.n_classes, stats.dim)}; an array of shape {wanted.shape} "
            f"with {np.isnan(wanted).sum()} NaN arrived"
        )
    moves = wanted[plain.classes]
    arrays: dict[str, Any] = dict(plain.arrays)
    counts = plain.class_counts.astype(np.float64)[:, None]
    if "sums" in arrays:
        arrays["sums"] = arrays["sums"] + counts * moves
    if "gram" in arrays:
        half = moves.T @ (plain.class_array("sums") + 0.5 * counts * moves)
        arrays["gram"] = arrays["gram"] + pack_symmetric(half + half.T)
    if "client_means" in arrays:
        arrays["client_means"] = arrays["client_means"] + plain.row_counts[:, None] * wanted[plain.row_labels]
    return replace(plain, arrays=arrays)


def statistics_of_means(means: ArrayLike) -> Statistics:
    """Return class means (C, d) as statistics with one sample a class; a row of NaN is a class without any.

    Examples
    --------
    >>> statistics_of_means([[1.0, 2.0], [np.nan, np.nan]]).counts
    array([1, 0])
    """
    rows = np.asarray(means, np.float64)
    if rows.ndim != 2 or not rows.size:
        raise InputError(f"class means must be a matrix (C, d); an array of shape {rows.shape} arrived")
    labels = np.flatnonzero(~np.isnan(rows).all(axis=1))
    return Statistics.of(rows[labels], labels, StatisticsSpec(), n_classes=len(rows))


def means_of(source: Statistics | Classifier) -> Floats:
    """Return class means (C, d): of statistics, 0 where there is no sample; of a nearest-mean classifier, NaN there.

    Only the Euclidean rule (``fedncm`` with ``metric=euclidean``) keeps means in a classifier; the cosine rule keeps
    their directions.

    Examples
    --------
    >>> import fedmoments as fm
    >>> parties = {"a": ([[0.0, 1.0], [0.0, 3.0]], [0, 0]), "b": ([[4.0, 0.0]], [1])}
    >>> means_of(fm.fit("fedncm", parties, metric="euclidean"))
    array([[0., 2.],
           [4., 0.]])
    """
    if isinstance(source, Statistics):
        return np.asarray(source.sums / np.maximum(source.counts, 1)[:, None])
    rule = (source.info.get("head"), (source.info.get("settings") or {}).get("metric"))
    if rule != ("fedncm", "euclidean") or not isinstance(source, LinearClassifier) or source.offset is None:
        raise InputError(
            "this classifier does not hold class means to blend with one's own: take merged statistics, or a nearest-"
            "mean classifier of the Euclidean rule ('fedmoments fit --head fedncm --set metric=euclidean'); any "
            "classifier can be restricted to one's own labels"
        )
    return np.where(source.present[:, None], source.weights.T + source.offset, np.nan)


def _measured(X: ArrayLike, y: ArrayLike, stats: Statistics) -> Statistics:
    own = Statistics.of(X, y, StatisticsSpec(), n_classes=stats.n_classes)
    if own.dim != stats.dim:
        raise InputError(
            f"the client's features have {own.dim} dimensions, but the federation's class means {stats.dim}: was "
            "another encoder or feature map used?"
        )
    return own


def _summary(
    own: Statistics, stats: Statistics, X: ArrayLike, y: ArrayLike, both: NDArray[np.bool_]
) -> tuple[Floats, Floats, Floats]:
    """Return n_c, S_c and D_c of the classes that both hold."""
    local, labels = means_of(own), np.asarray(y, np.int64)
    rest = np.asarray(X, np.float64) - local[labels]
    squares: Floats = np.einsum("id,id->i", rest, rest)
    scatters = np.bincount(labels, squares, minlength=own.n_classes).astype(np.float64)
    apart = local - means_of(stats)
    distances = np.einsum("cd,cd->c", apart, apart)
    return own.counts[both].astype(np.float64), scatters[both], distances[both]


def _weights(counts: ArrayLike, tau: Any) -> Floats:
    """Return n/(n + τ), 0 where n is 0 or τ infinite."""
    n = np.asarray(counts, np.float64)
    return np.asarray(np.where(n > 0, n / np.maximum(n + tau, 1e-300), 0.0))


def _best(counts: Floats, scatters: Floats, distances: Floats, totals: Floats) -> float:
    """Return the τ with the least sum of squares; the largest of those that tie."""
    errors = leave_one_out(counts, scatters, distances, totals)
    return max(tau for tau, error in zip(TAUS, errors, strict=True) if error <= errors.min() * (1 + TIE))
