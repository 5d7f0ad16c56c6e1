"""The feature cache: what an encoder made of a sequence of samples, on disk, so that it is computed once.

An entry is addressed by content: the encoder's fingerprint and behaviour, and the digests of all samples in order.

============================  =========================================================================================
CACHE/digests.sqlite          digests of files, by path, size and time of modification
CACHE/features/E/B/behaviour  what encoders with the fingerprint E do, as text: those that agree with it share B
CACHE/features/E/B/D.lock     held (``flock``) by the process that reads or fills the entry of data D; others wait
CACHE/features/E/B/D/about    JSON: format, encoder, dimension d and number n of samples
CACHE/features/E/B/D/items    n digests of 32 bytes
CACHE/features/E/B/D/rows     raw little-endian float32, d a row; samples that could not be used have no row
CACHE/features/E/B/D/journal  a line a block: CRC-32 of the rest of the line, and JSON of a `Block`
============================  =========================================================================================

A block is written to ``rows`` and synced before its line is written to ``journal`` and synced: whatever the journal
says is there. After a kill, or when a line or the rows of a block do not match their checksum, the entry is sound up
to that block and continues from there. Nothing is unpickled. Samples that another entry of the same encoder holds (the
data grew, or were split by another seed) are copied from it.
"""

import json
import os
import shutil
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.durable.locks import lock
from fedmoments.errors import InputError
from fedmoments.files import write_whole
from fedmoments.samples.encoders.folders import cache_root
from fedmoments.samples.encoders.probe import Behaviour

__all__ = ["Block", "CacheEntry", "Known", "feature_folder", "open_entry"]

#: Version of the layout above; other versions live in other folders.
FORMAT = 2
_NAME_LENGTH = 32


def feature_folder(given: str | os.PathLike[str] | None) -> Path:
    """Return the cache folder that was given, or the default one; it is made if it is not there.

    Raises
    ------
    InputError
        When it cannot be written.
    """
    folder = cache_root(given)
    try:
        (folder / "features").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"the feature cache {folder} cannot be written ({error.strerror}): set FEDMOMENTS_CACHE to another folder, "
            "or do without a cache"
        ) from error
    return folder


@dataclass(frozen=True)
class Block:
    """Samples start … stop − 1: how many rows they have, the rows' CRC-32, and who has none, with the reason."""

    start: int
    stop: int
    rows: int
    checksum: int
    bad: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, eq=False)
class Known:
    """What is known of samples from elsewhere, by place: rows (d,), and reasons why there is none."""

    rows: Mapping[int, NDArray[np.float32]]
    bad: Mapping[int, str]


