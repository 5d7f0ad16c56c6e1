"""A crew: the same work in this process, in several or on a cluster, with the same results.

What all tasks have in common is made ready once. Processes get its large arrays as files that are mapped into memory:
one copy on the machine, however many read it. The workers of a cluster get it once each.

Processes are started anew, so that whatever they are given must be found there, too: a head or a baseline is an object
whose class stands in a module that can be imported.
"""

import hashlib
import io
import pickle
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Executor, Future, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.floats import current_precision, precision
from fedmoments.errors import FedMomentsError, InputError
from fedmoments.workers import workers_of

__all__ = ["Crew", "crew_of"]

Result = TypeVar("Result")
#: Arrays of so many bytes are files that processes map into memory.
LARGE = 2**16
#: Seconds to wait for the first worker of a cluster.
PATIENCE = 30


class Crew:
    """Whoever works on tasks; made by :func:`crew_of`.

    Parameters
    ----------
    workers
        Nothing (this process), an executor of processes, or a Dask client.
    folder
        Where arrays for processes are kept.

    Examples
    --------
    >>> sorted(Crew().start(divmod, 7, [2, 3]))
    [(0, (3, 1)), (1, (2, 1))]
    """

    def __init__(self, workers: Any = None, folder: Path | None = None) -> None:
        self._workers, self._folder = workers, folder
        self._files: dict[int, tuple[NDArray[Any], Path]] = {}

    @property
    def is_alone(self) -> bool:
        """Whether this process does it all."""
        return self._workers is None

    def start(
        self, work: Callable[[Any, Any], Result], common: Any, tasks: Sequence[Any]
    ) -> Iterator[tuple[int, Result]]:
        """Begin ``work(common, task)`` for all tasks; yield (place among the tasks, result) as they are done.

        Parameters
        ----------
        work
            A function of a module.
        common
            What all tasks share.
        tasks
            What each is about.

        Raises
        ------
        InputError
            When something cannot be sent to another process; whatever ``work`` raises is raised here.
        """
        if self._workers is None:
            return ((place, work(common, task)) for place, task in enumerate(tasks))
        return self._done(self._submitted(work, common, tasks))

    def _submitted(self, work: Callable[[Any, Any], Any], common: Any, tasks: Sequence[Any]) -> dict[Any, int]:
        if isinstance(self._workers, Executor):
            path = self._written(common)
            numbers = current_precision()
            return {self._workers.submit(_work_on_file, work, path, task, numbers): k for k, task in enumerate(tasks)}
        data = _pickled(common, None)
        try:
            self._workers.wait_for_workers(1, timeout=PATIENCE)
        except TimeoutError as error:
            raise InputError(
                f"the cluster has no workers after {PATIENCE} s: start some (dask worker ADDRESS), or work here with "
                "--jobs"
            ) from error
        everywhere = self._workers.scatter(data, broadcast=True, hash=False)
        # without retries: an error of the work is raised at once, and work whose worker died is done again anyway
        key, executor = hashlib.sha256(data).hexdigest(), self._workers.get_executor(pure=False)
        same = (work, everywhere, key, current_precision())
        return {executor.submit(_work_on_bytes, *same, task): k for k, task in enumerate(tasks)}

    def _done(self, futures: dict[Any, int]) -> Iterator[tuple[int, Any]]:
        waiting: dict[Future[Any], int] = dict(futures)
        try:
            for future in as_completed(futures):
                yield waiting.pop(future), future.result()
        except BrokenProcessPool as error:
            raise InputError(
                "a process that was started by --jobs ended before its work was done, as it does when memory runs "
                "out: what was found is kept where results are; fewer jobs need less memory"
            ) from error
        except Exception as error:
            if not _is_of_cluster(error):
                raise
            raise InputError(
                f"the cluster gave work up ({type(error).__name__}: {error}), as it does when its workers die, one "
                "after the other: what was found is kept where results are; look at the workers' logs and memory"
            ) from error
        finally:
            for future in waiting:
                future.cancel()

    def _written(self, common: Any) -> str:
        """Write what tasks share into the folder, its large arrays as files of their own, and return its path."""
        if self._folder is None:
            raise InputError("a crew of processes needs a folder: make it with crew_of")
        data = _pickled(common, self._file_of)
        path = self._folder / f"{hashlib.sha256(data).hexdigest()}.common"
        path.write_bytes(data)
        return str(path)

    def _file_of(self, array: NDArray[Any]) -> Path:
        """Return the file of an array, written once; the array is held, so that no other has its number."""
        known = self._files.get(id(array))
        if known is None and self._folder is not None:
            path = self._folder / f"{len(self._files)}.npy"
            np.save(path, array)
            known = self._files[id(array)] = (array, path)
        if known is None:
            raise InputError("a crew of processes needs a folder: make it with crew_of")
        return known[1]


