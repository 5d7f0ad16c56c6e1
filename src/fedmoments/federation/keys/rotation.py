"""A new identity key for a client: the old one signs it, so that nobody has to trust the messenger.

``NAME.identity`` and ``NAME.card`` are replaced; the old key stays as ``NAME.identity.former-…`` until the server has
taken the new card, and is deleted by its owner then. A key that was stolen is not rotated but revoked: the thief could
sign a new one as well.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from fedmoments.core.maps.canonical import canonical_json
from fedmoments.errors import InputError
from fedmoments.federation.keys.cards import write_card
from fedmoments.federation.keys.files import identity_pem, write_new
from fedmoments.federation.keys.parties import ClientKeys, load_identity, read_card
from fedmoments.wire.keys import IdentityKey, PublicKey

__all__ = ["Rotation", "rotate_client", "rotation_of"]

_MARK = b"fedmoments key rotation 1\n"


@dataclass(frozen=True)
class Rotation:
    """What a client's card says when its key is a new one.

    Parameters
    ----------
    client
        Whose.
    former, key
        The key that is enrolled, and the one that takes its place.
    signature
        The former key's, of all the rest.

    Examples
    --------
    >>> old, new = IdentityKey.generate(), IdentityKey.generate()
    >>> rotation = Rotation.signed("clinic", old, new.public)
    >>> rotation.is_signed_by(old.public), rotation.is_signed_by(new.public)
    (True, False)
    """

    client: str
    former: PublicKey
    key: PublicKey
    signature: bytes

    @classmethod
    def signed(cls, client: str, former: IdentityKey, key: PublicKey) -> "Rotation":
        """Return a rotation that the former key signs."""
        return cls(client, former.public, key, former.sign(_statement(client, former.public, key)))

    def is_signed_by(self, enrolled: PublicKey) -> bool:
        """Say whether the key that is enrolled signed it."""
        return self.former == enrolled and enrolled.verify(
            self.signature, _statement(self.client, self.former, self.key)
        )


def _statement(client: str, former: PublicKey, key: PublicKey) -> bytes:
    facts = {"client": client, "former": former.hex, "key": key.hex}
    return _MARK + canonical_json(facts).encode()


def rotate_client(folder: str | os.PathLike[str], name: str, passphrase: bytes | None = None) -> Path:
    """Make a new identity key for a client, and a card that its old key signed; return where the old key is now.

    Parameters
    ----------
    folder, name
        Where the client's keys are.
    passphrase
        Protects the new key; None leaves it readable to whoever reads the file.

    Raises
    ------
    InputError
        When a former key is still there: the server may not have taken the card that followed it.

    Examples
    --------
    >>> import tempfile
    >>> from fedmoments.federation.keys.parties import make_client
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     keys = make_client(folder, "clinic")
    ...     former = rotate_client(folder, "clinic")
    ...     rotation_of(keys.card).is_signed_by(load_identity(former).public)
    True
    """
    keys = ClientKeys(Path(folder), name)
    waiting = sorted(keys.folder.glob(f"{name}.identity.former-*"))
    if waiting:
        raise InputError(
            f"{waiting[0]} is still there: hand {keys.card} to the operator, delete the old key once that was "
            "enrolled, and then make the next one"
        )
    old, card, new = load_identity(keys.identity), read_card(keys.card), IdentityKey.generate()
    rotation = Rotation.signed(name, old, new.public)
    document = {"fedmoments": "card", "name": name, "identity": new.public.hex, "node": card.node_key}
    document |= {"former": old.public.hex, "signature": rotation.signature.hex()}
    next_key, next_card = keys.folder / f"{name}.identity.next", keys.folder / f"{name}.card.next"
    for path in (next_key, next_card):
        path.unlink(missing_ok=True)
    write_new(next_key, identity_pem(new, passphrase), 0o600)
    write_card(next_card, document)
    former = keys.folder / f"{name}.identity.former-{old.public.hex[:8]}"
    os.link(keys.identity, former)
    next_card.replace(keys.card)
    next_key.replace(keys.identity)
    return former


def rotation_of(path: str | os.PathLike[str]) -> Rotation | None:
    """Return what a card says of a former key; None if the key on it is a first one.

    Raises
    ------
    FileFormatError
        When it is not a card.
    """
    card = read_card(path)
    if card.former is None:
        return None
    return Rotation(card.name, card.former, card.identity, card.signature)
