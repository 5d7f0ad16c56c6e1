"""How fedmoments stores arrays: safetensors with one checksummed, readable JSON header, never pickle.

=============  ===============================================================================================
tensors        named arrays, little-endian
metadata       ``fedmoments``: JSON object of ``kind``, ``format``, ``checksum`` and ``header``
``checksum``   SHA-256 of the header as compact, sorted JSON and, in order of name, each tensor's name, type,
               shape and bytes
=============  ===============================================================================================

A file appears whole or not at all: it is written beside its place and renamed.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.errors import FileFormatError, reading

__all__ = [
    "FORMAT",
    "Header",
    "pack_tensors",
    "read_tensors",
    "unpack_tensors",
    "write_tensors",
    "write_whole",
]

Header = dict[str, Any]
Tensors = dict[str, NDArray[Any]]

#: Version of the layout above; a release reads its own format.
FORMAT = 1
_KEY = "fedmoments"
_ADVICE = "write it again, or fetch a sound copy"


def write_whole(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file so that it appears whole or not at all.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_whole(Path(folder, "note"), b"all of it")
    ...     [entry.name for entry in Path(folder).iterdir()]
    ['note']
    """
    target = Path(path)
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        part.write_bytes(data)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def write_tensors(path: str | os.PathLike[str], kind: str, tensors: Mapping[str, NDArray[Any]], header: Header) -> None:
    """Write arrays and a JSON-able header as a file of a kind (``split``, ``statistics``, ``classifier``).

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_tensors(Path(folder, "file"), "split", {"clients": np.array([0, 1])}, {"n_clients": 2})
    ...     tensors, header = read_tensors(Path(folder, "file"), "split")
    >>> tensors["clients"].tolist(), header
    ([0, 1], {'n_clients': 2})
    """
    write_whole(path, pack_tensors(kind, tensors, header))


def pack_tensors(kind: str, tensors: Mapping[str, NDArray[Any]], header: Header) -> bytes:
    """Return the bytes of the file that :func:`write_tensors` writes.

    Examples
    --------
    >>> unpack_tensors(pack_tensors("split", {"clients": np.array([0, 1])}, {"n_clients": 2}), "split", "the message")
    ({'clients': array([0, 1])}, {'n_clients': 2})
    """
    from safetensors.numpy import save

    stored = {name: _little_endian(array) for name, array in tensors.items()}
    header = json.loads(json.dumps(header))  # as it will be read: numbers that are keys become text
    envelope = {"kind": kind, "format": FORMAT, "checksum": _checksum(stored, header), "header": header}
    return bytes(save(stored, metadata={_KEY: json.dumps(envelope, sort_keys=True, ensure_ascii=False)}))


def unpack_tensors(data: bytes, kind: str, whose: str) -> tuple[Tensors, Header]:
    """Read bytes that :func:`pack_tensors` made, checking them as :func:`read_tensors` does. Cap their size before.

    Parameters
    ----------
    data, kind
        The bytes, and what they must hold.
    whose
        Where they came from, for messages.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        tensors: Tensors = load(data)
    except (SafetensorError, KeyError) as error:
        raise FileFormatError(f"{whose} is not valid ({error}): {_ADVICE}") from error
    length = int.from_bytes(data[:8], "little")  # safetensors has checked it
    with reading(f"{whose} is not valid"):
        text = json.loads(data[8 : 8 + length]).get("__metadata__", {}).get(_KEY)
    if text is None:
        raise FileFormatError(f"{whose} holds tensors, but fedmoments did not write it")
    return tensors, _checked_header(whose, tensors, _envelope(whose, text, kind))


def read_tensors(path: str | os.PathLike[str], kind: str) -> tuple[Tensors, Header]:
    """Read what :func:`write_tensors` wrote: the arrays and the header.

    Raises
    ------
    FileFormatError
        When the file is damaged, is of another kind, or was written in another format.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            text = (file.metadata() or {}).get(_KEY)
            if text is None:
                raise FileFormatError(f"{path} is a safetensors file, but fedmoments did not write it")
            envelope = _envelope(path, text, kind)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    except SafetensorError as error:
        raise FileFormatError(f"{path} is not a valid fedmoments file ({error}): {_ADVICE}") from error
    return tensors, _checked_header(path, tensors, envelope)


def _checked_header(path: str | os.PathLike[str], tensors: Tensors, envelope: Header) -> Header:
    """Return the header, once the checksum matches."""
    header: Header = envelope["header"]
    with reading(f"{path} is not valid"):
        checksum = _checksum(tensors, header)
    if envelope.get("checksum") != checksum:
        raise FileFormatError(f"{path} is damaged: its checksum does not match what it holds: {_ADVICE}")
    return header


def _envelope(path: str | os.PathLike[str], text: str, kind: str) -> Header:
    """Return the envelope around the header, once its kind and format are right."""
    try:
        envelope = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"{path}: its header is not JSON ({error}): {_ADVICE}") from error
    if not isinstance(envelope, dict) or not isinstance(envelope.get("header"), dict):
        raise FileFormatError(f"{path}: its header lacks a description of what it holds: {_ADVICE}")
    if envelope.get("kind") != kind:
        raise FileFormatError(f"{path} holds {envelope.get('kind')!r}, but a file of {kind!r} was requested")
    if envelope.get("format") != FORMAT:
        raise FileFormatError(
            f"{path} is of format {envelope.get('format')!r}, but this release reads format {FORMAT}: {_ADVICE}"
        )
    return envelope


def _little_endian(array: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")


def _checksum(tensors: Mapping[str, NDArray[Any]], header: Header) -> str:
    sha = hashlib.sha256(json.dumps(header, sort_keys=True, separators=(",", ":")).encode())
    for name in sorted(tensors):
        array = _little_endian(tensors[name])
        sha.update(f"\n{name}{array.dtype.str}{array.shape}".encode())
        sha.update(array.data if array.size else b"")
    return sha.hexdigest()
