"""Linear rules to choose from: heads × amounts, from one covariance or from a family of them.

=======  ==========================================================  ==========================================
source   what is tried                                               shares one
=======  ==========================================================  ==========================================
free     LDA, ridge × γ = automatic × 4⁻³ … 4³                       eigendecomposition
exact    LDA, ridge with the γ of the evidence, total ridge          eigendecomposition; total ridge has its own
=======  ==========================================================  ==========================================

and the nearest mean for all. Automatic γ is ½·tr(Σ)/ν, as in :class:`fedmoments.Shrinkage`, and the ridge λ of the
total scatter is that of generalised cross-validation. Amounts are free of units. The default one comes first.

Of an exact covariance only the head is tried: N − C degrees of freedom are known to stand behind it, and the amounts
that follow in closed form (``core.gaussian.evidence``) are better than what few clients held out would choose.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from fedmoments.core.gaussian.class_gaussians import ClassGaussians
from fedmoments.core.gaussian.evidence import evidence_shrinkage
from fedmoments.core.gaussian.linear_rules import Centres, LinearRule, lda_rule, nearest_rule, ridge_rule
from fedmoments.core.gaussian.scatter import MatrixScatter, Scatter
from fedmoments.core.gaussian.sketch_scatter import between_scatter
from fedmoments.core.linalg import EPSILON, gcv_ridge, solve_positive, symmetrize_upper
from fedmoments.core.statistics.statistics import Statistics

__all__ = [
    "BY_EVIDENCE",
    "FACTORS",
    "Candidate",
    "Key",
    "exact_training_scatter",
    "nearest_rules",
    "shrunk_rules",
    "total_rules",
]

Floats = NDArray[np.float64]

#: What identifies a candidate in every fold: head, kind of amount, factor.
Key = tuple[str, str, float]

#: Multiples of the automatic shrinkage that are tried; the default first.
FACTORS = (1.0, 4.0, 0.25, 16.0, 1 / 16, 64.0, 1 / 64)
#: Stands for the γ of the evidence among factors.
BY_EVIDENCE = 0.0


@dataclass(frozen=True)
class Candidate:
    """A head and its amount of shrinkage.

    Parameters
    ----------
    head
        ``lda``, ``ridge`` (on the within scatter), ``total`` (ridge on the total scatter) or ``ncm``.
    kind
        What the amount is: ``shrinkage`` (γ), ``ridge`` (λ), or empty.
    amount
        γ or λ in squared feature units.
    factor
        γ in multiples of the automatic one, or :data:`BY_EVIDENCE`; 1 elsewhere.

    Examples
    --------
    >>> str(Candidate("lda", "shrinkage", 0.03, 4.0)), str(Candidate("ncm"))
    ('lda, shrinkage 0.03 (4 × automatic)', 'ncm')
    """

    head: str
    kind: str = ""
    amount: float = 0.0
    factor: float = 1.0

    @property
    def key(self) -> Key:
        """What is the same in every fold."""
        return self.head, self.kind, self.factor

    @property
    def setting(self) -> str:
        """The amount in words; empty without one."""
        if not self.kind:
            return ""
        times = "by evidence" if self.factor == BY_EVIDENCE else f"{self.factor:g} × automatic"
        return f"{self.kind} {self.amount:.3g}" + (f" ({times})" if self.kind == "shrinkage" else "")

    def __str__(self) -> str:
        return ", ".join(filter(None, (self.head, self.setting)))


@dataclass(frozen=True)
class _Spectrum:
    """Eigenvalues of a scatter S (d, d) and their vectors (d, r); all others are 0."""

    values: Floats
    vectors: Floats

    @classmethod
    def of(cls, scatter: Scatter) -> "_Spectrum":
        if scatter.n_rows is not None and scatter.n_rows < scatter.dim:
            rows = scatter.factor()
            values, left = eigh(rows @ rows.T)
            sound = values > max(float(values[-1]), 0.0) * EPSILON * len(values) if len(values) else values > 0
            return cls(values[sound], rows.T @ (left[:, sound] / np.sqrt(values[sound])))
        values, vectors = eigh(symmetrize_upper(scatter.scaled(1.0)))
        return cls(np.maximum(values, 0.0), vectors)

    @property
    def all_values(self) -> Floats:
        """All d eigenvalues, in any order."""
        return np.concatenate([self.values, np.zeros(len(self.vectors) - len(self.values))])

    def solve(self, add: float, right: Floats) -> Floats:
        """Return (S + add·I)⁻¹R (d, m)."""
        inside = self.vectors.T @ right
        solved = self.vectors @ (inside / (self.values + add)[:, None])
        if len(self.values) < len(right):
            solved += (right - self.vectors @ inside) / add
        return np.asarray(solved)


def shrunk_rules(
    scatter: Scatter,
    centres: Centres,
    n_samples: float,
    *,
    heads: tuple[str, ...],
    priors: str,
    factors: tuple[float, ...] = FACTORS,
) -> Iterator[tuple[Candidate, LinearRule]]:
    """Yield LDA and ridge on one scatter, with all amounts of shrinkage.

    Parameters
    ----------
    scatter
        The pooled within-class scatter, with degrees of freedom.
    centres
        Class means and shares.
    n_samples
        N, samples behind it.
    heads
        Which of ``lda`` and ``ridge``, in which order; others are left out.
    priors
        Of LDA: ``data`` or ``balanced``.
    factors
        Multiples of the automatic shrinkage; :data:`BY_EVIDENCE` for that of the evidence.

    Examples
    --------
    >>> centres = Centres(np.array([[0.0, 0.0], [2.0, 0.0]]), np.array([0.5, 0.5]))
    >>> rules = dict(shrunk_rules(MatrixScatter(np.diag([4.0, 2.0]), 3.0), centres, 5.0, heads=("lda",), priors="data"))
    >>> [round(candidate.amount, 4) for candidate in rules]
    [0.3333, 1.3333, 0.0833, 5.3333, 0.0208, 21.3333, 0.0052]
    """
    if scatter.dof <= 0 or scatter.trace <= 0:
        return
    spectrum, automatic = _Spectrum.of(scatter), 0.5 * scatter.trace / scatter.dof
    spread = n_samples - np.count_nonzero(centres.present)
    for factor in factors:
        amount = factor * automatic or evidence_shrinkage(spectrum.all_values, scatter.dof)
        for head in heads:
            if head == "lda":
                solved = scatter.weight * spectrum.solve(scatter.weight * amount, centres.columns)
                yield Candidate(head, "shrinkage", amount, factor), lda_rule(centres, solved, priors)
            elif head == "ridge":
                solved = spectrum.solve(spread * amount, centres.columns)
                yield Candidate(head, "shrinkage", amount, factor), ridge_rule(centres, solved, n_samples)


def total_rules(scatter: Scatter, centres: Centres, n_samples: float) -> Iterator[tuple[Candidate, LinearRule]]:
    """Yield ridge on the total scatter, with the λ of generalised cross-validation.

    Parameters
    ----------
    scatter
        The pooled within-class scatter.
    centres
        Class means and shares.
    n_samples
        N.

    Examples
    --------
    >>> centres = Centres(np.array([[0.0, 1.0], [2.0, 0.0]]), np.array([0.5, 0.5]))
    >>> ((candidate, rule),) = total_rules(MatrixScatter(np.diag([4.0, 2.0]), 3.0), centres, 5.0)
    >>> candidate.head, candidate.kind, rule.weights.shape
    ('total', 'ridge', (2, 2))
    """
    around = symmetrize_upper(scatter.scaled(1.0))
    weights = n_samples * centres.shares
    deltas = centres.columns[:, :-1]
    around += (weights * deltas) @ deltas.T
    middle = centres.middle
    right = np.asarray((weights[:, None] * centres.means).T)
    gram = around + n_samples * np.outer(middle, middle)
    amount = gcv_ridge(gram, right, energy=n_samples, n_samples=max(round(n_samples), 1))
    around[np.diag_indices_from(around)] += amount
    rule = ridge_rule(centres, solve_positive(around, centres.columns), n_samples)
    yield Candidate("total", "ridge", amount), rule


def exact_training_scatter(stats: Statistics, training: Statistics) -> MatrixScatter:
    """Return the exact scatter less what the means of clients held out tell: Σ_k M_k + B₂ of the training clients.

    The scatter inside clients is independent of their means where classes are Gaussian, so that it may hold the clients
    held out; the scatter of means, which is made of the deviations to be tried, may not.

    Parameters
    ----------
    stats
        With ``gram`` and client means.
    training
        The client means of some of its contributions.

    Examples
    --------
    >>> from fedmoments.core.gaussian.held_out import of_owners
    >>> from fedmoments.core.statistics import StatisticsSpec
    >>> spec = StatisticsSpec.of("gram", "client_means")
    >>> clients = [Statistics.of([[x - 1.0], [x + 1.0]], [0, 0], spec, n_classes=1) for x in (0.0, 10.0, 40.0)]
    >>> stats = Statistics.merge(clients)
    >>> scatter = exact_training_scatter(stats, of_owners(stats, np.array([0, 1])))
    >>> scatter.matrix.round(6), scatter.weight
    (array([[106.]]), 4.0)
    """
    every, some = ClassGaussians(stats, "exact"), ClassGaussians(training, "free")
    matrix = symmetrize_upper(every.scatter.scaled(1.0))
    matrix -= between_scatter(stats.rows, every.means)
    matrix += between_scatter(training.rows, some.means)
    weight = stats.n_samples - len(stats.row_labels) + len(training.row_labels) - len(training.classes)
    rounding = every.scatter.rounding if isinstance(every.scatter, MatrixScatter) else None
    return MatrixScatter(matrix, float(weight), rounding)


def nearest_rules(centres: Centres) -> Iterator[tuple[Candidate, LinearRule]]:
    """Yield the nearest mean.

    Examples
    --------
    >>> [str(candidate) for candidate, _ in nearest_rules(Centres(np.eye(2), np.array([0.5, 0.5])))]
    ['ncm']
    """
    yield Candidate("ncm"), nearest_rule(centres)
