"""What heads warn of and choose while they are fitted, as sentences for tables."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from fedmoments.core.classifier import Classifier
from fedmoments.errors import FedMomentsError, FitWarning

__all__ = ["choice_of", "fit_notes", "why_not_fitted"]

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

    Only :class:`~fedmoments.errors.FitWarning` is kept back. Any other warning goes where warnings go.

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
    for each in caught:
        if issubclass(each.category, FitWarning):
            notes.append(str(each.message))
        else:
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno, source=each.source)
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
