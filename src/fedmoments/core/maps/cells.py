"""Cells of a table as numbers: one float32 for a number, a category or nothing, whatever other cells there are."""

import hashlib
import math
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np

from fedmoments.errors import InputError

__all__ = ["LARGEST", "MISSING", "category_code", "cell_number", "cell_text", "cells_of", "is_missing", "is_tabular"]

#: Code of a missing cell: the lowest float32, which is not a number that anybody measured.
MISSING = float(np.finfo(np.float32).min)
#: Numbers of larger size are refused: their squares, and sums of these, would leave what computes safely.
LARGEST = 1e30
#: What stands in files for a missing cell, besides nothing.
_MISSING_WORDS = frozenset({"NA", "N/A", "n/a", "nan", "NaN", "NAN", "null", "NULL", "None", "<NA>", "#N/A", "?"})


def category_code(text: str) -> float:
    """Return the number that stands for a category: exact in float32, one of 2³¹ by the SHA-256 of its text.

    Examples
    --------
    >>> category_code("yes") == category_code("yes") != category_code("no")
    True
    >>> float(np.float32(category_code("yes"))) == category_code("yes")
    True
    """
    digest = hashlib.sha256(b"fedmoments category\n" + text.encode("utf-8", "surrogatepass")).digest()
    word = int.from_bytes(digest[:4], "little")
    # sign, 7 of 8 bits of the exponent (2⁻⁶³ to 2⁶⁴, far from MISSING and from 0) and the whole mantissa
    bits = (word >> 31) << 31 | (64 + (word >> 23 & 0x7F)) << 23 | (word & 0x7FFFFF)
    return float(np.array([bits], "<u4").view("<f4")[0])


def is_missing(value: Any) -> bool:
    """Say whether a cell holds nothing: None, NaN, or what pandas calls NA and NaT.

    Examples
    --------
    >>> is_missing(None), is_missing(float("nan")), is_missing("NA"), is_missing(0)
    (True, True, False, False)
    """
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, Real | Decimal) and value != value  # noqa: PLR0124 - only NaN differs from itself


def cell_text(value: Any) -> str | None:
    """Return a category as text, None where it is missing; 3.0 is 3, for gaps make floats of whole numbers.

    Examples
    --------
    >>> cell_text(" yes "), cell_text(3.0), cell_text("NA"), cell_text(float("nan")), cell_text("")
    ('yes', '3', None, None, None)
    """
    if is_missing(value):
        return None
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    text = unicodedata.normalize("NFC", str(value).strip())
    return None if not text or text in _MISSING_WORDS else text


def cell_number(value: Any) -> float:
    """Return the number in a cell, `MISSING` where there is none.

    Examples
    --------
    >>> cell_number(" 2.5"), cell_number(True), cell_number("NA") == MISSING
    (2.5, 1.0, True)
    >>> cell_number("many")
    Traceback (most recent call last):
    fedmoments.errors.InputError: it is 'many', not a number of at most 1e+30 in size
    """
    if is_missing(value):
        return MISSING
    if isinstance(value, str):
        value = value.strip()
        if not value or value in _MISSING_WORDS:
            return MISSING
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.inf
    if not abs(number) <= LARGEST:
        raise InputError(f"it is {value!r:.80}, not a number of at most {LARGEST:g} in size")
    return number


def is_tabular(given: Any) -> bool:
    """Say whether something has named columns: a dict of them, or a table of pandas, polars, Arrow or Hugging Face.

    Examples
    --------
    >>> is_tabular({"age": [31]}), is_tabular([[31]])
    (True, False)
    """
    return isinstance(given, Mapping) or _names(given) is not None


def cells_of(given: Any, names: Sequence[str] | None = None) -> dict[str, Sequence[Any]]:
    """Return columns of a table as sequences of cells; all of them unless some are named.

    Raises
    ------
    InputError
        When it is not a table, or lacks a column.

    Examples
    --------
    >>> cells_of({"age": (31, 70), "ward": ["a", "b"]}, ["ward"])
    {'ward': ['a', 'b']}
    """
    if hasattr(given, "collect_schema") and not hasattr(given, "__arrow_c_stream__"):  # a lazy frame of polars
        given = given.collect()
    called = _called(given)
    lacking = [name for name in names or () if name not in called]
    if lacking:
        raise InputError(f"the table lacks the column '{lacking[0]}': it has {', '.join(called)}")
    return {name: _cells(given[called[name]]) for name in (called if names is None else names)}


def _called(given: Any) -> dict[str, Any]:
    """Return the columns of a table by name, each as the table calls it: pandas also numbers them."""
    known = list(given) if isinstance(given, Mapping) else _names(given)
    if known is None:
        raise InputError(
            "a raw table has named columns: a dict of them, or a table of pandas, polars, Arrow or Hugging Face; a "
            f"{type(given).__name__} arrived"
        )
    called: dict[str, Any] = {}
    for name in known:
        if str(name) in called:
            raise InputError(f"the table has two columns '{name}': rename one of them")
        called[str(name)] = name
    return called


def _names(given: Any) -> Iterable[Any] | None:
    if hasattr(given, "collect_schema"):
        return list(given.collect_schema())
    names = getattr(given, "column_names", None)
    names = getattr(given, "columns", None) if names is None else names
    return None if names is None or callable(names) else list(names)


def _cells(column: Any) -> Sequence[Any]:
    for reader in ("to_pylist", "to_list", "tolist"):
        if hasattr(column, reader):
            cells: Sequence[Any] = getattr(column, reader)()
            return cells
    return list(column)
