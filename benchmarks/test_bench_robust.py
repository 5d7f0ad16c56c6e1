"""The filter of poisoned contributions over ten thousand clients, against medians taken one by one in plain numpy."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from fedmoments.core.statistics import Statistics, StatisticsSpec
from fedmoments.privacy.robust import suspects
from fedmoments.privacy.robust.centres import LOUDEST, Cells, class_centres, stack

N_CLIENTS, N_CLASSES, DIM, HELD = 10_000, 100, 512, 3
SPEC = StatisticsSpec()


@pytest.fixture(scope="module")
def parties() -> dict[int, Statistics]:
    """Return statistics of clients that hold three classes each."""
    rng = np.random.default_rng(0)
    means = rng.normal(size=(N_CLASSES, DIM))
    found = {}
    for client in range(N_CLIENTS):
        classes = np.sort(rng.choice(N_CLASSES, HELD, replace=False))
        counts = rng.integers(1, 20, HELD)
        sums = (means[classes] + rng.normal(size=(HELD, DIM)) / np.sqrt(counts)[:, None]) * counts[:, None]
        found[client] = Statistics(SPEC, N_CLASSES, DIM, classes, counts, {"sums": sums})
    return found


def naive_centres(cells: Cells) -> NDArray[np.float64]:
    """Return weighted medians of all classes, a coordinate at a time."""
    centres = np.zeros((cells.n_classes, cells.means.shape[1]))
    for label in range(cells.n_classes):
        mine = cells.labels == label
        roots = np.sqrt(cells.counts[mine])
        weights = np.minimum(roots, LOUDEST * np.median(roots))
        for place, column in enumerate(cells.means[mine].T):
            order = np.argsort(column, kind="stable")
            reached = np.cumsum(weights[order])
            centres[label, place] = column[order[np.searchsorted(reached, reached[-1] / 2 * (1 - 1e-12))]]
    return centres


def test_medians_of_all_classes(compare: Callable[..., float], parties: dict[int, Statistics]) -> None:
    cells = stack(parties)
    everybody = np.ones(len(cells.labels), bool)
    assert np.array_equal(class_centres(cells, everybody)[0], naive_centres(cells))
    compare(
        "robust centres of 100 classes, 30,000 means",
        lambda: class_centres(cells, everybody),
        lambda: naive_centres(cells),
        at_most=1.1,
        rounds=3,
    )


def test_the_whole_filter(compare: Callable[..., float], parties: dict[int, Statistics]) -> None:
    cells = stack(parties)
    everybody = np.ones(len(cells.labels), bool)
    assert suspects(parties, checked=True).dropped == {}
    compare(
        "robust filter of 10,000 clients, against its medians alone",
        lambda: suspects(parties, checked=True),
        lambda: class_centres(cells, everybody),
        at_most=4.0,
        rounds=3,
    )
