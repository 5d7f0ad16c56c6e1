"""What a feature map tells of single samples: numbers that are sent about n samples, against unknowns.

A linear map sends sums to sums: whoever reads Σ xR knows Σ x at most, whatever its width. Behind any other map the
numbers of a sum are equations in the n samples of d unknowns each, and as many equations as unknowns determine them:
from 64 sums of random Fourier features of 5 samples with 8 coordinates all 5 came back exactly. So, with D columns
behind the map and moments of g degrees (sums, squares, …), a class is exposed where

    n·d ≤ g·D.

A second moment is told up to a rotation of the samples that keeps their sum. With it the numbers are

    n·D − (n−1)(n−2)/2    for n ≤ D + 1,    D + D(D+1)/2    beyond,

for D = d more than the unknowns only where n ≤ 2, which is the pair that :mod:`fedmoments.privacy.leaks` reports. A map
that is neither linear nor wider than its input (scaling to length 1, a power of each coordinate) is therefore judged
as no map at all; the same count says so.

The map of a raw table is neither linear nor narrower, and yet each of its columns is made of one column that goes in:
a sum behind it is a sum of that column, or a count of samples with a category. It blends nothing that could be solved
for, so it is judged as no map, and what the counts tell is said by itself. What follows it is judged by the columns of
the raw table, of which each is one unknown.

The count is a rule, not a proof: it tells where equations suffice, not that a solver finds the root.

It holds for maps that treat all samples alike. Whoever draws a map up can choose its numbers so that it does not: two
bends, one after the other, let through only what exceeds a threshold, and then the d numbers of a sum are those of the
one sample that did. With two layers of ReluResidual, and public guesses, one of 20 unit vectors came back to 1e-4 from
the sum of its class, though no stage was wider than the features; an offset before scaling to length 1 makes the row
beside it louder than all others together. What can be chosen that way has no end, so what cannot is listed: a map is
*chosen* unless its stages are, in this order and each at most once, those that ``fedmoments server create`` puts one
after the other: the map of a raw table, √x (or a map of a package that this party installed), length 1, a drawn
projection, drawn Fourier features, length 1 or a clip, the projection of a budget, and orthonormal directions, not
behind Fourier features, with length 1 or a clip.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedmoments.core.maps import (
    Chain,
    Clip,
    Directions,
    FeatureMap,
    Identity,
    Normalize,
    Power,
    RandomFourier,
    RandomProjection,
    TableMap,
    table_of,
)
from fedmoments.errors import InputError

__all__ = ["MapOutline", "fewest_samples", "largest_matrix", "numbers_told"]

_POWERS = ("class_squares", "class_thirds", "class_fourths")
#: Kinds of map that ``server create`` puts one after the other, behind that of a raw table.
_ORDER = (
    (Power,),
    (Normalize,),
    (RandomProjection,),
    (RandomFourier,),
    (Normalize, Clip),
    (RandomProjection,),
    (Directions,),
    (Normalize, Clip),
)


@dataclass(frozen=True)
class MapOutline:
    """A feature map, as far as it decides what sums behind it tell.

    Parameters
    ----------
    name
        For people.
    before, after
        Columns d that go in, and D that come out. Where the map is not linear, d is that of its narrowest stage:
        behind a chain that narrows and then expands, samples are known as soon as they are known at its waist.
    is_linear
        Whether a sum of what comes out tells the sum of what goes in, no more.
    counted
        Columns that are 0 or 1 in every sample, so that a sum of them is a count: those of categories and of gaps.
    chosen
        Whether ``server create`` makes no such map: its numbers may be chosen to let single samples through.

    Examples
    --------
    >>> from fedmoments.core.maps import Normalize, RandomFourier
    >>> outline = MapOutline.of(Normalize() | RandomFourier(8, 64, bandwidth=1.0, seed=0), 64)
    >>> outline.text, outline.expands
    ('normalize, random_fourier: 8 → 64 columns, not linear', True)
    """

    name: str
    before: int
    after: int
    is_linear: bool
    counted: tuple[int, ...] = ()
    chosen: bool = False

    @classmethod
    def of(cls, feature_map: FeatureMap | None, width: int) -> "MapOutline":
        """Return the outline of a map behind which features have ``width`` columns; of no map without one.

        A map of which nobody can tell how many columns it takes is taken to take one.
        """
        if feature_map is None:
            return cls("none", width, width, is_linear=True)
        stages = _stages(feature_map)
        name = ", ".join(stage.kind for stage in stages)
        table = table_of(feature_map)
        if table is not None:
            return replace(
                cls._behind_table(name, table, stages[1:], width),
                chosen=_is_chosen(stages[1:], _widths(stages[1:], width)),
            )
        widths, linear = _widths(stages, width), feature_map.is_linear
        return cls(name, widths[0] if linear else min(widths), width, linear, chosen=_is_chosen(stages, widths))

    @classmethod
    def _behind_table(cls, name: str, table: TableMap, rest: tuple[FeatureMap, ...], width: int) -> "MapOutline":
        """Return the outline of a raw table's map with what follows it."""
        given = len(table.outputs)
        if not rest:
            return cls(name, given, width, is_linear=False, counted=tuple(np.flatnonzero(table.counted).tolist()))
        narrowest = given if all(stage.is_linear for stage in rest) else min(given, *_widths(rest, width))
        blends = width > narrowest
        return cls(name, min(len(table.names), narrowest) if blends else given, width, is_linear=False)

    @property
    def expands(self) -> bool:
        """Whether more columns come out than go in."""
        return self.after > self.before

    @property
    def text(self) -> str:
        """The map in one line."""
        kind = "linear" if self.is_linear else "not linear"
        kind += ", can be chosen to let single samples through" if self.chosen else ""
        if self.counted:
            return f"{self.name}: {self.after} columns, {len(self.counted)} of them counts of categories and gaps"
        return self.name if self.name == "none" else f"{self.name}: {self.before} → {self.after} columns, {kind}"

    def to_dict(self) -> dict[str, object]:
        """Return the outline, ready for JSON, with how many columns are counts where there are any."""
        plain = {"name": self.name, "before": self.before, "after": self.after, "is_linear": self.is_linear}
        more = {**({"counted": len(self.counted)} if self.counted else {}), **({"chosen": True} if self.chosen else {})}
        return {**plain, **more}

    def determines(self, n: int, moments: Collection[str], second: str) -> bool:
        """Say whether numbers sent about n samples determine them, beyond what the same moments without a map tell.

        Parameters
        ----------
        n
            Samples of a class, or of all classes.
        moments
            Their names.
        second
            The second moment that is over these samples: ``class_grams`` for a class, ``gram`` for all.
        """
        if self.chosen and n > 0:
            return True
        if self.is_linear or not self.expands or n < 1:
            return False
        return n * self.before <= numbers_told(n, self.after, moments, second)


