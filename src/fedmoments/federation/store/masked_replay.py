"""What the log says of masked reports, batches and releases, entry by entry, and whether the tables agree."""

import hashlib
import json
import sqlite3
from dataclasses import dataclass, field
from typing import Any

from fedmoments.federation.store.audit import Entry

__all__ = ["MaskedReplay", "differences"]


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
    reports: dict[str, tuple[int, str, int, str | None]] = field(default_factory=dict)
    batches: dict[str, tuple[str, str | None]] = field(default_factory=dict)
    releases: dict[str, tuple[int, str]] = field(default_factory=dict)
    charged: int = 0

    def follow(self, entry: Entry, facts: dict[str, Any]) -> bool:
        """Follow one entry; False if it is about something else."""
        step = getattr(self, f"_{entry.event}", None) if entry.event in _EVENTS else None
        if step is None:
            return False
        step(entry, facts)
        return True

    def _reported(self, entry: Entry, facts: dict[str, Any]) -> None:
        client, version = facts["client"], facts["version"]
        held = self.reports.get(client, (0, "", 0, None))
        if held[3] is not None or version <= max(held[0], self.gone.get(client, (0, 0))[0]):
            self.problems.append(f"entry {entry.seq}: client {client!r} reported what could not be taken in")
        self.reports[client] = (version, facts["digest"], entry.seq, None)
        self.gone.pop(client, None)

    def _withdrawn(self, entry: Entry, facts: dict[str, Any]) -> None:
        client = facts["client"]
        held = self.reports.pop(client, (0, "", 0, None))
        if held[3] is not None or held[:2] != (facts["version"], facts["digest"]):
            self.problems.append(f"entry {entry.seq}: client {client!r} withdrew what it had not reported")
        self.gone[client] = (facts["version"], entry.seq)

    def _batch(self, entry: Entry, facts: dict[str, Any]) -> None:
        for client, version in facts["reports"]:
            held = self.reports.get(client, (0, "", 0, None))
            if held[0] != version or held[3] is not None:
                self.problems.append(f"entry {entry.seq}: the batch holds a report of {client!r} that did not wait")
            self.reports[client] = (*held[:3], facts["batch"])
        self.batches[facts["batch"]] = ("asked", None)

    def _reopened(self, entry: Entry, facts: dict[str, Any]) -> None:
        self.batches.pop(facts["batch"], None)
        for client in self._members(facts["batch"]):
            self.reports[client] = (*self.reports[client][:3], None)
        for client in facts["without"]:
            self.gone[client] = (self.reports.pop(client)[0], entry.seq)

    def _collected(self, entry: Entry, facts: dict[str, Any]) -> None:
        if self.batches.get(facts["batch"], ("",))[0] != "asked":
            self.problems.append(f"entry {entry.seq}: the batch {facts['batch']!r} was not asked for")
        self.batches[facts["batch"]] = ("collected", facts.get("result"))
        self.charged += facts.get("charged", False) is True

    def _dissolved(self, entry: Entry, facts: dict[str, Any]) -> None:
        for client in self._members(facts["batch"]):
            self.gone[client] = (self.reports.pop(client)[0], entry.seq)
        self.batches[facts["batch"]] = ("left", None)

    def _released(self, entry: Entry, facts: dict[str, Any]) -> None:
        self.releases[facts["state"]] = (entry.seq, facts["data"])
        self.charged += 1

    def _members(self, batch: str) -> list[str]:
        return [client for client, held in self.reports.items() if held[3] == batch]

    def compare(self, connection: sqlite3.Connection) -> list[str]:
        """Return where tables and log differ; the bytes of a report that waits must be those that were taken in."""
        problems = []
        reports, batches, releases = {}, {}, {}
        for client, *rest, data in connection.execute("SELECT client, version, digest, seq, batch, data FROM reports"):
            reports[client] = tuple(rest)
            if data is not None and hashlib.sha256(data).hexdigest() != rest[1]:
                problems.append(f"the masked report of client {client!r} is not the one that was taken in")
        for batch, status, result in connection.execute("SELECT batch, status, result FROM batches"):
            batches[batch] = (status, None if result is None else hashlib.sha256(result).hexdigest())
        for state, seq, data in connection.execute("SELECT state, seq, data FROM releases"):
            releases[state] = (seq, hashlib.sha256(data).hexdigest())
        row = connection.execute("SELECT value FROM meta WHERE name = 'accountant'").fetchone()
        spent = len(json.loads(row[0])["spendings"]) if row else 0
        if spent != self.charged:
            problems.append(f"the account of privacy tells of {spent} releases, but the log of {self.charged}")
        return [
            *problems,
            *differences("the report of client", reports, self.reports),
            *differences("the batch", batches, self.batches),
            *differences("the release", releases, self.releases),
        ]


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
