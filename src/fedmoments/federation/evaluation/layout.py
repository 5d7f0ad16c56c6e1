"""The whole numbers that a test tells: their names and shapes, and the units of those that stand for confidences."""

from fedmoments.core.classifier.ranks import N_RANKS
from fedmoments.federation.evaluation.separation import N_ODDS

__all__ = ["DENSE", "MOST_SAMPLES", "N_BINS", "ONE", "STEP", "WARMTHS", "shapes"]

N_BINS = 15
#: A confidence of 1 in fixed point.
ONE = 2**32
#: So many samples at most, in all: the sum of their confidences stays within ±2⁶².
MOST_SAMPLES = 2**30
#: Coarse sums of confidences are whole numbers of these: a quarter of an answer.
STEP = ONE // 4
#: Temperatures at which confidences are summed up besides, in those of the test: 1/16 to 16.
WARMTHS = tuple(2.0 ** (power / 2) for power in range(-8, 9))
#: What travels as it is; of tables, places and counts that are not 0 do.
DENSE = ("totals", "tested", "found", "counts", "hits", "confidences", "ranks", "warmer", "wrongly", "alone", "rounded")


def shapes(n_classes: int, n_bins: int) -> dict[str, tuple[int, ...]]:
    """Return the shape of every array of an evaluation, in their order.

    Examples
    --------
    >>> shapes(3, 15)["confusion"], shapes(3, 15)["totals"]
    ((3, 3), (2,))
    """
    bins = dict.fromkeys(("counts", "hits", "confidences"), (n_bins,))
    return {
        "confusion": (n_classes, n_classes),
        **bins,
        "others": (n_classes,),
        "totals": (2,),
        "tested": (n_classes,),
        "found": (n_classes,),
        "ranks": (N_RANKS,),
        "warmer": (len(WARMTHS),),
        "wrongly": (n_classes,),
        "odds": (2, n_classes + 1, N_ODDS),
        "alone": (2,),
        "rounded": (1,),
    }
