"""``csv:PATH``: a table of texts or of paths of images, in UTF-8, with a header."""

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fedmoments.core.maps import TableMap
from fedmoments.errors import FileFormatError, InputError
from fedmoments.samples.dataset import DataSet
from fedmoments.samples.sources.columns import Columns
from fedmoments.samples.sources.items import feature_cells, image_cell, text_cell
from fedmoments.samples.sources.registry import Source
from fedmoments.samples.sources.rows import Problems, Rows
from fedmoments.samples.sources.table import Record, load_table, read_rows
from fedmoments.samples.splits.draws import Seed

__all__ = ["SOURCES", "csv_header", "csv_records", "load_csv"]

_LONGEST_CELL = 2**26


def load_csv(
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
    delimiter: str | None = None,
    test_share: float = 0.2,
    seed: Seed = 0,
    strict: bool = False,
) -> DataSet:
    r"""Load a table.

    Parameters
    ----------
    argument
        The file.
    text, image, label
        Columns of the samples (texts, or paths of images relative to the file) and of their classes; guessed from
        their names when not given.
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
    delimiter
        Between cells; a comma, or a tab in ``.tsv`` files, by default.
    test_share, seed
        For holding out a test part, when none is given.
    strict
        Whether to stop at the first problem.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "t.csv").write_text("text,label\nhello,greeting\nbye,farewell\n,farewell\n")
    ...     data = load_csv(str(Path(folder, "t.csv")), test_share=0)
    >>> data.class_names, data.train.items, [problem.why for problem in data.problems]
    (('farewell', 'greeting'), ['hello', 'bye'], ['its text is empty'])
    """
    named = {"text": text, "image": image, "label": label, "client": client, "domain": domain, "split": split}
    named |= {"features": features, "group": group}
    given: dict[str, Any] = {"raw": table, "test": test, "test_share": test_share, "seed": seed, "strict": strict}
    return load_table("csv", argument, lambda path: _Csv(path, delimiter), named, **given)


class _Csv:
    """A file of cells with something between them; it is read from its start whenever rows are requested."""

    def __init__(self, path: Path, delimiter: str | None) -> None:
        self.path, self.delimiter = path, delimiter
        self.names = csv_header(path, delimiter)
        self.numbers: tuple[str, ...] = ()  # cells are text until somebody says that they are numbers

    def class_names(self, label: str) -> tuple[str, ...]:  # noqa: ARG002 - no names stand in such a file
        return ()

    def cells(self, names: Sequence[str]) -> dict[str, list[Any]]:
        rows = [row for row in csv_records(self.path, self.delimiter) if not isinstance(row, str)]
        return {name: [row.get(name) for row in rows] for name in names}

    def rows(self, columns: Columns, classes: Sequence[str], problems: Problems) -> dict[str, Rows]:  # noqa: ARG002
        rows = feature_cells(columns.table)
        cell = rows if columns.features else image_cell(self.path.parent) if columns.is_image else text_cell
        return read_rows(self.path.name, csv_records(self.path, self.delimiter), columns, problems, cell)


def csv_header(path: Path, delimiter: str | None) -> list[str]:
    """Return the names of a file's columns."""
    header = next(_cells(path, delimiter), None)
    if not header:
        raise InputError(f"{path} is empty: its first line must name the columns")
    if len(set(header)) != len(header):
        raise InputError(f"two columns of {path} have the same name: {', '.join(header)}")
    return header


def csv_records(path: Path, delimiter: str | None) -> Iterator[Record]:
    """Yield the rows of a file by column, or why a row cannot be used."""
    cells = _cells(path, delimiter)
    header = next(cells)
    for row in cells:
        if len(row) > len(header):
            yield f"it has {len(row)} cells, but the header has {len(header)}: is a comma in a text not in quotes?"
        else:
            yield dict(zip(header, row, strict=False))


def _cells(path: Path, delimiter: str | None) -> Iterator[list[str]]:
    """Yield the rows of a file as lists; empty lines are none."""
    between = delimiter or ("\t" if path.suffix.lower() == ".tsv" else ",")
    csv.field_size_limit(max(_LONGEST_CELL, csv.field_size_limit()))
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            yield from (row for row in csv.reader(file, delimiter=between) if row)
    except UnicodeDecodeError as error:
        raise FileFormatError(f"{path} is not in UTF-8 (byte {error.start}): save it as UTF-8") from error
    except csv.Error as error:
        raise FileFormatError(f"{path} cannot be read as a table ({error})") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror})") from error


SOURCES = (Source("csv", "PATH", "a table of texts or paths of images", load_csv, (".csv", ".tsv")),)
