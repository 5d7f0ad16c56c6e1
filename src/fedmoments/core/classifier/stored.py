"""Reading a classifier's file: nothing in it is believed before it was tried out."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.classifier.base import KINDS, Classifier
from fedmoments.core.classifier.familiar import Familiar
from fedmoments.core.classifier.ranks import Ranks
from fedmoments.core.maps import from_description
from fedmoments.errors import InputError, UnknownNameError, reading
from fedmoments.files import Header, read_tensors, unpack_tensors

__all__ = ["load", "load_bytes"]


def load(path: str | os.PathLike[str]) -> Classifier:
    """Read a classifier that :meth:`Classifier.save` wrote.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from fedmoments.core.classifier.linear import LinearClassifier
    >>> classifier = LinearClassifier(weights=np.eye(2), bias=np.zeros(2), present=np.array([True, True]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     classifier.save(Path(folder, "head.safetensors"))
    ...     load(Path(folder, "head.safetensors")).digest() == classifier.digest()
    True
    """
    return _assembled(path, *read_tensors(path, "classifier"))


def load_bytes(data: bytes, whose: str = "the message") -> Classifier:
    """Read a classifier from bytes that :meth:`Classifier.to_bytes` made.

    Examples
    --------
    >>> from fedmoments.core.classifier.linear import LinearClassifier
    >>> classifier = LinearClassifier(weights=np.eye(2), bias=np.zeros(2), present=np.array([True, True]))
    >>> load_bytes(classifier.to_bytes()).digest() == classifier.digest()
    True
    """
    return _assembled(whose, *unpack_tensors(data, "classifier", whose))


def _assembled(path: str | os.PathLike[str], tensors: dict[str, NDArray[Any]], header: Header) -> Classifier:
    kind = str(header.get("classifier"))
    if kind not in KINDS:
        raise UnknownNameError("kind of classifier", kind, KINDS)
    described = header.get("feature_map")
    with reading(f"{path} does not hold a valid classifier of kind '{kind}'"):
        names, info = header["class_names"], header["info"]
        if not all(isinstance(name, str) for name in names) or not isinstance(info, dict):
            raise InputError("class names must be texts, and notes of origin a table")
        familiar = Familiar.taken_from(tensors)
        classifier = KINDS[kind](
            **tensors,
            class_names=tuple(names),
            feature_map=from_description(described) if described else None,
            info=info,
            temperature=header.get("temperature", 1.0),
            familiar=familiar,
            ranks=Ranks.from_dict(header["ranks"]) if "ranks" in header else None,
        )
        _try_out(classifier)
    return classifier


def _try_out(classifier: Classifier) -> None:
    """Score one and two samples of zeros: arrays that do not fit each other show here, and not in use."""
    arrays, mask = dict(classifier.arrays()), classifier.present
    _require_numbers(arrays, mask)
    try:
        with np.errstate(all="ignore"):
            scores = [classifier._scores(np.zeros((n, classifier.dim)), arrays) for n in (1, 2)]
    except Exception as error:
        raise InputError(f"its arrays do not fit each other ({error})") from error
    if classifier.familiar is not None and classifier.familiar.means.shape[1] != classifier.dim:
        raise InputError(f"it scores {classifier.dim} dimensions, but has seen {classifier.familiar.means.shape[1]}")
    if [own.shape for own in scores] != [(1, classifier.n_classes), (2, classifier.n_classes)]:
        raise InputError(
            f"its arrays give scores of shape {scores[0].shape} to one sample of {classifier.n_classes} classes"
        )


def _require_numbers(arrays: Mapping[str, NDArray[Any]], mask: NDArray[Any]) -> None:
    are_numbers = {array.dtype.kind for array in arrays.values()} <= {"f", "i"}
    if mask.dtype != np.bool_ or mask.ndim != 1 or not are_numbers:
        raise InputError("its arrays must be numbers, and the mask of its classes truth values")
