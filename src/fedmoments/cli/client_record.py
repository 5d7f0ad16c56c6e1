"""What a client's record says, line by line: what was prepared, sent, acknowledged, tested and tuned, in words."""

import json
from typing import Any

from fedmoments.cli.output import plural, readable_bytes

__all__ = ["event_text", "record_lines"]


def record_lines(data: bytes) -> list[dict[str, Any]]:
    """Return the lines of a record; one that a kill cut off is left out."""
    events = []
    for line in data.splitlines():
        try:
            events.append(json.loads(line))
        except ValueError:
            continue
    return events


def event_text(line: dict[str, Any]) -> str:
    """Return a line of the record for people."""
    who, event = line["client"], line["event"]
    if event in ("prepared", "sent"):
        return (
            f"{who}: {event} version {line['version']}, {line['classes']:,} classes, {line['samples']:,} samples, "
            f"{readable_bytes(line['bytes'])}"
        )
    if event == "acknowledged":
        return f"{who}: the server acknowledged version {line['version']} as entry {line['seq']} of its log"
    if event == "evaluated":
        outcome = (
            "sent rounded counts" if any(line.get("told", [1])) else "sent no result: too few samples of any class"
        )
        tested = f"tested {plural(line.get('heads', 1), 'head')} on {plural(line['samples'], 'sample')}"
        return f"{who}: {tested}, {outcome}{_unreadable(line)}"
    if event in ("tuned", "scored"):
        return f"{who}: {_tuned(line)}"
    if event == "audited":
        return f"{who}: version {line['version']} {_revealed(line)}"
    return f"{who}: {event}: {line['sentence']}"


def _tuned(line: dict[str, Any]) -> str:
    """Return what was sent in a tuning, for people."""
    if line["event"] == "scored":
        return f"tested a model on {line['samples']:,} samples ({line['part']}), sent sums"
    size = readable_bytes(line["bytes"])
    return f"round {line['round']}, {line['stage']}: trained on {line['samples']:,} samples, sent parameters ({size})"


def _revealed(line: dict[str, Any]) -> str:
    """Return what an audit found, for people."""
    findings = line.get("reveals", {})
    revealed = [f"{kind} of {n:,}" for level in ("exposed", "weak") for kind, n in findings.get(level, {}).items()]
    kept = line.get("kept_back", {}).get("samples", 0)
    names = line.get("classes_kept_back", [])
    of = f", among them all of {', '.join(names)}" if names else ""
    whom = "to both servers together" if line.get("secure") else "to the server"
    shown = ", ".join(["class counts", *revealed])
    return f"reveals {whom}: {shown}; withheld: {plural(kept, 'sample')}{of}{_unreadable(line)}"


def _unreadable(line: dict[str, Any]) -> str:
    """Return which files could not be read, to be added to a sentence."""
    files = line.get("unreadable")
    return f"; {plural(files['samples'], 'file')} could not be read: {', '.join(files['names'])}" if files else ""
