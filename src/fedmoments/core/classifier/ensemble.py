"""An ensemble of linear heads, each with its own softmax.

A member has a column for every class that it holds and one that all other classes share, so that K members of C classes
take M = Σ_k (|C_k| + 1) columns instead of K·C. With x_j the log of what column j gives to a class,

    score of c = log [ Σ over columns j of c: exp x_j  +  Σ over members k that do not hold c: exp x_rest(k) ].

The second sum is one product with a mask (K, C). Both are taken around the highest x of a sample; where that underflows
(far from all data), they are taken anew around the highest x of each class.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.classifier.base import Classifier, Floats
from fedmoments.core.linalg import blocks
from fedmoments.errors import InputError

__all__ = ["REST", "EnsembleClassifier"]

#: Numbers that the columns and scores of one block of samples may take.
BLOCK_NUMBERS = 1 << 21
#: Label of the column that all classes share that a member does not hold.
REST = -1


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class EnsembleClassifier(Classifier, kind="ensemble"):
    """Scores log Σ_k π_k softmax(x·W_k + b_k): the log of probabilities that K linear heads have mixed.

    Parameters
    ----------
    weights
        (d, M) columns of all members, those of one member together.
    bias
        (M,).
    labels
        (M,) class of every column; −1 for the one that all classes share that the member does not hold. A member with
        a column for every class has no such column.
    starts
        (K,) first column of every member, ascending from 0.
    mixing
        π, (K,), not negative, summing to 1.
    present, class_names, feature_map, info
        See :class:`fedmoments.core.classifier.Classifier`.

    Examples
    --------
    >>> both = np.array([True, True])
    >>> clf = EnsembleClassifier(
    ...     weights=np.array([[0.0, 9.0, 1.0, 0.0]]),
    ...     bias=np.zeros(4),
    ...     labels=np.array([0, 1, 0, -1]),
    ...     starts=np.array([0, 2]),
    ...     mixing=np.array([0.5, 0.5]),
    ...     present=both,
    ... )
    >>> clf.predict_proba([[1.0], [0.0]]).round(3)
    array([[0.366, 0.634],
           [0.5  , 0.5  ]])
    """

    weights: NDArray[np.float64]
    bias: NDArray[np.float64]
    labels: NDArray[np.int64]
    starts: NDArray[np.int64]
    mixing: NDArray[np.float64]

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.weights.ndim != 2:
            raise InputError(f"an ensemble's weights must have the shape (d, columns), not {self.weights.shape}")
        columns, members = self.weights.shape[1], len(self.mixing)
        wanted = {"bias": columns, "labels": columns, "starts": members, "mixing": members}
        for name, length in wanted.items():
            if getattr(self, name).shape != (length,) or not members:
                raise InputError(
                    f"an ensemble's {name} must have the shape ({length},) with one member or more, "
                    f"not {getattr(self, name).shape}"
                )
        if not ((self.mixing >= 0).all() and np.isclose(self.mixing.sum(), 1.0)):
            raise InputError(f"an ensemble's mixing must not be negative and must sum to 1, not to {self.mixing.sum()}")
        self._check_columns()

    def _check_columns(self) -> None:
        """Refuse columns that do not give every class one score a member."""
        for name in ("labels", "starts"):
            if getattr(self, name).dtype.kind not in "iu":
                raise InputError(f"an ensemble's {name} must be whole numbers, not {getattr(self, name).dtype}")
        if self.starts[0] != 0 or (np.diff(self.starts) <= 0).any() or self.starts[-1] >= len(self.labels):
            raise InputError(
                f"an ensemble's starts must ascend from 0 to below {len(self.labels)}, its columns, "
                f"but they go from {self.starts[0]} to {self.starts[-1]} with a smallest step of "
                f"{np.diff(self.starts).min(initial=len(self.labels))}"
            )
        if self.labels.min() < REST or self.labels.max() >= self.n_classes:
            raise InputError(
                f"an ensemble's labels must be from {REST} to {self.n_classes - 1} ({self.n_classes} classes), "
                f"but they go from {self.labels.min()} to {self.labels.max()}"
            )
        keys = self._member * (self.n_classes + 1) + self.labels
        rests = np.bincount(self._member[self.labels == REST], minlength=len(self.starts))
        wrong = (rests > 0) != (self._n_absent > 0)
        order = np.argsort(keys, kind="stable")
        wrong[self._member[order[1:][np.diff(keys[order]) == 0]]] = True
        if wrong.any():
            member = int(np.argmax(wrong))
            raise InputError(
                f"each member of an ensemble must have one column for a class that it holds, and one labelled {REST} "
                f"if there are others; member {member} of this one with {self.n_classes} classes has columns labelled "
                f"{self.labels[self._member == member].tolist()}"
            )

    @property
    def dim(self) -> int:
        return int(self.weights.shape[0])

    @cached_property
    def _member(self) -> NDArray[np.int64]:
        """Member (M,) of every column."""
        return np.repeat(np.arange(len(self.starts)), np.diff(np.append(self.starts, len(self.labels))))

    @cached_property
    def _n_absent(self) -> NDArray[np.int64]:
        """How many classes each member does not hold, (K,)."""
        return self.n_classes - np.bincount(self._member[self.labels != REST], minlength=len(self.starts))

    def _scores(self, Z: Floats, arrays: Mapping[str, NDArray[np.floating[Any]]]) -> Floats:
        scores = np.empty((len(Z), self.n_classes), Z.dtype)
        resting = np.flatnonzero(self.labels == REST)
        absent = np.ones((len(self.starts), self.n_classes), Z.dtype)
        held = [own[self.labels[own] != REST] for own in self._members()]
        for member, own in enumerate(held):
            absent[member, self.labels[own]] = 0.0
        absent = absent[self._member[resting]]
        least = np.finfo(Z.dtype).tiny / np.finfo(Z.dtype).eps ** 2
        # NaN and infinite features are reported by the caller, in words; a member that weighs nothing has log 0
        with np.errstate(invalid="ignore", divide="ignore"):
            for rows in blocks(len(Z), max(1, BLOCK_NUMBERS // (len(self.labels) + self.n_classes))):
                given = self._given(Z[rows], arrays)
                highest = given.max(axis=1, keepdims=True)
                raised = np.exp(given - highest)
                total = raised[:, resting] @ absent
                for own in held:
                    total[:, self.labels[own]] += raised[:, own]
                scores[rows] = np.log(total) + highest
                lost = np.flatnonzero((total < least).any(axis=1))
                if len(lost):
                    scores[rows.start + lost] = self._far(given[lost])
        return scores

    def _given(self, Z: Floats, arrays: Mapping[str, NDArray[np.floating[Any]]]) -> Floats:
        """Return the log of what every column gives to a class, (n, M): π_k softmax(x·W_k + b_k)."""
        given = Z @ arrays["weights"]
        given += arrays["bias"]
        given -= np.maximum.reduceat(given, self.starts, axis=1)[:, self._member]
        times = np.where(self.labels == REST, self._n_absent[self._member], 1).astype(Z.dtype)
        sums = np.add.reduceat(np.exp(given) * times, self.starts, axis=1)
        given -= (np.log(sums) - np.log(arrays["mixing"]))[:, self._member]
        return np.asarray(given)

    def _far(self, given: Floats) -> Floats:
        """Return scores (n, C), every sum around the highest of its own terms: finite where probabilities underflow."""
        highest = np.full((len(given), self.n_classes), -np.inf, given.dtype)
        for own in self._members():
            np.maximum(highest, given[:, self._column_of(own)], out=highest)
        total = np.zeros_like(highest)
        for own in self._members():
            total += np.exp(given[:, self._column_of(own)] - highest)
        return np.asarray(np.log(total) + highest)

    def _members(self) -> list[NDArray[np.int64]]:
        """Return the columns of every member."""
        return np.split(np.arange(len(self.labels)), self.starts[1:])

    def _column_of(self, own: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the column (C,) that gives each class its score in the member with these columns."""
        labels = self.labels[own]
        columns = np.full(self.n_classes, own[labels == REST][0] if (labels == REST).any() else 0)
        columns[labels[labels != REST]] = own[labels != REST]
        return columns
