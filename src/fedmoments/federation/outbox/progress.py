"""How far a client is with encoding: a small file in its own folder, for those who wait on the same machine."""

import json
import os
import time
from contextlib import suppress
from pathlib import Path

__all__ = ["PROGRESS", "Progress", "read_progress"]

#: The file, and the seconds between two writings.
PROGRESS, PAUSE = "progress.json", 1.0


class Progress:
    """Writes how many samples are encoded; that it cannot be written stops nobody.

    Parameters
    ----------
    folder
        The client's own.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Progress(Path(folder)).move(3, 10)
    ...     read_progress(Path(folder))
    {'done': 3, 'total': 10}
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._last = folder, 0.0

    def move(self, done: int, total: int) -> None:
        """Write it, now and then, and at the end."""
        if done < total and time.monotonic() - self._last < PAUSE:
            return
        self._last = time.monotonic()
        part = self._folder / f".{PROGRESS}.{os.getpid()}"
        with suppress(OSError):
            part.write_text(json.dumps({"done": done, "total": total}), "utf-8")
            part.replace(self._folder / PROGRESS)


def read_progress(folder: Path) -> dict[str, int]:
    """Return how many samples are encoded (``done``) of how many (``total``); nothing where nobody encodes."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        content = json.loads((folder / PROGRESS).read_text("utf-8"))
        return {"done": int(content["done"]), "total": int(content["total"])}
    return {}