@contextmanager
def crew_of(jobs: int = 1, cluster: str | None = None) -> Iterator[Crew]:
    """Yield a crew of this process alone, of so many processes besides, or of a Dask cluster.

    Parameters
    ----------
    jobs
        How many processes; 1: this one.
    cluster
        Address of a Dask scheduler: ``tcp://…`` or ``tls://…``.

    Examples
    --------
    >>> with crew_of(1) as crew:
    ...     print(crew.is_alone)
    True
    """
    with TemporaryDirectory(prefix="fedmoments-", ignore_cleanup_errors=True) as name:
        folder = Path(name) / "shared"
        folder.mkdir()
        with workers_of(jobs, cluster, option="--jobs", folder=folder) as workers:
            yield Crew(workers, folder)


def _is_of_cluster(error: Exception) -> bool:
    """Say whether an error is Dask's own: a worker that died too often, or what it held was lost."""
    return isinstance(error, CancelledError) or type(error).__module__.partition(".")[0] == "distributed"


# ------------------------------------------------------------------------------------------------ what travels


class _Pickler(pickle.Pickler):
    """Pickles; large arrays become the names of their files."""

    def __init__(self, out: io.BytesIO, file_of: Callable[[NDArray[Any]], Path]) -> None:
        super().__init__(out, pickle.HIGHEST_PROTOCOL)
        self._file_of = file_of

    def reducer_override(self, thing: Any) -> Any:
        large = isinstance(thing, np.ndarray) and thing.nbytes >= LARGE and not thing.dtype.hasobject
        return (_mapped, (str(self._file_of(thing)),)) if large else NotImplemented


def _mapped(path: str) -> NDArray[Any]:
    return np.asarray(np.load(path, mmap_mode="r").view(np.ndarray))


def _pickled(thing: Any, file_of: Callable[[NDArray[Any]], Path] | None) -> bytes:
    out = io.BytesIO()
    try:
        if file_of is None:
            pickle.Pickler(out, pickle.HIGHEST_PROTOCOL).dump(thing)
        else:
            _Pickler(out, file_of).dump(thing)
    except FedMomentsError:
        raise
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise _unsendable(error) from error
    return out.getvalue()


def _unsendable(error: Exception) -> InputError:
    return InputError(
        f"this cannot be sent to another process: {error}. Processes of --jobs and of a cluster start anew and import "
        "what they need: heads, baselines, moments and encoders of your own must be classes of a module that can be "
        "imported there (a file, an installed package), not defined inside a function, typed into an interpreter or "
        "registered in this process alone. Move them into a module, or run with one job"
    )


# ------------------------------------------------------------------------------------------------ in a worker


def _work_on_file(work: Callable[[Any, Any], Any], path: str, task: Any, numbers: str) -> Any:
    with precision(numbers):
        return work(_read(path), task)


@lru_cache(maxsize=1)
def _read(path: str) -> Any:
    return _unpickled(Path(path).read_bytes())


_LATEST: dict[str, Any] = {}


def _work_on_bytes(work: Callable[[Any, Any], Any], data: bytes, key: str, numbers: str, task: Any) -> Any:
    known = _LATEST.get(key)  # held: another thread of this worker may be about something else
    if known is None:
        known = _unpickled(data)
        _LATEST.clear()
        _LATEST[key] = known
    with precision(numbers):
        return work(known, task)


def _unpickled(data: bytes) -> Any:
    """Return what our own process pickled."""
    try:
        return pickle.loads(data)  # noqa: S301 - made by the process that started this one
    except (AttributeError, ImportError) as error:
        raise _unsendable(error) from error
