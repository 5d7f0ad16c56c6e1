"""How to run it again: the command, the effective configuration, and fingerprints of what went in."""

import json
from collections.abc import Mapping
from typing import Any

from fedmoments.pages.blocks import copied, lead, pairs, titled
from fedmoments.pages.formats import seconds
from fedmoments.pages.markup import Html, join, tag
from fedmoments.pages.plain import as_number, items, mapping
from fedmoments.pages.reading import Results
from fedmoments.pages.shell import section
from fedmoments.settings.toml import to_toml

__all__ = ["reproduce_section"]

#: Hexadecimal digits of a digest that are shown; results.json has all 64.
DIGITS = 16


@section("reproduce", "How to reproduce this", place=180)
def reproduce_section(results: Results) -> Html | None:
    """Return the section, or None when nothing is known."""
    raw = results.raw
    config = mapping(raw.get("config"))
    parts = [
        copied("Command", str(raw["command"])) if raw.get("command") else None,
        copied("Configuration", to_toml(config).strip(), file="run.toml", wrap=False) if config else None,
        _origin(results),
        _digests(results),
    ]
    return join(parts) if any(parts) else None


def _origin(results: Results) -> Html | None:
    raw, data, encoder = results.raw, results.data, mapping(results.data.get("encoder"))
    known = [
        ("fedmoments", raw.get("version")),
        ("Created", str(raw.get("created") or "").replace("T", " ")[:19]),
        ("Took", _duration(as_number(raw.get("seconds")), mapping(raw.get("timings")))),
        ("Data", data.get("name")),
        ("Digest of the data", data.get("digest")),
        ("Encoder", encoder.get("name")),
        ("Fingerprint of the encoder", encoder.get("fingerprint")),
        ("Runtime", encoder.get("runtime")),
        ("Preprocessing", _pairs(encoder.get("preprocessing"))),
    ]
    return titled("Origin", pairs(known, code=["Digest of the data", "Fingerprint of the encoder"]))


def _digests(results: Results) -> Html | None:
    """Return the classifiers' digests, which those of a deployed federation can be compared with."""
    details = [mapping(each) for each in items(results.raw.get("details"))]
    known = [each for each in details if each.get("digest") or each.get("digest_reason")]
    measured = next((str(each["measured"]) for each in known if each.get("measured")), None)
    said = (
        f"A deployed federation of these clients, each sending {measured}, merges the same statistics bit for bit, and "
        "fits the same classifiers where its linear algebra runs in as many threads."
    )
    shown = pairs((str(each.get("head", "?")), _digest(each)) for each in known)
    return titled("Digests", lead(said if measured else None), shown)


def _digest(detail: Mapping[str, Any]) -> Html:
    if not detail.get("digest"):
        return join([f"none: {detail.get('digest_reason')}"])
    both = [tag("code", str(detail[name])[:DIGITS]) for name in ("digest", "statistics_digest") if detail.get(name)]
    return join(both, " from statistics ")


def _duration(whole: float | None, timings: Any) -> str | None:
    parts = [(str(name), as_number(value)) for name, value in timings.items()]
    words = ", ".join(f"{name} {seconds(value)}" for name, value in parts if value is not None)
    if whole is None:
        return words or None
    return f"{seconds(whole)} ({words})" if words else seconds(whole)


def _pairs(value: Any) -> str | None:
    if not mapping(value):
        return None if value is None else str(value)
    return ", ".join(f"{k} {v if isinstance(v, str) else json.dumps(v, default=str)}" for k, v in value.items())
