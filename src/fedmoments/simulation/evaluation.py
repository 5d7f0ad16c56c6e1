"""How well a classifier does on features it has not seen."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.classifier import Classifier
from fedmoments.linalg import blocks
from fedmoments.simulation.features import Samples

__all__ = ["Confusion", "Evaluation", "evaluate", "predict_blocks"]


@dataclass(frozen=True)
class Confusion:
    """How many samples of a class were taken for another."""

    true: str
    predicted: str
    count: int


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Correct answers, by class.

    Parameters
    ----------
    class_names
        C names.
    table
        (C, C) samples by true (row) and predicted (column) class.

    Examples
    --------
    >>> result = Evaluation(("cat", "dog"), np.array([[3, 1], [0, 1]]))
    >>> result.accuracy, result.balanced_accuracy
    (0.8, 0.875)
    >>> result.confusions(1)
    (Confusion(true='cat', predicted='dog', count=1),)
    """

    class_names: tuple[str, ...]
    table: NDArray[np.int64]

    @property
    def n_samples(self) -> int:
        """How many samples were tested."""
        return int(self.table.sum())

    @property
    def accuracy(self) -> float:
        """Share of samples whose class was found."""
        return float(np.trace(self.table) / max(self.n_samples, 1))

    @property
    def class_counts(self) -> NDArray[np.int64]:
        """(C,) samples tested of every class."""
        return np.asarray(self.table.sum(axis=1))

    @property
    def class_accuracies(self) -> NDArray[np.float64]:
        """(C,) share of a class's samples that were found; NaN for a class that was not tested."""
        counts = self.class_counts
        return np.where(counts > 0, np.diagonal(self.table) / np.maximum(counts, 1), np.nan)

    @property
    def balanced_accuracy(self) -> float:
        """Mean accuracy over the classes that were tested."""
        return float(self.class_accuracies[self.class_counts > 0].mean())

    def confusions(self, most: int) -> tuple[Confusion, ...]:
        """Return the pairs of classes that cost most samples, worst first."""
        wrong = self.table.copy()
        np.fill_diagonal(wrong, 0)
        order = np.argsort(-wrong, axis=None, kind="stable")[: max(most, 0)]
        pairs = [(*divmod(int(place), len(wrong)), int(wrong.flat[place])) for place in order]
        names = self.class_names
        return tuple(Confusion(names[true], names[found], count) for true, found, count in pairs if count)

    def to_dict(self, *, per_class: bool = False, most: int = 5) -> dict[str, Any]:
        """Return the figures, ready for JSON."""
        document: dict[str, Any] = {
            "samples": self.n_samples,
            "accuracy": self.accuracy,
            "balanced_accuracy": self.balanced_accuracy,
            "confusions": [vars(pair) for pair in self.confusions(most)],
        }
        if per_class:
            rows = zip(self.class_names, self.class_counts.tolist(), self.class_accuracies.tolist(), strict=True)
            document["per_class"] = [
                {"class": name, "samples": count, "accuracy": share if count else None} for name, count, share in rows
            ]
        return document


def predict_blocks(classifier: Classifier, X: NDArray[Any]) -> NDArray[np.int64]:
    """Return predicted labels (n,) of X (n, d), a block of samples at a time, so that a wide map needs little memory.

    Examples
    --------
    >>> from fedmoments.classifier import LinearClassifier
    >>> made = LinearClassifier(weights=np.eye(2), bias=np.zeros(2), present=np.array([True, True]))
    >>> predict_blocks(made, np.array([[0.0, 1.0]]))
    array([1])
    """
    found = [classifier.predict(X[block]) for block in blocks(len(X))]
    return np.concatenate(found) if found else np.zeros(0, np.int64)


def evaluate(classifier: Classifier, samples: Samples) -> Evaluation:
    """Compare predictions with labels, which must be from 0 to C − 1 of the classifier.

    Examples
    --------
    >>> from fedmoments.classifier import LinearClassifier
    >>> made = LinearClassifier(weights=np.eye(2), bias=np.zeros(2), present=np.array([True, True]))
    >>> evaluate(made, Samples(np.array([[0.0, 1.0], [2.0, 1.0]]), np.array([1, 1]))).accuracy
    0.5
    """
    n = classifier.n_classes
    cells = samples.y * n + predict_blocks(classifier, samples.X)
    return Evaluation(classifier.class_names, np.bincount(cells, minlength=n * n).reshape(n, n))
