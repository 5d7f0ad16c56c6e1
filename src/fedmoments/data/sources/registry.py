"""All data sources by prefix: the ``SOURCE`` of every file of this room."""

import difflib
import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from fedmoments.data.dataset import DataSet
from fedmoments.data.sources.source import Source
from fedmoments.errors import InputError, UnknownNameError

__all__ = ["load_data", "sources"]


@cache
def sources() -> Mapping[str, Source]:
    """Return all data sources by prefix, in alphabetical order.

    Examples
    --------
    >>> [source.usage for source in sources().values()]
    ['csv:PATH', 'digits', 'folder:PATH', 'hf:NAME_OR_PATH', 'npz:PATH', 'parquet:PATH']
    """
    package = importlib.import_module("fedmoments.data.sources")
    modules = [importlib.import_module(f"{package.__name__}.{m.name}") for m in pkgutil.iter_modules(package.__path__)]
    found: list[Source] = [module.SOURCE for module in modules if hasattr(module, "SOURCE")]
    return {source.prefix: source for source in sorted(found, key=lambda source: source.prefix)}


def load_data(text: str, /, **options: Any) -> DataSet:
    """Load the data that a person typed.

    Parameters
    ----------
    text
        ``folder:PATH``, ``csv:PATH``, ``parquet:PATH``, ``npz:PATH``, ``hf:NAME_OR_PATH`` or ``digits``. A path alone
        is enough when it is a folder, or a file whose ending says what it is.
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
    if path.exists():
        endings = ", ".join(sorted(ending for source in known.values() for ending in source.endings))
        raise InputError(
            f"the ending of {text} does not say what it holds: write what it is before it, such as csv:{text}, or let "
            f"it end in one of {endings}"
        )
    if ":" not in text and not difflib.get_close_matches(text, known, n=1):
        usages = ", ".join(source.usage for source in known.values())
        raise InputError(f"{text} does not exist, and is none of the data sources {usages}")
    raise UnknownNameError("data source", prefix, known)
