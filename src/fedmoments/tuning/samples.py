"""Samples as the head sees them: inputs with a column of ones, frozen scores, labels; made once, used in every round.

With inputs z = [z(x), 1] and parameters θ = [W; b] (k+1, C) scores are z·θ, plus the frozen base where the start has
one, and a class that does not take part has −∞. The loss of a sample with label y is

    −log softmax(scores/T)_y = log Σ_c exp(scores_c/T) − scores_y/T.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmoments.core.linalg import blocks
from fedmoments.errors import InputError
from fedmoments.tuning.engine import Arrays, Score
from fedmoments.tuning.start import BIAS, WEIGHTS, Floats, Start

__all__ = ["Samples", "cross_entropies"]

#: Scores of one block of samples.
BLOCK_NUMBERS = 1 << 22


@dataclass(frozen=True, eq=False)
class Samples:
    """Samples of one or many holders, one after another.

    Parameters
    ----------
    inputs
        (n, k+1), the last column of ones.
    labels
        (n,).
    base
        (n, C) frozen scores, or None.
    present
        (C,) classes that take part in the softmax.

    Examples
    --------
    >>> from fedmoments.tuning.start import random_start
    >>> start = random_start(2, np.array([True, True]), seed=0)
    >>> samples = Samples.of(start, [("clinic", [[0.0, 1.0], [2.0, 0.0]], [0, 1])])
    >>> samples.inputs.tolist(), samples.score(start.arrays(), 1.0).samples
    ([[0.0, 1.0, 1.0], [2.0, 0.0, 1.0]], 2)
    """

    inputs: Floats
    labels: NDArray[np.int64]
    base: Floats | None
    present: NDArray[np.bool_]

    @classmethod
    def of(
        cls,
        start: Start,
        parts: Sequence[tuple[str, ArrayLike, ArrayLike]],
        dtype: Any = np.float32,
        *,
        unseen: bool = False,
    ) -> "Samples":
        """Return what a start makes of features.

        Parameters
        ----------
        start
            Maps and centres features, and may have frozen scores.
        parts
            (whose, X (n, d), y (n,)) of every holder; n may be 0.
        dtype
            float32 or float64.
        unseen
            Whether labels may be of classes that do not take part: right for a test set and for validation shares,
            whose samples of such a class are always wrong and have an infinite loss, but such samples cannot be
            trained on.
        """
        labels = [_labels(start, X, y, whose, unseen=unseen) for whose, X, y in parts]
        total, n_classes = sum(map(len, labels)), len(start.present)
        inputs = np.ones((total, start.width + 1), dtype)
        base = None if start.linear else np.zeros((total, n_classes), dtype)
        first = 0
        for (whose, X, _), mine in zip(parts, labels, strict=True):
            rows = slice(first, first + len(mine))
            first += len(mine)
            if not len(mine):
                continue
            inputs[rows, :-1] = start.inputs(X, dtype)
            frozen = start.base(X, dtype)
            if base is not None and frozen is not None:
                base[rows] = frozen
            sound = np.isfinite(inputs[rows]).all(axis=1)
            if not sound.all():
                raise InputError(
                    f"features must be finite, but sample {int(np.argmin(sound))} of {whose} holds NaN or infinity: "
                    "repair or drop it first"
                )
        joined = np.concatenate(labels) if labels else np.zeros(0, np.int64)
        return cls(inputs, joined, base, start.present)

    def __len__(self) -> int:
        return len(self.labels)

    def scores(self, arrays: Arrays, rows: slice) -> Floats:
        """Return scores (n, C) of some rows; classes that do not take part have −∞."""
        scores: Floats = self.inputs[rows, :-1] @ arrays[WEIGHTS]
        scores += arrays[BIAS]
        if self.base is not None:
            scores += self.base[rows]
        scores[:, ~self.present] = -np.inf
        return scores

    def blocks(self) -> list[slice]:
        """Return slices of rows whose scores take a moderate memory."""
        return list(blocks(len(self), max(1, BLOCK_NUMBERS // len(self.present))))

    def score(self, arrays: Arrays, temperature: float, most_loss: float = np.inf) -> Score:
        """Return sums over all samples with the given parameters; a sample counts for ``most_loss`` at most."""
        correct, loss = 0, 0.0
        for rows in self.blocks():
            scores, labels = self.scores(arrays, rows), self.labels[rows]
            correct += int(np.count_nonzero(scores.argmax(axis=1) == labels))
            own = cross_entropies(scores, labels, temperature)
            loss += float(np.minimum(own, most_loss).sum(dtype=np.float64))
        return Score(len(self), correct, loss)


def cross_entropies(scores: Floats, labels: NDArray[np.int64], temperature: float) -> Floats:
    """Return −log softmax(scores/T) at the labels, (n,).

    Parameters
    ----------
    scores
        (n, C); −∞ for classes that do not take part, one finite at least.
    labels
        (n,).
    temperature
        T.

    Examples
    --------
    >>> cross_entropies(np.array([[0.0, 0.0, -np.inf]]), np.array([1]), 0.1).round(4)
    array([0.6931])
    """
    shifted = scores - scores.max(axis=1, keepdims=True)
    shifted /= temperature
    mine = shifted[np.arange(len(labels)), labels]
    return np.asarray(np.log(np.exp(shifted).sum(axis=1)) - mine)


def _labels(start: Start, X: ArrayLike, y: ArrayLike, whose: str, *, unseen: bool) -> NDArray[np.int64]:
    """Return labels (n,) of features (n, d), or say what is wrong with either."""
    features, labels = np.asarray(X), np.asarray(y)
    if features.ndim != 2 or features.dtype.kind not in "fiub":
        raise InputError(
            f"features of {whose} must be numbers of the shape (samples, dimensions), "
            f"but {features.dtype} of shape {features.shape} arrived"
        )
    if labels.shape != (len(features),):
        raise InputError(f"{len(features)} samples of {whose} need as many labels, but {labels.shape} arrived")
    if not len(labels):
        return np.zeros(0, np.int64)
    n_classes = len(start.present)
    if labels.dtype.kind not in "iu" or labels.min() < 0 or labels.max() >= n_classes:
        raise InputError(
            f"labels of {whose} must be whole numbers from 0 to {n_classes - 1} ({n_classes} classes of the start "
            f"'{start.name}'), but {labels.dtype} from {labels.min()} to {labels.max()} arrived"
        )
    missing = np.unique(labels[~start.present[labels]])
    if len(missing) and not unseen:
        raise InputError(
            f"{whose} holds samples of class {missing[0]}, which the start '{start.name}' has never seen and gives the "
            "probability 0: fit the head on all classes, start at random, or leave these samples out"
        )
    return labels.astype(np.int64, copy=False)
