"""Tables in files, a batch of rows at a time: Parquet, Arrow, CSV, and arrays of numpy.

========================  ==================================================================================
``.parquet``, ``.pq``     columns of numbers, one column of vectors, or one of samples for an encoder
``.arrow``, ``.feather``  the same, in Arrow's own format (memory-mapped), also as Hugging Face caches it
``.csv``                  a line of names, then columns of numbers
``.npz``                  ``x_train`` and ``y_train``, which may be targets, (n,) or (n, m)
========================  ==================================================================================
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.arrays import label_array
from fedmoments.core.classifier import target_matrix
from fedmoments.core.columns import (
    Columns,
    columns_matching,
    feature_names,
    number_columns,
    require_different,
    table_matrix,
)
from fedmoments.core.linalg import blocks
from fedmoments.errors import FileFormatError, InputError
from fedmoments.extras import require
from fedmoments.samples.natural_order import natural_key
from fedmoments.samples.npz_arrays import read_npz

__all__ = ["ENDINGS", "files_of", "labels_of", "lake_columns", "lake_names", "table_batches", "tables_in"]

ENDINGS = (".parquet", ".pq", ".arrow", ".feather", ".csv", ".npz")
#: How types of labels begin that numpy reads without an object a row, or are text.
_PLAIN = ("int", "uint", "halffloat", "float", "double", "string", "large_string")
#: Rows of a batch: few megabytes of features, enough for BLAS.
ROWS = 8192


def files_of(paths: str | Path | Iterable[str | Path]) -> list[Path]:
    """Return the files that a path, a folder or several of them stand for, in natural order.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name in ("part-10.parquet", "part-9.parquet", "notes.txt", "_SUCCESS"):
    ...         _ = Path(folder, name).write_bytes(b"")
    ...     [path.name for path in files_of(folder)]
    ['part-9.parquet', 'part-10.parquet']
    """
    found: dict[Path, None] = {}
    if not isinstance(paths, Iterable | Path):
        raise InputError(f"files are a path, a folder, or a list of them, not a {type(paths).__name__}")
    for given in [paths] if isinstance(paths, str | Path) else paths:
        path = Path(given).expanduser()
        if path.is_dir():
            found |= dict.fromkeys(tables_in(path))
        else:
            found[path] = None
    missing = [path for path in found if not path.is_file()]
    if missing or not found:
        what = f"{missing[0]} is not there" if missing else f"{paths} holds no file that ends in {', '.join(ENDINGS)}"
        raise InputError(f"there is nothing to measure: {what}")
    return list(found)


def tables_in(folder: Path) -> list[Path]:
    """Return the tables in a folder and in those below, in natural order."""
    inside = [p for p in folder.rglob("*") if p.suffix.lower() in ENDINGS and not p.name.startswith((".", "_"))]
    return sorted(inside, key=lambda p: natural_key(str(p)))


def lake_columns(files: Sequence[Path], columns: Columns) -> Columns:
    r"""Return columns with the features of the first table by name: all files give the same, in the same order.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "a.csv")
    ...     _ = path.write_text("b,label,a\n0.5,1,2\n")
    ...     lake_columns([path], Columns()).features
    ('b', 'a')
    """
    for path in files:
        if path.suffix.lower() != ".npz":
            schema = next(_arrow_batches(path, lambda _: None))
            names = feature_names(schema, columns)
            if not names:
                there = ", ".join(f"{field.name} ({field.type})" for field in schema if field.name != columns.label)
                raise InputError(
                    f"{path}: features are columns of numbers, or one column of vectors of numbers, but beside the "
                    f"labels there is {there or 'nothing'}"
                )
            return replace(columns, features=tuple(names))
    return columns


def lake_names(files: Sequence[Path]) -> list[str]:
    """Return the names of the columns of the first table; none where all files are arrays of numpy."""
    for path in files:
        if path.suffix.lower() != ".npz":
            return list(next(_arrow_batches(path, lambda _: None)).names)
    return []


def table_batches(path: Path, columns: Columns, *, samples: bool = False) -> Iterator[tuple[Any, NDArray[Any]]]:
    """Yield (X, labels) of a file, some thousand rows at a time; targets (n, m) instead of labels where there are any.

    Parameters
    ----------
    path
        The file.
    columns
        Which columns are labels and features.
    samples
        X are the values of one column as they stand (texts, bytes of images), for an encoder; else numbers (n, d).
    """
    if path.suffix.lower() == ".npz":
        arrays = _arrays(path, "x_train", "y_train")
        for block in blocks(len(arrays["x_train"]), ROWS):
            labels = arrays["y_train"][block]
            yield arrays["x_train"][block], _checked_targets(path, labels, columns) if columns.targets else labels
        return
    for batch in _batches(path, lambda names: _needed(names, columns)):
        labels = _targets(path, batch, columns) if columns.targets else _labels_of(path, batch, columns)
        if samples and not _holds_rows(batch.schema, columns):
            (name,) = columns_matching(batch.schema.names, columns.features or "image")[:1]
            yield [_bytes_of(value) for value in batch[name].to_pylist()], labels
        else:
            yield table_matrix(batch, columns), labels


def _holds_rows(schema: Any, columns: Columns) -> bool:
    """Say whether an encoder is given rows of numbers: of several columns, or of one of numbers or vectors."""
    named = columns_matching(schema.names, columns.features or "image")
    return len(named) > 1 or named[0] in number_columns(schema.empty_table().select(named).schema)


def labels_of(path: Path, label: str) -> Counter[Any]:
    """Return the different labels of a file, and how many rows have each; only their column is read."""
    if path.suffix.lower() == ".npz":
        return _counted(_arrays(path, "y_train")["y_train"])
    seen = Counter[Any]()
    for batch in _batches(path, lambda names: [name for name in names if name == label]):
        seen += _counted(_labels_of(path, batch, Columns(label)))
    return seen


def _counted(labels: NDArray[Any]) -> Counter[Any]:
    if labels.dtype == object:
        return Counter(labels.tolist())
    values, counts = np.unique(labels, return_counts=True)
    return Counter(dict(zip(values.tolist(), counts.tolist(), strict=True)))


def _arrays(path: Path, *names: str) -> dict[str, NDArray[Any]]:
    arrays, held = read_npz(path, names)
    for name in names:
        if name not in arrays:
            raise InputError(f"{path} lacks the array '{name}': it holds {', '.join(held) or 'nothing'}")
    return arrays


def _needed(names: Sequence[str], columns: Columns) -> list[str]:
    """Return the columns to read: all but that of clients, if features are not named."""
    if columns.features is None:
        return [name for name in names if name != columns.client]
    wanted = columns.targets or (columns.label,)
    rest = [name for name in names if name not in wanted]
    return [name for name in names if name in wanted] + columns_matching(rest, columns.features)


def _labels_of(path: Path, batch: Any, columns: Columns) -> NDArray[Any]:
    if columns.label not in batch.schema.names:
        raise InputError(f"{path} has no column '{columns.label}' of labels: say by label= which it is")
    column = batch[columns.label]
    if column.null_count:
        raise InputError(f"{path}: {column.null_count} labels are missing: drop these rows first")
    if str(column.type).startswith("dictionary"):
        column = column.dictionary_decode()
    if str(column.type).startswith(_PLAIN):
        return np.asarray(column.to_numpy(zero_copy_only=False))
    try:
        labels = label_array(column.to_pylist())
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    if labels.ndim != 1:
        raise InputError(f"{path}: a label is one number or text, but the column '{columns.label}' holds {column.type}")
    return labels


def _checked_targets(path: Path, values: NDArray[Any], columns: Columns) -> NDArray[Any]:
    matrix = target_matrix(values)
    if matrix.shape[1] != len(columns.targets):
        raise InputError(
            f"'y_train' of {path} has {matrix.shape[1]} targets, but {len(columns.targets)} were named: "
            f"{', '.join(columns.targets)}"
        )
    return matrix


def _targets(path: Path, batch: Any, columns: Columns) -> NDArray[Any]:
    """Return the columns of targets of a batch, (n, m)."""
    missing = [name for name in columns.targets if name not in batch.schema.names]
    if missing:
        raise InputError(f"{path} has no column '{missing[0]}' of targets: it has {', '.join(batch.schema.names)}")
    values = [batch[name] for name in columns.targets]
    for name, column in zip(columns.targets, values, strict=True):
        if column.null_count:
            raise InputError(f"the target '{name}' has {column.null_count} missing values: drop these rows first")
    return target_matrix(np.column_stack([column.to_numpy(zero_copy_only=False) for column in values]))


def _batches(path: Path, chosen: Any) -> Iterator[Any]:
    """Yield record batches of the chosen columns."""
    batches = _arrow_batches(path, chosen)
    next(batches)
    yield from batches


def _arrow_batches(path: Path, chosen: Any) -> Iterator[Any]:
    """Yield the schema, then record batches of the chosen columns, read ahead by no more than one."""
    kind = path.suffix.lower()
    arrow = require("pyarrow", f"Reading {path.name}", "tables")
    try:
        if kind in (".parquet", ".pq"):
            file = require("pyarrow.parquet", f"Reading {path.name}", "tables", "pyarrow").ParquetFile(
                path, buffer_size=2**20, pre_buffer=False
            )
            yield file.schema_arrow
            names = chosen(file.schema_arrow.names)  # read as it goes: by default a whole row group would be in memory
            yield from file.iter_batches(batch_size=ROWS, columns=names, use_threads=False)
        elif kind in (".arrow", ".feather"):
            with arrow.memory_map(str(path)) as mapped:
                yield from _ipc_batches(arrow, mapped, chosen)
        elif kind == ".csv":
            yield from _csv_batches(path, chosen)
        else:
            raise InputError(f"{path} cannot be measured: its ending is none of {', '.join(ENDINGS)}")
    except (arrow.ArrowException, OSError) as error:
        if "CSV conversion error" in str(error):
            raise InputError(f"{path}: a column must hold one type of cells in all rows, but {error}") from error
        raise FileFormatError(f"{path} is not a valid file ({error}): write it again") from error


def _csv_batches(path: Path, chosen: Any) -> Iterator[Any]:
    """Yield the schema and batches of CSV: numbers that begin as whole ones may go on with fractions, or gaps."""
    csv = require("pyarrow.csv", f"Reading {path.name}", "tables", "pyarrow")
    arrow = require("pyarrow", f"Reading {path.name}", "tables")
    with csv.open_csv(path) as first:
        schema = first.schema
    for place, field in enumerate(schema):  # of a column without a number so far, gaps are said when it is read
        if str(field.type) == "null":
            schema = schema.set(place, field.with_type(arrow.float64()))
    yield schema
    require_different(schema.names)
    names = chosen(schema.names)
    wide = ("int64", "double")
    numbers = {field.name: "float64" for field in schema if field.name in names and str(field.type) in wide}
    options = csv.ConvertOptions(include_columns=names, column_types=numbers)
    with csv.open_csv(path, convert_options=options) as reader:
        yield from reader


def _ipc_batches(arrow: Any, mapped: Any, chosen: Any) -> Iterator[Any]:
    try:
        reader = arrow.ipc.open_file(mapped)
        batches = (reader.get_batch(number) for number in range(reader.num_record_batches))
    except arrow.ArrowInvalid:  # a stream, as Hugging Face caches them
        mapped.seek(0)
        reader = batches = arrow.ipc.open_stream(mapped)
    yield reader.schema
    require_different(reader.schema.names)
    for batch in batches:
        for block in blocks(len(batch), ROWS):
            yield batch.slice(block.start, block.stop - block.start).select(chosen(batch.schema.names))


def _bytes_of(value: Any) -> Any:
    """Return a sample: of Hugging Face's pair of bytes and path the bytes."""
    return value.get("bytes") if isinstance(value, dict) else value
