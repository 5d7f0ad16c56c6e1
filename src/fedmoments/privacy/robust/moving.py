"""What an attacker can do to statistics: other labels, other places, other scatter; the moments still fit together.

With x → x + δ of a class: A → A + nδ and S → S + Aδᵀ + δAᵀ + nδδᵀ, and so for what follows from them. A scatter sketch
is centred, so it does not move; with counts times a factor its rows grow by the root of it.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.linalg import pack_symmetric, packed_diagonal
from fedmoments.core.statistics import MOMENTS, FixedPoint, Layout, Statistics
from fedmoments.core.statistics.moments import cell_sums
from fedmoments.errors import InputError

__all__ = ["relabelled", "rescattered", "translated"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: How many times larger than its trace junk is that no data have.
HUGE = 1e3


def relabelled(stats: Statistics, moved: Ints, factor: int = 1) -> Statistics:
    """Return statistics whose class c is called moved[c], with all counts and sums times a factor.

    Parameters
    ----------
    stats
        A client's statistics. In fixed point the factor is lowered until the agreed number of samples suffices.
    moved
        (C,) new label of every class; classes that share one are added up, rows of means too.
    factor
        1 or more.

    Examples
    --------
    >>> from fedmoments.core.statistics import StatisticsSpec
    >>> stats = Statistics.of([[1.0], [3.0]], [0, 1], StatisticsSpec(), n_classes=2)
    >>> relabelled(stats, np.array([1, 0]), 10).sums.ravel()
    array([30., 10.])
    """
    if stats.fixed_point:
        factor = max(min(factor, stats.fixed_point.max_samples // max(stats.n_samples, 1)), 1)
    new = _NewLabels.of(stats, moved)
    arrays = {name: new.moment(MOMENTS[name].layout, array, factor) for name, array in stats.arrays.items()}
    if stats.fixed_point and factor > 1:
        _smooth(arrays, factor, stats.dim, len(new.classes))
    apart = stats.spec.keeps_clients_apart
    return replace(
        stats,
        classes=new.classes,
        class_counts=new.by_class(stats.class_counts[:, None])[:, 0] * factor,
        arrays=arrays,
        row_labels=new.classes if new.joins and apart else new.row_labels,
        row_counts=new.by_row(stats.row_counts[:, None])[:, 0] * factor if apart else stats.row_counts,
        row_owners=stats.row_owners[:0],  # one client's, numbered anew
        sketch_residuals=stats.sketch_residuals * factor,
    )


@dataclass(frozen=True, eq=False)
class _NewLabels:
    """Where the classes (p,) and mean rows (r,) of statistics are under new labels; those of one label are added up."""

    classes: Ints
    places: Ints
    row_order: Ints
    row_labels: Ints
    joins: bool

    @classmethod
    def of(cls, stats: Statistics, moved: Ints) -> "_NewLabels":
        """Return them where class c is called moved[c]."""
        classes, places = np.unique(moved[stats.classes], return_inverse=True)
        row_order = np.argsort(moved[stats.row_labels], kind="stable")
        row_labels = moved[stats.row_labels][row_order]
        return cls(classes.astype(np.int64), places, row_order, row_labels, len(classes) < len(stats.classes))

    def by_class(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return one row a new class of an array with one row a class."""
        return _summed(array, self.places, len(self.classes))

    def by_row(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return mean rows in the new order, one a class where classes join."""
        rows = array[self.row_order]
        if not self.joins:
            return rows
        return _summed(rows, np.searchsorted(self.classes, self.row_labels), len(self.classes))

    def moment(self, layout: Layout, array: NDArray[Any], factor: int) -> NDArray[Any]:
        """Return a moment under the new labels, of ``factor`` times as many samples."""
        if layout is Layout.SKETCH:
            return np.asarray(array * np.sqrt(factor))
        if layout is Layout.CLASS:
            array = self.by_class(array)
        elif layout is Layout.ROWS:
            array = self.by_row(array)
        return array * factor


def _smooth(arrays: dict[str, NDArray[Any]], factor: int, dim: int, p: int) -> None:
    """Undo what the factor did to roundings, in place, as an attacker who multiplies before rounding has no need to.

    Every rounding grew by the factor, the least eigenvalue of a second moment by up to factor·d/2 units below zero. So
    many units more on every diagonal are invisible, and what must add up is made to add up again.
    """
    steps = np.arange(dim)
    diagonal = steps * (steps + 3) // 2
    if "class_grams" in arrays:
        arrays["class_grams"][:, diagonal] += factor * dim
    if "class_squares" in arrays:
        arrays["class_squares"] += factor * dim
    if "gram" in arrays:
        arrays["gram"][diagonal] += factor * dim * p
        if "class_squares" in arrays:
            arrays["gram"][diagonal] = arrays["class_squares"].sum(axis=0)
    if "class_norms" in arrays and "gram" in arrays and p:
        arrays["class_norms"][0] += arrays["gram"][diagonal].sum() - arrays["class_norms"].sum()


def _summed(values: NDArray[Any], places: NDArray[Any], number: int) -> NDArray[Any]:
    return cell_sums(values, places.astype(np.int64), number)


def translated(stats: Statistics, steps: Floats) -> Statistics:
    """Return the statistics of the same samples, those of class c moved by steps[c].

    Parameters
    ----------
    stats
        A client's statistics, without third and fourth moments.
    steps
        (C, d), in the features' unit.

    Examples
    --------
    >>> from fedmoments.core.statistics import StatisticsSpec
    >>> spec = StatisticsSpec.of("class_grams")
    >>> X, y, steps = np.array([[1.0, 2.0], [3.0, 5.0]]), np.array([0, 1]), np.array([[0.5, 0.0], [1.0, -1.0]])
    >>> moved = translated(Statistics.of(X, y, spec, n_classes=2), steps)
    >>> np.allclose(moved.gram, Statistics.of(X + steps[y], y, spec, n_classes=2).gram)
    True
    """
    known = stats.to_float()
    sums, counts = known.class_array("sums"), known.class_counts[:, None]
    moves = steps[known.classes]
    arrays: dict[str, NDArray[Any]] = {}
    for name, array in known.arrays.items():
        if name == "sums":
            arrays[name] = array + counts * moves
        elif name == "scatter_sketch":
            arrays[name] = array
        elif name == "client_means":
            arrays[name] = array + known.row_counts[:, None] * steps[known.row_labels]
        elif name == "class_squares":
            arrays[name] = array + 2 * moves * sums + counts * moves**2
        elif name == "class_norms":
            arrays[name] = array + (2 * moves * sums + counts * moves**2).sum(axis=1, keepdims=True)
        elif name == "class_grams":
            grown = [pack_symmetric(_growth(*cell)) for cell in zip(sums, moves, known.class_counts, strict=True)]
            arrays[name] = array + np.array(grown).reshape(array.shape)
        elif name == "gram":
            cross = sums.T @ moves
            arrays[name] = array + pack_symmetric(cross + cross.T + (moves * counts).T @ moves)
        else:
            raise InputError(
                f"statistics of '{name}' cannot be moved: let the simulated clients measure {stats.spec} without it"
            )
    return _rounded(replace(known, arrays=arrays), stats.fixed_point)


def _growth(total: Floats, move: Floats, count: int) -> Floats:
    """Return by how much Σ x xᵀ grows when ``count`` samples that sum to ``total`` move."""
    cross = np.outer(total, move)
    return np.asarray(cross + cross.T + count * np.outer(move, move))


def rescattered(stats: Statistics, kind: str, rng: np.random.Generator) -> Statistics:
    """Return statistics with the same counts and sums but other second moments.

    Parameters
    ----------
    stats
        A client's statistics.
    kind
        ``huge``: noise far beyond the trace, indefinite; ``random``: what the sums explain, and the rest of the trace
        in one random direction; ``empty``: what the sums explain, and no scatter.
    rng
        Draws the noise and the direction.

    Examples
    --------
    >>> from fedmoments.core.statistics import StatisticsSpec
    >>> stats = Statistics.of([[1.0, 0.0], [0.0, 1.0]], [0, 0], StatisticsSpec.of("gram"), n_classes=1)
    >>> rescattered(stats, "empty", np.random.default_rng(0)).gram
    array([[0.5, 0.5],
           [0.5, 0.5]])
    """
    known = stats.to_float()
    direction = rng.normal(size=known.dim)
    direction /= np.linalg.norm(direction)
    arrays: dict[str, NDArray[Any]] = dict(known.arrays)
    apart = "client_means" in arrays  # each row of means explains a part, and a server compares them with the rest
    sums, counts = (arrays["client_means"], known.row_counts) if apart else (arrays["sums"], known.class_counts)
    places = np.searchsorted(known.classes, known.row_labels) if apart else np.arange(len(known.classes))
    means = sums / np.sqrt(counts)[:, None]
    own = cell_sums(means**2, places, len(known.classes))
    if "gram" in arrays:
        arrays["gram"] = _junk(arrays["gram"], means, kind, direction, rng)
    if "class_grams" in arrays:
        junk = [_junk(row, means[places == at], kind, direction, rng) for at, row in enumerate(arrays["class_grams"])]
        arrays["class_grams"] = np.array(junk).reshape(arrays["class_grams"].shape)
    if "class_squares" in arrays:
        left = np.maximum(arrays["class_squares"].sum(axis=1) - own.sum(axis=1), 0.0)[:, None]
        one = np.eye(known.dim)[int(np.argmax(np.abs(direction)))]
        noise = HUGE * left * np.abs(rng.normal(size=own.shape))
        arrays["class_squares"] = own + {"huge": noise, "random": left * one, "empty": 0.0 * left}[kind]
    if "class_norms" in arrays:
        arrays["class_norms"] = {"huge": HUGE * arrays["class_norms"]}.get(kind, own.sum(axis=1, keepdims=True))
    residuals = known.sketch_residuals
    if "scatter_sketch" in arrays:
        arrays["scatter_sketch"], residuals = _junk_sketch(known, kind, direction)
    return _rounded(replace(known, arrays=arrays, sketch_residuals=residuals), stats.fixed_point)


def _junk_sketch(known: Statistics, kind: str, direction: Floats) -> tuple[Floats, Floats]:
    """Return as many rows as before, and a residual: much more, all in one direction, or nothing."""
    rows, residuals = known.arrays["scatter_sketch"], known.sketch_residuals
    if kind == "huge":
        return rows * np.sqrt(HUGE), residuals * HUGE
    moved = np.zeros_like(rows)
    if kind == "empty":
        return moved, 0.0 * residuals
    moved[:1] = np.sqrt(known.sketches.trace) * direction
    return moved, 0.0 * residuals if len(rows) else residuals


def _junk(packed: Floats, means: Floats, kind: str, direction: Floats, rng: np.random.Generator) -> Floats:
    """Return a packed matrix in the place of one whose class sums explain meansᵀ·means."""
    explained = means.T @ means
    trace = float(packed_diagonal(packed).sum())
    if kind == "huge":
        noise = rng.normal(size=explained.shape)
        return pack_symmetric(HUGE * trace / len(explained) * (noise + noise.T))
    left = max(trace - float(np.trace(explained)), 0.0) if kind == "random" else 0.0
    return pack_symmetric(explained + left * np.outer(direction, direction))


def _rounded(stats: Statistics, form: FixedPoint | None) -> Statistics:
    """Return statistics in fixed point without asking whether the norm bound allows them: attackers do not ask."""
    if form is None:
        return stats
    arrays = {
        name: array
        if MOMENTS[name].layout is Layout.SKETCH
        else np.rint(np.clip(np.ldexp(array, form.bits(MOMENTS[name].degree)), -(2.0**62), 2.0**62)).astype(np.int64)
        for name, array in stats.arrays.items()
    }
    return replace(stats, arrays=arrays, fixed_point=form)
