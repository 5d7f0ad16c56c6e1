"""``fedmoments export``: write a fitted head, and the encoder before it, for software that has no fedmoments."""

from pathlib import Path
from typing import Annotated

from fedmoments.cli.generate import command, positional, typed
from fedmoments.cli.given import Taken
from fedmoments.cli.options import Json, example
from fedmoments.cli.output import print_json, print_line, readable_bytes
from fedmoments.cli.places import existing_file
from fedmoments.errors import InputError
from fedmoments.settings.samples import Running
from fedmoments.settings.serving import AnswerSettings

__all__ = ["export"]

EXAMPLE = example(
    "fedmoments export runs/demo/heads/fedcof.safetensors --to onnx --out digits.onnx",
    "fedmoments export runs/demo/heads/fedcof.safetensors --to sklearn --head-only --out head.joblib",
)


@command("export", EXAMPLE)
def export(
    model: Annotated[Path, positional(help="Classifier that 'simulate', 'fit', 'tune' or another command wrote.")],
    *,
    to: Annotated[str, typed(help="onnx, torch, sklearn, huggingface or web.")] = "onnx",
    out: Annotated[Path, typed("--out", "-o", help="File or folder to write; it must not exist.")],
    head_only: Annotated[
        bool, typed("--head-only", help="Leave out the encoder: the model then takes features.")
    ] = False,
    encoder: Annotated[
        str | None, typed(help="Load the same encoder from elsewhere; one with a different fingerprint is refused.")
    ] = None,
    runtime_folder: Annotated[
        Path | None,
        typed(help="For web: folder of the npm package onnxruntime-web; npm fetches it by default.", metavar="FOLDER"),
    ] = None,
    answers: Annotated[AnswerSettings, Taken()],
    running: Annotated[Running, Taken(only=("trust",))],
    json: Json = False,
) -> None:
    """Write a model that other software loads without fedmoments, with class names, probabilities and a model card."""
    from fedmoments.handover.export import export as write
    from fedmoments.handover.model import Model

    if head_only and encoder is not None:
        raise InputError("--head-only leaves the encoder out, and --encoder names one: give one of them")
    file = existing_file(model)
    whole = Model.read(file, encoder, encode=not head_only, trusted=running.trust)
    given = {"runtime_folder": runtime_folder, **answers.shares()}
    options = {name: value for name, value in given.items() if value is not None}
    files = write(whole.classifier, to, out, encoder=whole.encoder, evidence=whole.evidence, **options)
    sizes = {str(path): path.stat().st_size for path in files}
    if json:
        print_json({"to": to, "takes": whole.takes, "files": sizes, "digest": whole.classifier.digest()})
        return
    print_line(f"{to}: takes {whole.takes}, {whole.classifier.n_classes} classes")
    for name, size in sizes.items():
        print_line(f"wrote {name} ({readable_bytes(size)})")
    if to == "web":
        print_line(f"look at it: python -m http.server --bind 127.0.0.1 --directory {out}, then http://127.0.0.1:8000")
