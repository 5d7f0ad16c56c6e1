"""Figures of a tested classifier: correct answers by class, and whether its probabilities can be believed."""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.observations.figures import ClassFigures
from fedmoments.core.observations.parts import Bin, Reliability
from fedmoments.federation.evaluation.separation import areas

__all__ = ["Calibration", "Confusion", "Evaluation"]

Ints = NDArray[np.int64]

#: By how much of their unit right answers of a bin are typically off, and what that may add to an expected error.
TYPICAL, MOST_NOISE = 0.33, 0.01


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
    tested, found
        (C,) samples and right answers of every class, where the table does not tell all of them.
    totals
        Samples tested and right answers in all, where the table does not tell all of them.
    wrongly
        (C,) wrong answers by the class that was answered, where the table does not tell all of them.
    odds
        (2, C + 1, 24) samples of each class, and others, by its probability, last of all classes; None where nobody
        looked.
    rounded
        Sum over coarse results of their squared unit.

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
    tested: Ints | None = None
    found: Ints | None = None
    totals: tuple[int, int] | None = None
    wrongly: Ints | None = None
    odds: Ints | None = None
    rounded: int = 0

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
        return np.asarray(self.table.sum(axis=1)) if self.tested is None else self.tested

    @property
    def class_hits(self) -> Ints:
        """(C,) right answers on samples of every class."""
        return np.asarray(np.diagonal(self.table)) if self.found is None else self.found

    @property
    def class_accuracies(self) -> NDArray[np.float64]:
        """(C,) share of a class's samples that were found; NaN for a class that was not tested."""
        counts = self.class_counts
        return np.where(counts > 0, self.class_hits / np.maximum(counts, 1), np.nan)

    @property
    def balanced_accuracy(self) -> float:
        """Mean accuracy over the classes that were tested; 0 if none was."""
        tested = self.class_counts > 0
        return float(self.class_accuracies[tested].sum() / max(int(tested.sum()), 1))

    @property
    def _tells_all(self) -> bool:
        """Whether samples and answers by class are of all that was tested."""
        return self.tested is not None or int(self.table.sum()) == self.n_samples

    @property
    def _wrong_answers(self) -> Ints:
        """(C,) wrong answers by the class that was answered."""
        return np.asarray(self.table.sum(axis=0) - np.diagonal(self.table)) if self.wrongly is None else self.wrongly

    @property
    def class_specificities(self) -> NDArray[np.float64]:
        """(C,) share of the other classes' samples not taken for a class; NaN where there are none."""
        elsewhere = self.class_counts.sum() - self.class_counts
        return np.where(
            (elsewhere > 0) & self._tells_all,
            1.0 - np.minimum(self._wrong_answers / np.maximum(elsewhere, 1), 1.0),
            np.nan,
        )

    @property
    def class_areas(self) -> NDArray[np.float64]:
        """(C,) area under the ROC curve of each class against all others; NaN where it is not known."""
        return np.full(len(self.table), np.nan) if self.odds is None else areas(self.odds[:, :-1], self.rounded)

    @property
    def micro_area(self) -> float:
        """Area under the ROC curve of all classes together; NaN where it is not known."""
        return float("nan") if self.odds is None else float(areas(self.odds[:, -1:], self.rounded)[0])

    @property
    def macro_area(self) -> float:
        """Mean area under the ROC curve over the classes that have one; NaN if none has."""
        known = self.class_areas[np.isfinite(self.class_areas)]
        return float(known.mean()) if len(known) else float("nan")

    @property
    def macro_f1(self) -> float:
        """Mean over tested classes of 2·right / (samples + answers); NaN where none was tested."""
        tested = self.class_counts > 0
        if not tested.any() or not self._tells_all:
            return float("nan")
        answers = self.class_hits + self._wrong_answers
        return float((2.0 * self.class_hits[tested] / (self.class_counts + answers)[tested]).mean())

    @property
    def by_class(self) -> ClassFigures:
        """All figures of classes, as a report holds them."""
        return ClassFigures(
            self.class_counts,
            self.class_hits,
            self.class_specificities,
            self.class_areas,
            macro_f1=_known(self.macro_f1),
            macro_auc=_known(self.macro_area),
            micro_auc=_known(self.micro_area),
            rounding=self.rounded / 6.0,  # of a unit m, chance that is spread evenly has m²/6 on average
        )

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
            "macro_f1": _known(self.macro_f1),
            "macro_auc": _known(self.macro_area),
            "micro_auc": _known(self.micro_area),
            "confusions": [vars(pair) for pair in self.confusions(most)],
        }
        if per_class:
            figures = (self.class_counts, self.class_accuracies, self.class_specificities, self.class_areas)
            document["per_class"] = [
                {
                    "class": name,
                    "samples": count,
                    "accuracy": _known(found),
                    "sensitivity": _known(found),
                    "specificity": _known(spared),
                    "auc": _known(area),
                }
                for name, count, found, spared, area in zip(
                    self.class_names, *(figure.tolist() for figure in figures), strict=True
                )
            ]
        return document


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None


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
    rounded
        Sum over coarse results of their squared unit, by which hits are rounded; 0 if these are exact.

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
    rounded: int = 0

    @property
    def is_certain(self) -> bool:
        """Whether rounding adds less than a point to the expected error, which is a mean of what lies in bins."""
        noise = TYPICAL * math.sqrt(self.rounded) * np.count_nonzero(self.counts)
        return bool(noise <= MOST_NOISE * max(int(self.counts.sum()), 1))

    @property
    def expected_error(self) -> float:
        """Expected calibration error: |confidence − accuracy|, averaged over answers."""
        return float(np.abs(self.confidences - self.hits).sum() / max(int(self.counts.sum()), 1))

    def reliability(self, confidence: float | None = None) -> Reliability:
        """Return what reports show, with a mean confidence where it is known; no bins where rounding is most of them.

        Examples
        --------
        >>> Calibration(np.array([0, 10]), np.array([0.0, 9.0]), np.array([0, 8]), 1.0).reliability().bins[1]
        Bin(low=0.5, high=1.0, count=10, confidence=0.9, accuracy=0.8)
        """
        if not self.is_certain:
            return Reliability(temperature=self.temperature, confidence=confidence)
        edges = np.linspace(0.0, 1.0, len(self.counts) + 1).tolist()
        sums = zip(self.counts.tolist(), self.confidences.tolist(), self.hits.tolist(), strict=True)
        bins = [
            Bin(*span, count, sure / count if count else None, hits / count if count else None)
            for span, (count, sure, hits) in zip(pairwise(edges), sums, strict=True)
        ]
        return Reliability(tuple(bins), self.expected_error, self.temperature, confidence)
