"""One amendment of terms: what stood before classes were added, and the server's signature of what stands since.

Amended terms are the former ones with further names at the end of the class list. All former terms follow from them:
the class list is cut where an amendment says that it ended, and the other fields are those of now.
"""

from dataclasses import dataclass, replace
from typing import Any

from fedmoments.core.maps.canonical import canonical_json
from fedmoments.errors import InputError
from fedmoments.wire.keys import SIGNATURE_BYTES, IdentityKey, PublicKey

__all__ = ["Amendment", "read_amendments"]

#: Signed with the terms, so that a signature can never be taken for one of something else.
DOMAIN = b"fedmoments amended terms 1\n"
#: Every stage is built from the one after it, so there is an end; many classes can be added at once.
MOST_AMENDMENTS = 50


@dataclass(frozen=True)
class Amendment:
    """What terms said before classes were added.

    Parameters
    ----------
    classes
        How many there were.
    max_bytes
        The cap on one contribution then.
    signature
        The server's, of the terms that followed, 128 hexadecimal digits.

    Examples
    --------
    >>> key = IdentityKey.generate()
    >>> signed = Amendment(3, 2048, "").signed(key, "ab" * 32, "cd" * 32)
    >>> signed.is_signed_by(key.public.hex, "ab" * 32, "cd" * 32), signed.is_signed_by(key.public.hex, "", "")
    (True, False)
    """

    classes: int
    max_bytes: int
    signature: str

    def signed(self, key: IdentityKey, federation: str, digest: str) -> "Amendment":
        """Return the same with a signature of the terms of this digest, which is made without one."""
        return replace(self, signature=key.sign(_signed_text(federation, digest)).hex())

    def is_signed_by(self, server: str, federation: str, digest: str) -> bool:
        """Say whether the server with this key signed terms of this digest."""
        text = _signed_text(federation, digest)
        return PublicKey.from_hex(server).verify(bytes.fromhex(self.signature), text)


def _signed_text(federation: str, digest: str) -> bytes:
    return DOMAIN + canonical_json({"federation": federation, "terms": digest}).encode()


def read_amendments(value: Any) -> tuple[Amendment, ...]:
    """Return what ``asdict`` wrote of amendments; nothing in it is believed.

    Examples
    --------
    >>> read_amendments([{"classes": 3, "max_bytes": 2048, "signature": "00" * 64}])[0].classes
    3
    """
    if not isinstance(value, list) or not 0 < len(value) <= MOST_AMENDMENTS:
        raise InputError(f"amended terms list their amendments, at most {MOST_AMENDMENTS}")
    return tuple(map(_read_amendment, value))


def _read_amendment(entry: Any) -> Amendment:
    if not isinstance(entry, dict) or set(entry) != {"classes", "max_bytes", "signature"}:
        raise InputError("an amendment of terms has the fields classes, max_bytes and signature")
    classes, most, text = entry["classes"], entry["max_bytes"], entry["signature"]
    is_signature = isinstance(text, str) and len(text) == 2 * SIGNATURE_BYTES and set(text) <= set("0123456789abcdef")
    if not is_signature or any(type(number) is not int or not 0 < number < 2**31 for number in (classes, most)):
        raise InputError("an amendment of terms has numbers of classes and bytes, and a signature in hexadecimal")
    return Amendment(classes, most, text)
