"""One fit of one method: what a table shows of it, its classifier, and what that says of the test samples.

How well a classifier does on features it has not seen, and whether its probabilities can be believed.

Running a baseline on the clients of a split: each works on its own samples, then the server combines.

What heads warn of and choose while they are fitted, as sentences for tables.
"""

import logging
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.classifier import Classifier
from fedmoments.core.costs import PayloadSize
from fedmoments.core.linalg import blocks
from fedmoments.core.observations import Outcome
from fedmoments.errors import FedMomentsError, FitWarning, NotEnoughDataError
from fedmoments.federation.evaluation import N_BINS, Calibration, Confusion, Evaluation, LocalEvaluation
from fedmoments.samples import Split
from fedmoments.samples.features import Features, Samples
from fedmoments.study.baselines import Baseline, Upload

__all__ = [
    "N_BINS",
    "Calibration",
    "Collected",
    "Confusion",
    "Evaluation",
    "Fit",
    "Made",
    "calibrate",
    "choice_of",
    "client_seed",
    "collect",
    "combine",
    "evaluate",
    "fit_notes",
    "predict_blocks",
    "why_not_fitted",
]


def predict_blocks(classifier: Classifier, X: NDArray[Any]) -> NDArray[np.int64]:
    """Return predicted labels (n,) of X (n, d), a block of samples at a time, so that a wide map needs little memory.

    Examples
    --------
    >>> from fedmoments.core.classifier import LinearClassifier
    >>> made = LinearClassifier(weights=np.eye(2), bias=np.zeros(2), present=np.array([True, True]))
    >>> predict_blocks(made, np.array([[0.0, 1.0]]))
    array([1])
    """
    labels = [classifier.predict(X[block]) for block in blocks(len(X))]
    return np.concatenate(labels) if labels else np.zeros(0, np.int64)


def evaluate(classifier: Classifier, samples: Samples) -> Evaluation:
    """Compare predictions with labels, which must be from 0 to C − 1 of the classifier.

    Examples
    --------
    >>> from fedmoments.core.classifier import LinearClassifier
    >>> made = LinearClassifier(weights=np.eye(2), bias=np.zeros(2), present=np.array([True, True]))
    >>> evaluate(made, Samples(np.array([[0.0, 1.0], [2.0, 1.0]]), np.array([1, 1]))).accuracy
    0.5
    """
    n = classifier.n_classes
    cells = samples.y * n + predict_blocks(classifier, samples.X)
    return Evaluation(classifier.class_names, np.bincount(cells, minlength=n * n).reshape(n, n))


def calibrate(
    classifier: Classifier, X: NDArray[Any], y: NDArray[np.int64], *, temperature: float = 1.0, n_bins: int = N_BINS
) -> Calibration:
    """Return how well confidence fits accuracy on features X (n, d) with labels y (n,).

    Examples
    --------
    >>> from fedmoments.core.classifier import LinearClassifier
    >>> made = LinearClassifier(weights=np.eye(2), bias=np.zeros(2), present=np.array([True, True]))
    >>> calibrate(made, np.array([[9.0, 0.0]]), np.array([0])).hits.sum()
    np.int64(1)
    """
    return LocalEvaluation.of(classifier, X, y, temperature, n_bins).calibration(temperature)


@dataclass(frozen=True, eq=False)
class Collected:
    """What all clients of a baseline sent.

    Parameters
    ----------
    uploads
        One for every client with a sample.
    size
        Numbers and counts of all of them.
    seconds
        Time of all clients' own work together: each would take its share of it, all at the same time.
    """

    uploads: tuple[Upload, ...]
    size: PayloadSize
    seconds: float


def client_seed(seed: int, client: int) -> int:
    """Return the seed of a client's own random choices, which does not depend on who else takes part.

    Examples
    --------
    >>> client_seed(0, 1) == client_seed(0, 1) != client_seed(1, 1)
    True
    """
    return int(np.random.SeedSequence([seed, client]).generate_state(1)[0])


