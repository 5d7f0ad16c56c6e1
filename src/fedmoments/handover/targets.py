"""Models of targets against tables and arrays: how well they predict, and what they say of new samples."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.classifier import MultiLabel, TargetModel
from fedmoments.core.columns import Columns
from fedmoments.errors import InputError
from fedmoments.samples.lakes.reading import files_of, table_batches

__all__ = ["TargetFigures", "figures_of", "read_targets"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class TargetFigures:
    """How well a model predicts one target.

    Parameters
    ----------
    name
        Of the target.
    r_squared, error
        R² (None where the target does not vary) and root mean square error.
    f1, wrong
        Of a label: F1, and the share of samples that are marked wrongly; None of a number.
    """

    name: str
    r_squared: float | None
    error: float
    f1: float | None = None
    wrong: float | None = None


def read_targets(place: str, model: TargetModel, features: tuple[str, ...] = ()) -> tuple[NDArray[Any], Floats]:
    """Return features (n, d) and targets (n, m) of a table, of several, or of an npz file.

    Parameters
    ----------
    place
        A file or a folder; ``csv:PATH`` is PATH.
    model
        Names the columns of targets.
    features
        Columns of features; all other columns of numbers by default.
    """
    path = place.partition(":")[2] if place.startswith(("csv:", "parquet:", "arrow:", "npz:")) else place
    columns = Columns(features=features or None, targets=model.class_names)
    parts = [batch for file in files_of(Path(path)) for batch in table_batches(file, columns)]
    if not parts:
        raise InputError(f"{place} has no row: there is nothing to test on")
    return np.concatenate([X for X, _ in parts]), np.concatenate([targets for _, targets in parts])


def figures_of(model: TargetModel, X: NDArray[Any], targets: Floats) -> list[TargetFigures]:
    """Return how well a model predicts each target.

    Examples
    --------
    >>> import fedmoments as fm
    >>> X = np.arange(6.0).reshape(6, 1)
    >>> model = fm.fit("ridge-regression", {"a": (X, 2 * X)}, ridge=1e-9, class_names=["double"])
    >>> figures = figures_of(model, X, 2 * X)
    >>> figures[0].name, round(figures[0].r_squared, 3)
    ('double', 1.0)
    """
    values, shares = model.values(X), model.r_squared(X, targets)
    errors = np.sqrt(np.square(values - targets).mean(axis=0))
    marks: list[tuple[float | None, float | None]] = [(None, None)] * len(errors)
    if isinstance(model, MultiLabel):
        said, true = values > model.thresholds, targets > 0.5
        both, either = (said & true).sum(axis=0), said.sum(axis=0) + true.sum(axis=0)
        f1 = np.where(either > 0, 2.0 * both / np.maximum(either, 1), 1.0)
        marks = list(zip(f1.tolist(), (said != true).mean(axis=0).tolist(), strict=True))
    rows = zip(model.class_names, shares, errors, marks, strict=True)
    return [
        TargetFigures(name, float(share) if np.isfinite(share) else None, float(error), *mark)
        for name, share, error, mark in rows
    ]
