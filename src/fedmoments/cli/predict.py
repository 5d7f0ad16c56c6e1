"""``fedmoments predict``: classify samples with a fitted head and its encoder."""

import csv
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from fedmoments.cli.classifiers import loading
from fedmoments.cli.generate import command, positional, typed
from fedmoments.cli.given import Taken
from fedmoments.cli.options import Json
from fedmoments.cli.output import csv_text, print_json, print_line, print_note, print_table, progress_bar
from fedmoments.cli.places import existing_file
from fedmoments.errors import InputError
from fedmoments.settings.samples import Running
from fedmoments.settings.serving import AnswerSettings

if TYPE_CHECKING:
    from fedmoments.handover.answers import Answer
    from fedmoments.handover.model import Model
    from fedmoments.samples.samples import Problem, Samples

__all__ = ["predict"]

EXAMPLE = "\b\nExample, after 'fedmoments demo':\n  fedmoments predict runs/demo/heads/fedcof.safetensors photo.jpg"


@command("predict", EXAMPLE)
def predict(
    model: Annotated[Path, positional(help="Classifier that 'simulate', 'fit', 'tune' or another command wrote.")],
    files: Annotated[
        list[str] | None,
        positional(
            help="Images, folders of images, text files with one sentence per line, .csv, .npz; - reads lines from "
            "standard input."
        ),
    ] = None,
    *,
    text: Annotated[list[str] | None, typed("--text", help="A sentence; may be repeated.")] = None,
    column: Annotated[str | None, typed(help="Table column that holds sentences or image paths.")] = None,
    encoder: Annotated[
        str | None, typed(help="Load the same encoder from elsewhere; one with a different fingerprint is refused.")
    ] = None,
    running: Annotated[Running, Taken(only=("runtime", "device", "threads", "batch_size", "readers", "trust"))],
    top: Annotated[int, typed(help="Classes to show per sample.", least=1)] = 3,
    answering: Annotated[AnswerSettings, Taken()],
    table: Annotated[
        bool, typed("--csv", help="Print rows of comma-separated values; an apostrophe stands before names like '=A1'.")
    ] = False,
    json: Json = False,
) -> None:
    """Classify images, sentences or features. Unreadable inputs are named; if all are unreadable, that is an error."""
    from fedmoments.core.classifier import TargetModel
    from fedmoments.handover.answers import predict as classify
    from fedmoments.handover.model import Model

    asked = answering.shares()
    if json and table:
        raise InputError("--json and --csv are two ways to print: give one of them")
    whole = Model.read(existing_file(model), encoder, **loading(running))
    samples = _samples(whole, files or [], text or [], column)
    if isinstance(whole.classifier, TargetModel):
        _show_targets(whole, samples, json=json, table=table)
        return
    with progress_bar("classifying") as move:
        how = {"batch_size": running.batch_size, "readers": running.readers}
        answers, problems = classify(whole, samples, progress=lambda done, total: move(done, total, ""), **asked, **how)
    if json:
        print_json({"model": whole.classifier.digest(), **_document(answers, problems, top)})
        return
    if table:
        _write_rows(answers, top, abstains=answering.abstain is not None)
    else:
        _show_rows(answers, top, answering.coverage)
    for problem in problems:
        (print_note if table else print_line)(f"not read: {problem.where}: {problem.why}")


def _show_targets(model: "Model", samples: "Samples", *, json: bool, table: bool) -> None:
    """Print the values of all targets, or the labels that each sample has."""
    from fedmoments.handover.answers import encoded

    done = encoded(model, samples, cache_dir=False)
    predicted = model.classifier.predict(done.features)
    names, sources = model.classifier.class_names, [samples.source(int(place)) for place in done.kept]
    if json:
        rows = [
            {"source": source, "values": dict(zip(names, row.tolist(), strict=True))}
            for source, row in zip(sources, predicted, strict=True)
        ]
        problems = [{"where": problem.where, "why": problem.why} for problem in done.problems]
        print_json({"model": model.classifier.digest(), "predictions": rows, "problems": problems})
        return
    cells = [[source, *map(_value, row.tolist())] for source, row in zip(sources, predicted, strict=True)]
    if table:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerows([["sample", *map(csv_text, names)], *([csv_text(row[0]), *row[1:]] for row in cells)])
    else:
        print_table(["sample", *names], cells, right=list(names))
    for problem in done.problems:
        (print_note if table else print_line)(f"not read: {problem.where}: {problem.why}")


