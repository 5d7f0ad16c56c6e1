"""Seeds sealed for the helper: HPKE (RFC 9180) in base mode with X25519, HKDF-SHA256 and ChaCha20-Poly1305.

What a seed was made for is HPKE's ``info``: not part of the ciphertext, and whoever states another one cannot open
it. Sealing 32 bytes gives 80: an X25519 point, the ciphertext and its tag.
"""

from functools import cache, lru_cache
from typing import Any

from fedmoments.errors import InputError, PrivacyError
from fedmoments.extras import require
from fedmoments.privacy.secure.stream import SEED_BYTES

__all__ = ["SEALED_BYTES", "HelperKey", "check_helper_key", "seal"]

#: An X25519 key, private or public, has this many bytes.
KEY_BYTES = 32
#: X25519 point, ciphertext, tag.
SEALED_BYTES = KEY_BYTES + SEED_BYTES + 16
_PRIME = 2**255 - 19


def _x25519() -> Any:
    return require("cryptography.hazmat.primitives.asymmetric.x25519", "Sealing seeds for the helper", "privacy")


@cache
def _suite() -> Any:
    hpke = require("cryptography.hazmat.primitives.hpke", "Sealing seeds for the helper", "privacy")
    return hpke.Suite(hpke.KEM.X25519, hpke.KDF.HKDF_SHA256, hpke.AEAD.CHACHA20_POLY1305)


class HelperKey:
    """The helper's private key. Its bytes are shown by :meth:`to_bytes` only, never by ``repr``.

    Whoever has both this key and the reports that the leader keeps can read every one of them.

    Examples
    --------
    >>> key = HelperKey.generate()
    >>> HelperKey.from_bytes(key.to_bytes()).public == key.public, len(key.public)
    (True, 64)
    >>> key.open(seal(bytes(32), key.public, b"round 1"), b"round 1") == bytes(32)
    True
    >>> key.open(seal(bytes(32), key.public, b"round 1"), b"round 2")
    Traceback (most recent call last):
    fedmoments.errors.PrivacyError: the sealed seed does not open: it was made for another helper, context or report...
    """

    def __init__(self, private: Any) -> None:
        self._private = private
        self._public: str = private.public_key().public_bytes_raw().hex()

    @classmethod
    def generate(cls) -> "HelperKey":
        """Make a new key from the operating system's randomness."""
        return cls(_x25519().X25519PrivateKey.generate())

    @classmethod
    def from_bytes(cls, raw: bytes) -> "HelperKey":
        """Read the 32 bytes that :meth:`to_bytes` returned."""
        if len(raw) != KEY_BYTES:
            raise InputError(f"a helper's private key is {KEY_BYTES} bytes of X25519, but {len(raw)} bytes arrived")
        return cls(_x25519().X25519PrivateKey.from_private_bytes(bytes(raw)))

    def to_bytes(self) -> bytes:
        """Return the 32 secret bytes."""
        return bytes(self._private.private_bytes_raw())

    @property
    def public(self) -> str:
        """What clients need in order to seal for this helper: 64 hexadecimal digits."""
        return self._public

    def open(self, sealed: bytes, info: bytes) -> bytes:
        """Return the seed that was sealed for exactly this ``info``.

        Raises
        ------
        PrivacyError
            When it was sealed for another key or another info, or was changed.
        """
        from cryptography.exceptions import InvalidTag

        try:
            seed = bytes(_suite().decrypt(sealed, self._private, info=info))
        except (InvalidTag, ValueError) as error:
            raise PrivacyError(
                "the sealed seed does not open: it was made for another helper, context or report, or was changed on "
                "the way; leave this report out of the batch, and let its client report again"
            ) from error
        if len(seed) != SEED_BYTES:
            raise PrivacyError(f"a seed of {SEED_BYTES} bytes was to be sealed, but {len(seed)} were: report again")
        return seed

    def __repr__(self) -> str:
        return f"HelperKey(public={self.public})"


@lru_cache(16)
def check_helper_key(public: str) -> bytes:
    """Return the bytes of a helper's public key; refuse what is not a key, or one whose secrets anybody can compute.

    Points of small order and numbers that are not reduced are refused: sealed for them, a seed would be open to all.

    Examples
    --------
    >>> check_helper_key("01" + "00" * 31)
    Traceback (most recent call last):
    fedmoments.errors.InputError: the helper's public key 0100000000... is a point of small order: ...
    """
    if len(public) != 2 * KEY_BYTES or not set(public) <= set("0123456789abcdef"):
        raise InputError(
            f"a helper's public key is {2 * KEY_BYTES} lower-case hexadecimal digits, but {public[:80]!r} arrived: "
            "copy it again from where the key was made"
        )
    raw = bytes.fromhex(public)
    if int.from_bytes(raw, "little") >= _PRIME:
        raise InputError(
            f"the helper's public key {public[:10]}... is not below 2^255 - 19, as every X25519 key that was made "
            "honestly is: ask the helper for its key again"
        )
    x25519 = _x25519()
    try:
        x25519.X25519PrivateKey.generate().exchange(x25519.X25519PublicKey.from_public_bytes(raw))
    except ValueError as error:
        raise InputError(
            f"the helper's public key {public[:10]}... is a point of small order: everybody could open what is sealed "
            "for it. Ask the helper for its key again, and find out who sent this one"
        ) from error
    return raw


def seal(seed: bytes, public: str, info: bytes) -> bytes:
    """Seal a seed for the helper, (80,) bytes; another time, other bytes.

    Parameters
    ----------
    seed
        32 bytes.
    public
        The helper's public key, 64 hexadecimal digits.
    info
        What it is for; opening needs the same.

    Examples
    --------
    >>> len(seal(bytes(32), HelperKey.generate().public, b"round 1"))
    80
    """
    if len(seed) != SEED_BYTES:
        raise InputError(f"a seed has {SEED_BYTES} bytes, but {len(seed)} arrived")
    key = _x25519().X25519PublicKey.from_public_bytes(check_helper_key(public))
    return bytes(_suite().encrypt(seed, key, info=info))
