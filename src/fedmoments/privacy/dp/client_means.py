"""Client means with central differential privacy: class sums first, then how client means spread around them.

FedCOF's own matrix, Σ_c w_c Σ_k n_kc (μ_kc−μ_c)(μ_kc−μ_c)ᵀ, must not be noised as it is: its weights
w_c = (N_c−1)/(K_c−1) and its centres μ_c depend on the data, so that one sample changes it by an amount that depends on
all others. Instead one trusted server makes two releases of what clients sent:

1. counts and class sums, as for any head (:mod:`fedmoments.privacy.dp.releases`): from then on means m_c are public;
2. with u_kc = clip(μ_kc − m_c) to a public norm b, the matrix **P = Σ_kc n_kc u_kc u_kcᵀ** without weights, and how
   many (client, class) pairs there are, **M**.

**Sensitivity of P.** One sample x more in a pair of n samples turns n·uuᵀ into (n+1)·u'u'ᵀ. The mean moves by
‖x − μ_kc‖/(n+1) ≤ 2R/(n+1), and so does what is clipped around a fixed m_c, for clipping is a projection. With
‖u‖, ‖u'‖ ≤ b and ‖u'u'ᵀ − uuᵀ‖ ≤ ‖u' − u‖·‖u' + u‖,

    ‖(n+1)u'u'ᵀ − n·uuᵀ‖ = ‖u'u'ᵀ + n(u'u'ᵀ − uuᵀ)‖ ≤ b² + n·2R/(n+1)·2b ≤ **b² + 4Rb**,

whatever n and all other samples are; a pair that appears or vanishes changes P by at most b². M changes by at most 1.
Replacing a sample removes one and adds one: twice as much.

**After the noise** (no privacy is spent on it): what noise in m_c adds to P, σ_A²/N_c on the diagonal of every class,
is taken off; P is made positive semi-definite and gets the ridge σ√(2d), which is what its noise can have; the pooled
scatter is P·(N − C)/(M − C), FedCOF's with one weight for all classes. **Law** without noise, with equal N_c, equal K_c
and nothing clipped, it is FedCOF's scatter.
"""

import math
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.linalg import add_gram, new_gram, pack_symmetric, packed_diagonal, packed_size, symmetrize_upper
from fedmoments.core.statistics import FixedPoint, Statistics, StatisticsSpec
from fedmoments.errors import InputError, NotEnoughDataError, PrivacyError
from fedmoments.privacy.dense import DenseLayout
from fedmoments.privacy.dp.accountant import Accountant
from fedmoments.privacy.dp.budget import shares_of
from fedmoments.privacy.dp.discrete import MAX_SCALE, Stream, discrete_gaussian
from fedmoments.privacy.dp.noise_plan import MARGIN, ROUNDING_SCALE, NoisePlan, plan
from fedmoments.privacy.dp.releases import check_norms, noise_vector_of
from fedmoments.privacy.dp.scatters import SCATTERS, repair_as_planned
from fedmoments.privacy.dp.sensitivity import largest_norm
from fedmoments.privacy.protection import Agreed

__all__ = [
    "MeansForm",
    "ScatterPlan",
    "release_client_means",
    "require_client_means",
    "scatter_plan",
    "spread_of",
]


Floats = NDArray[np.float64]
Words = NDArray[np.uint64]

#: Share of the second release that the number of pairs has; it needs little, being one number of some hundreds.
PAIRS_SHARE = 0.05
#: What the released statistics hold: as those of two secure phases.
RESULT = StatisticsSpec.of("contributors", "free_scatter")
#: Client means are clipped to this share of the norm bound around class means, where nothing else is agreed on.
#: A smaller one means less noise and less of the spread. Chosen on CIFAR-10 (SqueezeNet, 100 clients, ε = 1 to 8) from
#: 0.03, 0.06, 0.1, 0.15, 0.25, 0.5 and 1; the table of docs/privacy is on BANKING77.
MEAN_CLIP = 0.06


