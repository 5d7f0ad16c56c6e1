"""``csv:PATH``: a table of texts or of paths of images, in UTF-8, with a header."""

import csv
from collections.abc import Iterator
from pathlib import Path

from fedmoments.errors import FileFormatError, InputError
from fedmoments.samples.dataset import DataSet
from fedmoments.samples.sources.columns import Columns, choose_columns
from fedmoments.samples.sources.items import image_cell, text_cell
from fedmoments.samples.sources.rows import Problems, Rows, assemble
from fedmoments.samples.sources.source import Source
from fedmoments.samples.sources.table import Record, read_rows
from fedmoments.samples.splits.draws import Seed

__all__ = ["SOURCES", "load_csv"]

_LONGEST_CELL = 2**26


def load_csv(
    argument: str,
    *,
    text: str | None = None,
    image: str | None = None,
    label: str | None = None,
    client: str | None = None,
    domain: str | None = None,
    split: str | None = None,
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
    client, domain
        Columns of who holds a sample and where it is from, if there are.
    split
        Column that says ``train`` or ``test``.
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
    if split is not None and test is not None:
        raise InputError("give the test part by a column (split) or by a file (test), not by both")
    problems = Problems(strict=strict)
    path = Path(argument).expanduser()
    names = {"text": text, "image": image, "label": label, "client": client, "domain": domain, "split": split}
    columns = choose_columns(str(path), _header(path, delimiter), **names)
    parts = _rows(path, columns, delimiter, problems)
    if test is not None:
        other = Path(test).expanduser()
        there = _header(other, delimiter)
        same = {"text" if not columns.is_image else "image": columns.item, "label": columns.label}
        kept = {what: names[what] for what in ("client", "domain") if names[what] in there}
        parts["test"] = _rows(other, choose_columns(str(other), there, **same, **kept), delimiter, problems)["train"]
    return assemble(
        f"csv:{argument}",
        parts["train"],
        parts.get("test"),
        "image" if columns.is_image else "text",
        problems,
        test_share=test_share,
        seed=seed,
    )


def _rows(path: Path, columns: Columns, delimiter: str | None, problems: Problems) -> dict[str, Rows]:
    cell = image_cell(path.parent) if columns.is_image else text_cell
    return read_rows(path.name, _records(path, delimiter), columns, problems, cell)


def _header(path: Path, delimiter: str | None) -> list[str]:
    header = next(_cells(path, delimiter), None)
    if not header:
        raise InputError(f"{path} is empty: its first line must name the columns")
    if len(set(header)) != len(header):
        raise InputError(f"two columns of {path} have the same name: {', '.join(header)}")
    return header


def _records(path: Path, delimiter: str | None) -> Iterator[Record]:
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
