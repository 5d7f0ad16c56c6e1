"""Withdrawals: a client's signed word that its contribution is to be taken out, as if it had never joined.

It names the client's last version. So it is good for what was sent before it, and cannot be replayed once the client
has joined again.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass

from fedmoments.core.maps.canonical import canonical_json
from fedmoments.errors import RefusedError
from fedmoments.wire.header import MOST_VERSIONS, Buffer, check_client_id
from fedmoments.wire.keys import SIGNATURE_BYTES, IdentityKey, PublicKey
from fedmoments.wire.reason import Reason

__all__ = ["Withdrawal", "is_withdrawal", "make_withdrawal", "read_withdrawal", "signed_withdrawal", "withdrawn_by"]

#: Begins a withdrawal, and is signed with it.
DOMAIN = b"fedmoments withdrawal 1\n"
MOST_BYTES = 1024


@dataclass(frozen=True)
class Withdrawal:
    """Who withdraws what.

    Parameters
    ----------
    federation, client
        From which federation, and who.
    version
        Its last version.
    """

    federation: str
    client: str
    version: int

    @property
    def text(self) -> bytes:
        """What is signed."""
        return DOMAIN + canonical_json(asdict(self)).encode()


def make_withdrawal(withdrawal: Withdrawal, key: IdentityKey) -> bytes:
    """Return a withdrawal, signed; the same bytes every time.

    Examples
    --------
    >>> key = IdentityKey.generate()
    >>> data = make_withdrawal(Withdrawal("ab" * 32, "clinic", 3), key)
    >>> is_withdrawal(data), read_withdrawal(data, lambda client: key.public).version
    (True, 3)
    """
    return key.sign(withdrawal.text) + withdrawal.text


def is_withdrawal(data: Buffer) -> bool:
    """Say whether bytes are meant as a withdrawal."""
    return bytes(data[SIGNATURE_BYTES : SIGNATURE_BYTES + len(DOMAIN)]) == DOMAIN


def withdrawn_by(data: Buffer) -> tuple[str, int]:
    """Return the client and the version that a withdrawal names, whoever signed it; RefusedError where it is none."""
    read = _parsed(bytes(data[SIGNATURE_BYTES:]))
    return read.client, read.version


def signed_withdrawal(text: bytes) -> tuple[str, str] | None:
    """Return federation and client of a withdrawal that is to be signed; None of anything else."""
    if not text.startswith(DOMAIN):
        return None
    read = _parsed(text)
    return read.federation, read.client


def read_withdrawal(data: Buffer, key_of: Callable[[str], PublicKey]) -> Withdrawal:
    """Read a withdrawal, believing nothing.

    Parameters
    ----------
    data
        What arrived.
    key_of
        Returns the key that a client enrolled with, or raises RefusedError.

    Raises
    ------
    RefusedError
        When it is none, or is not signed by the client that it names.
    """
    if len(data) > MOST_BYTES or not is_withdrawal(data):
        raise RefusedError(Reason.NOT_A_CONTRIBUTION, f"a withdrawal has at most {MOST_BYTES} bytes; this is none")
    signature, text = bytes(data[:SIGNATURE_BYTES]), bytes(data[SIGNATURE_BYTES:])
    read = _parsed(text)
    if not key_of(read.client).verify(signature, text):
        raise RefusedError(
            Reason.SIGNATURE,
            f"the withdrawal that says it is of client '{read.client}' was not signed with the key that it enrolled",
            read.client,
        )
    return read


def _parsed(text: bytes) -> Withdrawal:
    try:
        value = json.loads(text[len(DOMAIN) :])
        read = Withdrawal(**value)
        check_client_id(read.client)
        kinds = type(value["federation"]), type(value["version"])
        sound = kinds == (str, int) and 1 <= read.version <= MOST_VERSIONS
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        sound = False
    if not sound or read.text != text:
        raise RefusedError(Reason.BODY, "a withdrawal names a federation, a client and its last version, as JSON")
    return read
