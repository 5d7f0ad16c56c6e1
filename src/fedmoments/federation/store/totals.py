"""Running sums: one row a (moment, label), so that a contribution touches only the rows of the classes it holds.

``counts`` stands beside the moments: the number of samples of a label, and of all under label −1, where moments that
are not split by class stand too. A label without samples has no rows. So the table is a function of who is in, and of
nothing else: not of the order of arrival, nor of who came and left.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.statistics import MOMENTS, Layout, Statistics, StatisticsSpec
from fedmoments.durable import MOST_BLOB_BYTES, Connection
from fedmoments.errors import InputError, LedgerError
from fedmoments.federation.terms import Terms
from fedmoments.wire import Agreement

__all__ = ["ALL_CLASSES", "Change", "check_fits", "read_totals", "stored_totals", "total_samples"]

Ints = NDArray[np.int64]

#: The label of what is not split by class.
ALL_CLASSES = -1
_COUNTS = "counts"
_SELECT = "SELECT data FROM totals WHERE moment = ? AND label = ?"
_UPSERT = "INSERT INTO totals VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET data = excluded.data"


class Change:
    """What contributions that join and leave together change in the running sums.

    Memory is that of the sums of the classes touched, however many contributions are added.

    Parameters
    ----------
    spec
        The federation's moments; only those that add up across clients are summed.
    """

    def __init__(self, spec: StatisticsSpec) -> None:
        self._spec = spec.additive
        self.sums: dict[tuple[str, int], Ints] = {}

    def add(self, contribution: Statistics, sign: int = 1) -> None:
        """Add a contribution in fixed point, or take it out with ``sign=-1``."""
        part = contribution.restricted(self._spec)
        labels = part.classes.tolist()
        self._add(_COUNTS, ALL_CLASSES, np.array([part.n_samples]), sign)
        for label, count in zip(labels, part.class_counts[:, None], strict=True):
            self._add(_COUNTS, label, count, sign)
        for name in self._spec.sent:
            array = part.arrays[name]
            if MOMENTS[name].layout is Layout.GLOBAL:
                self._add(name, ALL_CLASSES, array, sign)
                continue
            for label, row in zip(labels, array, strict=True):
                self._add(name, label, row, sign)

    def _add(self, name: str, label: int, values: Ints, sign: int) -> None:
        # An intermediate sum may wrap; modulo 2⁶⁴ the final one is right, and its range is checked by the samples.
        held = self.sums.get((name, label))
        if held is None:
            self.sums[name, label] = sign * values
        elif sign > 0:
            held += values
        else:
            held -= values

    def occupied(self) -> dict[tuple[str, int], Ints]:
        """Return the sums of all labels that have samples: the table that adding to nothing would give."""
        return {key: values for key, values in self.sums.items() if self.sums[_COUNTS, key[1]][0] != 0}

    def apply(self, connection: Connection) -> None:
        """Add the change to the stored sums, inside a transaction; labels left without samples lose their rows.

        Raises
        ------
        LedgerError
            When more is taken out than is in: the file is damaged.
        """
        emptied = set()
        for (name, label), change in self.sums.items():
            row = connection.execute(_SELECT, (name, label)).fetchone()
            values = change if row is None else change + _numbers(row[0], len(change), name, label)
            if name == _COUNTS and values[0] < 0:
                raise LedgerError(
                    f"class {label} would be left with {values[0]} samples: the running sums do not hold what was "
                    "added to them; run verify, and restore a snapshot"
                )
            if name == _COUNTS and values[0] == 0:
                emptied.add(label)
            elif label not in emptied:
                connection.execute(_UPSERT, (name, label, values.astype("<i8", copy=False).data))
            elif values.any():
                raise LedgerError(
                    f"class {label} has no samples left, but its '{name}' is not zero: the running sums do not hold "
                    "what was added to them; run verify, and restore a snapshot"
                )
        connection.executemany("DELETE FROM totals WHERE label = ?", [(label,) for label in emptied])


def total_samples(connection: Connection) -> int:
    """Return how many samples all contributions that are in hold together."""
    row = connection.execute(_SELECT, (_COUNTS, ALL_CLASSES)).fetchone()
    return int(_numbers(row[0], 1, _COUNTS, ALL_CLASSES)[0]) if row else 0


def stored_totals(connection: Connection) -> Iterator[tuple[tuple[str, int], bytes]]:
    """Yield ((moment, label), bytes of the sums) of every row."""
    for name, label, data in connection.execute("SELECT moment, label, data FROM totals ORDER BY moment, label"):
        yield (name, label), data


def read_totals(connection: Connection, agreement: Agreement, wanted: StatisticsSpec) -> Statistics:
    """Return the sums of ``wanted``, whose moments all add up, over all who are in; in fixed point."""
    spec = _least_stored(agreement.spec.additive, wanted)
    counted = [(label, data) for label, data in _column(connection, _COUNTS) if label != ALL_CLASSES]
    classes = np.array([label for label, _ in counted], np.int64)
    counts = np.array([_numbers(data, 1, _COUNTS, label)[0] for label, data in counted], np.int64)
    places = {label: place for place, (label, _) in enumerate(counted)}
    arrays = {name: _read_moment(connection, name, agreement.dim, places) for name in spec.sent}
    stats = Statistics(
        spec, agreement.n_classes, agreement.dim, classes, counts, arrays, fixed_point=agreement.fixed_point
    )
    return stats.restricted(wanted)


def _read_moment(connection: Connection, name: str, dim: int, places: dict[int, int]) -> NDArray[Any]:
    """Return the sums of a moment, (width,) over all classes or (p, width) with class c at ``places[c]``."""
    width = MOMENTS[name].width(dim)
    if MOMENTS[name].layout is Layout.GLOBAL:
        total = np.zeros(width, np.int64)
        for label, data in _column(connection, name):
            total += _numbers(data, width, name, label)
        return total
    sums = np.zeros((len(places), width), np.int64)
    for label, data in _column(connection, name):
        if label not in places:
            raise LedgerError(f"class {label} has a '{name}' but no samples: the ledger is damaged; run verify")
        sums[places[label]] = _numbers(data, width, name, label)
    return sums


def check_fits(terms: Terms) -> None:
    """Refuse terms under which a contribution or a sum would be larger than SQLite stores in one row."""
    sizes = {"contribution (max_bytes)": terms.max_bytes}
    sizes |= {f"sum of '{name}'": 8 * MOMENTS[name].width(terms.dim) for name in terms.spec.additive.sent}
    for what, size in sizes.items():
        if size > MOST_BLOB_BYTES:
            raise InputError(
                f"a {what} of these terms may have {size} bytes, but the ledger stores at most {MOST_BLOB_BYTES} in a "
                "row: agree on fewer bytes, fewer moments or features of lower dimension"
            )


def _column(connection: Connection, name: str) -> Iterator[tuple[int, bytes]]:
    yield from connection.execute("SELECT label, data FROM totals WHERE moment = ? ORDER BY label", (name,))


def _least_stored(stored: StatisticsSpec, wanted: StatisticsSpec) -> StatisticsSpec:
    """Return the fewest of the stored moments from which all that is wanted follows."""
    needed = set()
    for name in wanted.sent:
        finer = [other for other in stored.sent if name in StatisticsSpec.of(other).moments]
        needed.update([name] if name in finer else finer)
    return StatisticsSpec(frozenset(needed))


def _numbers(data: bytes, length: int, name: str, label: int) -> Ints:
    if len(data) != 8 * length:
        raise LedgerError(
            f"the running sum of '{name}' for label {label} has {len(data)} bytes instead of {8 * length}: the ledger "
            "is damaged; run verify, and restore a snapshot"
        )
    return np.frombuffer(data, "<i8").astype(np.int64, copy=False)
