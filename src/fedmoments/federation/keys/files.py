"""Writing private files: never over another, never in part, readable by their owner alone from the first byte."""

import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedmoments.errors import FileFormatError, InputError
from fedmoments.extras import require
from fedmoments.wire.keys import IdentityKey

__all__ = [
    "PASSPHRASE_FILE",
    "check_private",
    "crypto",
    "identity_pem",
    "load_private",
    "load_raw",
    "make_folder",
    "private_pem",
    "raw_pem",
    "read_passphrase",
    "refuse_existing",
    "write_new",
]

#: Names, in the environment, the file that holds the passphrase of private keys.
PASSPHRASE_FILE = "FEDMOMENTS_PASSPHRASE_FILE"  # noqa: S105 - the name of a file
LEAST_PASSPHRASE = 12


def check_private(path: str | os.PathLike[str]) -> None:
    """Refuse a private key that others than its owner can read or change, as ssh does.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     key = Path(folder, "clinic.node")
    ...     key.touch(mode=0o644)
    ...     check_private(key)
    Traceback (most recent call last):
    fedmoments.errors.InputError: ...clinic.node is a private key, but ... (mode 0644): chmod 600 ...
    """
    try:
        mode = stat.S_IMODE(Path(path).stat().st_mode)
    except FileNotFoundError as error:
        raise InputError(f"there is no private key {path}: make it with fedmoments keys, or pass its path") from error
    if os.name == "posix" and mode & 0o077:
        raise InputError(
            f"{path} is a private key, but others than its owner can use it (mode {mode:04o}): "
            f"chmod 600 {path}, and make a new key if somebody may have read it"
        )


def crypto(module: str) -> Any:
    """Import a module of `cryptography`.

    Examples
    --------
    >>> crypto("hazmat.primitives.hashes").SHA384().digest_size
    48
    """
    return require(f"cryptography.{module}", "Making and reading keys", "flower")


def make_folder(folder: str | os.PathLike[str]) -> Path:
    """Make a folder for keys, if it is missing, that only its owner can enter.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     oct(make_folder(Path(folder, "keys")).stat().st_mode & 0o777)
    '0o700'
    """
    path = Path(folder)
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


def refuse_existing(paths: Sequence[Path]) -> None:
    """Refuse to go on if any of the files that would be made is there already.

    Examples
    --------
    >>> refuse_existing([Path("no such file")])
    >>> refuse_existing([Path("no such file"), Path("/")])
    Traceback (most recent call last):
    fedmoments.errors.InputError: / exists already, and keys are never overwritten: ...
    """
    there = [str(path) for path in paths if path.exists() or path.is_symlink()]
    if there:
        raise InputError(
            f"{', '.join(there)} exists already, and keys are never overwritten: "
            "choose another folder or name, or move the old files away if nobody uses them any more"
        )


def write_new(path: Path, data: bytes, mode: int) -> None:
    """Write a new file that has its mode from the start.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_new(Path(folder, "key"), b"secret", 0o600)
    ...     write_new(Path(folder, "key"), b"another", 0o600)
    Traceback (most recent call last):
    FileExistsError: ...
    """
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(data)


def private_pem(key: Any, passphrase: bytes | None = None) -> bytes:
    """Write a private key as PKCS #8, encrypted if there is a passphrase.

    Examples
    --------
    >>> key = crypto("hazmat.primitives.asymmetric.ed25519").Ed25519PrivateKey.generate()
    >>> private_pem(key).decode().splitlines()[0]
    '-----BEGIN PRIVATE KEY-----'
    """
    coding = crypto("hazmat.primitives.serialization")
    sealing = coding.BestAvailableEncryption(passphrase) if passphrase else coding.NoEncryption()
    pem: bytes = key.private_bytes(coding.Encoding.PEM, coding.PrivateFormat.PKCS8, sealing)
    return pem


def raw_pem(raw: bytes, kind: str, passphrase: bytes | None = None) -> bytes:
    """Write the 32 bytes of an Ed25519 or X25519 key as PKCS #8, encrypted if there is a passphrase."""
    return private_pem(_kind(kind).from_private_bytes(raw), passphrase)


def identity_pem(key: IdentityKey, passphrase: bytes | None = None) -> bytes:
    """Write an identity key as PKCS #8, encrypted if there is a passphrase."""
    return raw_pem(key.private_bytes(), "Ed25519", passphrase)


def load_raw(path: str | os.PathLike[str], kind: str, whose: str) -> bytes:
    """Read a private Ed25519 or X25519 key, as :func:`load_private` does, and return its 32 bytes."""
    key = load_private(path, whose)
    if not isinstance(key, _kind(kind)):
        raise FileFormatError(f"{path} holds a key of another kind than {kind}: pass the {whose} file")
    return bytes(key.private_bytes_raw())


def _kind(kind: str) -> Any:
    return getattr(crypto(f"hazmat.primitives.asymmetric.{kind.lower()}"), f"{kind}PrivateKey")


def read_passphrase(path: str | os.PathLike[str]) -> bytes:
    """Read a passphrase from a file that only its owner can read: its first line.

    Raises
    ------
    InputError
        When others can read it, or it holds fewer than 12 bytes.
    """
    check_private(path)
    line = Path(path).read_bytes().split(b"\n")[0].rstrip(b"\r")
    if len(line) < LEAST_PASSPHRASE:
        raise InputError(f"the passphrase in {path} has fewer than {LEAST_PASSPHRASE} bytes: choose a longer one")
    return line


def load_private(path: str | os.PathLike[str], whose: str) -> Any:
    """Read a private key, with the passphrase in the file that ``FEDMOMENTS_PASSPHRASE_FILE`` names if it has one.

    Raises
    ------
    InputError
        When others can read the file, or its passphrase is missing or wrong.
    FileFormatError
        When it holds something else.
    """
    check_private(path)
    coding = crypto("hazmat.primitives.serialization")
    data = Path(path).read_bytes()
    passphrase = None
    if b"BEGIN ENCRYPTED PRIVATE KEY" in data:
        named = os.environ.get(PASSPHRASE_FILE, "")
        if not named:
            raise InputError(
                f"{path} is protected by a passphrase: write it into a file that only you can read, and name that in "
                f"the environment: {PASSPHRASE_FILE}=FILE"
            )
        passphrase = read_passphrase(named)
    try:
        return coding.load_pem_private_key(data, password=passphrase)
    except (ValueError, TypeError, crypto("exceptions").UnsupportedAlgorithm) as error:
        if passphrase is not None:
            raise InputError(f"the passphrase in {os.environ[PASSPHRASE_FILE]} does not open {path}") from error
        raise FileFormatError(f"{path} holds no private key ({error}): pass the {whose} file") from error
