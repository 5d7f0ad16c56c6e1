"""Checks of a map's parameters: each returns the plain Python number, or says what was wrong."""

import math

import numpy as np

from fedmoments.errors import InputError

__all__ = ["checked_count", "checked_positive", "checked_seed"]

# Fits a signed 64-bit integer, hence every database column, configuration file and message field.
SEED_END = 2**63


def checked_count(value: object, name: str, of: str) -> int:
    """Return ``value`` as an int of at least 1.

    Examples
    --------
    >>> checked_count(3, "n_features", of="RandomFourier")
    3
    >>> checked_count(0, "n_features", of="RandomFourier")
    Traceback (most recent call last):
    fedmoments.errors.InputError: n_features of RandomFourier must be a whole number of at least 1, but got 0
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise InputError(f"{name} of {of} must be a whole number of at least 1, but got {value!r}")
    return int(value)


def checked_positive(value: object, name: str, of: str) -> float:
    """Return ``value`` as a finite float above 0.

    Examples
    --------
    >>> checked_positive(1000, "bandwidth", of="RandomFourier")
    1000.0
    """
    wanted = f"{name} of {of} must be a finite number above 0, but got {value!r}"
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise InputError(wanted)
    try:
        number = float(value)
    except OverflowError as error:
        raise InputError(wanted) from error
    if not (math.isfinite(number) and number > 0):
        raise InputError(wanted)
    return number


def checked_seed(value: object, of: str) -> int:
    """Return ``value`` as an int with 0 ≤ value < 2⁶³.

    Examples
    --------
    >>> checked_seed(7, of="RandomProjection")
    7
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 0 <= int(value) < SEED_END:
        raise InputError(
            f"the seed of {of} must be a whole number with 0 <= seed < 2**63, but got {value!r}; "
            "all parties must use the same one"
        )
    return int(value)
