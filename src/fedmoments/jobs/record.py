"""What an interrupted job has found already: one line of JSON an outcome, appended as it is found."""

import hashlib
import json
import os
from dataclasses import fields
from pathlib import Path
from typing import Any

from fedmoments.simulation.results import Outcome, Setting

__all__ = ["Record"]


class Record:
    """Outcomes by what they depend on, kept in a file from one run to the next.

    Parameters
    ----------
    path
        File to append to; None keeps them in memory.
    basis
        Whatever else outcomes depend on (data, encoder, version): another basis finds nothing.

    Examples
    --------
    >>> record = Record(None, "digits")
    >>> setting = Setting(10, "iid")
    >>> record.keep(setting, "fedncm", {}, Outcome(0, 0.9, 10, 640, 10, 0.01))
    >>> record.find(setting, "fedncm", {}, 0).accuracy, len(record)
    (0.9, 1)
    """

    def __init__(self, path: str | os.PathLike[str] | None, basis: str) -> None:
        self._path = Path(path) if path is not None else None
        self._basis = basis
        self._known: dict[str, Outcome] = {}
        self.found = 0
        if self._path and self._path.exists():
            self._read()
            self._end_line()

    def _read(self) -> None:
        names = {field.name for field in fields(Outcome)}
        lines = self._path.read_bytes().splitlines() if self._path else []
        for line in lines:
            try:
                entry = json.loads(line)
                outcome = Outcome(**{name: entry["outcome"][name] for name in names})
                self._known[str(entry["key"])] = outcome
            except (ValueError, KeyError, TypeError):
                continue  # a line that was cut off by the interruption: that outcome is found again

    def _end_line(self) -> None:
        """End a line that was cut off, so that the next outcome does not become part of it."""
        if self._path:
            with self._path.open("ab+") as file:
                if file.tell():
                    file.seek(-1, os.SEEK_END)
                    if file.read(1) != b"\n":
                        file.write(b"\n")

    def __len__(self) -> int:
        """Return how many outcomes are known."""
        return len(self._known)

    def find(self, setting: Setting, head: str, hyper: dict[str, Any], seed: int) -> Outcome | None:
        """Return an outcome that was found before, or None."""
        outcome = self._known.get(self._key(setting, head, hyper, seed))
        self.found += outcome is not None
        return outcome

    def keep(self, setting: Setting, head: str, hyper: dict[str, Any], outcome: Outcome) -> None:
        """Remember an outcome, unless the head could not be fitted: more memory, say, may change that."""
        if outcome.reason is not None:
            return
        key = self._key(setting, head, hyper, outcome.seed)
        self._known[key] = outcome
        if self._path:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("ab") as file:
                file.write(json.dumps({"key": key, "outcome": outcome.to_dict()}).encode() + b"\n")

    def _key(self, setting: Setting, head: str, hyper: dict[str, Any], seed: int) -> str:
        basis = [self._basis, setting.to_dict(), head, hyper, seed]
        return hashlib.sha256(json.dumps(basis, sort_keys=True, default=str).encode()).hexdigest()
