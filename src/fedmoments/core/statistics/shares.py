"""Splitting a client's class into disjoint random shares, so that it can send several means (FedCOF §4.2).

The i-th sample of a class (in the order of the client's stream) falls into block i // s, and each block of s
consecutive samples is dealt to the s shares in a random order of its own. So shares differ by at most one sample, are
drawn without replacement, need no knowledge of the stream's length, and do not depend on how it was cut into batches.
The random order comes from SplitMix64 of (seed, class, i): the same on every machine and library version.
"""

import numpy as np
from numpy.typing import NDArray

__all__ = ["deal_shares", "mixed"]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_A = np.uint64(0xBF58476D1CE4E5B9)
_MIX_B = np.uint64(0x94D049BB133111EB)


def mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the SplitMix64 finaliser of 64-bit words (wrapping arithmetic is intended)."""
    with np.errstate(over="ignore"):
        mixed = values + _GOLDEN
        mixed = (mixed ^ (mixed >> np.uint64(30))) * _MIX_A
        mixed = (mixed ^ (mixed >> np.uint64(27))) * _MIX_B
        return np.asarray(mixed ^ (mixed >> np.uint64(31)))


def deal_shares(labels: NDArray[np.int64], positions: NDArray[np.int64], n_shares: int, seed: int) -> NDArray[np.int64]:
    """Return the share, 0 … n_shares−1, of every sample.

    Parameters
    ----------
    labels
        (n,) class of every sample.
    positions
        (n,) how many samples of the same class came before it in the client's stream.
    n_shares
        Number of shares s.
    seed
        Any integer; public.

    Examples
    --------
    >>> deal_shares(np.zeros(6, int), np.arange(6), 2, seed=0)
    array([0, 1, 0, 1, 1, 0])
    """
    if n_shares == 1:
        return np.zeros(len(labels), np.int64)
    start = mixed(np.full(1, seed % 2**64, np.uint64))
    stream = mixed(labels.astype(np.uint64) ^ start)[:, None]
    block = (positions // n_shares * n_shares)[:, None] + np.arange(n_shares)
    keys = mixed(mixed(block.astype(np.uint64)) ^ stream)
    own = np.take_along_axis(keys, (positions % n_shares)[:, None], axis=1)
    return np.asarray((keys < own).sum(axis=1))
