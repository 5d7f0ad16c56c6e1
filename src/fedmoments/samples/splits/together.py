"""Groups that stay together: all samples of a patient are at one client, whatever the scheme deals out."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fedmoments.errors import InputError
from fedmoments.samples.splits.deal import group
from fedmoments.samples.splits.split import DROPPED, Split

__all__ = ["kept_together"]


def kept_together(split: Split, groups: NDArray[np.generic], *, moving: bool) -> Split:
    """Return a split of which no two clients share a group.

    **Law** a split that keeps groups together already is returned as it is.

    Parameters
    ----------
    split
        Who holds which sample.
    groups
        (n,) what must stay together. Samples that the split drops stay dropped.
    moving
        Whether a group may move, whole, to the client that has most of it (of equals, the one that holds its first
        sample); otherwise one that two clients share is refused.

    Examples
    --------
    >>> split = Split(np.array([0, 1, 1, 0]), 2, "by hand")
    >>> kept_together(split, np.array(["ann", "ann", "ann", "bob"]), moving=True).clients
    array([1, 1, 1, 0])
    """
    held = group(groups, "groups")
    if len(held.codes) != len(split.clients):
        raise InputError(f"groups must be one a sample, {len(split.clients)}, but are {len(held.codes)}")
    mine = np.flatnonzero(split.clients != DROPPED)
    codes, clients = held.codes[mine], split.clients[mine]
    pairs, first, counts = np.unique(codes * split.n_clients + clients, return_index=True, return_counts=True)
    whose, where = np.divmod(pairs, split.n_clients)
    shared = np.flatnonzero(np.bincount(whose, minlength=len(held.keys)) > 1)
    if not len(shared):
        return split
    if not moving:
        names = split.names or tuple(str(client) for client in range(split.n_clients))
        holders = [names[client] for client in where[whose == shared[0]]]
        raise InputError(
            f"the group '{held.keys[shared[0]]}' has samples at {' and '.join(holders[:3])}"
            f"{' …' if len(holders) > 3 else ''} ({len(shared)} such groups in all): the split '{split.scheme}' is as "
            "the data say, so that its samples cannot be moved: leave the groups out, or split otherwise"
        )
    best = np.lexsort((first, -counts, whose))  # of each group the client with most samples comes first
    starts = np.unique(whose[best], return_index=True)[1]
    home = np.full(len(held.keys), DROPPED, np.int64)
    home[whose[best][starts]] = where[best][starts]
    whole = split.clients.copy()
    whole[mine] = home[codes]
    note = f"{len(shared):,} groups that were dealt to several clients are whole at one of them."
    return replace(split, clients=whole, notes=(*split.notes, note))
