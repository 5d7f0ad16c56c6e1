"""The same statistics under another class list: more classes, or the same in another order.

Laws
----
- Statistics that are relabelled are those of the same samples with new labels, bit for bit.
- Classes that are added have no sample: nothing but the number of classes changes.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from fedmoments.core.statistics.moments import Layout, moment
from fedmoments.core.statistics.statistics import Statistics
from fedmoments.errors import InputError

__all__ = ["among", "relabelled"]


def relabelled(stats: Statistics, labels: ArrayLike, n_classes: int) -> Statistics:
    """Return statistics in which class c has another label.

    Parameters
    ----------
    stats
        Of C classes.
    labels
        (C,) the new label of each class, from 0 to ``n_classes`` − 1, no two the same.
    n_classes
        How many classes there are then.

    Examples
    --------
    >>> from fedmoments.core.statistics.spec import StatisticsSpec
    >>> stats = Statistics.of([[1.0], [2.0], [4.0]], [0, 1, 1], StatisticsSpec(), n_classes=2)
    >>> relabelled(stats, [2, 0], 3).sums.ravel()
    array([6., 0., 1.])
    """
    new = np.asarray(labels, np.int64)
    sound = new.shape == (stats.n_classes,) and len(np.unique(new)) == len(new)
    if not sound or (len(new) and not 0 <= new.min() <= new.max() < n_classes):
        raise InputError(
            f"each of {stats.n_classes} classes needs a label of its own from 0 to {n_classes - 1}, but {new!r:.200} "
            "arrived"
        )
    order = np.argsort(new[stats.classes])
    arrays = {
        name: array[order] if moment(name).layout is Layout.CLASS else array for name, array in stats.arrays.items()
    }
    sketch_labels = stats.sketch_labels.copy()
    of_a_class = sketch_labels >= 0
    sketch_labels[of_a_class] = new[sketch_labels[of_a_class]]
    return replace(
        stats,
        n_classes=n_classes,
        classes=new[stats.classes][order],
        class_counts=stats.class_counts[order],
        arrays=arrays,
        row_labels=new[stats.row_labels],
        sketch_labels=sketch_labels,
    )


def among(stats: Statistics, names: Sequence[str], all_names: Sequence[str]) -> Statistics:
    """Return statistics of some classes under a class list that has all of them.

    Parameters
    ----------
    stats
        Of the classes ``names``, in this order.
    names, all_names
        Names of its classes, and of those that it is to have.

    Examples
    --------
    >>> from fedmoments.core.statistics.spec import StatisticsSpec
    >>> stats = Statistics.of([[1.0], [2.0]], [0, 1], StatisticsSpec(), n_classes=2)
    >>> among(stats, ["dog", "cat"], ["cat", "cow", "dog"]).sums.ravel()
    array([2., 0., 1.])
    """
    if tuple(names) == tuple(all_names):
        return stats
    places = {name: label for label, name in enumerate(all_names)}
    missing = [name for name in names if name not in places]
    if missing:
        raise InputError(f"the class list {', '.join(all_names[:10])} … lacks {', '.join(missing[:5])}")
    return relabelled(stats, [places[name] for name in names], len(places))
