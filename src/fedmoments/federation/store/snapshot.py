"""Snapshots: one file that holds the ledger as it was at one moment, and a checksum beside it.

The checksum is that of ``sha256sum``: ``<snapshot>.sha256`` can be checked with ``sha256sum -c``. A snapshot keeps what
it holds: a client that leaves later is still in it.
"""

import hashlib
import shutil
from pathlib import Path

from fedmoments.durable import DurableFile, part_of, put_in_place
from fedmoments.errors import FileFormatError, LedgerError

__all__ = ["check_snapshot", "write_snapshot"]


def write_snapshot(file: DurableFile, target: Path) -> str:
    """Copy the ledger as it is now, under its final name only once it is on the disk; return its SHA-256.

    Raises
    ------
    LedgerError
        When a file of that name exists, or it cannot be written.
    """
    checksum_file = _checksum_file(target)
    if checksum_file.exists():
        raise LedgerError(f"{checksum_file} exists and is not overwritten: choose another name, or move it away")
    with part_of(target) as part, part_of(checksum_file) as note:
        file.copy_to(part)
        checksum = _sha256(part)
        note.write_text(f"{checksum}  {target.name}\n", encoding="utf-8")
        put_in_place(part, target)
        put_in_place(note, checksum_file)
    return checksum


def check_snapshot(snapshot: Path, part: Path) -> str:
    """Copy a snapshot to ``part`` if its checksum is right; return the checksum.

    Raises
    ------
    FileFormatError
        When it was damaged, or lacks its checksum.
    """
    if not snapshot.is_file():
        raise LedgerError(f"there is no snapshot at {snapshot}")
    checksum_file = _checksum_file(snapshot)
    if not checksum_file.is_file():
        raise FileFormatError(f"the snapshot {snapshot} lacks its checksum: {checksum_file} must be in the same folder")
    noted = checksum_file.read_text(encoding="utf-8", errors="replace").split()[:1]
    shutil.copyfile(snapshot, part)
    checksum = _sha256(part)
    if noted != [checksum]:
        raise FileFormatError(
            f"the snapshot {snapshot} is damaged: its SHA-256 is {checksum}, but {' '.join(noted)!r} was noted when it "
            "was made; use another snapshot"
        )
    return checksum


def _checksum_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
