"""Running sums: one row a (moment, label), so that a contribution touches only the rows of the classes it holds.

``counts`` stands beside the moments: the number of samples of a label, and of all under label −1, where moments that
are not split by class stand too. A label without samples has no rows. So the table is a function of who is in, and of
nothing else: not of the order of arrival, nor of who came and left.
"""

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.statistics import MOMENTS, Layout, Statistics, StatisticsSpec
from fedmoments.durable import MOST_BLOB_BYTES, Connection
from fedmoments.errors import InputError, LedgerError
from fedmoments.federation.terms import Terms
from fedmoments.wire import Agreement

__all__ = ["ALL_CLASSES", "Change", "check_fits", "digest_of", "read_totals", "stored_totals", "total_samples"]

Ints = NDArray[np.int64]

_DAMAGED = "the ledger is damaged, and nothing is computed from it; run verify, and restore a snapshot"
#: The label of what is not split by class.
ALL_CLASSES = -1
_COUNTS = "counts"
_JOINED = "sum_digests LEFT JOIN totals USING (moment, label)"
_SELECT = f"SELECT data, digest FROM {_JOINED} WHERE moment = ? AND label = ?"  # noqa: S608 - constant names
_UPSERT = "INSERT INTO totals VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET data = excluded.data"
_SEAL = "INSERT INTO sum_digests VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET digest = excluded.digest"


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
            held = _read_row(connection, name, label, len(change))
            values = change if held is None else change + held
            if name == _COUNTS and _is_empty(label, values):
                emptied.add(label)
            elif label not in emptied:
                data = values.astype("<i8", copy=False).tobytes()
                connection.execute(_UPSERT, (name, label, data))
                connection.execute(_SEAL, (name, label, digest_of(name, label, data)))
            elif values.any():
                raise LedgerError(
                    f"class {label} has no samples left, but its '{name}' is not zero: the running sums do not hold "
                    "what was added to them; run verify, and restore a snapshot"
                )
        for table in ("totals", "sum_digests"):
            delete = f"DELETE FROM {table} WHERE label = ?"  # noqa: S608 - constant names
            connection.executemany(delete, [(label,) for label in emptied])

    def seal(self, connection: Connection) -> None:
        """Note the digests of these sums as those that the stored ones must have, whatever is stored."""
        sums = {key: values.astype("<i8").tobytes() for key, values in self.occupied().items()}
        connection.executemany(_SEAL, [(*key, digest_of(*key, data)) for key, data in sums.items()])


def _is_empty(label: int, counts: Ints) -> bool:
    if counts[0] < 0:
        raise LedgerError(
            f"class {label} would be left with {counts[0]} samples: the running sums do not hold what was added to "
            "them; run verify, and restore a snapshot"
        )
    return bool(counts[0] == 0)


def digest_of(name: str, label: int, data: bytes) -> bytes:
    """Return the SHA-256 of a running sum: of its bytes, and of whose they are.

    Examples
    --------
    >>> digest_of("gram", -1, bytes(8)) == digest_of("sums", -1, bytes(8))
    False
    """
    return hashlib.sha256(f"{name} {label}\n".encode() + data).digest()


def total_samples(connection: Connection) -> int:
    """Return how many samples all contributions that are in hold together."""
    held = _read_row(connection, _COUNTS, ALL_CLASSES, 1)
    return 0 if held is None else int(held[0])


def stored_totals(connection: Connection) -> Iterator[tuple[tuple[str, int], bytes, bytes | None]]:
    """Yield ((moment, label), bytes of the sums, their digest as noted) of every row, as it is."""
    query = "SELECT moment, label, data, digest FROM totals LEFT JOIN sum_digests USING (moment, label)"
    for name, label, data, digest in connection.execute(f"{query} ORDER BY moment, label"):
        yield (name, label), data, digest


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
    """Yield (label, bytes) of the sums of a moment, once they are what was written."""
    stored = connection.execute("SELECT count(*) FROM totals WHERE moment = ?", (name,)).fetchone()[0]
    query = f"SELECT label, data, digest FROM {_JOINED} WHERE moment = ? ORDER BY label"  # noqa: S608 - constant names
    for label, data, digest in connection.execute(query, (name,)):
        stored -= 1
        yield label, _checked(name, label, data, digest)
    if stored:
        raise LedgerError(f"{stored} running sums of '{name}' have no digest: {_DAMAGED}")


def _read_row(connection: Connection, name: str, label: int, length: int) -> Ints | None:
    """Return the stored sum of a moment and label; None if there is none."""
    row = connection.execute(_SELECT, (name, label)).fetchone()
    return None if row is None else _numbers(_checked(name, label, *row), length, name, label)


def _checked(name: str, label: int, data: bytes | None, digest: bytes) -> bytes:
    if not isinstance(data, bytes) or digest_of(name, label, data) != digest:
        raise LedgerError(
            f"the running sum of '{name}' for label {label} is not what was written (its digest differs): {_DAMAGED}"
        )
    return data


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
