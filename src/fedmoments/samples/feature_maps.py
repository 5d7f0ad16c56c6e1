"""Which public map stands between encoder and statistics: typed, said by the encoder, or seen in features."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.automatic_map import automatic_map
from fedmoments.core.heads.choosing import map_rule_of
from fedmoments.core.maps import FeatureMap, Normalize, RandomFourier, TableMap, compose
from fedmoments.core.maps.power import AUTO, named_map
from fedmoments.core.maps.projection import make_projection
from fedmoments.errors import InputError
from fedmoments.samples.encoders.registry import find_entry

__all__ = ["chosen_map", "stacked_map"]


def chosen_map(
    word: str,
    heads: Sequence[str],
    encoder: str,
    X: NDArray[Any] | None = None,
    y: NDArray[np.int64] | None = None,
    *,
    table: TableMap | None = None,
) -> FeatureMap | None:
    """Return the public map of a federation, or None.

    Parameters
    ----------
    word
        ``none``, ``power``, ``length`` or ``auto``; empty: as the heads have it by themselves.
    heads
        Names of those that are to be fitted.
    encoder
        Its name. For ``auto`` it says whether its features are non-negative, as behind a ReLU, or vary in length; one
        that says neither has no map.
    X, y
        (n, d) features and (n,) labels like the clients', where features are given (the encoder ``identity``): ``auto``
        looks at them.
    table
        What codes raw tables: it comes first, and no rule adds to it.

    Examples
    --------
    >>> chosen_map("auto", ["fedcof"], "squeezenet-1.1")
    Chain(maps=(Power(exponent=0.5), Normalize()))
    >>> chosen_map("auto", ["fedcof"], "minilm"), chosen_map("", ["fedcof"], "squeezenet-1.1")
    (None, None)
    >>> chosen_map("auto", ["fedcof"], "wordllama")
    Normalize()
    """
    if table is not None:
        second = named_map("none" if word in ("", AUTO) else word)
        return compose(table, second) if second else table
    wanted = word or map_rule_of(heads)
    if wanted != AUTO:
        return named_map(wanted)
    known = find_entry(encoder)
    if known.non_negative:
        return named_map("power")
    if known.varying_length:
        return named_map("length")
    return None if X is None or y is None else automatic_map([(X, y)])


def stacked_map(
    dim: int,
    *,
    first: FeatureMap | None,
    normalize: bool,
    project: int | None,
    fourier: int | None,
    bandwidth: float | None,
    seed: int,
) -> FeatureMap | None:
    """Return the maps that were typed, one after the other; None where there is none.

    Parameters
    ----------
    dim
        Dimensions before all of them.
    first, normalize, project, fourier, bandwidth, seed
        A map that comes first, and as the options say.
    """
    if (fourier is None) != (bandwidth is None):
        raise InputError("--fourier and --bandwidth belong together: give both or none")
    maps: list[FeatureMap] = ([first] if first else []) + ([Normalize()] if normalize else [])
    dim = first.output_dim(dim) if first else dim
    projection = make_projection(project, dim, seed, without="leave --project out")
    if projection is not None:
        maps.append(projection)
        dim = projection.n_components
    if fourier is not None and bandwidth is not None:
        maps.append(RandomFourier(dim, fourier, bandwidth, seed))
    return compose(*maps) if maps else None
