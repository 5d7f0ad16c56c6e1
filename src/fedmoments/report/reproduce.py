"""How to run it again: the command, the effective configuration, and fingerprints of what went in."""

import json
from collections.abc import Mapping
from typing import Any

from fedmoments.report.formats import count, seconds
from fedmoments.report.markup import Html, join, tag
from fedmoments.report.plain import as_number, items, mapping
from fedmoments.report.reading import Results
from fedmoments.report.toml import to_toml

__all__ = ["facts", "reproduce_section"]

#: Hexadecimal digits of a digest that are shown; results.json has all 64.
DIGITS = 16


def facts(results: Results) -> Html:
    """Return one line on what was measured."""
    data, encoder = results.data, mapping(results.data.get("encoder"))
    number = as_number
    known = [
        tag("b", str(data["name"])) if data.get("name") else None,
        f"{count(number(data['train']))} training samples" if number(data.get("train")) else None,
        f"{count(number(data['test']))} test samples" if number(data.get("test")) else None,
        count(results.n_classes, "class", "classes") if results.n_classes else None,
        str(encoder["name"]) if encoder.get("name") else None,
        f"{count(number(data['dim']))} dimensions" if number(data.get("dim")) else None,
        None if results.is_federation or not results.rows else count(results.seeds, "seed"),
    ]
    return tag("ul", *(tag("li", each) for each in known if each is not None), class_="facts")


def reproduce_section(results: Results) -> Html | None:
    """Return the section, or None when nothing is known."""
    raw = results.raw
    parts = [
        _copied("Command", str(raw["command"])) if raw.get("command") else None,
        _copied("Configuration", to_toml(mapping(raw.get("config"))), "run.toml")
        if mapping(raw.get("config"))
        else None,
        _origin(results),
        _digests(results),
    ]
    return join(parts) if any(parts) else None


def _copied(title: str, words: str, name: str = "") -> Html:
    small = tag("small", f" {name}") if name else None
    button = tag("button", "Copy", type="button", class_="copy", aria_label=f"Copy the {title.lower()}")
    whole = join((tag("span", word, class_="nowrap") for word in words.split(" ")), " ") if not name else words
    block = tag("pre", tag("code", whole), tabindex="0", class_="wrap" if not name else None)
    return tag("div", tag("div", tag("h3", title, small), button, class_="row"), block, class_="copied")


def _origin(results: Results) -> Html | None:
    raw, data, encoder = results.raw, results.data, mapping(results.data.get("encoder"))
    timings = mapping(raw.get("timings"))
    known: list[tuple[str, Any, bool]] = [
        ("fedmoments", raw.get("version"), False),
        ("Created", str(raw["created"]).replace("T", " ")[:19] if raw.get("created") else None, False),
        ("Took", _duration(as_number(raw.get("seconds")), timings), False),
        ("Data", data.get("name"), False),
        ("Digest of the data", data.get("digest"), True),
        ("Encoder", encoder.get("name"), False),
        ("Fingerprint of the encoder", encoder.get("fingerprint"), True),
        ("Runtime", encoder.get("runtime"), False),
        ("Preprocessing", _pairs(encoder.get("preprocessing")), False),
    ]
    shown = [
        join([tag("dt", name), tag("dd", tag("code", str(value)) if code else str(value))])
        for name, value, code in known
        if value
    ]
    return join([tag("h3", "Origin"), tag("dl", *shown)]) if shown else None


def _digests(results: Results) -> Html | None:
    """Return the classifiers' digests, which those of a deployed federation can be compared with."""
    details = [mapping(each) for each in items(results.raw.get("details"))]
    known = [each for each in details if each.get("digest") or each.get("digest_reason")]
    if not known:
        return None
    measured = next((str(each["measured"]) for each in known if each.get("measured")), None)
    lead = (
        f"A deployed federation of these clients, each sending {measured}, merges the same statistics bit for bit, and "
        "fits the same classifiers where its linear algebra runs in as many threads."
    )
    shown = [join([tag("dt", str(each.get("head", "?"))), tag("dd", *_digest(each))]) for each in known]
    return join([tag("h3", "Digests"), tag("p", lead, class_="lead") if measured else None, tag("dl", *shown)])


def _digest(detail: Mapping[str, Any]) -> list[Html | str]:
    if not detail.get("digest"):
        return [f"none: {detail.get('digest_reason')}"]
    both = [tag("code", str(detail[name])[:DIGITS]) for name in ("digest", "statistics_digest") if detail.get(name)]
    return [both[0], " from statistics ", both[1]] if len(both) > 1 else [both[0]]


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
