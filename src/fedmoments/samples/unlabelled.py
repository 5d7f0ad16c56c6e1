"""Samples without labels, as people have them: files, folders, columns of tables, arrays, lines of standard input.

===============  =========================  ====================================  ============================
given            a model of images          a model of sentences                  a model of features
===============  =========================  ====================================  ============================
a folder         all images below it        –                                     –
``.csv .tsv``    paths in a column          sentences in a column                 all columns are numbers
``.npz``         uint8 (n, h, w[, 3])       –                                     numbers (n, d)
``-``            one path a line            one sentence a line                   numbers of a sample a line
another file     an image                   one sentence a line                   numbers of a sample a line
===============  =========================  ====================================  ============================

A model that was fitted from raw tables takes such, with the columns that it knows. Of an archive, the array
``x`` is taken, or ``x_test``, or the only one.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.maps import TableMap
from fedmoments.errors import FileFormatError, InputError
from fedmoments.samples.npz_arrays import read_npz
from fedmoments.samples.samples import Modality, Samples
from fedmoments.samples.sources.columns import guess_column
from fedmoments.samples.sources.csv_file import csv_header, csv_records
from fedmoments.samples.sources.folder import IMAGE_ENDINGS, files_below
from fedmoments.samples.sources.items import image_cell, text_cell
from fedmoments.samples.sources.rows import Problems

__all__ = ["STDIN", "read_unlabelled"]

#: Stands for standard input.
STDIN = "-"
_TABLES = (".csv", ".tsv")
_ARRAYS = ("x", "x_test")

#: A name for messages, and the sample.
_Named = tuple[str, Any]


def read_unlabelled(
    places: Sequence[str],
    modality: Modality,
    *,
    column: str | None = None,
    stdin: TextIO | None = None,
    sentences: Sequence[str] = (),
    table: TableMap | None = None,
) -> Samples:
    r"""Return the samples that files, folders, tables, archives and standard input hold, in order.

    Parameters
    ----------
    places
        Paths; ``-`` is standard input.
    modality
        What the model takes.
    column
        Of tables: where sentences or paths of images stand; guessed from its name by default.
    stdin
        Lines of standard input.
    sentences
        Further samples, as they were typed.
    table
        What codes the cells of raw tables, for a model that was fitted from such.

    Returns
    -------
    Samples
        Without classes; what could not be read is among their problems.

    Examples
    --------
    >>> import io
    >>> samples = read_unlabelled(["-"], "text", stdin=io.StringIO("hello\n\nbye\n"))
    >>> samples.items, samples.sources
    (['hello', 'bye'], ['standard input line 1', 'standard input line 3'])
    """
    problems = Problems(strict=False)
    named: list[_Named] = []
    for place in places:
        try:
            named += _read(place, modality, column, stdin, problems, table=table)
        except (InputError, FileFormatError) as error:
            problems.add(place, str(error))
    named += [(f"--text {number}", sentence) for number, sentence in enumerate(sentences, 1)]
    items = [item for _, item in named]
    return Samples(
        items,
        np.zeros(len(items), np.int64),
        (),
        modality,
        [name for name, _ in named],
        problems=tuple(problems.entries),
    )


#: What comes in files of its own.
FILES = ("image", "audio")


def _read(
    place: str,
    modality: Modality,
    column: str | None,
    stdin: TextIO | None,
    problems: Problems,
    *,
    table: TableMap | None,
) -> Iterable[_Named]:
    path = Path(place)
    if place == STDIN:
        return _lines("standard input", stdin or (), modality, problems)
    if path.is_dir():
        return _of_folder(path, modality, problems)
    if not path.is_file():
        raise InputError("there is no such file")
    ending = path.suffix.lower()
    if ending in _TABLES:
        return _of_table(path, modality, column, problems) if table is None else _of_raw_table(path, table, problems)
    if ending == ".npz":
        return _of_archive(path, modality)
    if modality in FILES:
        return [(place, path)]
    return _of_text(place, path, modality, problems)


def _of_text(place: str, path: Path, modality: Modality, problems: Problems) -> Iterable[_Named]:
    if path.suffix.lower() in IMAGE_ENDINGS:
        raise InputError(f"it is an image, and this model takes {modality}")
    try:
        return list(_lines(place, path.read_text("utf-8-sig").splitlines(), modality, problems))
    except UnicodeDecodeError as error:
        raise InputError(f"it is not a text file: {error}") from error


def _of_folder(path: Path, modality: Modality, problems: Problems) -> Iterator[_Named]:
    if modality not in FILES:
        raise InputError(f"it is a folder, and this model takes {modality}")
    return ((str(image), image) for image in files_below(path, problems, modality))


def _lines(name: str, lines: Iterable[str], modality: Modality, problems: Problems) -> Iterator[_Named]:
    for number, line in enumerate(lines, 1):
        if line.strip():
            where = f"{name} line {number}" if name == "standard input" else f"{name}:{number}"
            if modality in FILES:
                yield line.strip(), Path(line.strip())
            elif modality == "text":
                yield where, line.rstrip("\r\n")
            else:
                yield from _numbers(where, line.replace(",", " ").replace(";", " ").split(), problems)


def _numbers(where: str, cells: Iterable[Any], problems: Problems) -> Iterator[_Named]:
    try:
        yield where, np.array([float(cell) for cell in cells])
    except (TypeError, ValueError) as error:
        problems.add(where, f"it must hold numbers alone: {error}")


def _of_table(path: Path, modality: Modality, column: str | None, problems: Problems) -> Iterator[_Named]:
    header = csv_header(path, None)
    if column is not None and column not in header:
        raise InputError(f"it has no column '{column}': its columns are {', '.join(header)}")
    chosen = column or guess_column(modality, header)
    if chosen is None and modality != "features":
        raise InputError(f"which column holds the {modality}? Name it by --column; they are {', '.join(header)}")
    cell = image_cell(path.parent) if modality in FILES else text_cell
    for number, record in enumerate(csv_records(path, None)):
        where = f"{path} row {number + 1}"
        if isinstance(record, str):
            problems.add(where, record)
        elif modality == "features":
            yield from _numbers(where, record.values(), problems)
        else:
            yield from _cell(where, partial(cell, number, record.get(str(chosen))), problems)


def _cell(where: str, read: Callable[[], Any], problems: Problems) -> Iterator[_Named]:
    try:
        yield where, read()
    except InputError as error:
        problems.add(where, str(error))


def _of_raw_table(path: Path, table: TableMap, problems: Problems) -> Iterator[_Named]:
    header = csv_header(path, None)
    lacking = [name for name in table.names if name not in header]
    if lacking:
        raise InputError(
            f"it has no column '{lacking[0]}', which this model needs: its columns are {', '.join(header)}"
        )
    for number, record in enumerate(csv_records(path, None), 1):
        where = f"{path} row {number}"
        try:
            if isinstance(record, str):
                raise InputError(record)
            yield where, table.code_row([record.get(name) for name in table.names])
        except InputError as error:
            problems.add(where, str(error))


def _of_archive(path: Path, modality: Modality) -> Iterator[_Named]:
    names = read_npz(path, ())[1]
    chosen = next((name for name in _ARRAYS if name in names), names[0] if len(names) == 1 else None)
    if chosen is None:
        raise InputError(f"it must hold one array, or one that is called x; it holds {', '.join(names)}")
    array = read_npz(path, [chosen])[0][chosen]
    if not _fits(array, modality):
        raise InputError(f"its array {chosen} is {array.dtype} {array.shape}, and this model takes {modality}")
    return ((f"{path} {chosen}[{place}]", row) for place, row in enumerate(array))


def _fits(array: NDArray[Any], modality: Modality) -> bool:
    """Say whether an array holds rows of numbers, or pixels of images."""
    if modality == "features":
        return array.ndim == 2 and array.dtype.kind in "fiu"
    return modality == "image" and array.dtype == np.uint8 and array.ndim in (3, 4)