class CacheEntry:
    """One sequence of samples under one encoder; made by `open_entry`, which holds its lock.

    Examples
    --------
    See `open_entry`.
    """

    def __init__(self, folder: Path, digests: NDArray[np.uint8], dim: int, about: Mapping[str, Any]) -> None:
        self._folder, self._digests, self._dim, self._about = folder, digests, dim, dict(about)
        self._blocks: list[Block] = []

    @property
    def done(self) -> int:
        """How many samples, from the first, are settled."""
        return self._blocks[-1].stop if self._blocks else 0

    @property
    def complete(self) -> bool:
        """Whether all samples are settled."""
        return self.done == len(self._digests)

    @property
    def n_rows(self) -> int:
        """How many rows are stored."""
        return sum(block.rows for block in self._blocks)

    @property
    def bad(self) -> dict[int, str]:
        """Samples that have no row, with the reason."""
        return {place: why for block in self._blocks for place, why in block.bad}

    def load(self) -> None:
        """Find what is sound; a fresh entry, or one that is not about these samples, begins anew."""
        try:
            about = json.loads((self._folder / "about").read_bytes())
            sound = all(about[key] == self._about[key] for key in ("format", "fingerprint", "dim", "samples"))
            sound = sound and (self._folder / "items").read_bytes() == self._digests.tobytes()
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            sound = False
        if not sound:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder.mkdir(parents=True, exist_ok=True)
            write_whole(self._folder / "items", self._digests.tobytes())
            write_whole(self._folder / "about", json.dumps(self._about).encode())
        self._blocks, sound_bytes = sound_blocks(self._folder, self._dim)
        with (self._folder / "journal").open("ab") as journal:
            journal.truncate(sound_bytes)
        with (self._folder / "rows").open("ab") as rows:
            # Never shorter than it was while blocks are missing: another process may have mapped it.
            if self.complete:
                rows.truncate(4 * self._dim * self.n_rows)

    def append(self, stop: int, rows: NDArray[np.float32], bad: Mapping[int, str]) -> None:
        """Settle the samples up to `stop`: store their rows (r, d), and why the others have none."""
        data = np.ascontiguousarray(rows, dtype="<f4").tobytes()
        block = Block(self.done, stop, len(rows), zlib.crc32(data), tuple(sorted(bad.items())))
        _write_at(self._folder / "rows", 4 * self._dim * self.n_rows, data)
        line = json.dumps(asdict(block), separators=(",", ":"))
        with (self._folder / "journal").open("ab") as journal:
            journal.write(f"{zlib.crc32(line.encode()):08x} {line}\n".encode())
            journal.flush()
            os.fsync(journal.fileno())
        self._blocks.append(block)
        if self.complete:
            with (self._folder / "rows").open("r+b") as file:
                file.truncate(4 * self._dim * self.n_rows)

    def features(self) -> NDArray[np.float32]:
        """Return the rows (r, d), mapped into memory, read-only."""
        return _mapped(self._folder, self.n_rows, self._dim)

    def known_elsewhere(self) -> Known:
        """Find samples that are still to do in other entries of the same encoder."""
        wanted: dict[bytes, list[int]] = {}
        for place in range(self.done, len(self._digests)):
            wanted.setdefault(self._digests[place].tobytes(), []).append(place)
        rows: dict[int, NDArray[np.float32]] = {}
        bad: dict[int, str] = {}
        for other in sorted(self._folder.parent.iterdir()):
            if other != self._folder and other.is_dir() and wanted:
                _harvest(other, self._about, wanted, rows, bad)
        return Known(rows, bad)


@contextmanager
def open_entry(
    cache: Path,
    fingerprint: str,
    behaviour: Behaviour,
    digests: NDArray[np.uint8],
    dim: int,
    *,
    encoder_name: str = "",
) -> Iterator[CacheEntry]:
    """Open the entry of samples under an encoder, alone: another process that asks for it waits.

    Parameters
    ----------
    cache
        The cache folder.
    fingerprint, behaviour
        Of the encoder.
    digests
        (n, 32) digests of the samples, in order.
    dim
        Dimension d of the features.
    encoder_name
        For people who look into the cache.

    Examples
    --------
    >>> import tempfile
    >>> digests, does = np.zeros((2, 32), np.uint8), Behaviour.of(np.ones((4, 3)))
    >>> with tempfile.TemporaryDirectory() as folder, open_entry(Path(folder), "f", does, digests, 3) as entry:
    ...     entry.append(2, np.ones((1, 3), np.float32), {1: "it is damaged"})
    ...     entry.complete, entry.features().shape, entry.bad
    (True, (1, 3), {1: 'it is damaged'})
    """
    data = sha256(f"{FORMAT} {dim} {len(digests)}\n".encode() + digests.tobytes()).hexdigest()[:_NAME_LENGTH]
    place = _place(cache / "features" / sha256(fingerprint.encode()).hexdigest()[:_NAME_LENGTH], behaviour)
    about = {
        "format": FORMAT,
        "fingerprint": fingerprint,
        "encoder": encoder_name,
        "dim": dim,
        "samples": len(digests),
    }
    with _alone(place / f"{data}.lock"):
        entry = CacheEntry(place / data, digests, dim, about)
        entry.load()
        yield entry


