"""What the log says, entry by entry: who is enrolled, who is in with what, which reports wait or were added up."""

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

from fedmoments.durable import Connection
from fedmoments.federation.store.audit import Entry

__all__ = ["Replay"]

#: Of a report: version, digest, entry, batch, id, bytes.
_Held = tuple[int, str, int, str | None, str, int]
_NONE: _Held = (0, "", 0, None, "", 0)


@dataclass
class Replay:
    """Follows the entries of a log, and compares what they say with the tables."""

    members: dict[str, tuple[str, str | None, str]] = field(default_factory=dict)
    present: dict[str, tuple[int, str, int]] = field(default_factory=dict)
    gone: dict[str, tuple[int, int]] = field(default_factory=dict)
    reports: dict[str, _Held] = field(default_factory=dict)
    batches: dict[str, tuple[str, str | None, Any]] = field(default_factory=dict)
    parts: dict[str, str] = field(default_factory=dict)
    releases: dict[str, tuple[int, str, Any]] = field(default_factory=dict)
    charged: list[tuple[float, str]] = field(default_factory=list)
    #: What the small rows must be (:mod:`fedmoments.federation.store.noted`).
    amended: str = ""
    server_key: str = ""
    is_closed: bool = False
    counter: int | None = None
    attempt: int = 0
    asked_again: set[str] = field(default_factory=set)
    knows_names: bool = True
    cohorts: str | None = None
    problems: list[str] = field(default_factory=list)

    def follow(self, entry: Entry) -> None:
        """Follow one entry; what others say changes no table."""
        facts = entry.details
        if "counter" in facts and entry.event != "note":
            self.counter = max(self.counter or 0, int(facts["counter"]))
        if entry.event in _EVENTS:
            getattr(self, f"_{entry.event}")(entry, facts)

    def _created(self, entry: Entry, facts: dict[str, Any]) -> None:
        del entry
        self.server_key = facts.get("key", "")

    def _amended(self, entry: Entry, facts: dict[str, Any]) -> None:
        del entry
        self.amended = facts["terms"]

    def _restored(self, entry: Entry, facts: dict[str, Any]) -> None:
        del entry
        self.is_closed = self.is_closed or facts.get("lost") is True

    def _attempt(self, entry: Entry, facts: dict[str, Any]) -> None:
        del entry
        self.attempt = facts["attempt"]
        self.asked_again = (self.asked_again | set(facts["clients"])) - set(facts["without"])

    def _cohorts(self, entry: Entry, facts: dict[str, Any]) -> None:
        del entry
        self.cohorts = facts["digest"]

    def _note(self, entry: Entry, facts: dict[str, Any]) -> None:
        """Follow what older versions wrote down as notes, without the names and digests that would be compared."""
        del entry
        if facts.get("note") == "next attempt" and type(facts.get("attempt")) is int:
            self.attempt, self.knows_names = facts["attempt"], False
        elif facts.get("note") == "cohorts drawn":
            self.cohorts = ""

    def _enrolled(self, entry: Entry, facts: dict[str, Any]) -> None:
        del entry
        self.members[facts["client"]] = (facts["key"], facts["node_key"], "enrolled")

    def _revoked(self, entry: Entry, facts: dict[str, Any]) -> None:
        del entry
        known = self.members.get(facts["client"], (facts.get("key", ""), facts.get("node_key")))
        self.members[facts["client"]] = (*known[:2], "revoked")

    def _rotated(self, entry: Entry, facts: dict[str, Any]) -> None:
        if self.members.get(facts["client"], ("",))[0] != facts["former"]:
            self.problems.append(f"entry {entry.seq}: the former key of client {facts['client']!r} was another one")
        self.members[facts["client"]] = (facts["key"], facts["node_key"], "enrolled")

    def _departed(self, entry: Entry, facts: dict[str, Any]) -> None:
        if facts["client"] in self.present or facts["client"] in self.reports:
            self.problems.append(f"entry {entry.seq}: client {facts['client']!r} departed, but is in")
        self.gone[facts["client"]] = (facts["version"], entry.seq)

    def _spent(self, entry: Entry, facts: dict[str, Any]) -> None:
        del entry
        self.charged.append((facts["ratio"], facts["what"]))

    def _joined(self, entry: Entry, facts: dict[str, Any]) -> None:
        client, version = facts["client"], facts["version"]
        last = self.present.get(client, self.gone.get(client, (0,)))[0]
        if version <= last or (entry.event == "replaced") != (client in self.present):
            self.problems.append(
                f"entry {entry.seq}: client {client!r} {entry.event} with version {version} after {last}"
            )
        self.present[client] = (version, facts["digest"], entry.seq)
        self.gone.pop(client, None)

    _replaced = _joined

    def _left(self, entry: Entry, facts: dict[str, Any]) -> None:
        client = facts["client"]
        if self.present.get(client, (0, ""))[:2] != (facts["version"], facts["digest"]):
            self.problems.append(f"entry {entry.seq}: client {client!r} left with what it had not contributed")
        self.present.pop(client, None)
        self.gone[client] = (facts["version"], entry.seq)

    def _reported(self, entry: Entry, facts: dict[str, Any]) -> None:
        client, version = facts["client"], facts["version"]
        held = self.reports.get(client, _NONE)
        if held[3] is not None or version <= max(held[0], self.gone.get(client, (0, 0))[0]):
            self.problems.append(f"entry {entry.seq}: client {client!r} reported what could not be taken in")
        self.reports[client] = (version, facts["digest"], entry.seq, None, facts["report"], facts["bytes"])
        self.gone.pop(client, None)

    def _withdrawn(self, entry: Entry, facts: dict[str, Any]) -> None:
        client = facts["client"]
        held = self.reports.pop(client, _NONE)
        if held[3] is not None or held[:2] != (facts["version"], facts["digest"]):
            self.problems.append(f"entry {entry.seq}: client {client!r} withdrew what it had not reported")
        self.gone[client] = (facts["version"], entry.seq)

    def _batch(self, entry: Entry, facts: dict[str, Any]) -> None:
        for client, version in facts["reports"]:
            held = self.reports.get(client, _NONE)
            if held[0] != version or held[3] is not None:
                self.problems.append(f"entry {entry.seq}: the batch holds a report of {client!r} that did not wait")
            self.reports[client] = (*held[:3], facts["batch"], *held[4:])
        self.batches[facts["batch"]] = ("asked", None, facts["plan"])

    def _reopened(self, entry: Entry, facts: dict[str, Any]) -> None:
        self.batches.pop(facts["batch"], None)
        for client in self._members(facts["batch"]):
            held = self.reports[client]
            self.reports[client] = (*held[:3], None, *held[4:])
        for client in facts["without"]:
            self.gone[client] = (self.reports.pop(client)[0], entry.seq)

    def _collected(self, entry: Entry, facts: dict[str, Any]) -> None:
        name = facts["batch"]
        status, _, plan = self.batches.get(name, ("", None, None))
        if status != "asked":
            self.problems.append(f"entry {entry.seq}: the batch {name!r} was not asked for")
        self.batches[name] = ("collected", facts.get("result"), plan)
        self.parts |= dict.fromkeys(facts["parts"], name)
        for client in self._members(name):  # a second report of two phases is added to what a client sent
            *held, size = self.reports[client]
            self.reports[client] = (*held, size + facts.get("second_bytes", 0))
        if facts.get("charged", False) is True:
            self.charged.append((facts["noise_over_sensitivity"], name[:16]))

    def _dissolved(self, entry: Entry, facts: dict[str, Any]) -> None:
        for client in self._members(facts["batch"]):
            self.gone[client] = (self.reports.pop(client)[0], entry.seq)
        self.batches[facts["batch"]] = ("left", None, self.batches[facts["batch"]][2])

    def _released(self, entry: Entry, facts: dict[str, Any]) -> None:
        promised = {name: value for name, value in facts.items() if name not in ("state", "data", "counter")}
        self.releases[facts["state"]] = (entry.seq, facts["data"], promised)
        self.charged.append((facts["noise_over_sensitivity"], facts["state"][:16]))

    def _members(self, batch: str) -> list[str]:
        return [client for client, held in self.reports.items() if held[3] == batch]

    # ---------------------------------------------------------------------------------------------- comparing

    def compare(self, connection: Connection) -> list[str]:
        """Return where tables and log differ, and where entries contradict each other."""
        return [*self.problems, *self._compare_clients(connection), *self._compare_masked(connection)]

    def _compare_clients(self, connection: Connection) -> list[str]:
        rows = connection.execute("SELECT client, hex(key), node_key, status FROM clients")
        members = {client: (key.lower(), node_key, status) for client, key, node_key, status in rows}
        rows = connection.execute("SELECT client, version, digest, seq FROM contributions")
        held = {client: (version, digest, seq) for client, version, digest, seq in rows}
        rows = connection.execute("SELECT client, version, seq FROM departures")
        gone = {client: tuple(rest) for client, *rest in rows}
        orphans = connection.execute(
            "SELECT client FROM payloads WHERE client NOT IN (SELECT client FROM contributions)"
        )
        return [
            *_differences("the enrolment of client", members, self.members),
            *_differences("the contribution of client", held, self.present),
            *_differences("the departure of client", gone, self.gone),
            *(f"a payload of client {client!r} belongs to no contribution" for (client,) in orphans),
        ]

    def _compare_masked(self, connection: Connection) -> list[str]:
        """Return where tables and log differ; what is kept of a report, or was erased of it, must be so by the log."""
        batches, releases = {}, {}
        for batch, status, result, plan in connection.execute("SELECT batch, status, result, plan FROM batches"):
            batches[batch] = (status, None if result is None else hashlib.sha256(result).hexdigest(), json.loads(plan))
        for state, seq, data, facts in connection.execute("SELECT state, seq, data, facts FROM releases"):
            releases[state] = (seq, hashlib.sha256(data).hexdigest(), json.loads(facts))
        parts = dict(connection.execute("SELECT client, batch FROM parts").fetchall())
        return [
            *self._compare_reports(connection),
            *_differences("the batch", batches, self.batches),
            *_differences("the sum", parts, self.parts),
            *_differences("the release", releases, self.releases),
        ]

    def _compare_reports(self, connection: Connection) -> list[str]:
        """Return where reports differ; the masked bytes must be there until their batch is collected, and not after."""
        problems, reports = [], {}
        query = "SELECT client, version, digest, seq, batch, report, bytes, data FROM reports"
        for client, *rest, data in connection.execute(query):
            reports[client] = tuple(rest)
            collected = self.batches.get(rest[3], ("",))[0] == "collected"
            if data is not None and hashlib.sha256(data).hexdigest() != rest[1]:
                problems.append(f"the masked report of client {client!r} is not the one that was taken in")
            if collected != (data is None):
                is_was = "was not erased when its sum was in" if collected else "is missing, and was not added up yet"
                problems.append(f"the masked report of client {client!r} {is_was}")
        return [*problems, *_differences("the report of client", reports, self.reports)]


_EVENTS = (
    *("enrolled", "revoked", "rotated", "joined", "replaced", "left", "departed", "spent"),
    *("reported", "withdrawn", "batch", "reopened", "collected", "dissolved", "released"),
    *("created", "amended", "restored", "attempt", "cohorts", "note"),
)


def _differences(what: str, held: dict[str, Any], logged: dict[str, Any]) -> list[str]:
    """Return a sentence for each name of which the tables hold something else than the log says.

    Examples
    --------
    >>> _differences("the batch", {"b": ("asked", None)}, {})
    ["the batch 'b' is ('asked', None), but the log says absent"]
    """
    names = sorted(name for name in {*held, *logged} if held.get(name) != logged.get(name))
    return [
        f"{what} {name!r} is {held.get(name, 'absent')}, but the log says {logged.get(name, 'absent')}"
        for name in names
    ]
