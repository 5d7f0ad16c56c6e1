"""The power map for non-negative features, and the rule that says where it helps.

Features behind a ReLU are non-negative, mostly small and sometimes large: their standard deviation grows with their
mean, and the largest of them decide alone what a Gaussian head sees. z = √x (with its sign, where there is one)
stabilises the variance of what grows like a count; scaling z to length 1 then removes how strongly an image excites the
network as a whole. Together they compare features by Hellinger's distance.

The rule has two parts, and each of them is a number that a client can tell without showing a sample:

- no feature is negative;
- the median over dimensions of their skewness inside classes is 2 or more, that of an exponential distribution.

Behind SqueezeNet and EfficientNet-Lite0 it is 3.5 to 4.0, of the pixels of scikit-learn's digits, which are
non-negative but bounded, 0.6: there √ loses 1 to 2 points. docs/sketch.md has the accuracies.

Other features whose length varies by itself (:mod:`fedmoments.core.maps.lengths`) are scaled to length 1 alone.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from fedmoments.core.maps.base import FeatureMap, FloatArray
from fedmoments.core.maps.checks import checked_positive
from fedmoments.core.maps.lengths import Lengths, lengths_vary
from fedmoments.core.maps.normalize import Normalize
from fedmoments.errors import InputError

__all__ = ["AUTO", "MAP_WORDS", "FeatureShape", "Power", "has_own_units", "named_map", "recommended_map"]

#: The word for the map that the rule recommends.
AUTO = "auto"
#: What people may type for a map: nothing, the power map, or the rule.
MAP_WORDS = ("none", "power", "length", AUTO)
#: Skewness of an exponential distribution, from which on the square root is taken.
SKEWED = 2.0
#: Largest standard deviation of a column over the median one, from which on columns have units of their own. It is 1.3
#: to 7 behind encoders and 400 to 20,000 in tables of measurements; of Gaussians, 10 costs 8 points of accuracy and 18,
#: 12 points.
OWN_UNITS = 10.0
#: Spread of column means in standard deviations, from which on columns have zeros of their own. It is 0.3 to 1.2 behind
#: encoders and 4 of iris. Means travel in eight bits a number, in steps of a 255th of their range: at 10, that costs as
#: much as a mean of only 160 samples, and clients seem to differ.
OWN_ZEROS = 10.0
#: Where columns do not differ at all.
LITTLE = 1e-6


@dataclass(frozen=True)
class Power(FeatureMap, kind="power"):
    """Raise every feature (n, d) to a power, keeping its sign: z = sign(x)·|x|^p.

    **Law** p = 1 changes nothing; powers compose by multiplying; zeros stay zeros.

    Parameters
    ----------
    exponent
        p, above 0 and at most 1; ½ by default.

    Examples
    --------
    >>> Power()([[4.0, 0.0, -9.0]]).tolist()
    [[2.0, 0.0, -3.0]]
    """

    exponent: float = 0.5

    def __post_init__(self) -> None:
        exponent = checked_positive(self.exponent, "exponent", of="Power")
        if exponent > 1.0:
            raise InputError(f"the exponent of Power must be above 0 and at most 1, but got {self.exponent!r}")
        object.__setattr__(self, "exponent", exponent)

    def _apply(self, X: FloatArray) -> FloatArray:
        # The square root is rounded correctly on every machine, a general power is not.
        size = np.sqrt(np.abs(X)) if self.exponent == 0.5 else np.abs(X) ** self.exponent
        return np.asarray(np.copysign(size, X))


@dataclass(frozen=True)
class FeatureShape:
    """What one client tells of its features: a few numbers, from which the map is chosen.

    Parameters
    ----------
    non_negative
        Whether no feature is negative.
    skewness
        Median over dimensions of the skewness around class means; 0 where nothing varies. Few samples show less of it
        than there is, so that it is measured against what as many samples of an exponential distribution show.
    n_samples
        How many samples stand behind it: two of each class are spent on its mean and spread.
    disparity
        Largest standard deviation inside classes of a column, over the median one of columns that vary, less what
        chance adds: the logarithm of the largest of d deviations, each of n samples, is about √(log d/n) too large.
    lengths
        How the length of features varies.
    distance
        Standard deviation of column means, over the root mean square of columns' standard deviations inside classes.

    Examples
    --------
    >>> shape = FeatureShape.of(np.random.default_rng(0).exponential(size=(500, 8)) ** 2, np.zeros(500, int))
    >>> shape.non_negative, shape.skewness > 2
    (True, True)
    """

    non_negative: bool
    skewness: float
    n_samples: int
    disparity: float = 1.0
    lengths: Lengths = field(default_factory=Lengths)
    distance: float = 0.0

    @classmethod
    def of(cls, X: npt.ArrayLike, y: npt.ArrayLike) -> "FeatureShape":
        """Measure features X (n, d) with labels y (n,), whole numbers."""
        features, labels = np.asarray(X, np.float64), np.asarray(y)
        return replace(cls._of_columns(features, labels), lengths=Lengths.of(features, labels))

    @classmethod
    def _of_columns(cls, features: FloatArray, labels: npt.NDArray[np.generic]) -> "FeatureShape":
        """Measure signs, skewness and disparity."""
        _, places, counts = np.unique(labels, return_inverse=True, return_counts=True)
        behind = int(np.maximum(counts - 2, 0).sum())
        non_negative = not bool((features < 0).any())
        if not behind:
            return cls(non_negative, 0.0, 0)
        sums = np.zeros((len(counts), features.shape[1]))
        np.add.at(sums, places, features)
        away = features - (sums / counts[:, None])[places]
        second = np.einsum("nd,nd->d", away, away) / (counts - 1).sum()
        # Equal samples differ from their mean by its rounding alone, which has a skewness, too.
        rounding = 4.0 * np.finfo(np.float64).eps * np.abs(features).max(axis=0)
        varied = np.isfinite(second) & (second > rounding**2)
        if not varied.any():
            return cls(non_negative, 0.0, behind)
        distance = float(features.mean(axis=0).std() / np.sqrt(second[varied].mean()))
        second, away = second[varied], away[:, varied]
        chance = np.sqrt(np.log(len(second)) / behind)
        disparity = float(np.exp(max(0.5 * np.log(second.max() / np.median(second)) - chance, 0.0)))
        if not non_negative:
            return cls(non_negative, 0.0, behind, disparity, distance=distance)
        third = np.einsum("nd,nd,nd->d", away, away, away) / ((counts - 1) * (counts - 2) / counts).sum()
        typical = float(np.median(third / second**1.5))
        return cls(non_negative, typical * SKEWED / _exponential(behind), behind, disparity, distance=distance)


def _exponential(n_samples: int) -> float:
    """Return the median skewness that so many samples of an exponential distribution show; 2 of infinitely many.

    From 0.75 of four samples over 1.3 of 20 to 1.7 of 80 (simulated); 2n/(n + 10) is within 0.15 of it from eight on.
    """
    return max(0.8, SKEWED * n_samples / (n_samples + 10.0))


def recommended_map(shapes: Iterable[FeatureShape]) -> FeatureMap | None:
    """Return the power map where all clients' features are non-negative and skewed; else length 1, or None.

    Parameters
    ----------
    shapes
        Of every client; what they say is weighted by their samples.

    Examples
    --------
    >>> recommended_map([FeatureShape(True, 3.5, 100), FeatureShape(True, 1.0, 10)])
    Chain(maps=(Power(exponent=0.5), Normalize()))
    >>> recommended_map([FeatureShape(True, 3.5, 100), FeatureShape(False, 0.0, 1)]) is None
    True
    >>> texts = Lengths(n_samples=100, mean=0.0, squares=9.0, within=8.0, dof=98, chance=0.01, chance_dof=96)
    >>> recommended_map([FeatureShape(False, 0.0, 98, lengths=texts)])
    Normalize()
    """
    every = list(shapes)
    if _are_skewed(every):
        return named_map("power")
    return named_map("length") if lengths_vary(shape.lengths for shape in every) else None


def _are_skewed(every: Sequence[FeatureShape]) -> bool:
    """Say whether no feature is negative and most of them are skewed."""
    shapes_of_samples = [shape for shape in every if shape.n_samples]
    if not shapes_of_samples or not all(shape.non_negative for shape in every):
        return False
    skewness = np.average(
        [shape.skewness for shape in shapes_of_samples], weights=[shape.n_samples for shape in shapes_of_samples]
    )
    return bool(skewness >= SKEWED)


def has_own_units(shapes: Iterable[FeatureShape]) -> bool:
    """Say whether columns are in units of their own, by the geometric means of what clients tell, weighted by samples.

    Examples
    --------
    >>> has_own_units([FeatureShape(False, 0.0, 90, disparity=400.0), FeatureShape(False, 0.0, 10, disparity=4.0)])
    True
    """
    told = [shape for shape in shapes if shape.n_samples]
    if not told:
        return False
    weights = [shape.n_samples for shape in told]
    sizes = np.average(np.log([shape.disparity for shape in told]), weights=weights)
    zeros = np.average(np.log([max(shape.distance, LITTLE) for shape in told]), weights=weights)
    return bool(sizes >= np.log(OWN_UNITS) or zeros >= np.log(OWN_ZEROS))


def named_map(word: str) -> FeatureMap | None:
    """Return the map of ``power`` or ``length``, or None for ``none``; ``auto`` is for who has features to look at.

    Examples
    --------
    >>> named_map("power").output_dim(512), named_map("none")
    (512, None)
    """
    maps = {"none": None, "power": Power() | Normalize(), "length": Normalize()}
    if word not in maps:
        raise InputError(f"a map is one of {', '.join(MAP_WORDS)}; '{word}' arrived")
    return maps[word]
