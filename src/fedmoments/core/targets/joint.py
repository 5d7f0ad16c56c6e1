"""How targets travel: as the last columns of the features, in one class that holds everybody.

A sample with features x (d,) and targets t (m,) is measured as z = (x, t), (d + m,). The gram of z is

    Σ z zᵀ = [ Σ x xᵀ   Σ x tᵀ ]        Σ z = (Σ x, Σ t),   N
             [ Σ t xᵀ   Σ t tᵀ ]

the gram that a head for classes needs, the right side of the normal equations, and the sums and squares of targets that
R² needs. So no moment is new: merging, leaving, fixed point, secure sums, noise, files and the wire are those of any
gram, and the least count of a class is the least number of samples. What it costs more than a gram of x is m·d cross
sums and m(m+1)/2 products of targets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmoments.core.classifier.targets import target_matrix
from fedmoments.core.maps import FeatureMap
from fedmoments.errors import InputError

__all__ = ["EVERYBODY", "joint", "with_targets"]

#: The class that all samples are of.
EVERYBODY = "everybody"


def joint(X: ArrayLike, targets: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return samples as they are measured, (n, d + m), and their labels (n,), all 0.

    Parameters
    ----------
    X
        (n, d) features, behind the public map if there is one.
    targets
        (n,) or (n, m) numbers.

    Examples
    --------
    >>> joint([[1.0, 2.0]], [3.0])
    (array([[1., 2., 3.]]), array([0]))
    """
    features = np.asarray(X)
    if features.ndim != 2 or features.dtype.kind not in "fiu":
        raise InputError(
            f"features must be numbers of shape (samples, dimensions), but an array of {features.dtype} and shape "
            f"{features.shape} arrived"
        )
    matrix = target_matrix(targets)
    if len(matrix) != len(features):
        raise InputError(f"{len(features)} samples need as many rows of targets, but {len(matrix)} arrived")
    return np.hstack([features.astype(np.float64, copy=False), matrix]), np.zeros(len(matrix), np.int64)


def with_targets(
    clients: Mapping[Any, tuple[ArrayLike, ArrayLike]], feature_map: FeatureMap | None = None
) -> dict[Any, tuple[NDArray[np.float64], NDArray[np.int64]]]:
    """Return clients' data with their targets as last columns, ready for :func:`fedmoments.measure`.

    Parameters
    ----------
    clients
        Client id -> (X, T): features (n, d), and targets (n,) or (n, m), as many at every client.
    feature_map
        Applied to features alone. Give it to ``fit`` as well: whatever is fitted carries it.

    Examples
    --------
    >>> import fedmoments as fm
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(60, 3))
    >>> parties = {k: (X[k::3], X[k::3] @ [1.0, 0.0, -2.0] + 5.0) for k in range(3)}
    >>> ledger = fm.measure(fm.with_targets(parties), fm.spec_for("ridge-regression"))
    >>> ledger.leave(2)
    >>> fm.fit("ridge-regression", ledger, ridge=1e-9).predict([[1.0, 1.0, 1.0]]).round(6)
    array([[4.]])
    """
    made: dict[Any, tuple[NDArray[np.float64], NDArray[np.int64]]] = {}
    widths: dict[Any, int] = {}
    for client, (X, targets) in clients.items():
        try:
            widths[client] = target_matrix(targets).shape[1]
            made[client] = joint(feature_map(X) if feature_map else X, targets)
        except InputError as error:
            raise InputError(f"client {client!r}: {error}") from error
    first = next(iter(widths), None)
    for client, width in widths.items():
        if width != widths[first]:
            raise InputError(
                f"all clients have the same targets, but client {first!r} has {widths[first]} and {client!r} has "
                f"{width}"
            )
    return made
