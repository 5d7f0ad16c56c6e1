"""Checks of what a caller of the cost formulas passed in; each failure is one full sentence."""

import math
import operator
from typing import SupportsIndex

from fedmoments.errors import InputError

__all__ = ["check_not_negative", "check_positive", "check_sampled", "check_share", "check_whole"]


def check_whole(name: str, value: SupportsIndex, *, least: int = 1) -> int:
    """Return a whole number of at least `least`, or say what arrived instead.

    Examples
    --------
    >>> check_whole("clients", 100)
    100
    >>> check_whole("clients", 0)
    Traceback (most recent call last):
    ...
    fedmoments.errors.InputError: clients must be a whole number of at least 1, but is 0.
    """
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or number < least:
        raise InputError(f"{name} must be a whole number of at least {least}, but is {value!r}.")
    return number


def check_positive(name: str, value: float) -> float:
    """Return a finite number above zero, or say what arrived instead.

    Examples
    --------
    >>> check_positive("bytes_per_number", 2)
    2
    """
    if not (math.isfinite(value) and value > 0):
        raise InputError(f"{name} must be a finite number above zero, but is {value!r}.")
    return value


def check_not_negative(name: str, value: float) -> float:
    """Return a finite number of zero or more, or say what arrived instead.

    Examples
    --------
    >>> check_not_negative("encoder_flops", 332.9e6)
    332900000.0
    """
    if not (math.isfinite(value) and value >= 0):
        raise InputError(f"{name} must be a finite number of zero or more, but is {value!r}.")
    return value


def check_sampled(clients: SupportsIndex, sampled: SupportsIndex) -> tuple[int, int]:
    """Return the numbers of clients and of clients sampled a round, or say why they do not fit together.

    Examples
    --------
    >>> check_sampled(100, 10)
    (100, 10)
    """
    known, drawn = check_whole("clients", clients), check_whole("sampled", sampled)
    if drawn > known:
        raise InputError(
            f"sampled must be at most the number of clients, {known}, because a round draws distinct clients, "
            f"but is {drawn}."
        )
    return known, drawn


def check_share(share: float) -> float:
    """Return a share of clients in (0, 1], or say what arrived instead.

    Examples
    --------
    >>> check_share(0.25)
    0.25
    """
    if not 0 < share <= 1:
        raise InputError(
            f"share must lie above 0 and be at most 1 (0.25 is a quarter of the clients), but is {share!r}."
        )
    return share
