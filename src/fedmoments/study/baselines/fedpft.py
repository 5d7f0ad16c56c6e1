"""FedPFT (Beitollahi et al. 2024): clients send a Gaussian mixture a class, the server trains on samples of them.

Client k fits Σ_g π_g N(μ_g, Σ_g) with G components to the n_kc features of every class it holds, Σ_g spherical,
diagonal or full. The server draws n_kc synthetic features from each mixture and fits a linear head to all of them by
softmax regression. Numbers sent for a class with g = min(G, n_kc) components, besides its count:

    spherical  g(d + 2)      diagonal  g(2d + 1)      full  g(1 + d + r(2d − r + 1)/2), r = min(n_kc − 1, d)

A full covariance of n_kc samples is floor·I plus a matrix of rank r, which travels as its trapezoidal factor; for
r = d that is a packed symmetric matrix, and a client sends one number more, the floor.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.classifier import Classifier
from fedmoments.core.heads import Preset
from fedmoments.study.baselines.baseline import (
    Baseline,
    Upload,
    check_choice,
    check_number,
    check_samples,
    classes_held,
    counts_of,
)
from fedmoments.study.baselines.mixture import (
    COVARIANCES,
    Mixture,
    fit_mixture,
    pack_factor,
    trapezoid_size,
    unpack_factor,
)
from fedmoments.study.baselines.server_head import SERVER_DECAY, fit_server_head

__all__ = ["PRESETS", "FedPft", "variance_floor"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class FedPft(Baseline):
    """A softmax head on features drawn from clients' class mixtures.

    Parameters
    ----------
    components
        G, Gaussians a class; a class with fewer samples has as many as it has samples.
    covariance
        ``spherical``, ``diagonal`` or ``full``.
    floor
        Least variance, as a share of the client's mean variance inside classes.
    decay
        Penalty of the head; see :mod:`fedmoments.study.baselines.server_head`.

    Examples
    --------
    >>> X, y = np.array([[0.0], [1.0], [4.0], [5.0]]), np.array([0, 0, 1, 1])
    >>> method = FedPft(components=1)
    >>> uploads = [method.local(X, y, n_classes=2, seed=0)]
    >>> uploads[0].n_floats
    6
    >>> method.combine(uploads, dim=1, seed=0).predict(X)
    array([0, 0, 1, 1])
    """

    sends: ClassVar[str] = "a Gaussian mixture a class"

    components: int = 10
    covariance: str = "diagonal"
    floor: float = 1e-3
    decay: float = SERVER_DECAY

    def __post_init__(self) -> None:
        check_number("components", self.components, whole=True)
        check_choice("covariance", self.covariance, COVARIANCES)
        check_number("floor", self.floor)
        check_number("decay", self.decay)

    def most_floats(self, dim: int, held: int) -> int:
        spread = {"spherical": 1, "diagonal": dim, "full": dim * (dim + 1) // 2}[self.covariance]
        return held * self.components * (1 + dim + spread) + (self.covariance == "full")

    def local(self, X: Floats, y: NDArray[np.int64], *, n_classes: int, seed: int) -> Upload:
        X, y = check_samples(X, y, n_classes)
        counts = np.bincount(y, minlength=n_classes)
        rng = np.random.default_rng(seed)
        floor = variance_floor(X, y, self.floor)
        mixtures = [
            fit_mixture(X[y == label], self.components, covariance=self.covariance, floor=floor, rng=rng)
            for label in np.flatnonzero(counts)
        ]
        arrays = {
            "weights": np.concatenate([mixture.weights for mixture in mixtures]),
            "means": np.concatenate([mixture.means for mixture in mixtures]),
        }
        if self.covariance == "full":
            ranks = counts[counts > 0] - 1
            factors = [pack_factor(U, r) for mixture, r in zip(mixtures, ranks, strict=True) for U in mixture.factors]
            arrays |= {"factors": np.concatenate(factors), "floor": np.array([floor])}
        else:
            arrays["variances"] = np.concatenate([mixture.variances for mixture in mixtures])
        return Upload(arrays, counts)

    def combine(self, uploads: Sequence[Upload], *, dim: int, seed: int) -> Classifier:
        X, y, origin = self.synthesise(uploads, dim=dim, seed=seed)
        present = classes_held(uploads)
        return fit_server_head(X, origin=origin, labels=y, present=present, decay=self.decay)

    def synthesise(
        self, uploads: Sequence[Upload], *, dim: int, seed: int
    ) -> tuple[NDArray[np.float32], NDArray[np.int64], Floats]:
        """Return features (N, d) less an origin, labels (N,) and the origin (d,).

        There are as many features of every client and class as it has samples.
        """
        counts = counts_of(uploads)
        rng = np.random.default_rng(seed)
        X = np.empty((int(counts.sum()), dim), np.float32)
        y = np.empty(len(X), np.int64)
        origin = np.mean([upload.arrays["means"].mean(axis=0) for upload in uploads], axis=0)
        start = 0
        for upload, held in zip(uploads, counts, strict=True):
            labels = np.flatnonzero(held)
            for label, mixture in zip(labels, self._mixtures(upload, dim), strict=True):
                stop = start + int(held[label])
                X[start:stop], y[start:stop] = _draw(mixture, stop - start, rng) - origin, label
                start = stop
        return X, y, origin

    def _mixtures(self, upload: Upload, dim: int) -> Iterator[Mixture]:
        """Yield the mixture of every class that a client holds."""
        start = place = 0
        for n in upload.counts[upload.counts > 0]:
            stop = start + min(self.components, int(n))
            weights, means = upload.arrays["weights"][start:stop], upload.arrays["means"][start:stop]
            if self.covariance == "full":
                size, factors = trapezoid_size(int(n) - 1, dim), []
                for _ in range(start, stop):
                    factors.append(unpack_factor(upload.arrays["factors"][place : place + size], int(n) - 1, dim))
                    place += size
                variances = np.broadcast_to(upload.arrays["floor"], (len(means), 1))
                yield Mixture(weights, means, variances, tuple(factors))
            else:
                yield Mixture(weights, means, upload.arrays["variances"][start:stop])
            start = stop


def variance_floor(X: Floats, y: NDArray[np.int64], share: float) -> float:
    """Return a positive floor under variances: a share of the mean variance inside classes, over dimensions.

    Where no class has two samples, the variance about the client's mean stands in; where samples do not differ at all,
    rounding of the features' size does.

    Examples
    --------
    >>> round(variance_floor(np.array([[0.0], [2.0], [7.0]]), np.array([0, 0, 1]), 0.5), 12)
    1.0
    """
    labels, member = np.unique(y, return_inverse=True)
    centres = np.stack([X[y == label].mean(axis=0) for label in labels])[member]
    freedom = len(X) - len(labels)
    if freedom == 0:
        centres, freedom = X.mean(axis=0, keepdims=True), max(len(X) - 1, 1)
    spread = float(np.square(X - centres).sum()) / (freedom * X.shape[1])
    size = float(np.square(X).mean())
    return float(max(share * spread, 1e-24 * size if size > 0 else 1e-24))


def _draw(mixture: Mixture, n: int, rng: np.random.Generator) -> Floats:
    """Return n samples (n, d) of a mixture."""
    which = rng.choice(len(mixture.weights), size=n, p=mixture.weights / mixture.weights.sum())
    drawn = rng.standard_normal((n, mixture.means.shape[1])) * np.sqrt(mixture.variances[which])
    drawn += mixture.means[which]
    for g, rows in enumerate(mixture.factors):
        here = which == g
        drawn[here] += rng.standard_normal((int(here.sum()), len(rows))) @ rows
    return np.asarray(drawn)


PRESETS: tuple[Preset[Baseline], ...] = (
    Preset("fedpft", FedPft, "softmax head on draws from class mixtures", "FedPFT (Beitollahi et al. 2024)"),
)
