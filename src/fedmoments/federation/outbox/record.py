"""A client's own record of everything that left it: plain text, append-only, a JSON object a line.

Lines are written and forced to the disk before the change that they tell of is committed. So after a kill, or on a
full disk, the record may tell of something that then did not happen, but never lacks something that did. Every line is
one ``write``; a line that a kill cut off stays as it is, and the next one begins on a line of its own.
"""

import errno
import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedmoments.durable.locks import private_descriptor, read_at

__all__ = ["Record"]


class Record:
    """Lines that wait for the end of a transaction, and the file that they go to.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     record = Record(Path(folder, "record.jsonl"))
    ...     record.add("sent", client="clinic", version=1, sentence=None)
    ...     record.flush()
    ...     sorted(json.loads(record.path.read_text()))
    ['client', 'event', 'time', 'version']
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lines: list[bytes] = []

    def add(self, event: str, **facts: Any) -> None:
        """Keep a line for :meth:`flush`; facts that are None are left out."""
        known = {name: value for name, value in facts.items() if value is not None}
        line = {"time": datetime.now(UTC).isoformat(timespec="microseconds"), "event": event, **known}
        self._lines.append(json.dumps(line).encode("ascii") + b"\n")

    def begin(self, connection: object) -> None:
        """Begin with no lines."""

    def flush(self) -> None:
        """Write all lines that wait, and force them to the disk."""
        if not self._lines:
            return
        descriptor = self._open()
        try:
            size = os.fstat(descriptor).st_size
            if size and read_at(descriptor, 1, size - 1) != b"\n":  # cut off by a kill, or by a full disk
                self._lines[0] = b"\n" + self._lines[0]
            for line in self._lines:
                if os.write(descriptor, line) != len(line):
                    raise OSError(errno.ENOSPC, "a line was written in part", str(self.path))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        self._lines.clear()

    def make(self) -> None:
        """Make the file if it is not there; only its owner may read it."""
        os.close(self._open())

    def _open(self) -> int:
        return private_descriptor(self.path, os.O_APPEND)

    def drop(self) -> None:
        """Forget all lines that wait."""
        self._lines.clear()
