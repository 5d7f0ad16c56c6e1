"""What was measured before, by everything that it depends on: an interrupted run goes on, a repeated one is instant."""

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fedmoments.reproduction.measurement import Measurement

__all__ = ["Memory"]


class Memory:
    """Lists of measurements by fingerprint, in a file of one line each.

    Parameters
    ----------
    path
        File to append to; None keeps them in memory.

    Examples
    --------
    >>> memory = Memory(None)
    >>> memory.once(["laws", 0], lambda: [Measurement({"law": "prop1"}, (0.0,))])[0].mean
    0.0
    >>> memory.once(["laws", 0], lambda: [])[0].mean, memory.found
    (0.0, 1)
    """

    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        self._path = Path(path) if path is not None else None
        self._known: dict[str, list[Measurement]] = {}
        self.found = 0
        if self._path and self._path.exists():
            for line in self._path.read_bytes().splitlines():
                self._read(line)

    def _read(self, line: bytes) -> None:
        try:
            entry = json.loads(line)
            self._known[str(entry["key"])] = [Measurement.from_dict(each) for each in entry["measurements"]]
        except (ValueError, KeyError, TypeError):
            return  # cut off by an interruption: measured again

    def once(self, key: Any, measure: Callable[[], Sequence[Measurement]]) -> list[Measurement]:
        """Return what was measured under a key, or measure it now and remember it unless something failed.

        Parameters
        ----------
        key
            Everything that the measurements depend on, ready for JSON.
        measure
            Measures.
        """
        digest = hashlib.sha256(json.dumps(key, sort_keys=True, default=str).encode()).hexdigest()
        if digest in self._known:
            self.found += 1
            return self._known[digest]
        found = list(measure())
        if all(each.reason is None for each in found):
            self._keep(digest, found)
        return found

    def _keep(self, digest: str, found: list[Measurement]) -> None:
        self._known[digest] = found
        if self._path:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            entry = {"key": digest, "measurements": [each.to_dict() for each in found]}
            with self._path.open("ab") as file:
                # A line of its own, even after one that was cut off.
                file.write(b"\n" + json.dumps(entry, allow_nan=False).encode() + b"\n")
