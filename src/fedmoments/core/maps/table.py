"""Raw tables as features: numbers standardised, categories one-hot, what is missing said by a column of its own.

A row of a table is coded as one float32 number a column, by :meth:`TableMap.code`, without knowing anything but which
columns hold numbers: a number is itself, a category is a number made of its name by SHA-256, a missing cell is
`fedmoments.core.maps.cells.MISSING`. The map then makes of them, in the order of the columns,

- of a column of numbers: z = (x − center)/scale, 0 (the mean) where x is missing, then 1 where it is missing;
- of a column of categories: 1 for the agreed category that it is, then 1 for any other, then 1 where it is missing.

So agreed lists are public and part of the description, and a category that nobody agreed on needs no new list. Centers
and scales come from a first exchange of counts, sums and squares (:mod:`fedmoments.core.tables`).

**Law** every column that comes out depends on one column that goes in, and those of 0 and 1 add up to counts: nothing
is blended, but a sum of them says exactly how many samples have a category.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from fedmoments.core.maps.base import Chain, FeatureMap, FloatArray
from fedmoments.core.maps.cells import LARGEST, MISSING, category_code, cell_number, cell_text, cells_of
from fedmoments.errors import InputError

__all__ = ["Categories", "Numbers", "TableMap", "table_of"]

#: Most columns that may come out, and most characters of a name.
MOST_COLUMNS, LONGEST_NAME = 2**16, 1000


@dataclass(frozen=True)
class Numbers:
    """A column of numbers: z = (x − center)/scale.

    Parameters
    ----------
    name
        Of the column.
    center, scale
        In units of the column; a scale of None leaves the column's value out, because it does not vary.
    missing
        Whether a column says where it is missing.

    Examples
    --------
    >>> Numbers("age", 50, 10).outputs
    ('age', 'age is missing')
    """

    name: str
    center: float = 0.0
    scale: float | None = 1.0
    missing: bool = True

    def __post_init__(self) -> None:
        _check_name(self.name, "a column")
        _check_flag(self.missing, f"missing of the column '{self.name}'")
        for what, value in (("center", self.center), ("scale", 1.0 if self.scale is None else self.scale)):
            given: object = value  # it may have come as JSON from elsewhere: the type hint is not proof
            if isinstance(given, bool) or not isinstance(given, int | float) or not abs(given) <= LARGEST:
                raise InputError(f"{what} of the column '{self.name}' must be a number, but got {value!r:.80}")
        if self.scale is not None and not self.scale >= 1 / LARGEST:
            raise InputError(f"scale of the column '{self.name}' must be above 0, but got {self.scale!r}")
        object.__setattr__(self, "center", float(self.center) + 0.0)
        object.__setattr__(self, "scale", None if self.scale is None else float(self.scale))

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the columns that come out."""
        value = () if self.scale is None else (self.name,)
        return (*value, f"{self.name} is missing") if self.missing else value

    @property
    def n_counts(self) -> int:
        """How many of these are 0 or 1; they come last."""
        return int(self.missing)

    def fill(self, x: FloatArray, out: FloatArray) -> None:
        """Write the columns that come out (n, k) of codes (n,)."""
        gone = x == MISSING
        if self.scale is not None:
            out[:, 0] = np.where(gone, 0.0, (x - self.center) / self.scale)
        if self.missing:
            out[:, -1] = gone

    def code(self, value: Any) -> float:
        """Return the code of a cell."""
        return cell_number(value)

    def to_dict(self) -> dict[str, object]:
        """Return the column, ready for JSON."""
        return {"name": self.name, "center": self.center, "scale": self.scale, "missing": self.missing}


