"""Files that one process at a time writes to, on every system: ``flock`` where there is one, else Windows' ``msvcrt``.

A lock belongs to an open file and ends with it, also when its process is killed.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import IO, Any

fcntl: Any
try:
    fcntl = import_module("fcntl")
except ImportError:  # Windows
    fcntl = None

__all__ = ["lock", "locked_file", "private_descriptor", "read_at", "write_at"]

#: Windows locks bytes, and nobody else may read them: this one is beyond the end of every file of ours.
_FAR = 2**30
#: Seconds between two tries, where waiting has no call of its own.
_PAUSE = 0.05


def lock(file: IO[Any] | int, *, wait: bool = True) -> None:
    """Hold an open file for this process alone, until it is closed.

    Parameters
    ----------
    file
        A file or descriptor that may be written to.
    wait
        Until another process lets it go; else that is an error.

    Raises
    ------
    OSError
        When another process holds it, and this one does not wait.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder, open(Path(folder, "lock"), "a") as one:
    ...     lock(one)
    ...     with open(Path(folder, "lock"), "a") as other:
    ...         lock(other, wait=False)
    Traceback (most recent call last):
    BlockingIOError: ...
    """
    descriptor = file if isinstance(file, int) else file.fileno()
    if fcntl is not None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        return
    windows: Any = import_module("msvcrt")
    while True:
        place = os.lseek(descriptor, 0, os.SEEK_CUR)
        os.lseek(descriptor, _FAR, os.SEEK_SET)
        try:
            windows.locking(descriptor, windows.LK_NBLCK, 1)
        except OSError as error:
            if not wait:
                raise BlockingIOError(error.errno, "another process holds the file") from error
            time.sleep(_PAUSE)
            continue
        finally:
            os.lseek(descriptor, place, os.SEEK_SET)
        return


def private_descriptor(path: str | os.PathLike[str], flags: int = 0) -> int:
    """Open a file for reading and writing, made if need be, that only its owner may read; more ``flags`` of os.open."""
    system = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | system | flags, 0o600)
    if hasattr(os, "fchmod"):  # one that is there may have a wider mode
        os.fchmod(descriptor, 0o600)
    return descriptor


@contextmanager
def locked_file(path: str | os.PathLike[str]) -> Iterator[int]:
    """Yield the descriptor of a private file for reading and writing, made if need be, held for this process alone."""
    descriptor = private_descriptor(path)
    try:
        lock(descriptor)
        yield descriptor
    finally:
        os.close(descriptor)


def read_at(descriptor: int, size: int, place: int) -> bytes:
    """Return at most so many bytes of a file from a place on."""
    os.lseek(descriptor, place, os.SEEK_SET)
    return os.read(descriptor, size)


def write_at(descriptor: int, data: bytes, place: int) -> int:
    """Write bytes at a place of a file; return how many were written."""
    os.lseek(descriptor, place, os.SEEK_SET)
    return os.write(descriptor, data)
