"""The probabilities that local heads mix to, and how they change with the features: what makes synthetic features.

P = Σ_k π_k softmax(u·W_k + b_k). For a function F of P with G = ∂F/∂P, and p_k the softmax of client k,

    ∂F/∂u = Σ_k π_k [p_k ⊙ (G − ⟨G, p_k⟩)] W_kᵀ

Absent classes of a client share one column, so that all its work is done in |C_k| + 1 columns.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedmoments.study.baselines.local_head import LocalHead

__all__ = ["HeadMixture", "Mixed"]

Narrow = NDArray[np.float32]

#: Mixed probabilities are not let below this: logs and quotients of them stay finite in float32.
LEAST = np.float32(1e-30)


@dataclass(frozen=True, eq=False)
class Mixed:
    """Probabilities of some features.

    Parameters
    ----------
    probabilities
        P, (n, C).
    own
        Of every client, (n, c) probabilities of the classes that it holds.
    rest
        (K, n) probability that each client gives to *each* class that it does not hold.
    """

    probabilities: Narrow
    own: tuple[Narrow, ...]
    rest: Narrow


@dataclass(frozen=True, eq=False)
class HeadMixture:
    """Local heads that see features u with x = offset + scale ⊙ u.

    Parameters
    ----------
    heads
        One a client.
    offset, scale
        (d,) each. A scale of 0 holds a coordinate at its offset.
    """

    heads: Sequence[LocalHead]
    offset: NDArray[np.float64]
    scale: NDArray[np.float64]

    @cached_property
    def _seen(self) -> tuple[tuple[Narrow, Narrow], ...]:
        """Weights (d, c or c + 1) and bias of every head, in u."""
        seen = []
        for weights, bias in (head.columns() for head in self.heads):
            scaled, shifted = self.scale[:, None] * weights, bias + self.offset @ weights
            seen.append((scaled.astype(np.float32), shifted.astype(np.float32)))
        return tuple(seen)

    @property
    def n_classes(self) -> int:
        """C."""
        return self.heads[0].n_classes

    def mix(self, U: Narrow, shares: NDArray[np.floating]) -> Mixed:
        """Return the probabilities of features U (n, d) when client k weighs shares[k].

        Examples
        --------
        >>> from fedmoments.study.baselines.local_head import fit_local_head
        >>> head = fit_local_head(np.array([[0.0], [1.0]]), np.array([0, 1]), n_classes=3)
        >>> mixture = HeadMixture([head], np.zeros(1), np.ones(1))
        >>> mixture.mix(np.array([[0.5]], np.float32), np.ones(1)).probabilities.round(2)
        array([[0.5, 0.5, 0. ]], dtype=float32)
        """
        by_client = list(self._by_client(U))
        P = self._mixed(by_client, len(U), shares)
        return Mixed(P, tuple(own for own, _ in by_client), np.stack([rest for _, rest in by_client]))

    def probabilities(self, U: Narrow, shares: NDArray[np.floating]) -> Narrow:
        """Return the mixed probabilities (n, C) alone: no client's own are kept.

        Examples
        --------
        >>> from fedmoments.study.baselines.local_head import fit_local_head
        >>> head = fit_local_head(np.array([[0.0], [1.0]]), np.array([0, 1]), n_classes=3)
        >>> HeadMixture([head], np.zeros(1), np.ones(1)).probabilities(np.array([[0.5]], np.float32), np.ones(1)).shape
        (1, 3)
        """
        return self._mixed(self._by_client(U), len(U), shares)

    def _by_client(self, U: Narrow) -> Iterator[tuple[Narrow, Narrow]]:
        """Yield what every client gives to the classes that it holds, (n, c), and to each of the others, (n,)."""
        for head, (weights, bias) in zip(self.heads, self._seen, strict=True):
            scores = U @ weights + bias
            scores -= scores.max(axis=1, keepdims=True)
            np.exp(scores, out=scores)
            held = len(head.labels)
            total, rest = scores[:, :held].sum(axis=1), np.zeros(len(U), np.float32)
            if head.n_absent:
                total += head.n_absent * scores[:, held]
                rest = scores[:, held] / total
            yield scores[:, :held] / total[:, None], rest

    def _mixed(self, by_client: Iterable[tuple[Narrow, Narrow]], n: int, shares: NDArray[np.floating]) -> Narrow:
        """Return the mixed probabilities (n, C) of what every client gives."""
        P, resting = np.zeros((n, self.n_classes), np.float32), np.zeros(n, np.float32)
        for head, share, (own, rest) in zip(self.heads, shares.astype(np.float32), by_client, strict=True):
            P[:, head.labels] += share * (own - rest[:, None])
            resting += share * rest
        P += resting[:, None]
        return np.asarray(np.maximum(P, LEAST, out=P))

    def pull(self, mixed: Mixed, G: Narrow, shares: NDArray[np.floating]) -> Narrow:
        """Return ∂F/∂u, (n, d), for G = ∂F/∂P, (n, C), at the features whose probabilities are ``mixed``."""
        gradient = np.zeros((len(G), len(self.offset)), np.float32)
        everywhere = G.sum(axis=1)
        for k, (head, (weights, _)) in enumerate(zip(self.heads, self._seen, strict=True)):
            own, rest, share = mixed.own[k], mixed.rest[k], np.float32(shares[k])
            wanted = G[:, head.labels]
            absent = everywhere - wanted.sum(axis=1)
            mean = np.einsum("nc,nc->n", wanted, own) + rest * absent
            slope = np.empty((len(G), weights.shape[1]), np.float32)
            held = len(head.labels)
            slope[:, :held] = share * own * (wanted - mean[:, None])
            if head.n_absent:
                slope[:, held] = share * rest * (absent - head.n_absent * mean)
            gradient += slope @ weights.T
        return gradient

    def of_label(self, mixed: Mixed, labels: NDArray[np.int64]) -> Narrow:
        """Return what every client gives to each sample's label, (K, n)."""
        given = mixed.rest.copy()
        for k, head in enumerate(self.heads):
            place = np.full(self.n_classes, -1)
            place[head.labels] = np.arange(len(head.labels))
            where = place[labels]
            held = where >= 0
            given[k, held] = mixed.own[k][held, where[held]]
        return given
