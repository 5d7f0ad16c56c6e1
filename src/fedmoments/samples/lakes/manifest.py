"""What of a lake is measured already, in one file: so that a run that was cut short goes on where it was.

The file holds the partial accumulators, log₂ of the files at most, and which files are in them, with their sizes and
times. It is written whole or not at all. A run that goes on merges in the same tree: the result is the same, bit for
bit.
"""

import hashlib
import json
import time
from pathlib import Path

import numpy as np

from fedmoments.errors import InputError, reading
from fedmoments.files import read_tensors, write_tensors
from fedmoments.samples.lakes.engines import Carry
from fedmoments.samples.lakes.shard import FilesPlan, joined

__all__ = ["Manifest"]

_KIND = "manifest"
#: Seconds between two times that it is written.
EVERY = 5.0


class Manifest:
    """The state of a run over files, kept in a file.

    Parameters
    ----------
    path
        Where it is kept; made when the first files are done.
    plan
        What is measured: a manifest of something else is refused.
    files
        All files, in order.
    """

    def __init__(self, path: Path, plan: FilesPlan, files: list[Path]) -> None:
        self.path, self._files = path, [_stamp(file) for file in files]
        self._plan = hashlib.sha256(json.dumps(plan.described(), sort_keys=True).encode()).hexdigest()
        self.done = 0
        self.carry: Carry[bytes] = Carry(joined)
        self._written = time.monotonic()
        if path.exists():
            self._load()

    def add(self, part: bytes) -> None:
        """Take in the next file."""
        self.carry.add(part)
        self.done += 1
        if time.monotonic() - self._written >= EVERY or self.done == len(self._files):
            self.write()

    def write(self) -> None:
        """Keep what is done so far."""
        partial = {f"part.{place}": np.frombuffer(part, np.uint8) for place, (_, part) in enumerate(self.carry.held)}
        header = {
            "plan": self._plan,
            "files": self._files[: self.done],
            "levels": [level for level, _ in self.carry.held],
        }
        write_tensors(self.path, _KIND, partial, header)
        self._written = time.monotonic()

    def _load(self) -> None:
        tensors, header = read_tensors(self.path, _KIND)
        with reading(f"{self.path} is not a valid manifest"):
            files, levels = header["files"], header["levels"]
            if header["plan"] != self._plan:
                raise InputError(f"{self.path} belongs to another measurement: remove it, or name another manifest")
            if files != self._files[: len(files)]:
                place = next(
                    (i for i, (a, b) in enumerate(zip(files, self._files, strict=False)) if a != b), len(self._files)
                )
                raise InputError(
                    f"{files[place][0]} is measured already, but was changed, moved or taken away since: remove "
                    f"{self.path} to measure everything again"
                )
            held = [(int(level), tensors[f"part.{place}"].tobytes()) for place, level in enumerate(levels)]
        self.carry, self.done = Carry(joined, held), len(files)


def _stamp(path: Path) -> list[str | int]:
    known = path.stat()
    return [str(path), known.st_size, known.st_mtime_ns]
