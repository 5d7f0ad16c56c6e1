"""What people hold as clients' data, as features and labels by client: dicts, lists of pairs, tables, tensors.

Tables are anything that gives its columns as Arrow does (pandas, polars, pyarrow) and Hugging Face data sets: a column
of labels, a column of clients, and the features in the other columns, or in one column of vectors. Labels that are text
become class names, in alphabetical order.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmoments.core.statistics import Ledger, Statistics
from fedmoments.errors import InputError
from fedmoments.extras import require

__all__ = ["Columns", "Parties", "as_array", "columns_matching", "number_columns", "parties_of", "table_matrix"]

Pair = tuple[ArrayLike, ArrayLike]
#: Anything that :func:`parties_of` reads; tables have no common type.
Given = Any


@dataclass(frozen=True)
class Columns:
    """Which columns of a table are what.

    Parameters
    ----------
    label, client
        Names of the columns of labels and of clients.
    features
        Names or patterns (``emb*``) of feature columns, or of one column of vectors; all columns of numbers that are
        neither label nor client by default.
    targets
        Names of columns of numbers that stand in for labels, and are not features; empty where there are classes.
    """

    label: str = "label"
    client: str = "client"
    features: Sequence[str] | str | None = None
    targets: tuple[str, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        """Columns that are not features."""
        return (*(self.targets or (self.label,)), self.client)


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


def as_array(values: Any) -> NDArray[Any]:
    """Return an array of anything array-like; tensors are detached, moved to this machine's memory and widened.

    Examples
    --------
    >>> as_array([[1, 2]]).shape
    (1, 2)
    """
    try:
        if hasattr(values, "detach") and hasattr(values, "cpu"):
            values = values.detach().cpu()
            if str(values.dtype) == "torch.bfloat16":
                values = values.float()
            return np.asarray(values.numpy())
        return np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:  # torch's NotImplementedError is one of these
        raise InputError(f"{type(values).__name__} does not become an array of numbers: {error}") from error


def parties_of(given: Given, columns: Columns, class_names: Sequence[str] | None = None) -> Parties:
    """Return clients' data by client id, with labels as numbers.

    Parameters
    ----------
    given
        ``{id: (X, y)}`` (also with statistics as values), a list of such pairs, or a table.
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
        return _numbered(given, class_names)
    if _is_table(given):
        return _numbered(_split_table(given, columns), class_names)
    if isinstance(given, Sequence) and not isinstance(given, str | bytes):
        return _numbered(dict(enumerate(given)), class_names)
    raise InputError(
        "clients are a table {id: (features, labels)}, a list of such pairs, a data frame with columns of labels and "
        f"clients, a Ledger or Statistics, but a {type(given).__name__} arrived; a party alone is {{'me': (X, y)}}, "
        "and a stream of batches goes to measure_stream"
    )


def _numbered(data: Mapping[Any, Any], class_names: Sequence[str] | None) -> Parties:
    """Return the data with labels as numbers: of names, where labels are text."""
    pairs: dict[Any, Any] = {
        client: held if isinstance(held, Statistics) else _pair(client, held) for client, held in data.items()
    }
    labels = {client: held[1] for client, held in pairs.items() if isinstance(held, tuple)}
    texts = _named_labels(labels)
    if not texts:
        return Parties(pairs)
    names = tuple(class_names) if class_names is not None else _names(texts.values())
    for client, own in texts.items():
        pairs[client] = (pairs[client][0], _numbers_of(client, own, names))
    return Parties(pairs, names)


def _named_labels(labels: Mapping[Any, NDArray[Any]]) -> dict[Any, NDArray[Any]]:
    """Return the labels of the clients whose labels are text: of all that have some, or of none."""
    texts = {client: own for client, own in labels.items() if _is_text(own)}
    others = [client for client, own in labels.items() if client not in texts and len(own)]
    if texts and others:
        raise InputError(
            f"client {next(iter(texts))!r} names its classes, but client {others[0]!r} numbers them: name them all"
        )
    return texts


def _numbers_of(client: Any, labels: NDArray[Any], names: Sequence[str]) -> NDArray[np.int64]:
    """Return the places (n,) of a client's labels among all names."""
    known = {name: number for number, name in enumerate(names)}
    unknown = sorted({str(label) for label in labels.tolist()} - known.keys())
    if unknown:
        raise InputError(f"client {client!r} has the label '{unknown[0]}', which is none of {', '.join(names)}")
    return np.array([known[str(label)] for label in labels.tolist()], np.int64)


def _names(labels: Iterable[NDArray[Any]]) -> tuple[str, ...]:
    return tuple(sorted({str(label) for part in labels for label in part.tolist()}))


def _is_text(labels: NDArray[Any]) -> bool:
    return labels.dtype.kind in "UST" or (
        labels.dtype.kind == "O" and labels.size > 0 and all(isinstance(label, str) for label in labels.tolist())
    )


def _pair(client: Hashable, held: Any) -> tuple[ArrayLike, NDArray[Any]]:
    """Return a client's features and labels."""
    if isinstance(held, Mapping | str | bytes | Ledger) or not hasattr(held, "__len__") or len(held) != 2:
        raise InputError(f"client {client!r} must be (features, labels) or Statistics, not {type(held)}")
    try:
        return as_array(held[0]), as_array(held[1])  # what is not a matrix is refused where it is measured
    except InputError as error:
        raise InputError(f"client {client!r}: {error}") from error


# ------------------------------------------------------------------------------------------------------------- tables


def _is_table(given: Any) -> bool:
    return hasattr(given, "__arrow_c_stream__") or (hasattr(given, "column_names") and hasattr(given, "with_format"))


