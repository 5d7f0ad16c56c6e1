"""What every party with a node has, client or helper: a transport key, a name, and a card for the others."""

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedmoments.errors import FileFormatError, InputError
from fedmoments.federation.keys.files import (
    crypto,
    refuse_existing,
    write_new,
)

__all__ = [
    "CARD",
    "NodeKeys",
    "card_content",
    "check_name",
    "check_node_key",
    "node_key_pair",
    "reading_card",
    "write_card",
]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


#: What a card says that it is.
CARD = "card"


#: A card is a few hundred bytes; a file that is larger than this is something else.
_MOST_CARD = 4096


@dataclass(frozen=True)
class NodeKeys:
    """Where the transport keys of whoever has a node are: of a client, or of a helper.

    Parameters
    ----------
    folder, name
        The folder of the keys, and whose they are.

    Examples
    --------
    >>> NodeKeys(Path("keys"), "clinic").node_public.as_posix()
    'keys/clinic.node.pub'
    """

    folder: Path
    name: str

    @property
    def node(self) -> Path:
        """The private key of the transport."""
        return self.folder / f"{self.name}.node"

    @property
    def node_public(self) -> Path:
        """Its public half."""
        return self.folder / f"{self.name}.node.pub"

    def write(self, own: Path, pem: bytes, card: Path, content: Mapping[str, str]) -> None:
        """Make a transport key, and write it, the party's own key and its card; no file may be there already."""
        refuse_existing([self.node, self.node_public, own, card])
        private, line = node_key_pair(self.name)
        write_new(self.node, private, 0o600)
        write_new(own, pem, 0o600)
        write_new(self.node_public, f"{line}\n".encode(), 0o644)
        write_card(card, {**content, "node": line})


def check_name(name: str, whose: str) -> None:
    """Refuse a name that cannot be that of files.

    Examples
    --------
    >>> check_name("../clinic", "client")
    Traceback (most recent call last):
    fedmoments.errors.InputError: a client's name must be 1 to 64 letters, digits, '.', '_' or '-' and begin with ...
    """
    if not _NAME.fullmatch(name):
        raise InputError(
            f"a {whose}'s name must be 1 to 64 letters, digits, '.', '_' or '-' and begin with a letter or digit, "
            f"not {name!r}: it names the {whose}'s files"
        )


def node_key_pair(name: str) -> tuple[bytes, str]:
    """Make a transport key; return its private half as a file's content, and its public half as one line.

    Examples
    --------
    >>> node_key_pair("clinic")[1].split()[0]
    'ecdsa-sha2-nistp384'
    """
    ec, coding = crypto("hazmat.primitives.asymmetric.ec"), crypto("hazmat.primitives.serialization")
    node = ec.generate_private_key(ec.SECP384R1())
    public = node.public_key().public_bytes(coding.Encoding.OpenSSH, coding.PublicFormat.OpenSSH).decode()
    private = node.private_bytes(coding.Encoding.PEM, coding.PrivateFormat.OpenSSH, coding.NoEncryption())
    return private, f"{public} {name}"


def card_content(data: bytes, whose: str) -> dict[str, Any]:
    """Return what the bytes of a card say, its name and node key checked."""
    if len(data) > _MOST_CARD:
        raise InputError(f"it has more than {_MOST_CARD} bytes")
    content = json.loads(data)
    mark = CARD if whose == "client" else f"{whose} {CARD}"
    if not isinstance(content, dict) or content.get("fedmoments") != mark:
        raise InputError(f"it lacks the mark of a {whose}'s card")
    if not all(isinstance(value, str) for value in content.values()):
        raise InputError("all that it says must be texts")
    check_name(content["name"], whose)
    check_node_key(content["node"])
    return content


def write_card(path: Path, content: Mapping[str, str]) -> None:
    """Write a card, which everybody may read."""
    write_new(path, f"{json.dumps(content, indent=2)}\n".encode(), 0o644)


@contextmanager
def reading_card(path: str | os.PathLike[str], whose: str, advice: str) -> Iterator[dict[str, Any]]:
    """Give the content of a card, its name and node key checked; whatever is wrong with it is said of the file.

    Parameters
    ----------
    whose
        The party: "client" or "helper".
    advice
        What to do about a file that is not a card.

    Raises
    ------
    FileFormatError
        When the file, or what the block reads of it, cannot be that of a card.
    """
    with Path(path).open("rb") as file:
        data = file.read(_MOST_CARD + 1)
    try:
        yield card_content(data, whose)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise FileFormatError(f"{path} is not a {whose}'s card ({error}): {advice}") from error


def check_node_key(line: Any) -> None:
    """Refuse what Flower would not register."""
    coding, ec = crypto("hazmat.primitives.serialization"), crypto("hazmat.primitives.asymmetric.ec")
    if not isinstance(line, str) or "\n" in line or "\r" in line:
        raise InputError("its node key is not one line of text")
    try:
        key = coding.load_ssh_public_key(line.encode())
    except (ValueError, crypto("exceptions").UnsupportedAlgorithm) as error:
        raise InputError(f"its node key is not in OpenSSH's format: {error}") from error
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise InputError("its node key is not an elliptic-curve key")
