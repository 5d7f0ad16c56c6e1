"""Heads of a log: how long it is, the root of the tree over it and the counter, signed by the server.

Whoever holds a head holds the server to it: a later log must begin with this one, which a consistency proof of some
kilobytes shows, and a receipt's entry must be in it, which an inclusion proof shows.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from fedmoments.core.maps.canonical import canonical_json
from fedmoments.errors import FileFormatError
from fedmoments.federation.transparency.merkle import is_consistent
from fedmoments.wire.keys import IdentityKey, PublicKey

__all__ = ["LogHead", "hashes_from", "is_signed_by", "signature_of"]

#: Stands in front of what is signed, so that no signature serves for anything else.
_MARKS = {"head": b"fedmoments log head 1\n", "receipt": b"fedmoments receipt 1\n"}
#: More hashes than a proof over 2**63 entries has.
MOST_HASHES = 128


def signature_of(key: IdentityKey, what: str, facts: Mapping[str, Any]) -> str:
    """Return a server's signature of a receipt or head, 128 hexadecimal digits.

    Examples
    --------
    >>> key = IdentityKey.generate()
    >>> signature = signature_of(key, "receipt", {"seq": 1})
    >>> [is_signed_by(key.public, signature, what, {"seq": 1}) for what in ("receipt", "head")]
    [True, False]
    """
    return key.sign(_MARKS[what] + canonical_json(dict(facts)).encode()).hex()


def is_signed_by(key: PublicKey, signature: str, what: str, facts: Mapping[str, Any]) -> bool:
    """Say whether a signature is that of a key, of a receipt or head."""
    if not re.fullmatch("[0-9a-f]{128}", signature):
        return False
    return key.verify(bytes.fromhex(signature), _MARKS[what] + canonical_json(dict(facts)).encode())


@dataclass(frozen=True)
class LogHead:
    """What a log was at one moment.

    Parameters
    ----------
    federation
        Its id, 64 hexadecimal digits.
    size, root
        Number of entries, and the root of the Merkle tree over them.
    counter
        Of the journal.
    time
        When it was signed: ISO 8601, UTC.
    key, signature
        The server's public key, and its signature of all the rest.

    Examples
    --------
    >>> key = IdentityKey.generate()
    >>> head = LogHead.signed(key, "ab" * 32, 1, bytes(32), counter=0, time="2030-01-01T00:00:00.000Z")
    >>> LogHead.from_json(head.to_json()) == head, head.is_signed
    (True, True)
    >>> replace(head, size=2).is_signed
    False
    """

    federation: str
    size: int
    root: str
    counter: int
    time: str
    key: str
    signature: str

    @classmethod
    def signed(cls, key: IdentityKey, federation: str, size: int, root: bytes, *, counter: int, time: str) -> "LogHead":
        """Return a head that is signed now."""
        head = cls(federation, size, root.hex(), counter, time, key.public.hex, "")
        return replace(head, signature=signature_of(key, "head", head._facts))

    @property
    def _facts(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name != "signature"}

    @property
    def is_signed(self) -> bool:
        """Whether the signature is that of the key that it names."""
        return is_signed_by(PublicKey.from_hex(self.key), self.signature, "head", self._facts)

    def begins(self, later: "LogHead", proof: Sequence[bytes]) -> bool:
        """Say whether a proof shows that the log of this head begins that of a later one."""
        roots = (bytes.fromhex(self.root), bytes.fromhex(later.root))
        return self.federation == later.federation and is_consistent(self.size, later.size, *roots, proof)

    def to_json(self) -> str:
        """Return canonical JSON."""
        return canonical_json(asdict(self))

    @classmethod
    def from_json(cls, text: str | bytes) -> "LogHead":
        """Read what :meth:`to_json` wrote.

        Raises
        ------
        FileFormatError
            When it is something else; the signature is not looked at.
        """
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise FileFormatError(f"this is not a head of a log, for it is not JSON: {type(error).__name__}") from error
        return cls.from_dict(value)

    @classmethod
    def from_dict(cls, value: Any) -> "LogHead":
        """Read the fields of a head; nothing in them is believed."""
        kinds = {field.name: field.type for field in fields(cls)}
        if not isinstance(value, dict) or set(value) != set(kinds):
            raise FileFormatError(f"a head of a log is a JSON object with the fields {', '.join(kinds)}")
        digits = all(re.fullmatch("[0-9a-f]{64}", str(value[name])) for name in ("federation", "root", "key"))
        typed = all(type(value[name]) is kind for name, kind in kinds.items())
        if not typed or not digits or not 0 <= value["counter"] < 2**63 or not 0 < value["size"] < 2**63:
            raise FileFormatError("a head of a log has numbers and hashes that cannot be")
        return cls(**value)


def hashes_from(value: Any) -> list[bytes]:
    """Read the hashes of a proof, 64 hexadecimal digits each.

    Raises
    ------
    FileFormatError
        When they are something else.
    """
    if not isinstance(value, list) or len(value) > MOST_HASHES:
        raise FileFormatError("a proof is a list of a few hashes")
    if not all(isinstance(text, str) and re.fullmatch("[0-9a-f]{64}", text) for text in value):
        raise FileFormatError("the hashes of a proof have 64 hexadecimal digits each")
    return [bytes.fromhex(text) for text in value]