@dataclass(frozen=True)
class ScatterPlan:
    """The noise of both releases; everything in it is public.

    Parameters
    ----------
    sums
        Of counts and sums.
    clip, bound
        b and R.
    ratio
        σ/Δ of the second release.
    neighbours
        ``add-remove`` or ``replace``.

    Examples
    --------
    >>> from fedmoments.core.statistics import FixedPoint
    >>> both = scatter_plan(DenseLayout(StatisticsSpec(), 10, 16), FixedPoint(1.0, 10**5), Agreed(epsilon=2.0))
    >>> both.clip, round(both.sensitivity, 3), round((both.ratio**-2 + both.sums.ratio**-2) ** -0.5, 3)
    (0.06, 0.244, 1.99...)
    """

    sums: NoisePlan
    clip: float
    bound: float
    ratio: float
    neighbours: str

    @property
    def _times(self) -> float:
        return 2.0 if self.neighbours == "replace" else 1.0

    @property
    def sensitivity(self) -> float:
        """By how much one sample changes P, in Frobenius norm."""
        return self._times * (self.clip**2 + 4.0 * self.bound * self.clip)

    @property
    def scatter_sigma(self) -> float:
        """Standard deviation of the noise of a diagonal entry of P; entries beside it have 1/√2 of it."""
        dim, step = self.sums.layout.dim, self.sums.form.resolution(2)
        rounding = self._times * step * dim  # P is rounded to the grid once, in either of two neighbouring data
        return self.ratio * (self.sensitivity + rounding) * (1 + MARGIN) / math.sqrt(1.0 - PAIRS_SHARE)

    @property
    def pairs_sigma(self) -> float:
        """Standard deviation of the noise of M."""
        return math.hypot(self.ratio * self._times * (1 + MARGIN) / math.sqrt(PAIRS_SHARE), ROUNDING_SCALE)


def require_client_means(spec: StatisticsSpec, agreed: Agreed) -> None:
    """Refuse what the derivation above does not cover.

    Examples
    --------
    >>> require_client_means(StatisticsSpec.of("client_means"), Agreed(epsilon=1.0))
    >>> require_client_means(StatisticsSpec.of("client_means", "gram"), Agreed(epsilon=1.0))
    Traceback (most recent call last):
    fedmoments.errors.PrivacyError: client means are released with differential privacy alone, one a class and ...
    """
    if spec.sent != ("client_means",) or spec.means_per_client > 1 or agreed.unit != "sample":
        raise PrivacyError(
            "client means are released with differential privacy alone, one a class and hiding one sample, but "
            f"{spec} hiding one {agreed.unit} was requested: choose heads on sums of all clients (fedncm, fed3r, "
            "gh-lda, fedcof-oracle) for anything else"
        )


def scatter_plan(layout: DenseLayout, form: FixedPoint, agreed: Agreed) -> ScatterPlan:
    """Return the noise of both releases of client means.

    Parameters
    ----------
    layout
        Of counts and sums.
    form, agreed
        As of :func:`~fedmoments.privacy.dp.plan`.
    """
    whole = plan(layout, form, agreed)
    beside = DenseLayout(StatisticsSpec.of("gram"), layout.n_classes, layout.dim)
    share = shares_of("automatic", beside)["gram"]
    first = replace(whole, ratio=whole.ratio / math.sqrt(1.0 - share))
    bound = largest_norm(1.0 if agreed.clip is None else agreed.clip)
    clip = MEAN_CLIP * (bound / largest_norm(1.0)) if agreed.mean_clip is None else agreed.mean_clip
    return ScatterPlan(first, clip, bound, whole.ratio / math.sqrt(share), agreed.neighbours)


