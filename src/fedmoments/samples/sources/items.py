"""Samples out of table cells: sentences, paths of images, bytes of images."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedmoments.errors import InputError

__all__ = ["image_cell", "text_cell"]


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
