"""CCVR (Luo et al. 2021): an averaged head, re-calibrated on virtual features of every class.

Clients send their head, and mean and covariance of every class they hold. The server averages the heads, merges the
class moments of all clients exactly (**Law** they equal the pooled moments for any split),

    μ_c = Σ_k n_kc μ_kc / N_c,   (N_c − 1) Σ_c = Σ_k (n_kc − 1) Σ_kc + Σ_k n_kc (μ_kc − μ_c)(μ_kc − μ_c)ᵀ

draws virtual features from N(μ_c, Σ_c) and fits the head to them by softmax regression, starting at the average. In
the paper this follows rounds of training an encoder; here the encoder is frozen and only local heads are trained.

The scatter (n_kc − 1) Σ_kc has rank r = min(n_kc − 1, d) and travels as its trapezoidal factor. Numbers sent for a
class, besides its count: head d + 1, mean d, scatter r(2d − r + 1)/2, at most d(d+1)/2.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from fedmoments.core.classifier import Classifier
from fedmoments.core.heads import Preset
from fedmoments.study.baselines.baseline import Baseline, Upload, check_choice, check_number, check_samples, counts_of
from fedmoments.study.baselines.local_head import DECAY, fit_local_head
from fedmoments.study.baselines.mixture import centred_rows, pack_factor, trapezoid_size, unpack_factor
from fedmoments.study.baselines.sent_heads import average_head
from fedmoments.study.baselines.server_head import SERVER_DECAY, fit_server_head

__all__ = ["PRESETS", "Ccvr", "merged_moments"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Ccvr(Baseline):
    """An averaged head re-calibrated on virtual features.

    Parameters
    ----------
    virtual
        How many virtual features all classes have together.
    balance
        ``equal``, every class has as many, or ``counts``, in proportion to the classes' samples.
    decay
        Penalty of the local heads; see :mod:`fedmoments.study.baselines.local_head`.
    calibration_decay
        Penalty of the calibrated head; see :mod:`fedmoments.study.baselines.server_head`.

    Examples
    --------
    >>> X, y = np.array([[0.0], [1.0], [4.0], [5.0]]), np.array([0, 0, 1, 1])
    >>> method = Ccvr(virtual=100)
    >>> uploads = [method.local(X[y == k], y[y == k], n_classes=2, seed=k) for k in range(2)]
    >>> method.combine(uploads, dim=1, seed=0).predict(X)
    array([0, 0, 1, 1])
    """

    sends: ClassVar[str] = "a linear head, mean and covariance a class"

    virtual: int = 20_000
    balance: str = "equal"
    decay: float = DECAY
    calibration_decay: float = SERVER_DECAY

    def __post_init__(self) -> None:
        check_number("virtual", self.virtual, whole=True)
        check_choice("balance", self.balance, ["equal", "counts"])
        check_number("decay", self.decay)
        check_number("calibration_decay", self.calibration_decay)

    def most_floats(self, dim: int, held: int) -> int:
        return (2 * dim + 1 + dim * (dim + 1) // 2) * held

    def local(self, X: Floats, y: NDArray[np.int64], *, n_classes: int, seed: int) -> Upload:  # noqa: ARG002
        X, y = check_samples(X, y, n_classes)
        counts = np.bincount(y, minlength=n_classes)
        own = [X[y == label] for label in np.flatnonzero(counts)]
        arrays = {
            **fit_local_head(X, y, n_classes=n_classes, decay=self.decay).arrays(),
            "means": np.stack([part.mean(axis=0) for part in own]),
            "scatters": np.concatenate([pack_factor(centred_rows(part), len(part) - 1) for part in own]),
        }
        return Upload(arrays, counts)

    def combine(self, uploads: Sequence[Upload], *, dim: int, seed: int) -> Classifier:
        totals = counts_of(uploads).sum(axis=0)
        share = totals > 0 if self.balance == "equal" else totals
        sizes = np.maximum(np.rint(self.virtual * share / share.sum()).astype(np.int64), totals > 0)
        rng = np.random.default_rng(seed)
        X = np.empty((int(sizes.sum()), dim), np.float32)
        average = average_head(uploads, "samples")
        origin = np.mean([upload.arrays["means"].mean(axis=0) for upload in uploads], axis=0)
        start = 0
        for label, mean, covariance in merged_moments(uploads, dim):
            stop = start + int(sizes[label])
            X[start:stop] = (mean - origin) + rng.standard_normal((stop - start, dim)) @ _root(covariance)
            start = stop
        return fit_server_head(
            X,
            origin=origin,
            labels=np.repeat(np.arange(len(totals)), sizes),
            present=totals > 0,
            start=average,
            decay=self.calibration_decay,
        )


def merged_moments(uploads: Sequence[Upload], dim: int) -> Iterator[tuple[int, Floats, Floats]]:
    """Yield label, mean (d,) and covariance (d, d) of every class that a client holds, of all its samples.

    The covariance divides by N_c − 1; a class of one sample has none, and zeros stand there.

    Examples
    --------
    >>> X, y = np.array([[0.0], [1.0], [5.0]]), np.zeros(3, int)
    >>> uploads = [Ccvr().local(X[k::2], y[k::2], n_classes=1, seed=0) for k in range(2)]
    >>> [(mean.item(), round(covariance.item(), 9)) for _, mean, covariance in merged_moments(uploads, 1)]
    [(2.0, 7.0)]
    """
    counts = counts_of(uploads)
    sizes = [[trapezoid_size(int(n) - 1, dim) for n in held[held > 0]] for held in counts]
    begins = [np.cumsum([0, *lengths]) for lengths in sizes]
    places = np.cumsum(counts > 0, axis=1) - 1
    for label in np.flatnonzero(counts.any(axis=0)):
        holders = np.flatnonzero(counts[:, label]).tolist()
        n = counts[holders, label].astype(np.float64)
        means = np.stack([uploads[k].arrays["means"][places[k, label]] for k in holders])
        mean = (n @ means) / n.sum()
        rows = [np.sqrt(n)[:, None] * (means - mean)]
        for k in holders:
            begin, end = begins[k][places[k, label]], begins[k][places[k, label] + 1]
            rows.append(unpack_factor(uploads[k].arrays["scatters"][begin:end], int(counts[k, label]) - 1, dim))
        stacked = np.concatenate(rows)
        yield int(label), mean, (stacked.T @ stacked) / max(n.sum() - 1.0, 1.0)


def _root(covariance: Floats) -> Floats:
    """Return the symmetric square root, which does not jump when the covariance changes in its last digits."""
    values, vectors = eigh(covariance, driver="evd")
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T)


PRESETS: tuple[Preset[Baseline], ...] = (
    Preset("ccvr", Ccvr, "averaged head re-calibrated on virtual features", "CCVR (Luo et al. 2021)"),
)
