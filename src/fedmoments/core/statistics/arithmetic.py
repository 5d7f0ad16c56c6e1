"""Adding, subtracting and comparing statistics: union of the classes, scatter-adds, and multisets of rows."""

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.statistics.moments import DERIVED, Layout, moment
from fedmoments.core.statistics.sketches import SKETCH_INDEX
from fedmoments.core.statistics.spec import told_apart
from fedmoments.errors import MergeError

if TYPE_CHECKING:
    from fedmoments.core.statistics.statistics import Statistics

__all__ = ["add_up", "digest_of", "require_different_clients", "require_mergeable", "row_keys", "subtract"]

Ints = NDArray[np.int64]


def require_mergeable(ours: "Statistics", theirs: "Statistics") -> None:
    """Refuse to combine statistics of different kind, naming the first thing that differs."""
    for name in ("spec", "n_classes", "dim", "fixed_point"):
        a, b = getattr(ours, name), getattr(theirs, name)
        if a != b:
            one, other = told_apart(a, b)
            raise MergeError(
                f"statistics can only be merged if their {name} is the same, but one has {one} and the other {other}"
            )
    derived = sorted(ours.spec.moments & DERIVED.keys())
    if derived:
        raise MergeError(
            f"statistics that hold {', '.join(derived)} were made around the class means of all their clients together,"
            " so neither can more be added nor a part be taken out: make them again with all clients"
        )


def require_different_clients(items: list["Statistics"]) -> None:
    """Refuse statistics of one client twice, as far as they say whose they are."""
    seen: set[str] = set()
    for item in items:
        twice = seen & item.clients if item.clients else ()
        if twice:
            raise MergeError(
                f"the client {min(twice)!r} is in two of the statistics to merge: join its shards by "
                "Accumulator.merge, or say two_clients=True to count them as two clients"
            )
        seen |= item.clients


def add_up(items: list["Statistics"]) -> "Statistics":
    """Sum mergeable statistics: union of the classes, then one scatter-add a part."""
    first = items[0]
    total = sum(item.n_samples for item in items)
    if first.fixed_point:
        first.fixed_point.check_total(total)
    classes = np.unique(np.concatenate([item.classes for item in items]))
    places = [np.searchsorted(classes, item.classes) for item in items]
    counts = _joined(Layout.CLASS, [item.class_counts[:, None] for item in items], places, len(classes))[:, 0]

    def joined(name: str) -> NDArray[Any]:
        return _joined(moment(name).layout, [item.arrays[name] for item in items], places, len(classes))

    return replace(
        first,
        classes=classes,
        class_counts=counts,
        arrays={name: joined(name) for name in first.arrays},
        rounded=all(item.rounded for item in items),
        clients=frozenset().union(*(item.clients or () for item in items)),
        **_side_by_side(items),
    )


def _joined(layout: Layout, parts: list[NDArray[Any]], places: list[Ints], n_classes: int) -> NDArray[Any]:
    """Return a moment of several statistics: rows one after the other, or sums, by class at its place."""
    if layout.apart:
        return np.concatenate(parts)
    if layout is Layout.GLOBAL:
        total = parts[0].copy()
        for part in parts[1:]:
            total += part
        return total
    sums = np.zeros((n_classes, parts[0].shape[1]), parts[0].dtype)
    for part, place in zip(parts, places, strict=True):
        sums[place] += part
    return sums


def _side_by_side(items: list["Statistics"]) -> dict[str, Any]:
    """Return the index of what is kept apart, owners numbered so that those of different items differ."""
    names = ("row_labels", "row_counts", "sketch_sizes", "sketch_residuals", "sketch_labels")
    index = {name: np.concatenate([getattr(item, name) for item in items]) for name in names}
    owners: dict[str, list[Ints]] = {"row_owners": [], "sketch_owners": []}
    first = 0
    for item in items:
        for name, parts in owners.items():
            own = getattr(item, name)
            parts.append(np.where(own >= 0, own + first, own))
        first += 1 + max(int(getattr(item, name).max(initial=-1)) for name in owners)
    return index | {name: np.concatenate(parts) for name, parts in owners.items()}


