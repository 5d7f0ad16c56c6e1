"""What heads warn of while they are fitted, as sentences for tables instead of Python's warnings."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from fedmoments.errors import FitWarning

__all__ = ["fit_notes"]


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
