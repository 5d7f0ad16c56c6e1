"""Adding, subtracting and comparing statistics: union of the classes, scatter-adds, and multisets of rows.

Features multiplied by a power of two have the same digits, and statistics of them, too (:func:`times_power`).
"""

import hashlib
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.linalg import packed_diagonal
from fedmoments.core.statistics.moments import DERIVED, Layout, moment
from fedmoments.core.statistics.sketches import SKETCH_INDEX
from fedmoments.core.statistics.spec import told_apart
from fedmoments.errors import InputError, MergeError

if TYPE_CHECKING:
    from fedmoments.core.statistics.statistics import Statistics

__all__ = [
    "add_up",
    "digest_of",
    "feature_exponent",
    "require_different_clients",
    "require_mergeable",
    "row_keys",
    "subtract",
    "times_power",
]

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


#: Numbers below this power of two are so near the end of float64 that their smaller neighbours lose digits.
LEAST_EXPONENT = -1000


def feature_exponent(stats: "Statistics") -> int:
    """Return the power of two, e, next to the largest feature: sums of degree g are about N·2^(g·e); 0 without any.

    Raises
    ------
    InputError
        When a moment overflowed float64, or vanishes in it.

    Examples
    --------
    >>> from fedmoments.core.statistics import Statistics, StatisticsSpec
    >>> feature_exponent(Statistics.of([[1000.0, 1.0]], [0], StatisticsSpec.of("gram"), n_classes=1))
    10
    """
    exponents = [_exponent(stats, name) for name in stats.arrays if moment(name).degree > 0]
    exponent = max((own for own in exponents if own is not None), default=0)
    highest = max((moment(name).degree for name in stats.arrays), default=0)
    if highest > 1 and highest * exponent < LEAST_EXPONENT:
        raise InputError(
            f"features of size 2^{exponent} are so small that moments of degree {highest} vanish in float64: "
            "multiply them by a constant first"
        )
    return exponent


def _exponent(stats: "Statistics", name: str) -> int | None:
    """Return the exponent of the features behind one moment; None where all of it is 0."""
    array, degree = stats.arrays[name], moment(name).degree
    entries = packed_diagonal(array) if name in ("gram", "class_grams") else array
    peak = max(float(entries.max(initial=0)), -float(entries.min(initial=0)))
    if not math.isfinite(peak):
        raise InputError(
            f"the moment '{name}' holds NaN or infinity: features were so large that it overflowed float64; "
            "multiply them by a constant first"
        )
    if peak == 0.0:
        return None
    bits = stats.fixed_point.bits(degree) if stats.fixed_point and array.dtype == np.int64 else 0
    return (math.frexp(peak / max(stats.n_samples, 1))[1] - bits) // degree


def times_power(stats: "Statistics", exponent: int) -> "Statistics":
    """Return the statistics, in float64, that features multiplied by 2^exponent would have: no digit changes.

    Examples
    --------
    >>> from fedmoments.core.statistics import Statistics, StatisticsSpec
    >>> half = times_power(Statistics.of([[3.0]], [0], StatisticsSpec.of("gram"), n_classes=1), -1)
    >>> half.sums, half.gram
    (array([[1.5]]), array([[2.25]]))
    """
    wide = stats.to_float()
    arrays = {name: np.ldexp(array, moment(name).degree * exponent) for name, array in wide.arrays.items()}
    return replace(wide, arrays=arrays, sketch_residuals=np.ldexp(wide.sketch_residuals, 2 * exponent))
