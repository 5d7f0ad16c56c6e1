"""What all tables share, whatever file they are in: rows to train and test rows, with every flaw reported by row."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from fedmoments.errors import InputError
from fedmoments.samples.sources.columns import Columns, label_name
from fedmoments.samples.sources.rows import Problems, Rows

__all__ = ["Record", "read_rows"]

#: A row: the values by column, or why the row cannot be used.
Record = Mapping[str, Any] | str
_PARTS = {"train": "train", "training": "train", "test": "test", "testing": "test"}


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
            _add(parts[part], keys, where, item(number - 1, record.get(columns.item)))
        except InputError as error:
            problems.add(where, str(error))
    return parts


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
