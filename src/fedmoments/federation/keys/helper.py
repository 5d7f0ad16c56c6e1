"""Keys of the helper, the second server of secure sums: made once, never overwritten, readable by its operator alone.

======================  ==================  =======================================================================
file                    who keeps it        what it is
======================  ==================  =======================================================================
``NAME.helper``         the helper          private key (X25519, PKCS #8) that opens the seeds of masked reports
``NAME.node``           the helper          transport key, as that of a client
``NAME.node.pub``       the server          its public half
``NAME.helper.card``    everybody           both public halves as JSON: the key goes into the terms
======================  ==================  =======================================================================
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path

from fedmoments.errors import FileFormatError, InputError
from fedmoments.federation.keys.files import (
    crypto,
    load_private,
    make_folder,
    private_pem,
    refuse_existing,
    write_new,
)
from fedmoments.federation.keys.parties import NodeKeys, check_name, check_node_key, node_key_pair
from fedmoments.privacy.secure.seal import HelperKey, check_helper_key

__all__ = ["HelperCard", "HelperKeys", "load_helper_key", "make_helper", "read_helper_card"]

#: A card is a few hundred bytes; a file that is larger than this is something else.
_MOST_CARD = 4096


@dataclass(frozen=True)
class HelperKeys(NodeKeys):
    """Where a helper's keys are.

    Parameters
    ----------
    folder, name
        The folder that :func:`make_helper` wrote to, and the helper.

    Examples
    --------
    >>> HelperKeys(Path("keys"), "notary").card.as_posix()
    'keys/notary.helper.card'
    """

    @property
    def key(self) -> Path:
        """The private key that opens seeds."""
        return self.folder / f"{self.name}.helper"

    @property
    def card(self) -> Path:
        """What server and clients get."""
        return self.folder / f"{self.name}.helper.card"


@dataclass(frozen=True)
class HelperCard:
    """What a helper hands to everybody; nothing in it is secret.

    Parameters
    ----------
    name
        The helper.
    key
        Its public key, 64 hexadecimal digits: clients seal for it.
    node_key
        The public key of its transport, one line in OpenSSH's format.

    Examples
    --------
    >>> HelperCard("notary", "ab" * 32, "ecdsa-sha2-nistp384 AAAA").name
    'notary'
    """

    name: str
    key: str
    node_key: str


def make_helper(folder: str | os.PathLike[str], name: str, passphrase: bytes | None = None) -> HelperKeys:
    """Make a helper's two keys, and its card.

    Parameters
    ----------
    name
        The helper: letters, digits, ``.``, ``_`` and ``-``, at most 64, for it names files.
    passphrase
        Protects the key that opens masks. The transport key has none, for Flower reads it.

    Raises
    ------
    InputError
        When the name cannot be one, or one of the files is there already.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     keys = make_helper(folder, "notary")
    ...     read_helper_card(keys.card).key == load_helper_key(keys.key).public
    True
    """
    check_name(name, "helper")
    keys = HelperKeys(make_folder(folder), name)
    refuse_existing([keys.key, keys.node, keys.node_public, keys.card])
    private, line = node_key_pair(name)
    key = HelperKey.generate()
    x25519 = crypto("hazmat.primitives.asymmetric.x25519")
    card = {"fedmoments": "helper card", "name": name, "helper": key.public, "node": line}
    write_new(keys.node, private, 0o600)
    write_new(keys.key, private_pem(x25519.X25519PrivateKey.from_private_bytes(key.to_bytes()), passphrase), 0o600)
    write_new(keys.node_public, f"{line}\n".encode(), 0o644)
    write_new(keys.card, f"{json.dumps(card, indent=2)}\n".encode(), 0o644)
    return keys


def read_helper_card(path: str | os.PathLike[str]) -> HelperCard:
    """Read a helper's card.

    Raises
    ------
    FileFormatError
        When it is none, or names keys that cannot be.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     read_helper_card(make_helper(folder, "notary").card).name
    'notary'
    """
    with Path(path).open("rb") as file:
        data = file.read(_MOST_CARD + 1)
    try:
        if len(data) > _MOST_CARD:
            raise InputError(f"it has more than {_MOST_CARD} bytes")
        content = json.loads(data)
        if not isinstance(content, dict) or content.get("fedmoments") != "helper card":
            raise InputError("it lacks the mark of a helper's card")
        name, key, node_key = content["name"], content["helper"], content["node"]
        if not isinstance(name, str) or not isinstance(key, str):
            raise InputError("its name and key must be texts")
        check_name(name, "helper")
        check_helper_key(key)
        check_node_key(node_key)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise FileFormatError(
            f"{path} is not a helper's card ({error}): ask the helper for the .helper.card file made with its keys"
        ) from error
    return HelperCard(name, key, node_key)


def load_helper_key(path: str | os.PathLike[str]) -> HelperKey:
    """Read a helper's private key.

    Raises
    ------
    InputError
        When others can read the file.
    FileFormatError
        When it holds something else.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     len(load_helper_key(make_helper(folder, "notary").key).public)
    64
    """
    x25519 = crypto("hazmat.primitives.asymmetric.x25519")
    key = load_private(path, "helper's .helper")
    if not isinstance(key, x25519.X25519PrivateKey):
        raise FileFormatError(f"{path} holds a key of another kind than X25519: pass the helper's .helper file")
    return HelperKey.from_bytes(key.private_bytes_raw())
