"""Writing private files: never over another, never in part, readable by their owner alone from the first byte."""

import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedmoments.errors import InputError
from fedmoments.extras import require

__all__ = ["check_private", "crypto", "make_folder", "private_pem", "refuse_existing", "write_new"]


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


def private_pem(key: Any) -> bytes:
    """Write a private key as PKCS #8, without a password.

    Examples
    --------
    >>> key = crypto("hazmat.primitives.asymmetric.ed25519").Ed25519PrivateKey.generate()
    >>> private_pem(key).decode().splitlines()[0]
    '-----BEGIN PRIVATE KEY-----'
    """
    coding = crypto("hazmat.primitives.serialization")
    pem: bytes = key.private_bytes(coding.Encoding.PEM, coding.PrivateFormat.PKCS8, coding.NoEncryption())
    return pem
