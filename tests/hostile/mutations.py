"""Files as somebody hostile would write them: sound ones with values, structure and bytes changed."""

import json
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import numpy as np

#: What a field may hold instead of what belongs there.
HOSTILE: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, 2**31, 2**63, 10**400, -(10**30), 1e308, 5e-324, float("nan"), float("inf"), float("-inf")),
    *("", "x", "\ud800", "\x00\x1b[2J", "9" * 400, "../../etc/passwd", "NaN", [], {}, [[]], [None], {"": None}),
    *([1, "x", {}], [0] * 300, {"kind": "x"}, [[[[]]]], "a" * 5000, 0.5),
)
DEEP = '{"a":' * 3000 + "1" + "}" * 3000
TEXTS = ("", "null", "[]", "{}", "1", '"x"', "[" * 5000, DEEP, "9" * 5000, "NaN", "\ud800", "{" * 2000, '{"a":1,"a":2}')


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every value in a document, itself first."""
    yield path
    if isinstance(value, dict | list):
        keys = value if isinstance(value, dict) else range(len(value))
        for key in list(keys):
            yield from places(value[key], (*path, key))


def changed(document: Any, rng: np.random.Generator) -> Any:
    """Return a document with one to three values replaced, removed, added or doubled."""
    document = json.loads(json.dumps(document))
    for _ in range(int(rng.integers(1, 4))):
        paths = list(places(document))
        path = paths[rng.integers(len(paths))]
        value = deepcopy(HOSTILE[rng.integers(len(HOSTILE))])
        if not path:
            if rng.integers(20) == 0:
                return value
            continue
        holder = document
        for key in path[:-1]:
            holder = holder[key]
        how = rng.integers(6)
        if how == 0:
            del holder[path[-1]]
        elif how == 1 and isinstance(holder, dict):
            holder[str(rng.choice(["", "x", "__class__", "kind"]))] = value
        elif how == 1:
            holder.append(value)
        else:
            holder[path[-1]] = value
    return document


def changed_text(text: str, rng: np.random.Generator) -> str:
    """Return a JSON text that is hostile by value, by structure or by spelling."""
    how = rng.integers(10)
    if how == 0:
        return TEXTS[rng.integers(len(TEXTS))]
    if how == 1:
        return changed_bytes(text.encode(), rng).decode("utf-8", "surrogateescape")
    return json.dumps(changed(json.loads(text), rng))


def changed_bytes(data: bytes, rng: np.random.Generator) -> bytes:
    """Return bytes with some flipped, cut out, doubled or appended."""
    broken = bytearray(data)
    for _ in range(int(rng.integers(1, 5))):
        at = int(rng.integers(len(broken) + 1))
        how = rng.integers(5)
        if how == 0 and broken:
            broken[min(at, len(broken) - 1)] ^= 1 << int(rng.integers(8))
        elif how == 1:
            del broken[at : at + int(rng.integers(1, 20))]
        elif how == 2:
            broken[at:at] = bytes(rng.integers(0, 256, int(rng.integers(1, 20)), dtype=np.uint8))
        elif how == 3:
            broken[at:at] = broken[at : at + 12]
        else:
            del broken[at:]
    return bytes(broken)


def changed_tensors(tensors: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Return arrays of which one has another shape, type or content, or is missing, or is new."""
    tensors = {name: np.array(array) for name, array in tensors.items()}
    if not tensors:
        return tensors
    name = str(rng.choice(list(tensors)))
    array = tensors[name]
    how = rng.integers(8)
    if how == 0:
        del tensors[name]
    elif how == 1:
        tensors[str(rng.choice(["x", "present", "info", "kind", "self", "feature_map"]))] = array
    elif how == 2:
        tensors[name] = array.reshape(-1)[: rng.integers(array.size + 1)].copy()
    elif how == 3:
        tensors[name] = np.zeros((*array.shape, int(rng.integers(3))), array.dtype)
    elif how == 4:
        kinds = [np.float16, np.int64, np.bool_, np.uint8, np.float64, np.float32]
        with np.errstate(all="ignore"):
            tensors[name] = array.astype(kinds[rng.integers(len(kinds))])
    elif how == 5:
        tensors[name] = np.array(0.0)
    elif array.size:
        flat = array.reshape(-1)
        extreme = [np.iinfo(array.dtype).min, np.iinfo(array.dtype).max, -1] if array.dtype.kind == "i" else [np.nan]
        flat[rng.integers(flat.size)] = extreme[rng.integers(len(extreme))] if array.dtype.kind in "if" else False
        tensors[name] = flat.reshape(array.shape)
    return tensors
