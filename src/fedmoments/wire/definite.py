"""Whether second moments are positive semi-definite, of a rank that the samples can have, and leave room for the sums.

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
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh, lapack

from fedmoments.core.linalg import add_gram, add_packed, new_gram, packed_diagonal
from fedmoments.core.statistics import FixedPoint
from fedmoments.wire.body import Refuse
from fedmoments.wire.evidence import Evidence, Sums
from fedmoments.wire.mean_rows import error_norms
from fedmoments.wire.reason import Reason

__all__ = ["check_definite", "is_definite", "slack_of", "slack_of_sums"]

Floats = NDArray[np.float64]


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
