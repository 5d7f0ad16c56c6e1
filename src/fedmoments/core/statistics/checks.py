"""Features and labels as they arrive, checked: what is wrong is one sentence."""

from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmoments.core.linalg import blocks
from fedmoments.errors import InputError

__all__ = ["check_features", "check_labels", "check_shape", "check_sizes", "first_bad_row", "running_positions"]

Ints = NDArray[np.int64]


def check_sizes(n_classes: Any, dim: Any) -> tuple[int, int]:
    """Return C and d as whole numbers of at least 1, or say what is wrong with them."""
    for what, value in (("n_classes", n_classes), ("dim", dim)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
            raise InputError(f"{what} must be a whole number of at least 1, not {value!r:.60}")
    return int(n_classes), int(dim)


def check_shape(X: ArrayLike, dim: int | None = None) -> NDArray[np.floating]:
    """Return X as a float matrix (n, d), or say in one sentence what is wrong with its shape or type."""
    try:
        array = np.asarray(X)
    except ValueError as error:  # numpy refuses lists of unequal lengths
        raise InputError(f"features must be a matrix (samples, dimensions): {error}") from error
    if array.ndim != 2 or array.shape[1] == 0:
        raise InputError(f"features must be a matrix (samples, dimensions); an array of shape {array.shape} arrived")
    if dim is not None and array.shape[1] != dim:
        raise InputError(
            f"features must have {dim} dimensions, but {array.shape[1]} arrived: was another encoder used?"
        )
    if array.dtype.kind not in "fiub":
        raise InputError(f"features must be numbers; {_no_number(array)}")
    return array if array.dtype.kind == "f" else array.astype(np.float64)


def _no_number(array: NDArray[Any]) -> str:
    """Say which feature is no number, where that can be told."""
    for place, cell in enumerate(array.ravel().tolist() if array.dtype.kind in "OUS" else []):
        if not isinstance(cell, Real):
            return f"sample {place // array.shape[1]} holds {cell!r:.60} ({type(cell).__name__})"
    return f"an array of type {array.dtype} arrived"


def first_bad_row(X: NDArray[np.floating], rows: Ints | None = None) -> InputError:
    """Return the error that names the first sample with NaN or infinity, among ``rows`` (ascending) if given."""
    rows = np.arange(len(X)) if rows is None else rows
    for block in blocks(len(rows)):
        finite = np.isfinite(X[rows[block]]).all(axis=1)
        if not finite.all():
            row = int(rows[block][np.argmin(finite)])
            return InputError(
                f"features must be finite, but sample {row} holds NaN or infinity: repair or drop it first"
            )
    return InputError("features are so large that their sums overflow float64: scale them down first")


def check_features(X: ArrayLike, dim: int | None = None) -> NDArray[np.floating]:
    """Return X as a finite float matrix (n, d), or say in one sentence what is wrong with it."""
    array = check_shape(X, dim)
    with np.errstate(over="ignore", invalid="ignore"):
        # A sum is finite only if all of it is; that of float32 is quick, but may overflow.
        finite = all(np.isfinite(array[block].sum()) for block in blocks(len(array), 256))
        finite = finite or all(np.isfinite(array[block].sum(dtype=np.float64)) for block in blocks(len(array), 256))
    if not finite:
        raise first_bad_row(array)
    return array


def check_labels(y: ArrayLike, n_samples: int, n_classes: int, *, whose: str = "labels") -> Ints:
    """Return y as int64 (n,), or say in one sentence what is wrong with it."""
    array = np.asarray(y)
    if array.shape != (n_samples,):
        raise InputError(f"{whose} must be one a sample, ({n_samples},); an array of shape {array.shape} arrived")
    if array.dtype.kind not in "iu" and n_samples:
        _require_whole(array, n_classes, whose)
    wrong = (array < 0) | (array >= n_classes)  # before the cast, which would wrap what int64 cannot hold
    if wrong.any():
        index = int(np.argmax(wrong))
        raise InputError(f"{whose} must be from 0 to {n_classes - 1}, but sample {index} has {array[index]}")
    return array.astype(np.int64)


def _require_whole(array: NDArray[Any], n_classes: int, whose: str) -> None:
    """Refuse labels that are no whole numbers, and name the first."""
    if array.dtype.kind not in "fb":
        raise InputError(
            f"{whose} must be whole numbers from 0 to {n_classes - 1}; values of type {array.dtype} arrived"
        )
    odd = array != np.rint(array.astype(np.float64))
    if odd.any():
        place = int(np.argmax(odd))
        raise InputError(f"{whose} must be whole numbers, but sample {place} has {array[place]}")


def running_positions(cells: Ints, seen: Ints) -> Ints:
    """Return how many samples of the same cell came before each, counting on from ``seen`` (n_cells,).

    Examples
    --------
    >>> running_positions(np.array([0, 1, 0, 0]), np.array([5, 0]))
    array([5, 0, 6, 7])
    """
    order = np.argsort(cells, kind="stable")
    ranked = cells[order]
    starts = np.searchsorted(ranked, ranked)
    positions = np.empty(len(cells), np.int64)
    positions[order] = np.arange(len(cells)) - starts + seen[ranked]
    return positions
