"""How a split is stored: a safetensors file with one tensor and one checksummed header, never pickle.

=============  ============================================================================
tensor         ``clients``, int64, (n,)
metadata       ``fedmoments.split``: JSON object of ``format``, ``checksum`` and the header
``checksum``   sha256 of the header as compact, sorted JSON, a newline, and the tensor's bytes
=============  ============================================================================
"""

import hashlib
import json
import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from fedmoments.errors import FileFormatError

__all__ = ["Header", "read_split", "write_split"]

Header = dict[str, object]

_KEY = "fedmoments.split"
_FORMAT = 1
_ADVICE = "write it again with Split.save, or fetch a sound copy"


def write_split(path: Path, clients: NDArray[np.int64], header: Header) -> None:
    """Write an assignment, (n,), and its header; the file appears whole or not at all.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_split(Path(folder, "split"), np.array([0, 1, 1]), {"n_clients": 2})
    ...     clients, header = read_split(Path(folder, "split"))
    >>> clients.tolist(), header
    ([0, 1, 1], {'n_clients': 2})
    """
    stored = np.ascontiguousarray(clients, dtype="<i8")
    envelope = {"format": _FORMAT, "checksum": _checksum(stored, header), "header": header}
    data = save({"clients": stored}, metadata={_KEY: json.dumps(envelope, sort_keys=True)})
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_bytes(data)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def read_split(path: Path) -> tuple[NDArray[np.int64], Header]:
    """Read what `write_split` wrote: the assignment, (n,), and the header.

    Raises
    ------
    FileFormatError
        When the file is damaged, or is something else.
    """
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            if _KEY not in metadata or list(file.keys()) != ["clients"]:
                raise FileFormatError(f"{path} is a safetensors file, but not a split: it holds {sorted(file.keys())}")
            found = file.get_slice("clients")
            if found.get_dtype() != "I64" or len(found.get_shape()) != 1:
                raise FileFormatError(
                    f"{path}: the tensor 'clients' must be I64 of the shape (n,), but is {found.get_dtype()} of "
                    f"the shape {tuple(found.get_shape())}: {_ADVICE}"
                )
            clients = np.asarray(file.get_tensor("clients"), dtype=np.int64)
    except SafetensorError as error:
        raise FileFormatError(f"{path} is not a sound safetensors file ({error}): {_ADVICE}") from error
    return clients, _open_envelope(path, metadata[_KEY], clients)


def _open_envelope(path: Path, text: str, clients: NDArray[np.int64]) -> Header:
    """Check format and checksum; return the header."""
    try:
        envelope = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"{path}: its header is not JSON ({error}): {_ADVICE}") from error
    if not isinstance(envelope, dict) or not isinstance(envelope.get("header"), dict):
        raise FileFormatError(f"{path}: its header lacks the description of the split: {_ADVICE}")
    if envelope.get("format") != _FORMAT:
        raise FileFormatError(
            f"{path} has the split format {envelope.get('format')!r}, but this release reads format {_FORMAT}: "
            f"{_ADVICE}"
        )
    header: Header = envelope["header"]
    if envelope.get("checksum") != _checksum(clients, header):
        raise FileFormatError(f"{path} is damaged: its checksum does not match what it holds: {_ADVICE}")
    return header


def _checksum(clients: NDArray[np.int64], header: Header) -> str:
    text = json.dumps(header, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode() + b"\n" + clients.astype("<i8").tobytes()).hexdigest()
