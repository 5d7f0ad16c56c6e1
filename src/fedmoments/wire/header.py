"""The header of a contribution: 296 bytes of fixed places, little-endian, of which the last 64 sign the others.

It is read before anything is allocated or parsed. Who sent a contribution, under which terms and how long it is are
known from here; whether that is true is known once the signature was verified.
"""

import hashlib
import struct
from dataclasses import dataclass

from fedmoments.errors import InputError, RefusedError
from fedmoments.wire.agreement import Agreement
from fedmoments.wire.keys import SIGNATURE_BYTES
from fedmoments.wire.reason import Reason

__all__ = [
    "FORMAT",
    "HEADER_BYTES",
    "MAGIC",
    "Buffer",
    "Header",
    "check_client_id",
    "client_of",
    "read_header",
    "signed_header",
    "write_header",
]

Buffer = bytes | bytearray | memoryview

MAGIC = b"FEDMOMNT"
#: Version of the format: of header and body together.
FORMAT = 1
#: Reads as 0x04030201 where bytes are in the other order.
BYTE_ORDER = 0x01020304
#: Signed with the header's bytes, so that a signature can never be taken for one of something else.
DOMAIN = b"fedmoments contribution 1\n"
#: UTF-8 bytes of a client's name.
CLIENT_BYTES = 64
#: Versions are kept in signed 64-bit integers.
MOST_VERSIONS = 2**63 - 1

_LAYOUT = struct.Struct("<8sII32s32s32s64sQIIQ32s")
#: Bytes before the signature, and with it.
SIGNED_BYTES = _LAYOUT.size
HEADER_BYTES = SIGNED_BYTES + SIGNATURE_BYTES


@dataclass(frozen=True)
class Header:
    """What the first 296 bytes of a contribution say.

    Parameters
    ----------
    fingerprint, classes, federation
        64 hexadecimal digits each, as in :class:`~fedmoments.wire.Agreement`.
    client
        Name of the client that says it made this.
    version
        Which of its contributions, from 1; a higher one replaces a lower one.
    n_classes, dim
        C and d.
    body_length, body_digest
        Bytes behind the header, and their SHA-256 (hexadecimal).
    signature
        64 bytes.
    digest
        SHA-256 (hexadecimal) of all header bytes before the signature, so of everything that is signed: two
        contributions of the same digest are the same contribution.

    Examples
    --------
    >>> zeros = "00" * 32
    >>> header = Header(zeros, zeros, zeros, "clinic", 1, 10, 512, 0, zeros, bytes(64), zeros)
    >>> header.client, header.version
    ('clinic', 1)
    """

    fingerprint: str
    classes: str
    federation: str
    client: str
    version: int
    n_classes: int
    dim: int
    body_length: int
    body_digest: str
    signature: bytes
    digest: str


def check_client_id(client: str) -> bytes:
    """Return a client's name as it stands in the header, padded with zeros; refuse names that cannot stand there.

    A name is 1 to 64 bytes of printable UTF-8 without slashes, so that it can be shown and be part of a file's name.

    Examples
    --------
    >>> check_client_id("clinic-3").rstrip(bytes(1))
    b'clinic-3'
    >>> check_client_id("../etc")
    Traceback (most recent call last):
    fedmoments.errors.InputError: a client's name must be 1 to 64 bytes of printable text without slashes, ...
    """
    raw = client.encode("utf-8", "replace")
    if not 1 <= len(raw) <= CLIENT_BYTES or not client.isprintable() or "/" in client or "\\" in client:
        raise InputError(
            f"a client's name must be 1 to {CLIENT_BYTES} bytes of printable text without slashes, "
            f"but {client[:80]!r} ({len(raw)} bytes) arrived; choose another name and enrol with it"
        )
    return raw.ljust(CLIENT_BYTES, b"\0")


def write_header(agreement: Agreement, client: str, version: int, body_length: int, body_digest: bytes) -> bytes:
    """Return the bytes of a header before its signature, (232,)."""
    if isinstance(version, bool) or not 1 <= version <= MOST_VERSIONS:
        raise InputError(f"the version of a contribution must be from 1 to {MOST_VERSIONS}, not {version}")
    return _LAYOUT.pack(
        MAGIC,
        BYTE_ORDER,
        FORMAT,
        bytes.fromhex(agreement.fingerprint),
        bytes.fromhex(agreement.classes),
        bytes.fromhex(agreement.federation),
        check_client_id(client),
        version,
        agreement.n_classes,
        agreement.dim,
        body_length,
        body_digest,
    )


def signed_header(data: bytes) -> tuple[str, str] | None:
    """Return the federation (64 hexadecimal digits) and the client of a header that is to be signed; None of others."""
    signed = data.removeprefix(DOMAIN)
    if len(data) != len(DOMAIN) + SIGNED_BYTES or len(signed) != SIGNED_BYTES or not signed.startswith(MAGIC):
        return None
    fields = _LAYOUT.unpack(signed)
    return fields[5].hex(), client_of(fields[6])


