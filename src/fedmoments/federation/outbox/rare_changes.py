"""Rare values among the samples that changed between two versions of a client's contribution.

A value that few samples of a class have is not measured (:mod:`fedmoments.privacy.rare_values`), for a row of a second
moment would be a sample. The difference of two versions is a second moment of the samples that changed alone: where one
of these has a feature that is 0 for the others, a row of the difference is that sample, however many of the class have
the feature. So the outbox keeps, beside each version, which value most samples of a class shared, column by column, and
how many; samples that are gone are told from those that stayed by counting.
"""

import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.linalg import blocks
from fedmoments.errors import FileFormatError, PolicyError, reading
from fedmoments.federation.outbox.differences import SAMPLE_KEY, tells_second_moments
from fedmoments.federation.terms import Terms
from fedmoments.privacy.rare_values import find_rare
from fedmoments.settings.policy import PolicyRules

__all__ = ["Features", "Measured", "SharedValues", "require_common_change"]

Floats = NDArray[np.floating]
Ints = NDArray[np.int64]
#: So many samples of a class say which value its samples share.
LOOKED_AT = 500
_HEAD = struct.Struct("<QQ")


class Features(Protocol):
    """Features as they are measured, (n, d), in rows."""

    def __getitem__(self, rows: slice | Ints) -> Floats: ...


@dataclass(frozen=True, eq=False)
class SharedValues:
    """What samples of a class share, column by column, as they were measured.

    Parameters
    ----------
    labels
        (p,) ascending, of the classes with samples.
    values
        (p, d) the value that most of the first samples share.
    counts
        (p, d) how many samples have it.
    """

    labels: Ints
    values: NDArray[np.float64]
    counts: Ints

    @classmethod
    def of(cls, features: Features, y: Ints) -> "SharedValues":
        """Count what samples of each class share.

        Examples
        --------
        >>> X = np.array([[0.0, 1.0], [0.0, 2.0], [0.0, 1.0], [7.0, 4.0]])
        >>> shared = SharedValues.of(X, np.zeros(4, np.int64))
        >>> shared.values.tolist(), shared.counts.tolist(), SharedValues.from_bytes(shared.to_bytes()).counts.tolist()
        ([[0.0, 1.0]], [[3, 2]], [[3, 2]])
        """
        labels, groups = np.unique(y, return_inverse=True)
        first = [np.flatnonzero(groups == place)[:LOOKED_AT] for place in range(len(labels))]
        values = np.stack([_most_frequent(np.asarray(features[rows], np.float64)) for rows in first])
        counts = np.zeros(values.shape, np.int64)
        for block in blocks(len(y)):
            np.add.at(counts, groups[block], np.asarray(features[block], np.float64) == values[groups[block]])
        return cls(labels.astype(np.int64), values, counts)

    def to_bytes(self) -> bytes:
        """Return what :meth:`from_bytes` reads."""
        parts = (self.labels.astype("<i8"), self.values.astype("<f8"), self.counts.astype("<i8"))
        return _HEAD.pack(*self.values.shape) + zlib.compress(b"".join(part.tobytes() for part in parts), 1)

    def rare_of_gone(self, label: int, gone: int, features: Features, stayed: Ints, fewest: int) -> int:
        """Return how many columns hold what few samples that are gone had, and the others of these had not.

        Parameters
        ----------
        label, gone
            The class, and how many are gone.
        features, stayed
            Of the version that follows, and its rows of samples that stayed.
        fewest
            Fewest samples that may have such a value.
        """
        (place,) = np.flatnonzero(self.labels == label)
        value, count = self.values[place], self.counts[place]
        differ = np.zeros(len(value), np.int64)
        for block in blocks(len(stayed)):
            differ += (np.asarray(features[stayed[block]], np.float64) != value).sum(axis=0)
        left = gone + len(stayed) - count - differ
        return int(((count >= fewest) & (left > 0) & (left < min(fewest, gone))).sum())

    @classmethod
    def from_bytes(cls, data: bytes) -> "SharedValues":
        """Read what :meth:`to_bytes` made.

        Raises
        ------
        FileFormatError
            When it is something else.
        """
        with reading("what the outbox keeps of an earlier version is damaged"):
            try:
                (p, d), whole = _HEAD.unpack_from(data), zlib.decompress(data[_HEAD.size :])
            except (struct.error, zlib.error) as error:
                raise FileFormatError(f"what the outbox keeps of an earlier version is damaged: {error}") from error
            if len(whole) != 8 * (p + 2 * p * d):
                raise FileFormatError("what the outbox keeps of an earlier version is damaged: it has another length")
            labels, values, counts = np.split(np.frombuffer(whole, "<i8"), [p, p + p * d])
            return cls(labels.copy(), values.view("<f8").reshape(p, d).copy(), counts.reshape(p, d).copy())


