"""Ridge regression on random Fourier features against exact kernel ridge regression, and against plain ridge.

Exact kernel ridge regression of labels Y (n, C), one-hot, with the kernel k(x, x′) = exp(−‖x−x′‖²/2σ²) is

    f_c(x) = Σ_i α_ic k(x, x_i),    α = (K + λI)⁻¹Y,

and random features z with E zᵀz′ = k tend to it as their number grows. Fed3R scales the weights of every class to unit
norm; what ‖w_c‖ tends to is the norm of f_c in the kernel's space, √(α_cᵀ K α_c), which f_c is divided by likewise.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from fedmoments.core.heads import make_head
from fedmoments.core.heads.ridge import FourierRidge
from fedmoments.core.linalg import blocks
from fedmoments.core.maps import RandomFourier
from fedmoments.core.observations import Observation, Scalar
from fedmoments.core.statistics import Statistics
from fedmoments.errors import FedMomentsError, InputError
from fedmoments.samples.features import Features, Samples
from fedmoments.study.baselines.server_head import fit_server_head
from fedmoments.study.papers.engines.seeds import across_seeds
from fedmoments.study.papers.world import World, known_settings
from fedmoments.study.simulation import Federation, predict_blocks
from fedmoments.study.simulation.points import make_split

__all__ = ["DualRidge", "gaussian_kernel", "run"]

Floats = NDArray[np.float64]
Kernel = Callable[[NDArray[Any], NDArray[Any]], Floats]

_KNOWN = ("features", "bandwidths", "ridge", "normalize", "samples_per_class", "most_samples")
#: A kernel matrix of so many samples takes half a gigabyte.
MOST_SAMPLES = 8000


def run(settings: Mapping[str, Any], world: World) -> list[Observation]:
    """Fit ridge regression on random features, exact kernel ridge regression, plain ridge and a softmax classifier.

    Parameters
    ----------
    settings
        ``features``: numbers D of random features. ``bandwidths``: σ in units of the features, or ``automatic``.
        ``ridge``: λ of all of them. ``normalize``: whether the weights of every class are scaled to unit norm.
        ``samples_per_class``: size of the subset that kernel ridge regression is fitted on; all classes together at
        most ``most_samples``, which is told as a deviation where it matters.
    world
        Data, encoders and seeds. A seed draws the random features and the subset.

    Returns
    -------
    list of Observation
        Of ``accuracy``, at ``method`` = ``random features``, ``exact kernel``, ``ridge`` or ``softmax``, ``samples`` =
        ``all`` or ``subset``, ``features``, ``bandwidth`` and ``encoder``. What does not depend on the number of
        features or on the bandwidth has the same value at each. ``gap`` is how far random features on the same subset
        are from kernel ridge regression, in points (0.01 of an accuracy), either way.
    """
    known_settings(settings, _KNOWN, "kernel")
    measurements: list[Observation] = []
    for encoder in world.encoder_names:
        by_seed = []
        for done, seed in enumerate(world.each_seed):
            world.say(done, world.seeds, "random features against the exact kernel")
            by_seed.append((seed, _Job(settings, world, encoder, seed).measured()))
        measurements += across_seeds(by_seed)
    return measurements


def gaussian_kernel(X: NDArray[Any], Y: NDArray[Any], bandwidth: float) -> Floats:
    """Return k(x, y) = exp(−‖x−y‖²/2σ²) of every row of X (n, d) with every row of Y (m, d), as (n, m).

    Examples
    --------
    >>> gaussian_kernel(np.zeros((1, 2)), np.array([[0.0, 0.0], [3.0, 4.0]]), 5.0).round(4)
    array([[1.    , 0.6065]])
    """
    # Distances do not change when all samples move together: around the mean of Y, fewer digits cancel.
    centre = np.asarray(Y, np.float64).mean(axis=0)
    left, right = X - centre, Y - centre
    exponents = left @ right.T
    exponents *= -2.0
    exponents += np.einsum("nd,nd->n", left, left)[:, None]
    exponents += np.einsum("nd,nd->n", right, right)
    np.maximum(exponents, 0.0, out=exponents)
    exponents *= -0.5 / bandwidth**2
    return np.asarray(np.exp(exponents, out=exponents))


@dataclass(frozen=True, eq=False)
class DualRidge:
    """Ridge regression onto one-hot labels with a kernel, fitted.

    Parameters
    ----------
    kernel
        (rows (n, d), rows (m, d)) -> (n, m).
    X
        (n, d) training samples.
    weights
        α, (n, C), divided by the norms of the classes' functions if these are normalised.
    present
        (C,) classes that have a sample; others are never predicted.

    Examples
    --------
    >>> X, y = np.array([[0.0], [1.0], [4.0], [5.0]]), np.array([0, 0, 1, 1])
    >>> made = DualRidge.fit(lambda A, B: gaussian_kernel(A, B, 1.0), X, y, n_classes=2, ridge=0.01)
    >>> made.predict(np.array([[0.5], [4.5]]))
    array([0, 1])
    """

    kernel: Kernel
    X: NDArray[Any]
    weights: Floats
    present: NDArray[np.bool_]

    @classmethod
    def fit(
        cls,
        kernel: Kernel,
        X: NDArray[Any],
        y: NDArray[np.int64],
        *,
        n_classes: int,
        ridge: float,
        normalize: bool = True,
    ) -> "DualRidge":
        """Solve (K + λI)α = Y by Cholesky, and scale every class.

        Parameters
        ----------
        kernel, X
            As above.
        y
            (n,) labels.
        n_classes
            C.
        ridge
            λ, above 0.
        normalize
            Whether every class is divided by its norm.
        """
        if not ridge > 0:
            raise InputError(f"the ridge of kernel ridge regression must be above 0, but {ridge!r} arrived")
        X = np.asarray(X, np.float64)
        gram = kernel(X, X)
        targets = np.zeros((len(X), n_classes))
        targets[np.arange(len(X)), y] = 1.0
        diagonal = np.diag_indices_from(gram)
        gram[diagonal] += ridge
        weights = cho_solve(cho_factor(gram, lower=True, overwrite_a=False, check_finite=False), targets)
        if normalize:
            gram[diagonal] -= ridge
            norms = np.sqrt(np.maximum(np.einsum("nc,nc->c", weights, gram @ weights), 0.0))
            weights /= np.where(norms > 0, norms, 1.0)
        return cls(kernel, X, weights, np.bincount(y, minlength=n_classes) > 0)

    def scores(self, X: NDArray[Any]) -> Floats:
        """Return scores (m, C) of samples (m, d); −∞ for classes without a training sample."""
        scores = self.kernel(X, self.X) @ self.weights
        scores[:, ~self.present] = -np.inf
        return scores

    def predict(self, X: NDArray[Any]) -> NDArray[np.int64]:
        """Return labels (m,) of samples (m, d)."""
        labels = [self.scores(X[block]).argmax(axis=1) for block in blocks(len(X))]
        return np.concatenate(labels).astype(np.int64)


def linear_kernel(X: NDArray[Any], Y: NDArray[Any]) -> Floats:
    """Return inner products of rows (n, d) and (m, d)."""
    return np.asarray(X @ Y.T)


class _Job:
    """All fits of one seed behind one encoder; each is remembered by itself."""

    def __init__(self, settings: Mapping[str, Any], world: World, encoder: str | None, seed: int) -> None:
        self.whole, self.seed, self.world, self.encoder = world.features(encoder), seed, world, encoder
        self.sizes = [int(size) for size in settings.get("features", (500, 1000, 2000, 5000, 10000))]
        self.bandwidths = [str(sigma) for sigma in settings.get("bandwidths", (1000, "automatic"))]
        self.ridge, self.normalize = float(settings.get("ridge", 0.01)), bool(settings.get("normalize", True))
        asked, most = settings.get("samples_per_class", 40), settings.get("most_samples", MOST_SAMPLES)
        self.per_class = max(1, min(asked, most // self.whole.n_classes))
        if self.per_class < asked:
            world.deviate(
                f"kernel ridge regression on at most {self.per_class} samples a class instead of {asked}, so that the "
                f"kernel matrix has no more than {most:,} rows"
            )
        self.part = replace(self.whole, train=chosen_samples(self.whole.train, self.per_class, seed))

    def measured(self) -> list[Observation]:
        """Return all measurements of this seed, with one value each."""
        place = {"encoder": self.world.encoded(self.encoder).encoder.name}
        measurements = []
        for sigma in self.bandwidths:
            levels = {
                ("exact kernel", "subset"): self._once(["krr", sigma], partial(self._exact, sigma)),
                ("ridge", "all"): self._once(["ridge"], partial(self._head, self.whole, "fed3r")),
                ("ridge", "subset"): self._once(["ridge", "subset"], partial(self._head, self.part, "fed3r")),
                ("softmax", "all"): self._once(["softmax"], self._softmax),
            }
            for size in self.sizes:
                rf = self._once(["rf", sigma, size], partial(self._random, sigma, size))
                same = self._once(["rf", sigma, size, "subset"], partial(self._dual, sigma, size))
                here = levels | {("random features", "all"): rf, ("random features", "subset"): same}
                where: dict[str, Scalar] = {**place, "features": size, "bandwidth": sigma}
                for (method, samples), accuracy in here.items():
                    measurements.append(replace(accuracy, where={**where, "method": method, "samples": samples}))
                both = same.mean, levels["exact kernel", "subset"].mean
                gap = None if both[0] is None or both[1] is None else 100.0 * abs(both[0] - both[1])
                measurements.append(
                    Observation({**where, "method": "random features", "samples": "subset"}, (gap,), "gap")
                )
        return measurements

    def _once(self, key: list[Any], fit: Callable[[], float]) -> Observation:
        """Return an accuracy, measured now or before; where it cannot be, the reason."""

        def measure() -> list[Observation]:
            try:
                return [Observation({}, (fit(),))]
            except FedMomentsError as error:
                return [Observation({}, (None,), reason=str(error))]

        basis = [self.seed, self.ridge, self.normalize, self.per_class]
        return self.world.memory(self.encoder).once(["kernel", *basis, *key], measure)[0]

    def _head(self, features: Features, name: str, **hyper: Any) -> float:
        """Fit a head of the package on samples that are all in one place, and test it."""
        head = make_head(name, ridge=self.ridge, normalize=self.normalize, **hyper)
        limit = self.world.config.memory_limit * 1e9
        split = make_split(features, 1, "iid", self.seed)
        fitted = Federation(features, split, [head], seed=self.seed, memory_limit=limit).fitted(head)
        return float((predict_blocks(fitted, features.test.X) == features.test.y).mean())

    def _random(self, sigma: str, size: int) -> float:
        return self._head(self.whole, "fed3r-rf", n_features=size, bandwidth=sigma, map_seed=self.seed)

    def _map(self, sigma: str, size: int) -> RandomFourier:
        """Return the random features that the head measures; an automatic bandwidth is that of all samples."""
        head = FourierRidge(n_features=size, bandwidth=sigma, map_seed=self.seed)
        train = self.whole.train
        pilot = Statistics.of(train.X, train.y, head.PILOT, n_classes=self.whole.n_classes)
        return cast("RandomFourier", head.feature_map(self.whole.dim, pilot))

    def _dual(self, sigma: str, size: int) -> float:
        """Fit the same ridge regression on the random features of the subset, in as many unknowns as it has samples."""
        mapped = self._map(sigma, size)
        fitted = DualRidge.fit(linear_kernel, mapped(self.part.train.X), self.part.train.y, **self._how())
        test = self.part.test
        right = sum(int((fitted.predict(mapped(test.X[block])) == test.y[block]).sum()) for block in blocks(len(test)))
        return right / len(test)

    def _exact(self, sigma: str) -> float:
        kernel = partial(gaussian_kernel, bandwidth=self._map(sigma, 1).bandwidth)
        fitted = DualRidge.fit(kernel, self.part.train.X, self.part.train.y, **self._how())
        return float((fitted.predict(self.part.test.X) == self.part.test.y).mean())

    def _how(self) -> dict[str, Any]:
        return {"n_classes": self.whole.n_classes, "ridge": self.ridge, "normalize": self.normalize}

    def _softmax(self) -> float:
        """Fit a softmax classifier on all samples, to the end."""
        train, test = self.whole.train, self.whole.test
        present = np.bincount(train.y, minlength=self.whole.n_classes) > 0
        fitted = fit_server_head(np.asarray(train.X, np.float64), labels=train.y, present=present, passes=500)
        return float((predict_blocks(fitted, test.X) == test.y).mean())


def chosen_samples(samples: Samples, per_class: int, seed: int) -> Samples:
    """Return at most so many samples of every class, drawn with a seed, in their order.

    Examples
    --------
    >>> sorted(chosen_samples(Samples(np.zeros((5, 1)), np.array([0, 0, 1, 0, 1])), 1, 0).y.tolist())
    [0, 1]
    """
    order = np.random.default_rng(seed).permutation(len(samples))
    labels = samples.y[order]
    kept = [order[labels == label][:per_class] for label in np.unique(labels)]
    places = np.sort(np.concatenate(kept))
    return Samples(samples.X[places], samples.y[places])
