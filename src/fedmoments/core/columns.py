"""Columns of tables: labels, clients and features of anything that gives its columns as Arrow does.

These are data frames (pandas, polars), pyarrow tables and data sets of Hugging Face. Features are columns of numbers,
or one column of vectors; an index that pandas wrote down is none.
"""

import json
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.arrays import label_array
from fedmoments.errors import InputError
from fedmoments.extras import require

__all__ = [
    "ROW_NUMBERS",
    "Columns",
    "columns_matching",
    "feature_names",
    "index_columns",
    "is_table",
    "number_columns",
    "own_table",
    "require_different",
    "same_columns",
    "split_table",
    "table_matrix",
]

#: How columns are called that were the index of a pandas frame, which had no name.
ROW_NUMBERS = "__index_level_"


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


def is_table(given: Any) -> bool:
    """Say whether something is a table of pandas, polars, Arrow or Hugging Face."""
    return hasattr(given, "__arrow_c_stream__") or _is_hub_dataset(given) or _is_lazy(given)


def _is_lazy(given: Any) -> bool:
    return hasattr(given, "collect_schema") and not hasattr(given, "__arrow_c_stream__")  # a lazy frame of polars


def _is_hub_dataset(given: Any) -> bool:
    # Not an IterableDataset of Hugging Face, which has no length: it is a stream.
    return hasattr(given, "column_names") and hasattr(given, "with_format") and hasattr(given, "__len__")


def _arrow(given: Any) -> Any:
    """Return a pyarrow table of a data frame."""
    arrow = require("pyarrow", "Reading a data frame", "tables")
    if _is_hub_dataset(given):  # with its own order of rows
        return given.with_format("arrow")[:]
    try:
        table = arrow.table(given.collect() if _is_lazy(given) else given)  # a column alone is taken for one, too
    except (TypeError, ValueError, arrow.ArrowException) as error:
        raise InputError(
            f"a {type(given).__name__} does not become a table of columns of one type each: {error}; keep the columns "
            "that are needed, or give (features, labels)"
        ) from error
    require_different(table.column_names)
    return table


def split_table(given: Any, columns: Columns) -> dict[Any, tuple[NDArray[Any], NDArray[Any]]]:
    """Return the features and labels of every client of a table, by client."""
    table = _arrow(given)
    if columns.label == columns.client:
        raise InputError(f"the column '{columns.label}' cannot be of labels and of clients: say which is which")
    labels = label_array(_known_cells(table, columns.label, "labels"))
    clients = _known_cells(table, columns.client, "clients")
    X = table_matrix(table, columns)
    places: dict[Any, list[int]] = {}
    for place, client in enumerate(clients):
        places.setdefault(client, []).append(place)
    return {client: (X[mine], labels[mine]) for client, mine in places.items()}


def same_columns(given: Any, columns: Columns) -> Columns:
    """Return columns with the features of a table by name, so that other tables give the same in the same order."""
    if columns.features is not None:
        return columns
    return replace(columns, features=tuple(feature_names(_arrow(given).schema, columns)))


def own_table(given: Any, columns: Columns) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return features and labels of a table that is one client's."""
    table = _arrow(given)
    return table_matrix(table, columns), label_array(_known_cells(table, columns.label, "labels"))


def _known_cells(table: Any, name: str, what: str) -> list[Any]:
    """Return the cells of a column of labels or clients, none of which may be missing."""
    if name not in table.column_names:
        raise InputError(
            f"the table has no column '{name}' of {what}: it has {', '.join(table.column_names)}; say which it "
            f"is by {what[:-1]}="
        )
    cells: list[Any] = table[name].to_pylist()
    gone = sum(cell is None or cell != cell for cell in cells)  # noqa: PLR0124 - only NaN differs from itself
    if gone:
        raise InputError(f"column '{name}' of {what} has {gone} missing values: fill them, or drop these rows first")
    odd = next((cell for cell in cells if not isinstance(cell, Hashable)), None)
    if odd is not None:
        raise InputError(f"column '{name}' of {what} holds {odd!r:.60}, but one text or number a row is needed")
    return cells


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
    for pattern in _patterns(wanted):
        matches = [name for name in names if name == pattern] or [name for name in names if fnmatchcase(name, pattern)]
        if not matches:
            raise InputError(f"no column is called '{pattern}': there are {', '.join(names)}")
        chosen |= dict.fromkeys(matches)
    return list(chosen)


