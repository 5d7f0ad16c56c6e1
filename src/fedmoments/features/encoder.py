"""What an encoder is: samples in, feature vectors out, and a fingerprint that says whether two parties share one.

An encoder works in two steps, so that reading can go on while computing does: :meth:`Encoder.prepare` turns one sample
(an image, a sentence) into what the model takes, on any thread; :meth:`Encoder.encode` runs the model on a batch.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedmoments.maps.canonical import sha256_of_json

__all__ = ["Encoder", "Modality", "fingerprint_of"]

Modality = Literal["image", "text", "features"]


class Encoder(ABC):
    """A frozen, pre-trained model that maps samples to feature vectors.

    Subclasses set :attr:`name`, :attr:`modality` and implement the rest; encoding is deterministic.
    """

    #: What a user types to get it again, without runtime and device, which do not change what it is.
    name: str
    #: What it takes.
    modality: Modality
    #: Samples that are encoded at once by default.
    batch_size: int = 32
    #: Batches that :meth:`encode` works on at the same time, when it is given as many.
    parallel: int = 1

    @property
    @abstractmethod
    def dim(self) -> int:
        """Dimension d of the features."""

    @property
    @abstractmethod
    def preprocessing(self) -> Mapping[str, Any]:
        """What happens to a sample before the model, JSON-able and complete."""

    @property
    @abstractmethod
    def weights_hash(self) -> str:
        """SHA-256 of the model's weights, the same for the same weights on every runtime and device."""

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of weights and preprocessing: two parties may merge only if theirs are equal."""
        return fingerprint_of(self.weights_hash, self.preprocessing, self.dim)

    @abstractmethod
    def prepare(self, sample: Any) -> Any:
        """Turn one sample into what :meth:`encode` takes; safe to call from several threads.

        Raises
        ------
        InputError
            When the sample cannot be read (a damaged image, an empty sentence); says why, not which.
        """

    @abstractmethod
    def encode(self, batch: Sequence[Any]) -> NDArray[np.float32]:
        """Return the features (len(batch), d) of prepared samples, float32."""


def fingerprint_of(weights_hash: str, preprocessing: Mapping[str, Any], dim: int) -> str:
    """Return the fingerprint of an encoder that need not be loaded.

    Examples
    --------
    >>> fingerprint_of("00", {"size": 224}, 3) == fingerprint_of("00", {"size": 96}, 3)
    False
    """
    return sha256_of_json({"weights": weights_hash, "preprocessing": dict(preprocessing), "dim": dim})
