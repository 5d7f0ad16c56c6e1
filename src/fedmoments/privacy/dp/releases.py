"""One release: noise on merged statistics, an entry in the account, repair.

The noise is drawn after the account was charged, from the operating system's randomness, once. Whoever asks again for
the same data gets new noise and pays again; what was released may be published, copied and computed with for nothing.

On secure sums **both servers** add :func:`noise_vector`, each the full noise: what either of them sees has the other's
noise in it, so the promise holds against each of them as well as against everybody else. The released sum then has √2
times the noise, which :func:`~fedmoments.privacy.dp.repair` must be told (``servers=2``).

The number of clients behind a class is not released: its place in the vector is drowned in uniform bits.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.statistics import FixedPoint, Statistics
from fedmoments.errors import InputError, PrivacyError
from fedmoments.privacy.dense import DenseLayout
from fedmoments.privacy.dp.accountant import Accountant
from fedmoments.privacy.dp.discrete import Stream, discrete_gaussian
from fedmoments.privacy.dp.noise_plan import NoisePlan, plan, require_additive
from fedmoments.privacy.dp.scatters import SCATTERS, repair
from fedmoments.privacy.dp.sensitivity import largest_norm
from fedmoments.privacy.protection import Agreed

__all__ = ["Released", "SumsForm", "check_norms", "finish", "noise_vector", "noise_vector_of", "release"]

Ints = NDArray[np.int64]
Words = NDArray[np.uint64]


@dataclass(frozen=True)
class Released:
    """What may be published.

    Parameters
    ----------
    statistics
        Noisy and repaired, in float64: heads are fitted from them as from any others.
    plan
        The noise that was added.
    servers
        How many parties added it, each the full noise.
    """

    statistics: Statistics
    plan: NoisePlan
    servers: int = 1

    @property
    def noise(self) -> dict[str, float]:
        """Standard deviation of the noise in the released numbers, of counts and every moment."""
        return {name: sigma * self.servers**0.5 for name, sigma in self.plan.sigmas.items()}

    @property
    def epsilon(self) -> float:
        """ε of this release by itself."""
        return self.plan.epsilon

    @property
    def delta(self) -> float:
        """δ of this release."""
        return self.plan.delta

    def describe(self) -> dict[str, Any]:
        """Return what a reader should know of the release, as plain values."""
        return {**self.plan.describe(), "servers": self.servers, "noise": self.noise}


def noise_vector(layout: DenseLayout, form: FixedPoint, agreed: Agreed, source: Stream | None = None) -> Ints:
    """Return the integers to add to a dense vector modulo 2⁶⁴, (size,) int64.

    It charges no account: whoever adds it does, by ``plan(layout, form, agreed).ratio``.

    Parameters
    ----------
    layout, form, agreed
        As in :func:`~fedmoments.privacy.dp.plan`.
    source
        Where bits come from; by default fresh ones of the operating system. Whoever knows them knows the noise.

    Examples
    --------
    >>> from fedmoments.core.statistics import StatisticsSpec
    >>> layout = DenseLayout(StatisticsSpec(), n_classes=3, dim=2)
    >>> noise_vector(layout, FixedPoint(1.0, 10**5), Agreed(epsilon=1.0)).shape
    (12,)
    """
    return noise_vector_of(plan(layout, form, agreed), source or Stream())


def noise_vector_of(noise_plan: NoisePlan, source: Stream) -> Ints:
    """Return the integers of a plan to add to a dense vector modulo 2⁶⁴, (size,) int64."""
    layout, scales = noise_plan.layout, noise_plan.grid_scales()
    noise = np.empty(layout.size, np.int64)
    noise[layout.contributor_block] = source.words(layout.n_classes).view(np.int64)
    noise[layout.n_classes :] = discrete_gaussian(scales[layout.n_classes :], source)
    return noise


def check_norms(stats: Statistics, clip: float) -> None:
    """Refuse sums that no samples of a norm up to ``clip`` can have: their noise would protect nobody.

    Examples
    --------
    >>> from fedmoments.core.statistics import StatisticsSpec
    >>> check_norms(Statistics.of([[3.0, 4.0]], [0], StatisticsSpec(), n_classes=1), clip=1.0)
    Traceback (most recent call last):
    fedmoments.errors.PrivacyError: the sums of class 0 have a mean of norm 5, ... clip norm of 1: ...
    """
    norm = largest_norm(clip)
    means = np.linalg.norm(stats.class_array("sums"), axis=1) / stats.class_counts
    if len(means) and means.max() > norm * (1 + 1e-9):
        worst = int(means.argmax())
        raise PrivacyError(
            f"the sums of class {stats.classes[worst]} have a mean of norm {means[worst]:.6g}, more than the public "
            f"clip norm of {clip:g}: noise for that norm would not hide their samples. Clip or normalise features by a "
            "public map before they are measured"
        )
    for name in SCATTERS.keys() & set(stats.spec.sent):
        form, rows = SCATTERS[name], np.atleast_2d(stats.class_array(name))
        energy = sum(form.trace(row) for row in rows) / max(stats.n_samples, 1)
        if energy > norm**2 * (1 + 1e-9):
            raise PrivacyError(
                f"the moment '{name}' has a mean squared norm of {energy:.6g}, more than the square of the public clip "
                f"norm of {clip:g}: clip or normalise features by a public map before they are measured"
            )


@dataclass(frozen=True)
class SumsForm:
    """How sums are released: one dense vector with noise on it.

    Parameters
    ----------
    sums, grid, agreed
        As of :func:`~fedmoments.privacy.dp.plan`.

    Examples
    --------
    >>> from fedmoments.core.statistics import StatisticsSpec
    >>> SumsForm(DenseLayout(StatisticsSpec(), 3, 2), FixedPoint(1.0, 10**5), Agreed(epsilon=1.0)).size
    12
    """

    sums: DenseLayout
    grid: FixedPoint
    agreed: Agreed

    @property
    def plan(self) -> NoisePlan:
        """The noise."""
        return plan(self.sums, self.grid, self.agreed)

    @property
    def size(self) -> int:
        """How many integers there are."""
        return self.sums.size

    @property
    def ratio(self) -> float:
        """σ/Δ, which the account is charged for."""
        return self.plan.ratio

    def describe(self) -> dict[str, Any]:
        """Return what a reader should know of the noise, as plain values."""
        return self.plan.describe()

    def check_grid(self) -> None:
        """Refuse noise that does not fit the grid's 64 bits."""
        self.plan.check_grid()

    def check(self, merged: Statistics) -> None:
        """Refuse what the noise does not hide."""
        require_additive(merged.spec)
        check_norms(merged, 1.0 if self.agreed.clip is None else self.agreed.clip)

    def noised(self, merged: Statistics, source: Stream | None = None) -> Words:
        """Return sums with noise on them, (size,) uint64, modulo 2⁶⁴."""
        return self.sums.pack(merged) + noise_vector_of(self.plan, source or Stream()).view(np.uint64)

    def statistics(self, noisy: Words, servers: int = 1) -> Statistics:
        """Return what heads are fitted from; ``servers``: how many parties added the noise, each in full."""
        return repair(noisy, self.sums, self.grid, self.agreed, servers=servers)


