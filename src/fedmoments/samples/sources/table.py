"""What all tables share, whatever file they are in: rows to train and test rows, with every flaw reported by row."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.maps import TableMap
from fedmoments.errors import InputError
from fedmoments.samples.dataset import DataSet
from fedmoments.samples.raw_tables import find_table
from fedmoments.samples.sources.columns import Columns, choose_columns, label_name
from fedmoments.samples.sources.rows import Problems, Rows, assemble
from fedmoments.samples.splits.draws import Seed

__all__ = ["Record", "TableFile", "load_table", "read_rows"]

#: A row: the values by column, or why the row cannot be used.
Record = Mapping[str, Any] | str
_PARTS = {"train": "train", "training": "train", "test": "test", "testing": "test"}


class TableFile(Protocol):
    """A file that holds a table, opened."""

    @property
    def names(self) -> Sequence[str]:
        """Its columns."""

    @property
    def numbers(self) -> Sequence[str]:
        """Those of them that are known to hold numbers, or vectors of numbers."""

    def class_names(self, label: str) -> Sequence[str]:
        """Return the names of the classes, where the file has them in an order; else nothing."""

    def cells(self, names: Sequence[str]) -> Mapping[str, Sequence[Any]]:
        """Return whole columns, one cell a row."""

    def rows(self, columns: Columns, classes: Sequence[str], problems: Problems) -> dict[str, Rows]:
        """Return its rows, as :func:`read_rows` does."""


def load_table(
    kind: str,
    argument: str,
    open_table: Callable[[Path], TableFile],
    named: Mapping[str, str | None],
    *,
    raw: TableMap | str | None,
    test: str | None,
    test_share: float,
    seed: Seed,
    strict: bool,
) -> DataSet:
    """Load a data set from a table, and from a second one with the test part where there is one.

    Parameters
    ----------
    kind
        Of the source, as it is typed before the colon.
    argument, test
        The files.
    open_table
        Opens a file.
    named
        Columns that were named: text, image, features, label, client, domain, split, group.
    raw
        What codes the cells of a raw table (:func:`~fedmoments.samples.raw_tables.find_table`).
    test_share, seed, strict
        As in :func:`~fedmoments.samples.sources.rows.assemble` and ``Problems``.
    """
    if named["split"] is not None and test is not None:
        raise InputError("give the test part by a column (split) or by a file (test), not by both")
    problems = Problems(strict=strict)
    path = Path(argument).expanduser()
    table = open_table(path)
    features = named["features"] or (
        None if raw is None else "*"
    )  # of a raw table, all that say nothing of whose it is
    columns = choose_columns(str(path), table.names, numbers=table.numbers, **{**named, "features": features})
    if raw is not None:
        found = find_table(raw, str(path), columns.features, table.cells)
        columns = replace(columns, item=found.names[0], features=found.names, table=found)
    classes = table.class_names(columns.label)
    parts = table.rows(columns, classes, problems)
    if test is not None:
        second = Path(test).expanduser()
        other = open_table(second)
        same = {columns.modality: columns.features or columns.item, "label": columns.label}
        kept = {what: named[what] for what in ("client", "domain", "group") if named[what] in other.names}
        there = choose_columns(str(second), other.names, **same, **kept)  # type: ignore[arg-type]
        parts["test"] = other.rows(replace(there, table=columns.table), classes, problems)["train"]
    data = assemble(
        f"{kind}:{argument}",
        parts["train"],
        parts.get("test"),
        columns.modality,
        problems,
        test_share=test_share,
        seed=seed,
        class_names=classes,
    )
    return replace(data, table=columns.table)


def _sample(record: Mapping[str, Any], columns: Columns) -> Any:
    """Return what is the sample in a row: one cell, or those of all its features."""
    return [record.get(name) for name in columns.features] if columns.features else record.get(columns.item)


def read_rows(
    whose: str,
    records: Iterable[Record],
    columns: Columns,
    problems: Problems,
    item: Callable[[int, Any], Any],
) -> dict[str, Rows]:
    """Collect the rows of a table; those that lack something are problems named by row number.

    Parameters
    ----------
    whose
        Name of the table, for messages.
    records
        The rows. They are counted from 1; a header is not a row.
    columns
        Which column is what.
    problems
        Where flaws go.
    item
        The function of a row's place (from 0) and of its value in the column of items that returns the sample, or
        raises InputError saying why there is none.

    Returns
    -------
    dict[str, Rows]
        ``train``, and ``test`` if the table has a column that says so.

    Examples
    --------
    >>> table = [{"text": "hi", "label": "a"}, {"text": "ho", "label": ""}]
    >>> problems = Problems(strict=False)
    >>> rows = read_rows("t.csv", table, Columns("text", False, "label"), problems, lambda _, text: text)
    >>> rows["train"].items, [str(problem) for problem in problems.entries]
    (['hi'], ['t.csv row 2: it has no label'])
    """
    parts = {"train": Rows([]), "test": Rows([])} if columns.split else {"train": Rows([])}
    for number, record in enumerate(records, 1):
        where = f"{whose} row {number}"
        try:
            if isinstance(record, str):
                raise InputError(record)
            part = "train" if columns.split is None else _part(record, columns.split)
            keys = [_needed(record, name, what) if name else None for what, name in _named(columns)]
            _add(parts[part], keys, where, item(number - 1, _sample(record, columns)))
        except InputError as error:
            problems.add(where, str(error))
    if columns.features:
        for rows in parts.values():
            rows.items = _matrix(whose, rows.items)
    return parts


def _matrix(whose: str, vectors: Any) -> NDArray[Any]:
    """Return rows of numbers as one array (n, d)."""
    lengths = {len(vector) for vector in vectors}
    if len(lengths) > 1:
        raise InputError(
            f"the vectors of {whose} have {min(lengths)} to {max(lengths)} numbers: all need the same length"
        )
    return np.stack(vectors) if len(vectors) else np.zeros((0, 1))


def _part(record: Mapping[str, Any], column: str) -> str:
    value = label_name(record.get(column))
    part = _PARTS.get(value.lower())
    if part is None:
        raise InputError(f"its {column} is '{value}', neither train nor test")
    return part


def _named(columns: Columns) -> list[tuple[str, str | None]]:
    """Return the columns that say whose a row is, in the order of :func:`_add`."""
    return [(what, getattr(columns, what)) for what in ("label", "client", "domain", "group")]


def _add(rows: Rows, keys: Sequence[str | None], where: str, sample: Any) -> None:
    if isinstance(rows.items, list):
        rows.items.append(sample)
    rows.sources.append(where)
    for values, key in zip((rows.labels, rows.clients, rows.domains, rows.groups), keys, strict=True):
        if key is not None:
            values.append(key)


def _needed(record: Mapping[str, Any], column: str, what: str) -> str:
    value = label_name(record.get(column))
    if not value:
        raise InputError(f"it has no {what}")
    return value
