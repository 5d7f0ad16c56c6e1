"""Making a ledger of a snapshot without losing what was promised since: departures, revocations, keys, budgets.

A snapshot is a file that arrives: it names no paths. The journal of the former ledger, and the key that signed for it,
are where the operator says, or are known by what they hold in the folder in which the new ledger is to stand.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from fedmoments.durable import Connection, DurableFile, refuse_taken
from fedmoments.errors import FedMomentsError, FileFormatError, LedgerError
from fedmoments.federation.keys.parties import load_identity
from fedmoments.federation.store.audit import Entry, append, head
from fedmoments.federation.store.journal import Journal, journal_of, take_in, taken_in
from fedmoments.federation.store.reconciling import IN, departures_in, redo, require_decided
from fedmoments.federation.store.releases import CLOSED
from fedmoments.federation.store.showing import key_of_ledger
from fedmoments.federation.store.tables import LEDGER
from fedmoments.federation.store.verification import verify
from fedmoments.federation.terms import Terms

__all__ = ["Restored"]

#: So many journals in a folder are looked at.
MOST_JOURNALS = 1000


class Restored:
    """A copy of a snapshot that is about to become a ledger.

    Parameters
    ----------
    part
        The copy.
    source, checksum
        The snapshot, and its SHA-256.
    target
        The ledger to be.

    Raises
    ------
    FileFormatError
        When it does not hold a valid ledger.
    """

    def __init__(self, part: Path, source: Path, checksum: str, target: Path) -> None:
        self._source, self._checksum, self._target = source, checksum, target
        try:
            self._file = DurableFile(part, LEDGER)
            text = self._meta("terms")
            if text is None:
                raise FileFormatError("it lacks the terms of its federation")
            self._terms = Terms.from_json(text)
        except FileFormatError as error:
            raise FileFormatError(f"the snapshot {source} is damaged ({error}): use another snapshot") from error
        outcome = verify(self._file, self._terms.agreement)
        if not outcome.whole:
            self.close()
            raise FileFormatError(
                f"the snapshot {source} does not hold a valid ledger: {'; '.join(outcome.problems[:3])}"
            )

    def keep(self, journal: Path | None, departed: Mapping[str, str], *, lost: bool) -> None:
        """Bring the copy up to the journal, and write into both that it takes the ledger's place.

        Raises
        ------
        LedgerError
            When the journal is missing, or somebody left of whom nothing was decided; nothing was changed then.
        """
        refuse_taken(self._target)  # before the journal says that it was restored
        place = journal_of(self._target)
        known = None if lost else self._journal(journal)
        own = self._journal_at(place)
        with self._file.writing(f"{self._target} was not restored") as connection:
            if known is None:
                self._begin_journal(connection, lost=lost)
            else:
                self._catch_up(connection, known, departed)
            returned = sorted(name for name, decision in departed.items() if decision == IN)
            before = head(connection)
            facts = {"checksum": self._checksum, "returned": returned, "lost": lost}
            append(connection, "restored", {"file": self._source.name, **facts})
            seq, last = taken_in(connection)
            new = Entry.following(
                last or self._terms.id, seq + 1, "restored", {**facts, "head": before}, _now(connection)
            )
            take_in(connection, new)
            if known is not None and known.path != place:
                _share(known.path, place)
            self._keep_key(None if known is None else known.path)
            own.append([new])

    def _catch_up(self, connection: Connection, known: Journal, departed: Mapping[str, str]) -> None:
        """Do again what the journal tells of after the snapshot, but departures of those who are to be in."""
        lines = known.missing(connection)
        require_decided(departures_in(connection, lines), departed)
        for line in lines:
            name = str(line.details.get("client", line.details.get("batch", "")))
            if departed.get(name) != IN or line.event not in ("left", "withdrawn", "dissolved"):
                redo(connection, self._terms, line)
            take_in(connection, line)

    def close(self) -> None:
        """Close the copy."""
        self._file.close()

    def _journal(self, given: Path | None) -> Journal | None:
        """Return the journal of the ledger that the snapshot was taken of; None if that never had one."""
        places = [given or journal_of(self._target)]
        if given is None and not places[0].exists():
            places += self._journals_beside()
        found = [place for place in places if place.exists()]
        if len(found) > 1:
            raise LedgerError(
                f"{' and '.join(map(str, found))} are journals of this federation: say with '--journal FILE' which one "
                "tells what happened since the snapshot"
            )
        if found:
            return self._journal_at(found[0])
        if self._meta("counter") is None and given is None:
            return None
        raise LedgerError(
            f"the journal of the ledger is not at {places[0]}, nor beside it: it tells who left, which keys were "
            "revoked and what was spent since the snapshot. Give it with '--journal FILE'; if it is lost, "
            "'--lost-journal' goes on without it: nothing more is released under an epsilon then, and clients will "
            "notice by the counter in their receipts"
        )

    def _journal_at(self, place: Path) -> Journal:
        return Journal(place, self._terms.id, lambda c, line: redo(c, self._terms, line))

    def _journals_beside(self) -> list[Path]:
        """Return the journals in the folder of the new ledger that go on from the snapshot, each once."""
        found: list[Path] = []
        for place in sorted(self._target.parent.glob("*.journal"))[:MOST_JOURNALS]:
            if not any(place.samefile(known) for known in found) and self._goes_on(place):
                found.append(place)
        return found

    def _goes_on(self, place: Path) -> bool:
        """Say whether a journal is of this federation and has what the snapshot has seen; an empty one, by its key."""
        try:
            with self._file.reading(settled=False) as connection:
                self._journal_at(place).missing(connection)
            return place.stat().st_size > 0 or self._is_signer(_key_beside(place))
        except (FedMomentsError, OSError):
            return False

    def _is_signer(self, key: Path) -> bool:
        try:
            return load_identity(key).public.hex == (self._meta("server_key") or self._terms.server)
        except (FedMomentsError, OSError):
            return False

    def _keep_key(self, journal: Path | None) -> None:
        """Let the key go on to sign that stands beside the journal or, if that is lost, beside another ledger here."""
        signing = key_of_ledger(self._target)
        if signing.exists():
            return
        beside = [key for key in sorted(self._target.parent.glob("*.key")) if key.with_suffix("").exists()]
        for former in [_key_beside(journal)] if journal is not None else beside[:MOST_JOURNALS]:
            if self._is_signer(former):
                _share(former, signing)
                return

    def _begin_journal(self, connection: Connection, *, lost: bool) -> None:
        place = journal_of(self._target)
        if place.exists():
            raise LedgerError(f"there is a journal {place}: it is not lost; restore with it, or move it away")
        if lost:
            connection.execute("INSERT OR REPLACE INTO meta VALUES (?, '')", (CLOSED,))

    def _meta(self, name: str) -> str | None:
        with self._file.reading(settled=False) as connection:
            row = connection.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return None if row is None else str(row[0])


def _key_beside(journal: Path) -> Path:
    """Return where the key is of the ledger that a journal is of."""
    return key_of_ledger(journal.with_name(journal.name.removesuffix(".journal")))


def _now(connection: Connection) -> str:
    return str(connection.execute("SELECT time FROM audit ORDER BY seq DESC LIMIT 1").fetchone()[0])


def _share(journal: Path, place: Path) -> None:
    """Give the restored ledger the very journal of the former one, so that only one of both can go on."""
    try:
        os.link(journal, place)
    except OSError:  # on another disk
        place.symlink_to(journal.absolute())
