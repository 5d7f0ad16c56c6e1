"""Contributions: statistics turned into signed bytes at a client, and believed at a server after every check.

A contribution is a header (:mod:`fedmoments.wire.header`) and a body (:mod:`fedmoments.wire.body`). The order of
checks is that of :class:`~fedmoments.wire.Reason`: nothing is parsed before the signature was verified, and nothing is
returned before all numbers were found to be such as data within the norm bound can have.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from fedmoments.core.statistics import Statistics
from fedmoments.errors import InputError, RefusedError
from fedmoments.wire.agreement import Agreement
from fedmoments.wire.header import DOMAIN, HEADER_BYTES, SIGNED_BYTES, Buffer, Header, read_header, write_header
from fedmoments.wire.keys import IdentityKey, PublicKey
from fedmoments.wire.reason import Reason
from fedmoments.wire.tensors import Withheld, read_body, write_body

__all__ = ["Contribution", "decode", "encode"]


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
        How much the client's own policy kept back.
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
        How much its own policy kept back.

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
    statistics, withheld = read_body(body, agreement, client)
    return Contribution(header, statistics, withheld, len(view))