def spread_of(stats: Statistics, means: Floats, kept: NDArray[np.bool_], clip: float) -> tuple[Floats, int]:
    """Return P, packed, and M of client means around public means.

    Parameters
    ----------
    stats
        Client means of all clients.
    means, kept
        (C, d) public means, and which classes have one.
    clip
        b.

    Examples
    --------
    >>> one = Statistics.of([[1.0]], [0], StatisticsSpec.of("client_means"), n_classes=1)
    >>> two = Statistics.of([[3.0], [3.0]], [0, 0], one.spec, n_classes=1)
    >>> spread_of(one + two, np.array([[2.5]]), np.array([True]), clip=1.0)
    (array([1.5]), 2)
    """
    rows = stats.rows
    mine = kept[rows.labels]
    centred = rows.block_means(slice(None))[mine] - means[rows.labels[mine]]
    lengths = np.sqrt(np.einsum("ij,ij->i", centred, centred))
    centred *= np.minimum(1.0, clip / np.maximum(lengths, 1e-300))[:, None]
    matrix = new_gram(stats.dim)
    add_gram(matrix, centred * np.sqrt(rows.counts[mine].astype(np.float64))[:, None])
    return pack_symmetric(symmetrize_upper(matrix)), int(mine.sum())


@dataclass(frozen=True)
class MeansForm:
    """How client means are released: noised sums, then the noised spread around them, in one vector of integers.

    Parameters
    ----------
    sums
        Layout of counts and sums.
    grid, agreed
        As of :func:`~fedmoments.privacy.dp.plan`.

    Examples
    --------
    >>> form = MeansForm(DenseLayout(StatisticsSpec(), 10, 16), FixedPoint(1.0, 10**5), Agreed(epsilon=2.0))
    >>> form.size - form.sums.size, round(form.ratio, 2)
    (137, 1.99)
    """

    sums: DenseLayout
    grid: FixedPoint
    agreed: Agreed

    @cached_property
    def plan(self) -> ScatterPlan:
        """The noise of both steps."""
        return scatter_plan(self.sums, self.grid, self.agreed)

    @property
    def size(self) -> int:
        """How many integers there are: the sums, P and M."""
        return self.sums.size + packed_size(self.sums.dim) + 1

    @property
    def ratio(self) -> float:
        """σ/Δ of one release that tells as much as both steps together: 1/r² = 1/r₁² + 1/r₂²."""
        return plan(self.sums, self.grid, self.agreed).ratio

    def describe(self) -> dict[str, Any]:
        """Return what a reader should know of the noise, as plain values."""
        whole, both = plan(self.sums, self.grid, self.agreed).describe(), self.plan
        noise = {**both.sums.sigmas, "spread of client means": both.scatter_sigma, "pairs": both.pairs_sigma}
        return {**whole, "mean_clip": both.clip, "noise": noise}

    def check_grid(self) -> None:
        """Refuse noise that does not fit the grid's 64 bits."""
        steps = self.plan.scatter_sigma / self.grid.resolution(2)
        if steps > MAX_SCALE:
            raise InputError(
                f"the noise of the spread of client means would be {steps:.3g} steps of the fixed-point grid, but at "
                f"most {MAX_SCALE:.3g} fit 64 bits: agree on more max_samples than {self.grid.max_samples}"
            )

    def check(self, merged: Statistics) -> None:
        """Refuse what the noise does not hide."""
        require_client_means(merged.spec, self.agreed)
        check_norms(merged.restricted(self.sums.spec), 1.0 if self.agreed.clip is None else self.agreed.clip)

    def noised(self, merged: Statistics, source: Stream | None = None) -> Words:
        """Return both steps with their noise, (size,) uint64.

        It does not fail where no class stands out of the noise, for that is told by the noised sums: whoever may draw
        again then would read them for nothing.
        """
        source, both = source or Stream(), self.plan
        noisy = self.sums.pack(merged.restricted(self.sums.spec)) + noise_vector_of(both.sums, source).view(np.uint64)
        means, kept = np.zeros((merged.n_classes, merged.dim)), np.zeros(merged.n_classes, bool)
        with suppress(NotEnoughDataError):
            first = repair_as_planned(noisy, both.sums, self.agreed)
            means[first.classes] = first.class_array("sums") / first.class_counts[:, None]
            kept = first.counts > 0
        packed, pairs = spread_of(merged, means, kept, both.clip)
        return np.concatenate([noisy, _noised(packed, pairs, both, source).view(np.uint64)])

    def statistics(self, noisy: Words, servers: int = 1) -> Statistics:
        """Return class sums, a number of contributors (the same for every class) and the free scatter, repaired.

        Raises
        ------
        NotEnoughDataError
            When no class stands out of the noise.
        """
        if servers != 1:
            raise InputError(f"client means are noised by one server that reads them, not by {servers}")
        first = repair_as_planned(noisy[: self.sums.size], self.plan.sums, self.agreed)
        spread = noisy[self.sums.size :].view(np.int64)
        return _finished(first, (self.grid.dequantize(spread[:-1], 2), float(spread[-1])), self.plan)