@dataclass(frozen=True)
class Categories:
    """A column of categories: one column for each that is agreed on.

    Parameters
    ----------
    name
        Of the column.
    categories
        Agreed on by all parties, hence public; different texts, in any order.
    other, missing
        Whether a column says that it is none of them, and one that it is missing.

    Examples
    --------
    >>> Categories("smoker", ("no", "yes")).outputs
    ('smoker = no', 'smoker = yes', 'smoker is another', 'smoker is missing')
    """

    name: str
    categories: tuple[str, ...]
    other: bool = True
    missing: bool = True

    def __post_init__(self) -> None:
        _check_name(self.name, "a column")
        _check_flag(self.other, f"other of the column '{self.name}'")
        _check_flag(self.missing, f"missing of the column '{self.name}'")
        given: object = self.categories
        if not isinstance(given, list | tuple):
            raise InputError(f"categories of the column '{self.name}' must be a list, but got {self.categories!r:.80}")
        for text in self.categories:
            _check_name(text, f"a category of the column '{self.name}'")
            if cell_text(text) != text:
                raise InputError(
                    f"'{text}' in the column '{self.name}' is read as a missing cell, or has blanks around"
                )
        if len({category_code(text) for text in self.categories}) < len(self.categories):
            raise InputError(
                f"two categories of the column '{self.name}' are the same, or have the same code (once in a thousand "
                "million pairs): rename one"
            )
        object.__setattr__(self, "categories", tuple(self.categories))

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the columns that come out."""
        named = tuple(f"{self.name} = {text}" for text in self.categories)
        return named + (f"{self.name} is another",) * self.other + (f"{self.name} is missing",) * self.missing

    @property
    def n_counts(self) -> int:
        """How many of these are 0 or 1: all."""
        return len(self.categories) + self.other + self.missing

    @cached_property
    def codes(self) -> FloatArray:
        """The codes (k,) of the categories."""
        return np.array([category_code(text) for text in self.categories], np.float64)

    def fill(self, x: FloatArray, out: FloatArray) -> None:
        """Write the columns that come out (n, k) of codes (n,)."""
        known = len(self.categories)
        out[:, :known] = x[:, None] == self.codes
        gone = x == MISSING
        if self.other:
            out[:, known] = ~gone & ~out[:, :known].any(axis=1)
        if self.missing:
            out[:, -1] = gone

    def code(self, value: Any) -> float:
        """Return the code of a cell."""
        text = cell_text(value)
        return MISSING if text is None else category_code(text)

    def to_dict(self) -> dict[str, object]:
        """Return the column, ready for JSON."""
        return {
            "name": self.name,
            "categories": list(self.categories),
            "other": self.other,
            "missing": self.missing,
        }


@dataclass(frozen=True)
class TableMap(FeatureMap, kind="table"):
    """Turn coded rows (n, columns) of a table into features; see the module.

    Parameters
    ----------
    columns
        What the columns hold, in the order of their codes.

    Examples
    --------
    >>> table = TableMap((Numbers("age", 50, 10), Categories("smoker", ("no", "yes"))))
    >>> coded = table.code({"age": [60, None, 45], "smoker": ["yes", "no", "rarely"]})
    >>> table(coded).tolist()
    [[1.0, 0.0, 0.0, 1.0, 0.0, 0.0], [0.0, 1.0, 1.0, 0.0, 0.0, 0.0], [-0.5, 0.0, 0.0, 0.0, 1.0, 0.0]]
    >>> table.outputs[2:5]
    ('smoker = no', 'smoker = yes', 'smoker is another')
    """

    columns: tuple[Numbers | Categories, ...]

    def __post_init__(self) -> None:
        given: object = self.columns
        if not isinstance(given, list | tuple) or not all(isinstance(each, Numbers | Categories) for each in given):
            raise InputError(f"the columns of a TableMap are Numbers and Categories, but got {self.columns!r:.80}")
        object.__setattr__(self, "columns", tuple(self.columns))
        names = [column.name for column in self.columns]
        if len(set(names)) != len(names):
            raise InputError("two columns of a TableMap have the same name")
        if not 1 <= len(self.outputs) <= MOST_COLUMNS or len(names) > MOST_COLUMNS:
            raise InputError(
                f"a TableMap gives 1 to {MOST_COLUMNS} columns, but {len(names)} columns give {len(self.outputs)}: "
                "does no column vary, or has one too many categories?"
            )

    @cached_property
    def outputs(self) -> tuple[str, ...]:
        """Names (D,) of the columns that come out."""
        return tuple(name for column in self.columns for name in column.outputs)

    @cached_property
    def counted(self) -> npt.NDArray[np.bool_]:
        """Which columns (D,) that come out are 0 or 1, so that their sums are counts."""
        flags = [[False] * (len(c.outputs) - c.n_counts) + [True] * c.n_counts for c in self.columns]
        return np.array([flag for column in flags for flag in column], np.bool_)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns that go in."""
        return tuple(column.name for column in self.columns)

    def required_dim(self) -> int:
        """Tell the number of columns of the table."""
        return len(self.columns)

    def code(self, cells: Any) -> npt.NDArray[np.float32]:
        """Return the codes (n, columns) of a table's cells; further columns are not looked at.

        Parameters
        ----------
        cells
            A dict of columns, or a table of pandas, polars, Arrow or Hugging Face.

        Raises
        ------
        InputError
            When a column is missing, or a cell of a column of numbers holds something else.

        Examples
        --------
        >>> TableMap((Numbers("age"),)).code({"age": ["40", "old"]})
        Traceback (most recent call last):
        fedmoments.errors.InputError: row 2 of the column 'age': it is 'old', not a number of at most 1e+30 in size
        """
        found = cells_of(cells, self.names)
        coded = [_code_column(column, found[column.name]) for column in self.columns]
        lengths = {len(column) for column in coded}
        if len(lengths) > 1:
            raise InputError(f"the columns of a table have one length, but got {sorted(lengths)}")
        return np.column_stack(coded)

    def code_row(self, values: Sequence[Any]) -> npt.NDArray[np.float32]:
        """Return the codes (columns,) of a row, whose cells come in the order of the columns."""
        codes = np.empty(len(self.columns), np.float32)
        for place, (column, cell) in enumerate(zip(self.columns, values, strict=True)):
            try:
                codes[place] = column.code(cell)
            except InputError as error:
                raise InputError(f"its '{column.name}': {error}") from error
        return codes

    def describe(self) -> dict[str, object]:
        """Describe the map: its columns, with agreed categories, centers and scales."""
        return {"kind": self.kind, "columns": [column.to_dict() for column in self.columns]}

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, Any]) -> Self:
        """Build a map from the descriptions of its columns; everything in them is checked."""
        columns = parameters.get("columns")
        if set(parameters) != {"columns"} or not isinstance(columns, list | tuple):
            raise InputError("the description of a feature map of kind 'table' must have a list of 'columns', no more")
        return cls(tuple(_column(given) for given in columns))

    def _apply(self, X: FloatArray) -> FloatArray:
        out = np.zeros((len(X), len(self.outputs)))
        start = 0
        for place, column in enumerate(self.columns):
            stop = start + len(column.outputs)
            column.fill(X[:, place], out[:, start:stop])
            start = stop
        out[~np.isfinite(X).all(axis=1)] = np.nan  # no code is one: whoever measures it refuses the row by name
        return out

    def _width(self, _d: int, /) -> int:
        return len(self.outputs)


