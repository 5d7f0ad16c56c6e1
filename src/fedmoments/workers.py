"""Who works besides this process: processes of this machine, or a Dask cluster.

Processes are started anew (``spawn``), with the threads of BLAS divided among them. They end with the process that
started them, whatever ends it: each holds one end of a pipe whose other end that process alone has, and leaves when the
operating system closes it. Ctrl-C is this process's to act on; workers ignore it and are ended with the pipe.
"""

import os
import shutil
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from fedmoments.errors import InputError
from fedmoments.extras import require

__all__ = ["workers_of"]

#: What BLAS libraries, and torch, read their number of threads from.
THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


@contextmanager
def workers_of(
    processes: int, cluster: str | None = None, *, option: str = "--workers", folder: Path | None = None
) -> Iterator[Any]:
    """Yield nothing (one process: this one), a ``concurrent.futures.Executor`` of processes, or a Dask client.

    Parameters
    ----------
    processes
        How many; 1 starts none.
    cluster
        Address of a Dask scheduler, whose workers do it instead.
    option
        What the number is called where it is typed, for messages.
    folder
        Files that processes read; the last one removes it, should this process be killed.

    Examples
    --------
    >>> with workers_of(1) as nobody:
    ...     print(nobody)
    None
    >>> with workers_of(0):
    ...     pass
    Traceback (most recent call last):
    fedmoments.errors.InputError: --workers is how many processes work, 1 or more; 0 arrived
    """
    if processes < 1:
        raise InputError(f"{option} is how many processes work, 1 or more; {processes} arrived")
    if cluster is not None:
        if processes > 1:
            raise InputError(f"{option} are processes of this machine, and --cluster has workers of its own: give one")
        with _client(cluster) as client:
            yield client
    elif processes > 1:
        with _pool(processes, folder) as pool:
            yield pool
    else:
        yield None


def _client(address: str) -> Any:
    distributed = require("distributed", "Working on a cluster", "dask")
    try:
        return distributed.Client(address, timeout="10s")
    except (OSError, ValueError, TypeError) as error:  # TypeError: tls:// without certificates in Dask's settings
        raise InputError(f"the cluster {address} cannot be reached: {error}") from error


@contextmanager
def _pool(processes: int, folder: Path | None) -> Iterator[ProcessPoolExecutor]:
    theirs, ours = Pipe(duplex=False)
    threads = str(max(1, (os.cpu_count() or 1) // processes))
    with _environment(dict.fromkeys(THREADS, threads)):
        pool = ProcessPoolExecutor(
            processes, mp_context=get_context("spawn"), initializer=_end_with_parent, initargs=(theirs, folder)
        )
        try:
            yield pool
            pool.shutdown()
        finally:  # after an error or Ctrl-C, what is being worked on is given up
            ours.close()
            pool.shutdown(cancel_futures=True)
            theirs.close()


def _end_with_parent(alive: Connection, folder: Path | None) -> None:
    """Leave, at once, when the process that started this one closes its end of the pipe, or is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_watch, args=(alive, folder), name="parent", daemon=True).start()


def _watch(alive: Connection, folder: Path | None) -> None:
    try:
        alive.recv_bytes()
    except (EOFError, OSError):
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        os._exit(1)


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """Let processes that are started now have these variables, unless somebody set them."""
    added = {name: value for name, value in values.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)
