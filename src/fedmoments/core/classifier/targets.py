"""What predicts targets: a linear model whose scores are values, or marks above a threshold."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmoments.core.classifier.base import Classifier
from fedmoments.core.linalg import blocks
from fedmoments.errors import InputError

__all__ = ["MultiLabel", "Regression", "TargetModel", "target_matrix"]

Floats = NDArray[np.float64]


def target_matrix(targets: ArrayLike) -> NDArray[np.float64]:
    """Return targets as (n, m), refusing what is not a number.

    Examples
    --------
    >>> target_matrix([True, False])
    array([[1.],
           [0.]])
    """
    given = np.asarray(targets)
    if given.dtype.kind not in "fiub" or given.ndim not in (1, 2) or (given.ndim == 2 and given.shape[1] == 0):
        raise InputError(
            f"targets must be numbers of shape (samples,) or (samples, targets), but an array of {given.dtype} and "
            f"shape {given.shape} arrived"
        )
    matrix = given.reshape(len(given), -1).astype(np.float64)
    if not np.isfinite(matrix).all():
        row = int(np.argmin(np.isfinite(matrix).all(axis=1)))
        raise InputError(f"targets must be finite, but those of sample {row} hold NaN or infinity: drop it first")
    return matrix


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class TargetModel(Classifier, kind="targets"):
    """Values (x − offset)·W + b, one a target; targets have the place and the names of classes.

    Parameters
    ----------
    weights
        W, (d, m).
    bias
        b, (m,).
    offset
        (d,) subtracted first.
    present, class_names, feature_map, info
        As of every classifier: all targets are there, and their names are those of classes.
    """

    weights: Floats
    bias: Floats
    offset: Floats

    @property
    def dim(self) -> int:
        return len(self.weights)

    def _scores(self, Z: NDArray[Any], arrays: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
        return np.asarray((Z - arrays["offset"]) @ arrays["weights"] + arrays["bias"])

    def values(self, X: ArrayLike) -> Floats:
        """Return one value a sample and target, (n, m), a block of samples at a time."""
        features = np.asarray(X)
        parts = [self.scores(features[block]) for block in blocks(len(features))] if features.ndim == 2 else []
        return np.concatenate(parts).astype(np.float64) if parts else self.scores(features).astype(np.float64)

    def predict_proba(self, X: ArrayLike, *, temperature: float | None = None) -> Any:  # noqa: ARG002
        raise InputError(f"a model of kind '{self.kind}' has values, not classes that exclude each other: use predict")

    def r_squared(self, X: ArrayLike, targets: ArrayLike) -> Floats:
        """Return R² (m,) of every target: 1 − Σ(t − t̂)² / Σ(t − t̄)²; NaN where a target does not vary.

        Parameters
        ----------
        X, targets
            (n, d) features and (n,) or (n, m) targets.
        """
        truth, predicted = self._both(X, targets)
        spread = np.square(truth - truth.mean(axis=0)).sum(axis=0)
        left = np.square(truth - predicted).sum(axis=0)
        return np.where(spread > 0, 1.0 - left / np.where(spread > 0, spread, 1.0), np.nan)

    def _both(self, X: ArrayLike, targets: ArrayLike) -> tuple[Floats, Floats]:
        """Return true targets and values, both (n, m)."""
        truth, predicted = target_matrix(targets), self.values(X)
        if truth.shape != predicted.shape or not len(truth):
            raise InputError(
                f"{len(predicted)} samples need targets of shape {predicted.shape}, but {truth.shape} arrived"
            )
        return truth, predicted


@dataclass(frozen=True, eq=False, kw_only=True)
class Regression(TargetModel, kind="regression"):
    """Predicts numbers.

    Examples
    --------
    >>> import fedmoments as fm
    >>> X = np.random.default_rng(0).normal(size=(50, 2))
    >>> model = fm.fit("ridge-regression", {"a": (X, X @ [[1.0], [2.0]])}, class_names=["price"])
    >>> model.predict([[1.0, 1.0]]).round(3), model.class_names, round(model.score(X, X @ [1.0, 2.0]), 6)
    (array([[3.]]), ('price',), 1.0)
    """

    def predict(self, X: ArrayLike) -> Floats:  # type: ignore[override]  # values have the place of labels
        """Return the values (n, m) of all targets."""
        return self.values(X)

    def score(self, X: ArrayLike, y: ArrayLike) -> float:
        """Return R², the mean over targets that vary."""
        return float(np.nanmean(self.r_squared(X, y)))


@dataclass(frozen=True, eq=False, kw_only=True)
class MultiLabel(TargetModel, kind="multi-label"):
    """Says of every label whether a sample has it: its value is above the label's threshold.

    Parameters
    ----------
    thresholds
        (m,) of values.

    Examples
    --------
    >>> import fedmoments as fm
    >>> rng = np.random.default_rng(0)
    >>> marks = rng.random((200, 2)) < 0.5
    >>> X = marks @ np.array([[2.0, 0.0, 1.0], [0.0, 2.0, 1.0]]) + 0.3 * rng.normal(size=(200, 3))
    >>> model = fm.fit("multi-label", {"a": (X, marks)}, class_names=["red", "round"])
    >>> model.predict([[2.0, 2.0, 2.0], [0.0, 0.0, 0.0]])
    array([[ True,  True],
           [False, False]])
    """

    thresholds: Floats

    def predict(self, X: ArrayLike) -> NDArray[np.bool_]:  # type: ignore[override]  # marks have the place of labels
        """Return whether each sample has each label, (n, m)."""
        return self.values(X) > self.thresholds

    def score(self, X: ArrayLike, y: ArrayLike) -> float:
        """Return F1 over all pairs of a sample and a label (micro F1); 1 where nothing is marked, and rightly."""
        truth, predicted = self._both(X, y)
        marked, said = truth > 0.5, predicted > self.thresholds
        both = float((marked & said).sum())
        either = float(marked.sum() + said.sum())
        return 2.0 * both / either if either else 1.0
