"""The class sums of a contribution, how far each may be off, and the groups of samples that they are made of.

Checks of moments against each other take one :class:`Evidence` and a function that refuses; a new check is a file with
such a function and a line in :func:`fedmoments.wire.checks.check_moments`. Slack is derived there.

Whether second moments are positive semi-definite, of a rank that the samples can have, and leave room for the sums.

With B = Σ x xᵀ and sums A_g over the n_g samples of groups that were added up apart (rows of client means, else the
classes), data have the *scatter* B − Σ A_g A_gᵀ/n_g ⪰ 0, and then B ⪰ 0 too. Each sample beyond the first of its group
adds one direction, so the scatter of n samples in g groups has a rank of at most n − g: none where every sample stands
alone. One Cholesky factorisation of scatter + slack·I decides on the first; where n − g < d one with pivots, or the
eigenvalue λ of that number if it finds more directions, on the second. The slack is what rounding can do to eigenvalues
of sound data, in the norms of :mod:`fedmoments.wire.checks`:

- fixed point: every entry of B errs by half a resolution ρ₂, the matrix by d·ρ₂/2;
- sums that err by e_g: (2‖A_g‖‖e_g‖ + ‖e_g‖²)/n_g each;
- float64, at the client and in the factorisation here: 2⁻⁵²·(4n + 4d + 256) of the trace of B.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh, lapack

from fedmoments.core.linalg import add_gram, add_packed, new_gram, packed_diagonal
from fedmoments.core.statistics import MOMENTS, FixedPoint, Layout, Statistics
from fedmoments.core.statistics.fixed_point import SLACK
from fedmoments.core.statistics.moments import cell_sums
from fedmoments.wire.agreement import Agreement
from fedmoments.wire.body import Refuse
from fedmoments.wire.mean_rows import error_norms, mean_errors
from fedmoments.wire.reason import Reason

__all__ = [
    "MATRICES",
    "UNIT",
    "Evidence",
    "Sums",
    "check_definite",
    "counts_of",
    "is_definite",
    "read_evidence",
    "relative_error",
    "slack_of",
    "slack_of_sums",
]


Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

UNIT = 2.0**-52
#: Moments that are packed matrices.
MATRICES = ("gram", "class_grams")


@dataclass(frozen=True)
class Sums:
    """Sums (g, d) of groups of samples in float64, how far each may be off ((g, d) or (g, 1)), and counts (g, 1)."""

    values: Floats
    errors: Floats
    counts: Floats

    def __getitem__(self, some: Any) -> "Sums":
        return Sums(self.values[some], self.errors[some], self.counts[some])

    def __len__(self) -> int:
        return len(self.counts)


@dataclass(frozen=True)
class Evidence:
    """A contribution in fixed point whose shapes, types, labels and counts are right already.

    Parameters
    ----------
    stats, form
        It, and its fixed point.
    classes
        Sums of every class.
    groups, places
        Sums of every group whose samples were added up apart, and the class (g,) that it belongs to: rows of client
        means where these were sent, else the classes themselves.
    code
        Code of sketch rows.
    """

    stats: Statistics
    form: FixedPoint
    classes: Sums
    groups: Sums
    places: Ints
    code: str

    @property
    def bound(self) -> float:
        """R, with the room that features normalised in float32 need."""
        return self.form.norm_bound * (1 + SLACK)

    def per_class(self, numbers: NDArray[Any]) -> NDArray[Any]:
        """Add up numbers (g, w) of groups for every class, (p, w)."""
        return numbers if len(self.groups) == len(self.classes) else cell_sums(numbers, self.places, len(self.classes))

    @property
    def known(self) -> NDArray[np.bool_]:
        """Whether every sample of a class stands alone in a group, (p,): then all its moments follow."""
        alone = self.per_class(np.ones((len(self.groups), 1)))
        return np.asarray((alone == self.classes.counts)[:, 0])

    def second(self, name: str) -> Floats:
        """Return a second moment, of a matrix its diagonal, in float64."""
        array = self.stats.arrays[name]
        return self.form.dequantize(packed_diagonal(array) if name in MATRICES else array, 2)


def read_evidence(stats: Statistics, agreement: Agreement, refuse: Refuse) -> Evidence:
    """Return the sums of classes and groups, once no norm is beyond what its count allows."""
    form = agreement.fixed_point
    choice = agreement.choice(stats.n_samples, len(stats.classes))
    name = "sums" if "sums" in stats.arrays else "client_means"
    stored = stats.arrays[name]
    values = form.dequantize(stored, degree=1)
    samples = counts_of(stats, MOMENTS[name].layout)
    errors = form.resolution(1) / 2 + mean_errors(
        values, samples, "int64" if name == "sums" else choice.means or "int64"
    )
    norms = np.sqrt(np.einsum("ij,ij->i", values, values))
    allowed = samples * form.norm_bound * (1 + SLACK) + error_norms(errors, stats.dim)
    if (norms > allowed).any():
        worst = int(np.argmax(norms / allowed))
        refuse(
            Reason.OUT_OF_RANGE,
            f"'{name}' holds a sum of {samples[worst]:.0f} features whose norm is {norms[worst]:.6g}, but norm_bound="
            f"{form.norm_bound:g} allows {allowed[worst]:.6g}; clip features to the bound",
        )
    groups = Sums(values, errors, samples[:, None])
    if name == "sums" or len(stored) == len(stats.classes):  # one row a class
        return Evidence(stats, form, groups, groups, np.arange(len(groups)), choice.code)
    places, p = np.searchsorted(stats.classes, stats.row_labels), len(stats.classes)
    totals = form.dequantize(cell_sums(stored, places, p), degree=1)
    classes = Sums(totals, cell_sums(errors, places, p), stats.class_counts[:, None].astype(np.float64))
    return Evidence(stats, form, classes, groups, places, choice.code)


def counts_of(stats: Statistics, layout: Layout) -> Floats:
    """Return over how many samples the numbers of a layout sum, (p,), (r,) or ()."""
    counts = {Layout.CLASS: stats.class_counts, Layout.ROWS: stats.row_counts}
    return counts.get(layout, np.asarray(stats.n_samples)).astype(np.float64)


def relative_error(counts: Any, dim: int) -> Any:
    """Return the relative error of float64 sums over ``counts`` samples.

    Examples
    --------
    >>> relative_error(64, 128) == 2.0**-44
    True
    """
    return UNIT * (counts + (dim + 64))


def check_definite(evidence: Evidence, refuse: Refuse) -> None:
    """Check every second moment.

    Parameters
    ----------
    evidence
        A contribution.
    refuse
        Called with the reason.
    """
    stats, groups = evidence.stats, evidence.groups
    if "gram" in stats.arrays:
        _check("its gram", stats.arrays["gram"], groups, evidence.form, refuse)
    for at, packed in enumerate(stats.arrays.get("class_grams", ())):
        own = groups[evidence.places == at]
        _check(f"its gram of class {stats.classes[at]}", packed, own, evidence.form, refuse)


def _check(name: str, packed: NDArray[np.int64], groups: Sums, form: FixedPoint, refuse: Refuse) -> None:
    """Check one matrix against the groups whose samples it sums over."""
    slack = slack_of(packed, groups, form)
    means = groups.values / np.sqrt(groups.counts)
    if not is_definite(packed, means, slack, form):
        if is_definite(packed, means[:0], slack, form):
            refuse(
                Reason.INDEFINITE, f"{name} less what its class sums explain has a negative eigenvalue, as no data have"
            )
        refuse(Reason.INDEFINITE, f"{name} has a negative eigenvalue, as no second moment of data has")
    spare = int(groups.counts.sum()) - len(groups)
    if spare < means.shape[1] and _rank_exceeds(packed, means, spare, slack, form):
        refuse(
            Reason.INCONSISTENT,
            f"{name} less what its class sums explain has more than {spare} directions, but "
            f"{groups.counts.sum():.0f} samples in {len(groups)} groups can have no more: its counts are not those of "
            "its second moments",
        )


def slack_of(packed: NDArray[np.int64], groups: Sums, form: FixedPoint) -> float:
    """Return how far rounding can move an eigenvalue of sound data."""
    dim = groups.values.shape[1]
    trace = math.ldexp(float(np.abs(packed_diagonal(packed).astype(np.float64)).sum()), -form.bits(2))
    of_sums = slack_of_sums(groups)
    of_floats = 2.0**-52 * (4 * float(groups.counts.sum()) + 4 * dim + 256) * trace
    return float((dim * form.resolution(2) / 2 + of_sums + of_floats) * (1 + 1e-6))


def slack_of_sums(groups: Sums) -> float:
    """Return Σ (2‖A_g‖‖e_g‖ + ‖e_g‖²)/n_g, how far Σ ‖A_g‖²/n_g may be off.

    Examples
    --------
    >>> slack_of_sums(Sums(np.array([[3.0, 4.0]]), np.array([[0.1]]), np.array([[2.0]])))
    0.7171...
    """
    off = error_norms(groups.errors, groups.values.shape[1])
    sizes = np.sqrt(np.einsum("ij,ij->i", groups.values, groups.values))
    return float(((2 * sizes + off) * off / groups.counts[:, 0]).sum())


def is_definite(packed: NDArray[Any], rows: Floats, slack: float, form: FixedPoint) -> bool:
    """Say whether M − rowsᵀ·rows + slack·I has a Cholesky factor, in one (d, d) matrix of which half is touched."""
    work = _less(packed, rows, form)
    work[np.diag_indices_from(work)] += slack
    _, info = lapack.dpotrf(work, lower=0, clean=0, overwrite_a=1)
    return bool(info == 0)


def _rank_exceeds(packed: NDArray[Any], rows: Floats, rank: int, slack: float, form: FixedPoint) -> bool:
    """Say whether M − rowsᵀ·rows has more than ``rank`` eigenvalues above the slack."""
    work = _less(packed, rows, form)
    if work.diagonal().max() <= slack:
        return False
    _, _, directions, _ = lapack.dpstrf(work, lower=0, tol=slack, overwrite_a=1)
    if directions <= rank:
        return False
    del work
    work, place = _less(packed, rows, form), rows.shape[1] - 1 - rank
    (next_largest,) = eigh(work, lower=False, eigvals_only=True, overwrite_a=True, subset_by_index=(place, place))
    return bool(next_largest > slack)


def _less(packed: NDArray[Any], rows: Floats, form: FixedPoint) -> Floats:
    """Return M − rowsᵀ·rows, (d, d), upper triangle."""
    work = new_gram(rows.shape[1])
    add_packed(work, packed, weight=form.resolution(2))
    add_gram(work, rows, weight=-1.0)
    return work
