"""Reading arrays out of an ``.npz`` archive: pickled ones are refused, and damage is reported in one sentence."""

import os
import zipfile
from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.errors import FileFormatError

__all__ = ["read_npz"]


def read_npz(path: str | os.PathLike[str], known: Collection[str]) -> tuple[dict[str, NDArray[Any]], list[str]]:
    """Return those arrays of an archive that are known, and the names of all that it holds.

    Raises
    ------
    FileFormatError
        When the file is no sound archive, or an array in it is damaged or pickled.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(Path(folder, "f.npz"), x=np.ones(2), more=np.zeros(1))
    ...     read_npz(Path(folder, "f.npz"), ["x", "y"])
    ({'x': array([1., 1.])}, ['x', 'more'])
    """
    with open(path, "rb") as file:  # noqa: PTH123 - any path-like
        if not zipfile.is_zipfile(file):
            raise FileFormatError(f"{path} is not a features file: it must be a sound .npz archive, as np.savez writes")
    try:
        archive = np.load(path, allow_pickle=False)
    except Exception as error:  # a damaged file breaks numpy's parser in any way: SyntaxError, TokenError, MemoryError
        raise FileFormatError(f"{path} is not a features file: its .npz archive is damaged ({error})") from error
    arrays: dict[str, NDArray[Any]] = {}
    with archive:
        for name in archive.files:
            if name in known:
                try:
                    arrays[name] = archive[name]
                except Exception as error:
                    raise FileFormatError(
                        f"the array '{name}' in {path} cannot be read: it is damaged or pickled ({error})"
                    ) from error
        return arrays, list(archive.files)
