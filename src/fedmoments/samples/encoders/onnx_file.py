"""An ONNX file that says what it is: the exported model followed by a sealed description.

ONNX is protobuf, and protobuf messages are joined by joining their bytes. So a description is appended as one more
message with one ``metadata_props`` entry, ``fedmoments``: JSON with the encoder's name, dimension, preprocessing and
weights, and a checksum of this and of all bytes before it. Any ONNX software reads the file; damage is recognised.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedmoments.core.maps.canonical import canonical_json
from fedmoments.errors import FileFormatError

__all__ = ["OnnxParts", "read_description", "sealed"]

KEY = "fedmoments"
_KEYS = {"kind", "name", "dim", "weights", "preprocessing"}
_METADATA_PROPS, _PROP_KEY, _PROP_VALUE = 14, 1, 2  # field numbers of ModelProto and StringStringEntryProto
_LENGTH_DELIMITED = 2


@dataclass(frozen=True)
class OnnxParts:
    """What an encoder hands to the exporter.

    Parameters
    ----------
    kind
        ``"image"`` or ``"text"``.
    module
        What to trace; its output is the features (n, d).
    inputs
        Example tensors.
    axes
        Inputs in order, then ``features``, each with the names of its axes that may vary.
    beside
        Files that whoever runs the model needs beside it, by name, such as a tokenizer.
    """

    kind: str
    module: Any
    inputs: tuple[Any, ...]
    axes: dict[str, dict[int, str]]
    beside: Mapping[str, Path] = field(default_factory=dict)


def sealed(model: bytes, description: dict[str, Any]) -> bytes:
    """Return a model's bytes with a description and a checksum behind them.

    Examples
    --------
    >>> sealed(b"model", {"dim": 3})[:5]
    b'model'
    """
    return model + _suffix({**description, "checksum": _checksum(model, description)})


def read_description(path: Path) -> dict[str, Any] | None:
    """Return the description of a sealed file, or None if it is another ONNX file.

    Raises
    ------
    FileFormatError
        When the file was sealed but its bytes have changed.
    """
    data = path.read_bytes()
    start = data.rfind(_field(_PROP_KEY, KEY.encode()))
    if start < 0:
        return None
    opening = data.find(b"{", start)
    try:
        said, _ = json.JSONDecoder().raw_decode(data[opening:].decode())
        suffix = _suffix(said)
        description = {key: value for key, value in said.items() if key != "checksum"}
        checksum = _checksum(data[: -len(suffix)], description)
        sound = data.endswith(suffix) and said["checksum"] == checksum and description.keys() >= _KEYS
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FileFormatError(f"{path} is damaged: its description cannot be read ({error})") from error
    if not sound:
        raise FileFormatError(f"{path} is damaged, or was changed after fedmoments exported it: export it again")
    return description


def _checksum(model: bytes, description: dict[str, Any]) -> str:
    sha = hashlib.sha256(model)
    sha.update(canonical_json(description).encode())
    return sha.hexdigest()


def _suffix(description: dict[str, Any]) -> bytes:
    entry = _field(_PROP_KEY, KEY.encode()) + _field(_PROP_VALUE, canonical_json(description).encode())
    return _field(_METADATA_PROPS, entry)


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | _LENGTH_DELIMITED) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    return bytes([*parts, value])