def collect(baseline: Baseline, features: Features, split: Split, *, seed: int, memory_limit: float) -> Collected:
    """Let every client with a sample do its work, and return what they send.

    Parameters
    ----------
    baseline
        Which one.
    features, split
        Everybody's samples, and who holds what.
    seed
        Of the run; every client has its own from it.
    memory_limit
        Bytes that all uploads together may take.
    """
    uploads: list[Upload] = []
    size, seconds = PayloadSize(0, 0), 0.0
    for client, mine in enumerate(split):
        if not len(mine):
            continue
        X, y = features.train.X[mine].astype(np.float64), features.train.y[mine]
        start = time.perf_counter()
        upload = baseline.local(X, y, n_classes=features.n_classes, seed=client_seed(seed, client))
        seconds += time.perf_counter() - start
        uploads.append(upload)
        size += PayloadSize(upload.n_counts, upload.n_floats)
        if 8 * size.floats > memory_limit:
            raise NotEnoughDataError(
                f"what its first {len(uploads)} clients send takes {8 * size.floats / 1e9:.1f} GB already, more than "
                f"the limit of {memory_limit / 1e9:g} GB"
            )
    return Collected(tuple(uploads), size, seconds)


def combine(baseline: Baseline, collected: Collected, *, dim: int, seed: int) -> tuple[Classifier, float]:
    """Return the server's classifier, and the seconds that combining took."""
    if not collected.uploads:
        raise NotEnoughDataError("no client holds a sample, so that there is nothing to combine")
    start = time.perf_counter()
    classifier = baseline.combine(collected.uploads, dim=dim, seed=seed)
    return classifier, time.perf_counter() - start


_LOG = logging.getLogger("fedmoments")


def choice_of(classifier: Classifier) -> str | None:
    """Return what a head chose for itself, and by which criterion; None of a head that does not choose.

    Examples
    --------
    >>> import numpy as np
    >>> from fedmoments.core.heads import make_head
    >>> from fedmoments.core.statistics import Statistics, StatisticsSpec
    >>> X, y = np.random.default_rng(0).normal(size=(200, 2)), np.arange(200) % 2
    >>> stats = Statistics.of(X, y, StatisticsSpec.of("class_grams"), n_classes=2)
    >>> choice_of(make_head("gh-auto").fit(stats)), choice_of(make_head("gh-lda").fit(stats))
    ('chose lda: class covariances differ ...', None)
    """
    chosen, criterion = (classifier.info.get(name) for name in ("chosen", "criterion"))
    if not chosen:
        return None
    return f"chose {chosen}" + (f": {criterion}" if criterion else "")


@contextmanager
def fit_notes() -> Iterator[list[str]]:
    """Give a list that holds, once the block has ended, what was fitted in a lesser way than asked for, each once.

    Only :class:`~fedmoments.errors.FitWarning` is withheld. Any other warning goes where warnings go.

    Examples
    --------
    >>> with fit_notes() as notes:
    ...     warnings.warn("LDA teaches itself nothing", FitWarning)
    >>> notes
    ['LDA teaches itself nothing']
    """
    notes: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", FitWarning)
        yield notes
    for warning in caught:
        if issubclass(warning.category, FitWarning):
            notes.append(str(warning.message))
        else:
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno, source=warning.source
            )
    notes[:] = dict.fromkeys(notes)


def why_not_fitted(method: object, error: Exception) -> str:
    """Return why a head or baseline could not be fitted, in one sentence.

    What is no error of ours is a fault in the method's own code: its traceback goes to the log ``fedmoments``.

    Examples
    --------
    >>> from fedmoments.errors import NotEnoughDataError
    >>> why_not_fitted("a head", NotEnoughDataError("class 3 has one sample"))
    'class 3 has one sample'
    """
    if isinstance(error, FedMomentsError):
        return str(error)
    _LOG.error("%s failed", type(method).__name__, exc_info=error)
    sentence = f"{type(method).__name__} raised {type(error).__name__}: {error}".rstrip(": ")
    return f"{sentence} (its traceback is in the log 'fedmoments')"


@dataclass(frozen=True, eq=False)
class Fit:
    """One fit of one method: the row of a table, its details and the saved classifier are all of it.

    Parameters
    ----------
    outcome
        What the table shows.
    classifier
        Behind its maps, with the class names of the data; None where it could not be fitted.
    predicted
        (n_test,) the class that it gives each test sample; None without a classifier.
    error
        Why it could not be fitted.
    """

    outcome: Outcome
    classifier: Classifier | None = None
    predicted: NDArray[np.int64] | None = None
    error: Exception | None = None

    @cached_property
    def digest(self) -> str | None:
        """SHA-256 of the classifier."""
        return None if self.classifier is None else self.classifier.digest()


@dataclass
class Made:
    """What a fit has come to so far: as far as it came, where it fails."""

    size: PayloadSize = field(default_factory=lambda: PayloadSize(0, 0))
    coded: int | None = None
    seconds: float | None = None
    client_seconds: float | None = None
    classifier: Classifier | None = None
    float64: str | None = None
