"""Contributions: statistics turned into signed bytes at a client, and believed at a server after every check.

A contribution is a header (:mod:`fedmoments.wire.header`) and a body (:mod:`fedmoments.wire.body`). The order of
checks is that of :class:`~fedmoments.wire.Reason`: nothing is parsed before the signature was verified, and nothing is
returned before all numbers were found to be such as data within the norm bound can have.

Many contributions in one message: what a node that serves several partitions sends.

========  =====  ====================================================
offset    bytes  what
========  =====  ====================================================
0         8      magic ``FEDMBNDL``
8         8      number of items k, u64 little-endian
16        8·k    length of each item, u64 little-endian
16 + 8·k  …      the items, one behind the other, and nothing else
========  =====  ====================================================

A bundle is not signed: its items are.
"""

import hashlib
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fedmoments.core.statistics import Statistics
from fedmoments.core.statistics.relabelling import relabelled
from fedmoments.errors import InputError, RefusedError
from fedmoments.wire.agreement import Agreement
from fedmoments.wire.header import DOMAIN, HEADER_BYTES, SIGNED_BYTES, Buffer, Header, read_header, write_header
from fedmoments.wire.keys import IdentityKey, PublicKey
from fedmoments.wire.reason import Reason
from fedmoments.wire.tensors import Withheld, read_body, write_body

__all__ = ["BUNDLE_MAGIC", "Contribution", "decode", "encode", "pack_bundle", "read_measured", "unpack_bundle"]


BUNDLE_MAGIC = b"FEDMBNDL"
_FIXED = 16


def pack_bundle(items: Sequence[Buffer]) -> bytes:
    """Return one message that holds all items, in order.

    Examples
    --------
    >>> bundle = pack_bundle([b"first", b"second"])
    >>> [bytes(item) for item in unpack_bundle(bundle, max_bytes=100, max_items=2)]
    [b'first', b'second']
    """
    lengths = struct.pack(f"<{len(items)}Q", *(len(item) for item in items))
    return b"".join((BUNDLE_MAGIC, len(items).to_bytes(8, "little"), lengths, *items))


def unpack_bundle(data: Buffer, *, max_bytes: int, max_items: int) -> list[memoryview]:
    """Return the items of a bundle, as views of it: nothing is copied, nothing is looked into.

    Parameters
    ----------
    data
        What arrived.
    max_bytes, max_items
        Caps on the whole and on the number of items, checked before anything is parsed.

    Raises
    ------
    RefusedError
        When it is too large, no bundle, or not exactly as long as it announces. No item of it is returned then.

    Examples
    --------
    >>> unpack_bundle(pack_bundle([b"x"]) + b"!", max_bytes=100, max_items=2)
    Traceback (most recent call last):
    fedmoments.errors.RefusedError: trailing-bytes: a bundle announces 25 bytes, but 26 arrived: send it again
    """
    view = memoryview(data).cast("B")
    if len(view) > max_bytes:
        raise RefusedError(
            Reason.OVERSIZED,
            f"a bundle may have {max_bytes} bytes, but {len(view)} arrived and none was parsed: send fewer at once",
        )
    if len(view) < _FIXED:
        raise RefusedError(
            Reason.TRUNCATED, f"a bundle has {_FIXED} bytes or more, but {len(view)} arrived: send it again"
        )
    if view[:8] != BUNDLE_MAGIC:
        raise RefusedError(
            Reason.NOT_A_CONTRIBUTION,
            f"a bundle begins with {BUNDLE_MAGIC!r}, but what arrived begins with {bytes(view[:8])!r}: "
            "make it with pack_bundle()",
        )
    count = int.from_bytes(view[8:_FIXED], "little")
    if count > max_items:
        raise RefusedError(
            Reason.OVERSIZED, f"a bundle may have {max_items} items, but announces {count}: send fewer at once"
        )
    start = _FIXED + 8 * count
    lengths = struct.unpack(f"<{count}Q", view[_FIXED:start]) if len(view) >= start else ()
    announced = start + sum(lengths)
    if len(view) != announced:
        reason = Reason.TRUNCATED if len(view) < announced else Reason.TRAILING
        raise RefusedError(reason, f"a bundle announces {announced} bytes, but {len(view)} arrived: send it again")
    items = []
    for length in lengths:
        items.append(view[start : start + length])
        start += length
    return items


@dataclass(frozen=True)
class Contribution:
    """What one client contributed, checked.

    Parameters
    ----------
    header
        Who, which version, under which terms.
    statistics
        In fixed point: exactly what a ledger adds. Their arrays are views of the bytes that were decoded.
    withheld
        How much the client's own policy withheld.
    size
        Bytes of the whole contribution.

    Examples
    --------
    :func:`decode` makes one:

    >>> Contribution.__match_args__
    ('header', 'statistics', 'withheld', 'size')
    """

    header: Header
    statistics: Statistics
    withheld: Withheld
    size: int

    @property
    def client(self) -> str:
        """Name of the client whose signature was verified."""
        return self.header.client

    @property
    def version(self) -> int:
        """Which of the client's contributions."""
        return self.header.version

    @property
    def digest(self) -> str:
        """SHA-256 (hexadecimal) of all that was signed."""
        return self.header.digest


