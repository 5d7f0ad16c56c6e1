"""A fixed number of classes a client: the pathological split of McMahan et al. (2017), and Dirichlet's α = 0."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmoments.errors import InputError
from fedmoments.samples.splits.deal import Cells, deal, group
from fedmoments.samples.splits.draws import Seed, check_count, even_sizes, generator, shuffle
from fedmoments.samples.splits.scheme import Request, Scheme, count
from fedmoments.samples.splits.split import Split

__all__ = ["classes_per_client"]


def classes_per_client(y: ArrayLike, n_clients: int, n_classes_per_client: int, seed: Seed) -> Split:
    """Give every client samples of exactly m classes; the clients that share a class divide it evenly.

    Classes have as equal numbers of holders as can be, and never more holders than samples. So

    - when K·m is at least the number of classes, every class has a holder and nothing is dropped;
    - when it is less, K·m classes, chosen at random, have one holder each, and the others are dropped;
    - when the samples are too few for m classes at every client (K·m > Σ_c min(N_c, K)), the clients that come last
      in a random order hold fewer, or none, and `Split.notes` says how many.

    Parameters
    ----------
    y
        (n,), class labels: whole numbers or text, not necessarily contiguous.
    n_clients
        Number of clients K, at least 1.
    n_classes_per_client
        Number m of classes a client, from 1 to the number of classes in `y`.
    seed
        A whole number, or a generator (which is advanced). Independent of the numpy release.

    Returns
    -------
    Split
        The client of every sample.

    Examples
    --------
    >>> y = np.arange(1000) % 10
    >>> split = classes_per_client(y, n_clients=20, n_classes_per_client=2, seed=0)
    >>> [len(set(y[samples].tolist())) for samples in split][:5]
    [2, 2, 2, 2, 2]
    """
    groups = group(y, "labels")
    n_clients = check_count(n_clients, "n_clients")
    m = check_count(n_classes_per_client, "n_classes_per_client")
    n_classes = len(groups.keys)
    if m > n_classes:
        raise InputError(
            f"n_classes_per_client must be at most the number of classes in the labels, {n_classes}, but is {m}: "
            f"take {n_classes} or fewer"
        )
    rng = generator(seed)
    holders = _holders(rng, np.minimum(groups.sizes, n_clients), n_clients * m)
    clients, classes = _choose(rng, holders, n_clients, m)
    cells = Cells(clients, classes, _even_counts(classes, groups.sizes))

    dropped = n_classes - len(np.unique(classes))
    why = f"{n_clients} clients with classes:{m} hold {n_clients * m} of {n_classes} classes; {dropped} have no holder."
    short = n_clients - int(np.count_nonzero(np.bincount(clients, minlength=n_clients) == m))
    note = f"{short} of {n_clients} clients hold fewer than {m} classes, because classes have too few samples to share."
    return Split(
        deal(rng, groups, cells),
        n_clients,
        f"classes:{m}",
        why=why if dropped else "",
        notes=(note,) if short else (),
    )


def _holders(rng: np.random.Generator, most: NDArray[np.int64], total: int) -> NDArray[np.int64]:
    """Share `total` places over classes as equally as can be, at most `most` a class; ties at random.

    Water filling: all classes get min(most, level) for the highest level that fits, and the places that are then
    left go one each to random classes that still have room.
    """
    total = min(total, int(most.sum()))
    low, high = 0, int(most.max())
    while low < high:
        level = (low + high + 1) // 2
        fits = int(np.minimum(most, level).sum()) <= total
        low, high = (level, high) if fits else (low, level - 1)
    holders = np.minimum(most, low)
    room = np.flatnonzero(most > low)
    holders[room[shuffle(rng, len(room))[: total - int(holders.sum())]]] += 1
    return holders


def _choose(
    rng: np.random.Generator, holders: NDArray[np.int64], n_clients: int, m: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Let clients, in random order, choose the m classes that want most holders; ties at random.

    Taking the most wanted first never paints itself into a corner (Gale and Ryser): when Σ holders = K·m, every client
    finds m different classes. When it is less, the last clients take all that is wanted, so no class is left without
    a holder.
    """
    wanted = holders.copy()
    clients, classes = [], []
    for k in shuffle(rng, n_clients).tolist():
        order = np.argsort(-(wanted + rng.random(len(wanted))), kind="stable")[:m]
        chosen = order[wanted[order] > 0]
        wanted[chosen] -= 1
        clients.append(np.full(len(chosen), k, dtype=np.int64))
        classes.append(chosen.astype(np.int64, copy=False))
    return np.concatenate(clients), np.concatenate(classes)


def _even_counts(classes: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many samples each (client, class) cell gets, when the cells of a class share it evenly."""
    counts = np.empty(len(classes), dtype=np.int64)
    by_class = np.argsort(classes, kind="stable")
    cells = np.bincount(classes, minlength=len(sizes))
    shares = [even_sizes(int(size), int(parts)) for size, parts in zip(sizes, cells, strict=True) if parts]
    counts[by_class] = np.concatenate(shares)
    return counts


def _classes(request: Request, n_classes: int) -> Split:
    return classes_per_client(request.y, request.n_clients, n_classes, request.seed)


SPLITS = (Scheme("classes", "each client holds this many classes", (count("CLASSES"),), _classes),)