def release(stats: Statistics, agreed: Agreed, accountant: Accountant, source: Stream | None = None) -> Released:
    """Release merged statistics once, with noise, and charge the account for it.

    Parameters
    ----------
    stats
        True sums of all clients, in fixed point. For the unit client, sums of what
        :func:`~fedmoments.privacy.dp.clip_client` made of each client's.
    agreed
        With an epsilon. Its clip norm, like every hyper-parameter, must be public: one that was tuned on the private
        data voids the promise.
    accountant
        Charged before noise is drawn.
    source
        As in :func:`noise_vector`.

    Raises
    ------
    PrivacyError
        When the budget is spent, the statistics keep clients apart, or samples exceed the clip norm.

    Examples
    --------
    >>> from fedmoments.core.statistics import StatisticsSpec
    >>> X, y = np.array([[1.0, 0.0]] * 200 + [[0.0, 1.0]] * 300), [0] * 200 + [1] * 300
    >>> stats = Statistics.of(X, y, StatisticsSpec.of("gram"), n_classes=3, fixed_point=FixedPoint(1.0, 10**5))
    >>> account = Accountant(2.0, 1e-5)
    >>> out = release(stats, Agreed(epsilon=2.0), account)
    >>> bool(abs(out.statistics.counts - [200, 300, 0]).max() < 80), round(account.spent, 6)
    (True, 2.0)
    """
    require_additive(stats.spec)
    if stats.fixed_point is None:
        raise InputError(f"noise is added to statistics in fixed point, but {stats!r} arrived: quantize them first")
    form = SumsForm(DenseLayout(stats.spec, stats.n_classes, stats.dim), stats.fixed_point, agreed)
    form.check(stats)
    accountant.record(form.ratio, f"{stats.spec}, C={stats.n_classes}, d={stats.dim}")
    return Released(form.statistics(form.noised(stats, source)), form.plan)


def finish(
    noisy: NDArray[np.uint64] | NDArray[np.int64],
    layout: DenseLayout,
    form: FixedPoint,
    agreed: Agreed,
    *,
    servers: int = 1,
) -> Released:
    """Return the release of a vector that has its noise already, as secure sums have; charges no account.

    Parameters
    ----------
    noisy, layout, form, agreed, servers
        As in :func:`~fedmoments.privacy.dp.repair`.

    Examples
    --------
    >>> from fedmoments.core.statistics import StatisticsSpec
    >>> layout, form, agreed = DenseLayout(StatisticsSpec(), 2, 2), FixedPoint(1.0, 10**5), Agreed(epsilon=8.0)
    >>> stats = Statistics.of([[0.6, 0.8]] * 100, [1] * 100, layout.spec, n_classes=2, fixed_point=form)
    >>> mine, theirs = noise_vector(layout, form, agreed), noise_vector(layout, form, agreed)
    >>> out = finish(layout.pack(stats) + (mine + theirs).view(np.uint64), layout, form, agreed, servers=2)
    >>> 1 in out.statistics.classes, round(out.noise["sums"] / out.plan.sigmas["sums"], 3)
    (True, 1.414)
    """
    statistics = repair(noisy, layout, form, agreed, servers=servers)
    return Released(statistics, plan(layout, form, agreed), servers)
