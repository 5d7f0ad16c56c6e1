"""Write the pages of the site that nobody types: commands, heads, public names, notebooks; `make docs` and the tests ask for them.

Commands and their options are those of the command line, heads those of the registry beside the figures of a committed run,
names those of `fedmoments.__all__`; a notebook holds the blocks of its tutorial. With --check nothing is written, and pages
that are out of date are named.
"""

import csv
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

import click

import fedmoments as fm
from fedmoments.cli.app import HEADINGS, app
from fedmoments.cli.generate import Command
from fedmoments.cli.output import readable_bytes
from fedmoments.core.heads import make_head, presets
from fedmoments.core.observations import plain_moments

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
MADE = "<!-- Made by `make reference`; edit what it is made from. -->\n\n"
#: Title of a section -> the public names in it, in the order in which people need them.
NAMES = {
    "Fit and classify": ("fit", "load", "Classifier", "simulate"),
    "Measure": (
        "measure", "measure_stream", "measure_files", "Accumulator", "Statistics", "StatisticsSpec", "spec_for",
        "FixedPoint", "SketchPlan", "Layout", "Moment", "save_statistics", "load_statistics", "precision",
        "with_targets",
    ),
    "Merge": ("Ledger",),
    "Raw tables": ("draft_table", "table_sums", "table_map", "TableMap"),
    "Heads": ("head_names", "make_head", "presets", "Head", "Preset", "Shrinkage", "ClassGaussians", "covariance_bias", "RecursiveRidge"),
    "Results": ("Results", "Report", "Observation", "read_report", "diagnose", "Callback"),
    "Train on": ("tune", "TuningPlan"),
    "Register": (
        "register_head", "register_moment", "register_encoder", "register_source", "register_split", "register_baseline",
        "register_optimiser", "register_corruption", "register_privacy", "register_tracker",
    ),
}  # fmt: skip
#: Tutorials that are notebooks, too.
NOTEBOOKS = ("images", "sentences", "own-head")
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def escaped(text: str) -> str:
    """Return text for a cell of a table, in which no sign means anything to Markdown."""
    return re.sub(r"([|\[\]*_])", r"\\\1", " ".join(text.split())).replace("<", "&lt;")


def of_command(command: click.Command, path: str, depth: int) -> Iterator[str]:
    """Yield the lines about a command, or about a group and what is in it."""
    context = click.Context(command, info_name=path)
    yield f"{'#' * depth} {path}\n"
    yield f"{escaped(command.help or '')}\n"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            if child is not None:
                yield from of_command(child, f"{path} {name}", depth + 1)
        return
    if not isinstance(command, Command):
        raise TypeError(f"{path} is not made by @command")
    yield f"```text\n{command.get_usage(context).removeprefix('Usage: ')}\n```\n"
    for title, rows in command.sections(context):
        column = "argument" if title == "Arguments" else "option"
        yield f"**{title}**\n\n| {column} | what it does |\n|---|---|"
        yield from (f"| `{names.replace('|', chr(92) + '|')}` | {escaped(text)} |" for names, text in rows)
        yield ""


def commands() -> str:
    """Return the page of all commands."""
    context = click.Context(app, info_name="fedmoments")
    lines = ["# Commands\n", "Every command, with every option; `fedmoments COMMAND --help` prints the same.\n"]
    for heading, table in HEADINGS.items():
        lines.append(f"## {heading}\n")
        for name in table:
            command = app.get_command(context, name)
            if command is not None:
                lines += of_command(command, name, 3)
    return MADE + "\n".join(lines).rstrip() + "\n"


def heads() -> str:
    """Return the table of heads: what each sends, and what it reached in a committed run."""
    with (DOCS / "reference" / "heads.csv").open() as file:
        measured = list(csv.DictReader(file))
    rows = []
    for name in presets():
        runs = [row for row in measured if row["head"] == name]
        sends = plain_moments(str(make_head(name).needs))
        if not runs:
            rows.append(((float("inf"), 0.0, name), f"| `{name}` | – | – | {sends} |"))
            continue
        accuracy = fmean(float(row["accuracy"]) for row in runs)
        upload = fmean(float(row["up_bytes_per_client"]) for row in runs)
        cells = f"{accuracy:.1%} | {readable_bytes(upload)} | {sends}"
        rows.append(((upload, -accuracy, name), f"| `{name}` | {cells} |"))
    lines = [
        "# All heads\n",
        "scikit-learn's digits at 96 px through EfficientNet-Lite0 (d = 1280), 100 clients, Dirichlet 0.1, 3 seeds, every head "
        "with its automatic shrinkage: `fedmoments demo --all`; by bytes, then accuracy. A dash: the demo leaves it out. "
        "[Heads](../heads.md) says how they relate, `fedmoments heads NAME` explains one.\n",
        "| head | accuracy | bytes per client | each client sends, once |",
        "|---|---|---|---|",
    ]
    return MADE + "\n".join([*lines, *(line for _, line in sorted(rows))]) + "\n"


def names() -> str:
    """Return the page of all public names."""
    listed = [name for group in NAMES.values() for name in group]
    if sorted(listed) != sorted(fm.__all__):
        odd = sorted(set(listed) ^ set(fm.__all__))
        raise SystemExit(f"NAMES in {Path(__file__).name} and fedmoments.__all__ differ in {', '.join(odd)}")
    lines = ["# Python\n", "Everything that `import fedmoments as fm` offers.\n"]
    for title, group in NAMES.items():
        lines += [
            f"## {title}\n",
            *(f"::: fedmoments.{name}\n    options:\n      heading_level: 3\n" for name in group),
        ]
    return MADE + "\n".join(lines).rstrip() + "\n"


def notebook(page: Path) -> str:
    """Return a tutorial as a notebook: prose and code in their order, commands behind an exclamation mark."""
    cells: list[dict[str, object]] = []

    def add(kind: str, text: str) -> None:
        if text.strip():
            code = {"outputs": [], "execution_count": None} if kind == "code" else {}
            cells.append(
                {
                    "cell_type": kind,
                    "id": f"cell-{len(cells)}",
                    "metadata": {},
                    **code,
                    "source": text.strip().splitlines(True),
                }
            )

    text, place = page.read_text(), 0
    for block in BLOCK.finditer(text):
        add("markdown", text[place : block.start()])
        code = (
            block[2]
            if block[1] == "python"
            else re.sub(r"^\$ ", "!", block[2].replace("\\\n", " "), flags=re.MULTILINE)
        )
        add("code", code)
        place = block.end()
    add("markdown", text[place:])
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    document = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def pages() -> dict[Path, str]:
    """Return every page that is made, by its path."""
    reference = DOCS / "reference"
    made = {reference / "commands.md": commands(), reference / "heads.md": heads(), reference / "python.md": names()}
    return made | {
        DOCS / "notebooks" / f"{name}.ipynb": notebook(DOCS / "tutorials" / f"{name}.md") for name in NOTEBOOKS
    }


def main() -> None:
    """Write what is out of date; with --check, name it and fail."""
    old = {path: text for path, text in pages().items() if not path.exists() or path.read_text() != text}
    for path, text in old.items():
        sys.stdout.write(f"{path.relative_to(ROOT)}\n")
        if "--check" not in sys.argv:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    if old and "--check" in sys.argv:
        raise SystemExit("out of date: run `make reference`")


if __name__ == "__main__":
    main()
