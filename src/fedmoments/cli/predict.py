"""``fedmoments predict``: classify images or sentences with a fitted head and its encoder."""

from pathlib import Path
from typing import Annotated, Any

from fedmoments.cli.generate import command, positional, typed
from fedmoments.cli.given import Taken
from fedmoments.cli.options import Json
from fedmoments.cli.output import print_json, print_line, print_table
from fedmoments.cli.places import existing_file
from fedmoments.errors import InputError
from fedmoments.settings.samples import Running

__all__ = ["predict"]

EXAMPLE = "\b\nExample, after 'fedmoments demo':\n  fedmoments predict runs/demo/heads/fedcof.safetensors photo.jpg"


@command("predict", EXAMPLE)
def predict(
    model: Annotated[Path, positional(help="Classifier that 'simulate', 'fit', 'tune' or another command wrote.")],
    files: Annotated[list[Path] | None, positional(help="Images, or text files with one sentence a line.")] = None,
    *,
    text: Annotated[list[str] | None, typed("--text", help="A sentence; may be repeated.")] = None,
    encoder: Annotated[
        str | None, typed(help="Another way to the same encoder; one with another fingerprint is refused.")
    ] = None,
    running: Annotated[Running, Taken(only=("runtime", "device", "trust"))],
    top: Annotated[int, typed(help="Classes to show for each.")] = 3,
    json: Json = False,
) -> None:
    """Classify images or sentences. What cannot be read is named on the way; if nothing can, that is an error."""
    from fedmoments.core.classifier import load
    from fedmoments.study.jobs.predict import encoder_of

    classifier = load(existing_file(model))
    run = {"runtime": running.runtime, "device": running.device}
    chosen = encoder_of(classifier, encoder, beside=model, trusted=running.trust, **run)
    predictions, problems = _predicted(classifier, chosen, files or [], text or [], top)
    if not predictions:
        why = f": {problems[0].where}: {problems[0].why}" if problems else ": give files, or --text for sentences"
        raise InputError(f"there is nothing to classify{why}")
    if json:
        unread = [{"where": problem.where, "why": problem.why} for problem in problems]
        print_json({"predictions": [prediction.to_dict() for prediction in predictions], "problems": unread})
        return
    rows = [
        [prediction.source, prediction.name, f"{100 * prediction.confidence:.1f}", _others(prediction.runners_up)]
        for prediction in predictions
    ]
    print_table(["sample", "class", "%", "then"], rows, right=["%"])
    for problem in problems:
        print_line(f"not read: {problem.where}: {problem.why}")


def _predicted(classifier: Any, encoder: Any, files: list[Path], texts: list[str], top: int) -> tuple[Any, Any]:
    """Return predictions of all that can be read, and what cannot."""
    from fedmoments.samples.samples import Problem
    from fedmoments.study.jobs.predict import predict as classify
    from fedmoments.study.jobs.predict import text_items

    paths = [path for path in files if path.is_file()]
    missing = tuple(Problem(str(path), _absence(path)) for path in files if not path.is_file())
    items: list[Any]
    if encoder.modality == "text":
        sentences, lines = text_items(paths)
        items = [*sentences, *texts]
        sources = [*lines, *(f"--text {number}" for number in range(1, len(texts) + 1))]
    elif texts:
        raise InputError("this classifier takes images, not --text")
    else:
        items, sources = [*paths], [*map(str, paths)]
    if not items:
        return [], missing
    predictions, problems = classify(classifier, encoder, items, sources, most=top)
    return predictions, missing + problems


def _absence(path: Path) -> str:
    return "it is a directory" if path.is_dir() else "there is no such file"


def _others(ranked: tuple[tuple[str, float], ...]) -> str:
    return ", ".join(f"{name} {100 * share:.1f}" for name, share in ranked)
