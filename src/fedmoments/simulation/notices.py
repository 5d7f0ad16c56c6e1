"""What heads warn of and choose while they are fitted, as sentences for tables."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from fedmoments.classifier import Classifier
from fedmoments.errors import FitWarning

__all__ = ["choice_of", "fit_notes"]


def choice_of(classifier: Classifier) -> str | None:
    """Return what a head chose for itself, and by which criterion; None of a head that does not choose.

    Examples
    --------
    >>> import numpy as np
    >>> from fedmoments.heads import make_head
    >>> from fedmoments.statistics import Statistics, StatisticsSpec
    >>> X, y = np.random.default_rng(0).normal(size=(200, 2)), np.arange(200) % 2
    >>> stats = Statistics.of(X, y, StatisticsSpec.of("class_grams"), n_classes=2)
    >>> choice_of(make_head("gh-auto").fit(stats)), choice_of(make_head("gh-lda").fit(stats))
    ('chose LDA: class covariances differ ...', None)
    """
    chosen, criterion = (classifier.info.get(name) for name in ("chosen", "criterion"))
    if not chosen:
        return None
    return f"chose {str(chosen).upper()}" + (f": {criterion}" if criterion else "")


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