def _patterns(wanted: Any) -> list[str]:
    """Return what columns were asked for, as a list of texts."""
    patterns = [wanted] if isinstance(wanted, str) else wanted
    if not isinstance(patterns, Iterable) or not all(isinstance(pattern, str) for pattern in patterns):
        raise InputError(f"columns are named by text: 'emb*' or ['age', 'weight'], not {wanted!r:.80}")
    return list(patterns)


def table_matrix(table: Any, columns: Columns) -> NDArray[Any]:
    """Return the features (n, d) of a pyarrow table or record batch: columns of numbers, or one of vectors."""
    arrow = require("pyarrow", "Reading a table", "tables")
    types = {field.name: field.type for field in table.schema}
    names = feature_names(table.schema, columns)
    if len(names) == 1 and _is_vector(arrow, types[names[0]]):
        return _vectors(table[names[0]], names[0])
    wrong = [f"column '{name}' is of {types[name]}" for name in names if not _is_number(arrow, types[name])]
    if wrong or not names:
        what = wrong[0] if wrong else f"there are {', '.join(types)}"
        raise InputError(f"features are columns of numbers, or one column of vectors of numbers, but {what}")
    return np.column_stack([_floats(_plain(table[name], name)) for name in names])


def feature_names(schema: Any, columns: Columns) -> list[str]:
    """Return the columns of an Arrow schema that are features: those that were named, or all that can be."""
    arrow = require("pyarrow", "Reading a table", "tables")
    require_different(schema.names)
    types = {field.name: field.type for field in schema}
    rest = [name for name in types if name not in columns.keys]
    if columns.features is not None:
        return columns_matching(rest, columns.features)
    return _usual(arrow, types, [name for name in rest if name not in index_columns(schema)])


def require_different(names: Sequence[str]) -> None:
    """Refuse columns of one name."""
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise InputError(f"the table has two columns '{twice[0]}': rename one of them")


def _usual(arrow: Any, types: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    """Return the columns of numbers, or those of vectors where there is none."""
    numbers = [name for name in names if _is_number(arrow, types[name])]
    return numbers or [name for name in names if _is_vector(arrow, types[name])]


def _floats(column: NDArray[Any]) -> NDArray[Any]:
    return column.astype(np.result_type(np.float32, column.dtype), copy=False)


def number_columns(schema: Any) -> list[str]:
    """Return the columns of an Arrow schema that hold numbers; those of vectors of numbers, where there are any."""
    arrow = require("pyarrow", "Reading a table", "tables")
    columns = [field for field in schema if field.name not in index_columns(schema)]
    numbers = [field.name for field in columns if _is_number(arrow, field.type)]
    vectors = [field.name for field in columns if _is_vector(arrow, field.type)]
    return vectors or numbers


def index_columns(schema: Any) -> frozenset[str]:
    """Return the columns of an Arrow schema that were the index of a pandas frame: numbers of rows, no features."""
    nameless = frozenset(name for name in schema.names if name.startswith(ROW_NUMBERS))
    note = (schema.metadata or {}).get(b"pandas", b"{}")
    try:
        index = json.loads(note).get("index_columns", [])
    except (ValueError, AttributeError):  # somebody else's note
        return nameless
    return nameless.union(name for name in index if isinstance(name, str))


def _is_number(arrow: Any, kind: Any) -> bool:
    test = arrow.types
    return bool(test.is_integer(kind) or test.is_floating(kind) or test.is_decimal(kind) or test.is_boolean(kind))


def _is_vector(arrow: Any, kind: Any) -> bool:
    test = arrow.types
    lists = test.is_list(kind) or test.is_large_list(kind) or test.is_fixed_size_list(kind)
    return bool(lists and _is_number(arrow, kind.value_type))


def _plain(column: Any, name: str) -> NDArray[Any]:
    if column.null_count:
        raise InputError(f"column '{name}' has {column.null_count} missing values: fill or drop them first")
    column = _without_decimals(column)
    return np.asarray(column.to_numpy(zero_copy_only=False) if not hasattr(column, "chunks") else column.to_numpy())


def _without_decimals(values: Any) -> Any:
    """Return Arrow's decimals as float64: numpy would hold a Python object for each."""
    return values.cast("float64") if str(values.type).startswith("decimal") else values


def _vectors(column: Any, name: str) -> NDArray[Any]:
    """Return a column of vectors of one length as (n, d), without a Python object a row."""
    chunks = column.chunks if hasattr(column, "chunks") else [column]
    if sum(chunk.null_count for chunk in chunks):
        raise InputError(f"column '{name}' has missing vectors: drop these rows first")
    parts: list[NDArray[Any]] = []
    for chunk in chunks:
        values = _without_decimals(chunk.flatten())
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
