"""Local heads: what a client sends, how the server reads them, what each client weighs, and their average."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.classifier import EnsembleClassifier, LinearClassifier
from fedmoments.core.classifier.ensemble import REST
from fedmoments.study.baselines.baseline import (
    Baseline,
    Upload,
    check_choice,
    check_number,
    check_samples,
    classes_held,
    counts_of,
)
from fedmoments.study.baselines.local_head import DECAY, LocalHead, fit_local_head

__all__ = ["SentHeads", "average_head", "client_shares", "ensemble_of", "read_heads"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class SentHeads(Baseline):
    """A baseline whose clients fit a linear head each and send it.

    Parameters
    ----------
    decay
        Penalty of the local heads; see :mod:`fedmoments.study.baselines.local_head`.
    weighting
        What a client counts for: ``uniform``, the same for all, or by its ``samples``.
    """

    sends: ClassVar[str] = "a linear head"

    decay: float = DECAY
    weighting: str = "uniform"

    def __post_init__(self) -> None:
        check_number("decay", self.decay)
        check_choice("weighting", self.weighting, ["uniform", "samples"])

    def most_floats(self, dim: int, held: int) -> int:
        return (dim + 1) * held

    def local(self, X: Floats, y: NDArray[np.int64], *, n_classes: int, seed: int) -> Upload:  # noqa: ARG002
        X, y = check_samples(X, y, n_classes)
        head = fit_local_head(X, y, n_classes=n_classes, decay=self.decay)
        return Upload(head.arrays(), np.bincount(y, minlength=n_classes))


def read_heads(uploads: Sequence[Upload]) -> list[LocalHead]:
    """Return the heads that clients sent.

    Examples
    --------
    >>> from fedmoments.study.baselines.local_head import fit_local_head
    >>> head = fit_local_head(np.array([[0.0], [1.0]]), np.array([1, 2]), n_classes=3)
    >>> again = read_heads([Upload(head.arrays(), np.array([0, 1, 1]))])[0]
    >>> again.labels, again.n_absent
    (array([1, 2]), 1)
    """
    counts = counts_of(uploads)
    return [
        LocalHead(np.flatnonzero(held), upload.arrays["weights"], upload.arrays["bias"], counts.shape[1])
        for upload, held in zip(uploads, counts, strict=True)
    ]


def client_shares(counts: NDArray[np.int64], weighting: str) -> Floats:
    """Return what each client weighs, (K,), summing to 1: ``uniform``, or by ``samples``; counts are (K, C).

    Examples
    --------
    >>> client_shares(np.array([[3, 0], [0, 1]]), "samples")
    array([0.75, 0.25])
    """
    sizes = counts.sum(axis=1, dtype=np.float64)
    shares = sizes if weighting == "samples" else np.ones(len(counts))
    return np.asarray(shares / shares.sum())


def average_head(uploads: Sequence[Upload], weighting: str) -> LinearClassifier:
    """Return the average of the heads that clients sent.

    Examples
    --------
    >>> from fedmoments.study.baselines.local_head import fit_local_head
    >>> head = fit_local_head(np.array([[0.0], [1.0]]), np.array([0, 1]), n_classes=2)
    >>> sent = Upload(head.arrays(), np.array([1, 1]))
    >>> bool(np.allclose(average_head([sent, sent], "samples").weights, head.weights))
    True
    """
    counts = counts_of(uploads)
    weights = np.zeros((uploads[0].arrays["weights"].shape[0], counts.shape[1]))
    bias = np.zeros(counts.shape[1])
    for share, head in zip(client_shares(counts, weighting), read_heads(uploads), strict=True):
        own_weights, own_bias = head.expand()
        weights += share * own_weights
        bias += share * own_bias
    return LinearClassifier(weights=weights, bias=bias, present=classes_held(uploads))


def ensemble_of(uploads: Sequence[Upload], shares: Floats) -> EnsembleClassifier:
    """Return the ensemble of the heads that clients sent, client k weighing shares[k].

    Examples
    --------
    >>> from fedmoments.study.baselines.local_head import fit_local_head
    >>> head = fit_local_head(np.array([[0.0], [1.0]]), np.array([0, 1]), n_classes=2)
    >>> ensemble_of([Upload(head.arrays(), np.array([1, 1]))], np.ones(1)).predict([[0.1], [0.9]])
    array([0, 1])
    """
    heads = read_heads(uploads)
    columns = [head.columns() for head in heads]
    # Absent classes share the last column of a head, if there are any.
    labels = [np.append(head.labels, [REST] * (head.n_absent > 0)).astype(np.int64) for head in heads]
    return EnsembleClassifier(
        weights=np.concatenate([weights for weights, _ in columns], axis=1),
        bias=np.concatenate([bias for _, bias in columns]),
        labels=np.concatenate(labels),
        starts=np.cumsum([0, *map(len, labels[:-1])]),
        mixing=shares,
        present=classes_held(uploads),
    )