def encode(
    stats: Statistics,
    agreement: Agreement,
    *,
    client: str,
    version: int,
    key: IdentityKey,
    withheld: Withheld = Withheld(),  # noqa: B008 - frozen
) -> bytes:
    """Write a client's statistics as a signed contribution; the same input gives the same bytes.

    Parameters
    ----------
    stats
        What the client measured; what the agreement does not ask for is left out, and floats are rounded to its fixed
        point.
    agreement
        What all parties agreed on.
    client
        The client's name, 1 to 64 bytes of printable text without slashes.
    version
        1 for its first contribution, more for one that replaces it.
    key
        Its identity key.
    withheld
        How much its own policy withheld.

    Raises
    ------
    RefusedError
        When the other end would refuse these statistics, so that a client learns it before anything leaves.

    Examples
    --------
    >>> from fedmoments.core.statistics import FixedPoint, StatisticsSpec
    >>> agreement = Agreement("ab" * 32, "ab" * 32, "ab" * 32, 2, 3, StatisticsSpec(), FixedPoint(4.0, 1000))
    >>> stats = Statistics.of([[1.0, 2.0, 3.0]], [0], agreement.spec, n_classes=2)
    >>> len(encode(stats, agreement, client="clinic", version=1, key=IdentityKey.generate()))
    600
    """
    for name in ("n_classes", "dim"):
        if getattr(stats, name) != getattr(agreement, name):
            raise InputError(
                f"client '{client}' has statistics with {name}={getattr(stats, name)}, but {name}="
                f"{getattr(agreement, name)} was agreed on: measure with the agreed encoder and class list"
            )
    pieces = write_body(stats.restricted(agreement.spec).quantized(agreement.fixed_point), agreement, withheld)
    sha = hashlib.sha256()
    for piece in pieces:
        sha.update(piece)
    length = sum(len(piece) for piece in pieces)
    signed = write_header(agreement, client, version, length, sha.digest())
    data = b"".join((signed, key.sign(DOMAIN + signed), *pieces))
    read_header(data, agreement)
    read_body(memoryview(data)[HEADER_BYTES:], agreement, client)
    return data


def decode(data: Buffer, agreement: Agreement, key_of: Callable[[str], PublicKey]) -> Contribution:
    """Read a contribution, believing nothing.

    Parameters
    ----------
    data
        What arrived.
    agreement
        What all parties agreed on.
    key_of
        Returns the key that a client enrolled with, or raises RefusedError (unknown or revoked client).

    Raises
    ------
    RefusedError
        With one :class:`~fedmoments.wire.Reason` and a sentence; see docs/wire.md for the order of checks.

    Examples
    --------
    >>> import numpy as np
    >>> from fedmoments.core.statistics import FixedPoint, StatisticsSpec
    >>> digest = "ab" * 32
    >>> agreement = Agreement(digest, digest, digest, 2, 3, StatisticsSpec.of("client_means"), FixedPoint(4.0, 1000))
    >>> stats = Statistics.of(np.ones((5, 3)), [0, 1, 1, 1, 1], agreement.spec, n_classes=2)
    >>> key = IdentityKey.generate()
    >>> data = encode(stats, agreement, client="clinic", version=1, key=key, withheld=Withheld(samples=2))
    >>> contribution = decode(data, agreement, lambda client: key.public)
    >>> contribution.client, contribution.statistics.counts, contribution.withheld.samples
    ('clinic', array([1, 4]), 2)
    >>> contribution.statistics == stats.quantized(agreement.fixed_point)
    True
    >>> decode(data[:-1], agreement, lambda client: key.public)
    Traceback (most recent call last):
    fedmoments.errors.RefusedError: truncated: the header of client 'clinic' announces a body of ...
    """
    view = memoryview(data).cast("B") if isinstance(data, memoryview) else memoryview(data)
    if not view.readonly:  # what was checked must stay what is used
        _ = read_header(view, agreement)
        view = memoryview(bytes(view))
    header = read_header(view, agreement)
    client = header.client
    if not key_of(client).verify(header.signature, DOMAIN + bytes(view[:SIGNED_BYTES])):
        raise RefusedError(
            Reason.SIGNATURE,
            f"the contribution that says it is of client '{client}' was not signed with the key that '{client}' "
            "enrolled: sign with that key, or enrol the new one",
            client,
        )
    body = view[HEADER_BYTES:]
    arrived = hashlib.sha256(body).hexdigest()
    if arrived != header.body_digest:
        raise RefusedError(
            Reason.DIGEST,
            f"client '{client}' signed a body of digest {header.body_digest}, but one of {arrived} arrived: it was "
            "changed on the way; send it again",
            client,
        )
    statistics, withheld = read_measured(header, body, agreement)
    return Contribution(header, statistics, withheld, len(view))


def read_measured(header: Header, body: memoryview, agreement: Agreement) -> tuple[Statistics, Withheld]:
    """Return the checked statistics of a body, and what was withheld; classes that were added since are absent in it.

    Parameters
    ----------
    header, body
        Of a contribution.
    agreement
        What all parties agree on now.
    """
    made_under = agreement.under(header.classes)
    statistics, withheld = read_body(body, made_under, header.client)
    if made_under.n_classes != agreement.n_classes:  # classes are added at the end, so labels stay
        statistics = relabelled(statistics, range(made_under.n_classes), agreement.n_classes)
    return statistics, withheld
