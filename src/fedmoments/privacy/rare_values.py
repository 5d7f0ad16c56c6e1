"""Values that few samples have, measured as what the others have: a count of samples does not protect them.

Features behind a ReLU are often exactly 0. Where only one sample has a feature j that is not 0, row j of a second
moment is x_j·x: that sample, exactly, however many others were added. Of classes of five images behind
EfficientNet-Lite0 every sample came back, of classes of ten nine in ten. In a raw table a category that one sample has
does the same; in sums alone it says that somebody has it, and a number that stands in one row only is told.

So a value counts as *rare* where fewer than ``fewest`` samples of a class differ from what all its others share, and is
measured as that: a feature as 0, a category as another one or the most frequent one, a number as missing.

Values are looked for before a feature map and behind it: behind a rotation of the features nothing is 0, and whoever
knows the rotation turns a second moment back.

**Law** from what samples of a class share, all differ, none, or at least ``fewest``; samples that share nothing are
left as they are.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.linalg import blocks
from fedmoments.core.maps import (
    Categories,
    Chain,
    Clip,
    Directions,
    FeatureMap,
    Identity,
    Normalize,
    Numbers,
    Offset,
    TableMap,
    table_of,
)
from fedmoments.core.maps.cells import MISSING
from fedmoments.core.statistics.moments import cell_sums
from fedmoments.errors import PolicyError

__all__ = [
    "SECOND_MOMENTS",
    "RareValues",
    "Shown",
    "aimed_stages",
    "common_cells",
    "common_values",
    "differing",
    "find_rare",
    "first_places",
    "hides_before",
    "hides_features",
    "repeated_classes",
    "require_level",
]

Floats = NDArray[np.floating]
Ints = NDArray[np.int64]
#: Moments of which a row can be a sample; of a sketch, where it has all directions that there are.
SECOND_MOMENTS = frozenset({"class_grams", "gram", "scatter_sketch"})
#: So many times as loud as most of their class few rows may not be.
LOUDER = 10.0
#: Code of a category that nobody agreed on: no category has it.
ANOTHER = 0.0


@dataclass(frozen=True, eq=False)
class RareValues:
    """Which columns of which groups hold rare values, and what the others of the group have there.

    Parameters
    ----------
    common
        (g, d) what most samples of a group share.
    columns
        (g, d) where it is that fewer than ``fewest`` differ from it.
    """

    common: Floats
    columns: NDArray[np.bool_]

    @classmethod
    def of_counts(cls, common: Floats, differ: Ints, sizes: Ints, fewest: int) -> "RareValues":
        """Return the rare values of groups of these sizes (g,), of which ``differ`` (g, d) are not as ``common``."""
        return cls(common, (differ > 0) & (differ < fewest) & (differ < sizes[:, None]))

    def hide(self, X: Floats, groups: Ints) -> Floats:
        """Return features (n, d) of samples of these groups (n,) without rare values; X itself where there are none."""
        if not self.columns.any():
            return X
        return np.where(self.columns[groups], self.common[groups], X)

    def holders(self, X: Floats, groups: Ints) -> NDArray[np.bool_]:
        """Return which samples (n,) have a rare value."""
        return np.asarray(((self.common[groups] != X) & self.columns[groups]).any(axis=1))


def find_rare(features: Callable[[slice | Ints], Floats], groups: Ints, fewest: int) -> RareValues:
    """Return the rare values of samples whose features are asked for in blocks, in order.

    Parameters
    ----------
    features
        Returns the features (m, d) of some samples.
    groups
        (n,) of every sample, 0 … g − 1, each with samples.
    fewest
        Fewest samples that may differ from the others.

    Examples
    --------
    >>> X = np.array([[0.0, 1.0], [0.0, 2.0], [0.0, 3.0], [7.0, 4.0]])
    >>> rare = find_rare(X.__getitem__, np.zeros(4, np.int64), fewest=2)
    >>> rare.hide(X, np.zeros(4, np.int64)).tolist(), rare.holders(X, np.zeros(4, np.int64)).tolist()
    ([[0.0, 1.0], [0.0, 2.0], [0.0, 3.0], [0.0, 4.0]], [False, False, False, True])
    """
    sizes = np.bincount(groups)
    first = first_places(groups, fewest)
    common = np.stack([common_values(features(mine), fewest) for mine in first])
    differ = np.zeros(common.shape, np.int64)
    for block in blocks(len(groups)):
        differ += differing(features(block), groups[block], common)
    return RareValues.of_counts(common, differ, sizes, fewest)


def first_places(groups: Ints, fewest: int) -> list[Ints]:
    """Return the places of those samples of every group that :func:`common_values` looks at.

    Examples
    --------
    >>> [mine.tolist() for mine in first_places(np.array([0, 1, 0, 0, 0]), fewest=2)]
    [[0, 2, 3], [1]]
    """
    return [np.flatnonzero(groups == g)[: 2 * fewest - 1] for g in range(int(groups.max(initial=-1)) + 1)]


def differing(X: Floats, groups: Ints, common: Floats) -> Ints:
    """Return of every group how many of its samples X (n, d) are not as ``common`` (g, d), column by column.

    Examples
    --------
    >>> differing(np.array([[0.0, 1.0], [0.0, 2.0]]), np.array([0, 0]), np.array([[0.0, 2.0]])).tolist()
    [[0, 1]]
    """
    return cell_sums((common[groups] != X).astype(np.int64), groups, len(common))


def common_values(X: Floats, fewest: int) -> Floats:
    """Return what all but fewer than ``fewest`` samples share if there is such a value, column by column, (d,).

    Of the first 2·fewest − 1 samples, X, more than half have it then, so that it is their median. Of fewer samples it
    is 0 where few are not, else what more than half of them share; NaN, from which all differ, where they share
    nothing.

    Examples
    --------
    >>> common_values(np.array([[0.0, 1.0], [7.0, 2.0], [0.0, 3.0]]), fewest=2).tolist()
    [0.0, 2.0]
    """
    X = np.sort(X, axis=0)
    middle = X[len(X) // 2]
    if len(X) == 2 * fewest - 1:
        return np.asarray(middle)
    shared = 2 * (middle == X).sum(axis=0) > len(X)
    zeros = (X == 0).sum(axis=0)
    return np.where((zeros > 0) & (len(X) - zeros < fewest), 0.0, np.where(shared, middle, np.nan))


def hides_features(moments: Collection[str], fewest: int) -> bool:
    """Say whether rare values of features are hidden from these moments: sums alone do not show a sample."""
    return fewest > 1 and bool(SECOND_MOMENTS & set(moments))


def hides_before(feature_map: FeatureMap | None) -> bool:
    """Say whether rare values are hidden before a map, too: behind it they may be in all columns."""
    return not isinstance(feature_map, Identity | None) and table_of(feature_map) is None


class Shown:
    """One client's features behind a feature map without rare values, in blocks, as they may be measured.

    Parameters
    ----------
    X, labels
        (n, d) before the map, coded rows where it begins with a raw table; (n,).
    feature_map
        The map, if there is one.
    moments
        Names of the moments: of sums alone only cells of tables are hidden.
    fewest
        Fewest samples that may differ from the others of their class; of 1, nothing is hidden.

    Examples
    --------
    >>> X = np.array([[0.0, 1.0], [0.0, 2.0], [0.0, 3.0], [7.0, 4.0]])
    >>> Shown(X, np.zeros(4, np.int64), None, {"gram"}, fewest=2)[2:].tolist()
    [[0.0, 3.0], [0.0, 4.0]]
    """

    def __init__(
        self, X: Floats, labels: Ints, feature_map: FeatureMap | None, moments: Collection[str], fewest: int
    ) -> None:
        self._map, self._codes, self.fewest = feature_map, X, fewest
        table = table_of(feature_map)
        if table is not None and fewest > 1:
            self._codes = common_cells(X, labels, table, fewest)
        if fewest > 1:
            require_level(self._codes, labels, feature_map, fewest)
        self._groups = np.unique(labels, return_inverse=True)[1].astype(np.int64)
        self._before: RareValues | None = None
        self._rare: RareValues | None = None
        if len(labels) and hides_features(moments, fewest):
            if hides_before(feature_map):
                self._before = find_rare(self._codes.__getitem__, self._groups, fewest)
            self._rare = find_rare(self._mapped, self._groups, fewest)

    def __getitem__(self, rows: slice | Ints) -> Floats:
        X = self._mapped(rows)
        return X if self._rare is None else self._rare.hide(X, self._groups[rows])

    @property
    def is_kept_apart(self) -> bool:
        """Whether rare values are looked for in second moments: then those of a change count, too."""
        return self._rare is not None

    @property
    def compared(self) -> "_Compared":
        """The same features with those before the map beside them: what tells whether few samples differ in a value."""
        return _Compared(self)

    def unmapped(self, rows: slice | Ints) -> Floats | None:
        """Return features before the map without rare values; None where nothing is hidden there."""
        return None if self._before is None else self._before.hide(self._codes[rows], self._groups[rows])

    def _mapped(self, rows: slice | Ints) -> Floats:
        hidden = self.unmapped(rows)
        X = self._codes[rows] if hidden is None else hidden
        return self._map(X) if self._map else X


class _Compared:
    """Rows of features as they are measured, and before the map where that matters."""

    def __init__(self, shown: Shown) -> None:
        self._shown = shown

    def __getitem__(self, rows: slice | Ints) -> Floats:
        before, behind = self._shown.unmapped(rows), self._shown[rows]
        return behind if before is None else np.concatenate([before, behind], axis=1)


def aimed_stages(feature_map: FeatureMap | None) -> list[int]:
    """Return the places in a chain at which rows are scaled behind numbers that somebody chose: a center, a scale.

    Examples
    --------
    >>> from fedmoments.core.maps import Offset, Power
    >>> aimed_stages(Power() | Normalize()), aimed_stages(Offset([73.0]) | Power() | Normalize())
    ([], [2])
    """
    stages = feature_map.maps if isinstance(feature_map, Chain) else ()
    aimed = [place for place, stage in enumerate(stages) if isinstance(stage, TableMap | Offset | Directions)]
    scaled = [place for place, stage in enumerate(stages) if isinstance(stage, Normalize | Clip)]
    return [place for place in scaled if aimed and place > aimed[0]]


def require_level(codes: Floats, labels: Ints, feature_map: FeatureMap | None, fewest: int) -> None:
    """Refuse to scale rows to one length where that makes few of a class much louder than the others.

    Terms give every column of a table a scale. Of one that is enlarged a billion times, rows that are not exactly at
    its center lose all else when they are scaled: the sum is the row that is, as that of the only one who is 73. So do
    rows of numbers behind an offset, where columns have units of their own.

    Raises
    ------
    PolicyError
        With the stage; which class it is stays here.
    """
    stages = feature_map.maps if isinstance(feature_map, Chain) else ()
    for place in aimed_stages(feature_map):
        stage = stages[place]
        before = stages[0] if place == 1 else Chain(stages[:place])
        lengths = np.concatenate([_lengths(before, stage, codes[block]) for block in blocks(len(labels))], axis=1)
        for label in np.unique(labels[lengths[0] > 0]):
            given, scaled = lengths[:, (labels == label) & (lengths[0] > 0)]
            loud = int((scaled / given > LOUDER * np.median(scaled / given)).sum())
            if 0 < loud < fewest:
                raise PolicyError(
                    f"behind the map of these terms, {stage.kind} makes a few samples of a class more than {LOUDER} "
                    "times as loud as the others, so that a sum tells of these alone: agree on scales of columns that "
                    "fit the data, or leave the scaling of rows out"
                )


def _lengths(before: FeatureMap, stage: FeatureMap, rows: Floats) -> Floats:
    """Return the lengths of rows before a stage and behind it, (2, n)."""
    given = before(rows)
    return np.stack([np.linalg.norm(given, axis=1), np.linalg.norm(stage(given), axis=1)])


def common_cells(codes: Floats, labels: Ints, table: TableMap, fewest: int) -> Floats:
    """Return coded rows (n, columns) of a raw table, in which no cell of a class is one that few of it have.

    Examples
    --------
    >>> table = TableMap((Numbers("age"), Categories("ward", ("east", "west"))))
    >>> codes = table.code({"age": [31, None, 40, 50, 60], "ward": ["east"] * 4 + ["west"]})
    >>> shown = common_cells(codes, np.zeros(5, np.int64), table, fewest=2)
    >>> table(shown)[:, 1:].sum(axis=0).tolist()  # gaps, east, west, another, missing
    [0.0, 5.0, 0.0, 0.0, 0.0]
    """
    shown = np.array(codes)
    for label in np.unique(labels):
        mine = np.flatnonzero(labels == label)
        for place, column in enumerate(table.columns):
            cells = shown[mine, place]
            if isinstance(column, Numbers):
                shown[mine, place] = _common_numbers(cells, column, fewest)
            else:
                shown[mine, place] = _common_categories(cells, column, fewest)
    return shown


def _common_numbers(cells: Floats, column: Numbers, fewest: int) -> Floats:
    """Return the cells of a class without few numbers, few gaps, or few numbers besides one that all others are."""
    gone = cells == MISSING
    if 0 < (~gone).sum() < fewest:
        return np.full_like(cells, MISSING)
    if 0 < gone.sum() < fewest:  # what a gap is measured as, without saying that it is one
        cells = np.where(gone, np.float32(column.center), cells)
    values, counts = np.unique(cells, return_counts=True)
    most = int(np.argmax(counts))
    if len(cells) // 2 < counts[most] < len(cells) < counts[most] + fewest:
        return np.full_like(cells, values[most])
    return cells


def _common_categories(cells: Floats, column: Categories, fewest: int) -> Floats:
    """Return the cells of a class with rare categories and gaps as another category, or as the most frequent one."""
    known = np.isin(cells, [*column.codes.astype(np.float32), np.float32(MISSING)])
    cells = np.where(known, cells, np.float32(ANOTHER))
    values, counts = np.unique(cells, return_counts=True)
    rare = np.isin(cells, values[counts < fewest])
    others = rare | (cells == np.float32(ANOTHER))
    goal = ANOTHER if column.other and others.sum() >= fewest else float(values[np.argmax(counts)])
    return np.where(rare, np.float32(goal), cells)


def repeated_classes(X: Floats, labels: Ints, fewest: int) -> list[int]:
    """Return the classes of which fewer than ``fewest`` samples differ: the mean of one sample's copies is that sample.

    Examples
    --------
    >>> repeated_classes(np.array([[1.0], [1.0], [2.0], [3.0]]), np.array([0, 0, 1, 1]), 2)
    [0]
    """
    found = []
    for label in np.unique(labels):
        mine = np.flatnonzero(labels == label)
        different: set[bytes] = set()
        for start in range(0, len(mine), 4 * fewest):
            different.update(row.tobytes() for row in X[mine[start : start + 4 * fewest]])
            if len(different) >= fewest:
                break
        else:
            found.append(int(label))
    return found
