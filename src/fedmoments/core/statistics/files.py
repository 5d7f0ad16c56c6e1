"""Statistics in a file: what one client measured, or many merged, to be carried to where they are merged or fitted."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.statistics.accumulator import Accumulator
from fedmoments.core.statistics.fixed_point import FixedPoint
from fedmoments.core.statistics.moments import Layout, moment
from fedmoments.core.statistics.sketch_plan import SketchPlan
from fedmoments.core.statistics.sketches import ALL_CLASSES, SKETCH_INDEX
from fedmoments.core.statistics.spec import StatisticsSpec
from fedmoments.core.statistics.statistics import Statistics
from fedmoments.errors import InputError, reading
from fedmoments.files import Header, pack_tensors, read_tensors, unpack_tensors, write_whole

__all__ = [
    "kind_header",
    "kind_of",
    "load_statistics",
    "pack_statistics",
    "save_statistics",
    "unpack_statistics",
]

#: Numbers of class sums, C·d, that a file may ask for: two gibibytes of them.
MOST_SUMS = 2**28
_KIND = "statistics"


def save_statistics(path: str | os.PathLike[str], stats: Statistics, notes: Header | None = None) -> None:
    """Write statistics, with JSON-able notes (class names, feature map, fingerprint …) in the header.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> stats = Statistics.of([[1.0, 2.0]], [0], StatisticsSpec.of("gram"), n_classes=2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_statistics(Path(folder, "clinic.stats"), stats, {"client": "clinic"})
    ...     again, notes = load_statistics(Path(folder, "clinic.stats"))
    >>> again == stats, notes
    (True, {'client': 'clinic'})
    """
    write_whole(path, pack_statistics(stats, notes))


def pack_statistics(stats: Statistics, notes: Header | None = None) -> bytes:
    """Return the bytes of the file that :func:`save_statistics` writes.

    Examples
    --------
    >>> stats = Statistics.of([[1.0, 2.0]], [0], StatisticsSpec.of("gram"), n_classes=2)
    >>> unpack_statistics(pack_statistics(stats), "the row") == stats
    True
    """
    header = {**kind_header(stats), "rounded": stats.rounded, "notes": notes or {}}
    if stats.clients:
        header["clients"] = sorted(stats.clients)
    tensors: dict[str, NDArray[Any]] = {
        "classes": stats.classes,
        "class_counts": stats.class_counts,
        "row_labels": stats.row_labels,
        "row_counts": stats.row_counts,
    }
    if stats.spec.keeps_clients_apart:
        tensors["row_owners"] = stats.row_owners
    if stats.spec.has_sketch:
        tensors |= {name: getattr(stats, name) for name in SKETCH_INDEX}
    tensors |= {f"moment.{name}": array for name, array in stats.arrays.items()}
    return pack_tensors(_KIND, tensors, header)


def kind_header(measured: Statistics | Accumulator) -> Header:
    """Return what was measured, and in which form, as a header.

    Examples
    --------
    >>> header = kind_header(Statistics.zero(StatisticsSpec.of("gram"), n_classes=2, dim=3))
    >>> header["moments"], kind_of(header)[1:]
    (['gram', 'sums'], (2, 3, None))
    """
    spec, form = measured.spec, measured.fixed_point
    return {
        "moments": sorted(spec.moments),
        "means_per_client": spec.means_per_client,
        "n_classes": measured.n_classes,
        "dim": measured.dim,
        "sketch": asdict(spec.sketch) if spec.sketch else None,
        "fixed_point": {"norm_bound": form.norm_bound, "max_samples": form.max_samples} if form else None,
    }


def kind_of(header: Header) -> tuple[StatisticsSpec, int, int, FixedPoint | None]:
    """Return what :func:`kind_header` described: spec, C, d and the fixed-point form, within what is read at all."""
    n_classes, dim = header["n_classes"], header["dim"]
    if any(type(number) is not int or number < 1 for number in (n_classes, dim)):
        raise InputError(f"n_classes and dim must be whole numbers of 1 or more, not {n_classes} and {dim}")
    if n_classes * dim > MOST_SUMS:
        raise InputError(f"{n_classes} classes in {dim} dimensions have more than the {MOST_SUMS} sums that are read")
    form = FixedPoint(**header["fixed_point"]) if header["fixed_point"] else None
    plan = SketchPlan(**header["sketch"]) if header.get("sketch") else None
    spec = StatisticsSpec.of(*header["moments"], means_per_client=header["means_per_client"], sketch=plan)
    return spec, n_classes, dim, form


def load_statistics(path: str | os.PathLike[str]) -> tuple[Statistics, Header]:
    """Read statistics and notes that :func:`save_statistics` wrote, checking that they are sound.

    Raises
    ------
    FileFormatError
        When the file is damaged, is something else, or holds numbers that no data could have.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     parts = []
    ...     for site in ("clinic", "lab"):
    ...         part = Statistics.of([[1.0, 2.0]], [0], StatisticsSpec.of("gram"), n_classes=2)
    ...         save_statistics(Path(folder, site), part)
    ...         parts.append(load_statistics(Path(folder, site))[0])
    >>> Statistics.merge(parts).counts
    array([2, 0])
    """
    tensors, header = read_tensors(path, _KIND)
    notes: Header = header.get("notes", {})
    return _read(tensors, header, str(path)), notes


def unpack_statistics(data: bytes, whose: str) -> Statistics:
    """Read what :func:`pack_statistics` returned, checked as :func:`load_statistics` does; ``whose``: for messages."""
    return _read(*unpack_tensors(data, _KIND, whose), whose)


def _read(tensors: dict[str, NDArray[Any]], header: Header, whose: str) -> Statistics:
    with reading(f"{whose} does not hold valid statistics"):
        spec, n_classes, dim, form = kind_of(header)
        arrays = {name: tensors[f"moment.{name}"] for name in spec.sent}
        index = [tensors[name] for name in ("classes", "class_counts", "row_labels", "row_counts")]
        apart: dict[str, Any] = {"row_owners": tensors["row_owners"]} if "row_owners" in tensors else {}
        apart["rounded"] = header.get("rounded", False) is True
        apart |= {name: tensors[name] for name in SKETCH_INDEX} if spec.has_sketch else {}
        apart["clients"] = frozenset(map(str, header.get("clients", ())))
        stats = Statistics(spec, n_classes, dim, index[0], index[1], arrays, index[2], index[3], form, **apart)
        _check(stats)
    return stats


def _check(stats: Statistics) -> None:
    """Refuse arrays of wrong shape or type, labels out of range, counts below one, and numbers that are not finite."""
    _check_index(stats)
    rows: dict[Layout, tuple[int, ...]] = {
        Layout.CLASS: stats.classes.shape,
        Layout.ROWS: stats.row_labels.shape,
        Layout.GLOBAL: (),
        Layout.SKETCH: (int(stats.sketch_sizes.sum()),),
    }
    for name, array in stats.arrays.items():
        dtype = np.int64 if stats.fixed_point and moment(name).layout is not Layout.SKETCH else np.float64
        shape = (*rows[moment(name).layout], moment(name).width(stats.dim))
        if array.dtype != dtype or array.shape != shape:
            raise InputError(
                f"'{name}' must be {dtype.__name__} of shape {shape}, but is {array.dtype} of {array.shape}"
            )
        if not np.isfinite(array).all():
            raise InputError(f"'{name}' holds NaN or infinity")
    if stats.fixed_point:
        stats.to_float().quantized(stats.fixed_point)  # refuses what is out of the agreed range and would wrap in a sum


def _check_index(stats: Statistics) -> None:
    """Refuse labels and counts that no data could have."""
    _check_lengths(stats)
    if (stats.sketch_sizes < 0).any() or not (
        np.isfinite(stats.sketch_residuals) & (stats.sketch_residuals >= 0)
    ).all():
        raise InputError("the sizes and residual traces of scatter sketches must be 0 or more")
    if not np.isin(stats.sketch_labels, [ALL_CLASSES, *stats.classes]).all():
        raise InputError("a block of a scatter sketch belongs to a class without samples")
    _check_labels(stats)
    if stats.spec.keeps_clients_apart:
        totals = np.zeros(len(stats.classes), np.int64)
        np.add.at(totals, np.searchsorted(stats.classes, stats.row_labels), stats.row_counts)
        if not np.array_equal(totals, stats.class_counts):
            raise InputError("the counts of the rows kept apart do not add up to the counts of the classes")


def _check_lengths(stats: Statistics) -> None:
    """Refuse arrays of the index of another type, or of other lengths than what they describe."""
    p, r = len(stats.classes), len(stats.row_labels)
    b = len(stats.sketch_sizes)
    lengths = {"classes": p, "class_counts": p, "row_labels": r, "row_counts": r, "row_owners": r}
    for name, length in (lengths | dict.fromkeys(SKETCH_INDEX, b)).items():
        array = getattr(stats, name)
        dtype = np.float64 if name == "sketch_residuals" else np.int64
        if array.dtype != dtype or array.shape != (length,):
            raise InputError(
                f"'{name}' must be {dtype.__name__} of shape ({length},), but is {array.dtype} of shape {array.shape}"
            )


def _check_labels(stats: Statistics) -> None:
    """Refuse labels out of range, order or without samples."""
    classes = stats.classes
    if len(classes) and (classes[0] < 0 or classes[-1] >= stats.n_classes or (classes[1:] <= classes[:-1]).any()):
        raise InputError(f"labels must ascend from 0 to {stats.n_classes - 1} without repetition")
    if (stats.class_counts < 1).any() or (stats.row_counts < 1).any():
        raise InputError("counts must be 1 or more")
    if not np.isin(stats.row_labels, stats.classes).all():
        raise InputError("a row kept apart belongs to a class without samples")
