"""Where files are measured: in this process, by an executor, on a Dask cluster or by Ray.

The tree of merges has the same shape everywhere: files in their order, like the carries of a binary counter. So the
result is the same, bit for bit, whatever runs it and in whatever order files are done.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from typing import Any, Generic, Protocol, TypeVar

from fedmoments.errors import InputError

__all__ = ["Carry", "Engine", "Job", "Join", "engine_of"]

Held = TypeVar("Held")
#: What is done with one file, and how two results become one; both can be pickled.
Job = Callable[[], bytes]
Join = Callable[[bytes, bytes], bytes]
#: Files that an executor may have finished, or be busy with, before they are merged.
AHEAD = 64
#: How often a cluster tries a file again whose worker died.
RETRIES = 5


class Carry(Generic[Held]):
    """Partial results, merged two by two: after n of them, at most log₂ n are held.

    Examples
    --------
    >>> carry = Carry(lambda one, other: f"({one}{other})")
    >>> for letter in "abcde":
    ...     carry.add(letter)
    >>> carry.total()
    '(((ab)(cd))e)'
    """

    def __init__(self, merge: Callable[[Held, Held], Held], held: Iterable[tuple[int, Held]] = ()) -> None:
        self._merge = merge
        self.held = list(held)

    def add(self, part: Held) -> None:
        """Take in the next part."""
        level = 0
        while self.held and self.held[-1][0] == level:
            part = self._merge(self.held.pop()[1], part)
            level += 1
        self.held.append((level, part))

    def total(self) -> Held:
        """Return everything merged, the latest first; nothing is forgotten."""
        parts = [part for _, part in self.held]
        total = parts.pop()
        while parts:
            total = self._merge(parts.pop(), total)
        return total


class Engine(Protocol):
    """Does jobs, one a file, and gives what they return."""

    def each(self, jobs: Sequence[Job]) -> Iterator[bytes]:
        """Yield what every job returns, in their order."""

    def total(self, jobs: Sequence[Job], join: Join, done: Callable[[], None]) -> bytes:
        """Return what all jobs return, joined; calls ``done`` for each that was done."""


def _do(job: Job) -> bytes:
    return job()


class _InOrder:
    """Merges here what :meth:`each` yields."""

    def each(self, jobs: Sequence[Job]) -> Iterator[bytes]:
        for job in jobs:
            yield job()

    def total(self, jobs: Sequence[Job], join: Join, done: Callable[[], None]) -> bytes:
        carry: Carry[bytes] = Carry(join)
        for part in self.each(jobs):
            carry.add(part)
            done()
        return carry.total()


class _Pool(_InOrder):
    """Any ``concurrent.futures.Executor``."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    def each(self, jobs: Sequence[Job]) -> Iterator[bytes]:
        waiting: list[Future[bytes]] = []
        try:
            for job in jobs:
                waiting.append(self._executor.submit(_do, job))
                if len(waiting) == AHEAD:
                    yield waiting.pop(0).result()
            while waiting:
                yield waiting.pop(0).result()
        finally:
            for future in waiting:
                future.cancel()


class _Dask(_Pool):
    """A Dask client: files are measured and merged by its workers, and a file whose worker died is measured again."""

    def __init__(self, client: Any) -> None:
        super().__init__(client.get_executor(retries=RETRIES, pure=False))
        self._client = client

    def total(self, jobs: Sequence[Job], join: Join, done: Callable[[], None]) -> bytes:
        submit, tries = self._client.submit, {"retries": RETRIES, "pure": False}
        parts = [submit(_do, job, **tries) for job in jobs]
        for part in parts:
            part.add_done_callback(lambda _: done())
        carry: Carry[Any] = Carry(lambda one, other: submit(join, one, other, **tries))
        for part in parts:
            carry.add(part)
        result: bytes = carry.total().result()
        return result


class _Ray(_InOrder):
    """Ray tasks, in the cluster that ``ray.init`` connected to."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        self._do = ray.remote(max_retries=RETRIES)(_do)

    def each(self, jobs: Sequence[Job]) -> Iterator[bytes]:
        for part in [self._do.remote(job) for job in jobs]:
            yield self._ray.get(part)

    def total(self, jobs: Sequence[Job], join: Join, done: Callable[[], None]) -> bytes:
        parts = [self._do.remote(job) for job in jobs]
        carry: Carry[Any] = Carry(self._ray.remote(max_retries=RETRIES)(join).remote)
        for part in parts:
            carry.add(part)
        for part in parts:
            self._ray.wait([part])
            done()
        result: bytes = self._ray.get(carry.total())
        return result


def engine_of(executor: Any) -> Engine:
    """Return the engine for what was given: nothing, an executor, a Dask client, or the module ``ray``.

    Examples
    --------
    >>> engine_of(3)
    Traceback (most recent call last):
    fedmoments.errors.InputError: files are measured by a concurrent.futures.Executor, a Dask client or the module ...
    """
    if executor is None:
        return _InOrder()
    if isinstance(executor, Executor):
        return _Pool(executor)
    if hasattr(executor, "get_executor") and hasattr(executor, "scheduler_info"):
        return _Dask(executor)
    if getattr(executor, "__name__", None) == "ray":
        return _Ray(executor)
    raise InputError(
        "files are measured by a concurrent.futures.Executor, a Dask client or the module ray, but a "
        f"{type(executor).__name__} arrived"
    )
