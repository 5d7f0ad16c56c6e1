"""Every random choice of tuning, from the plan's seed, the round and the client's name alone.

Nothing depends on what was drawn before, so that a run that was interrupted goes on with the same draws, and a client
draws the same batches in a simulation and in a deployment.
"""

import hashlib

import numpy as np
from numpy.typing import NDArray

from fedmoments.errors import InputError
from fedmoments.samples.splits.draws import shuffle

__all__ = ["batches", "drawn_clients", "held_out", "stream"]

Ints = NDArray[np.int64]


def stream(seed: int, *about: int | str) -> np.random.Generator:
    """Return the generator of one choice.

    Examples
    --------
    >>> stream(0, "batches", 3, "clinic").random() == stream(0, "batches", 3, "clinic").random()
    True
    >>> stream(0, "batches", 3, "clinic").random() == stream(0, "batches", 4, "clinic").random()
    False
    """
    sha = hashlib.sha256("\n".join(["fedmoments tuning", str(seed), *map(str, about)]).encode())
    return np.random.Generator(np.random.PCG64(int.from_bytes(sha.digest(), "big")))


def drawn_clients(n_clients: int, per_round: int, round_number: int, *, replacement: bool, seed: int) -> Ints:
    """Return the clients of a round, (κ,), distinct and ascending.

    Parameters
    ----------
    n_clients, per_round
        K and κ ≤ K.
    round_number
        From 1.
    replacement
        If not, the clients are shuffled and dealt out κ at a time; when fewer than κ are left, the round is filled up
        from the next shuffle with clients that it does not have yet.
    seed
        Of the plan.

    Examples
    --------
    >>> [drawn_clients(5, 2, t, replacement=False, seed=1).tolist() for t in (1, 2, 3, 4)]
    [[3, 4], [1, 2], [0, 2], [1, 4]]
    """
    if not 1 <= per_round <= n_clients:
        raise InputError(f"a round can have from 1 to {n_clients} clients, not {per_round}")
    if replacement:
        return np.sort(shuffle(stream(seed, "clients", round_number), n_clients)[:per_round])
    if per_round == n_clients:
        return np.arange(n_clients, dtype=np.int64)
    # Every K rounds each client has been drawn exactly κ times: dealing starts anew there, so that no round depends
    # on more than K before it. The whole deals before the last are run through one by one, not the rounds.
    block, place = divmod(round_number - 1, n_clients)
    first, last = place * per_round, (place + 1) * per_round
    deals, waiting = 0, np.zeros(0, np.int64)  # those of the deal before that open the round which this one fills up
    while True:
        dealt = shuffle(stream(seed, "clients", block, deals), n_clients)
        opened = np.zeros(n_clients, bool)
        opened[waiting] = True
        late = opened[dealt]
        line = np.concatenate([waiting, dealt[~late], dealt[late]])
        begins, deals = deals * n_clients - len(waiting), deals + 1
        ends = deals * n_clients
        if last <= ends:
            return np.sort(line[first - begins : last - begins])
        waiting = line[len(line) - ends % per_round :]


def batches(n: int, batch_size: int, *, seed: int, round_number: int, client: str, epochs: int = 1) -> list[Ints]:
    """Return the rows of every batch of a client's round, in order; each epoch visits every sample once.

    Parameters
    ----------
    n
        Samples that the client trains on.
    batch_size
        The last batch of an epoch may be smaller; 0 takes all samples at once.
    seed, round_number, client
        What the order depends on.
    epochs
        E.

    Examples
    --------
    >>> [rows.tolist() for rows in batches(5, 2, seed=0, round_number=1, client="clinic")]
    [[3, 1], [2, 4], [0]]
    """
    size = batch_size or max(n, 1)
    drawn = []
    for epoch in range(epochs):
        order = shuffle(stream(seed, "batches", round_number, client, epoch), n)
        drawn += [order[start : start + size] for start in range(0, n, size)]
    return drawn


def held_out(n: int, share: float, *, seed: int, client: str) -> tuple[Ints, Ints]:
    """Return the rows that a client trains on and those of its validation share, both ascending.

    Examples
    --------
    >>> train, validation = held_out(10, 0.25, seed=0, client="clinic")
    >>> len(train), len(validation)
    (8, 2)
    """
    size = int(share * n)
    order = shuffle(stream(seed, "validation", client), n)
    return np.sort(order[size:]), np.sort(order[:size])
