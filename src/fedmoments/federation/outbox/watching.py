"""What a client checks of the server's log before it believes a receipt, and what it keeps to hold the server to it.

======================  ===========================================================================================
``heads.jsonl``         the heads that it was shown, each with the proof that the one before begins it
``server-keys.json``    which key signs for which federation, where the terms name it
======================  ===========================================================================================
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedmoments.errors import FileFormatError, LedgerError
from fedmoments.federation.outbox.checks import read_receipt
from fedmoments.federation.store.receipt import Receipt
from fedmoments.federation.store.tree import leaf_of
from fedmoments.federation.transparency.heads import LogHead, hashes_from, is_signed_by
from fedmoments.federation.transparency.merkle import is_included
from fedmoments.federation.transparency.notebook import Notebook
from fedmoments.files import write_whole
from fedmoments.wire.keys import PublicKey

__all__ = ["HEADS", "Watching"]

HEADS, KEYS = "heads.jsonl", "server-keys.json"


class Watching:
    """One folder's memory of servers and their logs.

    Parameters
    ----------
    folder
        The client's own.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     watching = Watching(Path(folder))
    ...     watching.trust("ab" * 32, "cd" * 32)
    ...     watching.seen("ab" * 32), watching.check(["{}"], None)[1]
    (0, ['the server did not show its log: is the same version of fedmoments installed there?'])
    """

    def __init__(self, folder: Path) -> None:
        self.notebook = Notebook(folder / HEADS)
        self._keys = folder / KEYS
        #: The head by whose key a server was first believed, in the last :meth:`check`: terms named none.
        self.pinned: LogHead | None = None

    def trust(self, federation: str, key: str, part: str = "") -> None:
        """Remember which key the terms of a federation name, if any, and the id of its second phase."""
        known = self._known()
        changed = {**known, **({federation: key} if key else {}), **({part: f"of {federation}"} if part else {})}
        if changed != known:
            write_whole(self._keys, json.dumps(changed, indent=2).encode())

    def seen(self, federation: str) -> int:
        """Return the size of the longest log that a server has shown; 0 for none."""
        latest = self.notebook.latest(federation)
        return latest.size if latest else 0

    def check(self, receipts: Sequence[str], shown: Any) -> tuple[list[str], list[str]]:
        """Return those receipts that are signed and in the log that is shown, and what is wrong with the others.

        Parameters
        ----------
        receipts
            JSON texts.
        shown
            What :meth:`fedmoments.federation.store.FederationStore.show` made; nothing in it is believed.
        """
        if not receipts and shown is None:
            return [], []
        if not isinstance(shown, Mapping):
            return [], ["the server did not show its log: is the same version of fedmoments installed there?"]
        try:
            head = LogHead.from_json(str(shown["head"]))
            proofs, included = dict(shown["consistent"]), dict(shown["included"])
            proof = hashes_from(proofs.get(str(self.seen(head.federation)), []))
            is_first = self.notebook.follow(head, proof, self._known().get(head.federation))
            self.pinned = head if is_first else None
        except (KeyError, TypeError, ValueError, LedgerError, FileFormatError) as error:
            return [], [f"no receipt is kept: {error}"]
        sound, problems = [], []
        for text in receipts:
            try:
                self._require_in(read_receipt(text), head, included)
                sound.append(text)
            except (LedgerError, FileFormatError) as error:
                problems.append(str(error))
        return sound, problems

    def _require_in(self, receipt: Receipt, head: LogHead, included: Mapping[str, Any]) -> None:
        whose = f"the receipt for version {receipt.version} of client '{receipt.client}'"
        if head.federation not in (receipt.federation, self._known().get(receipt.federation, "")[3:]):
            raise LedgerError(f"{whose} is of another federation than the log that the server shows")
        if not is_signed_by(PublicKey.from_hex(head.key), receipt.signature, "receipt", receipt.facts):
            raise LedgerError(f"{whose} is not signed by the server's key {head.key[:16]}…")
        proof = hashes_from(included.get(str(receipt.seq)))
        root = bytes.fromhex(head.root)
        if not is_included(leaf_of(receipt.chain), receipt.seq - 1, head.size, proof, root):
            raise LedgerError(f"{whose} is for entry {receipt.seq}, which is not in the log that the server shows")

    def _known(self) -> dict[str, str]:
        if not self._keys.exists():
            return {}
        try:
            known = json.loads(self._keys.read_bytes())
        except ValueError as error:
            raise FileFormatError(f"{self._keys} is damaged: move it away, and read the terms again") from error
        return {str(name): str(value) for name, value in known.items()}
