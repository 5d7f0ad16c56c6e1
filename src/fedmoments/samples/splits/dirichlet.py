r"""Label skew by Dirichlet draws, per client and per class.

Per client (Hsu et al. 2019, as in FedNCM and FedCOF): client k draws class proportions :math:`p_k \sim Dir_C(α)`
and takes ⌊N/K⌋ samples by them. Clients have equal sizes.

Per class (GH-OFL): class c draws client proportions :math:`q_c \sim Dir_K(α)` and is divided by them. Every sample
has a client; sizes differ, and clients may be empty.

Small α is strong skew: 0.1 is the papers' choice, 0.01 nearly one class a client, 100 nearly iid. α = 0 is read as
Fed3R reads it, one class a client: see :func:`~fedmoments.samples.classes_per_client`.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmoments.samples.splits.deal import Cells, Groups, deal, group
from fedmoments.samples.splits.draws import (
    Seed,
    apportion,
    check_alpha,
    check_count,
    generator,
    log_dirichlet,
    multinomial,
    shuffle,
)
from fedmoments.samples.splits.pathological import classes_per_client
from fedmoments.samples.splits.scheme import Request, Scheme, alpha
from fedmoments.samples.splits.split import Split

__all__ = ["dirichlet_per_class", "dirichlet_per_client"]


def dirichlet_per_client(y: ArrayLike, n_clients: int, alpha: float, seed: Seed) -> Split:
    """Give every client ⌊N/K⌋ samples, by class proportions that it draws from Dir(α).

    A client takes one sample after another, without replacement. When a class has run out, the rest of the client's
    proportions are renormalised, so clients that come late take what is left: that is the price of equal sizes. The
    N − K·⌊N/K⌋ samples that remain are dropped and reported; with more clients than samples that is all of them.

    Parameters
    ----------
    y
        (n,), class labels: whole numbers or text, not necessarily contiguous.
    n_clients
        Number of clients K, at least 1.
    alpha
        Concentration, at least 0. With 0 the split is `classes_per_client` with the fewest classes a client that
        drop no sample (one, when there are as many clients as classes); its sizes need not be equal.
    seed
        A whole number, or a generator (which is advanced). Independent of the numpy release.

    Returns
    -------
    Split
        The client of every sample.

    Examples
    --------
    >>> split = dirichlet_per_client(np.arange(1003) % 10, n_clients=20, alpha=0.1, seed=0)
    >>> sorted(set(split.sizes.tolist())), len(split.dropped)
    ([50], 3)
    """
    groups = group(y, "labels")
    n_clients = check_count(n_clients, "n_clients")
    alpha = check_alpha(alpha, zero=True)
    scheme = f"dirichlet-client:{alpha:.15g}"
    if alpha == 0:
        return _fewest_classes(y, groups, n_clients, scheme, seed)
    rng = generator(seed)
    n = len(groups.codes)
    size, dropped = divmod(n, n_clients)
    cells = _equal_draws(rng, groups.sizes, n_clients, size, alpha)
    why = f"Clients have equal sizes, and {n} samples for {n_clients} clients leave a rest of {dropped}."
    return Split(deal(rng, groups, cells), n_clients, scheme, why=why if dropped else "")


def dirichlet_per_class(y: ArrayLike, n_clients: int, alpha: float, seed: Seed) -> Split:
    """Divide every class over the clients, by proportions that it draws from Dir(α). Nothing is dropped.

    Cumulative proportions, in an order that is random for each class, are rounded, so the counts of a class sum to
    its size exactly. Clients may be empty, and with small α many are.

    Parameters
    ----------
    y
        (n,), class labels: whole numbers or text, not necessarily contiguous.
    n_clients
        Number of clients K, at least 1.
    alpha
        Concentration, at least 0. With 0 the split is `classes_per_client` with the fewest classes a client that
        drop no sample: one, when there are as many clients as classes.
    seed
        A whole number, or a generator (which is advanced). Independent of the numpy release.

    Returns
    -------
    Split
        The client of every sample.

    Examples
    --------
    >>> split = dirichlet_per_class(np.arange(1000) % 10, n_clients=20, alpha=0.1, seed=0)
    >>> int(split.sizes.sum()), len(split.dropped)
    (1000, 0)
    """
    groups = group(y, "labels")
    n_clients = check_count(n_clients, "n_clients")
    alpha = check_alpha(alpha, zero=True)
    scheme = f"dirichlet-class:{alpha:.15g}"
    if alpha == 0:
        return _fewest_classes(y, groups, n_clients, scheme, seed)
    rng = generator(seed)
    clients, counts = [], []
    for size in groups.sizes.tolist():
        # Shares are exchangeable, so their order is free. Without the shuffle, classes of one size with nearly equal
        # shares would be rounded up at the same clients, and the other clients would be empty.
        shares = apportion(size, log_dirichlet(rng, alpha, n_clients))[shuffle(rng, n_clients)]
        clients.append(np.flatnonzero(shares))
        counts.append(shares[clients[-1]])
    classes = np.repeat(np.arange(len(clients)), [len(holders) for holders in clients])
    cells = Cells(np.concatenate(clients), classes, np.concatenate(counts))
    return Split(deal(rng, groups, cells), n_clients, scheme)


def _fewest_classes(y: ArrayLike, groups: Groups, n_clients: int, scheme: str, seed: Seed) -> Split:
    """Read α = 0: one class a client, or as few more as it takes to drop none."""
    fewest = -(-len(groups.keys) // n_clients)
    return classes_per_client(y, n_clients, fewest, seed).renamed(scheme)


def _equal_draws(
    rng: np.random.Generator, available: NDArray[np.int64], n_clients: int, size: int, alpha: float
) -> Cells:
    """How many samples of a class each client takes, one client after another."""
    left = available.copy()
    classes, counts = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
    cells = np.zeros(n_clients, dtype=np.int64)
    for k in range(n_clients if size else 0):
        taken = _take(rng, left, size, log_dirichlet(rng, alpha, len(left)))
        left -= taken
        held = np.flatnonzero(taken)
        classes.append(held)
        counts.append(taken[held])
        cells[k] = len(held)
    return Cells(np.repeat(np.arange(n_clients), cells), np.concatenate(classes), np.concatenate(counts))


def _take(rng: np.random.Generator, left: NDArray[np.int64], size: int, logs: NDArray[np.float64]) -> NDArray[np.int64]:
    """Draw `size` samples by proportions, at most `left` a class.

    Draws beyond what a class has left are rejected and drawn again from the other classes. This is sampling one by
    one with renormalisation, exactly: a rejected draw is a draw from a class that had run out. Each pass ends the
    draw or exhausts a class, so it ends. Logarithms are rescaled to the largest that is left, so there is always mass.
    """
    taken = np.zeros_like(left)
    while size:
        open_ = np.flatnonzero(taken < left)
        drawn = np.minimum(multinomial(rng, size, logs[open_]), (left - taken)[open_])
        taken[open_] += drawn
        size -= int(drawn.sum())
    return taken


def _per_class(request: Request, concentration: float) -> Split:
    return dirichlet_per_class(request.y, request.n_clients, concentration, request.seed)


def _per_client(request: Request, concentration: float) -> Split:
    return dirichlet_per_client(request.y, request.n_clients, concentration, request.seed)


SPLITS = (
    Scheme("dirichlet", "the same as dirichlet-class", (alpha(zero=True),), _per_class),
    Scheme("dirichlet-class", "each class is divided by Dirichlet shares", (alpha(zero=True),), _per_class),
    Scheme("dirichlet-client", "each client draws its class proportions", (alpha(zero=True),), _per_client),
)
