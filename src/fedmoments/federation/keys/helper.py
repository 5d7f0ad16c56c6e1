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

import os
from dataclasses import dataclass
from pathlib import Path

from fedmoments.federation.keys.cards import CARD, NodeKeys, check_name, reading_card
from fedmoments.federation.keys.files import load_raw, make_folder, raw_pem
from fedmoments.privacy.secure.seal import HelperKey, check_helper_key

__all__ = ["HelperCard", "HelperKeys", "load_helper_key", "make_helper", "read_helper_card"]


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
    key = HelperKey.generate()
    content = {"fedmoments": f"helper {CARD}", "name": name, "helper": key.public}
    keys.write(keys.key, raw_pem(key.to_bytes(), "X25519", passphrase), keys.card, content)
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
    with reading_card(path, "helper", "ask the helper for the .helper.card file made with its keys") as content:
        check_helper_key(content["helper"])
        return HelperCard(content["name"], content["helper"], content["node"])


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
    return HelperKey.from_bytes(load_raw(path, "X25519", "helper's .helper"))
