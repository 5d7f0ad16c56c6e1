"""Which public map features call for: standardised columns, the power map, unit length, or none.

Clients tell the shapes of their features (:class:`~fedmoments.core.maps.FeatureShape`). Where columns are in units of
their own (age in years beside income in euros), they also tell sums and squares of every column, as for raw tables.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.maps import FeatureMap, FeatureShape, Numbers, TableMap
from fedmoments.core.maps.power import has_own_units, recommended_map
from fedmoments.core.maps.table import MOST_COLUMNS
from fedmoments.core.tables import table_after

__all__ = ["automatic_map"]


def automatic_map(held: Iterable[tuple[Any, Any]]) -> FeatureMap | None:
    """Return the map for features (n, d) with labels (n,) of all clients; what is no matrix of numbers has no say.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> y = np.arange(40) % 2
    >>> ages, incomes, widths = 40 + 9 * rng.normal(size=40), 3e4 + 9e3 * rng.normal(size=40), rng.normal(size=40)
    >>> automatic_map([(np.stack([ages, incomes, widths], axis=1), y)]).names
    ('1', '2', '3')
    >>> automatic_map([(rng.normal(size=(40, 3)), y)]) is None
    True
    """
    pairs = [(X, y) for X, y in ((np.asarray(X), np.asarray(y)) for X, y in held) if _is_matrix(X, y)]
    shapes = [FeatureShape.of(X, y) for X, y in pairs]
    if len({X.shape[1] for X, _ in pairs}) == 1 and pairs[0][0].shape[1] <= MOST_COLUMNS and has_own_units(shapes):
        return _standardised([X for X, _ in pairs])
    return recommended_map(shapes)


def _is_matrix(X: NDArray[Any], y: NDArray[Any]) -> bool:
    fits = X.ndim == 2 and X.dtype.kind in "fiu" and y.shape == (len(X),) and y.dtype.kind in "fiu"
    return fits and bool(np.isfinite(X).all())


def _standardised(parts: Sequence[NDArray[Any]]) -> TableMap:
    """Return the map to mean 0 and deviation 1 in every column that varies."""
    X = np.concatenate(parts).astype(np.float64)
    ranges = np.exp2(np.ceil(np.log2(np.maximum(np.abs(X).max(axis=0), 1e-30))))
    draft = TableMap(tuple(Numbers(str(place + 1), scale=scale, missing=False) for place, scale in enumerate(ranges)))
    return table_after(draft, X, np.zeros(len(X), np.int64), n_classes=1)
