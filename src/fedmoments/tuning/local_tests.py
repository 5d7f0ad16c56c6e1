"""Who is tested on what, where every client has a classifier of its own.

Either the test samples are dealt to clients, those of class c in proportion to n_kc, so that every client is tested on
the classes that it has, as often as it has them. Or every client holds out a share of its own samples, which keeps what
is particular to them (their domain, their author).
"""

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmoments.errors import InputError
from fedmoments.samples import DROPPED, Split
from fedmoments.samples.features import Features, Samples
from fedmoments.samples.splits.draws import shuffle
from fedmoments.tuning.draws import held_out, stream

__all__ = ["deal_tests", "hold_out_tests"]


def deal_tests(y: ArrayLike, cells: NDArray[np.int64], *, seed: int) -> Split:
    """Deal test samples to clients, those of class c in proportion to the training samples n_kc that they hold.

    A client gets T_c·n_kc/N_c of the T_c test samples of a class, rounded up or down: points 1 apart, of which the
    first is drawn, are laid on the line on which clients have lengths of their proportion, so that the expected number
    is exact. Every sample is dealt once, but for classes that no client holds.

    Parameters
    ----------
    y
        (n,) labels of the test samples.
    cells
        (K, C) n_kc.
    seed
        What follows from it: which samples a client gets, and which way numbers are rounded.

    Examples
    --------
    >>> dealt = deal_tests([0, 0, 0, 0, 1, 1], np.array([[30, 0], [10, 5]]), seed=0)
    >>> dealt.cells([0, 0, 0, 0, 1, 1], 2).toarray()
    array([[3, 0],
           [1, 2]])
    """
    labels = np.asarray(y, np.int64)
    K, C = cells.shape
    if len(labels) and not (labels.min() >= 0 and labels.max() < C):
        raise InputError(f"test labels must be from 0 to {C - 1}, but go from {labels.min()} to {labels.max()}")
    clients = np.full(len(labels), DROPPED, np.int64)
    for label in np.unique(labels):
        rows, held = np.flatnonzero(labels == label), cells[:, label]
        if not held.sum():
            continue
        drawn = stream(seed, "local tests", int(label))
        points = np.arange(len(rows)) + drawn.random()
        ends = np.cumsum(held) * (len(rows) / held.sum())
        ends[-1] = len(rows)
        clients[rows[shuffle(drawn, len(rows))]] = np.searchsorted(ends, points, side="right")
    lost = int((clients == DROPPED).sum())
    why = f"No client holds the classes of {lost:,} test samples." if lost else ""
    return Split(clients, n_clients=K, scheme="as training samples", why=why)


def hold_out_tests(features: Features, split: Split, share: float, *, seed: int) -> tuple[Features, Split, Split]:
    """Let every client hold out a share of its own samples to be tested on.

    Parameters
    ----------
    features
        Its test samples are not used.
    split
        Who holds which training sample.
    share
        Of each client's samples, rounded down; above 0 and below 1.
    seed
        Draws them.

    Returns
    -------
    tuple
        Features whose test part is what was held out, the split of the rest, and that of the test part.

    Examples
    --------
    >>> part = Samples(np.arange(8.0)[:, None], np.arange(8) % 2)
    >>> split = Split(np.array([0, 0, 0, 0, 1, 1, 1, 1]), n_clients=2, scheme="by hand")
    >>> rest, mine, tests = hold_out_tests(Features("toy", 2, part), split, 0.5, seed=0)
    >>> mine.sizes, tests.sizes, sorted([*rest.train.X[:, 0], *rest.test.X[:, 0]]) == list(range(8))
    (array([2, 2]), array([2, 2]), True)
    """
    if not 0 < share < 1:
        raise InputError(f"the share that clients hold out is above 0 and below 1, not {share}")
    tested = np.zeros(len(split.clients), np.bool_)
    for client, mine in enumerate(split):
        tested[mine[held_out(len(mine), share, seed=seed, client=str(client))[1]]] = True
    if not tested.any():
        raise InputError(
            f"no client has enough samples to hold out {share:g} of them; the largest has {split.sizes.max()}: hold "
            "out more, or split over fewer clients"
        )
    train = features.train
    rest = replace(
        features,
        train=Samples(train.X[~tested], train.y[~tested]),
        test=Samples(train.X[tested], train.y[tested]),
        domains=None if features.domains is None else features.domains[~tested],
        ids=None if features.ids is None else features.ids[~tested],
        groups=None if features.groups is None else features.groups[~tested],
    )
    kept, dealt = split.clients[~tested], split.clients[tested]
    return rest, replace(split, clients=kept), replace(split, clients=dealt, why="")