def release_client_means(
    stats: Statistics, agreed: Agreed, accountant: Accountant, source: Stream | None = None
) -> Statistics:
    """Release client means of all clients once, in two steps, and charge the account for both.

    Parameters
    ----------
    stats
        Client means, in fixed point: one a client and class.
    agreed
        With an epsilon; ``mean_clip`` is b.
    accountant
        Charged before noise is drawn.
    source
        As in :func:`~fedmoments.privacy.dp.noise_vector`.

    Returns
    -------
    Statistics
        Class sums, a number of contributors (the same for every class) and the free scatter, noised.
    """
    if stats.fixed_point is None:
        raise InputError(f"noise is added to statistics in fixed point, but {stats!r} arrived: quantize them first")
    form = MeansForm(DenseLayout(StatisticsSpec(), stats.n_classes, stats.dim), stats.fixed_point, agreed)
    form.check(stats)
    accountant.record(form.ratio, f"{stats.spec}, C={stats.n_classes}, d={stats.dim}")
    return form.statistics(form.noised(stats, source))


def _noised(packed: Floats, pairs: int, both: ScatterPlan, source: Stream) -> NDArray[np.int64]:
    """Return P and M with their noise, on the grid of second moments and on whole numbers."""
    form, dim = both.sums.form, both.sums.layout.dim
    scales = np.full(len(packed), math.hypot(both.scatter_sigma / form.resolution(2) / math.sqrt(2.0), ROUNDING_SCALE))
    steps = np.arange(dim)
    scales[steps * (steps + 3) // 2] = math.hypot(both.scatter_sigma / form.resolution(2), ROUNDING_SCALE)
    true = np.append(np.rint(np.ldexp(packed, form.bits(2))), pairs).astype(np.int64)
    return true + discrete_gaussian(np.append(scales, both.pairs_sigma), source)


def _finished(first: Statistics, noised: tuple[Floats, float], both: ScatterPlan) -> Statistics:
    """Return the free scatter that two noised numbers tell, repaired."""
    (packed, pairs), classes = noised, len(first.classes)
    matrix, dim = SCATTERS["gram"], first.dim
    counts = first.class_counts.astype(np.float64)
    excess = float((both.sums.sigmas["sums"] ** 2 / counts).sum())
    scatter = matrix.definite(packed - excess * matrix.identity(dim))
    spread = float(packed_diagonal(scatter).sum())
    scatter = scatter + matrix.noise_norm(both.scatter_sigma, dim) * matrix.identity(dim)
    held = min(max(pairs / classes, 2.0), max(float(counts.mean()), 2.0))
    weight = (counts.sum() - classes) / (classes * (held - 1.0))
    arrays = {
        "sums": first.class_array("sums"),
        "contributors": np.full((classes, 1), held),
        "free_scatter": np.append(scatter * weight, spread),
    }
    return Statistics(RESULT, first.n_classes, dim, first.classes, first.class_counts, arrays)
