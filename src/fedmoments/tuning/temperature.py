"""The temperature of the loss, chosen on a grid by training cross-entropy.

Every client adds up, over its samples and for every temperature T of the grid, −log softmax(scores/T) at the label.
These sums are all that leaves it. They add up over clients, so that the choice is that of pooled data; the temperature
with the lowest total is chosen, and of equal ones the largest.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmoments.errors import InputError, NotEnoughDataError
from fedmoments.tuning.samples import Samples, cross_entropies
from fedmoments.tuning.start import Start

__all__ = ["TEMPERATURES", "ChosenTemperature", "best_temperature", "choose_temperature", "cross_entropy_sums"]

#: 0.001 … 1000, four a decade, 0.1 and 1 among them.
TEMPERATURES: tuple[float, ...] = tuple(float(f"{10.0 ** (power / 4):.4g}") for power in range(-12, 13))


class ChosenTemperature(NamedTuple):
    """A temperature, and the total training cross-entropy of every one that was tried."""

    temperature: float
    table: Mapping[float, float]


def cross_entropy_sums(
    start: Start,
    X: ArrayLike,
    y: ArrayLike,
    temperatures: Sequence[float] = TEMPERATURES,
    *,
    whose: str = "a client",
    most_loss: float = np.inf,
) -> NDArray[np.float64]:
    """Return the sum (G,) over samples of the cross-entropy at the start, for every temperature.

    Parameters
    ----------
    start
        Scores the samples; its own temperature is not used.
    X, y
        (n, d) features as the encoder gives them, (n,) labels.
    temperatures
        (G,) all above 0.
    whose
        For errors.
    most_loss
        What one sample counts for at most.

    Examples
    --------
    >>> from fedmoments.core.classifier import LinearClassifier
    >>> head = LinearClassifier(weights=np.eye(2), bias=np.zeros(2), present=np.array([True, True]))
    >>> cross_entropy_sums(Start("eye", head), [[1.0, 0.0], [0.0, 1.0]], [0, 1], [0.1, 1.0, 10.0]).round(4)
    array([1.0000e-04, 6.2650e-01, 1.2888e+00])
    """
    if not all(0 < temperature < np.inf for temperature in temperatures):
        raise InputError(f"temperatures must be above 0, but {list(temperatures)} arrived")
    samples = Samples.of(start, [(whose, X, y)], np.float64)
    arrays = start.arrays(np.float64)
    sums = np.zeros(len(temperatures))
    for rows in samples.blocks():
        scores, labels = samples.scores(arrays, rows), samples.labels[rows]
        own = (cross_entropies(scores, labels, temperature) for temperature in temperatures)
        sums += [np.minimum(losses, most_loss).sum() for losses in own]
    return sums


def best_temperature(sums: ArrayLike, temperatures: Sequence[float] = TEMPERATURES) -> ChosenTemperature:
    """Return the temperature with the lowest total, the largest of equal ones.

    Parameters
    ----------
    sums
        (G,) totals over all clients.
    temperatures
        (G,).

    Examples
    --------
    >>> best_temperature([3.0, 2.0, 2.0], [0.1, 1.0, 10.0]).temperature
    10.0
    """
    totals = np.asarray(sums, np.float64)
    if totals.shape != (len(temperatures),) or not len(temperatures):
        raise InputError(
            f"{len(temperatures)} temperatures need as many sums of cross-entropies, but {totals.shape} arrived"
        )
    if not np.isfinite(totals).all():
        raise InputError(f"sums of cross-entropies must be finite, but {totals.tolist()} arrived")
    table = dict(zip(map(float, temperatures), totals.tolist(), strict=True))
    return ChosenTemperature(min(table, key=lambda temperature: (table[temperature], -temperature)), table)


def choose_temperature(
    start: Start, parts: Iterable[tuple[ArrayLike, ArrayLike]], temperatures: Sequence[float] = TEMPERATURES
) -> ChosenTemperature:
    """Return the temperature with the lowest training cross-entropy over all clients, and the table of totals.

    Parameters
    ----------
    start
        Scores the samples.
    parts
        Features and labels of every client.
    temperatures
        What to try.

    Examples
    --------
    >>> from fedmoments.core.classifier import LinearClassifier
    >>> head = LinearClassifier(weights=np.eye(2), bias=np.zeros(2), present=np.array([True, True]))
    >>> parts = [([[1.0, 0.0], [0.0, 1.0]], [0, 1]), ([[0.0, 0.5]], [0])]
    >>> temperature, table = choose_temperature(Start("eye", head), parts)
    >>> temperature, len(table)
    (0.5623, 25)
    """
    totals, samples = np.zeros(len(temperatures)), 0
    for place, (X, y) in enumerate(parts):
        totals += cross_entropy_sums(start, X, y, temperatures, whose=f"client {place}")
        samples += len(np.asarray(y))
    if not samples:
        raise NotEnoughDataError("no client has a sample, so no temperature is better than another")
    return best_temperature(totals, temperatures)
