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
    >>> record.find(setting, "fedncm", {}, 0).accuracy
    0.9
    """

    def __init__(self, path: str | os.PathLike[str] | None, basis: str) -> None:
        self._path = Path(path) if path is not None else None
        self._basis = basis
        self._known: dict[str, Outcome] = {}
        self.found = 0
        if self._path and self._path.exists():
            self._read()

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

    def find(self, setting: Setting, head: str, hyper: dict[str, Any], seed: int) -> Outcome | None:
        """Return an outcome that was found before, or None."""
        outcome = self._known.get(self._key(setting, head, hyper, seed))
        self.found += outcome is not None
        return outcome

    def keep(self, setting: Setting, head: str, hyper: dict[str, Any], outcome: Outcome) -> None:
        """Remember an outcome."""
        key = self._key(setting, head, hyper, outcome.seed)
        self._known[key] = outcome
        if self._path:
            with self._path.open("ab") as file:
                file.write(json.dumps({"key": key, "outcome": outcome.to_dict()}).encode() + b"\n")

    def _key(self, setting: Setting, head: str, hyper: dict[str, Any], seed: int) -> str:
        basis = [self._basis, setting.to_dict(), head, hyper, seed]
        return hashlib.sha256(json.dumps(basis, sort_keys=True, default=str).encode()).hexdigest()
