"""Samples out of table cells: sentences, paths of images, bytes of images, numbers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.maps import TableMap
from fedmoments.errors import InputError

__all__ = ["feature_cells", "image_cell", "number_cells", "text_cell"]


def text_cell(_: int, value: Any) -> str:
    """Return a sentence as it stands.

    Examples
    --------
    >>> text_cell(0, "  ")
    Traceback (most recent call last):
    ...
    fedmoments.errors.InputError: its text is empty
    """
    if value is None or value != value or not str(value).strip():  # noqa: PLR0124 - only NaN differs from itself
        raise InputError("its text is empty")
    return str(value)


def number_cells(_: int, values: list[Any]) -> NDArray[np.float64]:
    """Return the cells of a row as one vector; a cell may hold a vector itself.

    Examples
    --------
    >>> number_cells(0, ["1.5", 2, [3.0, 4.0]])
    array([1.5, 2. , 3. , 4. ])
    >>> number_cells(0, ["many"])
    Traceback (most recent call last):
    fedmoments.errors.InputError: one of its features is 'many', not a finite number
    """
    numbers: list[float] = []
    for value in values:
        for number in value if isinstance(value, list) else [value]:
            try:
                numbers.append(float(number))
            except (TypeError, ValueError):
                raise InputError(f"one of its features is {number!r}, not a finite number") from None
            if not np.isfinite(numbers[-1]):
                raise InputError(f"one of its features is {number!r}, not a finite number")
    return np.array(numbers)


def feature_cells(table: TableMap | None) -> Callable[[int, list[Any]], NDArray[Any]]:
    """Return the reader of rows of numbers, or of the cells of a raw table, coded by its map.

    Examples
    --------
    >>> from fedmoments.core.maps import Numbers
    >>> feature_cells(TableMap((Numbers("age"),)))(0, ["40"])
    array([40.], dtype=float32)
    """
    return number_cells if table is None else lambda _, values: table.code_row(values)


def image_cell(folder: Path) -> Callable[[int, Any], Path | bytes]:
    """Return the reader of image cells: paths relative to `folder`, bytes, or Hugging Face's pair of both.

    Examples
    --------
    >>> image_cell(Path())(0, {"bytes": b"...", "path": None})
    b'...'
    """

    def read(_: int, value: Any) -> Path | bytes:
        if isinstance(value, dict):
            value = value.get("bytes") or value.get("path")
        if isinstance(value, bytes) and value:
            return value
        if not isinstance(value, str) or not value.strip():
            raise InputError("it has no image")
        path = folder / Path(value.strip()).expanduser()
        if not path.is_file():
            raise InputError(f"there is no file {path}")
        return path

    return read