def _place(folder: Path, behaviour: Behaviour) -> Path:
    """Return the folder of encoders that do the same: that of one that was here before, or a new one.

    Two processes that come first at the same time may each make one; then some features are computed twice.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for other in sorted(folder.iterdir()):
        try:
            if Behaviour.from_text((other / "behaviour").read_text("ascii")).agrees(behaviour):
                return other
        except (OSError, ValueError):  # not of this format, or damaged: a folder of one's own does no harm
            continue
    place = folder / behaviour.digest[:_NAME_LENGTH]
    place.mkdir(exist_ok=True)
    write_whole(place / "behaviour", behaviour.to_text().encode())
    return place


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Hold a lock file; it is left behind, because removing it would race with a process that waits for it."""
    with path.open("ab") as file:
        lock(file)
        yield


def sound_blocks(folder: Path, dim: int) -> tuple[list[Block], int]:
    """Return the blocks of an entry up to the first that is damaged, and how many bytes of the journal they take."""
    if not (folder / "journal").is_file() or not (folder / "rows").is_file():
        return [], 0
    blocks: list[Block] = []
    taken = row = 0
    with (folder / "rows").open("rb") as rows, (folder / "journal").open("rb") as journal:
        for line in journal:
            block = _parse(line, blocks[-1].stop if blocks else 0)
            if block is None or _checksum(rows, 4 * dim * row, 4 * dim * block.rows) != block.checksum:
                break
            blocks.append(block)
            taken += len(line)
            row += block.rows
    return blocks, taken


def _parse(line: bytes, start: int) -> Block | None:
    """Read a line of the journal; None when it is torn, damaged, or not about the samples from `start`."""
    try:
        checksum, text = line.decode().split(" ", 1)
        if not text.endswith("\n") or int(checksum, 16) != zlib.crc32(text[:-1].encode()):
            return None
        fields = json.loads(text)
        bad = tuple((int(place), str(why)) for place, why in fields["bad"])
        block = Block(int(fields["start"]), int(fields["stop"]), int(fields["rows"]), int(fields["checksum"]), bad)
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return block if block.start == start < block.stop and block.rows + len(bad) == block.stop - start else None


def _checksum(file: Any, offset: int, size: int) -> int | None:
    """Return the CRC-32 of a stretch of a file, or None when the file ends before it does."""
    file.seek(offset)
    checksum = 0
    while size:
        data = file.read(min(size, 1 << 22))
        if not data:
            return None
        checksum = zlib.crc32(data, checksum)
        size -= len(data)
    return checksum


def _write_at(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _mapped(folder: Path, n_rows: int, dim: int) -> NDArray[np.float32]:
    if not n_rows:
        return np.zeros((0, dim), np.float32)
    mapped: NDArray[np.float32] = np.memmap(folder / "rows", "<f4", "r", 0, (n_rows, dim)).view(np.ndarray)
    return mapped


def _harvest(
    folder: Path,
    about: Mapping[str, Any],
    wanted: dict[bytes, list[int]],
    rows: dict[int, NDArray[np.float32]],
    bad: dict[int, str],
) -> None:
    """Move what an entry knows of the wanted samples out of `wanted`, into `rows` and `bad`."""
    digests = _digests_of(folder, about)
    if wanted.keys().isdisjoint(digests):
        return
    blocks, _ = sound_blocks(folder, about["dim"])
    features = _mapped(folder, sum(block.rows for block in blocks), about["dim"])
    reasons = {place: why for block in blocks for place, why in block.bad}
    row = 0
    for place in range(blocks[-1].stop if blocks else 0):
        why = reasons.get(place)
        for mine in wanted.pop(digests[place], ()):
            if why is None:
                rows[mine] = features[row]
            else:
                bad[mine] = why
        row += why is None


def _digests_of(folder: Path, about: Mapping[str, Any]) -> Sequence[bytes]:
    try:
        theirs = json.loads((folder / "about").read_bytes())
        items = (folder / "items").read_bytes()
        if any(theirs[key] != about[key] for key in ("format", "fingerprint", "dim")):
            return ()
        if len(items) != 32 * theirs["samples"]:
            return ()
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return ()
    return [items[start : start + 32] for start in range(0, len(items), 32)]
