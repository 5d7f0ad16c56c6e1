"""Parameters as bytes: what travels between server and clients in a round, and what rounds are charged for."""

from typing import Any

from fedmoments.errors import InputError
from fedmoments.files import pack_tensors, unpack_tensors
from fedmoments.tuning.engine import Arrays

__all__ = ["message_size", "pack_parameters", "unpack_parameters"]

_KIND = "parameters"
_PARTS = ("parameters", "control")


def pack_parameters(arrays: Arrays, control: Arrays | None = None, **header: Any) -> bytes:
    """Return parameters, control variates (SCAFFOLD) and header fields as checked bytes.

    Examples
    --------
    >>> import numpy as np
    >>> data = pack_parameters({"head/bias": np.zeros(3, np.float32)}, round=2)
    >>> arrays, control, header = unpack_parameters(data, "the server")
    >>> arrays["head/bias"].shape, control, header["round"]
    ((3,), None, 2)
    """
    parts = dict(zip(_PARTS, (arrays, control or {}), strict=True))
    tensors = {f"{part}/{name}": array for part, named in parts.items() for name, array in named.items()}
    return pack_tensors(_KIND, tensors, {**header, "controlled": control is not None})


def unpack_parameters(data: bytes, whose: str) -> tuple[Arrays, Arrays | None, dict[str, Any]]:
    """Read what :func:`pack_parameters` made; anything else is refused, and nothing in it is run."""
    tensors, header = unpack_tensors(data, _KIND, whose)
    parts: dict[str, Arrays] = {part: {} for part in _PARTS}
    for name, array in tensors.items():
        part, slash, rest = name.partition("/")
        if part not in parts or not slash or array.dtype.kind != "f":
            raise InputError(f"{whose} sent '{name}' of type {array.dtype}, which is no parameter")
        parts[part][rest] = array
    controlled = header.get("controlled") is True
    return parts["parameters"], parts["control"] if controlled else None, dict(header)


def message_size(arrays: Arrays, control: Arrays | None = None, **header: Any) -> int:
    """Return the bytes of a message, by making it.

    Examples
    --------
    >>> import numpy as np
    >>> arrays = {"head/weights": np.zeros((384, 77), np.float32)}
    >>> message_size(arrays) - 4 * 384 * 77 < 1000
    True
    """
    return len(pack_parameters(arrays, control, **header))