class Measured(NamedTuple):
    """What would be sent: keys of its samples, and their features as they would be measured."""

    keys: bytes
    features: Features


def require_common_change(
    formers: Iterable[tuple[bytes, SharedValues | None]], now: Measured, terms: Terms, client: str, rules: PolicyRules
) -> None:
    """Refuse a new version where few of the samples that changed within a class have a value that all others lack.

    Parameters
    ----------
    formers
        Keys of the samples of all that were sent, and what these shared; None where an older release did not keep it.
    now
        What would be sent.
    terms, client, rules
        For whom, whose, and what it allows.

    Raises
    ------
    PolicyError
        With the class and the number of columns as a note, which stays on this machine.
    """
    mode = terms.privacy.mode
    if rules.min_count == 1 or rules.small_changes or not tells_second_moments(now.keys, terms, rules):
        return
    if mode.adds_reports or not mode.reads_contributions:
        return
    for keys, shared in formers:
        if not tells_second_moments(keys, terms, rules):
            continue
        columns = _rare_columns(keys, shared, now, rules.min_count)
        if columns:
            error = PolicyError(
                f"client '{client}' has a new version that differs from one that it sent in samples of which few have "
                "a feature that the others lack: whoever holds both has these samples, in a row of the difference of "
                "their second moments"
            )
            told = ", ".join(f"{n:,} of the columns of {terms.classes[c]}" for c, n in list(columns.items())[:10])
            error.add_note(f"rare among what changed: {told}; change more, or allow it with --small-changes")
            raise error


def _rare_columns(former: bytes, shared: SharedValues | None, now: Measured, fewest: int) -> dict[int, int]:
    """Return by label how many columns hold a value that few of the changed samples have; classes without any not."""
    before, after = np.frombuffer(former, SAMPLE_KEY), np.frombuffer(now.keys, SAMPLE_KEY)
    kinds, places = np.unique(np.concatenate([before, after]), return_inverse=True)
    held, holds = (np.bincount(part, minlength=len(kinds)) for part in np.split(places, [len(before)]))
    was_held, is_new = (there[places[len(before) :]] for there in (held > 0, holds > held))
    found: dict[int, int] = {}
    for label in np.intersect1d(before["label"], after["label"]).tolist():
        own, less = after["label"] == label, np.where(kinds["label"] == label, held - holds, 0)
        rare = _rare_of(now.features, np.flatnonzero(own & is_new), fewest)
        if gone := int(less[less > 0].sum()):
            stayed = np.flatnonzero(own & was_held)
            rare += 1 if shared is None else shared.rare_of_gone(label, gone, now.features, stayed, fewest)
        if rare:
            found[label] = rare
    return found


def _rare_of(features: Features, rows: Ints, fewest: int) -> int:
    """Return how many columns hold what few of some samples have, and the others of these have not."""
    if not len(rows):
        return 0
    group = np.zeros(len(rows), np.int64)
    return int(find_rare(lambda some: features[rows[some]], group, fewest).columns.sum())


def _most_frequent(X: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the value of each column of (n, d) that occurs most often; the least of several."""
    rows = np.sort(X, axis=0)
    best, longest, run = rows[0].copy(), np.ones(X.shape[1], np.int64), np.ones(X.shape[1], np.int64)
    for former, row in pairwise(rows):
        run = np.where(row == former, run + 1, 1)
        better = run > longest
        best, longest = np.where(better, row, best), np.where(better, run, longest)
    return np.asarray(best)
