"""Synthetic samples of Gaussian classes: z ~ N(μ_c, τ_c²·Σ̃_c), the same number of every class (GH-OFL's synthesis).

Samples come in antithetic pairs, μ + e and μ − e, so that the mean of the draw is μ_c exactly (but for rounding) and
what is left of the sampling error is that of the covariance. Each class has a random stream of its own, from seed and
label, so that a class without a sample changes nothing for the others.

A draw depends on the classes alone, not on the axes that they are written in: noise is drawn in a frame that is tied to
the class means and turns with them. Without it, two statistics that differ by rounding would give different samples
wherever Fisher directions have (almost) equal eigenvalues, and with it they give the same but for rounding.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.errors import InputError, NotEnoughDataError

__all__ = ["GaussianSamples", "check_draw", "parse_spread_factors", "spread_text"]

Floats = NDArray[np.floating[Any]]
Wide = NDArray[np.float64]

#: Pairs that are drawn at once.
PAIRS = 4096
#: Samples that take fewer bytes are drawn in float64, others in float32.
DOUBLE_BYTES = 1 << 24


def spread_text(tau: object) -> str | float:
    """Return τ as a hyper-parameter is kept: a number as it is, several as a text.

    Examples
    --------
    >>> spread_text([0.8, 1]), spread_text(0.9)
    ('0.8,1.0', 0.9)
    """
    if isinstance(tau, list | tuple | np.ndarray):
        return ",".join(str(float(value)) for value in np.ravel(tau))
    return tau if isinstance(tau, int | float) else str(tau)


def parse_spread_factors(tau: str | float, n_classes: int | None = None) -> Wide:
    """Return τ of every class (C,) from one number, or from a text with one a class; of as many as there are for None.

    Examples
    --------
    >>> parse_spread_factors(0.9, 3), parse_spread_factors("0.8, 0.9, 1", 3)
    (array([0.9, 0.9, 0.9]), array([0.8, 0.9, 1. ]))
    """
    try:
        factors = np.array([float(part) for part in str(tau).split(",")])
    except ValueError:
        factors = np.zeros(0)
    n_factors = len(factors) if n_classes is None else n_classes
    if not len(factors) or len(factors) not in (1, n_factors) or not (np.isfinite(factors) & (factors > 0)).all():
        several = "one a class" if n_classes is None else f"one for each of {n_classes} classes"
        raise InputError(f"tau is a positive number, or {several} with commas between; '{tau}' arrived")
    return np.broadcast_to(factors, n_factors).copy()


def check_draw(per_class: object, seed: object) -> None:
    """Refuse a number of samples or a seed that nothing can be drawn with.

    Examples
    --------
    >>> check_draw(3, 0)
    Traceback (most recent call last):
    fedmoments.errors.InputError: samples come in pairs around the class mean: an even number a class, from 2; 3 arrived
    """
    if not isinstance(per_class, int | np.integer) or per_class < 2 or per_class % 2:
        raise InputError(
            f"samples come in pairs around the class mean: an even number a class, from 2; {per_class!r} arrived"
        )
    if not isinstance(seed, int | np.integer) or seed < 0:
        raise InputError(f"the seed of a draw is a whole number from 0; {seed!r} arrived")


@dataclass(frozen=True, eq=False)
class GaussianSamples:
    """Samples of Gaussian classes, to be passed over again and again: every pass yields the same.

    Parameters
    ----------
    means
        (C, k).
    covariances
        (C, k, k), positive definite.
    tau
        (C,) factors of the standard deviation.
    present
        (C,) classes that are drawn.
    per_class
        Samples of every class, an even number.
    seed
        Of the draw.
    most_bytes
        Samples that take no more are drawn once and held; more are drawn again in every pass, a block at a time.

    Examples
    --------
    >>> samples = GaussianSamples(
    ...     np.array([[0.0], [5.0]]), np.ones((2, 1, 1)), np.ones(2), np.array([True, True]), per_class=100
    ... )
    >>> [(label, rows.shape) for label, rows in samples]
    [(0, (100, 1)), (1, (100, 1))]
    >>> [rows.mean().round(12) for _, rows in samples]
    [np.float64(0.0), np.float64(5.0)]
    """

    means: Wide
    covariances: Wide
    tau: Wide
    present: NDArray[np.bool_]
    per_class: int = 4000
    seed: int = 0
    most_bytes: int = 1 << 29

    def __post_init__(self) -> None:
        check_draw(self.per_class, self.seed)

    @property
    def shape(self) -> tuple[int, int]:
        """Samples of all classes, and dimensions."""
        return int(np.count_nonzero(self.present)) * self.per_class, self.means.shape[1]

    @property
    def dtype(self) -> np.dtype[np.floating[Any]]:
        """float64, or float32 where that would take more than 16 MiB."""
        return np.dtype(np.float64 if 8 * self.shape[0] * self.shape[1] <= DOUBLE_BYTES else np.float32)

    @property
    def held(self) -> bool:
        """Whether samples are drawn once and held in memory."""
        return self.shape[0] * self.shape[1] * self.dtype.itemsize <= self.most_bytes

    def __iter__(self) -> Iterator[tuple[int, Floats]]:
        """Yield (label, rows (m, k)), blocks of one class, in the order of labels."""
        return iter(self._blocks) if self.held else self._draw()

    @cached_property
    def _blocks(self) -> list[tuple[int, Floats]]:
        return list(self._draw())

    def _draw(self) -> Iterator[tuple[int, Floats]]:
        frame = self._frame
        for label in np.flatnonzero(self.present).tolist():
            stream = np.random.default_rng([self.seed, label])
            factor = self._factor(label, frame).astype(self.dtype)
            mean = self.means[label].astype(self.dtype)
            for start in range(0, self.per_class // 2, PAIRS):
                pairs = min(PAIRS, self.per_class // 2 - start)
                away = stream.standard_normal((pairs, len(mean)), self.dtype) @ factor
                rows = np.empty((2 * pairs, len(mean)), self.dtype)
                np.add(mean, away, out=rows[:pairs])
                np.subtract(mean, away, out=rows[pairs:])
                yield label, rows

    def _factor(self, label: int, frame: Wide) -> Wide:
        """Return F (k, k) with FᵀF = τ²Σ, of which noise·F is the deviation from the mean."""
        try:
            lower = np.linalg.cholesky(frame.T @ self.covariances[label] @ frame)
        except np.linalg.LinAlgError:
            raise NotEnoughDataError(
                f"the covariance of class {label} is singular in the Fisher subspace, so nothing can be drawn from it: "
                "use more pooling or more shrinkage"
            ) from None
        return np.asarray(self.tau[label] * (frame @ lower).T)

    @cached_property
    def _frame(self) -> Wide:
        """An orthogonal (k, k) that turns with the class means: the one nearest to Mᵀ·(fixed noise)."""
        noise = np.random.default_rng(0).standard_normal(self.means.shape)
        left, _, right = np.linalg.svd(self.means[self.present].T @ noise[self.present])
        return np.asarray(left @ right)
