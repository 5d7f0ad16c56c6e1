"""Checks of the arguments that all split schemes share; each returns the argument in its canonical type."""

import math
from numbers import Integral, Real

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmoments.errors import InputError

__all__ = ["check_alpha", "check_count", "check_keys"]


def check_count(value: object, what: str, *, least: int = 1) -> int:
    """Return a whole number that is at least `least`.

    Examples
    --------
    >>> check_count(3, "n_clients")
    3
    >>> check_count(0, "n_clients")
    Traceback (most recent call last):
    ...
    fedmoments.errors.InputError: n_clients must be a whole number of at least 1, but is 0
    """
    if isinstance(value, bool | np.bool_) or not isinstance(value, Integral) or int(value) < least:
        raise InputError(f"{what} must be a whole number of at least {least}, but is {value!r}")
    return int(value)


def check_alpha(value: object, *, zero: bool) -> float:
    """Return a Dirichlet concentration: finite and positive, or zero too where a scheme gives it a meaning.

    Examples
    --------
    >>> check_alpha(1, zero=False)
    1.0
    >>> check_alpha(-0.5, zero=True)
    Traceback (most recent call last):
    ...
    fedmoments.errors.InputError: alpha must be a finite number of at least 0, but is -0.5: take 0.1 for strong skew...
    """
    if not isinstance(value, bool | np.bool_) and isinstance(value, Real):
        alpha = float(value)
        if math.isfinite(alpha) and (alpha > 0 or (zero and alpha == 0)):
            return alpha
    allowed = "of at least 0" if zero else "above 0"
    raise InputError(
        f"alpha must be a finite number {allowed}, but is {value!r}: take 0.1 for strong skew, 100 for almost none"
    )


def check_keys(values: ArrayLike, what: str) -> NDArray[np.generic]:
    """Return one key (class label, domain or user id) a sample: a one-dimensional array of whole numbers or text.

    Parameters
    ----------
    values
        (n,), n ≥ 1, whole numbers or text; object arrays that hold only text (pandas) are welcome.
    what
        What the keys are, for the message.

    Returns
    -------
    NDArray
        (n,), of an integer, boolean or text type.

    Examples
    --------
    >>> check_keys([0.5, 1.0], "labels")
    Traceback (most recent call last):
    ...
    fedmoments.errors.InputError: labels must be whole numbers or text, one a sample, but their type is float64: ...
    """
    keys: NDArray[np.generic] = np.asarray(values)
    if keys.ndim != 1 or len(keys) == 0:
        raise InputError(f"{what} must have the shape (n,) with n ≥ 1, one a sample, but have the shape {keys.shape}")
    if keys.dtype.kind in "OT":
        items = keys.tolist()
        if all(isinstance(item, str) for item in items):
            return np.asarray(items, dtype=np.str_)
    if keys.dtype.kind not in "biuU":
        raise InputError(
            f"{what} must be whole numbers or text, one a sample, but their type is {keys.dtype}: convert them first"
        )
    return keys
