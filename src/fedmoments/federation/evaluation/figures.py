"""Figures of a tested classifier: correct answers by class, and whether its probabilities can be believed."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Calibration", "Confusion", "Evaluation"]

Ints = NDArray[np.int64]


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
    others
        (C,) further samples of a class, taken for classes that are not told; none by default.
    totals
        Samples tested and right answers in all, where the table does not tell all of them.

    Examples
    --------
    >>> result = Evaluation(("cat", "dog"), np.array([[3, 1], [0, 1]]))
    >>> result.accuracy, result.balanced_accuracy
    (0.8, 0.875)
    >>> result.confusions(1)
    (Confusion(true='cat', predicted='dog', count=1),)
    >>> result.class_specificities.tolist(), round(result.macro_f1, 3)
    ([1.0, 0.75], 0.762)
    """

    class_names: tuple[str, ...]
    table: Ints
    others: Ints | None = None
    totals: tuple[int, int] | None = None

    @property
    def n_samples(self) -> int:
        """How many samples were tested."""
        return int(self.table.sum()) if self.totals is None else self.totals[0]

    @property
    def accuracy(self) -> float:
        """Share of samples whose class was found; with noise on it, at most 1."""
        right = int(np.trace(self.table)) if self.totals is None else self.totals[1]
        return min(right / max(self.n_samples, 1), 1.0)

    @property
    def class_counts(self) -> Ints:
        """(C,) samples tested of every class."""
        return np.asarray(self.table.sum(axis=1) + (0 if self.others is None else self.others))

    @property
    def class_accuracies(self) -> NDArray[np.float64]:
        """(C,) share of a class's samples that were found; NaN for a class that was not tested."""
        counts = self.class_counts
        return np.where(counts > 0, np.diagonal(self.table) / np.maximum(counts, 1), np.nan)

    @property
    def balanced_accuracy(self) -> float:
        """Mean accuracy over the classes that were tested; 0 if none was."""
        tested = self.class_counts > 0
        return float(self.class_accuracies[tested].sum() / max(int(tested.sum()), 1))

    @property
    def _tells_all(self) -> bool:
        """Whether the table holds every sample; coarse and masked sums do not tell wrong answers by class."""
        return int(self.table.sum()) == self.n_samples and (self.others is None or not self.others.any())

    @property
    def class_specificities(self) -> NDArray[np.float64]:
        """(C,) share of the other classes' samples not taken for a class; NaN of none, or where not all is told."""
        elsewhere = self.n_samples - self.class_counts
        wrongly = self.table.sum(axis=0) - np.diagonal(self.table)
        known = (elsewhere > 0) & self._tells_all
        return np.where(known, 1.0 - wrongly / np.maximum(elsewhere, 1), np.nan)

    @property
    def macro_f1(self) -> float:
        """Mean over tested classes of 2·right / (samples + answers); NaN where none was tested or not all is told."""
        tested = self.class_counts > 0
        if not self._tells_all or not tested.any():
            return float("nan")
        both = self.class_counts + self.table.sum(axis=0)
        return float((2.0 * np.diagonal(self.table)[tested] / both[tested]).mean())

    def confusions(self, most: int) -> tuple[Confusion, ...]:
        """Return the pairs of classes that cost most samples, worst first."""
        wrong = self.table.copy()
        np.fill_diagonal(wrong, 0)
        order = np.argsort(-wrong, axis=None, kind="stable")[: max(most, 0)]
        pairs = [(*divmod(int(place), len(wrong)), int(wrong.flat[place])) for place in order]
        names = self.class_names
        return tuple(Confusion(names[true], names[predicted], count) for true, predicted, count in pairs if count)

    def to_dict(self, *, per_class: bool = False, most: int = 5) -> dict[str, Any]:
        """Return the figures, ready for JSON."""
        document: dict[str, Any] = {
            "samples": self.n_samples,
            "accuracy": self.accuracy,
            "balanced_accuracy": self.balanced_accuracy,
            "macro_f1": self.macro_f1 if math.isfinite(self.macro_f1) else None,
            "confusions": [vars(pair) for pair in self.confusions(most)],
        }
        if per_class:
            figures = (self.class_counts, self.class_accuracies, self.class_specificities)
            rows = zip(self.class_names, *(figure.tolist() for figure in figures), strict=True)
            document["per_class"] = [
                {
                    "class": name,
                    "samples": count,
                    "accuracy": share if count else None,
                    "specificity": spared if math.isfinite(spared) else None,
                }
                for name, count, share, spared in rows
            ]
        return document


@dataclass(frozen=True, eq=False)
class Calibration:
    """Whether probabilities can be believed: answers by confidence, in equal bins from 0 to 1.

    Parameters
    ----------
    counts
        (bins,) answers in every bin.
    confidences, hits
        (bins,) sum of confidences, and number of right answers.
    temperature
        Scores were divided by it before the softmax.

    Examples
    --------
    >>> calibration = Calibration(np.array([0, 10]), np.array([0.0, 9.0]), np.array([0, 8]), 1.0)
    >>> round(calibration.expected_error, 3)
    0.1
    """

    counts: Ints
    confidences: NDArray[np.float64]
    hits: Ints
    temperature: float

    @property
    def expected_error(self) -> float:
        """Expected calibration error: |confidence − accuracy|, averaged over answers."""
        return float(np.abs(self.confidences - self.hits).sum() / max(int(self.counts.sum()), 1))

    def to_dict(self) -> dict[str, Any]:
        """Return the diagram, ready for JSON."""
        edges = np.linspace(0.0, 1.0, len(self.counts) + 1)
        bins = [
            {
                "low": float(edges[i]),
                "high": float(edges[i + 1]),
                "count": int(count),
                "confidence": float(self.confidences[i] / count) if count else None,
                "accuracy": float(self.hits[i] / count) if count else None,
            }
            for i, count in enumerate(self.counts)
        ]
        return {"bins": bins, "ece": self.expected_error, "temperature": self.temperature}