def _is_chosen(stages: Sequence[FeatureMap], widths: Sequence[int]) -> bool:
    """Say whether a chain, of stages into which so many columns go, is none of those that are listed.

    Examples
    --------
    >>> project, bend = RandomProjection(8, 4, seed=0), RandomFourier(4, 4, bandwidth=1.0, seed=0)
    >>> _is_chosen([Power(), Normalize(), project, bend, Normalize()], [8, 8, 8, 4, 4])
    False
    >>> _is_chosen([project, Power(), bend], [8, 4, 4])
    True
    """
    places = iter(_ORDER)
    bent = blended = False
    for stage, width in zip(stages, widths, strict=True):
        if isinstance(stage, Identity):
            continue
        # behind these, a row of one column that was blended is ±1, but for who is near a threshold
        signs = blended and width == 1 and isinstance(stage, Normalize | Clip)
        aims = bent and isinstance(stage, Directions)
        if signs or aims or not any(_stands_at(stage, kinds) for kinds in places):
            return True
        bent = bent or isinstance(stage, RandomFourier)
        blended = blended or isinstance(stage, RandomProjection | RandomFourier | Directions)
    return False


def _stands_at(stage: FeatureMap, kinds: tuple[type[FeatureMap], ...]) -> bool:
    """Say whether a stage is of these kinds, as ``server create`` makes them; a package's own stands where √x does."""
    if isinstance(stage, Power):
        return Power in kinds and stage.exponent == Power().exponent
    own = not type(stage).__module__.startswith("fedmoments.")
    return isinstance(stage, kinds) or (own and Power in kinds)


def largest_matrix(feature_map: FeatureMap | None) -> int:
    """Return how many numbers the largest matrix of a map has at most; nothing is drawn.

    Examples
    --------
    >>> from fedmoments.core.maps import Normalize, RandomProjection
    >>> largest_matrix(Normalize() | RandomProjection(384, 64, seed=0))
    24576
    """
    fixed = [(stage, d) for stage in _stages(feature_map) if (d := stage.required_dim()) is not None]
    return max((d * stage.output_dim(d) for stage, d in fixed), default=0)


def _stages(feature_map: FeatureMap | None) -> tuple[FeatureMap, ...]:
    """Return the maps of a chain, or the only one."""
    if feature_map is None:
        return ()
    return feature_map.maps if isinstance(feature_map, Chain) else (feature_map,)


def _widths(stages: tuple[FeatureMap, ...], width: int) -> list[int]:
    """Return how many columns go into each stage where ``width`` come out: the fewest if several do, 1 if none does."""
    found: list[int] = []
    d: int | None = width
    for stage in reversed(stages):
        required = stage.required_dim()
        tried = [required] if required else range(1, (d or 0) + 1)
        d = next((columns for columns in tried if _gives(stage, columns, d)), None)
        found.insert(0, d or 1)
    return found


def _gives(stage: FeatureMap, columns: int, width: int | None) -> bool:
    try:
        return stage.output_dim(columns) == width
    except InputError:
        return False


def numbers_told(n: int, width: int, moments: Collection[str], second: str) -> int:
    """Return how many independent numbers are told about n samples in ``width`` columns; see the module.

    Examples
    --------
    >>> numbers_told(5, 64, (), "class_grams"), numbers_told(2, 64, ("class_grams",), "class_grams")
    (64, 128)
    """
    powers = width * (1 + sum(name in moments for name in _POWERS))
    if second not in moments:
        return powers
    if n <= width + 1:
        return max(powers, n * width - (n - 1) * (n - 2) // 2)
    return max(powers, width + width * (width + 1) // 2)


def fewest_samples(outline: MapOutline, moments: Collection[str]) -> int:
    """Return how many samples a class needs for the numbers behind a map to determine none: 1 where they never do.

    Examples
    --------
    >>> fewest_samples(MapOutline("random_fourier", 384, 5000, is_linear=False), ("sums",))
    14
    >>> fewest_samples(MapOutline("random_projection", 384, 5000, is_linear=True), ("sums",))
    1
    """
    if outline.is_linear or not outline.expands:
        return 1
    # numbers_told is concave in n up to D + 1 and constant beyond, so that n·d exceeds it from one n on
    low, high = 1, 1 + numbers_told(outline.after + 2, outline.after, moments, "class_grams") // outline.before
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if outline.determines(middle, moments, "class_grams") else (low, middle)
    return low
