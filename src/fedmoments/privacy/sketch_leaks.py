"""What a scatter sketch tells of single samples: from counts, from its numbers, and measured on the samples themselves.

Let x_i − μ be what sample i differs from its class mean by, M = Σ (x_i − μ)(x_i − μ)ᵀ, ρ the residual trace, and P the
projection on the r leading eigenvectors of M, which a sketch has rows for.

- The *told share* of a sample is ‖P(x_i − μ)‖²/‖x_i − μ‖². Its mean, weighted by ‖x_i − μ‖², is 1 − ρ/tr M, which
  whoever reads the sketch knows; leading directions hold most, so it is at least r/(n − |C|), which counts alone say.
- At r = n − |C| it is 1 for all samples, as it is for members alone while n − |C| < d: whether a known vector was there
  is then certain. If n − |C| = 1 there is one class of two samples, and they are μ ± v/√2.
- Below, a member's told share is larger than that of another sample of its class. On digits' pixels (d = 64), image
  features (d = 512) and sentence embeddings (d = 384) a member was ranked above a non-member with probability 0.6 at
  r = (n − |C|)/20, 0.7 at 1/10, 0.75 at 1/8, 0.87 at 1/4 and 0.97 at 1/2, whatever n.
- The *nearest row* of a sample is the row v_j with the largest cos²(x_i − μ, v_j). Where that is near 1, the row is the
  sample's difference from its mean, up to sign and size: outliers of small clients have such rows at any share.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmoments.core.linalg import blocks
from fedmoments.core.statistics import Statistics
from fedmoments.core.statistics.sketches import ALL_CLASSES
from fedmoments.errors import InputError

__all__ = ["Exposure", "SketchOutline", "measure_exposure", "outlines_of", "sketch_facts"]

Floats = NDArray[np.float64]

#: A sketch that holds this part of the trace tells as much as one that holds all of it; int8 alone rounds off so much.
WHOLE = 0.99


@dataclass(frozen=True)
class Exposure:
    """What a sketch tells of the samples that it was made from.

    Parameters
    ----------
    mean, worst
        Mean and largest told share over samples, 0 to 1.
    nearest
        Largest cos² between what a sample differs from its class mean by and one row.
    """

    mean: float
    worst: float
    nearest: float

    def to_dict(self) -> dict[str, float]:
        """Return plain values for JSON."""
        return {"mean": self.mean, "worst": self.worst, "nearest": self.nearest}


@dataclass(frozen=True)
class SketchOutline:
    """The sketch of one contribution, or of one class of it, in what it reveals.

    Parameters
    ----------
    rank
        Rows r.
    spare
        n − |C|, or n − 1 of a class: the rank at which it would span the samples.
    energy
        1 − ρ/tr M, the part of the scatter that it tells; None before anything is measured.
    exposure
        Measured on the samples; None where these are not at hand.
    label
        The class that all rows belong to, or ``ALL_CLASSES``.

    Examples
    --------
    >>> SketchOutline(5, 20).share
    0.25
    """

    rank: int
    spare: int
    energy: float | None = None
    exposure: Exposure | None = None
    label: int = ALL_CLASSES

    @property
    def share(self) -> float:
        """r/(n − |C|), the least mean told share of samples; 0 without spare samples."""
        return min(self.rank / self.spare, 1.0) if self.spare > 0 else 0.0

    def spans(self, dim: int) -> bool:
        """Whether the whole scatter is revealed: by as many rows as there can be, or by fewer that hold nearly all."""
        return self.rank > 0 and (self.rank >= min(self.spare, dim) or (self.energy or 0.0) >= WHOLE)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        values: dict[str, Any] = {"rank": self.rank, "spare": self.spare, "share": self.share}
        if self.label != ALL_CLASSES:
            values["label"] = self.label
        if self.energy is not None:
            values["energy"] = self.energy
        return values | ({"told": self.exposure.to_dict()} if self.exposure else {})


def outlines_of(stats: Statistics) -> tuple[SketchOutline, ...]:
    """Return what is to be known of every contribution's sketch without samples; by class where rows have labels.

    Blocks that several contributions were compressed into belong to no single one, and are left out.

    Examples
    --------
    >>> from fedmoments.core.statistics import SketchPlan, StatisticsSpec
    >>> spec = StatisticsSpec.of("scatter_sketch", sketch=SketchPlan(None, rank=1, share=0.5))
    >>> stats = Statistics.of([[0.0, 3.0], [2.0, 3.0], [1.0, 2.0]], [0, 0, 0], spec, n_classes=1)
    >>> outlines_of(stats)[0].rank, outlines_of(stats)[0].spare, round(outlines_of(stats)[0].energy, 2)
    (1, 2, 0.75)
    """
    if not stats.spec.has_sketch:
        return ()
    spare: dict[tuple[int, int], int] = {}
    samples = cell_counts(stats.row_owners * stats.n_classes + stats.row_labels, stats.row_counts)
    for cell, count in samples.items():
        owner, label = divmod(cell, stats.n_classes)
        for whose in (label, ALL_CLASSES):
            spare[owner, whose] = spare.get((owner, whose), 0) + count - 1
    sketches, outlines = stats.sketches, []
    for (rows, residual, owner), label in zip(sketches.blocks(), sketches.labels.tolist(), strict=True):
        if owner < 0:
            continue
        energy = float(np.square(rows).sum())
        part = energy / (energy + residual) if energy > 0 else 0.0
        outlines.append(SketchOutline(len(rows), spare.get((owner, label), 0), part, label=label))
    return tuple(outlines)


def cell_counts(cells: NDArray[np.int64], counts: NDArray[np.int64]) -> dict[int, int]:
    """Return how many samples every cell has, rows of the same cell added up.

    Examples
    --------
    >>> cell_counts(np.array([3, 5, 3]), np.array([2, 1, 4]))
    {3: 6, 5: 1}
    """
    names, places = np.unique(cells, return_inverse=True)
    return dict(zip(names.tolist(), np.bincount(places, counts).astype(int).tolist(), strict=True))


def measure_exposure(features: ArrayLike, labels: ArrayLike, rows: ArrayLike) -> Exposure:
    """Measure what a sketch tells of the samples that it was made from: for the client alone, who has them.

    Parameters
    ----------
    features, labels
        (n, d) behind the feature map, and (n,): the samples that leave.
    rows
        (r, d) of the sketch, as sent.

    Examples
    --------
    >>> measure_exposure([[0.0, 0.0], [2.0, 0.0], [0.0, 3.0], [0.0, 5.0]], [0, 0, 1, 1], [[0.0, 1.4]])
    Exposure(mean=0.5, worst=1.0, nearest=1.0)
    """
    X, y, V = _checked(features, labels, rows)
    right = _orthonormal(V)
    lengths = np.sqrt(np.square(V).sum(axis=1))
    units = V[lengths > 0] / lengths[lengths > 0, None]
    shares, nearest = [], 0.0
    for label in np.unique(y):
        mine = np.flatnonzero(y == label)
        centre = X[mine].mean(axis=0, dtype=np.float64)
        for block in blocks(len(mine)):
            gaps = X[mine[block]] - centre
            energies = np.square(gaps).sum(axis=1)
            gaps, energies = gaps[energies > 0], energies[energies > 0]
            shares.append(np.square(gaps @ right.T).sum(axis=1) / energies)
            if len(units) and len(gaps):
                nearest = max(nearest, float((np.square(gaps @ units.T) / energies[:, None]).max()))
    capped = np.minimum(np.concatenate(shares), 1.0) if shares else np.zeros(0)
    if not len(capped):
        return Exposure(0.0, 0.0, 0.0)
    return Exposure(float(capped.mean()), float(capped.max()), min(nearest, 1.0))


def _checked(features: ArrayLike, labels: ArrayLike, rows: ArrayLike) -> tuple[NDArray[Any], NDArray[Any], Floats]:
    X, y, V = np.asarray(features), np.asarray(labels), np.asarray(rows, np.float64)
    if X.ndim != 2 or y.shape != X.shape[:1] or V.ndim != 2 or V.shape[1] != X.shape[1]:
        raise InputError(
            "what a sketch tells is measured on features (n, d), labels (n,) and rows (r, d), but arrays of shape "
            f"{X.shape}, {y.shape} and {V.shape} arrived"
        )
    return X, y, V


def _orthonormal(rows: Floats) -> Floats:
    """Return orthonormal rows with the same span; what is within rounding of 0 spans nothing."""
    if not rows.size:
        return rows[:0]
    _, values, right = np.linalg.svd(rows, full_matrices=False)
    return np.asarray(right[values > values[0] * max(rows.shape) * np.finfo(np.float64).eps])


def sketch_facts(stats: Statistics) -> dict[str, float] | None:
    """Return what a privacy card tells of all clients' sketches; None without any.

    Returns
    -------
    dict
        ``clients`` with a sketch, ``rows`` of all, mean and ``most`` of r/(n − |C|) over clients with spare samples
        (``share``), and the mean part of the scatter that is told (``energy``). Where rows belong to classes, both are
        over the classes of clients, with r/(n − 1).

    Examples
    --------
    >>> from fedmoments.core.statistics import SketchPlan, StatisticsSpec
    >>> spec = StatisticsSpec.of("scatter_sketch", sketch=SketchPlan(None, rank=1, share=0.5))
    >>> one = Statistics.of([[0.0, 3.0], [2.0, 3.0], [1.0, 2.0]], [0, 0, 0], spec, n_classes=1)
    >>> sketch_facts(one + one)
    {'clients': 2, 'rows': 2, 'share': 0.5, 'most': 0.5, 'energy': 0.75}
    """
    outlines = [outline for outline in outlines_of(stats) if outline.spare > 0]
    if not outlines:
        return None
    shares, labelled = [outline.share for outline in outlines], stats.sketches.by_class
    return {
        "clients": len(np.unique(stats.sketch_owners[stats.sketch_owners >= 0])) if labelled else len(outlines),
        "rows": sum(outline.rank for outline in outlines),
        "share": float(np.mean(shares)),
        "most": float(np.max(shares)),
        "energy": round(float(np.mean([outline.energy or 0.0 for outline in outlines])), 6),
    }
