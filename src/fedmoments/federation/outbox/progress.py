"""How far a client is with encoding or measuring: a small file in its own folder, for those who wait there."""

import json
import os
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

__all__ = ["PROGRESS", "Done", "Progress", "read_progress"]

#: The file, and the seconds between two writings.
PROGRESS, PAUSE = "progress.json", 1.0


@dataclass(frozen=True)
class Done:
    """How many units are done of how many."""

    what: str
    unit: str
    done: int
    total: int


class Progress:
    """Writes how much is done; that it cannot be written stops nobody.

    Parameters
    ----------
    folder
        The client's own.
    what, unit
        What is done (``encoding``, ``measuring``), and to what (``sample``, ``file``).

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Progress(Path(folder), "encoding", "sample").move(3, 10)
    ...     read_progress(Path(folder))
    Done(what='encoding', unit='sample', done=3, total=10)
    """

    def __init__(self, folder: Path, what: str, unit: str) -> None:
        self._folder, self._what, self._unit, self._last = folder, what, unit, 0.0

    def move(self, done: int, total: int) -> None:
        """Write it, now and then, and at the end."""
        if done < total and time.monotonic() - self._last < PAUSE:
            return
        self._last = time.monotonic()
        part = self._folder / f".{PROGRESS}.{os.getpid()}"
        with suppress(OSError):
            part.write_text(json.dumps(asdict(Done(self._what, self._unit, done, total))), "utf-8")
            part.replace(self._folder / PROGRESS)


def read_progress(folder: Path) -> Done | None:
    """Return what was last written; None where nothing was."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        content = json.loads((folder / PROGRESS).read_text("utf-8"))
        return Done(str(content["what"]), str(content["unit"]), int(content["done"]), int(content["total"]))
    return None
