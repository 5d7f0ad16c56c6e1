"""Personalisation without training: a classifier of a client's own, from what the server broadcast and its samples.

Three things a client can do by itself, in one pass over its samples:

- **own labels** (OLL): predict only labels that it has. Scores stay as they are; a label that it does not have gets −∞.
- **own shares**: predict them as often as it has them (:mod:`fedmoments.tuning.personal`).
- **blended means**: move every class of its own towards its local mean (:mod:`fedmoments.tuning.blending`), and fit the
  head anew.

Nothing leaves the client. For the first two it needs the classifier; for the third the statistics that the head is
fitted from: counts and sums, C·(d + 1) numbers, for nearest means; d(d+1)/2 more for ridge regression and LDA.

Own label shares: predict labels as often as this client meets them.

A federation's head takes all classes for about equally likely. A client that has n_c samples of class c, π_c = n_c/n,
knows better; by Bayes' rule its posterior is

    P(c | x) ∝ exp(s_c(x)/T) · π_c,    that is, scores s_c + T·log π_c,

and −∞ for labels that it does not have: own labels (:func:`fedmoments.tuning.personal.mask_to_labels`) are the limit
T → 0. T is what turns scores into log-likelihoods. It is chosen on a grid around the spread of the scores: the T that
gets most of the client's own samples right, and of equal ones that with the least cross-entropy under this posterior.
(Cross-entropy alone takes a large T where features are shifted and scores therefore wrong, and shares then decide too
much.) No test sample is used, and nothing leaves the client.

A head whose scores hold the federation's own shares Π_c already (LDA with ``priors="data"``) has log Π_c taken off
first. Where scores are not linear (QDA, naive Bayes) the same holds: only the constants of the classes change.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmoments.core.classifier import Classifier
from fedmoments.core.statistics.checks import check_labels
from fedmoments.errors import InputError, NotEnoughDataError

__all__ = ["STEPS", "Shares", "mask_to_labels", "own_shares", "weigh_by_shares"]


Made = TypeVar("Made", bound=Classifier)


def mask_to_labels(classifier: Made, labels: Iterable[int]) -> Made:
    """Return the same classifier, predicting none but these labels.

    Class names and scores of the kept labels stay as they are; the notes name the labels that are kept.

    Parameters
    ----------
    classifier
        Of any kind.
    labels
        What the client has, from 0 to C − 1, repeated or not. Those without a training sample in the federation stay
        unpredictable.

    Raises
    ------
    InputError
        When a label does not exist.
    NotEnoughDataError
        When nothing would be left to predict.

    Examples
    --------
    >>> from fedmoments.core.classifier import LinearClassifier
    >>> global_head = LinearClassifier(weights=np.eye(3), bias=np.zeros(3), present=np.array([True, True, True]))
    >>> mask_to_labels(global_head, [0, 2]).predict([[0.1, 0.9, 0.2]])
    array([2])
    """
    wanted = np.unique(np.asarray(list(labels)))
    if wanted.size and (wanted.dtype.kind not in "iu" or wanted[0] < 0 or wanted[-1] >= classifier.n_classes):
        raise InputError(
            f"labels must be whole numbers from 0 to {classifier.n_classes - 1}, the classes of the classifier; "
            f"{wanted[0]} to {wanted[-1]} arrived"
        )
    mask = np.zeros(classifier.n_classes, np.bool_)
    mask[wanted.astype(np.int64)] = True
    present = classifier.present & mask
    if not present.any():
        raise NotEnoughDataError(
            f"the client has {wanted.size} labels, none of which the classifier can predict: nothing would be left"
        )
    kept = [classifier.class_names[label] for label in np.flatnonzero(present)]
    return replace(classifier, present=present).noting(own_labels=kept)


Floats = NDArray[np.float64]

#: Temperatures that are tried, in units of the spread of the scores.
STEPS: tuple[float, ...] = tuple(2.0 ** (power / 2) for power in range(-20, 17))


class Shares(NamedTuple):
    """What is added to scores.

    Parameters
    ----------
    shift
        (C,) T·log π_c; −∞ for labels that the client does not have or the classifier cannot predict.
    temperature
        T; 1 where there are not two labels to choose between, or scores are all equal.
    """

    shift: Floats
    temperature: float


def own_shares(scores: ArrayLike, y: ArrayLike, totals: ArrayLike | None = None) -> Shares:
    """Return what a client adds to the scores of a classifier.

    Parameters
    ----------
    scores
        (n, C) of the client's own samples; −∞ for classes that cannot be predicted.
    y
        (n,) their labels.
    totals
        (C,) samples of every class in the federation, if the scores hold the logarithm of their shares.

    Examples
    --------
    >>> shift, temperature = own_shares([[1.0, 0.0], [0.6, 0.4], [0.4, 0.6], [0.5, 0.5]], [0, 0, 0, 1])
    >>> bool(shift[0] > shift[1]), temperature > 0
    (True, True)
    """
    given = np.asarray(scores, np.float64)
    n_classes = given.shape[1]
    labels = check_labels(np.asarray(y), len(given), n_classes)
    known = np.isfinite(given[np.arange(len(labels)), labels])
    given, labels = given[known], labels[known]
    shift = np.full(n_classes, -np.inf)
    held, places, counts = np.unique(labels, return_inverse=True, return_counts=True)
    if not len(held):
        return Shares(shift, 1.0)
    off = np.log(np.asarray(totals, np.float64)[held] / np.sum(totals)) if totals is not None else np.zeros(len(held))
    logs = np.log(counts / counts.sum())
    temperature = _temperature(given[:, held] - off, places.ravel(), logs)
    shift[held] = temperature * logs - off
    return Shares(shift, temperature)


def weigh_by_shares(classifier: Made, X: ArrayLike, y: ArrayLike, *, totals: ArrayLike | None = None) -> Made:
    """Return the classifier of a client that predicts its own labels, as often as it has them.

    Parameters
    ----------
    classifier
        Linear, or a Gaussian one (quadratic, diagonal, low-rank).
    X, y
        The client's own samples, (n, d), and their labels (n,).
    totals
        As in :func:`own_shares`.

    Examples
    --------
    >>> import fedmoments as fm
    >>> X, y = [[1.0, 0.1], [0.9, 0.2], [0.3, 0.4], [0.4, 0.5], [0.1, 1.0]], [0, 0, 0, 0, 1]
    >>> global_head = fm.fit("fedncm", {"other": ([[1.0, 0.0], [0.0, 1.0]], [0, 1])})
    >>> global_head.predict(X), weigh_by_shares(global_head, X, y).predict(X)
    (array([0, 0, 1, 1, 1]), array([0, 0, 0, 0, 1]))
    """
    bias: Any = getattr(classifier, "bias", None)
    if bias is None or bias.shape != (classifier.n_classes,):
        raise InputError(
            f"a classifier of kind '{classifier.kind}' has no constant a class that label shares could be added to: "
            "keep to own labels alone"
        )
    masked = mask_to_labels(classifier, np.unique(np.asarray(y)).tolist())
    shift, temperature = own_shares(classifier.scores(X), y, totals)
    change: dict[str, Any] = {"bias": bias + np.where(masked.present, shift, 0.0)}
    return replace(masked, **change).noting(own_shares=True).tempered(temperature)


def _temperature(scores: Floats, places: NDArray[np.int64], logs: Floats) -> float:
    """Return the T that gets most own samples right; of those, the one with the least cross-entropy."""
    spread = float(np.sqrt(scores.var(axis=1).mean()))
    if len(logs) < 2 or not spread > 0:
        return 1.0
    rows = np.arange(len(places))
    ranked = []
    for step in STEPS:
        logits = scores / (step * spread) + logs
        wrong = int((logits.argmax(axis=1) != places).sum())
        logits -= logits.max(axis=1, keepdims=True)
        loss = float((np.log(np.exp(logits).sum(axis=1)) - logits[rows, places]).sum())
        ranked.append((wrong, loss, step))
    return spread * min(ranked)[2]