def _arrow(given: Any) -> Any:
    """Return a pyarrow table of a data frame."""
    arrow = require("pyarrow", "Reading a data frame", "tables")
    if hasattr(given, "with_format"):  # Hugging Face: with its own order of rows
        return given.with_format("arrow")[:]
    try:
        return arrow.table(given)
    except (TypeError, ValueError) as error:  # a column alone gives itself as Arrow does, too
        raise InputError(f"a {type(given).__name__} is not a table with named columns: {error}") from error


def _split_table(given: Any, columns: Columns) -> dict[Any, Pair]:
    table = _arrow(given)
    for what, name in (("labels", columns.label), ("clients", columns.client)):
        if name not in table.column_names:
            raise InputError(
                f"the table has no column '{name}' of {what}: it has {', '.join(table.column_names)}; say which it "
                f"is by {what[:-1]}="
            )
    labels, clients = (as_array(table[name].to_pylist()) for name in (columns.label, columns.client))
    X = table_matrix(table, columns)
    return {held: (X[clients == held], labels[clients == held]) for held in dict.fromkeys(clients.tolist())}


def columns_matching(names: Sequence[str], wanted: Sequence[str] | str) -> list[str]:
    """Return the columns that names or patterns stand for, each once, in the order of the names asked for.

    Examples
    --------
    >>> columns_matching(["id", "emb0", "emb1"], "emb*")
    ['emb0', 'emb1']
    >>> columns_matching(["id"], ["age"])
    Traceback (most recent call last):
    fedmoments.errors.InputError: no column is called 'age': there are id
    """
    chosen: dict[str, None] = {}
    for pattern in [wanted] if isinstance(wanted, str) else wanted:
        matches = [name for name in names if name == pattern] or [name for name in names if fnmatchcase(name, pattern)]
        if not matches:
            raise InputError(f"no column is called '{pattern}': there are {', '.join(names)}")
        chosen |= dict.fromkeys(matches)
    return list(chosen)


def table_matrix(table: Any, columns: Columns) -> NDArray[Any]:
    """Return the features (n, d) of a pyarrow table or record batch: columns of numbers, or one of vectors."""
    arrow = require("pyarrow", "Reading a table", "tables")
    types = {field.name: field.type for field in table.schema}
    rest = [name for name in types if name not in columns.keys]
    names = _usual(arrow, types, rest) if columns.features is None else columns_matching(rest, columns.features)
    if len(names) == 1 and _is_vector(arrow, types[names[0]]):
        return _vectors(table[names[0]], names[0])
    wrong = [name for name in names if not _is_number(arrow, types[name])]
    if wrong or not names:
        what = f"column '{wrong[0]}' is of {types[wrong[0]]}" if wrong else f"there are {', '.join(types)}"
        raise InputError(f"features are columns of numbers, or one column of vectors of numbers, but {what}")
    return np.column_stack([_floats(_plain(table[name], name)) for name in names])


def _usual(arrow: Any, types: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    """Return the columns of numbers, or those of vectors where there is none."""
    numbers = [name for name in names if _is_number(arrow, types[name])]
    return numbers or [name for name in names if _is_vector(arrow, types[name])]


def _floats(column: NDArray[Any]) -> NDArray[Any]:
    return column.astype(np.result_type(np.float32, column.dtype), copy=False)


def number_columns(schema: Any) -> list[str]:
    """Return the columns of an Arrow schema that hold numbers; those of vectors of numbers, where there are any."""
    arrow = require("pyarrow", "Reading a table", "tables")
    numbers = [field.name for field in schema if _is_number(arrow, field.type)]
    vectors = [field.name for field in schema if _is_vector(arrow, field.type)]
    return vectors or numbers


def _is_number(arrow: Any, kind: Any) -> bool:
    return bool(arrow.types.is_integer(kind) or arrow.types.is_floating(kind))


def _is_vector(arrow: Any, kind: Any) -> bool:
    test = arrow.types
    lists = test.is_list(kind) or test.is_large_list(kind) or test.is_fixed_size_list(kind)
    return bool(lists and _is_number(arrow, kind.value_type))


def _plain(column: Any, name: str) -> NDArray[Any]:
    if column.null_count:
        raise InputError(f"column '{name}' has {column.null_count} missing values: fill or drop them first")
    return np.asarray(column.to_numpy(zero_copy_only=False) if not hasattr(column, "chunks") else column.to_numpy())


def _vectors(column: Any, name: str) -> NDArray[Any]:
    """Return a column of vectors of one length as (n, d), without a Python object a row."""
    chunks = column.chunks if hasattr(column, "chunks") else [column]
    if sum(chunk.null_count for chunk in chunks):
        raise InputError(f"column '{name}' has missing vectors: drop these rows first")
    parts: list[NDArray[Any]] = []
    for chunk in chunks:
        values = chunk.flatten()
        if values.null_count:
            raise InputError(f"column '{name}' has vectors with missing numbers: fill or drop them first")
        if len(chunk) == 0:
            continue
        width = len(values) // len(chunk)
        if not hasattr(chunk.type, "list_size"):
            lengths = chunk.value_lengths().to_numpy(zero_copy_only=False)
            if (lengths != lengths[0]).any():
                raise InputError(
                    f"column '{name}' has vectors of {lengths.min()} to {lengths.max()} numbers: all "
                    "need the same length"
                )
        parts.append(values.to_numpy(zero_copy_only=False).reshape(len(chunk), width))
    return np.concatenate(parts) if len(parts) != 1 else parts[0]
