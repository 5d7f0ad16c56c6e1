"""What sums of clients' tests change of a classifier: its temperature, and its prediction sets."""

import numpy as np

from fedmoments.core.classifier import Classifier
from fedmoments.core.classifier.ranks import Ranks
from fedmoments.federation.evaluation.local import ONE, WARMTHS, LocalEvaluation

__all__ = ["LEAST_SAMPLES", "refined", "refined_temperature"]

#: Of fewer tested samples no temperature is chosen: the closed form knows better.
LEAST_SAMPLES = 100


def refined_temperature(evaluation: LocalEvaluation, temperature: float) -> float:
    """Return the temperature at which confidences are, on average, as high as the accuracy was.

    Parameters
    ----------
    evaluation
        Of a classifier at ``temperature``. Sums of confidences at multiples of it decrease; between them, the logarithm
        of the temperature is interpolated.
    temperature
        Returned where too few samples were tested, or no sums were told (under an epsilon they are not).
    """
    samples = evaluation.n_samples
    if samples < LEAST_SAMPLES or not evaluation.warmer.all():
        return temperature
    means = evaluation.warmer / (ONE * samples)
    wanted = (int(evaluation.totals[1]) + 1) / (samples + 2)
    return float(temperature * np.exp(np.interp(-wanted, -np.maximum.accumulate(means[::-1])[::-1], np.log(WARMTHS))))


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
    ranks = Ranks(evaluation.ranks, classifier.temperature)
    return classifier.tempered(refined_temperature(evaluation, classifier.temperature)).ranked(ranks)
