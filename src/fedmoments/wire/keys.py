"""Identity keys: a client signs what it contributes with Ed25519, and whoever enrolled its public key can tell.

They are not the keys of the transport: TLS says which machine is speaking, these say whose numbers they are, for as
long as the bytes are kept.
"""

import hmac
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fedmoments.errors import InputError
from fedmoments.extras import require

__all__ = ["KEY_BYTES", "SIGNATURE_BYTES", "IdentityKey", "PublicKey"]

#: An Ed25519 key, private or public, has this many bytes.
KEY_BYTES = 32
#: And a signature this many.
SIGNATURE_BYTES = 64
#: The field of Ed25519, and the y of all points whose order divides 8. Under such a key a signature that anybody can
#: write down holds for any data.
_FIELD = 2**255 - 19
_EIGHTH = 2707385501144840649318225287225658788936804267575313519463743609750303402022
_SMALL_ORDER = frozenset((0, 1, _EIGHTH, _FIELD - _EIGHTH, _FIELD - 1))


def _ed25519() -> Any:
    return require("cryptography.hazmat.primitives.asymmetric.ed25519", "Signing contributions", "flower")


@dataclass(frozen=True)
class PublicKey:
    """What others need to know of a client to recognise its signature.

    Parameters
    ----------
    raw
        The 32 bytes of an Ed25519 public key.

    Examples
    --------
    >>> key = IdentityKey.generate()
    >>> signature = key.sign(b"numbers")
    >>> key.public.verify(signature, b"numbers"), key.public.verify(signature, b"others")
    (True, False)
    >>> PublicKey.from_hex(key.public.hex) == key.public
    True
    """

    raw: bytes

    def __post_init__(self) -> None:
        if len(self.raw) != KEY_BYTES:
            raise InputError(f"a public key is {KEY_BYTES} bytes of Ed25519, but {len(self.raw)} bytes arrived")
        if int.from_bytes(self.raw, "little") % 2**255 % _FIELD in _SMALL_ORDER:  # without the sign of x
            raise InputError(
                f"{self.raw.hex()} is a point of small order: anybody can sign for such a key; no program makes one as "
                "a public key, so ask its owner for the right one"
            )

    @classmethod
    def from_hex(cls, text: str) -> "PublicKey":
        """Read what :attr:`hex` wrote: 64 hexadecimal digits.

        Examples
        --------
        >>> PublicKey.from_hex("00" * 31)
        Traceback (most recent call last):
        fedmoments.errors.InputError: a public key is 64 hexadecimal digits, but ...
        """
        if len(text) != 2 * KEY_BYTES or not set(text) <= set("0123456789abcdef"):
            raise InputError(
                f"a public key is {2 * KEY_BYTES} hexadecimal digits, but {text[:80]!r} arrived; "
                "copy it again from where the key was made"
            )
        return cls(bytes.fromhex(text))

    @property
    def hex(self) -> str:
        """The key as 64 lower-case hexadecimal digits."""
        return self.raw.hex()

    @cached_property
    def _key(self) -> Any:
        return _ed25519().Ed25519PublicKey.from_public_bytes(self.raw)

    def verify(self, signature: bytes, data: bytes) -> bool:
        """Say whether ``signature`` (64 bytes) of ``data`` was made with the private half of this key."""
        if len(signature) != SIGNATURE_BYTES:
            return False
        from cryptography.exceptions import InvalidSignature

        try:
            self._key.verify(signature, data)
        except InvalidSignature:
            return False
        return True


class IdentityKey:
    """A client's private key. Its bytes are shown by :meth:`private_bytes` only, never by ``repr``.

    Examples
    --------
    >>> key = IdentityKey.generate()
    >>> again = IdentityKey.from_bytes(key.private_bytes())
    >>> again.public == key.public, again.sign(b"x") == key.sign(b"x")
    (True, True)
    """

    def __init__(self, private: Any) -> None:
        self._private = private
        self.public = PublicKey(private.public_key().public_bytes_raw())

    @classmethod
    def generate(cls) -> "IdentityKey":
        """Make a new key from the operating system's randomness."""
        return cls(_ed25519().Ed25519PrivateKey.generate())

    @classmethod
    def from_bytes(cls, raw: bytes) -> "IdentityKey":
        """Read the 32 bytes that :meth:`private_bytes` returned."""
        if len(raw) != KEY_BYTES:
            raise InputError(f"a private key is {KEY_BYTES} bytes of Ed25519, but {len(raw)} bytes arrived")
        return cls(_ed25519().Ed25519PrivateKey.from_private_bytes(bytes(raw)))

    def private_bytes(self) -> bytes:
        """Return the 32 secret bytes; whoever has them can contribute in this client's name."""
        return bytes(self._private.private_bytes_raw())

    def sign(self, data: bytes) -> bytes:
        """Return the signature of ``data``, 64 bytes, the same every time."""
        return bytes(self._private.sign(data))

    def derive(self, purpose: bytes) -> bytes:
        """Return 32 secret bytes for a purpose, the same every time, from which the key cannot be found (HMAC)."""
        return hmac.digest(self.private_bytes(), b"fedmoments derive 1\n" + purpose, "sha256")

    def __repr__(self) -> str:
        return f"IdentityKey(public={self.public.hex})"
