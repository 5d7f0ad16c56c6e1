"""Prediction sets with a guarantee: how probable the true class was to samples that a fit has not seen, as a histogram.

Bin j counts samples whose true class had a probability p with 2^−(j+1)/4 ≤ p < 2^−j/4 (the last: all that are lower).
Histograms of parties add up. For a coverage q and n samples in all, the threshold is the lower edge of the first bin up
to which ⌈(n + 1)·q⌉ samples are counted; the set of a new sample are all classes at or above it, and the likeliest one.
As in split conformal prediction (Vovk et al. 2005; Lei et al. 2018), and because an edge is never above the quantile:

**Law** where new samples and those of the histogram are exchangeable, the set holds the true class with probability q
or more, whatever the classifier is and however few the samples.

Where parties rounded their counts by chance, with an error of variance v in the sum, ⌈(n + 1)·q + 3√v⌉ samples are
counted: chance then puts the threshold too high in about one federation of a thousand.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmoments.errors import InputError, MergeError

if TYPE_CHECKING:
    from fedmoments.core.classifier.base import Classifier

__all__ = ["N_RANKS", "Ranks", "rank_counts"]

N_RANKS = 48
#: Bins by which a probability is halved.
OCTAVE = 4


def rank_counts(probabilities: NDArray[np.floating[Any]]) -> NDArray[np.int64]:
    """Return the histogram (48,) of probabilities (n,) of true classes.

    Examples
    --------
    >>> np.flatnonzero(rank_counts(np.array([1.0, 0.85, 0.5, 0.0])))
    array([ 0,  3, 47])
    """
    with np.errstate(divide="ignore"):
        places = np.floor(-OCTAVE * np.log2(np.asarray(probabilities, np.float64)) * (1.0 - 1e-12))
    return np.bincount(np.clip(places, 0, N_RANKS - 1).astype(np.int64), minlength=N_RANKS).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Ranks:
    """How probable true classes were to a classifier at one temperature.

    Parameters
    ----------
    counts
        (48,) samples by the probability of their class, likely ones first.
    temperature
        That probabilities were computed at.
    margin
        Samples that are counted besides, where counts are rounded.

    Examples
    --------
    >>> import fedmoments as fm
    >>> rng = np.random.default_rng(0)
    >>> y = np.arange(300) % 3
    >>> X = np.eye(3)[y] * 2 + rng.normal(size=(300, 3))
    >>> classifier = fm.fit("gh-lda", {"a": (X[::2], y[::2])})
    >>> measured = classifier.ranked(Ranks.of(classifier, X[1::2], y[1::2]))
    >>> [measured.class_names[label] for label in np.flatnonzero(measured.prediction_sets([[1.0, 1.0, -2.0]], 0.9)[0])]
    ['0', '1']
    """

    counts: NDArray[np.int64]
    temperature: float
    margin: int = 0

    def __post_init__(self) -> None:
        if self.counts.shape != (N_RANKS,) or self.counts.dtype.kind not in "iu" or (self.counts < 0).any():
            raise InputError(f"ranks are {N_RANKS} counts that are not negative, not {self.counts!r}")

    @staticmethod
    def of(classifier: "Classifier", X: ArrayLike, y: ArrayLike) -> "Ranks":
        """Return the ranks of features X (n, d) with labels y (n,), at the classifier's own temperature."""
        shares = classifier.predict_proba(X)
        labels = np.asarray(y)
        if labels.shape != (len(shares),) or (len(labels) and not 0 <= labels.min() <= labels.max() < shares.shape[1]):
            raise InputError(
                f"{len(shares)} samples need as many labels from 0 to {shares.shape[1] - 1}; others arrived"
            )
        return Ranks(rank_counts(shares[np.arange(len(labels)), labels]), classifier.temperature)

    def __add__(self, other: "Ranks") -> "Ranks":
        if self.temperature != other.temperature:
            raise MergeError(f"ranks at temperatures {self.temperature:g} and {other.temperature:g} cannot be added up")
        return Ranks(self.counts + other.counts, self.temperature, math.ceil(math.hypot(self.margin, other.margin)))

    def threshold(self, coverage: float) -> float:
        """Return the least probability of a class that belongs into a set; 0 where too few samples were seen.

        Examples
        --------
        >>> Ranks(np.array([99] + [0] * 46 + [1]), 1.0).threshold(0.95).__round__(3)
        0.841
        """
        if not 0.0 < coverage < 1.0:
            raise InputError(f"a coverage is a share between 0 and 1, not {coverage}")
        wanted = math.ceil((int(self.counts.sum()) + 1) * coverage) + self.margin
        reached = np.flatnonzero(np.cumsum(self.counts) >= wanted)
        if not len(reached) or reached[0] == N_RANKS - 1:
            return 0.0
        return float(2.0 ** (-(int(reached[0]) + 1) / OCTAVE)) * (1.0 - 1e-9)

    def to_dict(self) -> dict[str, Any]:
        """Return the ranks, ready for JSON."""
        margin = {"margin": self.margin} if self.margin else {}
        return {"temperature": self.temperature, "counts": self.counts.tolist(), **margin}

    @staticmethod
    def from_dict(plain: Any) -> "Ranks":
        """Read what :meth:`to_dict` gave."""
        if not isinstance(plain, dict) or set(plain) - {"margin"} != {"temperature", "counts"}:
            raise InputError("ranks are a temperature and counts")
        counts, temperature, margin = plain["counts"], plain["temperature"], plain.get("margin", 0)
        whole = isinstance(counts, list) and all(
            type(count) is int and 0 <= count < 2**53 for count in (*counts, margin)
        )
        if not whole or not isinstance(temperature, float | int) or not 0.0 < temperature < math.inf:
            raise InputError("ranks are a temperature above 0 and counts that are whole numbers")
        return Ranks(np.array(counts, np.int64), float(temperature), margin)
