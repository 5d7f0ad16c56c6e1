"""``parquet:PATH``: a table of texts, of images (bytes), or of paths of images."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fedmoments.errors import FileFormatError, InputError
from fedmoments.extras import require
from fedmoments.samples.dataset import DataSet
from fedmoments.samples.sources.columns import Columns, choose_columns
from fedmoments.samples.sources.items import image_cell, text_cell
from fedmoments.samples.sources.rows import Problems, Rows, assemble
from fedmoments.samples.sources.source import Source
from fedmoments.samples.sources.stored_images import StoredImages, chosen_images, place_cell
from fedmoments.samples.sources.table import Record, read_rows
from fedmoments.samples.splits.draws import Seed

__all__ = ["SOURCES", "load_parquet"]


def load_parquet(
    argument: str,
    *,
    text: str | None = None,
    image: str | None = None,
    label: str | None = None,
    client: str | None = None,
    domain: str | None = None,
    split: str | None = None,
    test: str | None = None,
    test_share: float = 0.2,
    seed: Seed = 0,
    strict: bool = False,
) -> DataSet:
    """Load a table from a Parquet file, or from a folder of them.

    Images in bytes stay in Arrow's memory until they are encoded. Names of classes that Hugging Face's ``datasets``
    wrote into the file are kept.

    Parameters
    ----------
    argument
        The file.
    text, image, label
        Columns of the samples (texts; or images as bytes, as paths relative to the file, or as a struct of both) and
        of their classes; guessed from their names when not given.
    client, domain
        Columns of who holds a sample and where it is from, if there are.
    split
        Column that says ``train`` or ``test``.
    test
        A second file, with the test part.
    test_share, seed
        For holding out a test part, when none is given.
    strict
        Whether to stop at the first problem.
    """
    if split is not None and test is not None:
        raise InputError("give the test part by a column (split) or by a file (test), not by both")
    problems = Problems(strict=strict)
    path = Path(argument).expanduser()
    table = _open(path)
    names = {"text": text, "image": image, "label": label, "client": client, "domain": domain, "split": split}
    columns = choose_columns(str(path), table.schema.names, **names)
    classes = _class_names(table.schema, columns.label)
    parts = _rows(path, table, columns, classes, problems)
    if test is not None:
        other = Path(test).expanduser()
        there = _open(other)
        same = {"text" if not columns.is_image else "image": columns.item, "label": columns.label}
        kept = {what: names[what] for what in ("client", "domain") if names[what] in there.schema.names}
        chosen = choose_columns(str(other), there.schema.names, **same, **kept)
        parts["test"] = _rows(other, there, chosen, classes, problems)["train"]
    return assemble(
        f"parquet:{argument}",
        parts["train"],
        parts.get("test"),
        "image" if columns.is_image else "text",
        problems,
        test_share=test_share,
        seed=seed,
        class_names=classes,
    )


def _open(path: Path) -> Any:
    """Return the Arrow data set of a file or folder; nothing but the schema is read."""
    arrow = require("pyarrow.dataset", "The data source 'parquet'", "tables", "pyarrow")
    if not path.exists():
        raise InputError(f"{path} cannot be read: there is no such file")
    try:
        return arrow.dataset(path, format="parquet")
    except (ValueError, OSError) as error:  # Arrow's errors are these
        raise FileFormatError(f"{path} is not a sound Parquet file ({error})") from error


def _rows(path: Path, source: Any, columns: Columns, classes: Sequence[str], problems: Problems) -> dict[str, Rows]:
    try:
        table = source.to_table(columns=list(dict.fromkeys(columns.all)))
    except (ValueError, OSError) as error:
        raise FileFormatError(f"{path} is a damaged Parquet file ({error})") from error
    folder = path if path.is_dir() else path.parent
    if not columns.is_image:
        return read_rows(path.name, _records(table, columns, classes), columns, problems, text_cell)
    cells = table.column(columns.item)
    if str(cells.type) in {"string", "large_string"}:
        return read_rows(path.name, _records(table, columns, classes), columns, problems, image_cell(folder))
    parts = read_rows(path.name, _records(table, columns, classes), columns, problems, place_cell)
    images = StoredImages(lambda place: cells[place].as_py(), len(cells), folder)
    for rows in parts.values():
        rows.items = chosen_images(images, rows.items)
    return parts


def _records(table: Any, columns: Columns, classes: Sequence[str]) -> Iterator[Record]:
    """Yield rows; of images that are stored in the table, only whether they are there."""
    values: dict[str, list[Any]] = {}
    for name in columns.all:
        cells = table.column(name)
        stored = name == columns.item and columns.is_image and str(cells.type) not in {"string", "large_string"}
        values[name] = cells.is_valid().to_pylist() if stored else cells.to_pylist()
    if classes:
        values[columns.label] = [_class_name(number, classes) for number in values[columns.label]]
    for row in zip(*values.values(), strict=True):
        yield dict(zip(values, row, strict=True))


def _class_name(number: Any, classes: Sequence[str]) -> str | None:
    return classes[number] if isinstance(number, int) and 0 <= number < len(classes) else None


def _class_names(schema: Any, label: str) -> Sequence[str]:
    """Return the class names in the metadata that ``datasets`` writes, if there are."""
    try:
        names = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"][label]["names"]
    except (KeyError, TypeError, ValueError):
        return ()
    return [str(name) for name in names]


SOURCES = (Source("parquet", "PATH", "a table of texts or images", load_parquet, (".parquet", ".pq")),)
