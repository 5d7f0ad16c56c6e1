"""The body of a contribution: a safetensors file, in the one way to write it.

Layout (https://huggingface.co/docs/safetensors): 8 bytes, the length of a JSON text; the text, padded with spaces to a
multiple of 8; the tensors' bytes, little-endian, without gaps. The library itself writes metadata in an order that
changes from run to run and copies every tensor when it reads; a signed format needs one encoding of one content. So
both directions are here, a page each, and the tests hold them against the library. Tensors stand in the library's
order, by falling size of a number, then by name.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from fedmoments.wire.agreement import MOST_BYTES
from fedmoments.wire.reason import Reason

__all__ = ["Refuse", "Tensor", "head_of", "read_tensors"]

#: Raises a RefusedError that names the client.
Refuse = Callable[[Reason, str], NoReturn]

#: Name of every type that safetensors knows, with the bytes of a number; numpy has no bfloat16, so its bits are read.
SIZES = {
    **dict.fromkeys(("I64", "U64", "F64", "C64"), 8),
    **dict.fromkeys(("I32", "U32", "F32"), 4),
    **dict.fromkeys(("I16", "U16", "F16", "BF16"), 2),
    **dict.fromkeys(("I8", "U8", "BOOL", "F8_E4M3", "F8_E5M2", "F8_E8M0"), 1),
}
FLOATS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
#: A contribution has at most a dozen tensors; no header of one comes near.
MOST_HEADER_BYTES = 8192
_METADATA = "__metadata__"


@dataclass(frozen=True)
class Tensor:
    """A tensor's type (as safetensors names it), shape and bytes; nothing is copied."""

    dtype: str
    shape: tuple[int, ...]
    data: memoryview

    def array(self, dtype: str) -> NDArray[Any]:
        """Return the bytes as numbers of a numpy type, aligned, a view wherever they lie so."""
        return np.require(np.frombuffer(self.data, dtype), requirements="A").reshape(self.shape)

    def floats(self) -> NDArray[np.floating[Any]]:
        """Return the numbers of a floating tensor, in float16, float32 or float64."""
        numbers = self.array(FLOATS[self.dtype])
        if self.dtype == "BF16":
            return (numbers.astype(np.uint32) << 16).view(np.float32)
        return numbers


def head_of(tensors: Iterable[tuple[str, str, tuple[int, ...]]], metadata: Mapping[str, str]) -> bytes:
    """Return what stands before the tensors' bytes: a length, and JSON that says where each tensor lies.

    Parameters
    ----------
    tensors
        (name, type, shape) in the order in which they are stored.
    metadata
        Texts, sorted by name here.

    Examples
    --------
    >>> head = head_of([("n", "I64", (2,))], {})
    >>> int.from_bytes(head[:8], "little"), head[8:].decode()
    (80, '{"__metadata__":{},"n":{"dtype":"I64","shape":[2],"data_offsets":[0,16]}}       ')
    """
    entries: dict[str, Any] = {_METADATA: dict(sorted(metadata.items()))}
    start = 0
    for name, dtype, shape in tensors:
        stop = start + math.prod(shape) * SIZES[dtype]
        entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [start, stop]}
        start = stop
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def read_tensors(body: memoryview, refuse: Refuse) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors and the metadata of a body that is written in the one way.

    Parameters
    ----------
    body
        All of it; every byte must belong to something.
    refuse
        Called with the reason when it is not.

    Examples
    --------
    >>> body = head_of([("n", "I64", (1,))], {"a": "b"}) + bytes([7, 0, 0, 0, 0, 0, 0, 0])
    >>> tensors, metadata = read_tensors(memoryview(body), lambda reason, sentence: exit(sentence))
    >>> tensors["n"].array("<i8"), metadata
    (array([7]), {'a': 'b'})
    """
    length = int.from_bytes(body[:8], "little")
    if len(body) < 8 or length > len(body) - 8 or length > MOST_HEADER_BYTES:
        refuse(
            Reason.BODY,
            f"its body of {len(body)} bytes announces a safetensors header of {length} bytes, where at most "
            f"{MOST_HEADER_BYTES} and no more than there are were allowed",
        )
    head, data = bytes(body[: 8 + length]), body[8 + length :]
    entries = _parse(head[8:], refuse)
    metadata = entries.pop(_METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
        refuse(Reason.BODY, "the metadata of its body must be texts by name, but are not")
    tensors = _tensors(entries, data, refuse)
    # A name that occurs twice, offsets that lie, another spelling: whatever the parser forgave is another text now.
    expected = head_of(((name, tensor.dtype, tensor.shape) for name, tensor in tensors.items()), metadata)
    ordered = sorted(tensors, key=lambda name: (-SIZES[tensors[name].dtype], name))
    if head != expected or ordered != list(tensors):
        refuse(Reason.BODY, "its body is safetensors, but not in the one way to write it that the format allows")
    return tensors, metadata


def _tensors(entries: dict[str, Any], data: memoryview, refuse: Refuse) -> dict[str, Tensor]:
    """Return the tensors that lie one after the other in all of ``data``."""
    tensors: dict[str, Tensor] = {}
    start = 0
    for name, entry in entries.items():
        dtype, shape = _entry(name, entry, refuse)
        stop = start + math.prod(shape) * SIZES[dtype]
        if stop > len(data):
            refuse(Reason.BODY, f"its tensor {name!r} ends at byte {stop} of {len(data)}")
        tensors[name] = Tensor(dtype, shape, data[start:stop])
        start = stop
    if start != len(data):
        refuse(Reason.BODY, f"the tensors of its body have {start} bytes, but {len(data)} arrived")
    return tensors


def _parse(text: bytes, refuse: Refuse) -> dict[str, Any]:
    try:
        entries = json.loads(text.decode("ascii"))
    except (ValueError, RecursionError) as error:
        refuse(Reason.BODY, f"the safetensors header of its body is not JSON ({error})")
    if not isinstance(entries, dict):
        refuse(Reason.BODY, f"the safetensors header of its body must be a JSON object, not a {type(entries).__name__}")
    return entries


def _is_length(value: object) -> bool:
    """Say whether a number can be a length: small enough to be multiplied and shown, too."""
    return type(value) is int and 0 <= value <= MOST_BYTES


def _entry(name: str, entry: object, refuse: Refuse) -> tuple[str, tuple[int, ...]]:
    """Return a tensor's type and shape; where it lies follows from them and is compared afterwards."""
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        refuse(Reason.BODY, f"its tensor {name[:80]!r} lacks one of dtype, shape and data_offsets, or has more")
    dtype, shape = entry["dtype"], entry["shape"]
    if not isinstance(dtype, str) or dtype not in SIZES:
        shown = repr(dtype[:80]) if isinstance(dtype, str) else f"a {type(dtype).__name__}"
        refuse(Reason.DTYPE, f"its tensor {name[:80]!r} is of the type {shown}, which is unknown")
    if not isinstance(shape, list) or len(shape) > 3 or not all(_is_length(length) for length in shape):
        refuse(Reason.BODY, f"the shape of its tensor {name[:80]!r} must be up to three lengths of 0 to {MOST_BYTES}")
    return dtype, tuple(shape)
