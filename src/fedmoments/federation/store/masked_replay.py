"""What the log says of masked reports, batches and releases, entry by entry, and whether the tables agree."""

import hashlib
import json
import sqlite3
from dataclasses import dataclass, field
from typing import Any

from fedmoments.federation.store.audit import Entry

__all__ = ["MaskedReplay", "differences"]

#: Of a report: version, digest, entry, batch, id, bytes.
_Held = tuple[int, str, int, str | None, str, int]
_NONE: _Held = (0, "", 0, None, "", 0)


@dataclass
class MaskedReplay:
    """Follows a report: it waits, is withdrawn or added up, and leaves with its whole batch.

    Parameters
    ----------
    gone
        Client -> (version, entry) of those who left; shared with what follows contributions.
    problems
        Sentences on entries that contradict each other; shared too.
    """

    gone: dict[str, tuple[int, int]]
    problems: list[str]
    reports: dict[str, _Held] = field(default_factory=dict)
    batches: dict[str, tuple[str, str | None, Any]] = field(default_factory=dict)
    parts: dict[str, str] = field(default_factory=dict)
    releases: dict[str, tuple[int, str, Any]] = field(default_factory=dict)
    charged: list[float] = field(default_factory=list)

    def follow(self, entry: Entry, facts: dict[str, Any]) -> bool:
        """Follow one entry; False if it is about something else."""
        step = getattr(self, f"_{entry.event}", None) if entry.event in _EVENTS else None
        if step is None:
            return False
        step(entry, facts)
        return True

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
            self.charged.append(facts["noise_over_sensitivity"])

    def _dissolved(self, entry: Entry, facts: dict[str, Any]) -> None:
        for client in self._members(facts["batch"]):
            self.gone[client] = (self.reports.pop(client)[0], entry.seq)
        self.batches[facts["batch"]] = ("left", None, self.batches[facts["batch"]][2])

    def _released(self, entry: Entry, facts: dict[str, Any]) -> None:
        promised = {name: value for name, value in facts.items() if name not in ("state", "data")}
        self.releases[facts["state"]] = (entry.seq, facts["data"], promised)
        self.charged.append(facts["noise_over_sensitivity"])

    def _members(self, batch: str) -> list[str]:
        return [client for client, held in self.reports.items() if held[3] == batch]

    def compare(self, connection: sqlite3.Connection) -> list[str]:
        """Return where tables and log differ; what is kept of a report, or was erased of it, must be so by the log."""
        batches, releases = {}, {}
        for batch, status, result, plan in connection.execute("SELECT batch, status, result, plan FROM batches"):
            batches[batch] = (status, None if result is None else hashlib.sha256(result).hexdigest(), json.loads(plan))
        for state, seq, data, facts in connection.execute("SELECT state, seq, data, facts FROM releases"):
            releases[state] = (seq, hashlib.sha256(data).hexdigest(), json.loads(facts))
        parts = dict(connection.execute("SELECT client, batch FROM parts").fetchall())
        return [
            *self._compare_reports(connection),
            *self._compare_account(connection),
            *differences("the batch", batches, self.batches),
            *differences("the sum", parts, self.parts),
            *differences("the release", releases, self.releases),
        ]

    def _compare_reports(self, connection: sqlite3.Connection) -> list[str]:
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
        return [*problems, *differences("the report of client", reports, self.reports)]

    def _compare_account(self, connection: sqlite3.Connection) -> list[str]:
        row = connection.execute("SELECT value FROM meta WHERE name = 'accountant'").fetchone()
        spent = [each["ratio"] for each in json.loads(row[0])["spendings"]] if row else []
        if spent == self.charged:
            return []
        told = f"{len(spent)} releases, but the log of {len(self.charged)}"
        return [f"the account of privacy tells of {told}, with noise of {spent} and {self.charged} times Δ"]


_EVENTS = ("reported", "withdrawn", "batch", "reopened", "collected", "dissolved", "released")


def differences(what: str, held: dict[str, Any], logged: dict[str, Any]) -> list[str]:
    """Return a sentence for each name of which the tables hold something else than the log says.

    Examples
    --------
    >>> differences("the batch", {"b": ("asked", None)}, {})
    ["the batch 'b' is ('asked', None), but the log says absent"]
    """
    names = sorted(name for name in {*held, *logged} if held.get(name) != logged.get(name))
    return [
        f"{what} {name!r} is {held.get(name, 'absent')}, but the log says {logged.get(name, 'absent')}"
        for name in names
    ]
