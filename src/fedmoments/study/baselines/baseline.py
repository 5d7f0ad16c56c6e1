"""What a baseline is: what a client makes of its own samples, and what a server makes of what all clients sent."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.classifier import Classifier

__all__ = ["Baseline", "Upload"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Upload:
    """What one client sends.

    Parameters
    ----------
    arrays
        Name -> numbers; all of them are counted as sent.
    counts
        (C,) samples of every class at the client; the positive ones are sent.

    Examples
    --------
    >>> Upload({"weights": np.zeros((4, 2))}, np.array([3, 0])).n_floats
    8
    """

    arrays: Mapping[str, Floats]
    counts: NDArray[np.int64]

    @property
    def n_floats(self) -> int:
        """How many numbers travel, besides the counts."""
        return sum(array.size for array in self.arrays.values())

    @property
    def n_counts(self) -> int:
        """How many counts travel: one for every class present."""
        return int(np.count_nonzero(self.counts))


@dataclass(frozen=True)
class Baseline(ABC):
    """A one-shot method without sufficient statistics. Frozen: its fields are its hyper-parameters."""

    #: What a client sends, in a few words, for tables.
    sends: ClassVar[str]

    @abstractmethod
    def local(self, X: Floats, y: NDArray[np.int64], *, n_classes: int, seed: int) -> Upload:
        """Return what a client with features X (n, d), n ≥ 1, and labels y (n,) sends."""

    @abstractmethod
    def combine(self, uploads: Sequence[Upload], *, dim: int, seed: int) -> Classifier:
        """Return the server's classifier of features in ``dim`` dimensions from all clients' uploads."""

    def settings(self) -> dict[str, Any]:
        """Return the hyper-parameters as plain values, for tables and file headers."""
        return asdict(self)
