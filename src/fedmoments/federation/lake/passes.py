"""Passes over the files of a lake: by whom, with what is done kept on the disk, and with word of how far they are."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedmoments.federation.outbox.progress import Progress
from fedmoments.samples.lakes.engines import Engine, Job, Join, engine_of
from fedmoments.samples.lakes.manifest import Manifest, file_stamps, gathered
from fedmoments.workers import workers_of

__all__ = ["Passes"]

#: How files in the party's folder begin that keep what is done.
KEPT = "lake-"


class Passes:
    """Passes over one lake.

    Parameters
    ----------
    files
        All of it, in order.
    workers, cluster
        How many processes of this machine work, or the address of a Dask scheduler whose workers do.
    folder
        The party's own, which keeps what is done; None keeps nothing.

    Examples
    --------
    >>> passes = Passes([], workers=1)
    >>> with passes.engine() as engine:
    ...     passes.over(engine, "survey", {}, [lambda: b"a", lambda: b"b"], lambda one, other: one + other)
    b'ab'
    """

    def __init__(
        self, files: Sequence[Path], *, workers: int | None = None, cluster: str | None = None, folder: str = ""
    ) -> None:
        self.files, self._workers, self._cluster = tuple(files), 1 if workers is None else workers, cluster
        self._folder = Path(folder) if folder else None
        self._stamps = file_stamps(self.files)

    @contextmanager
    def engine(self) -> Iterator[Engine]:
        """Yield what does the work."""
        with workers_of(self._workers, self._cluster) as executor:
            yield engine_of(executor)

    def over(self, engine: Engine, name: str, what: Mapping[str, Any], jobs: Sequence[Job], join: Join) -> bytes:
        """Return the results of jobs, one a file, joined; a pass that was cut short goes on where it was.

        Parameters
        ----------
        engine
            Does them.
        name
            Of the pass; the folder keeps one of each.
        what
            All that decides about the results.
        jobs, join
            As of :func:`fedmoments.samples.lakes.manifest.gathered`.
        """
        if self._folder is None:
            return gathered(engine, jobs, join)
        own = self._path(name, what)
        for former in self._folder.glob(f"{KEPT}{name}-*"):
            if former != own:
                former.unlink(missing_ok=True)
        move = Progress(self._folder, "measuring", "file").move
        return gathered(engine, jobs, join, Manifest(own, what, self.files, join), move)

    def done(self, name: str) -> None:
        """Remove what the folder keeps of a pass."""
        for former in self._folder.glob(f"{KEPT}{name}-*") if self._folder else ():
            former.unlink(missing_ok=True)

    def _path(self, name: str, what: Mapping[str, Any]) -> Path:
        text = json.dumps([self._stamps, dict(what)], sort_keys=True)
        folder = self._folder or Path()
        return folder / f"{KEPT}{name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
