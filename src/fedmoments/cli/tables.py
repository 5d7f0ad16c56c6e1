"""``fedmoments table``: what the columns of raw tables hold, to be agreed on; and the map after a first exchange."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from fedmoments.cli.generate import command, positional, typed
from fedmoments.cli.options import Json, example
from fedmoments.cli.output import print_json, print_line, print_table
from fedmoments.cli.places import existing_file, writable_place
from fedmoments.errors import InputError

__all__ = ["table"]

EXAMPLE = example(
    "fedmoments table csv:clinic.csv --label outcome --out draft.json",
    "fedmoments measure csv:clinic.csv --label outcome --table draft.json --moments class_squares --out clinic.first",
    "fedmoments table draft.json --after clinic.first --out table.json",
)


@command("table", EXAMPLE)
def table(
    data: Annotated[
        str, positional(help="A raw table to draft from, csv:PATH or parquet:PATH; or a draft, with --after.")
    ],
    *,
    after: Annotated[
        list[Path] | None,
        typed("--after", help="Statistics measured with the draft (class_squares); once per client."),
    ] = None,
    label: Annotated[str | None, typed(help="Column of labels.")] = None,
    client: Annotated[str | None, typed(help="Column of clients.")] = None,
    group: Annotated[str | None, typed(help="Column of groups that must stay together, such as patients.")] = None,
    features: Annotated[str | None, typed(help="Columns to use, a,b,lab*; all others by default.")] = None,
    categories: Annotated[str, typed(help="Number columns that hold categories, such as codes or districts.")] = "",
    least: Annotated[int, typed(help="With --after: fewest rows for a category to get its own column.", least=1)] = 5,
    out: Annotated[Path, typed("--out", "-o", help="File (.json) to write, for --table of other commands.")],
    json: Json = False,
) -> None:
    """Describe the columns of raw tables: a draft, detected in one table, or the map after a first exchange.

    A draft contains texts and ranges (as powers of two) of its table: read it before you send it, and edit it as you
    like. With --after, means and deviations come from all clients' counts, sums and squares, and categories with too
    few rows count as "another".
    """
    from fedmoments.samples.raw_tables import write_map

    place = writable_place(out)
    if after:
        if any((label, client, group, features, categories)):
            raise InputError("--after takes a draft, which says itself what the columns are: leave the columns out")
        made = _after(data, after, least)
    else:
        made = _drafted(data, categories, label=label, client=client, group=group, features=features)
    write_map(place, made)
    if json:
        print_json({"out": str(place), "fingerprint": made.fingerprint(), **made.describe()})
        return
    print_table(["column", "holds", "gives"], [_row(column) for column in made.columns], right=["gives"])
    print_line(f"{len(made.columns)} columns give {len(made.outputs)} features; fingerprint {made.fingerprint()[:16]}")
    print_line(f"wrote {place}")


def _drafted(data: str, categories: str, **columns: str | None) -> Any:
    """Return the draft that a table stands for."""
    from fedmoments.samples.sources.registry import load_data

    made = load_data(data, table=f"draft:{categories}", test_share=0.0, **columns).table
    if made is None:
        raise InputError(f"{data} is not a raw table")
    return made


def _after(draft: str, files: list[Path], least: int) -> Any:
    """Return the map that the merged sums of clients stand for."""
    from fedmoments.cli.notes import contributions
    from fedmoments.core.maps import table_of
    from fedmoments.core.statistics import Statistics
    from fedmoments.core.tables import table_map
    from fedmoments.samples.raw_tables import read_map

    given = read_map(existing_file(Path(draft)))
    first = table_of(given)
    if first is None or first != given:
        raise InputError(f"{draft} is not a draft of a table: it holds {given}")
    parts = list(contributions(files, whole=True))
    for part in parts:
        if part.feature_map != given.describe():
            raise InputError(f"{part.path} was not measured behind {draft}: measure it again with --table {draft}")
    return table_map(first, Statistics.merge([part.stats for part in parts]), least=least)


def _numbers_text(column: Any) -> str:
    """Return what numbers a column holds."""
    if column.scale is None:
        return "numbers that do not vary"
    drafted = column.center == 0 and math.frexp(column.scale)[0] == 0.5
    return f"numbers {'within' if drafted else f'around {column.center:.4g}'} ± {column.scale or 0:.4g}"


def _categories_text(categories: Sequence[str]) -> str:
    """Return which categories a column holds, the first of them by name."""
    if not categories:
        return "texts, none of them agreed on"
    return f"{len(categories)} categories: {', '.join(categories[:4])}{' …' if len(categories) > 4 else ''}"


def _row(column: Any) -> list[str]:
    """Return a line about a column."""
    from fedmoments.core.maps import Numbers

    holds = _numbers_text(column) if isinstance(column, Numbers) else _categories_text(column.categories)
    extra = [word for word, there in (("others", getattr(column, "other", False)), ("gaps", column.missing)) if there]
    return [column.name, f"{holds}; {' and '.join(extra)}" if extra else holds, str(len(column.outputs))]
