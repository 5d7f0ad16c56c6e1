"""What a test of a head tells beyond accuracy: figures of every class, and their means."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["ClassFigures"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ClassFigures:
    """How well each class is found and told from others; NaN, or None of a mean, where it is not known.

    Parameters
    ----------
    tested, found
        (C,) samples of every class, and those that were found.
    specificities
        (C,) share of the other classes' samples that were not taken for a class.
    areas
        (C,) area under the ROC curve of the class against all others (AUC).
    macro_f1, macro_auc
        Means over classes.
    micro_auc
        The area of all classes together: whether the true class of a sample is likelier than a wrong one of another.
    rounding
        Variance of chance in right answers of a class, where they are sums of rounded ones.

    Examples
    --------
    >>> areas = np.array([0.9, np.nan])
    >>> figures = ClassFigures(np.array([10, 0]), np.array([9, 0]), np.array([0.8, 0.9]), areas, macro_auc=0.9)
    >>> figures.macro_f1 is None, figures.macro_auc
    (True, 0.9)
    """

    tested: NDArray[np.int64]
    found: NDArray[np.int64]
    specificities: Floats
    areas: Floats
    macro_f1: float | None = None
    macro_auc: float | None = None
    micro_auc: float | None = None
    rounding: float = 0.0