def subtract(ours: "Statistics", theirs: "Statistics") -> "Statistics":
    """Take a part out of a sum that it was added to."""
    where = np.searchsorted(ours.classes, theirs.classes)
    counts = _counts_left(ours, theirs, where)
    left = counts > 0
    arrays: dict[str, NDArray[Any]] = {}
    rows = np.ones(len(ours.row_labels), bool)
    blocks = np.ones(len(ours.sketch_sizes), bool)
    for name, array in ours.arrays.items():
        layout = moment(name).layout
        if layout is Layout.SKETCH:
            blocks = _left(ours.sketches.keys(), theirs.sketches.keys(), "a scatter sketch")
            arrays[name] = ours.sketches.select(blocks).rows
        elif layout is Layout.GLOBAL:
            arrays[name] = array - theirs.arrays[name] if left.any() else np.zeros_like(array)
        elif layout is Layout.CLASS:
            difference = array.copy()
            difference[where] -= theirs.arrays[name]
            arrays[name] = difference[left]
        else:
            our_keys = row_keys(ours.row_labels, ours.row_counts, array)
            their_keys = row_keys(theirs.row_labels, theirs.row_counts, theirs.arrays[name])
            rows = _left(our_keys, their_keys, "a row of client means")
            arrays[name] = array[rows]
    kept = {name: getattr(ours, name)[rows] for name in ("row_labels", "row_counts", "row_owners")}
    kept |= {name: getattr(ours, name)[blocks] for name in SKETCH_INDEX}
    named = ours.clients - theirs.clients
    return replace(ours, classes=ours.classes[left], class_counts=counts[left], arrays=arrays, clients=named, **kept)


def _counts_left(ours: "Statistics", theirs: "Statistics", where: Ints) -> Ints:
    """Return our class counts less theirs, whose classes are at ``where`` of ours."""
    inside = where < len(ours.classes)
    if not inside.all() or not np.array_equal(ours.classes[where], theirs.classes):
        raise MergeError("cannot subtract statistics of classes that are not in this sum: they were never added to it")
    counts = ours.class_counts.copy()
    counts[where] -= theirs.class_counts
    if (counts < 0).any():
        label = int(ours.classes[counts < 0][0])
        raise MergeError(
            f"cannot subtract more samples of class {label} than this sum holds: they were never added to it"
        )
    return counts


def digest_of(stats: "Statistics") -> str:
    """Return the SHA-256 of the canonical bytes; rows kept apart count as a multiset, in no order."""
    sha = hashlib.sha256(repr((str(stats.spec), stats.n_classes, stats.dim, stats.fixed_point)).encode())
    for array in (stats.classes, stats.class_counts):
        sha.update(array.astype("<i8").tobytes())
    for name in sorted(stats.arrays):
        array = stats.arrays[name]
        sha.update(f"{name}{array.shape}".encode())
        little = array.astype(array.dtype.newbyteorder("<"), copy=False)
        if moment(name).layout.apart:
            rows = moment(name).layout is Layout.ROWS
            for key in sorted(row_keys(stats.row_labels, stats.row_counts, little) if rows else stats.sketches.keys()):
                sha.update(key)
        else:
            sha.update(np.ascontiguousarray(little).data)
    return sha.hexdigest()


def row_keys(labels: Ints, counts: Ints, rows: NDArray[Any]) -> list[bytes]:
    """Return the bytes that identify each row."""
    heads = np.stack([labels, counts], axis=1).astype("<i8")
    return [head.tobytes() + row.tobytes() for head, row in zip(heads, rows, strict=True)]


def _left(ours: list[bytes], theirs: list[bytes], what: str) -> NDArray[np.bool_]:
    """Return which of our rows or blocks remain once each of theirs was taken out once."""
    places: dict[bytes, list[int]] = {}
    for index, key in enumerate(ours):
        places.setdefault(key, []).append(index)
    keep = np.ones(len(ours), bool)
    for key in theirs:
        if not places.get(key):
            raise MergeError(f"cannot subtract {what} that is not in this sum: it was never added to it")
        keep[places[key].pop()] = False
    return keep
