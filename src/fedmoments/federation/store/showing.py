"""What a ledger shows of its log: signed heads and receipts, and proofs for those who do not trust it."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedmoments.durable import Connection, DurableFile
from fedmoments.errors import LedgerError
from fedmoments.federation.keys.files import identity_pem, write_new
from fedmoments.federation.keys.parties import load_identity
from fedmoments.federation.store.audit import counter
from fedmoments.federation.store.receipt import Receipt
from fedmoments.federation.store.tree import subtree_of
from fedmoments.federation.terms import Terms
from fedmoments.federation.transparency.heads import LogHead, signature_of
from fedmoments.federation.transparency.merkle import consistency_proof, inclusion_proof, root_of
from fedmoments.federation.transparency.notebook import Noted
from fedmoments.wire import IdentityKey

__all__ = ["ShownLog", "key_of_ledger", "make_signing_key"]

#: So many heads that were shown last are joined to a new one: a node with several clients may have seen them.
LATELY = 16


def key_of_ledger(ledger: Path) -> Path:
    """Return where the key is that signs for a ledger.

    Examples
    --------
    >>> key_of_ledger(Path("trial/ledger.db")).as_posix()
    'trial/ledger.db.key'
    """
    return ledger.with_name(f"{ledger.name}.key")


def make_signing_key(ledger: Path) -> IdentityKey:
    """Return the key that signs for a ledger, made now if there is none; only its owner can read it."""
    place = key_of_ledger(ledger)
    if not place.exists():
        write_new(place, identity_pem(IdentityKey.generate()), 0o600)
    return load_identity(place)


class ShownLog:
    """The part of a ledger that others check; see :class:`FederationStore`."""

    _database: DurableFile
    terms: Terms
    path: Path
    _signing: IdentityKey | None = None
    _lately: tuple[int, ...] = ()

    @property
    def signing_key(self) -> IdentityKey:
        """The key that signs receipts and heads, in ``LEDGER.key``.

        Raises
        ------
        LedgerError
            When it is lost, or is not the one of the terms or of earlier receipts.
        """
        if self._signing is None:
            self._signing = self._load_signing()
        return self._signing

    def _load_signing(self) -> IdentityKey:
        rows = self._database.rows("SELECT value FROM meta WHERE name = 'server_key'")
        known = rows[0][0] if rows else self.terms.server
        place = key_of_ledger(self.path)
        if known and not place.exists():
            raise LedgerError(
                f"the key {place}, which signs receipts and heads of the log, is not there: bring it back; a new one "
                "would be refused by every client that knows the old one"
            )
        key = make_signing_key(self.path)
        if known and key.public.hex != known:
            raise LedgerError(f"{place} holds the key {key.public.hex[:16]}…, but this ledger signs with {known[:16]}…")
        if not rows:
            with self._database.writing("the key that signs was not noted") as connection:
                connection.execute("INSERT OR IGNORE INTO meta VALUES ('server_key', ?)", (key.public.hex,))
        return key

    def signed(self, receipt: Receipt) -> Receipt:
        """Return a receipt with the server's signature; the same one every time."""
        return replace(receipt, signature=signature_of(self.signing_key, "receipt", receipt.facts))

    def log_head(self) -> LogHead:
        """Return the head of the log as it is now, signed."""
        key = self.signing_key
        with self._database.reading() as connection:
            return _head(connection, key, self.terms.id)

    def show(self, seqs: Iterable[int], since: int = 0) -> dict[str, Any]:
        """Return what a client checks: a signed head, that entries are in it, and that it begins with what it saw.

        Parameters
        ----------
        seqs
            Numbers of the entries of its receipts.
        since
            Size of the last head that it saw when it was asked; 0 for none. It may have seen one since: heads that were
            shown lately are proved, too.
        """
        key = self.signing_key
        with self._database.reading() as connection:
            head, read = _head(connection, key, self.terms.id), subtree_of(connection)
            included = {str(seq): _hexes(inclusion_proof(read, seq - 1, head.size)) for seq in seqs}
            sizes = {size for size in (since, *self._lately) if 0 < size < head.size}
            consistent = {str(size): _hexes(consistency_proof(read, size, head.size)) for size in sorted(sizes)}
        self._lately = tuple(dict.fromkeys((*self._lately, head.size)))[-LATELY:]
        return {"head": head.to_json(), "included": included, "consistent": consistent}

    def join(self, sizes: Iterable[int]) -> list[Noted]:
        """Return the head of the log with proofs that it begins with those of other sizes: what joins witnesses' notes.

        Sizes beyond the log cannot be joined and are left out.
        """
        key = self.signing_key
        with self._database.reading() as connection:
            head, read = _head(connection, key, self.terms.id), subtree_of(connection)
            wanted = sorted({size for size in sizes if 0 < size < head.size})
            return [
                Noted(head),
                *(Noted(head, size, tuple(consistency_proof(read, size, head.size))) for size in wanted),
            ]


def _head(connection: Connection, key: IdentityKey, federation: str) -> LogHead:
    size = int(connection.execute("SELECT max(seq) FROM audit").fetchone()[0])
    time = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    root = root_of(subtree_of(connection), size)
    return LogHead.signed(key, federation, size, root, counter=counter(connection), time=time)


def _hexes(hashes: Sequence[bytes]) -> list[str]:
    return [value.hex() for value in hashes]
