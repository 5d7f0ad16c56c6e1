"""Reports: what a client sends to the leader. Only both servers together could read it.

A report is an envelope (:mod:`fedmoments.privacy.secure.envelope`), 32 bytes of salt, and the masked vector::

    masked = x − PRG(seed)  modulo 2⁶⁴

where x is the dense vector of the client's fixed-point statistics (:class:`~fedmoments.privacy.dense.DenseLayout`) and
the seed, fresh for every report, travels sealed for the helper. Without the seed the masked vector is uniform whatever
x is; without the masked vector the seed says nothing about x.

Vectors are dense. One with places for the classes that a client holds only would be shorter, but its length and its
places would tell which classes those are, to the leader before any sum is made. Padding to hide that is the dense
vector again, so there is no sparse form.
"""

import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.errors import InputError, RefusedError
from fedmoments.privacy.secure.context import Context
from fedmoments.privacy.secure.envelope import ENVELOPE_BYTES, ID_BYTES, info_of, read_envelope, write_envelope
from fedmoments.privacy.secure.seal import SEALED_BYTES, seal
from fedmoments.privacy.secure.stream import MOST_WORDS, SEED_BYTES, Words, add_stream
from fedmoments.wire import IdentityKey, PublicKey, Reason
from fedmoments.wire.header import Buffer

__all__ = ["OVERHEAD_BYTES", "Report", "make_open_report", "make_report", "read_report"]

SALT_BYTES = 32
#: Bytes of a report besides its masked vector.
OVERHEAD_BYTES = ENVELOPE_BYTES + SALT_BYTES


@dataclass(frozen=True, eq=False)
class Report:
    """One client's report, its signature verified.

    Parameters
    ----------
    client, version
        Who made it, and which of its reports this is.
    id
        The report's id, 32 hexadecimal digits.
    sealed
        The envelope with the sealed seed, 360 bytes: what the helper gets.
    masked
        (m,) uint64; a view of the bytes that were read.

    Examples
    --------
    :func:`read_report` makes one:

    >>> Report.__match_args__
    ('client', 'version', 'id', 'sealed', 'masked')
    """

    client: str
    version: int
    id: str
    sealed: bytes
    masked: Words


def make_report(
    vector: NDArray[Any], context: Context, *, client: str, version: int, helper: str, key: IdentityKey
) -> bytes:
    """Mask a client's vector, seal the seed for the helper, and sign; another time, other bytes.

    Parameters
    ----------
    vector
        (m,) uint64 or int64, modulo 2⁶⁴: what ``DenseLayout.pack`` returned.
    context
        What it is for.
    client
        The client's name, 1 to 64 bytes of printable text without slashes.
    version
        1 for its first report of the context, more for one that replaces it.
    helper
        Public key of the helper, 64 hexadecimal digits. It must come from the helper's operator or from the signed
        terms: sealed for a key of the leader's, the report hides nothing from it.
    key
        The client's identity key.

    Returns
    -------
    bytes
        392 + 8 m bytes.

    Examples
    --------
    >>> from fedmoments.privacy.secure.seal import HelperKey
    >>> context, key, helper = Context("ab" * 32, 0, "cd" * 32), IdentityKey.generate(), HelperKey.generate()
    >>> data = make_report(
    ...     np.arange(5, dtype=np.uint64), context, client="clinic", version=1, helper=helper.public, key=key
    ... )
    >>> len(data)
    432
    >>> read_report(data, context, 5, lambda client: key.public).client
    'clinic'
    """
    _check_vector(vector, client)
    report, seed, salt = (secrets.token_bytes(n) for n in (ID_BYTES, SEED_BYTES, SALT_BYTES))
    info = info_of(context, client, version, len(vector), report)
    masked = vector.view(np.uint64).copy()
    add_stream(masked, seed, [(0, len(vector))], minus=True)
    return _signed(masked, salt, info, seal(seed, helper, info), key)


def make_open_report(vector: NDArray[Any], context: Context, *, client: str, version: int, key: IdentityKey) -> bytes:
    """Sign a vector that whoever gets it may read: no mask, and no seed in the envelope.

    Parameters
    ----------
    vector, context, client, version, key
        As of :func:`make_report`.

    Examples
    --------
    >>> context, key = Context("ab" * 32, 0, "cd" * 32), IdentityKey.generate()
    >>> data = make_open_report(np.arange(5, dtype=np.uint64), context, client="clinic", version=1, key=key)
    >>> read_report(data, context, 5, lambda client: key.public).masked
    array([0, 1, 2, 3, 4], dtype=uint64)
    """
    _check_vector(vector, client)
    report, salt = secrets.token_bytes(ID_BYTES), secrets.token_bytes(SALT_BYTES)
    info = info_of(context, client, version, len(vector), report)
    return _signed(vector.view(np.uint64), salt, info, bytes(SEALED_BYTES), key)


def _check_vector(vector: NDArray[Any], client: str) -> None:
    if vector.ndim != 1 or vector.dtype not in (np.uint64, np.int64) or not 1 <= len(vector) <= MOST_WORDS:
        raise InputError(
            f"client '{client}' can mask a vector of 1 to {MOST_WORDS} numbers of 64 bits, but {vector.shape} of type "
            f"{vector.dtype} arrived: pack fixed-point statistics with DenseLayout"
        )


def _signed(numbers: Words, salt: bytes, info: bytes, sealed: bytes, key: IdentityKey) -> bytes:
    """Return the bytes of a report: envelope, salt and numbers."""
    body = salt + numbers.astype("<u8", copy=False).tobytes()
    return write_envelope(info, sealed, hashlib.sha256(body).digest(), key) + body


def read_report(data: Buffer, context: Context, size: int, key_of: Callable[[str], PublicKey]) -> Report:
    """Read a report, believing nothing: length, format, context, signature, and that the vector is the signed one.

    Whether its seed opens is known to the helper only; whether its numbers are true, to nobody.

    Parameters
    ----------
    data
        What arrived.
    context
        What it must have been made for.
    size
        Numbers that the vector must have.
    key_of
        Returns the key that a client enrolled with, or raises RefusedError (unknown or revoked client).

    Raises
    ------
    RefusedError
        With one :class:`~fedmoments.wire.Reason` and a sentence.

    Examples
    --------
    >>> read_report(b"{}", Context("ab" * 32, 0, "cd" * 32), 5, lambda client: None)
    Traceback (most recent call last):
    fedmoments.errors.RefusedError: truncated: a report of 5 masked numbers has 432 bytes, but 2 arrived: ...
    """
    expected = OVERHEAD_BYTES + 8 * size
    if len(data) != expected:
        raise RefusedError(
            Reason.OVERSIZED if len(data) > expected else Reason.TRUNCATED,
            f"a report of {size} masked numbers has {expected} bytes, but {len(data)} arrived: send what make_report() "
            "made of the agreed moments, unchanged",
        )
    view = memoryview(data)
    envelope = read_envelope(view[:ENVELOPE_BYTES], context, size)
    envelope.verify(key_of(envelope.client))
    if hashlib.sha256(view[ENVELOPE_BYTES:]).digest() != envelope.commitment:
        raise RefusedError(
            Reason.DIGEST,
            f"the masked vector of client '{envelope.client}' is not the one that it signed: send it again",
            envelope.client,
        )
    masked = np.frombuffer(data, np.uint64, offset=OVERHEAD_BYTES)
    masked.flags.writeable = False
    return Report(envelope.client, envelope.version, envelope.id, envelope.data, masked)
