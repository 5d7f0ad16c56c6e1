"""How to run it again: the command, the effective configuration, and fingerprints of what went in."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from fedmoments.core.observations import Report
from fedmoments.core.observations.parts import HeadDetail
from fedmoments.pages.blocks import copied, lead, pairs, titled
from fedmoments.pages.formats import seconds
from fedmoments.pages.markup import Html, join, tag
from fedmoments.pages.shell import section
from fedmoments.settings.files import to_toml

__all__ = ["reproduce_section"]

#: Hexadecimal digits of a digest that are shown; results.json has all 64.
DIGITS = 16


@section("reproduce", "How to reproduce this", place=180)
def reproduce_section(report: Report) -> Html | None:
    """Return the section, or None when nothing is known."""
    parts = [
        copied("Command", report.command) if report.command else None,
        copied("Configuration", to_toml(report.config).strip(), file="run.toml", wrap=False) if report.config else None,
        _origin(report),
        _digests(report.details),
    ]
    return join(parts) if any(parts) else None


def _origin(report: Report) -> Html | None:
    data, encoder = report.data, report.data.encoder
    known = [
        ("Created", report.created.replace("T", " ")[:19]),
        ("Took", _duration(report.seconds, report.timings)),
        ("Data", data.name),
        ("Digest of the data", data.digest),
        ("Encoder", encoder.get("name")),
        ("Fingerprint of the encoder", encoder.get("fingerprint")),
        ("Runtime", encoder.get("runtime")),
        ("Preprocessing", _pairs(encoder.get("preprocessing"))),
    ]
    if not any(value for _, value in known):
        return None
    codes = ["Digest of the data", "Fingerprint of the encoder"]
    return titled("Origin", pairs([("fedmoments", report.version), *known], code=codes))


def _digests(details: Sequence[HeadDetail]) -> Html | None:
    """Return the classifiers' digests, which those of a deployed federation can be compared with."""
    known = [detail for detail in details if detail.digest or detail.digest_reason]
    measured = next((detail.measured for detail in known if detail.measured), None)
    said = (
        f"A deployed federation of these clients, each sending {measured}, merges the same statistics bit for bit, and "
        "fits the same classifiers where its linear algebra runs in as many threads."
    )
    shown = pairs((detail.head, _digest(detail)) for detail in known)
    return titled("Digests", lead(said if measured else None), shown)


def _digest(detail: HeadDetail) -> Html:
    if not detail.digest:
        return join([f"none: {detail.digest_reason}"])
    both = [tag("code", digest[:DIGITS]) for digest in (detail.digest, detail.statistics_digest) if digest]
    return join(both, " from statistics ")


def _duration(whole: float | None, timings: Mapping[str, float]) -> str | None:
    words = ", ".join(f"{name} {seconds(value)}" for name, value in timings.items())
    if whole is None:
        return words or None
    return f"{seconds(whole)} ({words})" if words else seconds(whole)


def _pairs(value: Any) -> str | None:
    if not isinstance(value, Mapping) or not value:
        return None if value is None else str(value)
    return ", ".join(f"{k} {v if isinstance(v, str) else json.dumps(v, default=str)}" for k, v in value.items())
