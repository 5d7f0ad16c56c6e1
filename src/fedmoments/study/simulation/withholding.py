"""What clients of a simulation keep back: the policy of a deployed client, applied to every part of a split."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fedmoments.federation.policy import ClientPolicy
from fedmoments.samples import DROPPED, Split

__all__ = ["withhold"]


def withhold(split: Split, labels: NDArray[np.int64], min_count: int, means_per_client: int = 1) -> Split:
    """Return the split without the samples that clients withhold.

    Parameters
    ----------
    split
        Who holds what.
    labels
        (n,) the class of every sample.
    min_count
        A client withholds a class of which it has fewer samples.
    means_per_client
        Into how many means a class is split; each must be over ``min_count`` samples or more.

    Examples
    --------
    >>> split = Split(np.array([0, 0, 0, 1]), n_clients=2, scheme="by hand")
    >>> withhold(split, np.array([0, 0, 1, 1]), min_count=2).clients
    array([ 0,  0, -1, -1])
    """
    if min_count <= 1:
        return split
    policy = ClientPolicy(min_count=min_count)
    clients = split.clients.copy()
    for mine in split:
        mask, _ = policy.select(labels[mine], means_per_client)
        clients[mine[~mask]] = DROPPED
    kept_back = int((clients == DROPPED).sum() - (split.clients == DROPPED).sum())
    if not kept_back:
        return split
    sentence = f"Clients withhold classes of fewer than {min_count} samples: {kept_back:,} samples."
    return replace(split, clients=clients, why=f"{split.why} {sentence}".strip())
