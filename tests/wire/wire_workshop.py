"""A workshop that makes contributions of any content, sound or not, signed or not, without the code that it tests."""

import hashlib
import json
import math
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from fedmoments.core.statistics import FixedPoint, SketchPlan, Statistics, StatisticsSpec
from fedmoments.errors import RefusedError
from fedmoments.wire import Agreement, IdentityKey, PublicKey, Reason, Withheld, encode

Array = npt.NDArray[Any]

DIGITS = {"federation": "0f" * 32, "fingerprint": "1f" * 32, "classes": "2f" * 32}
NAMES = {"int64": "I64", "float16": "F16", "float32": "F32", "float64": "F64", "int32": "I32", "uint64": "U64"}
NAMES |= {"int8": "I8", "uint8": "U8"}
TYPES = {"I64": "<i8", "F16": "<f2", "BF16": "<u2", "F32": "<f4", "F64": "<f8", "I8": "i1", "U8": "u1"}
LAYOUT = struct.Struct("<8sII32s32s32s64sQIIQ32s")


class Workshop:
    """Names a client with a key, an agreement and sound statistics, and forges contributions of it."""

    def __init__(self) -> None:
        self.client = "clinic"
        self.key = IdentityKey.from_bytes(bytes(range(32)))
        self.stranger = IdentityKey.from_bytes(bytes(range(1, 33)))
        self._made: dict[tuple[Agreement, int], bytes] = {}

    def key_of(self, client: str) -> PublicKey:
        """Know one client, one whose key was revoked, and nobody else."""
        if client == "former":
            raise RefusedError(Reason.REVOKED_CLIENT, f"the key of client '{client}' was revoked", client)
        if client != self.client:
            raise RefusedError(Reason.UNKNOWN_CLIENT, f"no client '{client}' is enrolled", client)
        return self.key.public

    def agreement(self, *moments: str, means: int = 1, sketch: SketchPlan | None = None, **changes: Any) -> Agreement:
        spec = StatisticsSpec.of(*moments, means_per_client=means, sketch=sketch)
        form = FixedPoint(norm_bound=8.0, max_samples=100_000)
        return Agreement(**{**DIGITS, "n_classes": 5, "dim": 4, "spec": spec, "fixed_point": form, **changes})

    def statistics(self, agreement: Agreement, *, n: int = 24, seed: int = 0) -> Statistics:
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(n, agreement.dim)) + 0.5
        X *= np.minimum(1.0, agreement.fixed_point.norm_bound / np.linalg.norm(X, axis=1, keepdims=True))
        y = rng.choice([0, 2, 3], size=n)
        return Statistics.of(X, y, agreement.spec, n_classes=agreement.n_classes)

    def sound(self, agreement: Agreement, *, seed: int = 0) -> bytes:
        """Return a contribution that must be taken in; made once."""
        if (agreement, seed) not in self._made:
            stats = self.statistics(agreement, seed=seed)
            self._made[agreement, seed] = encode(
                stats, agreement, client=self.client, version=1, key=self.key, withheld=Withheld(1, 3)
            )
        return self._made[agreement, seed]

    def tensors(self, data: bytes) -> dict[str, Array]:
        """Return writable tensors of a contribution, bfloat16 as float32, read without the library that is tested."""
        body = data[296:]
        length = int.from_bytes(body[:8], "little")
        found = {}
        for name, entry in json.loads(body[8 : 8 + length]).items():
            if name != "__metadata__":
                start, stop = (8 + length + offset for offset in entry["data_offsets"])
                found[name] = np.frombuffer(body[start:stop], TYPES[entry["dtype"]]).reshape(entry["shape"]).copy()
        return found

    def body(
        self,
        tensors: Mapping[str, Array],
        metadata: Mapping[str, Any] | None = None,
        *,
        dtypes: Mapping[str, str] | None = None,
    ) -> bytes:
        """Return a safetensors file in canonical order; ``dtypes`` renames types (bits of bfloat16, lies)."""
        entries: dict[str, Any] = {"__metadata__": metadata or {"withheld_classes": "1", "withheld_samples": "3"}}
        start = 0
        order = sorted(tensors, key=lambda name: (-tensors[name].itemsize, name))
        for name in order:
            array, stop = tensors[name], start + tensors[name].nbytes
            dtype = (dtypes or {}).get(name, NAMES.get(str(array.dtype), ""))
            entries[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [start, stop]}
            start = stop
        return self.framed(json.dumps(entries, separators=(",", ":")), b"".join(tensors[n].tobytes() for n in order))

    def framed(self, text: str, data: bytes) -> bytes:
        raw = text.encode()
        raw += b" " * (math.ceil(len(raw) / 8) * 8 - len(raw))
        return len(raw).to_bytes(8, "little") + raw + data

    def signed(self, body: bytes, agreement: Agreement, *, key: IdentityKey | None = None, **changes: Any) -> bytes:
        """Return a contribution of any body, with any field of its header changed, rightly signed."""
        fields = {
            "magic": b"FEDMOMNT",
            "mark": 0x01020304,
            "format": 1,
            "fingerprint": bytes.fromhex(agreement.fingerprint),
            "classes": bytes.fromhex(agreement.classes),
            "federation": bytes.fromhex(agreement.federation),
            "client": self.client.encode(),
            "version": 1,
            "n_classes": agreement.n_classes,
            "dim": agreement.dim,
            "length": len(body),
            "digest": hashlib.sha256(body).digest(),
        }
        head = LAYOUT.pack(*(fields | changes).values())
        return head + (key or self.key).sign(b"fedmoments contribution 1\n" + head) + body


#: Shared by all tests: sound contributions are made once.
WORKSHOP = Workshop()
