"""``npy:FOLDER``: the arrays of an ``.npz`` archive, each in a ``.npy`` file of its name, mapped into memory.

``x_train.npy`` and ``y_train.npy`` are needed; the other names are those of :mod:`fedmoments.samples.sources.npz`. Rows
are read from the disk when they are used, so that features may be larger than memory, as long as the folder has a test
part or none is held out. Pickled arrays, and files of other names, are refused.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.errors import FileFormatError, InputError
from fedmoments.samples.dataset import DataSet
from fedmoments.samples.sources.npz import data_of_arrays, require_arrays
from fedmoments.samples.sources.registry import Source
from fedmoments.samples.splits.draws import Seed

__all__ = ["SOURCES", "load_npy"]


def load_npy(argument: str, *, test_share: float = 0.2, seed: Seed = 0, strict: bool = False) -> DataSet:
    """Load arrays from a folder, without reading the samples.

    Parameters
    ----------
    argument
        The folder.
    test_share, seed
        For holding out a test part, when there is none; its rows and those to train on are copied into memory then.
    strict
        Whether to stop at the first problem.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(Path(folder, "x_train.npy"), np.ones((4, 3), np.float32))
    ...     np.save(Path(folder, "y_train.npy"), [0, 1, 0, 1])
    ...     data = load_npy(folder, test_share=0.0)
    ...     type(data.train.items).__name__
    'memmap'
    """
    folder = Path(argument).expanduser()
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder: npy: takes one with x_train.npy and y_train.npy")
    files = {file.stem: file for file in sorted(folder.glob("*.npy"))}
    require_arrays(folder, list(files))
    arrays = {name: _mapped(file) for name, file in files.items()}
    return data_of_arrays(f"npy:{argument}", folder, arrays, test_share=test_share, seed=seed, strict=strict)


def _mapped(file: Path) -> NDArray[Any]:
    try:
        array: NDArray[Any] = np.load(file, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # a damaged header breaks numpy's parser in any way
        raise FileFormatError(f"{file} is damaged, or pickled: it must be as np.save writes it ({error})") from error
    return array


SOURCES = (Source("npy", "FOLDER", "arrays of features or of images in .npy files, mapped into memory", load_npy),)
