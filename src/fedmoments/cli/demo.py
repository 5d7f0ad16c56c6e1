"""``fedmoments demo``: a whole federation, from pixels, on data that need no download."""

import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from fedmoments.cli.generate import command, typed
from fedmoments.cli.options import Json, Verbose
from fedmoments.cli.output import plural, print_json, print_line, print_table, readable_bytes
from fedmoments.cli.simulate import run_study

__all__ = ["demo"]

EXAMPLE = "\b\nExample:\n  fedmoments demo"
#: The head to start with, and four around it: nearest mean, spread guessed from means, one matrix, one matrix a class.
ADVISED = "auto"
HEADS = ("fedncm", "fedcof", ADVISED, "fed3r", "gh-qda")


@command("demo", EXAMPLE)
def demo(
    *,
    folder: Annotated[Path, typed(help="Folder for the results and for digits.npz.")] = Path("runs/demo"),
    seeds: Annotated[int, typed(help="How many seeds.")] = 3,
    runtime: Annotated[str, typed(help="torch or onnx.")] = "torch",
    every: Annotated[bool, typed("--all", help="Run all heads instead of five.")] = False,
    verbose: Verbose = False,
    json: Json = False,
) -> None:
    """Simulate 100 clients on scikit-learn's digits through EfficientNet-Lite0: five heads, Dirichlet 0.1.

    The images are upscaled to 96 pixels and encoded by weights that come with a package; nothing is downloaded.
    """
    # Solves of this size wait for a second BLAS thread longer than it helps; numpy reads this when it is imported.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from fedmoments.settings.study import StudySettings

    config = StudySettings(
        data="digits",
        encoder="efficientnet-lite0",
        size=96,
        runtime=runtime,
        clients=(100,),
        splits=("dirichlet:0.1",),
        participation=("20",),
        seeds=seeds,
        heads=("all",) if every else HEADS,
    )
    outcome = run_study(config, folder)
    write_digits(folder / "digits.npz")
    if json:
        print_json(outcome.document)
        return
    _show(outcome, folder)
    if verbose:
        print_line()
        from fedmoments.cli.simulation_tables import show_report

        show_report(outcome.report, 0, verbose=True)


def _show(outcome: Any, folder: Path) -> None:
    """Print the answer, the table that it comes from, where the report is, and what to try next."""
    from fedmoments.core.observations import plain_moments

    rows = sorted(outcome.report.rows, key=lambda row: (row.up_bytes_per_client, -(row.accuracy or 0.0)))
    print_line(_answer(rows))
    print_line()
    figures = ["accuracy", "bytes per client"]
    table = [
        [row.head, _percent(row), readable_bytes(row.up_bytes_per_client), plain_moments(row.sends)] for row in rows
    ]
    print_table(["head", *figures, "each client sends, once"], table, right=figures)
    report = outcome.report
    print_line(
        f"\n{report.data.test:,} test images of {plural(report.data.classes, 'class')}; 100 clients, each with few of "
        f"the classes; mean of {plural(report.seeds, 'split')}; {report.seconds:.0f} s"
    )
    print_line(f"report: {folder / 'report.html'} (open it in a browser); classifiers: {folder / 'heads'}")
    print_line("\ntry next:")
    for line, purpose in _next_steps(folder).items():
        print_line(f"  # {purpose}")
        print_line(f"  {line}")


def _answer(rows: Sequence[Any]) -> str:
    """Return the one sentence that a newcomer should remember, from the rows of the table."""
    advised = next(row for row in rows if row.head == ADVISED)
    best = max(rows, key=lambda row: row.accuracy or 0.0)
    if advised.accuracy is None:
        return f"{ADVISED} could not be fitted: {advised.outcomes[0].reason}."
    sentence = (
        f"With one upload of {readable_bytes(advised.up_bytes_per_client)} per client, {ADVISED} reaches "
        f"{_percent(advised)} accuracy without any training"
    )
    if best is advised:
        return f"{sentence}, the most of all heads here."
    return (
        f"{sentence}; the most accurate head here, {best.head}, uploads "
        f"{readable_bytes(best.up_bytes_per_client)} for {_percent(best)}."
    )


def _percent(row: Any) -> str:
    return "not fitted" if row.accuracy is None else f"{100 * row.accuracy:.1f} %"


def _next_steps(folder: Path) -> dict[str, str]:
    """Return commands that work as they stand after the demo, each with what it is for."""
    digits = folder / "digits.npz"
    return {
        f"fedmoments simulate {digits} --heads {ADVISED} --clients 10,100": "other numbers of clients",
        f"fedmoments audit --data {digits} --head {ADVISED}": "what an upload would reveal",
        "fedmoments --help": "your own data, a federation between machines",
    }


def write_digits(path: Path) -> None:
    """Write scikit-learn's bundled digits, 8 × 8 pixels as 64 features, as a features file for the other commands."""
    import numpy as np

    from fedmoments.files import write_whole
    from fedmoments.samples.sources.registry import load_data

    data = load_data("digits")
    parts = {"train": data.train, "test": data.test}
    arrays: dict[str, Any] = {"classes": np.array(data.class_names)}
    for name, part in parts.items():
        arrays |= {f"x_{name}": np.asarray(part.items).reshape(len(part), -1) / 255.0, f"y_{name}": part.labels}
    stored = io.BytesIO()
    np.savez(stored, **arrays)
    write_whole(path, stored.getvalue())
