"""Reading arrays out of an ``.npz`` archive: pickled ones are refused, and damage is reported in one sentence."""

import difflib
import os
import zipfile
from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.errors import FileFormatError, InputError

__all__ = ["ARRAYS", "read_npz", "refuse_unknown"]

#: All arrays that a file of features or images may hold.
ARRAYS = frozenset(
    f"{what}_{part}" for what in ("x", "y", "domain", "client", "group") for part in ("train", "test")
) | {
    "classes",
    "domains",
    "encoder",
}


def refuse_unknown(path: str | os.PathLike[str], held: Collection[str]) -> None:
    """Refuse an archive with an array of another name: class names that nobody reads would change what labels mean.

    Examples
    --------
    >>> refuse_unknown("f.npz", ["x_train", "y_train", "class_names"])
    Traceback (most recent call last):
    fedmoments.errors.InputError: f.npz holds the array 'class_names', which nothing reads: did you mean 'classes'? ...
    """
    for name in held:
        if name not in ARRAYS:
            close = difflib.get_close_matches(name, ARRAYS, n=1, cutoff=0.4)
            hint = f"did you mean '{close[0]}'? " if close else ""
            raise InputError(
                f"{path} holds the array '{name}', which nothing reads: {hint}Known are {', '.join(sorted(ARRAYS))}. "
                "Rename it or leave it out"
            )


def read_npz(path: str | os.PathLike[str], known: Collection[str]) -> tuple[dict[str, NDArray[Any]], list[str]]:
    """Return those arrays of an archive that are known, and the names of all that it holds.

    Raises
    ------
    FileFormatError
        When the file is not a valid archive, or an array in it is damaged or pickled.

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
            raise FileFormatError(f"{path} is not a features file: it must be a valid .npz archive, as np.savez writes")
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
