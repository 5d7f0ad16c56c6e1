"""What is done with one file of a party's lake, and how results of two files become one.

=============  ====================================================================================================
``survey``     a key of every row, which tells what it is a copy of, and its class: all that rules ask for
``fetch``      the few rows of each class that tell which values the others share
``differing``  how many rows of each class are not as those, column by column
``measure``    the accumulator of the rows that rules let out, without rare values
=============  ====================================================================================================

A file that is measured is first compared with its survey, row by row: one that was changed in between is refused.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.floats import current_precision, precision
from fedmoments.core.statistics import Accumulator, StatisticsSpec
from fedmoments.errors import InputError
from fedmoments.federation.lake.reader import FileReader
from fedmoments.federation.outbox.differences import SAMPLE_KEY, sample_keys
from fedmoments.files import pack_tensors, unpack_tensors
from fedmoments.privacy.rare_values import RareValues, differing

__all__ = [
    "Measured",
    "Rest",
    "added",
    "chained",
    "counted",
    "fetched",
    "measured",
    "read_survey",
    "surveyed",
    "unpack_counts",
    "unpack_rows",
]

Ints = NDArray[np.int64]
#: Names of rows that cannot be read, of a file.
MOST_NAMES = 20
_SURVEY, _ROWS, _COUNTS = "survey of a file", "rows of a file", "counts of a file"


def surveyed(path: str, reader: FileReader) -> bytes:
    """Return the keys of all rows of a file."""
    keys: list[bytes] = []
    names: list[str] = []
    lost = 0
    for rows in reader.rows(path):
        keys.append(sample_keys(rows.X, rows.y))
        lost += len(rows.unreadable)
        names += rows.unreadable[: MOST_NAMES - len(names)]
    held = np.frombuffer(b"".join(keys), np.uint8)
    header = {"sizes": [len(held)], "unreadable": lost, "names": names}
    return pack_tensors(_SURVEY, {"keys": held}, header)


def chained(one: bytes, other: bytes) -> bytes:
    """Return the surveys of files that follow each other as one."""
    (first, before), (second, after) = (unpack_tensors(data, _SURVEY, "a survey") for data in (one, other))
    header = {
        "sizes": [*before["sizes"], *after["sizes"]],
        "unreadable": before["unreadable"] + after["unreadable"],
        "names": [*before["names"], *after["names"]][:MOST_NAMES],
    }
    return pack_tensors(_SURVEY, {"keys": np.concatenate([first["keys"], second["keys"]])}, header)


def read_survey(data: bytes) -> tuple[NDArray[np.uint8], Mapping[str, Any]]:
    """Return the keys of all rows, and how many bytes of them each file has."""
    tensors, header = unpack_tensors(data, _SURVEY, "the survey")
    return tensors["keys"], header


@dataclass(frozen=True, eq=False)
class Rest:
    """Of one file, what a pass over its rows looks at.

    Parameters
    ----------
    path, reader
        The file, and how it is read.
    keys
        What its survey found.
    chosen
        (n,) the rows that rules let out, packed into bits; None: all.
    before
        Values that are hidden before the feature map; None: nothing is.
    raw
        Whether rows are looked at before the feature map.
    """

    path: str
    reader: FileReader
    keys: bytes
    chosen: bytes | None = None
    before: RareValues | None = None
    raw: bool = False

    @property
    def asks(self) -> bool:
        """Whether there is a row to look at."""
        return any(self.keys if self.chosen is None else self.chosen)

    def rows(self) -> Iterator[tuple[NDArray[Any], Ints]]:
        """Yield (X, y) of the chosen rows, behind the feature map; refuses a file that is not what was surveyed."""
        width, start = SAMPLE_KEY.itemsize, 0
        total = len(self.keys) // width
        mask = None
        if self.chosen is not None:
            mask = np.unpackbits(np.frombuffer(self.chosen, np.uint8), count=total).astype(np.bool_)
        for rows in self.reader.rows(self.path):
            stop = start + len(rows.y)
            if sample_keys(rows.X, rows.y) != self.keys[start * width : stop * width]:
                raise self._changed()
            X, y = (rows.X, rows.y) if mask is None else (rows.X[mask[start:stop]], rows.y[mask[start:stop]])
            start = stop
            if len(y):
                yield X if self.raw else self.reader.mapped(X if self.before is None else self.before.hide(X, y)), y
        if start != total:
            raise self._changed()

    def _changed(self) -> InputError:
        return InputError(f"{self.path} was changed while it was measured: start again when it is whole")


def fetched(rest: Rest) -> bytes:
    """Return the chosen rows of a file."""
    parts = list(rest.rows())
    held = np.concatenate([X for X, _ in parts]) if parts else np.zeros((0, 0))
    return pack_tensors(_ROWS, {"rows": np.asarray(held)}, {})


def unpack_rows(data: bytes) -> NDArray[Any]:
    """Return what :func:`fetched` packed."""
    return unpack_tensors(data, _ROWS, "rows of a file")[0]["rows"]


def counted(rest: Rest, common: NDArray[Any]) -> bytes:
    """Return of every class how many of the chosen rows are not as ``common`` (C, d), column by column."""
    total = np.zeros(common.shape, np.int64)
    for X, y in rest.rows():
        total += differing(X, y, common)
    return pack_tensors(_COUNTS, {"differ": total}, {})


def added(one: bytes, other: bytes) -> bytes:
    """Return counts of two files, added up."""
    return pack_tensors(_COUNTS, {"differ": unpack_counts(one) + unpack_counts(other)}, {})


def unpack_counts(data: bytes) -> Ints:
    """Return what :func:`counted` packed."""
    return unpack_tensors(data, _COUNTS, "counts of a file")[0]["differ"]


@dataclass(frozen=True, eq=False)
class Measured:
    """What is measured of every file.

    Parameters
    ----------
    spec, n_classes, dim, seed
        As of :class:`fedmoments.Accumulator`.
    rare
        Values that are measured as what the others of their class have; None: nothing is hidden.
    precision
        In which numbers large products are computed: here's, by default.
    """

    spec: StatisticsSpec
    n_classes: int
    dim: int
    seed: int
    rare: RareValues | None = None
    precision: str = field(default_factory=current_precision)


def measured(rest: Rest, what: Measured, before: Ints) -> bytes:
    """Return the accumulator of a file whose classes had ``before`` (C,) rows in earlier ones; none without a row."""
    made = Accumulator(what.spec, n_classes=what.n_classes, dim=what.dim, seed=what.seed, before=before)
    with precision(what.precision):
        for X, y in rest.rows():
            made.update(what.rare.hide(X, y) if what.rare else X, y)
    return made.to_bytes() if made.n_samples else b""
