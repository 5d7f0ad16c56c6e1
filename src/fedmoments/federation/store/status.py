"""Status: who is in, with how much, and what went wrong lately."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fedmoments.core.statistics import StatisticsSpec
from fedmoments.durable import Connection
from fedmoments.federation.store.audit import Entry, entry, head
from fedmoments.federation.store.batches import batches
from fedmoments.federation.store.masked import waiting
from fedmoments.federation.store.releases import read_spent
from fedmoments.federation.store.totals import read_totals
from fedmoments.federation.terms import Terms

__all__ = ["Contributor", "Status", "read_status"]

#: How many refusals are shown.
LAST = 10


@dataclass(frozen=True)
class Contributor:
    """A client that is in.

    Parameters
    ----------
    client, version, digest
        Who, with which contribution.
    time
        When it was taken in: ISO 8601, UTC.
    bytes, classes, samples
        How much it holds.
    withheld_classes, withheld_samples
        How much the client's own policy withheld, as it says.

    Examples
    --------
    >>> Contributor("clinic", 1, "ab" * 32, "2030-01-01T00:00:00.000Z", 4096, 3, 120, 0, 0).samples
    120
    """

    client: str
    version: int
    digest: str
    time: str
    bytes: int
    classes: int
    samples: int
    withheld_classes: int
    withheld_samples: int


@dataclass(frozen=True)
class Status:
    """The state of a federation, at one moment.

    Parameters
    ----------
    name, federation
        What people call it, and its id.
    contributors
        Who is in, in order of name.
    enrolled, revoked, left
        How many clients are enrolled, were revoked, have left and not come back.
    class_counts
        (C,) samples of every class.
    bytes
        That clients sent: of all contributions, and masked reports, that are in.
    refused
        How often something was refused, logged or only counted.
    last_refusals
        The latest ten that were logged, the latest first.
    quarantined
        How many contributions are held in quarantine.
    entries, head
        Length of the log, and the hash of its last entry.
    waiting
        Clients whose masked reports are in no batch yet.
    batches
        Sums of masked reports that are in: their names, and how many clients each is over.
    spent
        Of differential privacy: what the releases spent together; None without an epsilon.
    reported
        Clients whose reports are in without a batch: those that they noised themselves.

    Examples
    --------
    >>> status = Status("pets", "ab" * 32, (), 3, 0, 0, (5, 0, 2), 0, 0, (), 0, 4, "cd" * 32)
    >>> status.clients, status.samples, status.classes_covered
    (0, 7, 2)
    """

    name: str
    federation: str
    contributors: tuple[Contributor, ...]
    enrolled: int
    revoked: int
    left: int
    class_counts: tuple[int, ...]
    bytes: int
    refused: int
    last_refusals: tuple[Entry, ...]
    quarantined: int
    entries: int
    head: str
    waiting: tuple[str, ...] = ()
    batches: Mapping[str, int] = field(default_factory=dict)
    spent: Mapping[str, Any] | None = None
    reported: int = 0

    @property
    def clients(self) -> int:
        """How many clients are in, by themselves or in a sum."""
        return sum(self.batches.values()) if self.batches else len(self.contributors) + self.reported

    @property
    def samples(self) -> int:
        """How many samples all contributions hold together."""
        return sum(self.class_counts)

    @property
    def classes_covered(self) -> int:
        """How many classes have at least one sample."""
        return sum(count > 0 for count in self.class_counts)


def read_status(connection: Connection, terms: Terms) -> Status:
    """Return the state, inside a transaction that reads."""

    def number(query: str) -> int:
        return int(connection.execute(query).fetchone()[0])

    contributors = connection.execute(
        "SELECT client, version, digest, time, bytes, classes, samples, withheld_classes, withheld_samples "
        "FROM contributions JOIN audit USING (seq) ORDER BY client"
    )
    totals = read_totals(connection, terms.agreement, StatisticsSpec())
    held, adds = waiting(connection), terms.privacy.mode.adds_reports
    refused = connection.execute("SELECT seq FROM audit WHERE event = 'refused' ORDER BY seq DESC LIMIT ?", (LAST,))
    return Status(
        name=terms.name,
        federation=terms.id,
        contributors=tuple(Contributor(*row) for row in contributors),
        enrolled=number(
            "SELECT count(*) FROM clients WHERE status = 'enrolled' AND client NOT IN (SELECT client FROM parts)"
        ),
        revoked=number("SELECT count(*) FROM clients WHERE status = 'revoked'"),
        left=number("SELECT count(*) FROM departures WHERE client NOT IN (SELECT client FROM parts)"),
        class_counts=tuple(totals.counts.tolist()),
        bytes=number(
            "SELECT (SELECT coalesce(sum(bytes), 0) FROM contributions WHERE client NOT IN (SELECT client FROM parts)) "
            "+ (SELECT coalesce(sum(bytes), 0) FROM reports WHERE batch IS NOT NULL)"
        )
        + (sum(report.bytes for report in held) if adds else 0),
        refused=number("SELECT coalesce(sum(times), 0) FROM refusals"),
        last_refusals=tuple(entry(connection, seq) for (seq,) in refused.fetchall()),
        quarantined=number("SELECT count(*) FROM quarantine"),
        entries=number("SELECT max(seq) FROM audit"),
        head=head(connection),
        waiting=tuple(report.client for report in held),
        reported=len(held) if adds else 0,
        batches={batch.name: len(batch.members) for batch in batches(connection) if batch.status == "collected"},
        spent=read_spent(connection, terms),
    )
