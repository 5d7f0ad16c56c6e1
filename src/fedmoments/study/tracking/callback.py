"""What a callback is, and which ones ``--track`` knows by name.

Trackers are built in (the ``ENTRIES`` of every file of this package), of installed packages (entry points of the group
``fedmoments.trackers``), or registered at run time. A callback gets figures and paths of files; it is never asked to
serialise an object, so nothing is pickled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from fedmoments.core.observations import Observation, Report
from fedmoments.errors import InputError
from fedmoments.registry import Registry, scan

__all__ = ["TRACKERS", "Callback", "Tracker", "call_all", "make_trackers", "register_tracker", "tracking"]


class Callback:
    """Called while a study runs; each method does nothing unless it is overridden.

    An exception in a callback ends the study. With a results folder, the same command continues from there.

    Examples
    --------
    >>> class Best(Callback):
    ...     accuracy = 0.0
    ...     def on_result(self, result):
    ...         if result.quantity == "accuracy" and result.mean is not None:
    ...             self.accuracy = max(self.accuracy, result.mean)
    >>> best = Best()
    >>> best.on_result(Observation({"head": "fedncm", "clients": 10}, (0.8,), seeds=(0,)))
    >>> best.accuracy
    0.8
    """

    #: Where results go, for the last line of a command; empty: nothing is printed.
    place = ""

    def on_start(self, config: Mapping[str, Any]) -> None:
        """Begin a study with this configuration."""

    def on_result(self, result: Observation) -> None:
        """Take one figure of one method, setting and seed; ``round`` is in ``result.where`` where there are rounds."""

    def on_end(self, report: Report, files: Sequence[Path]) -> None:
        """End a study: everything that was found, and the files that were written."""

    def on_stop(self) -> None:
        """End a study that was interrupted or failed."""


@dataclass(frozen=True)
class Tracker:
    """An entry of the registry: a callback that ``--track`` makes.

    Parameters
    ----------
    name
        What users type.
    make
        Called with what was typed behind ``NAME:`` (empty if nothing was) and with the results folder, if any.
    """

    name: str
    make: Callable[[str, Path | None], Callback]


Given = TypeVar("Given")


def _accept(given: Any, name: str | None) -> Tracker:
    if isinstance(given, Tracker):
        return given
    if not callable(given):
        raise InputError("it must be a Tracker, or make a Callback from (place, results folder)")
    return Tracker(str(name or given.__name__.lower()), given)


TRACKERS: Registry[Tracker] = Registry(
    "tracker", group="fedmoments.trackers", accept=_accept, built_in=scan("fedmoments.study.tracking", "ENTRIES")
)


def register_tracker(tracker: Given, name: str | None = None) -> Given:
    """Make a tracker known to ``--track`` in this process; also a class decorator.

    Parameters
    ----------
    tracker
        A :class:`Tracker`, or a class (or function) that makes a :class:`Callback` from ``(place, results folder)``.
    name
        What users type; its own name by default.

    Examples
    --------
    >>> @register_tracker
    ... class Silent(Callback):
    ...     def __init__(self, place, out):
    ...         self.place = place
    >>> make_trackers(["silent:nowhere"], None)[0].place
    'nowhere'
    >>> TRACKERS.remove("silent")
    """
    TRACKERS.register(tracker, name)
    return tracker


def make_trackers(texts: Iterable[str], out: Path | None) -> tuple[Callback, ...]:
    """Return the callbacks of ``NAME`` or ``NAME:PLACE``, as they are typed.

    Raises
    ------
    UnknownNameError
        When there is no tracker of that name.
    MissingExtraError
        When its package is not installed.
    """
    parts = [text.partition(":") for text in texts]
    return tuple(TRACKERS.find(name).make(place, out) for name, _, place in parts)


def call_all(callbacks: Sequence[Callback], results: Iterable[Observation]) -> None:
    """Hand results to every callback, in order."""
    if callbacks:
        for result in results:
            for callback in callbacks:
                callback.on_result(result)


@contextmanager
def tracking(callbacks: Sequence[Callback], config: Mapping[str, Any]) -> Iterator[None]:
    """Begin a study, and tell every callback that was begun if it does not come to its end.

    Who runs the study calls ``on_end``, as the last thing inside.
    """
    begun: list[Callback] = []
    try:
        for callback in callbacks:
            begun.append(callback)
            callback.on_start(config)
        yield
    except BaseException:
        for callback in begun:
            callback.on_stop()
        raise