def table_of(feature_map: FeatureMap | None) -> TableMap | None:
    """Return the table that a map begins with, or None where features come from elsewhere.

    Examples
    --------
    >>> from fedmoments.core.maps import Normalize
    >>> table = TableMap((Numbers("age"),))
    >>> table_of(table | Normalize()) == table, table_of(Normalize()) is None
    (True, True)
    """
    first = feature_map.maps[0] if isinstance(feature_map, Chain) else feature_map
    return first if isinstance(first, TableMap) else None


def _code_column(column: Numbers | Categories, cells: Sequence[Any]) -> npt.NDArray[np.float32]:
    """Return the codes (n,) of a column; equal cells are coded once."""
    known: dict[Any, float] = {}
    coded = np.empty(len(cells), np.float32)
    for row, cell in enumerate(cells):
        key = (type(cell), cell)
        try:
            code = known.get(key)
        except TypeError:
            raise InputError(
                f"row {row + 1} of the column '{column.name}': {type(cell).__name__} is not a cell"
            ) from None
        if code is None:
            try:
                code = known[key] = column.code(cell)
            except InputError as error:
                raise InputError(f"row {row + 1} of the column '{column.name}': {error}") from error
        coded[row] = code
    return coded


def _column(given: Any) -> Numbers | Categories:
    """Return a column from its description, of which nothing is believed."""
    if isinstance(given, Mapping) and set(given) == {"name", "center", "scale", "missing"}:
        return Numbers(**given)
    if isinstance(given, Mapping) and set(given) == {"name", "categories", "other", "missing"}:
        return Categories(**given)
    raise InputError(
        "a column of a table is described by name, center, scale and missing, or by name, categories, other and "
        f"missing, but got {given!r:.200}"
    )


def _check_name(text: object, what: str) -> None:
    if not isinstance(text, str) or not 0 < len(text) <= LONGEST_NAME or not text.isprintable():
        raise InputError(f"the name of {what} must be 1 to {LONGEST_NAME} printable characters, but got {text!r:.80}")


def _check_flag(value: object, what: str) -> None:
    if not isinstance(value, bool):
        raise InputError(f"{what} must be true or false, but got {value!r:.80}")
