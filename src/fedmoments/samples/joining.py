"""Several data sets as one: their samples one after the other, under all their class names."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedmoments.errors import InputError
from fedmoments.samples.dataset import DataSet
from fedmoments.samples.samples import Samples

__all__ = ["join_data"]


class _Chained(Sequence[Any]):
    """Sequences one after the other, whose items are read when they are requested."""

    def __init__(self, parts: Sequence[Sequence[Any]]) -> None:
        self._parts = parts
        self._ends = np.cumsum([len(part) for part in parts])

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return [self[i] for i in range(*place.indices(len(self)))]
        index = range(len(self))[int(place)]
        part = int(np.searchsorted(self._ends, index, side="right"))
        return self._parts[part][index - (int(self._ends[part - 1]) if part else 0)]


def join_data(parts: Sequence[DataSet]) -> DataSet:
    """Return the samples of all data sets, in their order; classes that several have are one.

    Examples
    --------
    >>> from fedmoments.samples.sources.rows import Problems, Rows, assemble
    >>> def texts(labels):
    ...     rows = Rows(list(labels), list(labels), list(labels))
    ...     return assemble("toy", rows, None, "text", Problems(strict=False), test_share=0, seed=0)
    >>> both = join_data([texts("ab"), texts("bc")])
    >>> both.class_names, both.train.labels.tolist(), list(both.train.items)
    (('a', 'b', 'c'), [0, 1, 1, 2], ['a', 'b', 'b', 'c'])
    """
    if len(parts) == 1:
        return parts[0]
    _require_alike(parts)
    names = tuple(dict.fromkeys(name for part in parts for name in part.class_names))
    train, test = _joined([part.train for part in parts], names), _joined([part.test for part in parts], names)
    return DataSet(train, test, " and ".join(part.name for part in parts), " ".join(part.description for part in parts))


def _require_alike(parts: Sequence[DataSet]) -> None:
    if len({part.modality for part in parts}) > 1:
        kinds = ", ".join(f"{part.name} ({part.modality})" for part in parts)
        raise InputError(f"data that are measured together must all be images, texts or features: {kinds}")


def _joined(parts: Sequence[Samples], names: tuple[str, ...]) -> Samples:
    number = {name: label for label, name in enumerate(names)}
    labels = [np.array([number[name] for name in part.class_names], np.int64)[part.labels] for part in parts]
    sources = [part.source(place) for part in parts for place in range(len(part))]
    problems = tuple(problem for part in parts for problem in part.problems)
    return Samples(_items(parts), np.concatenate(labels), names, parts[0].modality, sources, problems=problems)


def _items(parts: Sequence[Samples]) -> Any:
    items: list[Any] = [part.items for part in parts]
    if all(isinstance(part, np.ndarray) for part in items):
        shapes = {part.shape[1:] for part in items}
        if len(shapes) > 1:
            raise InputError(f"features that are measured together must have one dimension, not {sorted(shapes)}")
        return np.concatenate(items)
    if all(isinstance(part, list) for part in items):
        return [item for part in items for item in part]
    return _Chained(items)
