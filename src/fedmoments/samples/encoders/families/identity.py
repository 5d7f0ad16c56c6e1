"""``identity``: the samples are features already."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.errors import InputError
from fedmoments.samples.encoders.encoder import Encoder, Modality
from fedmoments.samples.encoders.entry import EncoderEntry, Options

__all__ = ["ENCODERS", "IdentityEncoder"]


class IdentityEncoder(Encoder):
    """Returns features (d,) as they are, as float32.

    Parameters
    ----------
    dim
        Dimension d.

    Examples
    --------
    >>> encoder = IdentityEncoder(2)
    >>> encoder.encode([encoder.prepare([1, 2]), encoder.prepare([3, 4])]).tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    """

    name = "identity"
    modality: Modality = "features"

    def __init__(self, dim: int, batch_size: int | None = None) -> None:
        self._dim = dim
        self.batch_size = batch_size or 4096

    @property
    def dim(self) -> int:
        return self._dim

    @property
    def preprocessing(self) -> Mapping[str, Any]:
        return {"features": "as given"}

    @property
    def weights_hash(self) -> str:
        return hashlib.sha256(b"identity").hexdigest()

    def prepare(self, sample: Any) -> NDArray[np.float32]:
        try:
            row = np.asarray(sample, np.float32)
        except (TypeError, ValueError) as error:
            raise InputError(f"features must be numbers: {error}") from error
        if row.shape != (self._dim,):
            raise InputError(f"features must have shape ({self._dim},), but have {row.shape}")
        if not np.isfinite(row).all():
            raise InputError("features must be finite in float32, but some are not")
        return row

    def encode(self, batch: Sequence[Any]) -> NDArray[np.float32]:
        return np.asarray(batch, np.float32).reshape(len(batch), self._dim)


def _load(_argument: str, options: Options) -> Encoder:
    if options.dim is None:
        raise InputError("the encoder 'identity' needs the dimension of the features: give dim")
    return IdentityEncoder(options.dim, options.batch_size)


ENCODERS = (
    EncoderEntry(
        name="identity",
        description="features that are there already",
        load=_load,
        modality="features",
        takes=frozenset({"dim"}),
        runtimes=(),
    ),
)
