"""``fedmoments card``: the model card of a classifier, in Markdown."""

from pathlib import Path
from typing import Annotated

from fedmoments.cli.generate import command, positional, typed
from fedmoments.cli.options import Json, example
from fedmoments.cli.output import print_json, print_line
from fedmoments.cli.places import existing_file, writable_place

__all__ = ["card"]


@command("card", example("fedmoments card runs/demo/heads/fedcof.safetensors"))
def card(
    model: Annotated[Path, positional(help="Classifier file; the report of its run is read from the same folder.")],
    *,
    out: Annotated[Path | None, typed("--out", "-o", help="Markdown file to write; printed by default.")] = None,
    json: Json = False,
) -> None:
    """Print what a person must know before using a model: encoder, classes, parties, protection, tests, limits."""
    from fedmoments.files import write_whole
    from fedmoments.handover.model import Model

    whole = Model.read(existing_file(model), encode=False)
    text = whole.card()
    if out is not None:
        write_whole(writable_place(out), text.encode())
    if json:
        print_json({"digest": whole.classifier.digest(), "version": whole.classifier.info.get("version"), "card": text})
    elif out is None:
        for line in text.splitlines():
            print_line(line)
    else:
        print_line(f"wrote {out}")
