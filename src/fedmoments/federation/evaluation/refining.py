"""What sums of clients' tests change of a classifier: its temperature, and its prediction sets.

The temperature is chosen at which confidences are on average as high as the accuracy was, as far as the sums are
certain of both. With c(T) the mean confidence at the temperature T, a the accuracy, n samples and T₀ of the closed
form, T minimises

    (c(T) − a)² / v + (log₂(T / T₀) / 0.7)²,     v = a(1 − a)/n + ½·Σm²/n²,

where the closed form is mostly within 0.7 octaves, and Σm² sums over coarse results the square of the unit that their
right answers are rounded to. So a few samples, or many coarse results of few samples each, move it little.
"""

import math

import numpy as np

from fedmoments.core.classifier import Classifier
from fedmoments.core.classifier.ranks import Ranks
from fedmoments.core.heads.temperature import agreed_temperature
from fedmoments.federation.evaluation.layout import ONE, WARMTHS
from fedmoments.federation.evaluation.local import LocalEvaluation

__all__ = ["confidence_at", "refined", "refined_temperature"]

#: What rounding adds to a variance, in squared units.
ROUNDING = 0.5
#: Standard deviations of rounded counts by which prediction sets are wider.
SURE = 3.0


def confidence_at(evaluation: LocalEvaluation, warmth: float) -> float | None:
    """Return the mean confidence at a multiple of the temperature of the test; None where no sums were told."""
    told = int(evaluation.ranks.sum())
    if told <= 0 or not evaluation.warmer.all():
        return None
    means = np.minimum.accumulate(evaluation.warmer / (ONE * told))
    return float(np.interp(np.log2(warmth), np.log2(WARMTHS), means))


def refined_temperature(evaluation: LocalEvaluation, temperature: float) -> float:
    """Return the temperature that the sums of a test at ``temperature`` give; see the module.

    Parameters
    ----------
    evaluation
        Of a classifier at ``temperature``. Sums of confidences at multiples of it decrease; between them, they are
        interpolated along the logarithm of the temperature.
    temperature
        Returned where no sums were told (under an epsilon, or of clients with few samples, they are not).
    """
    samples, told = evaluation.n_samples, int(evaluation.ranks.sum())  # both are told of the same clients
    if not samples or told <= 0 or not evaluation.warmer.all():
        return temperature
    accuracy = (min(int(evaluation.totals[1]), samples) + 1) / (samples + 2)
    variance = accuracy * (1.0 - accuracy) / told + ROUNDING * int(evaluation.rounded[0]) / samples**2
    return agreed_temperature(temperature, np.log2(WARMTHS), evaluation.warmer / (ONE * told), accuracy, variance)


def refined(classifier: Classifier, evaluation: LocalEvaluation) -> Classifier:
    """Return the classifier with the temperature and the ranks that its tests give; scores and labels do not change.

    Examples
    --------
    >>> import fedmoments as fm
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 3, 900)
    >>> X = np.eye(3)[y] + rng.normal(size=(900, 3))
    >>> classifier = fm.fit("gh-lda", {"a": (X[::3], y[::3])}).tempered(0.2)  # far too sure of itself
    >>> tested = LocalEvaluation.of(classifier, X[1::3], y[1::3], 0.2)
    >>> new = refined(classifier, tested)
    >>> tested.expected_error > 0.15, LocalEvaluation.of(new, X[2::3], y[2::3], new.temperature).expected_error < 0.1
    (True, True)
    >>> new.ranks.counts.sum()
    np.int64(300)
    """
    if not evaluation.n_samples or not evaluation.ranks.any():
        return classifier
    margin = math.ceil(SURE * math.sqrt(int(evaluation.rounded[0]) / 6.0))
    ranks = Ranks(evaluation.ranks, classifier.temperature, margin)
    return classifier.tempered(refined_temperature(evaluation, classifier.temperature)).ranked(ranks)
