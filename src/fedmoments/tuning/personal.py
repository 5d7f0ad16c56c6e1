"""Personalisation without training: a classifier of a client's own, from what the server broadcast and its samples.

Three things a client can do by itself, in one pass over its samples:

- **own labels** (OLL): predict only labels that it has. Scores stay as they are; a label that it does not have gets −∞.
- **own shares**: predict them as often as it has them (:mod:`fedmoments.tuning.shares`).
- **blended means**: move every class of its own towards its local mean (:mod:`fedmoments.tuning.blending`), and fit the
  head anew.

Nothing leaves the client. For the first two it needs the classifier; for the third the statistics that the head is
fitted from: counts and sums, C·(d + 1) numbers, for nearest means; d(d+1)/2 more for ridge regression and LDA.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import TypeVar

import numpy as np

from fedmoments.core.classifier import Classifier
from fedmoments.errors import InputError, NotEnoughDataError

__all__ = ["mask_to_labels"]

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
