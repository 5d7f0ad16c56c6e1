"""How to run a reproduction again: command, settings, and fingerprints of what went in."""

from collections.abc import Mapping
from typing import Any

from fedmoments.pages.blocks import copied, pairs
from fedmoments.pages.formats import count, seconds
from fedmoments.pages.markup import Html, join, tag
from fedmoments.pages.plain import as_number, items, mapping
from fedmoments.pages.shell import section
from fedmoments.settings.toml import to_toml

__all__ = ["repeat_section"]

#: Sizes of data: key and words.
SIZES = {"train": "training samples", "test": "test samples", "classes": "classes", "dim": "dimensions"}


@section("repeat", "How to repeat this", place=50)
def repeat_section(document: Mapping[str, Any]) -> Html | None:
    """Return the section."""
    data = mapping(document.get("data"))
    encoder = mapping(data.get("encoder"))
    sizes = [f"{count(as_number(data.get(key)))} {unit}" for key, unit in SIZES.items() if data.get(key) is not None]
    prints = {f"Fingerprint behind {name}": digest for name, digest in mapping(data.get("fingerprints")).items()}
    known = [
        ("fedmoments", document.get("version")),
        ("Engine", mapping(document.get("experiment")).get("engine")),
        ("Seeds", ", ".join(str(seed) for seed in items(document.get("seeds")))),
        ("Took", seconds(as_number(document.get("seconds")))),
        ("Known from before", count(as_number(document.get("cached")), "result")),
        ("Data", data.get("name")),
        ("", data.get("description")),
        ("Size", ", ".join(sizes)),
        ("Digest of the data", data.get("digest")),
        ("Encoder", encoder.get("name")),
        ("Fingerprint of the encoder", encoder.get("fingerprint")),
        *prints.items(),
    ]
    settings = mapping(document.get("settings"))
    origin = pairs(known, code=["Digest of the data", "Fingerprint of the encoder", *prints])
    return join(
        [
            copied("Command", str(document["command"])) if document.get("command") else None,
            copied("Settings", to_toml(settings).strip(), wrap=False) if settings else None,
            tag("h3", "Origin", class_="below"),
            origin,
        ]
    )
