"""One fitted head of one seed: what it took for what, and how sure it was."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.pages.plain import items, mapping

__all__ = ["Detail", "read_details"]


@dataclass(frozen=True, eq=False)
class Detail:
    """A head's confusion table (C, C), true classes in rows, and its calibration, as the results have it.

    Examples
    --------
    >>> detail = Detail("d0", "fedcof", "fedcof", 0, np.array([[3, 1], [0, 2]]), {})
    >>> detail.accuracies.tolist(), detail.confusions(5)
    ([0.75, 1.0], [(0, 1, 1)])
    """

    key: str
    words: str
    head: str
    seed: Any
    table: NDArray[np.int64] | None
    calibration: Mapping[str, Any]

    @cached_property
    def tested(self) -> NDArray[np.int64]:
        """(C,) test samples of every class."""
        return np.zeros(0, np.int64) if self.table is None else np.asarray(self.table.sum(axis=1))

    @cached_property
    def accuracies(self) -> NDArray[np.float64]:
        """(C,) share of every class that was found; NaN for a class that was not tested."""
        if self.table is None:
            return np.zeros(0)
        return np.where(self.tested > 0, np.diagonal(self.table) / np.maximum(self.tested, 1), np.nan)

    def confusions(self, most: int) -> list[tuple[int, int, int]]:
        """Return (true class, predicted class, samples) of the pairs that cost most samples."""
        if self.table is None:
            return []
        wrong = self.table.copy()
        np.fill_diagonal(wrong, 0)
        order = np.argsort(-wrong, axis=None, kind="stable")[:most].tolist()
        pairs = [(*divmod(place, len(wrong)), int(wrong.flat[place])) for place in order]
        return [pair for pair in pairs if pair[2] > 0]


def read_details(raw: Any, where: Callable[[int], str]) -> tuple[Detail, ...]:
    """Return the details that hold anything.

    Parameters
    ----------
    raw
        What the results have under ``details``.
    where
        Given the number of a detail, the setting that it belongs to, in words; empty when there is one setting.
    """
    found = []
    for number, each in enumerate(map(mapping, items(raw))):
        table, calibration = _square(each.get("confusion")), mapping(each.get("calibration"))
        if table is None and not calibration:
            continue
        head, setting, seed = str(each.get("head", "?")), where(number), each.get("seed")
        found.append(Detail(f"d{number}", f"{head} – {setting}" if setting else head, head, seed, table, calibration))
    if len({detail.words for detail in found}) == len(found):
        return tuple(found)
    return tuple(Detail(d.key, f"{d.words}, seed {d.seed}", d.head, d.seed, d.table, d.calibration) for d in found)


def _square(value: Any) -> NDArray[np.int64] | None:
    rows = [items(row) for row in items(value)]
    if not rows or any(len(row) != len(rows) for row in rows):
        return None
    table = np.asarray(rows)
    return table.astype(np.int64) if table.dtype.kind in "iu" else None
