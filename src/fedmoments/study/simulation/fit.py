"""One fit of one method: what a table shows of it, its classifier, and what that says of the test samples."""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.classifier import Classifier
from fedmoments.core.costs import PayloadSize
from fedmoments.core.observations import Outcome

__all__ = ["Fit", "Made"]


@dataclass(frozen=True, eq=False)
class Fit:
    """One fit of one method: the row of a table, its details and the saved classifier are all of it.

    Parameters
    ----------
    outcome
        What the table shows.
    classifier
        Behind its maps, with the class names of the data; None where it could not be fitted.
    predicted
        (n_test,) the class that it gives each test sample; None without a classifier.
    error
        Why it could not be fitted.
    """

    outcome: Outcome
    classifier: Classifier | None = None
    predicted: NDArray[np.int64] | None = None
    error: Exception | None = None

    @cached_property
    def digest(self) -> str | None:
        """SHA-256 of the classifier."""
        return None if self.classifier is None else self.classifier.digest()


@dataclass
class Made:
    """What a fit has come to so far: as far as it came, where it fails."""

    size: PayloadSize = field(default_factory=lambda: PayloadSize(0, 0))
    coded: int | None = None
    seconds: float | None = None
    client_seconds: float | None = None
    classifier: Classifier | None = None
    float64: str | None = None
