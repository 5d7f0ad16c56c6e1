"""Where tuning begins: a random head, any head of the registry, a saved classifier.

What is trained is always linear, W (k, C) and b (C,), on inputs z(x). A linear classifier is trained itself, on its
mapped features less its offset. Of a classifier whose scores are not linear (quadratic, diagonal, low-rank) the scores
stay as a frozen base, and a linear part is trained on top of them that begins at 0, on the centred features that the
classifier squares. Either way the first point of a curve is the head's own accuracy (to the rounding of float32, in
which tuning computes: features that lie far from the origin, compared with how they spread, should be centred first),
and what tuning returns is a classifier of the same kind.

The loss is the cross-entropy of softmax(scores/T). The temperature T is chosen once and stays.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmoments.core.classifier import Classifier, LinearClassifier
from fedmoments.core.classifier.quadratic import DiagonalClassifier, LowRankClassifier, QuadraticClassifier
from fedmoments.errors import InputError
from fedmoments.tuning.draws import stream
from fedmoments.tuning.engine import Arrays

__all__ = ["BIAS", "WEIGHTS", "Start", "default_temperature", "random_start", "start_from"]

Floats = NDArray[np.floating[Any]]

#: Names of the head's arrays among the parameters.
WEIGHTS, BIAS = "head/weights", "head/bias"
#: Temperature of heads whose columns have unit length.
NORMALISED = 0.1

_CURVED = (DiagonalClassifier, LowRankClassifier, QuadraticClassifier)


@dataclass(frozen=True, eq=False)
class Start:
    """A head to begin from.

    Parameters
    ----------
    name
        ``random``, the head's name, or where it was read.
    classifier
        Scores what the start scores. A linear one holds the start itself; of any other kind, it is the frozen base.
    temperature
        T of the loss.

    Examples
    --------
    >>> import fedmoments as fm
    >>> head = fm.fit("fedncm", {"a": ([[0.0, 1.0], [0.1, 0.9]], [0, 0]), "b": ([[1.0, 0.0]], [1])})
    >>> start = start_from(head, "fedncm")
    >>> start.temperature, start.linear, {name: array.shape for name, array in start.arrays().items()}
    (0.1, True, {'head/weights': (2, 2), 'head/bias': (2,)})
    """

    name: str
    classifier: Classifier
    temperature: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.temperature < np.inf:
            raise InputError(
                f"the temperature of the start '{self.name}' must be a number above 0, not {self.temperature}"
            )

    @property
    def linear(self) -> bool:
        """Whether the classifier is trained itself, not a linear part on top of it."""
        return isinstance(self.classifier, LinearClassifier)

    @property
    def present(self) -> NDArray[np.bool_]:
        """(C,) classes that take part in the softmax; others keep the score −∞."""
        return self.classifier.present

    @property
    def width(self) -> int:
        """Dimension k of the inputs of what is trained."""
        basis = getattr(self.classifier, "basis", None)
        return self.classifier.dim if basis is None else int(basis.shape[1])

    def frozen(self, stage: str) -> int:
        """Return how many numbers a client needs once and never trains.

        In ``feat`` that is the whole head; otherwise the base of a classifier that is not linear, or an offset.
        """
        trained = {"weights", "bias"} if self.linear and stage != "feat" else set()
        return sum(array.size for name, array in self.classifier.arrays() if name not in trained)

    def arrays(self, dtype: Any = np.float32) -> Arrays:
        """Return W (k, C) and b (C,) at the start, by name."""
        if isinstance(self.classifier, LinearClassifier):
            return {WEIGHTS: self.classifier.weights.astype(dtype), BIAS: self.classifier.bias.astype(dtype)}
        C = self.classifier.n_classes
        return {WEIGHTS: np.zeros((self.width, C), dtype), BIAS: np.zeros(C, dtype)}

    def centred(self, centre: NDArray[np.float64]) -> "Start":
        """Return the same head, whose bias is that of inputs less ``centre`` (k,); one that is not linear is as it was.

        Examples
        --------
        >>> start = random_start(2, np.array([True, True]), seed=0)
        >>> moved, X = start.centred(np.array([5.0, 1.0])), np.eye(2)
        >>> moved.inputs(X)[0].tolist(), bool(np.allclose(moved.classifier.scores(X), start.classifier.scores(X)))
        ([-4.0, -1.0], True)
        """
        if not isinstance(self.classifier, LinearClassifier):
            return self
        known = self.classifier
        offset = centre if known.offset is None else known.offset + centre
        return replace(self, classifier=replace(known, offset=offset, bias=known.bias + centre @ known.weights))

    def stretched(self, size: float) -> "Start":
        """Return a drawn linear head for features of a size: bias and temperature grow with them, and logits stay.

        Examples
        --------
        >>> random_start(2, np.array([True, True]), seed=0).stretched(10.0).temperature
        10.0
        """
        if not isinstance(self.classifier, LinearClassifier):
            raise InputError(f"the start '{self.name}' was not drawn: its scores have a size of their own")
        known = self.classifier
        moved = 0.0 if known.offset is None else known.offset @ known.weights
        drawn = replace(known, bias=moved + size * (known.bias - moved))
        return replace(self, classifier=drawn, temperature=self.temperature * size)

    def units(self, scale: float | None) -> dict[str, float]:
        """Return the unit of each trained array for features of a size; none where parameters are taken as they are.

        Examples
        --------
        >>> random_start(2, np.array([True, True]), seed=0, temperature=0.5).units(10.0)
        {'head/weights': 0.05, 'head/bias': 0.5}
        """
        return {} if scale is None else {WEIGHTS: self.temperature / scale, BIAS: self.temperature}

    def inputs(self, X: ArrayLike, dtype: Any = np.float32) -> Floats:
        """Return z (n, k) of features X (n, d) as the encoder gives them: mapped, centred, in the subspace if any.

        They are computed as the classifier does for itself, in float32 from float32 and in float64 from anything else,
        and then stored as ``dtype``.
        """
        features = np.asarray(X)
        if features.ndim != 2:
            raise InputError(
                f"features must be a matrix (samples, dimensions); an array of shape {features.shape} arrived"
            )
        mapped = self.classifier.feature_map(features) if self.classifier.feature_map else features
        if mapped.shape[1] != self.classifier.dim:
            raise InputError(
                f"the start '{self.name}' scores features of {self.classifier.dim} dimensions, but {mapped.shape[1]} "
                "arrived: was it fitted behind another encoder?"
            )
        kind = _kind(features)
        z = mapped.astype(kind, copy=False)
        offset, basis = getattr(self.classifier, "offset", None), getattr(self.classifier, "basis", None)
        z = z if offset is None else z - offset.astype(kind)
        z = z if basis is None else z @ basis.astype(kind)
        return np.ascontiguousarray(z, dtype)

    def base(self, X: ArrayLike, dtype: Any = np.float32) -> Floats | None:
        """Return frozen scores (n, C) that the linear part is added to; None where there are none.

        They are less the highest of their row, which changes neither softmax nor label and saves digits in float32.
        """
        if self.linear:
            return None
        scores = self.classifier.scores(X)
        scores -= scores.max(axis=1, keepdims=True)
        return np.where(self.present, scores, 0.0).astype(dtype)

    def scores(self, arrays: Arrays, X: ArrayLike) -> Floats:
        """Return scores (n, C) of features, with the head's arrays; classes without samples have −∞.

        Examples
        --------
        >>> start = random_start(2, np.array([True, True]), seed=0)
        >>> X = np.eye(2)
        >>> bool(np.allclose(start.scores(start.arrays(np.float64), X), start.classifier.scores(X)))
        True
        """
        kind = _kind(np.asarray(X))
        scores: Floats = self.inputs(X, kind) @ arrays[WEIGHTS].astype(kind, copy=False)
        scores += arrays[BIAS].astype(kind, copy=False)
        if not self.linear:
            scores += self.classifier.scores(X)
        scores[:, ~self.present] = -np.inf
        return scores

    def tuned(self, arrays: Arrays, **info: Any) -> Classifier:
        """Return a classifier of the same kind with the given parameters, and notes of origin.

        Examples
        --------
        >>> from fedmoments.tuning.start import random_start
        >>> start = random_start(4, np.array([True, True]), seed=0)
        >>> bool(np.allclose(start.tuned(start.arrays()).weights, start.classifier.weights))
        True
        """
        weights, bias = arrays[WEIGHTS].astype(np.float64), arrays[BIAS].astype(np.float64)
        notes = {"start": self.name, **info}
        classifier = self.classifier.tempered(self.temperature)
        if isinstance(classifier, LinearClassifier):
            return replace(classifier, weights=weights, bias=bias).noting(**notes)
        if isinstance(classifier, _CURVED):
            moved = classifier.plus_linear(weights)
            return replace(moved, bias=moved.bias + bias).noting(**notes)
        raise InputError(f"a classifier of kind '{classifier.kind}' cannot be tuned")


def _kind(features: NDArray[Any]) -> type[np.float32] | type[np.float64]:
    """Return the type that a classifier scores features in."""
    return np.float32 if features.dtype == np.float32 else np.float64


def default_temperature(classifier: Classifier) -> float:
    """Return 0.1 where the weights of every class have unit length, as normalised ridge heads have; 1 otherwise.

    Examples
    --------
    >>> default_temperature(LinearClassifier(weights=np.eye(2), bias=np.zeros(2), present=np.array([True, True])))
    0.1
    """
    if not isinstance(classifier, LinearClassifier):
        return 1.0
    lengths = np.linalg.norm(classifier.weights[:, classifier.present], axis=0)
    return NORMALISED if lengths.size and np.allclose(lengths, 1.0, atol=1e-4) else 1.0


def start_from(classifier: Classifier, name: str, temperature: float | None = None) -> Start:
    """Return the start that a classifier is.

    Parameters
    ----------
    classifier
        Linear, or a Gaussian one (quadratic, diagonal, low-rank).
    name
        For curves and notes.
    temperature
        T; by default 0.1 or 1, see :func:`default_temperature`.

    Examples
    --------
    >>> head = LinearClassifier(weights=2 * np.eye(2), bias=np.zeros(2), present=np.array([True, True]))
    >>> start_from(head, "mine").temperature, start_from(head, "mine", 0.5).temperature
    (1.0, 0.5)
    """
    if not isinstance(classifier, (LinearClassifier, *_CURVED)):
        raise InputError(
            f"tuning starts from a classifier that is linear, quadratic, diagonal or low-rank, but '{name}' is of kind "
            f"'{classifier.kind}', which has no single set of weights to continue from"
        )
    return Start(name, classifier, default_temperature(classifier) if temperature is None else temperature)


def random_start(dim: int, present: NDArray[np.bool_], *, seed: int, temperature: float | None = None) -> Start:
    """Return a head drawn uniformly from ±1/√d, as torch begins a linear layer.

    Parameters
    ----------
    dim
        d, dimension of the features.
    present
        (C,) classes that take part.
    seed
        What it is drawn from.
    temperature
        T; 1 by default.

    Examples
    --------
    >>> start = random_start(4, np.array([True, False]), seed=0)
    >>> start.arrays()["head/weights"].shape, bool(abs(start.classifier.weights).max() <= 0.5)
    ((4, 2), True)
    """
    bound, C = 1.0 / np.sqrt(dim), len(present)
    drawn = stream(seed, "random head").random((dim + 1, C)) * 2.0 * bound - bound
    classifier = LinearClassifier(weights=drawn[:dim], bias=drawn[dim], present=np.asarray(present, bool))
    return Start("random", classifier, 1.0 if temperature is None else temperature)
