"""What a block of samples says about scores: its labels, or a teacher, each with a loss, a slope and probabilities.

Scores come as (C, m), a class a row: sums over classes are then sums of whole rows, and everything but the two matrix
products is done in place.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Voice", "label_voice", "lower_to_zero", "softmax_in_place", "teacher_voice"]

Floats = NDArray[np.floating[Any]]

#: exp(x) and sums of it stay finite below these.
_LARGEST = {np.dtype(np.float32): 80.0, np.dtype(np.float64): 700.0}


def lower_to_zero(scores: Floats) -> Floats:
    """Subtract from every column (C, m) its largest score, in place: what is left of the others keeps its digits.

    Examples
    --------
    >>> lower_to_zero(np.array([[1.0, 5.0], [2.0, 3.0]]))
    array([[-1.,  0.],
           [ 0., -2.]])
    """
    scores -= scores.max(axis=0, initial=-np.inf)
    return scores


def softmax_in_place(scores: Floats) -> Floats:
    """Turn scores (C, m), one of them 0 in every column, into probabilities in place; return log Σ exp (m,).

    Examples
    --------
    >>> scores = np.array([[0.0, -1000.0], [0.0, 0.0]])
    >>> softmax_in_place(scores).round(4), scores
    (array([0.6931, 0.    ]), array([[0.5, 0. ],
           [0.5, 1. ]]))
    """
    np.exp(scores, out=scores)
    total = scores.sum(axis=0)
    scores *= 1.0 / total
    return np.asarray(np.log(total, out=total))


@dataclass(frozen=True, eq=False)
class Voice:
    """One part of a block's loss.

    Parameters
    ----------
    probabilities
        (C, m) of the head, at the voice's temperature.
    targets
        Labels (m,), one label for all, or probabilities (C, m) of a teacher.
    loss
        Summed over samples, times the share.
    share
        Of this voice in the loss.
    temperature
        Of this voice.
    """

    probabilities: Floats
    targets: Floats | NDArray[np.int64] | int
    loss: float
    share: float
    temperature: float = 1.0

    def slope(self) -> Floats:
        """Return the derivative (C, m) of the loss with respect to scores; it takes the place of the probabilities."""
        slope, targets = self.probabilities, self.targets
        if isinstance(targets, int):
            slope[targets] -= 1.0
        elif targets.ndim == 1:
            slope[targets, np.arange(len(targets))] -= 1.0
        else:
            slope -= targets
        if self.share * self.temperature != 1.0:
            slope *= slope.dtype.type(self.share * self.temperature)
        return slope


def label_voice(scores: Floats, labels: NDArray[np.int64] | int, share: float, *, relative: bool = False) -> Voice:
    """Return what labels say: share · CE. Scores (C, m) are overwritten.

    Parameters
    ----------
    scores
        (C, m).
    labels
        (m,) or one for all.
    share
        Of the loss.
    relative
        Scores are those less that of the label, which is 0 then: they are lowered only where exp would overflow.

    Examples
    --------
    >>> voice = label_voice(np.zeros((2, 1)), 0, 1.0)
    >>> round(voice.loss, 4), voice.slope()
    (0.6931, array([[-0.5],
           [ 0.5]]))
    """
    if not relative or not scores.max(initial=0.0) < _LARGEST[scores.dtype]:
        lower_to_zero(scores)
    own = scores[labels] if isinstance(labels, int) else scores[labels, np.arange(len(labels))]
    own_sum = float(own.sum(dtype=np.float64))
    spread = float(softmax_in_place(scores).sum(dtype=np.float64))
    return Voice(scores, labels, share * (spread - own_sum), share)


def teacher_voice(scores: Floats, teacher: Floats, share: float, temperature: float) -> Voice:
    """Return what a teacher says: share · T² · KL(teacher ‖ head) at temperature T. Both (C, m) are overwritten.

    Examples
    --------
    >>> voice = teacher_voice(np.zeros((2, 1)), np.array([[0.0], [0.0]]), 1.0, 4.0)
    >>> voice.loss, voice.slope()
    (0.0, array([[0.],
           [0.]]))
    """
    scores, teacher = lower_to_zero(scores), lower_to_zero(teacher)
    scores *= scores.dtype.type(1.0 / temperature)
    teacher *= teacher.dtype.type(1.0 / temperature)
    gap = teacher - scores
    gap += softmax_in_place(scores) - softmax_in_place(teacher)
    divergence = float(np.einsum("cm,cm->m", teacher, gap).sum(dtype=np.float64))
    return Voice(scores, teacher, share * temperature**2 * divergence, share, temperature)
