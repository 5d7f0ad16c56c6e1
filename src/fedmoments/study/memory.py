"""What was measured before, by everything that it depends on: an interrupted run goes on, a repeated one is instant.

One line of JSON for each key, appended as it is measured. A line that was cut off by an interruption costs itself
alone. Of two lines with one key the last one counts.
"""

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from fedmoments.core.heads import Head
from fedmoments.core.observations import Observation
from fedmoments.core.observations.codec import from_plain, to_plain
from fedmoments.core.statistics import MOMENTS
from fedmoments.errors import FileFormatError
from fedmoments.provenance import code_of

__all__ = ["Memory", "Method", "identity_of"]


class Method(Protocol):
    """A head or a baseline: hyper-parameters, and the code of its class."""

    def settings(self) -> dict[str, Any]:
        """Return the hyper-parameters as plain values."""


def identity_of(method: Method) -> list[Any]:
    """Return what a head or baseline computes, ready for JSON: its class, hyper-parameters and code.

    The code of moments that it needs and that are not ours is part of it.

    Examples
    --------
    >>> from fedmoments.core.heads import make_head
    >>> identity_of(make_head("fedncm"))[:2]
    ['fedmoments.core.heads.nearest_mean.NearestMean', {'metric': 'cosine'}]
    """
    kind = type(method)
    needed = method.needs.moments if isinstance(method, Head) else ()
    moments = [code_of(type(MOMENTS[name])) for name in sorted(needed) if name in MOMENTS and _is_theirs(name)]
    return [f"{kind.__module__}.{kind.__qualname__}", method.settings(), code_of(kind), *moments]


def _is_theirs(moment: str) -> bool:
    return not MOMENTS.is_built_in(moment)


T = TypeVar("T")


@dataclass(frozen=True)
class _Observed:
    """What one key holds."""

    observations: tuple[Observation, ...]


class Memory:
    """Typed values by key, kept in a file from one run to the next.

    Parameters
    ----------
    path
        File to append to; None keeps them in memory.
    basis
        What all keys depend on besides: code, data, encoder. Another basis finds nothing.
    fresh
        Forget what the file holds.

    Attributes
    ----------
    found
        How much of what was requested was known; whoever uses a value that :meth:`find` returned counts it.
    added
        What was kept since it was made, as it stands in the file, by the digest of its key.

    Examples
    --------
    >>> memory = Memory(None, ["digits"])
    >>> memory.once(["laws", 0], lambda: [Observation({"law": "prop1"}, (0.0,))])[0].mean
    0.0
    >>> memory.once(["laws", 0], lambda: [])[0].mean, memory.found, len(memory)
    (0.0, 1, 1)
    """

    def __init__(self, path: str | os.PathLike[str] | None, basis: Sequence[str] = (), *, fresh: bool = False) -> None:
        self._path = Path(path) if path is not None else None
        self._basis = list(basis)
        self._known: dict[str, Any] = {}
        self.added: dict[str, Any] = {}
        self.found = 0
        if self._path and self._path.exists():
            if fresh:
                self._path.unlink()
            else:
                self._read(self._path)

    def _read(self, path: Path) -> None:
        for line in path.read_bytes().splitlines():
            try:
                entry = json.loads(line)
                self._known[str(entry["key"])] = entry["value"]
            except (ValueError, KeyError, TypeError):
                continue  # cut off: measured again

    def __len__(self) -> int:
        """Return how many keys are known."""
        return len(self._known)

    def find(self, key: Any, kind: type[T]) -> T | None:
        """Return the value of a key, or None where it is not known, or not of this kind."""
        plain = self._known.get(self._digest(key))
        if plain is None:
            return None
        try:
            return from_plain(kind, plain)
        except FileFormatError:  # of another release, in a development tree
            return None

    def keep(self, key: Any, value: Any) -> None:
        """Remember a dataclass, or a list of them, under a key."""
        self._hold(self._digest(key), to_plain(value))

    def apart(self) -> "Memory":
        """Return what is known now, for another process: without a file, and with nothing found or added yet."""
        copy = Memory(None, self._basis)
        copy._known = dict(self._known)
        return copy

    def take(self, added: Mapping[str, Any], found: int) -> None:
        """Keep what a memory that was set apart has added, and count what it has found.

        Examples
        --------
        >>> memory = Memory(None)
        >>> worker = memory.apart()
        >>> _ = worker.once(["laws"], lambda: [Observation({}, (1.0,))])
        >>> memory.take(worker.added, worker.found)
        >>> len(memory), memory.found
        (1, 0)
        """
        for digest, plain in added.items():
            self._hold(digest, plain)
        self.found += found

    def _hold(self, digest: str, plain: Any) -> None:
        self._known[digest] = self.added[digest] = plain
        if self._path:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            line = json.dumps({"key": digest, "value": plain}, allow_nan=False).encode()
            with self._path.open("ab") as file:
                file.write(self._line_end(file) + line + b"\n")

    def once(self, key: Any, measure: Callable[[], Sequence[Observation]]) -> list[Observation]:
        """Return what was observed under a key, or observe it now and remember it unless something failed.

        Parameters
        ----------
        key
            What the observations depend on besides the basis, ready for JSON.
        measure
            Observes.
        """
        known = self.find(key, _Observed)
        if known is not None:
            self.found += 1
            return list(known.observations)
        observed = list(measure())
        if all(observation.reason is None for observation in observed):
            self.keep(key, _Observed(tuple(observed)))
        return observed

    def _digest(self, key: Any) -> str:
        text = json.dumps([self._basis, key], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()

    def _line_end(self, file: Any) -> bytes:
        """Return the end of a line that was cut off, so that the next one does not become part of it."""
        if not file.tell() or self._path is None:
            return b""
        with self._path.open("rb") as written:
            written.seek(-1, os.SEEK_END)
            return b"" if written.read(1) == b"\n" else b"\n"
