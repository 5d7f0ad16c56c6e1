"""Clients' raw tables, with texts and gaps, as coded rows by client, and the map that all clients agree on."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.arrays import label_array
from fedmoments.core.columns import ROW_NUMBERS, Columns, columns_matching
from fedmoments.core.maps import FeatureMap, TableMap, table_of
from fedmoments.core.maps.cells import cells_of, is_missing, is_tabular
from fedmoments.core.parties import Parties, parties_of
from fedmoments.core.statistics import Ledger, Statistics
from fedmoments.core.tables import draft_table, table_after
from fedmoments.errors import InputError

__all__ = ["TABLE", "coded_parties", "wants_table"]

#: What clients' raw tables are.
WANTED = "clients' raw tables are {client: (table, labels)}, a list of such pairs, or one table with columns of both"
#: The word for a map that is made of clients' raw tables.
TABLE = "table"


def wants_table(given: Any, feature_map: FeatureMap | str | None) -> bool:
    """Say whether clients' data are raw tables, to be coded by a map: by the word ``table``, or one that begins so.

    Examples
    --------
    >>> wants_table({"a": ({"age": [31]}, [0])}, "table"), wants_table({"a": ([[31]], [0])}, "power")
    (True, False)
    """
    if isinstance(given, Ledger | Statistics) or feature_map is None or isinstance(feature_map, str):
        return feature_map == TABLE
    return table_of(feature_map) is not None and _holds_tables(given)


def _holds_tables(given: Any) -> bool:
    """Say whether this is one table, or tables by client; matrices of codes are neither."""
    if isinstance(given, Mapping):
        given = list(given.values())
    if is_tabular(given):
        return True
    return isinstance(given, Sequence) and any(isinstance(held, tuple | list) and is_tabular(held[0]) for held in given)


def coded_parties(
    given: Any, columns: Columns, feature_map: FeatureMap | str | None, class_names: Sequence[str] | None = None
) -> tuple[Parties, FeatureMap]:
    """Return clients' rows coded, and the map that they are measured behind.

    Parameters
    ----------
    given
        A table with columns of labels and clients, or ``{client: (table, labels)}``, or a list of such pairs.
    columns
        Which columns of a table are what.
    feature_map
        One that begins with a table; or ``table``: drafted from all rows, and made of a first exchange of all clients.
    class_names
        Names of the classes in their order, if labels are text.

    Examples
    --------
    >>> clients = {"a": ({"age": [30, 50], "ward": ["x", "y"]}, ["ill", "well"])}
    >>> parties, table = coded_parties(clients, Columns(), "table")
    >>> parties.class_names, table.columns[0]
    (('ill', 'well'), Numbers(name='age', center=40.0, scale=10.0, missing=False))
    """
    pairs = _tables(given, columns)
    first = None if isinstance(feature_map, str) or feature_map is None else table_of(feature_map)
    if first is None:
        first = draft_table(_stacked([cells for cells, _ in pairs.values()]))
    coded = {client: (first.code(cells), labels) for client, (cells, labels) in pairs.items()}
    parties = parties_of(coded, columns, class_names)
    if isinstance(feature_map, FeatureMap):
        return parties, feature_map
    X = np.concatenate([codes for codes, _ in coded.values()])
    y = np.concatenate([np.asarray(held[1]) for held in parties.data.values() if not isinstance(held, Statistics)])
    n_classes = max(len(parties.class_names), int(y.max(initial=0)) + 1)
    made = table_after(first, X, y, n_classes=n_classes)
    _warn_of_idle(made, X)
    return parties, made


def _warn_of_idle(made: TableMap, X: NDArray[Any]) -> None:
    """Say which columns vary, and give no feature all the same."""
    idle = [
        column.name
        for column, codes in zip(made.columns, X.T, strict=True)
        if not column.outputs and len(np.unique(codes)) > 2
    ]
    if idle:
        warnings.warn(
            f"the columns {', '.join(idle)} vary, but give no feature: no text of theirs (dates, names) occurs 5 "
            "times, or numbers differ by less than rounding; code them as numbers, or choose columns by features=",
            stacklevel=4,
        )


def _tables(given: Any, columns: Columns) -> dict[Any, tuple[dict[str, Sequence[Any]], Any]]:
    """Return columns of features, and labels, by client."""
    if not isinstance(given, Mapping) and is_tabular(given):
        return _split(cells_of(given), columns)
    return {client: _own(client, held, columns) for client, held in _by_client(given).items()}


def _by_client(given: Any) -> dict[Any, Any]:
    if isinstance(given, Mapping):
        return dict(given)
    if isinstance(given, Sequence) and not isinstance(given, str | bytes):
        return dict(enumerate(given))
    raise InputError(f"{WANTED}, but a {type(given).__name__} arrived")


def _own(client: Any, held: Any, columns: Columns) -> tuple[dict[str, Sequence[Any]], Any]:
    """Return columns of features, and labels, of one client: of a pair, or of a table that holds both."""
    try:
        if isinstance(held, tuple | list) and len(held) == 2:
            return _features(cells_of(held[0]), columns), label_array(held[1])
        if not is_tabular(held):
            raise InputError(f"it is (table, labels), or a table with a column of labels, not {type(held).__name__}")
        cells = cells_of(held)
        return _features(cells, columns), label_array(_told(cells, "labels", columns.label))
    except InputError as error:
        raise InputError(f"client {client!r}: {error}") from error


def _told(cells: Mapping[str, Sequence[Any]], what: str, name: str) -> Sequence[Any]:
    """Return a column of labels or clients, none of which may be missing."""
    if name not in cells:
        raise InputError(f"the table has no column '{name}' of {what}: it has {', '.join(cells)}; say which it is")
    gone = sum(map(is_missing, cells[name]))
    if gone:
        raise InputError(f"column '{name}' of {what} has {gone} missing values: fill them, or drop these rows first")
    return cells[name]


def _split(cells: dict[str, Sequence[Any]], columns: Columns) -> dict[Any, tuple[dict[str, Sequence[Any]], Any]]:
    labels = label_array(_told(cells, "labels", columns.label))
    places: dict[Any, list[int]] = {}
    for place, client in enumerate(_told(cells, "clients", columns.client)):
        places.setdefault(client, []).append(place)
    features = _features(cells, columns)
    return {
        client: ({name: [column[i] for i in mine] for name, column in features.items()}, labels[mine])
        for client, mine in places.items()
    }


def _features(cells: dict[str, Sequence[Any]], columns: Columns) -> dict[str, Sequence[Any]]:
    keys = (columns.label, columns.client)
    rest = [name for name in cells if name not in keys and not name.startswith(ROW_NUMBERS)]
    names = rest if columns.features is None else columns_matching(rest, columns.features)
    return {name: cells[name] for name in names}


def _stacked(parts: Sequence[Mapping[str, Sequence[Any]]]) -> dict[str, list[Any]]:
    """Return the rows of several tables one after the other; all must have the same columns."""
    names = list(parts[0]) if parts else []
    for part in parts:
        if set(part) != set(names):
            odd = sorted(set(part) ^ set(names))[0]
            raise InputError(
                f"clients' tables have the same columns, but '{odd}' is not in all: choose them by features="
            )
    return {name: [cell for part in parts for cell in part[name]] for name in names}
