"""Samples that are both trained and tested on: the same content, or features that hardly differ.

A test sample is an **exact** duplicate if its content (a file's bytes, a text, a row of numbers) is that of a training
sample. It is a **near** one if its features differ from those of a training sample by at most 1 % of their length: an
image that was saved again, a sentence with another comma. Features that are given are compared as they are, so that
only equal rows count: their units are not known, and 1 % of a table's longest column says nothing of the others.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedmoments.samples.digests import sample_digests
from fedmoments.samples.samples import Samples

__all__ = ["NEAR", "Duplicates", "find_duplicates", "near_rows"]

Floats = NDArray[np.floating]

#: Share of its length by which the features of a near duplicate differ at most.
NEAR = 0.01
#: Rows of which the axis is found that tells most of them apart, and steps towards it.
_ROWS, _STEPS = 2000, 8


@dataclass(frozen=True, eq=False)
class Duplicates:
    """Which test samples are trained on, too.

    Parameters
    ----------
    exact, near
        (m,) of each test sample, whether its content, or else nearly its features, are those of a training sample.
    """

    exact: NDArray[np.bool_]
    near: NDArray[np.bool_]

    @property
    def any_kind(self) -> NDArray[np.bool_]:
        """Whether it is one or the other, (m,)."""
        return self.exact | self.near

    def sentence(self, *, dropped: bool) -> str:
        """Say what there is, in one sentence; nothing where there is none.

        Examples
        --------
        >>> Duplicates(np.array([True, False, False]), np.array([False, False, True])).sentence(dropped=True)
        '2 of 3 test samples are trained on, too (1 exactly, 1 nearly): they were left out'
        """
        exact, near = int(self.exact.sum()), int(self.near.sum())
        if not exact + near:
            return ""
        said = f"{exact + near:,} of {len(self.exact):,} test samples are trained on, too"
        what = "they were left out" if dropped else "accuracy flatters; --duplicates drop leaves them out"
        return f"{said} ({exact:,} exactly, {near:,} nearly): {what}"


def find_duplicates(train: Samples, test: Samples, features: tuple[Floats, Floats] | None = None) -> Duplicates:
    """Return which test samples are trained on, too.

    Parameters
    ----------
    train, test
        n and m samples.
    features
        (n, d) and (m, d) of an encoder; None: only content is compared.

    Examples
    --------
    >>> part = Samples(["a", "b", "c"], np.zeros(3, int), ("x",), "text")
    >>> find_duplicates(part, part.take(np.array([1]))).exact
    array([ True])
    """
    known = {row.tobytes() for row in sample_digests(train)}
    exact = np.array([row.tobytes() in known for row in sample_digests(test)], np.bool_)
    near = np.zeros(len(test), np.bool_) if features is None else near_rows(*features)
    return Duplicates(exact, near & ~exact)


def near_rows(train: Floats, test: Floats, share: float = NEAR) -> NDArray[np.bool_]:
    """Return which rows of test (m, d) are within a share of their length of a row of train (n, d).

    Two rows differ along any axis by at most what they differ by. So only rows that are near along the axis that tells
    most of them apart are compared; none is missed.

    Examples
    --------
    >>> near_rows(np.eye(3), np.array([[1.0, 0.001, 0.0], [0.5, 0.5, 0.0]]))
    array([ True, False])
    """
    if not len(train) or not len(test):
        return np.zeros(len(test), np.bool_)
    axis = _widest_axis(train)
    along = np.asarray(train @ axis, np.float64)
    order = np.argsort(along, kind="stable")
    lengths = np.sqrt(np.einsum("nd,nd->n", test, test, dtype=np.float64))
    # A little more than the share, for projections are rounded.
    reach, places = (
        share * lengths * (1 + 1e-3) + 1e-6 * np.abs(along).max(initial=0),
        np.asarray(test @ axis, np.float64),
    )
    first = np.searchsorted(along[order], places - reach, "left")
    last = np.searchsorted(along[order], places + reach, "right")
    found = np.zeros(len(test), np.bool_)
    for row in np.flatnonzero(first < last):
        away = train[order[first[row] : last[row]]].astype(np.float64) - test[row]
        found[row] = bool((np.einsum("nd,nd->n", away, away) <= (share * lengths[row]) ** 2).any())
    return found


def _widest_axis(rows: Floats) -> Floats:
    """Return a unit vector (d,) along which rows (n, d) vary about as much as along any."""
    some = np.asarray(rows[:: max(1, len(rows) // _ROWS)], np.float64)
    away = some - some.mean(axis=0)
    axis = np.ones(rows.shape[1]) / np.sqrt(rows.shape[1])
    for _ in range(_STEPS):
        step = away.T @ (away @ axis)
        length = float(np.linalg.norm(step))
        if not length:
            break
        axis = step / length
    unit: Floats = axis.astype(np.float32 if rows.dtype == np.float32 else np.float64)
    return unit
