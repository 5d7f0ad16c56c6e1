"""Whether second moments are positive semi-definite, as those of data are, and leave room for the class sums.

With B = Σ x xᵀ and class sums A_c over n_c samples, data have the *scatter* B − Σ A_c A_cᵀ/n_c ⪰ 0, and then B ⪰ 0 too.
One Cholesky factorisation of scatter + slack·I decides. The slack is what rounding can do to the least eigenvalue of
sound data, in the norms of :mod:`fedmoments.wire.checks`:

- fixed point: every entry of B errs by half a resolution ρ₂, the matrix by d·ρ₂/2;
- class sums that err by e_c: (2‖A_c‖‖e_c‖ + ‖e_c‖²)/n_c each;
- float64, at the client and in the factorisation here: 2⁻⁵²·(4n + 4d + 256) of the trace of B.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from fedmoments.core.linalg import add_gram, add_packed, new_gram, packed_diagonal
from fedmoments.core.statistics import FixedPoint, Statistics
from fedmoments.wire.body import Refuse
from fedmoments.wire.mean_rows import error_norms
from fedmoments.wire.reason import Reason

__all__ = ["check_definite", "slack_of_sums"]

Floats = NDArray[np.float64]


def check_definite(stats: Statistics, sums: Floats, errors: Floats, form: FixedPoint, refuse: Refuse) -> None:
    """Check every second moment.

    Parameters
    ----------
    stats
        Fixed-point statistics.
    sums, errors
        Class sums (p, d) in float64, and how far each may be off, (p, d) or (p, 1).
    form
        Their fixed point.
    refuse
        Called with the reason.
    """
    whole = [("its gram", stats.arrays["gram"], slice(None))] if "gram" in stats.arrays else []
    class_grams = stats.arrays.get("class_grams", ())
    named = [f"its gram of class {label}" for label in stats.classes.tolist()] if len(class_grams) else []
    parts = [
        (name, packed, slice(at, at + 1)) for at, (name, packed) in enumerate(zip(named, class_grams, strict=True))
    ]
    for name, packed, which in (*whole, *parts):
        counts = stats.class_counts[which, None]
        slack = _slack(packed, sums[which], errors[which], counts, form)
        means = sums[which] / np.sqrt(counts)
        if _is_definite(packed, means, slack, form):
            continue
        if _is_definite(packed, means[:0], slack, form):
            refuse(
                Reason.INDEFINITE, f"{name} less what its class sums explain has a negative eigenvalue, as no data have"
            )
        refuse(Reason.INDEFINITE, f"{name} has a negative eigenvalue, as no second moment of data has")


def _slack(
    packed: NDArray[np.int64], sums: Floats, errors: Floats, counts: NDArray[np.int64], form: FixedPoint
) -> float:
    """Return how far below zero rounding can push the least eigenvalue of sound data."""
    dim = sums.shape[1]
    trace = math.ldexp(float(np.abs(packed_diagonal(packed).astype(np.float64)).sum()), -form.bits(2))
    of_sums = slack_of_sums(sums, errors, counts)
    of_floats = 2.0**-52 * (4 * float(counts.sum()) + 4 * dim + 256) * trace
    return float((dim * form.resolution(2) / 2 + of_sums + of_floats) * (1 + 1e-6))


def slack_of_sums(sums: Floats, errors: Floats, counts: NDArray[np.int64]) -> float:
    """Return Σ (2‖A_c‖‖e_c‖ + ‖e_c‖²)/n_c, how far Σ ‖A_c‖²/n_c may be off.

    Examples
    --------
    >>> slack_of_sums(np.array([[3.0, 4.0]]), np.array([[0.1]]), np.array([[2]]))
    0.7171...
    """
    off = error_norms(errors, sums.shape[1])
    return float(((2 * np.sqrt(np.einsum("ij,ij->i", sums, sums)) + off) * off / counts[:, 0]).sum())


def _is_definite(packed: NDArray[Any], rows: Floats, slack: float, form: FixedPoint) -> bool:
    """Say whether M − rowsᵀ·rows + slack·I has a Cholesky factor, in one (d, d) matrix of which half is touched."""
    work = new_gram(rows.shape[1])
    add_packed(work, packed, weight=form.resolution(2))
    add_gram(work, rows, weight=-1.0)
    work[np.diag_indices_from(work)] += slack
    _, info = lapack.dpotrf(work, lower=0, clean=0, overwrite_a=1)
    return bool(info == 0)
