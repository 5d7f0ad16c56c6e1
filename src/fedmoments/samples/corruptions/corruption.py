"""What a corruption is: a name, a family, and a function of pixels."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedmoments.samples.corruptions.scale import Pixels

__all__ = ["Corruption"]


@dataclass(frozen=True)
class Corruption:
    """An entry of the registry.

    Parameters
    ----------
    name
        What users type.
    family
        ``noise``, ``blur``, ``weather``, ``digital``, or another word.
    apply
        The function of pixels (h, w, 1 or 3) in float32 from 0 to 1, a severity from 1 to 5 and a generator.
    """

    name: str
    family: str
    apply: Callable[[Pixels, int, np.random.Generator], Pixels]
