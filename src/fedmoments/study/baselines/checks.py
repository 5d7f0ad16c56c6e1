"""What baselines ask of samples, hyper-parameters and uploads."""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmoments.errors import InputError, NotEnoughDataError
from fedmoments.study.baselines.baseline import Upload

__all__ = ["check_choice", "check_number", "check_samples", "classes_held", "counts_of"]


def check_samples(X: ArrayLike, y: ArrayLike, n_classes: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return a client's features (n, d) in float64 and labels (n,), or say what is wrong with them.

    Examples
    --------
    >>> check_samples([[1.0]], [3], 2)
    Traceback (most recent call last):
    fedmoments.errors.InputError: labels must be whole numbers from 0 to 1 (2 classes), but 3 arrived
    """
    features, labels = np.asarray(X), np.asarray(y)
    if features.ndim != 2 or not len(features):
        raise InputError(f"a client's features must be a matrix (samples, dimensions), not of shape {features.shape}")
    if labels.shape != (len(features),):
        raise InputError(f"{len(features)} samples need as many labels, but labels of shape {labels.shape} arrived")
    if labels.dtype.kind not in "iu" or not ((labels >= 0) & (labels < n_classes)).all():
        wrong = labels if labels.dtype.kind not in "iu" else labels[(labels < 0) | (labels >= n_classes)]
        raise InputError(
            f"labels must be whole numbers from 0 to {n_classes - 1} ({n_classes} classes), but {wrong[0]} arrived"
        )
    wide = features.astype(np.float64, copy=False)
    if not np.isfinite(wide).all():
        row = int(np.argmin(np.isfinite(wide).all(axis=1)))
        raise InputError(f"features must be finite, but sample {row} holds NaN or infinity: repair or drop it first")
    return wide, labels.astype(np.int64, copy=False)


def check_number(name: str, value: float, *, least: float = 0.0, whole: bool = False, zero: bool = False) -> None:
    """Refuse a hyper-parameter that is not above ``least`` (not below it, if ``zero``), or not whole where it must be.

    Examples
    --------
    >>> check_number("decay", -1.0)
    Traceback (most recent call last):
    fedmoments.errors.InputError: decay must be more than 0, not -1.0
    """
    kinds = (int, np.integer) if whole else (int, float, np.integer, np.floating)
    sound = isinstance(value, kinds) and not isinstance(value, bool) and np.isfinite(value)
    if not (sound and (value > least or (zero and value == least))):
        kind = "a whole number" if whole else ""
        bound = f"{least:g} or more" if zero else f"more than {least:g}"
        raise InputError(f"{name} must be {' '.join(filter(None, (kind, bound)))}, not {value}")


def check_choice(name: str, value: str, allowed: Iterable[str]) -> None:
    """Refuse a word that is not among those allowed.

    Examples
    --------
    >>> check_choice("covariance", "round", ["full", "diagonal"])
    Traceback (most recent call last):
    fedmoments.errors.InputError: covariance must be one of full, diagonal, not 'round'
    """
    choices = list(allowed)
    if value not in choices:
        raise InputError(f"{name} must be one of {', '.join(choices)}, not {value!r}")


def counts_of(uploads: Sequence[Upload]) -> NDArray[np.int64]:
    """Return the samples of every client and class, (K, C).

    Examples
    --------
    >>> counts_of([Upload({}, np.array([2, 0])), Upload({}, np.array([1, 0]))]).sum(axis=0)
    array([3, 0])
    """
    if not uploads:
        raise NotEnoughDataError("no client sent anything, so there is nothing to combine")
    return np.stack([upload.counts for upload in uploads])


def classes_held(uploads: Sequence[Upload]) -> NDArray[np.bool_]:
    """Return which classes some client holds, (C,).

    Examples
    --------
    >>> classes_held([Upload({}, np.array([2, 0])), Upload({}, np.array([1, 0]))])
    array([ True, False])
    """
    return np.asarray(counts_of(uploads).any(axis=0))
