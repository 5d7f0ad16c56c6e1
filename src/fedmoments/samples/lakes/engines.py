"""Where files are measured: in this process, by an executor, on a Dask cluster or by Ray.

The tree of merges has the same shape everywhere: files in their order, like the carries of a binary counter. So the
result is the same, bit for bit, whatever runs it and in whatever order files are done.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from typing import Any, Generic, Protocol, TypeVar

from fedmoments.errors import InputError
from fedmoments.samples.lakes.shard import FilesPlan, joined, measure_shard

__all__ = ["Carry", "Engine", "engine_of"]

Held = TypeVar("Held")
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
    """Measures files, and gives their accumulators as bytes."""

    def each(self, paths: list[str], plan: FilesPlan) -> Iterator[bytes]:
        """Yield the accumulator of every file, in their order."""

    def total(self, paths: list[str], plan: FilesPlan, done: Callable[[], None]) -> bytes:
        """Return all files as one; calls ``done`` for each that was measured."""


class _InOrder:
    """Merges here what :meth:`each` yields."""

    def each(self, paths: list[str], plan: FilesPlan) -> Iterator[bytes]:
        for path in paths:
            yield measure_shard(path, plan)

    def total(self, paths: list[str], plan: FilesPlan, done: Callable[[], None]) -> bytes:
        carry: Carry[bytes] = Carry(joined)
        for part in self.each(paths, plan):
            carry.add(part)
            done()
        return carry.total()


class _Pool(_InOrder):
    """Any ``concurrent.futures.Executor``."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    def each(self, paths: list[str], plan: FilesPlan) -> Iterator[bytes]:
        waiting: list[Future[bytes]] = []
        todo = iter(paths)
        try:
            for path in todo:
                waiting.append(self._executor.submit(measure_shard, path, plan))
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

    def total(self, paths: list[str], plan: FilesPlan, done: Callable[[], None]) -> bytes:
        submit, tries = self._client.submit, {"retries": RETRIES, "pure": False}
        parts = [submit(measure_shard, path, plan, **tries) for path in paths]
        for part in parts:
            part.add_done_callback(lambda _: done())
        carry: Carry[Any] = Carry(lambda one, other: submit(joined, one, other, **tries))
        for part in parts:
            carry.add(part)
        result: bytes = carry.total().result()
        return result


class _Ray(_InOrder):
    """Ray tasks, in the cluster that ``ray.init`` connected to."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        self._measure, self._join = (
            ray.remote(max_retries=RETRIES)(work) for work in (measure_shard, joined)
        )  # fmt: skip

    def each(self, paths: list[str], plan: FilesPlan) -> Iterator[bytes]:
        for part in [self._measure.remote(path, plan) for path in paths]:
            yield self._ray.get(part)

    def total(self, paths: list[str], plan: FilesPlan, done: Callable[[], None]) -> bytes:
        parts = [self._measure.remote(path, plan) for path in paths]
        carry: Carry[Any] = Carry(self._join.remote)
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
