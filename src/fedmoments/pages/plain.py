"""Values from JSON, taken only for what they are: anything else is None or empty, never an error."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["as_number", "items", "mapping"]


def as_number(value: Any) -> float | None:
    """Return a finite number, or None for anything else.

    Examples
    --------
    >>> as_number(2), as_number("2"), as_number(float("nan")), as_number(True)
    (2.0, None, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if math.isfinite(value) else None


def mapping(value: Any) -> Mapping[str, Any]:
    """Return a mapping, empty for anything else."""
    return value if isinstance(value, Mapping) else {}


def items(value: Any) -> Sequence[Any]:
    """Return a list, empty for anything else."""
    return value if isinstance(value, (list, tuple)) else ()
