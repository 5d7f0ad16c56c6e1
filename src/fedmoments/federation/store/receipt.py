"""Receipts: what a client keeps as proof that the ledger holds, or no longer holds, its contribution."""

import json
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from fedmoments.core.maps.canonical import canonical_json
from fedmoments.errors import FileFormatError
from fedmoments.federation.store.audit import Entry

__all__ = ["Receipt"]


@dataclass(frozen=True)
class Receipt:
    """The acknowledgement of one change; it exists only once the change is on the disk.

    Parameters
    ----------
    federation
        Its id, 64 hexadecimal digits.
    client, version, digest
        Whose contribution, which one of them, and the digest of its content.
    seq, chain
        Number and hash of the log's entry. ``verify(expect=receipt.chain)`` shows whether the log still contains it.
    event
        ``"joined"``, ``"replaced"`` or ``"left"``; ``"reported"`` for a masked report.
    time
        When: ISO 8601, UTC.
    counter
        Number of the last line of the journal beside the ledger then: how many have left, were revoked or rotated, and
        what was released. It never goes back. 0 in receipts of the first build.
    signature
        The server's, 128 hexadecimal digits; of no account when receipts are compared.

    Examples
    --------
    >>> receipt = Receipt("ab" * 32, "clinic", 1, "cd" * 32, 7, "ef" * 32, "joined", "2030-01-01T00:00:00.000Z")
    >>> Receipt.from_json(receipt.to_json()) == receipt
    True
    """

    federation: str
    client: str
    version: int
    digest: str
    seq: int
    chain: str
    event: str
    time: str
    counter: int = 0
    signature: str = field(default="", compare=False)

    @classmethod
    def of(cls, federation: str, entry: Entry) -> "Receipt":
        """Return the receipt that belongs to an entry of the log; the same one every time."""
        facts = entry.details
        who = (facts["client"], facts["version"], facts.get("digest", ""))  # of a departure before a restore, none
        return cls(federation, *who, entry.seq, entry.hash, entry.event, entry.time, facts.get("counter", 0))

    @property
    def facts(self) -> dict[str, Any]:
        """What is signed: all but the signature."""
        return {name: value for name, value in asdict(self).items() if name != "signature"}

    def to_json(self) -> str:
        """Return canonical JSON: equal receipts have equal texts."""
        return canonical_json(asdict(self))

    @classmethod
    def from_json(cls, text: str | bytes) -> "Receipt":
        """Read what :meth:`to_json` wrote.

        Raises
        ------
        FileFormatError
            When it is something else.
        """
        kinds = {declared.name: declared.type for declared in fields(cls)}
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise FileFormatError(f"this is not a receipt, for it is not JSON: {error}") from error
        if isinstance(value, dict):
            value = {"counter": 0, "signature": "", **value}  # receipts of the first build have none
        if not isinstance(value, dict) or set(value) != set(kinds):
            raise FileFormatError(f"a receipt is a JSON object with the fields {', '.join(kinds)}")
        wrong = [name for name, kind in kinds.items() if type(value[name]) is not kind]
        if wrong:
            raise FileFormatError(f"in a receipt, {wrong[0]} cannot be {value[wrong[0]]!r}")
        return cls(**value)
