"""The envelope of a report: 360 bytes of fixed places, little-endian, of which the last 64 sign the others.

It holds everything that the helper may see of a report, and is all that the leader passes on::

    magic 8 │ byte order 4 │ format 4 │ context 72 │ client 64 │ version 8 │ size 8 │ report id 16 │ sealed seed 80
    │ commitment to the masked vector 32 │ signature 64

The fields from context to report id are HPKE's ``info``, so that a seed opens in its own envelope only. One signature
serves both servers: the leader checks that the masked vector is the one committed to, the helper that an enrolled
client made this report. The commitment is SHA-256 of a random salt and the masked vector. The helper does not get the
salt: knowing the mask, it could otherwise guess a vector and see whether the digest fits.
"""

import struct
from dataclasses import dataclass

from fedmoments.errors import InputError, RefusedError
from fedmoments.privacy.secure.context import CONTEXT_BYTES, Context
from fedmoments.privacy.secure.seal import SEALED_BYTES
from fedmoments.wire import IdentityKey, PublicKey, Reason, check_client_id
from fedmoments.wire.header import BYTE_ORDER, CLIENT_BYTES, MOST_VERSIONS, client_of
from fedmoments.wire.keys import SIGNATURE_BYTES

__all__ = [
    "ENVELOPE_BYTES",
    "ID_BYTES",
    "MAGIC",
    "Envelope",
    "info_of",
    "read_envelope",
    "signed_envelope",
    "write_envelope",
]

MAGIC = b"FEDMMASK"
#: Version of the format: of envelope and masked vector together.
FORMAT = 1
#: A report's id: random.
ID_BYTES = 16

_SIGNING = b"fedmoments masked report 1\n"
_SEALING = b"fedmoments sealed seed 1\n"
_LAYOUT = struct.Struct(f"<8sII{CONTEXT_BYTES}s{CLIENT_BYTES}sQQ{ID_BYTES}s{SEALED_BYTES}s32s")
_INFO = struct.Struct(f"<{CONTEXT_BYTES}s{CLIENT_BYTES}sQQ{ID_BYTES}s")
_SIGNED_BYTES = _LAYOUT.size
ENVELOPE_BYTES = _SIGNED_BYTES + SIGNATURE_BYTES


@dataclass(frozen=True)
class Envelope:
    """What an envelope says, of the right format and context; who signed it is known after :meth:`verify`.

    Parameters
    ----------
    client, version
        Who says that it made the report, and which of its reports this is.
    size
        Numbers of the masked vector.
    id
        The report's id, 32 hexadecimal digits.
    sealed
        The seed, sealed for the helper, 80 bytes.
    commitment
        SHA-256 of salt and masked vector, 32 bytes.
    info
        What the seed was sealed for.
    data
        The whole envelope, 360 bytes.

    Examples
    --------
    >>> context, key = Context("ab" * 32, 0, "cd" * 32), IdentityKey.generate()
    >>> info = info_of(context, "clinic", 1, 5, bytes(16))
    >>> envelope = read_envelope(write_envelope(info, bytes(80), bytes(32), key), context, size=5)
    >>> envelope.client, envelope.version, envelope.info == info
    ('clinic', 1, True)
    >>> envelope.verify(key.public)
    >>> envelope.verify(IdentityKey.generate().public)
    Traceback (most recent call last):
    fedmoments.errors.RefusedError: bad-signature: the report of client 'clinic' must be signed with ...
    """

    client: str
    version: int
    size: int
    id: str
    sealed: bytes
    commitment: bytes
    info: bytes
    data: bytes

    def verify(self, key: PublicKey) -> None:
        """Check the signature.

        Raises
        ------
        RefusedError
            When the envelope was not signed with the private half of this key.
        """
        if not key.verify(self.data[_SIGNED_BYTES:], _SIGNING + self.data[:_SIGNED_BYTES]):
            raise RefusedError(
                Reason.SIGNATURE,
                f"the report of client '{self.client}' must be signed with the key that it enrolled with "
                f"({key.hex[:16]}...), but is not: report again with that key",
                self.client,
            )


def info_of(context: Context, client: str, version: int, size: int, report: bytes) -> bytes:
    """Return what a seed is sealed for: HPKE's ``info``."""
    if type(version) is not int or not 1 <= version <= MOST_VERSIONS:
        raise InputError(f"the version of a report must be from 1 to {MOST_VERSIONS}, not {version}")
    return _SEALING + _INFO.pack(context.to_bytes(), check_client_id(client), version, size, report)


