"""What people hold as clients' data, as features and labels by client: dicts, lists of pairs, tables, tensors.

Tables are anything that gives its columns as Arrow does (pandas, polars, pyarrow) and Hugging Face data sets: a column
of labels, a column of clients, and the features in the other columns, or in one column of vectors. Labels that are text
become class names, in alphabetical order.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmoments.core.arrays import as_array, is_text, label_array, label_numbers, sorted_names
from fedmoments.core.columns import Columns, is_table, own_table, same_columns, split_table
from fedmoments.core.statistics import Statistics
from fedmoments.errors import InputError

__all__ = ["Parties", "parties_of"]

Pair = tuple[ArrayLike, ArrayLike]
#: Anything that :func:`parties_of` reads; tables have no common type.
Given = Any


@dataclass(frozen=True)
class Parties:
    """Data by client.

    Parameters
    ----------
    data
        Client id -> (X, y), or statistics that were measured before.
    class_names
        Names of the classes, where labels were text; else none.
    """

    data: Mapping[Any, Pair | Statistics]
    class_names: tuple[str, ...] = ()


def parties_of(given: Given, columns: Columns, class_names: Sequence[str] | None = None) -> Parties:
    """Return clients' data by client id, with labels as numbers.

    Parameters
    ----------
    given
        ``{id: (X, y)}`` (also with statistics, or tables with a column of labels, as values), a list of such pairs, or
        a table.
    columns
        Which columns of a table are what.
    class_names
        Names of the classes in their order, if labels are text; what occurs, in alphabetical order, by default.

    Examples
    --------
    >>> parties = parties_of([([[1.0]], ["dog"]), ([[2.0]], ["cat"])], Columns())
    >>> parties.class_names, parties.data[0][1], parties.data[1][1]
    (('cat', 'dog'), array([1]), array([0]))
    >>> parties_of(3, Columns())
    Traceback (most recent call last):
    fedmoments.errors.InputError: clients are a table {id: (features, labels)}, a list of such pairs, ...
    """
    if isinstance(given, Mapping):
        return _numbered(given, columns, class_names)
    if is_table(given):
        return _numbered(split_table(given, columns), columns, class_names)
    if isinstance(given, Sequence) and not isinstance(given, str | bytes) and not _is_lone_pair(given):
        return _numbered(dict(enumerate(given)), columns, class_names)
    raise InputError(
        "clients are a table {id: (features, labels)}, a list of such pairs, a data frame with columns of labels and "
        f"clients, a Ledger or Statistics, but a {_kind(given)} arrived; a party alone is {{'me': (X, y)}}, "
        "and a stream of batches goes to measure_stream"
    )


def _is_lone_pair(given: Sequence[Any]) -> bool:
    """Say whether a list is (X, y) of one party, instead of one pair a party."""
    return any(getattr(part, "ndim", 2) == 1 or (hasattr(part, "shape") and not is_table(part)) for part in given)


def _numbered(data: Mapping[Any, Any], columns: Columns, class_names: Sequence[str] | None) -> Parties:
    """Return the data with labels as numbers: of names, where labels are text."""
    pairs: dict[Any, Any] = {}
    for client, held in data.items():
        if not isinstance(held, tuple) and is_table(held):
            columns = same_columns(held, columns)
        pairs[client] = held if isinstance(held, Statistics) else _pair(client, held, columns)
    _widen_empty(pairs)
    labels = {client: held[1] for client, held in pairs.items() if isinstance(held, tuple)}
    texts = _named_labels(labels)
    if not texts:
        return Parties(pairs)
    names = class_names if class_names is not None else sorted_names(texts.values())
    for client, own in texts.items():
        pairs[client] = (pairs[client][0], _numbers_of(client, own, names))
    return Parties(pairs, tuple(names))


def _widen_empty(pairs: dict[Any, Any]) -> None:
    """Give lists without a sample the dimensions of the others: an empty list does not tell them."""
    widths = [held[0].shape[1] for held in pairs.values() if isinstance(held, tuple) and held[0].ndim == 2]
    for client, held in pairs.items():
        if widths and isinstance(held, tuple) and held[0].shape == held[1].shape == (0,):
            pairs[client] = (np.empty((0, widths[0])), held[1])


def _named_labels(labels: Mapping[Any, NDArray[Any]]) -> dict[Any, NDArray[Any]]:
    """Return the labels of the clients whose labels are text: of all that have some, or of none."""
    texts = {client: own for client, own in labels.items() if is_text(own)}
    others = [client for client, own in labels.items() if client not in texts and own.size]
    if texts and others:
        raise InputError(
            f"client {next(iter(texts))!r} names its classes, but client {others[0]!r} numbers them: name them all"
        )
    return texts


def _numbers_of(client: Any, labels: NDArray[Any], names: Sequence[str]) -> NDArray[np.int64]:
    """Return the places (n,) of a client's labels among all names."""
    try:
        return label_numbers(labels, names)
    except InputError as error:
        raise InputError(f"client {client!r}: {error}") from error


def _pair(client: Hashable, held: Any, columns: Columns) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return a client's features and labels."""
    is_pair = isinstance(held, tuple | list) and len(held) == 2
    if not is_pair and not is_table(held):
        raise InputError(
            f"client {client!r} must be (features, labels), a table with a column of labels, or Statistics, but a "
            f"{_kind(held)} arrived; a stream of batches goes to measure_stream"
        )
    try:
        # What is not a matrix of numbers is refused where it is measured.
        return (as_array(held[0]), label_array(held[1])) if is_pair else own_table(held, columns)
    except InputError as error:
        raise InputError(f"client {client!r}: {error}") from error


def _kind(held: Any) -> str:
    inside = f" of {', '.join(type(part).__name__ for part in held[:2])}" if isinstance(held, tuple | list) else ""
    return f"{type(held).__name__}{inside}{' …' if inside and len(held) > 2 else ''}"
