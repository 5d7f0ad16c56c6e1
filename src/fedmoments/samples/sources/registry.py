"""All data sources by prefix: built in, of installed packages, and registered at run time.

A file of this room declares ``SOURCES``, a tuple of :class:`~fedmoments.samples.sources.registry.Source`. A third-party
package adds its own through the entry-point group ``fedmoments.sources``, each entry point naming a source, a tuple of
sources, or a function ``(argument, **options) -> DataSet``.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

from fedmoments.errors import FedMomentsError, InputError, UnknownNameError
from fedmoments.registry import Registry, first_line, scan
from fedmoments.samples.dataset import DataSet

__all__ = ["Source", "load_data", "register_source", "sources", "takes_option"]


@dataclass(frozen=True)
class Source:
    """An entry of the registry.

    Parameters
    ----------
    prefix
        What is typed before the colon.
    argument
        What is typed after it, for help texts (``PATH``); empty when nothing is.
    summary
        One line for help texts.
    load
        The function ``(argument, **options) -> DataSet``; its keyword-only parameters are the options.
    endings
        Endings of files that are taken for this source when no prefix was typed.
    """

    prefix: str
    argument: str
    summary: str
    load: Callable[..., DataSet]
    endings: tuple[str, ...] = ()

    @property
    def usage(self) -> str:
        """How it is typed: ``csv:PATH``."""
        return f"{self.prefix}:{self.argument}" if self.argument else self.prefix

    @property
    def options(self) -> Mapping[str, Any]:
        """Names of the options, with their defaults."""
        parameters = inspect.signature(self.load).parameters.values()
        return {option.name: option.default for option in parameters if option.kind is option.KEYWORD_ONLY}

    def check(self, argument: str, options: Mapping[str, Any]) -> None:
        """Refuse an argument or options that this source does not take."""
        if bool(argument) != bool(self.argument):
            raise InputError(f"the data source '{self.prefix}' is typed as {self.usage}")
        unknown = sorted(set(options) - set(self.options))
        if unknown:
            raise InputError(
                f"the data source '{self.prefix}' has no option '{unknown[0]}': its options are "
                f"{', '.join(sorted(self.options))}"
            )


Given = TypeVar("Given")


def _accept(given: Any, name: str | None) -> Source:
    if isinstance(given, Source):
        return given
    if not callable(given):
        raise InputError("it must be a Source, or a function (argument, **options) -> DataSet")
    return Source(name or given.__name__.replace("_", "-"), "ARGUMENT", first_line(given), given)


_SOURCES: Registry[Source] = Registry(
    "data source",
    group="fedmoments.sources",
    accept=_accept,
    built_in=scan("fedmoments.samples.sources", "SOURCES"),
    name_of=attrgetter("prefix"),
)


def register_source(source: Given, name: str | None = None) -> Given:
    """Make a data source known by its prefix in this process; also a decorator of a function.

    Parameters
    ----------
    source
        A :class:`Source`, or a function ``(argument, **options) -> DataSet``.
    name
        What is typed before the colon; a source has its own, a function's is its name.

    Examples
    --------
    >>> _ = register_source(lambda argument: load_data("digits"), "again")
    >>> len(load_data("again:x").train)
    1300
    >>> sources().remove("again")
    """
    _SOURCES.register(source, name)
    return source


def sources() -> Registry[Source]:
    """Return all data sources by prefix, in alphabetical order.

    Examples
    --------
    >>> [source.usage for source in sources().values()]
    ['csv:PATH', 'digits', 'folder:PATH', 'hf:NAME_OR_PATH', 'npy:FOLDER', 'npz:PATH',
     'parquet:PATH']
    """
    return _SOURCES


def load_data(text: str, /, **options: Any) -> DataSet:
    """Load the data that a person typed.

    Parameters
    ----------
    text
        ``folder:PATH``, ``csv:PATH``, ``parquet:PATH``, ``npz:PATH``, ``npy:FOLDER``, ``hf:NAME_OR_PATH`` or
        ``digits``. A path alone is enough when it is a folder, or a file whose ending says what it is.
    options
        Of the source; all take ``test_share`` and ``seed`` for data that come in one part, and ``strict`` to stop at
        the first problem. An option that is None counts as not given.

    Returns
    -------
    DataSet
        Of which `problems` says what was left out, and why.

    Raises
    ------
    InputError
        When there is no such source, option or file, or nothing is left that could be used.

    Examples
    --------
    >>> data = load_data("digits")
    >>> len(data.train), len(data.test), data.class_names[:3], data.modality
    (1300, 497, ('zero', 'one', 'two'), 'image')
    """
    source, argument = _find(text.strip())
    given = {name: value for name, value in options.items() if value is not None}
    source.check(argument, given)
    data = source.load(argument, **given)
    if not len(data.train):
        reason = f": {len(data.problems)} were left out; the first is {data.problems[0]}" if data.problems else ""
        raise InputError(f"{text} holds no sample to train on{reason}")
    return data


def takes_option(text: str, option: str) -> bool:
    """Say whether the source of the data that a person typed has an option.

    Examples
    --------
    >>> takes_option("csv:t.csv", "table"), takes_option("digits", "table")
    (True, False)
    """
    return option in _find(text.strip())[0].options


def _find(text: str) -> tuple[Source, str]:
    known = sources()
    prefix, _, argument = text.partition(":")
    if prefix in known:
        return known[prefix], argument
    path = Path(text).expanduser()
    if path.is_dir():
        return known["folder"], text
    for source in known.values():
        if path.suffix.lower() in source.endings:
            return source, text
    raise _unknown(text, known)


def _unknown(text: str, known: Mapping[str, Source]) -> FedMomentsError:
    """Return the error that says why a text names no data."""
    if Path(text).expanduser().exists():
        endings = ", ".join(sorted(ending for source in known.values() for ending in source.endings))
        return InputError(
            f"the ending of {text} does not say what it holds: write what it is before it, such as csv:{text}, or let "
            f"it end in one of {endings}"
        )
    if ":" not in text and not difflib.get_close_matches(text, known, n=1):
        usages = ", ".join(source.usage for source in known.values())
        return InputError(f"{text} does not exist, and is none of the data sources {usages}")
    return UnknownNameError("data source", text.partition(":")[0], known)
