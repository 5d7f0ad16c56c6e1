"""``fedmoments predict``: classify images or sentences with a fitted head and its encoder."""

from pathlib import Path
from typing import Annotated

import typer

from fedmoments.cli.command import PlainCommand
from fedmoments.cli.options import Json, existing_file
from fedmoments.cli.output import print_json, print_line, print_table
from fedmoments.errors import InputError

__all__ = ["predict_command"]

EXAMPLE = "\b\nExample, after 'fedmoments demo':\n  fedmoments predict runs/demo/heads/fedcof.safetensors photo.jpg"


def predict_command(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command("predict", cls=PlainCommand, short_help="Classify images or sentences.", epilog=EXAMPLE)(_predict)


def _predict(
    model: Annotated[Path, typer.Argument(help="Classifier that 'simulate', 'fit', 'tune' or another command wrote.")],
    files: Annotated[list[Path] | None, typer.Argument(help="Images, or text files with one sentence a line.")] = None,
    *,
    text: Annotated[list[str] | None, typer.Option("--text", help="A sentence; may be repeated.")] = None,
    encoder: Annotated[
        str | None, typer.Option(help="Another way to the same encoder; one with another fingerprint is refused.")
    ] = None,
    runtime: Annotated[str, typer.Option(help="torch or onnx.")] = "torch",
    device: Annotated[str, typer.Option(help="Where torch computes.")] = "cpu",
    top: Annotated[int, typer.Option(help="Classes to show for each.")] = 3,
    json: Json = False,
) -> None:
    """Classify images or sentences. What cannot be read is named on the way; if nothing can, that is an error."""
    from fedmoments.classifier import load
    from fedmoments.data.samples import Problem
    from fedmoments.jobs.predict import encoder_of, predict, text_items

    classifier = load(existing_file(model))
    chosen = encoder_of(classifier, encoder, beside=model, runtime=runtime, device=device)
    paths = [path for path in files or [] if path.is_file()]
    missing = tuple(
        Problem(str(path), "it is a directory" if path.is_dir() else "there is no such file")
        for path in files or []
        if not path.is_file()
    )
    if chosen.modality == "text":
        items, sources = text_items(paths)
        items += text or []
        sources += [f"--text {number}" for number in range(1, len(text or []) + 1)]
        found, problems = predict(classifier, chosen, items, sources, most=top) if items else ([], ())
    else:
        if text:
            raise InputError("this classifier takes images, not --text")
        found, problems = (
            predict(classifier, chosen, paths, [str(path) for path in paths], most=top) if paths else ([], ())
        )
    problems = missing + problems
    if not found:
        why = f": {problems[0].where}: {problems[0].why}" if problems else ": give files, or --text for sentences"
        raise InputError(f"there is nothing to classify{why}")
    if json:
        unread = [{"where": problem.where, "why": problem.why} for problem in problems]
        print_json({"predictions": [each.to_dict() for each in found], "problems": unread})
        return
    rows = [[each.source, each.name, f"{100 * each.confidence:.1f}", _others(each.runners_up)] for each in found]
    print_table(["sample", "class", "%", "then"], rows, right=["%"])
    for problem in problems:
        print_line(f"not read: {problem.where}: {problem.why}")


def _others(ranked: tuple[tuple[str, float], ...]) -> str:
    return ", ".join(f"{name} {100 * share:.1f}" for name, share in ranked)
