"""What all tables share, whatever file they are in: rows to train and test rows, with every flaw reported by row."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedmoments.errors import InputError
from fedmoments.samples.dataset import DataSet
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

    def rows(self, columns: Columns, classes: Sequence[str], problems: Problems) -> dict[str, Rows]:
        """Return its rows, as :func:`read_rows` does."""


def load_table(
    kind: str,
    argument: str,
    open_table: Callable[[Path], TableFile],
    named: Mapping[str, str | None],
    *,
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
        Columns that were named: text, image, features, label, client, domain, split.
    test_share, seed, strict
        As in :func:`~fedmoments.samples.sources.rows.assemble` and ``Problems``.
    """
    if named["split"] is not None and test is not None:
        raise InputError("give the test part by a column (split) or by a file (test), not by both")
    problems = Problems(strict=strict)
    path = Path(argument).expanduser()
    table = open_table(path)
    columns = choose_columns(str(path), table.names, numbers=table.numbers, **named)
    classes = table.class_names(columns.label)
    parts = table.rows(columns, classes, problems)
    if test is not None:
        second = Path(test).expanduser()
        other = open_table(second)
        same = {columns.modality: ",".join(columns.features) or columns.item, "label": columns.label}
        kept = {what: named[what] for what in ("client", "domain") if named[what] in other.names}
        parts["test"] = other.rows(choose_columns(str(second), other.names, **same, **kept), classes, problems)["train"]
    return assemble(
        f"{kind}:{argument}",
        parts["train"],
        parts.get("test"),
        columns.modality,
        problems,
        test_share=test_share,
        seed=seed,
        class_names=classes,
    )


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
            part = "train" if columns.split is None else _part(record, columns.split)
            if isinstance(record, str):
                raise InputError(record)
            keys = _keys(record, columns)
            value = [record.get(name) for name in columns.features] if columns.features else record.get(columns.item)
            _add(parts[part], keys, where, item(number - 1, value))
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


def _part(record: Record, column: str) -> str:
    value = "" if isinstance(record, str) else label_name(record.get(column))
    part = _PARTS.get(value.lower())
    if part is None and not isinstance(record, str):
        raise InputError(f"its {column} is '{value}', neither train nor test")
    return part or "train"


def _keys(record: Mapping[str, Any], columns: Columns) -> tuple[str, str | None, str | None]:
    """Return label, client and domain of a row."""
    return (
        _needed(record, columns.label, "label"),
        _needed(record, columns.client, "client") if columns.client else None,
        _needed(record, columns.domain, "domain") if columns.domain else None,
    )


def _add(rows: Rows, keys: tuple[str, str | None, str | None], where: str, sample: Any) -> None:
    label, client, domain = keys
    if isinstance(rows.items, list):
        rows.items.append(sample)
    rows.labels.append(label)
    rows.sources.append(where)
    if client is not None:
        rows.clients.append(client)
    if domain is not None:
        rows.domains.append(domain)


def _needed(record: Mapping[str, Any], column: str, what: str) -> str:
    value = label_name(record.get(column))
    if not value:
        raise InputError(f"it has no {what}")
    return value
