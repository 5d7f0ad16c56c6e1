"""Anything array-like as an array: tensors, nullable and masked columns, lists of Python numbers, labels as text."""

import unicodedata
from collections.abc import Iterable, Sequence
from decimal import Decimal
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.maps.cells import is_missing
from fedmoments.errors import InputError

__all__ = ["as_array", "is_text", "label_array", "label_numbers", "sorted_names"]


def as_array(values: Any) -> NDArray[Any]:
    """Return an array of anything array-like; tensors are detached, moved to this machine's memory and widened.

    Numbers of several Python types (whole, fractions, decimals) become one type; missing ones become NaN.

    Raises
    ------
    InputError
        When it cannot become an array, is sparse, or has masked entries.

    Examples
    --------
    >>> as_array([[1, 2]]).shape
    (1, 2)
    >>> as_array([1, None])
    array([ 1., nan])
    """
    try:
        return _plain(_dense(values))
    except InputError:
        raise
    except (TypeError, ValueError, RuntimeError) as error:  # torch's NotImplementedError is one of these
        raise InputError(f"{type(values).__name__} does not become an array of numbers: {error}") from error


def _dense(values: Any) -> Any:
    """Return what numpy reads as it is meant: no gradients, no bfloat16; sparse and masked values are refused."""
    if isinstance(values, list | tuple) and values and _is_tensor(values[0]):
        return np.stack([_dense(value) for value in values])
    if _is_tensor(values):
        values = values.detach().cpu()
        return (values.float() if str(values.dtype) == "torch.bfloat16" else values).numpy()
    _require_all_entries(values)
    return values


def _require_all_entries(values: Any) -> None:
    """Refuse an array that leaves entries out: of a sparse matrix, or behind a mask."""
    if hasattr(values, "tocsr") and hasattr(values, "toarray"):
        rows, columns = values.shape if len(values.shape) == 2 else (1, *values.shape)
        raise InputError(
            f"a sparse matrix {values.shape} is not taken: give it as .toarray() ({8e-6 * rows * columns:,.0f} MB), "
            "or in blocks of rows, X[i : i + 1000].toarray(), to measure_stream"
        )
    if np.ma.isMaskedArray(values) and np.ma.getmaskarray(values).any():
        gone = int(np.ma.getmaskarray(values).sum())
        raise InputError(f"{gone} of {values.size} entries are masked: fill them, or drop their samples first")


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "detach") and hasattr(value, "cpu")


def _plain(values: Any) -> NDArray[Any]:
    array = np.asarray(values)
    if array.dtype.kind == "b":
        return array.astype(np.int64)
    return _one_type(array) if array.dtype.kind == "O" else array


