"""``measure_files``: one party's files, measured wherever they can be read, as one party's statistics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedmoments.core.arrays import label_array, label_numbers, sorted_names
from fedmoments.core.columns import Columns
from fedmoments.core.maps import FeatureMap
from fedmoments.core.statistics import Accumulator, FixedPoint, Statistics, StatisticsSpec
from fedmoments.errors import InputError
from fedmoments.samples.lakes.engines import engine_of
from fedmoments.samples.lakes.manifest import Manifest, gathered
from fedmoments.samples.lakes.reading import files_of, labels_of, lake_columns
from fedmoments.samples.lakes.shard import FilesPlan, joined, measure_shard

__all__ = ["class_names_of", "measure_files", "plan_files"]

#: Classes that labels alone may make.
MOST_CLASSES = 2**20
Paths = str | Path | Iterable[str | Path]


def measure_files(
    paths: Paths,
    spec: StatisticsSpec,
    *,
    executor: Any = None,
    n_classes: int | None = None,
    class_names: Sequence[str] | None = None,
    label: str = "label",
    features: Sequence[str] | str | None = None,
    targets: Sequence[str] = (),
    encoder: Any = None,
    feature_map: FeatureMap | None = None,
    seed: int = 0,
    fixed_point: FixedPoint | None = None,
    client: str | None = None,
    manifest: str | Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Statistics:
    """Measure one party's files; paths are sent to where they are read, rows never travel.

    The result is the same, bit for bit, for any executor.

    Parameters
    ----------
    paths
        Files or folders of Parquet, Arrow, CSV or npz; the machines that measure must see them under these names.
    spec
        What to measure (:func:`fedmoments.spec_for`).
    executor
        Any ``concurrent.futures.Executor``, a ``distributed.Client``, or the module ``ray``; this process by default.
    n_classes
        C. If neither it nor ``class_names`` is given, the column of labels is read first.
    class_names
        Names of the classes in the order that all parties agree on, where labels are text.
    label, features
        The column of labels; names or patterns (``emb*``) of feature columns, or one column of vectors; all other
        columns of numbers by default.
    targets
        Columns of numbers that are predicted, instead of labels: measured beside the features, in one class
        (:func:`fedmoments.with_targets`). Of an npz file, names for the columns of ``y_train``.
    encoder
        One of ours by name, or a function that can be pickled: makes features of the values of the column ``features``.
    feature_map, seed, fixed_point, client
        As for :func:`fedmoments.measure_stream`.
    manifest
        A file that keeps what is done: the same call goes on from there. Then partial sums are merged in this process.
    progress
        Called with the files that are done, and all.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for k in range(3):
    ...         np.savez(f"{folder}/part{k}.npz", x_train=np.full((2, 2), float(k)), y_train=np.array([0, 1]))
    ...     measure_files(folder, StatisticsSpec.of("client_means")).rows.block_means()
    array([[1., 1.],
           [1., 1.]])
    """
    files, plan = plan_files(
        paths, spec, n_classes=n_classes, class_names=class_names, label=label, features=features, targets=targets,
        encoder=encoder, feature_map=feature_map, seed=seed, fixed_point=fixed_point, client=client,
    )  # fmt: skip
    jobs = [partial(measure_shard, str(file), plan) for file in files]
    kept = None if manifest is None else Manifest(Path(manifest), plan.described(), files, joined)
    total = gathered(engine_of(executor), jobs, joined, kept, progress)
    if not total:
        raise InputError(f"there is nothing to measure: no file of {paths!s:.200} has a row")
    return Accumulator.from_bytes(total).statistics()


def plan_files(
    paths: Paths,
    spec: StatisticsSpec,
    *,
    n_classes: int | None = None,
    class_names: Sequence[str] | None = None,
    label: str = "label",
    features: Sequence[str] | str | None = None,
    targets: Sequence[str] = (),
    **how: Any,
) -> tuple[list[Path], FilesPlan]:
    r"""Return the files to measure, and what is measured of each: for an engine of your own, as :func:`measure_files`.

    Parameters
    ----------
    paths, spec, n_classes, class_names, label, features, targets
        As for :func:`measure_files`.
    **how
        ``encoder``, ``feature_map``, ``seed``, ``fixed_point`` and ``client``, as there.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.csv").write_text("x,y,label\n1,0.5,cat\n2,0.25,dog\n")
    ...     files, plan = plan_files(folder, StatisticsSpec())
    >>> len(files), plan.class_names, plan.columns.features
    (1, ('cat', 'dog'), ('x', 'y'))
    """
    files = files_of(paths)
    names: tuple[str, ...] = ()
    if targets:
        count = 1
    elif n_classes is None and class_names is None:
        names, count = class_names_of(files, label)
    else:
        if class_names is not None:
            label_numbers(np.array([], object), class_names)
        names = tuple(class_names or ())
        count = n_classes if n_classes is not None else len(names)
    columns = Columns(label=label, features=features, targets=tuple(targets))
    if how.get("encoder") is None:
        columns = lake_columns(files, columns)
    return files, FilesPlan(spec, count, columns, names, **how)


def class_names_of(paths: Paths, label: str = "label") -> tuple[tuple[str, ...], int]:
    """Return the names of the classes that files hold, in alphabetical order, and C; only labels are read.

    Labels that are numbers have no names.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/a.npz", x_train=np.ones((2, 2)), y_train=np.array(["dog", "cat"]))
    ...     class_names_of(folder)
    (('cat', 'dog'), 2)
    """
    seen: set[Any] = set()
    for path in files_of(paths):
        seen |= labels_of(path, label).keys()
    if all(isinstance(value, str) for value in seen):
        return sorted_names([label_array(sorted(seen))]) if seen else (), len(seen)
    if not all(isinstance(value, int | float) and float(value).is_integer() and value >= 0 for value in seen):
        raise InputError("labels must all be text, or all whole numbers from 0 on: repair the column, or name another")
    highest = int(max(seen))
    if highest >= MOST_CLASSES:
        raise InputError(
            f"the label {highest} would make {highest + 1} classes: number classes from 0 without gaps, or give text"
        )
    return (), highest + 1
