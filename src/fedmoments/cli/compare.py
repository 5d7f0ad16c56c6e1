"""``fedmoments compare``: what changed from one classifier to another."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from fedmoments.cli.classifiers import MEASURE, TESTED_HELP, TESTED_ON, encoding, loading
from fedmoments.cli.generate import command, positional
from fedmoments.cli.given import Given, Taken
from fedmoments.cli.options import Json, example
from fedmoments.cli.output import plural, print_json, print_line, print_table, progress_bar
from fedmoments.cli.places import existing_file
from fedmoments.settings.samples import Running, SampleSource

if TYPE_CHECKING:
    from fedmoments.handover.compare import Comparison

__all__ = ["compare"]

EXAMPLE = example(
    MEASURE,
    "fedmoments fit clinic.stats --head gh-lda --out new.classifier",
    "fedmoments fit clinic.stats --head fedncm --out old.classifier",
    "fedmoments compare old.classifier new.classifier runs/demo/digits.npz",
)
#: Classes and pairs that a table lists; JSON has all.
LISTED = 12


@command("compare", EXAMPLE)
def compare(
    first: Annotated[Path, positional(help="Classifier file, such as the one in use.")],
    second: Annotated[Path, positional(help="Classifier file, such as its replacement.")],
    source: Annotated[Given[SampleSource], Taken(argument="data", only=TESTED_ON, help=TESTED_HELP)],
    *,
    running: Annotated[Running, Taken()],
    json: Json = False,
) -> None:
    """Show what differs between two classifiers: classes, settings, accuracy by class, and predictions.

    Without data, accuracies come from the runs' own reports: the sums of clients' tests.
    """
    from fedmoments.handover.compare import changes, compare_on, sums_compared

    files = existing_file(first), existing_file(second)
    if "data" in source.values:
        own = source.build()
        with progress_bar("encoding") as move:
            models, comparison = compare_on(
                files, own, loading(running), lambda done, total: move(done, total, ""), **encoding(running)
            )
        document = {**changes(*models), "data": own.data, **comparison.to_dict()}
    else:
        models, sums = sums_compared(files)
        document, comparison = {**changes(*models), "reports": sums}, None
    if json:
        print_json(document)
        return
    _show_changes(document)
    if comparison is not None:
        _show(comparison)
    else:
        _show_sums(document["reports"])


def _show_changes(document: dict[str, Any]) -> None:
    """Print what differs between the classifiers themselves."""
    if document["second_follows_first"]:
        print_line("the second was made from the first")
    if document["same_parameters"]:
        print_line("both have the same parameters: they predict the same")
    for key, said in (("classes_added", "the second alone has"), ("classes_removed", "the first alone has")):
        if document[key]:
            print_line(f"{said} {plural(len(document[key]), 'class')}: {', '.join(document[key][:LISTED])}")
    rows = [[name, *(_text(value) for value in values)] for name, values in document["changed"].items()]
    if rows:
        print_table(["what", "first", "second"], rows)


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_text(inner)}" for key, inner in value.items() if inner is not None) or "–"
    if value is None or value == []:
        return "–"
    return str(value)[:16] if isinstance(value, str) and len(value) == 64 else str(value)


def _show(comparison: "Comparison") -> None:
    """Print accuracies by class, disagreements and the test."""
    one, other = (100 * count / comparison.samples for count in comparison.right)
    print_line()
    print_line(f"{comparison.samples:,} samples: {one:.2f} % and {other:.2f} % right ({other - one:+.2f} points)")
    test = comparison.test
    print_line(
        f"{test.only_first:,} right by the first alone, {test.only_second:,} by the second alone; so uneven by chance "
        f"with probability {test.probability:.3g} (exact McNemar test)"
    )
    moved = sorted(comparison.by_class, key=lambda row: -abs(row[3] - row[2]))
    rows = [
        [
            name,
            f"{count:,}",
            f"{100 * one / count:.1f}",
            f"{100 * other / count:.1f}",
            f"{100 * (other - one) / count:+.1f}",
        ]
        for name, count, one, other in moved[:LISTED]
    ]
    print_line()
    columns = ["class", "samples", "first %", "second %", "change"]
    print_table(columns, rows, right=columns[1:])
    if comparison.disagreements:
        print_line()
        rows = [[one, other, f"{count:,}"] for one, other, count in comparison.disagreements[:LISTED]]
        print_table(["first says", "second says", "samples"], rows, right=["samples"])


def _show_sums(sums: list[Any]) -> None:
    """Print what the reports of both runs say."""
    print_line()
    for name, summary in zip(("first", "second"), sums, strict=True):
        if summary is None:
            print_line(f"{name}: no report beside it says how it was tested; give data to compare on")
        else:
            share = 100 * summary["right"] / max(summary["samples"], 1)
            print_line(f"{name}: {share:.2f} % right on {summary['samples']:,} samples of those who tested it")
    if all(sums):
        _show_classes(sums)


def _show_classes(sums: list[Any]) -> None:
    """Print what share of each class both classifiers found."""
    by_class = [{row["class"]: row for row in summary["by_class"]} for summary in sums]
    names = list(dict.fromkeys([*by_class[0], *by_class[1]]))[:LISTED]
    rows = [[name, *(cell for rows_of_one in by_class for cell in _share(rows_of_one.get(name)))] for name in names]
    columns = ["class", "samples", "first %", "samples", "second %"]
    print_table(columns, rows, right=columns[1:])
    if any(sum(row["samples"] for row in summary["by_class"]) < summary["samples"] for summary in sums):
        print_line("by class, few wrong answers are withheld, and shares are too high")
    print_line("where they disagree is not in sums: give data to see it")


def _share(row: Any) -> tuple[str, str]:
    if row is None or not row["samples"]:
        return "–", "–"
    return f"{row['samples']:,}", f"{100 * row['right'] / row['samples']:.1f}"
