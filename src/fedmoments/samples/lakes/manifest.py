"""What of a lake is measured already, in one file: so that a run that was cut short goes on where it was.

The file holds the partial accumulators, log₂ of the files at most, and which files are in them, with their sizes and
times. It is written whole or not at all. A run that goes on merges in the same tree: the result is the same, bit for
bit.
"""

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedmoments.errors import InputError, reading
from fedmoments.files import read_tensors, write_tensors
from fedmoments.samples.lakes.engines import Carry, Engine, Job, Join

__all__ = ["Manifest", "file_stamps", "gathered"]

_KIND = "manifest"
#: Seconds between two times that it is written.
EVERY = 5.0


class Manifest:
    """The state of a run over files, kept in a file.

    Parameters
    ----------
    path
        Where it is kept; made when the first files are done.
    what
        All that decides about the results, as JSON-able words: a manifest of something else is refused.
    files
        All files, in order.
    join
        Makes one of two results.
    """

    def __init__(self, path: Path, what: Mapping[str, Any], files: Sequence[Path], join: Join) -> None:
        self.path, self._files, self._join = path, file_stamps(files), join
        self._plan = hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()
        self.done = 0
        self.carry: Carry[bytes] = Carry(join)
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
        self.carry, self.done = Carry(self._join, held), len(files)


def gathered(
    engine: Engine,
    jobs: Sequence[Job],
    join: Join,
    manifest: Manifest | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> bytes:
    """Return what all jobs return, joined in the order of the files; those that a manifest holds are not done again.

    Parameters
    ----------
    engine
        Does them.
    jobs
        One a file.
    join
        Makes one of two results.
    manifest
        Keeps what is done.
    progress
        Called with the files that are done, and all.
    """
    done = 0 if manifest is None else manifest.done

    def tick() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, len(jobs))

    if manifest is None:
        return engine.total(jobs, join, tick)
    try:
        for part in engine.each(jobs[manifest.done :]):
            manifest.add(part)
            tick()
    finally:
        if manifest.done:
            manifest.write()
    return manifest.carry.total()


def file_stamps(files: Sequence[Path]) -> list[list[str | int]]:
    """Return name, size and time of files: what tells whether one was changed."""
    known = [(path, path.stat()) for path in files]
    return [[str(path), state.st_size, state.st_mtime_ns] for path, state in known]
