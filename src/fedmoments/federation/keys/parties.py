"""Certificates of a federation's server and keys of its clients: made once, never overwritten, private to owners.

======================  ==================  =======================================================================
file                    who keeps it        what it is
======================  ==================  =======================================================================
``ca.crt``              everybody           root certificate: the server's is checked against it
``ca.key``              the operator        signs certificates; the running server does not need it
``server.pem``          the server          certificate for its names and addresses
``server.key``          the server          its private key
``NAME.node``           the client          transport key (ECDSA P-384, OpenSSH): which machine is speaking
``NAME.node.pub``       the server          its public half, which the SuperLink registers
``NAME.identity``       the client          identity key (Ed25519, PKCS #8): whose numbers they are
``NAME.card``           the server          both public halves as JSON: what a client hands in to be enrolled
``NAME.helper``         the helper          opens masks; see :mod:`fedmoments.federation.keys.helper`
======================  ==================  =======================================================================
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedmoments.errors import InputError
from fedmoments.federation.keys.cards import CARD, NodeKeys, card_content, check_name, reading_card
from fedmoments.federation.keys.certificates import certificate, general_name, named, sign_server, usage
from fedmoments.federation.keys.files import (
    crypto,
    identity_pem,
    load_raw,
    make_folder,
    private_pem,
    refuse_existing,
    write_new,
)
from fedmoments.wire.keys import IdentityKey, PublicKey

__all__ = [
    "Authority",
    "Card",
    "ClientKeys",
    "card_of",
    "load_identity",
    "make_authority",
    "make_client",
    "read_card",
]

_ALWAYS = ("localhost", "127.0.0.1")


@dataclass(frozen=True)
class Authority:
    """Where a server's certificates are.

    Parameters
    ----------
    folder
        The folder that :func:`make_authority` filled.

    Examples
    --------
    >>> Authority(Path("keys")).root.as_posix()
    'keys/ca.crt'
    """

    folder: Path

    @property
    def root(self) -> Path:
        """The root certificate, which everybody may have."""
        return self.folder / "ca.crt"

    @property
    def root_key(self) -> Path:
        """The private key of the root."""
        return self.folder / "ca.key"

    @property
    def certificate(self) -> Path:
        """The server's certificate."""
        return self.folder / "server.pem"

    @property
    def key(self) -> Path:
        """The server's private key."""
        return self.folder / "server.key"


@dataclass(frozen=True)
class ClientKeys(NodeKeys):
    """Where a client's keys are.

    Parameters
    ----------
    folder
        The folder that :func:`make_client` wrote to.
    name
        The client.

    Examples
    --------
    >>> ClientKeys(Path("keys"), "clinic").card.as_posix()
    'keys/clinic.card'
    """

    @property
    def identity(self) -> Path:
        """The private identity key."""
        return self.folder / f"{self.name}.identity"

    @property
    def card(self) -> Path:
        """What the server gets."""
        return self.folder / f"{self.name}.card"


@dataclass(frozen=True)
class Card:
    """What a client hands in to be enrolled; nothing in it is secret.

    Parameters
    ----------
    name
        The client.
    identity
        Its public identity key.
    node_key
        The public key of its transport, one line in OpenSSH's format.
    former, signature
        Of a new key: the one before, and its signature; see :mod:`fedmoments.federation.keys.rotation`.

    Examples
    --------
    >>> Card("clinic", IdentityKey.generate().public, "ecdsa-sha2-nistp384 AAAA").name
    'clinic'
    """

    name: str
    identity: PublicKey
    node_key: str
    former: PublicKey | None = None
    signature: bytes = b""


def make_authority(folder: str | os.PathLike[str], hosts: Sequence[str], days: int = 825) -> Authority:
    """Make a root certificate, and with it a certificate for a server.

    Parameters
    ----------
    hosts
        DNS names and IP addresses under which clients reach the server; localhost and 127.0.0.1 are always added.
    days
        How long both certificates are valid.

    Raises
    ------
    InputError
        When a host is neither a DNS name nor an address, or one of the files is there already.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     authority = make_authority(folder, ["fed.example.org", "10.0.0.7"])
    ...     oct(authority.key.stat().st_mode & 0o777)
    '0o600'
    """
    x509, ec = crypto("x509"), crypto("hazmat.primitives.asymmetric.ec")
    if not 1 <= days <= 3650:
        raise InputError(f"certificates must be valid for 1 to 3650 days, not {days}")
    names = [general_name(host) for host in dict.fromkeys([*hosts, *_ALWAYS])]
    authority = Authority(make_folder(folder))
    refuse_existing([authority.root, authority.root_key, authority.certificate, authority.key])
    root_key, server_key = ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP384R1())
    issuer = named("fedmoments federation")

    root = certificate(issuer, root_key, issuer, root_key, days)
    root = root.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    root = root.add_extension(usage(signs_certificates=True), critical=True)
    server = sign_server(server_key, root_key, names, days)

    sha, coding = crypto("hazmat.primitives.hashes").SHA384(), crypto("hazmat.primitives.serialization")
    write_new(authority.root_key, private_pem(root_key), 0o600)
    write_new(authority.key, private_pem(server_key), 0o600)
    write_new(authority.root, root.sign(root_key, sha).public_bytes(coding.Encoding.PEM), 0o644)
    write_new(authority.certificate, server.public_bytes(coding.Encoding.PEM), 0o644)
    return authority


def make_client(folder: str | os.PathLike[str], name: str, passphrase: bytes | None = None) -> ClientKeys:
    """Make a client's two keys, and the card with which it asks to be enrolled.

    Parameters
    ----------
    name
        The client: letters, digits, ``.``, ``_`` and ``-``, at most 64, for it names files.
    passphrase
        Protects the identity key. The transport key has none, for Flower reads it.

    Raises
    ------
    InputError
        When the name cannot be one, or one of the files is there already.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     keys = make_client(folder, "clinic")
    ...     read_card(keys.card).identity == load_identity(keys.identity).public
    True
    """
    check_name(name, "client")
    keys = ClientKeys(make_folder(folder), name)
    identity = IdentityKey.generate()
    content = {"fedmoments": CARD, "name": name, "identity": identity.public.hex}
    keys.write(keys.identity, identity_pem(identity, passphrase), keys.card, content)
    return keys


def card_of(data: bytes) -> Card:
    """Read the bytes of a client's card, whoever sent them.

    Raises
    ------
    InputError, KeyError, TypeError, ValueError, RecursionError
        When they are none.
    """
    return _client_card(card_content(data, "client"))


def _client_card(content: Mapping[str, str]) -> Card:
    former = PublicKey.from_hex(content["former"]) if "former" in content else None
    signature = bytes.fromhex(content.get("signature", ""))
    return Card(content["name"], PublicKey.from_hex(content["identity"]), content["node"], former, signature)


def read_card(path: str | os.PathLike[str]) -> Card:
    """Read a client's card.

    Raises
    ------
    FileFormatError
        When it is none, or names no client or keys that could be.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     card = read_card(make_client(folder, "clinic").card)
    >>> card.name, card.node_key.split()[0]
    ('clinic', 'ecdsa-sha2-nistp384')
    """
    advice = "ask the client for the .card file that was made with its keys"
    with reading_card(path, "client", advice) as content:
        return _client_card(content)


def load_identity(path: str | os.PathLike[str]) -> IdentityKey:
    """Read a client's private identity key.

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
    ...     key = load_identity(make_client(folder, "clinic").identity)
    >>> len(key.sign(b"numbers"))
    64
    """
    return IdentityKey.from_bytes(load_raw(path, "Ed25519", "client's .identity"))
