"""Images that stay where they are stored until they are requested: a column of an Arrow table or of a data set."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.errors import InputError
from fedmoments.samples.samples import Chosen
from fedmoments.samples.sources.items import image_cell

__all__ = ["StoredImages", "chosen_images", "place_cell"]


class StoredImages(Sequence[Any]):
    """A column of images, read one at a time.

    Parameters
    ----------
    cell
        The function of a row's place that returns its cell: bytes, a path, or Hugging Face's pair of both.
    size
        Number of rows.
    folder
        Where relative paths begin.

    Examples
    --------
    >>> StoredImages([b"first", b"second"].__getitem__, 2)[1]
    b'second'
    """

    def __init__(self, cell: Callable[[int], Any], size: int, folder: Path = Path()) -> None:
        self._cell, self._size, self._read = cell, size, image_cell(folder)

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return Chosen(self, np.arange(self._size)[place])
        if not 0 <= place < self._size:
            raise IndexError(place)
        return self._read(place, self._cell(int(place)))


def place_cell(place: int, present: Any) -> int:
    """Return the place of an image that is present, to be read later."""
    if not present:
        raise InputError("it has no image")
    return place


def chosen_images(images: StoredImages, places: Sequence[Any] | NDArray[Any]) -> Sequence[Any]:
    """Return the images at the places that `place_cell` kept."""
    return Chosen(images, np.asarray(places, dtype=np.int64))