def write_envelope(info: bytes, sealed: bytes, commitment: bytes, key: IdentityKey) -> bytes:
    """Return a signed envelope, (360,); ``info`` is what `info_of` returned."""
    fields = _INFO.unpack(info[len(_SEALING) :])
    signed = _LAYOUT.pack(MAGIC, BYTE_ORDER, FORMAT, *fields, sealed, commitment)
    return signed + key.sign(_SIGNING + signed)


def signed_envelope(data: bytes) -> tuple[str, str] | None:
    """Return the digest of the federation's id (hexadecimal) and the client of an envelope that is to be signed.

    None of anything else.
    """
    signed = data.removeprefix(_SIGNING)
    if len(data) != len(_SIGNING) + _SIGNED_BYTES or len(signed) != _SIGNED_BYTES or not signed.startswith(MAGIC):
        return None
    fields = _LAYOUT.unpack(signed)
    return fields[3][:32].hex(), client_of(fields[4])


def read_envelope(data: bytes | memoryview, context: Context, size: int | None = None) -> Envelope:
    """Read an envelope and check that it was made for this context; its signature is not looked at.

    Parameters
    ----------
    data
        360 bytes.
    context
        What the report must have been made for.
    size
        Numbers that the masked vector must have; None: any.

    Raises
    ------
    RefusedError
        With the reason and the client's name, as far as that could be read.

    Examples
    --------
    >>> read_envelope(bytes(360), Context("ab" * 32, 0, "cd" * 32))
    Traceback (most recent call last):
    fedmoments.errors.RefusedError: not-a-contribution: a masked report begins with b'FEDMMASK', but ...
    """
    if len(data) != ENVELOPE_BYTES:
        raise RefusedError(
            Reason.TRUNCATED if len(data) < ENVELOPE_BYTES else Reason.TRAILING,
            f"the envelope of a report has {ENVELOPE_BYTES} bytes, but {len(data)} arrived: send it again",
        )
    data = bytes(data)
    magic, mark, form, arrived, name, version, length, report, sealed, commitment = _LAYOUT.unpack(data[:_SIGNED_BYTES])
    _check_format(magic, mark, form)
    client = client_of(name)
    _check_context(arrived, context, client)
    if not 1 <= version <= MOST_VERSIONS:
        raise RefusedError(
            Reason.CONTRIBUTION_VERSION,
            f"reports are numbered from 1 to {MOST_VERSIONS}, but client '{client}' sent number {version}: begin with "
            "1",
            client,
        )
    if size is not None and length != size:
        raise RefusedError(
            Reason.DIMENSION,
            f"the vector agreed on has {size} numbers, but client '{client}' masked {length}: measure the agreed "
            "moments with the agreed class list and encoder",
            client,
        )
    info = info_of(context, client, version, length, report)
    return Envelope(client, version, length, report.hex(), sealed, commitment, info, data)


def _check_format(magic: bytes, mark: int, form: int) -> None:
    if magic != MAGIC:
        raise RefusedError(
            Reason.NOT_A_CONTRIBUTION,
            f"a masked report begins with {MAGIC!r}, but what arrived begins with {magic!r}: send the bytes that "
            "make_report() made, unchanged",
        )
    if mark != BYTE_ORDER:
        raise RefusedError(
            Reason.ENDIANNESS,
            f"the byte-order mark must read {BYTE_ORDER:#010x}, but reads {mark:#010x}: numbers are written "
            "little-endian, whatever the machine; use make_report()",
        )
    if form != FORMAT:
        raise RefusedError(
            Reason.FORMAT_VERSION,
            f"this end speaks version {FORMAT} of the format of masked reports, but version {form} arrived: let both "
            "ends use the same release of fedmoments",
        )


def _check_context(arrived: bytes, context: Context, client: str) -> None:
    agreed = context.to_bytes()
    if arrived == agreed:
        return
    if arrived[:32] != agreed[:32]:
        reason, what = Reason.FEDERATION, f"federation {context.federation[:80]}"
    elif arrived[40:] != agreed[40:]:
        reason, what = Reason.FINGERPRINT, f"features of the fingerprint {context.fingerprint[:80]}"
    else:
        number = int.from_bytes(arrived[32:40], "little")
        reason, what = Reason.REPLAYED, f"round {context.round}, not of round {number}"
    raise RefusedError(
        reason,
        f"a report of {what} is awaited, but client '{client}' made this one for something else: a report is good for "
        "one context only; report again",
        client,
    )
