"""What an outbox takes in: contributions that were just made, and receipts of a server."""

import re
from datetime import datetime
from typing import Any, NoReturn

from fedmoments.errors import FileFormatError, InputError, LedgerError, RefusedError
from fedmoments.federation.store.receipt import Receipt
from fedmoments.federation.terms import Terms
from fedmoments.wire import check_client_id, read_header
from fedmoments.wire.body import read_tensors
from fedmoments.wire.header import HEADER_BYTES, MOST_VERSIONS

__all__ = ["MOST_TEXT", "facts_of", "follows", "read_receipt"]

#: What a server says is kept up to this many characters.
MOST_TEXT = 4096
#: What a receipt may be for.
EVENTS = ("joined", "replaced", "left", "reported", "withdrawn")


def facts_of(data: bytes, terms: Terms, client: str, version: int) -> dict[str, Any]:
    """Return what the record tells of a contribution, ready for JSON, once it is the one that was requested.

    Raises
    ------
    InputError
        When it is not.
    """

    def refuse(reason: str, sentence: str) -> NoReturn:
        raise RefusedError(reason, sentence, client)

    try:
        header = read_header(data, terms.agreement)
        tensors, metadata = read_tensors(memoryview(data)[HEADER_BYTES:], refuse)
        counts = tensors["class_counts"].array("<i8")
        withheld = {name: int(metadata[f"withheld_{name}"]) for name in ("classes", "samples")}
    except (RefusedError, KeyError, ValueError) as error:
        raise InputError(
            f"what was made for client '{client}' is not a contribution to '{terms.name}': {error}"
        ) from error
    if (header.client, header.version) != (client, version):
        raise InputError(
            f"version {version} of client '{client}' was to be made, but it is version {header.version} of client "
            f"'{header.client}': pass on the version that make() is called with"
        )
    return {
        "federation": terms.id,
        "name": terms.name,
        "client": client,
        "version": version,
        "digest": header.digest,
        "moments": list(terms.spec.sent),
        "bytes": len(data),
        "classes": len(counts),
        "samples": int(counts.sum()),
        "withheld": withheld,
    }


def read_receipt(text: str) -> Receipt:
    """Read a server's receipt, JSON text.

    Raises
    ------
    LedgerError
        When it is something else.

    Examples
    --------
    >>> read_receipt("{}")
    Traceback (most recent call last):
    fedmoments.errors.LedgerError: the server sent no receipt: ...
    """
    if len(text) > MOST_TEXT:
        raise LedgerError(f"a receipt has at most {MOST_TEXT} characters, but {len(text)} arrived")
    try:
        receipt = Receipt.from_json(text)
    except FileFormatError as error:
        raise LedgerError(f"the server sent no receipt: {error}") from error
    if receipt.event not in EVENTS:
        raise LedgerError(f"a receipt is for one of {', '.join(EVENTS)}, but this is for {receipt.event[:80]!r}")
    for name in ("federation", "digest", "chain"):
        if not re.fullmatch("[0-9a-f]{64}", getattr(receipt, name)):
            raise LedgerError(f"{name} of a receipt must be 64 hexadecimal digits, not {getattr(receipt, name)!r}")
    for name in ("version", "seq"):
        if not 1 <= getattr(receipt, name) <= MOST_VERSIONS:
            raise LedgerError(f"{name} of a receipt must be from 1 to {MOST_VERSIONS}, not {getattr(receipt, name)}")
    try:
        check_client_id(receipt.client)
        datetime.fromisoformat(receipt.time)
    except ValueError as error:  # also InputError
        raise LedgerError(f"the server sent a receipt with a name or time that is none: {error}") from error
    return receipt


def follows(new: Receipt, held: Receipt) -> bool:
    """Say whether a receipt is later than the one that is held.

    Raises
    ------
    LedgerError
        When they contradict each other: one entry of the server's log, two contents.
    """
    if new.seq == held.seq and new != held:
        raise LedgerError(
            f"two receipts for version {new.version} of client '{new.client}' are both entry {new.seq} of the server's "
            f"log, with the hashes {held.chain} and {new.chain}: the server changed its log; keep both and ask there"
        )
    return (new.counter, new.seq) > (held.counter, held.seq)  # after a restore, the counter is higher
