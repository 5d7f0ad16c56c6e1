"""``parquet:PATH``: a table of texts, of images (bytes), or of paths of images."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fedmoments.core.columns import ROW_NUMBERS, number_columns
from fedmoments.core.maps import TableMap
from fedmoments.errors import FileFormatError, InputError
from fedmoments.extras import require
from fedmoments.samples.dataset import DataSet
from fedmoments.samples.sources.columns import Columns
from fedmoments.samples.sources.items import feature_cells, image_cell, text_cell
from fedmoments.samples.sources.registry import Source
from fedmoments.samples.sources.rows import Problems, Rows
from fedmoments.samples.sources.stored_images import StoredImages, chosen_images, place_cell
from fedmoments.samples.sources.table import Record, load_table, read_rows
from fedmoments.samples.splits.draws import Seed

__all__ = ["SOURCES", "load_parquet"]

#: Arrow's types of columns that hold texts, or paths.
_TEXT = ("string", "large_string")


def load_parquet(
    argument: str,
    *,
    text: str | None = None,
    image: str | None = None,
    features: str | None = None,
    label: str | None = None,
    client: str | None = None,
    domain: str | None = None,
    split: str | None = None,
    group: str | None = None,
    table: TableMap | str | None = None,
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
    features
        Columns of numbers instead, by names or patterns: ``a,b,c``, ``emb*``, or one column of vectors.
    client, domain
        Columns of who holds a sample and where it is from, if there are.
    split
        Column that says ``train`` or ``test``.
    group
        Column of what must stay together, such as a patient: no group is on both sides, or at two clients.
    table
        The samples are rows of a raw table, with numbers, categories and gaps: ``draft`` (what it holds is seen in it;
        ``draft:COLUMN,…`` names columns of numbers that are categories), a map, or the path of one.
    test
        A second file, with the test part.
    test_share, seed
        For holding out a test part, when none is given.
    strict
        Whether to stop at the first problem.
    """
    named = {"text": text, "image": image, "label": label, "client": client, "domain": domain, "split": split}
    named |= {"features": features, "group": group}
    given: dict[str, Any] = {"raw": table, "test": test, "test_share": test_share, "seed": seed, "strict": strict}
    return load_table("parquet", argument, _Parquet, named, **given)


class _Parquet:
    """The Arrow data set of a file or folder; nothing but the schema is read until rows are requested."""

    def __init__(self, path: Path) -> None:
        arrow = require("pyarrow.dataset", "The data source 'parquet'", "tables", "pyarrow")
        if not path.exists():
            raise InputError(f"{path} cannot be read: there is no such file")
        try:
            self.source = arrow.dataset(path, format="parquet")
        except (ValueError, OSError) as error:  # Arrow's errors are these
            raise FileFormatError(f"{path} is not a valid Parquet file ({error})") from error
        self.path = path
        self.names = [name for name in self.source.schema.names if not name.startswith(ROW_NUMBERS)]
        self.numbers = number_columns(self.source.schema)

    def class_names(self, label: str) -> Sequence[str]:
        """Return the class names in the metadata that ``datasets`` writes, if there are."""
        try:
            metadata = json.loads((self.source.schema.metadata or {})[b"huggingface"])
            return [str(name) for name in metadata["info"]["features"][label]["names"]]
        except (KeyError, TypeError, ValueError):
            return ()

    def cells(self, names: Sequence[str]) -> dict[str, list[Any]]:
        table = self._read(names)
        return {name: table.column(name).to_pylist() for name in names}

    def _read(self, names: Sequence[str]) -> Any:
        try:
            return self.source.to_table(columns=list(dict.fromkeys(names)))
        except (ValueError, OSError) as error:
            raise FileFormatError(f"{self.path} is a damaged Parquet file ({error})") from error

    def rows(self, columns: Columns, classes: Sequence[str], problems: Problems) -> dict[str, Rows]:
        table = self._read(columns.all)
        folder = self.path if self.path.is_dir() else self.path.parent
        cells = table.column(columns.item)
        stored = columns.is_image and str(cells.type) not in _TEXT
        item: Any = place_cell if stored else image_cell(folder) if columns.is_image else text_cell
        item = feature_cells(columns.table) if columns.features else item
        parts = read_rows(self.path.name, _records(table, columns, classes), columns, problems, item)
        if stored:
            images = StoredImages(lambda place: cells[place].as_py(), len(cells), folder)
            for rows in parts.values():
                rows.items = chosen_images(images, rows.items)
        return parts


def _records(table: Any, columns: Columns, classes: Sequence[str]) -> Iterator[Record]:
    """Yield rows; of images that are stored in the table, only whether they are there."""
    values: dict[str, list[Any]] = {}
    for name in columns.all:
        cells = table.column(name)
        stored = name == columns.item and columns.is_image and str(cells.type) not in _TEXT
        values[name] = cells.is_valid().to_pylist() if stored else cells.to_pylist()
    if classes:
        values[columns.label] = [_class_name(number, classes) for number in values[columns.label]]
    for row in zip(*values.values(), strict=True):
        yield dict(zip(values, row, strict=True))


def _class_name(number: Any, classes: Sequence[str]) -> str | None:
    return classes[number] if isinstance(number, int) and 0 <= number < len(classes) else None


SOURCES = (Source("parquet", "PATH", "a table of texts, images or numbers", load_parquet, (".parquet", ".pq")),)
