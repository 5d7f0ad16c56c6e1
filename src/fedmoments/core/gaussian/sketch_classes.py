"""The scatter of every class from sketch rows that have a label: W_c = B₂c + Σ_k V_kcᵀV_kc + R_c.

B₂c = Σ_k n_kc (μ_kc − μ_c)(μ_kc − μ_c)ᵀ follows from the client means, V_kc are the rows that client k sent of class c,
and R_c = Σ_k R_kc is what it did not send of that class: trace ρ_kc, guessed in the shape that all classes share
(:mod:`fedmoments.core.gaussian.residual`), less what V_kc told already.

**Laws** at full rank W_c is the exact scatter of the class; Σ_c W_c is the pooled scatter Ŵ of the same sketches, so
that its trace is exact; the order of clients changes no bit.

All parts are rows, R_kc = w_kc·F − T_kcᵀT_kc among them. So W_c in a subspace V (d, k) takes one product of all rows
with V and Gram products of k columns: no (d, d) matrix a class.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.gaussian.sketch_scatter import SketchScatter
from fedmoments.core.linalg import blocks
from fedmoments.core.statistics.mean_rows import MeanRows
from fedmoments.core.statistics.moments import cell_sums
from fedmoments.core.statistics.statistics import Statistics

__all__ = ["SketchClasses"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class SketchClasses:
    """Class scatters W_c = Σ rows rowsᵀ − Σ taken takenᵀ + w_c·F, in k dimensions.

    Parameters
    ----------
    rows, row_labels
        (m, k) and (m,): client means around class means, times √n, and sketch rows, by ascending class.
    taken, taken_labels
        (t, k) and (t,): what the guess of the rest holds already, by ascending class.
    weights
        (C,) w_c.
    shape
        F, (k, k).
    """

    rows: Floats
    row_labels: Ints
    taken: Floats
    taken_labels: Ints
    weights: Floats
    shape: Floats

    @classmethod
    def of(
        cls, stats: Statistics, means: Floats, scatter: SketchScatter, basis: Floats | None = None
    ) -> "SketchClasses":
        """Return the class scatters of labelled sketches.

        Parameters
        ----------
        stats
            With client means, and a label for every sketch block.
        means
            (C, d) class means.
        scatter
            The pooled scatter of the same sketches.
        basis
            V (d, k), the subspace; all d dimensions by default.

        Examples
        --------
        >>> from fedmoments.core.gaussian.class_gaussians import ClassGaussians
        >>> from fedmoments.core.statistics import SketchPlan, StatisticsSpec
        >>> plan = SketchPlan(None, rank=4, code="float64", share=1.0, rows="class")
        >>> X, y = np.array([[0.0, 1.0], [2.0, 1.0], [5.0, 5.0], [5.0, 9.0]]), [0, 0, 1, 1]
        >>> stats = Statistics.of(X, y, StatisticsSpec.of("scatter_sketch", sketch=plan), n_classes=2)
        >>> gaussians = ClassGaussians(stats, "sketch")
        >>> classes = SketchClasses.of(stats, gaussians.means, gaussians.scatter)
        >>> classes.scatter(0).round(9) + 0.0
        array([[2., 0.],
               [0., 0.]])
        """
        sketches, dim = scatter.sketches, stats.dim

        def project(rows: Floats) -> Floats:
            return rows if basis is None else np.asarray(rows @ basis)

        centred, labels = _centred(stats.rows, means, project)
        weights, taken, taken_labels = np.zeros(stats.n_classes), [project(np.zeros((0, dim)))], [labels[:0]]
        shape = np.zeros((dim, dim)) if scatter.shape is None else scatter.shape
        for which, own, rest in scatter.unsent:
            np.add.at(weights, sketches.labels[which], own)
            taken.append(project(rest.reshape(-1, dim)))
            taken_labels.append(np.repeat(sketches.labels[which], rest.shape[1]))
        return cls(
            *_by_label(
                np.concatenate([centred, project(sketches.rows)]), np.concatenate([labels, sketches.row_labels])
            ),
            *_by_label(np.concatenate(taken), np.concatenate(taken_labels)),
            weights,
            project(project(shape).T),
        )

    def scatter(self, label: int) -> Floats:
        """Return W_c (k, k) of one class."""
        rows, taken = _of_label(self.rows, self.row_labels, label), _of_label(self.taken, self.taken_labels, label)
        return np.asarray(rows.T @ rows - taken.T @ taken + self.weights[label] * self.shape)

    def diagonals(self) -> Floats:
        """Return the diagonal (C, k) of every W_c."""
        number = len(self.weights)
        known = cell_sums(self.rows**2, self.row_labels, number) - cell_sums(self.taken**2, self.taken_labels, number)
        return np.asarray(np.maximum(known + self.weights[:, None] * np.diagonal(self.shape), 0.0))


def _centred(rows: MeanRows, means: Floats, project: Callable[[Floats], Floats]) -> tuple[Floats, Ints]:
    """Return √n (μ_kc − μ_c) of all client means in the subspace, and the class of each."""
    order, parts = rows.order(), [project(np.zeros((0, means.shape[1])))]
    for block in blocks(len(rows)):
        some = order[block]
        away = rows.block_means(some) - means[rows.labels[some]]
        parts.append(project(away) * np.sqrt(rows.counts[some])[:, None])
    return np.concatenate(parts), rows.labels[order]


def _by_label(rows: Floats, labels: Ints) -> tuple[Floats, Ints]:
    order = np.argsort(labels, kind="stable")
    return rows[order], labels[order]


def _of_label(rows: Floats, labels: Ints, label: int) -> Floats:
    start, stop = np.searchsorted(labels, [label, label + 1])
    return rows[start:stop]