def read_header(data: Buffer, agreement: Agreement) -> Header:
    """Read who sent a contribution and check that it was made for this federation, by this format, in this length.

    Neither the body nor the signature is looked at.

    Raises
    ------
    RefusedError
        With the reason and the client's name, as far as that could be read.

    Examples
    --------
    >>> from fedmoments.core.statistics import FixedPoint, StatisticsSpec
    >>> agreement = Agreement("ab" * 32, "ab" * 32, "ab" * 32, 2, 3, StatisticsSpec(), FixedPoint())
    >>> read_header(b"{}", agreement)
    Traceback (most recent call last):
    fedmoments.errors.RefusedError: truncated: a contribution begins with a header of 296 bytes, but only 2 arrived: ...
    """
    _check_size(len(data), agreement)
    signed = bytes(data[:SIGNED_BYTES])
    fields = _LAYOUT.unpack(signed)
    magic, mark, form, fingerprint, classes, federation, name, version, n_classes, dim, length, body = fields
    if magic != MAGIC:
        raise RefusedError(
            Reason.NOT_A_CONTRIBUTION,
            f"a contribution begins with {MAGIC!r}, but what arrived begins with {magic!r}: "
            "send the bytes that encode() made, unchanged",
        )
    if mark != BYTE_ORDER:
        raise RefusedError(
            Reason.ENDIANNESS,
            f"the byte-order mark must read {BYTE_ORDER:#010x}, but reads {mark:#010x}: numbers are written "
            "little-endian, whatever the machine; use encode()",
        )
    if form != FORMAT:
        raise RefusedError(
            Reason.FORMAT_VERSION,
            f"this end speaks version {FORMAT} of the format, but version {form} arrived: let both ends use the "
            "same release of fedmoments",
        )
    client = client_of(name)
    _check_length(len(data), length, client)
    header = Header(
        fingerprint.hex(),
        classes.hex(),
        federation.hex(),
        client,
        version,
        n_classes,
        dim,
        length,
        body.hex(),
        bytes(data[SIGNED_BYTES:HEADER_BYTES]),
        hashlib.sha256(signed).hexdigest(),
    )
    _check_terms(header, agreement.under(header.classes))
    return header


def _check_size(size: int, agreement: Agreement) -> None:
    if size > agreement.max_bytes:
        raise RefusedError(
            Reason.OVERSIZED,
            f"a contribution may have {agreement.max_bytes} bytes, but {size} arrived and none was parsed: "
            "send fewer moments, or agree on a larger max_bytes",
        )
    if size < HEADER_BYTES:
        raise RefusedError(
            Reason.TRUNCATED,
            f"a contribution begins with a header of {HEADER_BYTES} bytes, but only {size} arrived: send it again",
        )


def _check_length(size: int, length: int, client: str) -> None:
    arrived = size - HEADER_BYTES
    if arrived == length:
        return
    reason = Reason.TRUNCATED if arrived < length else Reason.TRAILING
    raise RefusedError(
        reason,
        f"the header of client '{client}' announces a body of {length} bytes, but {arrived} arrived: send it again",
        client,
    )


def client_of(name: bytes) -> str:
    """Return the name that stands in a header, if it is one that may stand there."""
    try:
        client = name.rstrip(b"\0").decode("utf-8")
        check_client_id(client)
    except (UnicodeDecodeError, InputError) as error:
        raise RefusedError(
            Reason.CLIENT_ID,
            f"a client's name must be 1 to {CLIENT_BYTES} bytes of printable UTF-8 without slashes, padded with "
            f"zeros, but {name.rstrip(bytes(1))!r} arrived: enrol under another name",
        ) from error
    return client


def _check_terms(header: Header, agreement: Agreement) -> None:
    """Compare what was agreed, the most telling first: another class list also changes fingerprint and terms."""
    client = header.client
    for name, reason, what, remedy in (
        ("classes", Reason.CLASSES, "the class list", "use the same class names in the same order"),
        ("fingerprint", Reason.FINGERPRINT, "the fingerprint", "use the same encoder, preprocessing and feature map"),
        ("n_classes", Reason.DIMENSION, "the number of classes", "measure with the agreed class list"),
        ("dim", Reason.DIMENSION, "the dimension of the features", "measure with the agreed encoder and map"),
        ("federation", Reason.FEDERATION, "the federation's id", "read this federation's terms and measure again"),
    ):
        agreed, arrived = getattr(agreement, name), getattr(header, name)
        if agreed != arrived:
            raise RefusedError(
                reason, f"{what} agreed on is {agreed}, but client '{client}' sent {arrived}: {remedy}", client
            )
    if not 1 <= header.version <= MOST_VERSIONS:
        raise RefusedError(
            Reason.CONTRIBUTION_VERSION,
            f"contributions are numbered from 1 to {MOST_VERSIONS}, but client '{client}' sent number "
            f"{header.version}: begin with 1",
            client,
        )