def _value(value: Any) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else f"{value:.6g}"


def _document(answers: "Sequence[tuple[str, Answer]]", problems: "Sequence[Problem]", top: int) -> dict[str, Any]:
    return {
        "predictions": [{"source": source, **answer.to_dict(top)} for source, answer in answers],
        "problems": [{"where": problem.where, "why": problem.why} for problem in problems],
    }


def _samples(model: "Model", files: list[str], sentences: list[str], column: str | None) -> "Samples":
    """Return what was named to be classified, as far as it can be read; nothing at all is an error."""
    from fedmoments.core.maps import table_of
    from fedmoments.samples.unlabelled import read_unlabelled

    if sentences and model.takes != "text":
        raise InputError(f"this classifier takes {model.takes}, not --text")
    table = table_of(model.classifier.feature_map)
    samples = read_unlabelled(
        files, model.taking.modality, column=column, stdin=sys.stdin, sentences=sentences, table=table
    )
    if not len(samples):
        why = str(samples.problems[0]) if samples.problems else "give files, folders, - or --text for sentences"
        raise InputError(f"there is nothing to classify: {why}")
    return samples


def _show_rows(answers: "Sequence[tuple[str, Answer]]", top: int, coverage: str | None) -> None:
    """Print a table with a row a sample; with a coverage also how large prediction sets are."""
    rows = [[source, *_shown(answer, top)] for source, answer in answers]
    print_table(["sample", "class", "%", "set" if coverage else "then"], rows, right=["%"])
    if coverage:
        sizes = [len(answer.likely or ()) for _, answer in answers if not answer.novel]
        mean = f"{sum(sizes) / len(sizes):.2f} classes on average" if sizes else "no sample has one"
        print_line(f"sets hold the true class with {coverage}; {mean}")


def _shown(answer: "Answer", top: int) -> tuple[str, str, str]:
    (name, share), *others = answer.ranked[:top]
    if answer.novel:
        return answer.name, "", f"nearest: {name}"
    if answer.likely is not None:
        return name, f"{100 * share:.1f}", ", ".join(answer.likely)
    return name, f"{100 * share:.1f}", ", ".join(f"{other} {100 * value:.1f}" for other, value in others)


def _write_rows(answers: "Sequence[tuple[str, Answer]]", top: int, *, abstains: bool) -> None:
    """Print one row a sample: its name, then classes with their probabilities, likeliest first."""
    most = min(top, max((len(answer.ranked) for _, answer in answers), default=0))
    header = [column for place in range(1, most + 1) for column in (f"class_{place}", f"probability_{place}")]
    further = _further_columns([answer for _, answer in answers], abstains=abstains)
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["sample", *header, *further])
    for source, answer in answers:
        cells = (cell for name, share in answer.ranked[:most] for cell in (csv_text(name), share))
        writer.writerow([csv_text(source), *cells, *(text(answer) for text in further.values())])


def _further_columns(answers: "Sequence[Answer]", *, abstains: bool) -> "dict[str, Callable[[Answer], str]]":
    """Return the columns behind classes and probabilities, by name, for answers that have them."""
    columns: dict[str, Callable[[Answer], str]] = {}
    if abstains:
        columns["unknown"] = lambda answer: str(answer.novel).lower()
    if any(answer.likely is not None for answer in answers):
        columns["set"] = lambda answer: csv_text(" | ".join(answer.likely or ()))
    return columns
