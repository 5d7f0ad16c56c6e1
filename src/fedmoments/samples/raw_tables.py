"""Raw tables as samples: which map codes their cells, given, read from a file, or drafted from the table itself."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedmoments.core.maps import FeatureMap, TableMap, from_description, table_of
from fedmoments.core.tables import draft_table
from fedmoments.errors import FileFormatError, InputError, reading
from fedmoments.files import write_whole

__all__ = ["find_table", "is_draft", "read_map", "write_map"]

#: The word for a map that is drafted from the table itself; columns of codes that are categories stand behind a colon.
DRAFT = "draft"
_LARGEST_FILE = 2**26


def find_table(
    given: TableMap | str, whose: str, present: Sequence[str], cells: Callable[[Sequence[str]], Mapping[str, Any]]
) -> TableMap:
    """Return the map that codes the cells of a table.

    Parameters
    ----------
    given
        The map; ``draft`` or ``draft:COLUMN,…``; or the path of a file that :func:`write_map` wrote.
    whose
        Name of the table, for messages.
    present
        Its columns that may be features.
    cells
        Reads columns, one cell a row.

    Examples
    --------
    >>> table = {"age": ["31", "70"], "ward": ["7", "9"]}
    >>> find_table("draft:ward", "t.csv", ["age", "ward"], lambda names: table).columns[1].name
    'ward'
    """
    if isinstance(given, TableMap):
        found = given
    elif is_draft(given):
        codes = [name.strip() for name in given.partition(":")[2].split(",") if name.strip()]
        found = draft_table(cells(present), categories=codes)
    else:
        table = table_of(read_map(Path(given).expanduser()))
        if table is None:
            raise InputError(f"{given} holds a map that does not begin with a table: 'fedmoments table' makes one")
        found = table
    lacking = [name for name in found.names if name not in present]
    if lacking:
        raise InputError(
            f"{whose} has no column '{lacking[0]}' that may be a feature, but the table that was agreed on has: its "
            f"columns are {', '.join(present)}"
        )
    return found


def is_draft(word: str | None) -> bool:
    """Say whether a word asks for a draft: of the table itself, and so without centers and scales.

    Examples
    --------
    >>> is_draft("draft:ward"), is_draft("table.json"), is_draft(None)
    (True, False, False)
    """
    return word is not None and word.partition(":")[0] == DRAFT


def read_map(path: Path) -> FeatureMap:
    """Read a feature map from a file; everything in it is checked."""
    if not path.is_file():
        raise InputError(f"there is no file {path} of a table: 'fedmoments table' makes one; or write {DRAFT}")
    if path.stat().st_size > _LARGEST_FILE:
        raise FileFormatError(f"{path} is larger than any description of a feature map")
    with reading(f"{path} is not a description of a feature map"):
        return from_description(json.loads(path.read_bytes()))


def write_map(path: Path, feature_map: FeatureMap) -> None:
    """Write a feature map as JSON that people can read and change.

    Examples
    --------
    >>> import tempfile
    >>> from fedmoments.core.maps import Numbers
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_map(Path(folder, "t.json"), TableMap((Numbers("age"),)))
    ...     read_map(Path(folder, "t.json")).names
    ('age',)
    """
    write_whole(path, f"{json.dumps(feature_map.describe(), indent=1, ensure_ascii=False)}\n".encode())
