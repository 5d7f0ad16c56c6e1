"""What an encoder is: samples in, feature vectors out, and how to tell whether two parties share one.

An encoder works in two steps, so that reading can go on while computing does: :meth:`Encoder.prepare` turns one sample
(an image, a sentence) into what the model takes, on any thread; :meth:`Encoder.encode` runs the model on a batch.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.maps.canonical import sha256_of_json
from fedmoments.errors import MergeError
from fedmoments.samples.encoders.probe import TOLERANCE, Behaviour, describe_difference, probe_samples

__all__ = ["Encoder", "Modality", "fingerprint_of"]

Modality = Literal["image", "text", "audio", "features"]


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
        """What it is: SHA-256 of weights, preprocessing and dimension.

        Two parties may merge only if theirs are equal and their :attr:`behaviour` agrees.
        """
        return fingerprint_of(self.weights_hash, self.preprocessing, self.dim)

    @cached_property
    def behaviour(self) -> Behaviour:
        """What it does with samples that everybody can make; computed when it is first asked for."""
        return Behaviour.of(np.asarray(self.probed()))

    def probed(self) -> NDArray[np.float32]:
        """Return the features (n, d) of the probe."""
        return self.encode([self.prepare(sample) for sample in probe_samples(self.modality, self.dim)])

    def note(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return what identifies the encoder in notes and results, with the options that load it again; JSON-able."""
        return {
            "name": self.name,
            "options": dict(options),
            "dim": self.dim,
            "fingerprint": self.fingerprint,
            "behaviour": self.behaviour.to_text(),
        }

    def require_same(self, noted: Mapping[str, Any], whose: str) -> None:
        """Raise MergeError unless this is the encoder that :meth:`note` described, naming what differs.

        Parameters
        ----------
        noted
            The note.
        whose
            Whose note it is, such as "this classifier was fitted behind".
        """
        if noted.get("fingerprint") != self.fingerprint:
            raise MergeError(
                f"{whose} the encoder {noted.get('name')} with fingerprint {str(noted.get('fingerprint'))[:16]}…, but "
                f"the encoder {self.name} here has {self.fingerprint[:16]}…: weights or preprocessing differ, and its "
                "features would mean something else"
            )
        difference = self.behaviour.difference(Behaviour.from_text(noted.get("behaviour")))
        if difference > TOLERANCE:
            raise MergeError(
                f"{whose} the encoder {noted.get('name')} that has the weights and the preprocessing of {self.name} "
                f"here, but behaves differently: {describe_difference(difference)}. Use the same code of the network"
            )

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
