"""Files that get their name once they are whole and on the disk, and that their owner alone reads."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedmoments.errors import LedgerError

__all__ = ["has_log", "is_copy", "is_writable", "make_folder", "narrow", "part_of", "put_in_place", "refuse_taken"]

#: What SQLite puts beside a file.
BESIDE = ("-wal", "-shm", "-journal")


@contextmanager
def part_of(target: Path) -> Iterator[Path]:
    """Yield an empty file beside ``target`` to write to, mode 0600; whatever is left of it is removed at the end.

    Raises
    ------
    LedgerError
        When it cannot be made or written.
    """
    part: Path | None = None
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
        os.close(descriptor)
        part = Path(name)
        yield part
    except OSError as error:
        raise LedgerError(f"{target} cannot be written ({error}): correct that and try again") from error
    finally:
        if part is not None:
            for suffix in ("", *BESIDE):
                part.with_name(part.name + suffix).unlink(missing_ok=True)


def refuse_taken(target: Path) -> None:
    """Refuse a name that a file has, or the log of a former one.

    Raises
    ------
    LedgerError
        When it has.
    """
    for taken in (target, *(target.with_name(f"{target.name}{suffix}") for suffix in ("-wal", "-journal"))):
        if taken.exists():
            raise LedgerError(f"{taken} exists and is not overwritten: choose another name, or move it away")


def put_in_place(part: Path, target: Path) -> None:
    """Force a finished file and its name to the disk; never overwrite, not even in a race.

    Raises
    ------
    LedgerError
        When there is a file of that name, or the log of a former one.
    """
    refuse_taken(target)
    if part.with_name(f"{part.name}-wal").exists():
        raise OSError(f"what was written could not be folded into {part}")
    force(part, os.O_RDWR)
    try:
        os.link(part, target)
    except FileExistsError as error:
        raise LedgerError(f"{target} exists and is not overwritten: choose another name, or move it away") from error
    part.unlink()
    force(target.parent)


def is_writable(path: Path) -> bool:
    """Say whether a file and its folder can be written by this process: not on read-only media, nor if it may not."""
    return os.access(path, os.W_OK) and os.access(path.absolute().parent, os.W_OK)


def is_copy(path: Path) -> bool:
    """Say whether a file is a copy without a log whose checksum lies beside it: opened for writing, it would change."""
    if not path.is_file() or not path.with_name(f"{path.name}.sha256").is_file():
        return False
    with path.open("rb") as file:
        return file.read(20)[18:] == b"\1\1"  # SQLite: versions for writing and reading; 2 is a write-ahead log


def has_log(path: Path) -> bool:
    """Say whether something stands in the log beside a file that is not folded into it."""
    log = path.with_name(f"{path.name}-wal")
    return log.exists() and log.stat().st_size > 0


def make_folder(folder: Path) -> None:
    """Make a folder and those around it that are not there, mode 0700, and force their names to the disk."""
    if not folder.is_dir():
        make_folder(folder.parent)
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:
            if not folder.is_dir():  # else another process was faster
                raise
        force(folder.parent)


def narrow(path: Path, what: str) -> None:
    """Take a file and its log from all but their owner; new logs get the mode of the file from SQLite.

    By name: to open and close the file would let go of the locks that this process holds on it.
    """
    for suffix in ("", *BESIDE):
        place = path.with_name(f"{path.name}{suffix}")
        try:
            mode = place.stat().st_mode & 0o777
        except OSError:  # not there, or not to be read: then opening it says so
            continue
        try:
            if mode & 0o077:
                place.chmod(mode & 0o600)
        except FileNotFoundError:  # a log that another process closed meanwhile
            continue
        except OSError as error:
            raise LedgerError(
                f"others may use {what} {place} (mode {mode:04o}), which must be its owner's alone, and this process "
                f"cannot change that ({error}): let its owner run 'chmod 600 {place}'"
            ) from error


def force(path: Path, flags: int = os.O_RDONLY) -> None:
    """Force a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
