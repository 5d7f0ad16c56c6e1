"""Content digests of samples, cheap the second time: a file that has not changed is not read again.

A file counts as unchanged while its path, size and time of modification (ns) are the same. A file that was modified
within the last two seconds is not remembered, because it may change again within the resolution of that time.
"""

import hashlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedmoments.durable import DurableFile, Kind
from fedmoments.errors import FileFormatError, LedgerError
from fedmoments.samples.samples import Hashed, Samples, item_digest

__all__ = ["FileDigests", "sample_digests"]

_TOO_FRESH_NS = 2_000_000_000
_TOGETHER = 1024
#: "fmDg". Homes on a network file system are common, where a write-ahead log does not work.
_KIND = Kind(
    "memory of digests",
    0x666D4467,
    "CREATE TABLE files (path TEXT PRIMARY KEY, size INTEGER, mtime_ns INTEGER, digest BLOB) WITHOUT ROWID;",
    journal="delete",
)
#: What this process has read already, so that a data set's digest after encoding reads nothing.
_SEEN: dict["_Stamp", bytes] = {}


class _Stamp(NamedTuple):
    path: str
    size: int
    mtime_ns: int


class FileDigests:
    """Digests of files, remembered in an SQLite file that several processes may share.

    Parameters
    ----------
    path
        Where to remember them; None remembers only within this process. A damaged file is replaced, and a place that
        cannot be written is done without: this is only a memory of what can be computed.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.txt").write_text("a")
    ...     digests = FileDigests(Path(folder, "digests.sqlite")).of([Path(folder, "a.txt")])
    >>> digests[0] == hashlib.sha256(b"filea").digest()
    True
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        #: How many files this object had to read.
        self.files_read = 0

    def of(self, paths: Sequence[Path]) -> list[bytes]:
        """Return the digest of each file; of a file that cannot be read, one that says so.

        Parameters
        ----------
        paths
            n files.

        Returns
        -------
        list[bytes]
            n digests of 32 bytes.
        """
        if self._path is None:
            return self._of(paths, None)
        try:
            return self._with_memory(paths, self._path)
        except LedgerError:  # read-only, locked for long, on a file system without locks
            return self._of(paths, None)
        except FileFormatError:  # not such a file (any more)
            self._path.unlink(missing_ok=True)
            return self._with_memory(paths, self._path)

    def _with_memory(self, paths: Sequence[Path], place: Path) -> list[bytes]:
        memory = DurableFile.at(place, _KIND)
        try:
            return self._of(paths, memory)
        finally:
            memory.close()

    def _of(self, paths: Sequence[Path], memory: DurableFile | None) -> list[bytes]:
        with ThreadPoolExecutor(4, thread_name_prefix="digest") as pool:
            return [digest for some in _slices(paths) for digest in self._of_some(some, memory, pool)]

    def _of_some(self, some: Sequence[Path], memory: DurableFile | None, pool: ThreadPoolExecutor) -> list[bytes]:
        stamps = list(pool.map(_stamp, some))
        known = _recall(memory, stamps)
        todo = [i for i, stamp in enumerate(stamps) if stamp is None or stamp not in known]
        computed = dict(zip(todo, pool.map(_read, [some[i] for i in todo]), strict=True))
        self.files_read += len(todo)
        fresh = _settled({stamps[i]: digest for i, digest in computed.items()})
        _SEEN.update(fresh)
        _remember(memory, fresh | {s: _SEEN[s] for s in known if s in _SEEN})
        return [computed[i] if i in computed else known[stamp] for i, stamp in enumerate(stamps)]  # type: ignore[index]


def _settled(computed: Mapping[_Stamp | None, bytes]) -> dict[_Stamp, bytes]:
    """Return the digests of files that were not changed just now, whose stamps can be relied on."""
    limit = time.time_ns() - _TOO_FRESH_NS
    return {stamp: digest for stamp, digest in computed.items() if stamp is not None and stamp.mtime_ns < limit}


def sample_digests(samples: Samples, files: FileDigests | None = None) -> NDArray[np.uint8]:
    """Return the content digests of samples, in order; those that were found before, unless a file has changed.

    Parameters
    ----------
    samples
        n samples, which remember what is found.
    files
        What remembers the digests of files.

    Returns
    -------
    NDArray[np.uint8]
        (n, 32): a row is the SHA-256 of :func:`~fedmoments.samples.samples.item_digest`.

    Examples
    --------
    >>> sample_digests(Samples(["one", "two"], np.array([0, 1]), ("a", "b"), "text")).shape
    (2, 32)
    """
    items, known = samples.items, samples.hashed
    are_files = _are_files(items)
    stamps = tuple(_stamp(path) for path in items) if are_files else ()
    if known is not None and known.stamps == stamps and None not in stamps:
        return known.digests
    if are_files:
        digests, may_keep = (files or FileDigests()).of(list(items)), True
    else:
        digests, may_keep = _of_each(items)
    table = np.frombuffer(b"".join(digests), dtype=np.uint8).reshape(len(digests), 32)
    if may_keep:
        samples.keep(Hashed(table, stamps))
    return table


def _are_files(items: Any) -> bool:
    return not isinstance(items, np.ndarray) and len(items) > 0 and all(isinstance(item, Path) for item in items)


def _of_each(items: Any) -> tuple[list[bytes], bool]:
    """Return the digests of items, and whether none of them is a file, which may change."""
    # Once through: items may be read from a table when they are requested.
    hashed = [(_of_any(item), isinstance(item, Path)) for item in items]
    return [digest for digest, _ in hashed], not any(is_file for _, is_file in hashed)


def _of_any(item: Any) -> bytes:
    return _read(item) if isinstance(item, Path) else item_digest(item)


def _slices(paths: Sequence[Path]) -> Iterator[Sequence[Path]]:
    return (paths[start : start + _TOGETHER] for start in range(0, len(paths), _TOGETHER))


def _stamp(path: Path) -> _Stamp | None:
    """Return what tells whether a file changed, or None when it cannot be read now (a changed mode keeps the time)."""
    try:
        status = path.stat()
    except OSError:
        return None
    return _Stamp(str(path.absolute()), status.st_size, status.st_mtime_ns) if os.access(path, os.R_OK) else None


def _read(path: Path) -> bytes:
    try:
        return item_digest(path)
    except OSError as error:
        return hashlib.sha256(f"unreadable {error.errno}".encode()).digest()


def _recall(memory: DurableFile | None, stamps: Sequence[_Stamp | None]) -> dict[_Stamp, bytes]:
    known = {stamp: _SEEN[stamp] for stamp in stamps if stamp in _SEEN}
    if memory is None:
        return known
    ask = "SELECT digest FROM files WHERE path = ? AND size = ? AND mtime_ns = ?"
    with memory.reading() as connection:
        for stamp in stamps:
            if stamp is not None and stamp not in known:
                row = connection.execute(ask, stamp).fetchone()
                if row is not None and isinstance(row[0], bytes) and len(row[0]) == 32:
                    known[stamp] = row[0]
    return known


def _remember(memory: DurableFile | None, digests: dict[_Stamp, bytes]) -> None:
    if memory is None or not digests:
        return
    with memory.writing() as connection:
        connection.executemany(
            "INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?)", [(*stamp, digest) for stamp, digest in digests.items()]
        )