def _one_type(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array of Python objects as one of numbers, where they all are; None and NA become NaN."""
    items = array.ravel().tolist()
    gone = [is_missing(item) for item in items]
    held = [item for item, missing in zip(items, gone, strict=True) if not missing]
    if not held or not _all_are(held, Real | Decimal | np.bool_):
        return array
    if len(held) == len(items) and _all_are(held, Integral | np.bool_):
        return _whole(array, list(map(int, held)))
    numbers = [np.nan if missing else float(item) for item, missing in zip(items, gone, strict=True)]
    return np.array(numbers, np.float64).reshape(array.shape)


def _all_are(items: list[Any], kind: Any) -> bool:
    return all(isinstance(item, kind) for item in items)


def _whole(array: NDArray[Any], numbers: list[int]) -> NDArray[Any]:
    """Return an array of whole numbers as int64, if all of them fit."""
    fits = min(numbers) >= -(2**63) and max(numbers) < 2**63
    return np.array(numbers, np.int64).reshape(array.shape) if fits else array


def label_array(values: Any) -> NDArray[Any]:
    """Return labels as an array of numbers, or of text; bytes are read as UTF-8.

    Raises
    ------
    InputError
        When a label is missing, or some are text and others are not.

    Examples
    --------
    >>> label_array([True, False]), label_array([b"cat"]).tolist()
    (array([1, 0]), ['cat'])
    >>> label_array(["cat", None])
    Traceback (most recent call last):
    fedmoments.errors.InputError: sample 1 has no label (None): name its class, or drop it first
    """
    array = as_array(values)
    if isinstance(values, list | tuple) and array.dtype.kind in "SU":
        array = np.array(values, object)  # numpy made texts of numbers beside texts
    if array.dtype.kind in "mMcV":
        raise InputError(f"labels are numbers or text, but values of type {array.dtype} arrived")
    if array.dtype.kind not in "OSUT":
        return array
    items = array.ravel().tolist()
    gone = next((place for place, item in enumerate(items) if is_missing(item)), None) if array.ndim == 1 else None
    if gone is not None:
        raise InputError(f"sample {gone} has no label ({items[gone]}): name its class, or drop it first")
    return _texts([_decoded(item) for item in items]).reshape(array.shape)


def _decoded(item: Any) -> Any:
    try:
        return item.decode() if isinstance(item, bytes) else item
    except UnicodeDecodeError as error:
        raise InputError(f"the label {item!r:.80} is not UTF-8: give labels as text, or as numbers") from error


def _texts(items: list[Any]) -> NDArray[Any]:
    """Return labels that are all text; others are refused, with the first that is not."""
    places = {type(item): place for place, item in reversed(list(enumerate(items)))}
    odd = sorted(place for kind, place in places.items() if not issubclass(kind, str))
    if odd:
        kinds = ", ".join(sorted(kind.__name__ for kind in places))
        raise InputError(
            f"labels are all numbers or all text, but they are of the types {kinds}: sample {odd[0]} has "
            f"{items[odd[0]]!r:.80}"
        )
    for place, item in enumerate(items):
        try:
            item.encode()
        except UnicodeEncodeError as error:
            raise InputError(f"the label of sample {place}, {item!a:.80}, is not valid Unicode: correct it") from error
    return np.array(items, object)


def is_text(labels: NDArray[Any]) -> bool:
    """Say whether labels of :func:`label_array` are text."""
    return labels.dtype.kind in "UST" or (labels.dtype.kind == "O" and labels.size > 0)


def label_numbers(labels: NDArray[Any], names: Sequence[str]) -> NDArray[np.int64]:
    """Return the places (n,) of labels that are text among the names of all classes.

    Examples
    --------
    >>> label_numbers(label_array(["dog", "cat"]), ["cat", "dog"])
    array([1, 0])
    """
    known = _places_of(names)
    texts = [str(label) for label in labels.tolist()]
    unknown = sorted(set(texts) - known.keys())
    if unknown:
        raise InputError(f"the label '{unknown[0]}' is none of the classes {', '.join(names)}")
    return np.array([known[text] for text in texts], np.int64)


def _places_of(names: Sequence[str]) -> dict[str, int]:
    """Return the place of every class by its name; names are texts, each there once."""
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise InputError(f"class_names is a list of texts, not {names!r:.80}")
    known = {name: number for number, name in enumerate(names)}
    if len(known) < len(names):
        twice = next(name for place, name in enumerate(names) if known[name] != place)
        raise InputError(f"class_names has '{twice}' twice: name every class once")
    return known


def sorted_names(labels: Iterable[NDArray[Any]]) -> tuple[str, ...]:
    """Return the texts that occur, in alphabetical order; those that look the same, but are not, are refused.

    Examples
    --------
    >>> sorted_names([label_array(["dog", "cat"]), label_array(["cat"])])
    ('cat', 'dog')
    """
    names = sorted({str(label) for part in labels for label in part.tolist()})
    alike: dict[str, str] = {}
    for name in names:
        other = alike.setdefault(unicodedata.normalize("NFC", name), name)
        if other != name:
            raise InputError(
                f"the classes {other!a} and {name!a} look the same and differ in their Unicode form alone: write them "
                "alike (unicodedata.normalize), or give class_names"
            )
    return tuple(names)
