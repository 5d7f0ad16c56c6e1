"""Statistics that no honest client can have: too many samples, or moments that no data have together.

The inequalities are those of the wire (:mod:`fedmoments.wire.checks`), so that a simulated server refuses what a
deployed one refuses: ‖A_c‖ ≤ n_c·R, tr(B) ≤ N·R², B ⪰ Σ A_c A_cᵀ/n_c, and the same for powers. They bound what one
sample can do, so a client's power is its count; hence the caps on samples, of a client and of one of its classes. Caps
are public: set them from what is known of the clients, not from what they sent.
"""

from collections.abc import Hashable, Mapping
from typing import Any, NoReturn

import numpy as np

from fedmoments.core.linalg import packed_diagonal
from fedmoments.core.statistics import FixedPoint, Statistics
from fedmoments.errors import FixedPointOverflowError, InputError
from fedmoments.wire import Agreement, Reason
from fedmoments.wire.checks import check_moments

__all__ = ["cap_reason", "inconsistencies", "moment_reason"]

#: Without a norm bound, features of up to so many times the norm that is usual among the clients count as possible.
ROOM = 16.0
#: No digest: nothing here was signed, only numbers are examined.
UNSIGNED = "0" * 64


class _InconsistentError(Exception):
    """The first inconsistency of a client's statistics."""


def _refuse(reason: Reason, message: str) -> NoReturn:
    raise _InconsistentError(f"{reason}: {message}")


def cap_reason(
    stats: Statistics, *, max_samples: int | None = None, max_class_samples: int | None = None
) -> str | None:
    """Return why a client claims to have too many samples, or None.

    Parameters
    ----------
    stats
        Its statistics.
    max_samples, max_class_samples
        Most samples of a client, and of one class of a client; None: any number.

    Examples
    --------
    >>> from fedmoments.core.statistics import StatisticsSpec
    >>> stats = Statistics.of([[1.0]] * 5, [0, 0, 0, 0, 1], StatisticsSpec(), n_classes=2)
    >>> cap_reason(stats, max_samples=4)
    'bad-count: it claims 5 samples, but a client may have 4 at most'
    >>> cap_reason(stats, max_class_samples=3)
    'bad-count: it claims 4 samples of class 0, but a client may have 3 of a class at most'
    >>> cap_reason(stats, max_samples=5) is None
    True
    """
    for name, cap in (("max_samples", max_samples), ("max_class_samples", max_class_samples)):
        if cap is not None and cap < 1:
            raise InputError(f"{name}, the most samples that are believed, must be 1 or more, not {cap}")
    if max_samples is not None and stats.n_samples > max_samples:
        return (
            f"{Reason.NEGATIVE_COUNT}: it claims {stats.n_samples} samples, but a client may have {max_samples} at most"
        )
    if max_class_samples is not None and stats.class_counts.max(initial=0) > max_class_samples:
        place = int(np.argmax(stats.class_counts))
        return (
            f"{Reason.NEGATIVE_COUNT}: it claims {stats.class_counts[place]} samples of class {stats.classes[place]}, "
            f"but a client may have {max_class_samples} of a class at most"
        )
    return None


def moment_reason(stats: Statistics, form: FixedPoint, *, rows: str = "int64") -> str | None:
    """Return why no data within a norm bound have such moments, or None.

    Parameters
    ----------
    stats
        A client's statistics, in that fixed point, or in float64: then they are rounded to it for the check.
    form
        The norm bound R and the resolution.
    rows
        Type in which rows of client means travelled, see :class:`fedmoments.wire.Agreement`.

    Examples
    --------
    >>> from dataclasses import replace
    >>> from fedmoments.core.statistics import StatisticsSpec
    >>> stats = Statistics.of([[0.6, 0.0], [0.0, 0.8]], [0, 1], StatisticsSpec.of("gram"), n_classes=2)
    >>> form = FixedPoint(norm_bound=1.0, max_samples=100)
    >>> moment_reason(stats, form) is None
    True
    >>> less = replace(stats, arrays={**stats.arrays, "gram": stats.arrays["gram"] * 0.5})
    >>> moment_reason(less, form)
    'indefinite: its gram less what its class sums explain has a negative eigenvalue, as no data have'
    """
    if any(not np.isfinite(array).all() for array in stats.arrays.values() if array.dtype.kind == "f"):
        return f"{Reason.NOT_FINITE}: its moments hold NaN or infinity"
    if (stats.class_counts < 1).any() or (stats.row_counts < 1).any():
        return f"{Reason.NEGATIVE_COUNT}: it claims fewer than 1 sample of a class that it holds"
    try:
        exact = stats.quantized(form)
        agreement = Agreement(UNSIGNED, UNSIGNED, UNSIGNED, stats.n_classes, stats.dim, stats.spec, form, rows=rows)
        check_moments(exact, agreement, _refuse)
    except FixedPointOverflowError as error:
        return f"{Reason.OUT_OF_RANGE}: {error}"
    except _InconsistentError as error:
        return str(error)
    return None


def inconsistencies(
    statistics: Mapping[Any, Statistics],
    *,
    max_samples: int | None = None,
    max_class_samples: int | None = None,
    norm_bound: float | None = None,
    rows: str = "int64",
) -> dict[Hashable, str]:
    """Return the clients whose statistics no honest client has, with the reason.

    Parameters
    ----------
    statistics
        Client -> statistics of the same kind.
    max_samples, max_class_samples
        Public caps on the samples of a client, and of one class of a client; None: any number.
    norm_bound
        Public bound R on the norm of features. None: that of the fixed point; for float64 sixteen times what is usual
        among the clients, which catches only what is far off.
    rows
        Type in which rows of client means travelled.

    Examples
    --------
    >>> from fedmoments.core.statistics import StatisticsSpec
    >>> parties = {k: Statistics.of([[0.5]] * k, [0] * k, StatisticsSpec(), n_classes=1) for k in (1, 2, 9)}
    >>> inconsistencies(parties, max_samples=5, norm_bound=1.0)
    {9: 'bad-count: it claims 9 samples, but a client may have 5 at most'}
    """
    bound = _bound(list(statistics.values()), norm_bound)
    reasons: dict[Hashable, str] = {}
    for client, stats in statistics.items():
        reason = cap_reason(stats, max_samples=max_samples, max_class_samples=max_class_samples)
        reason = reason or moment_reason(stats, _form(stats, bound), rows=rows)
        if reason:
            reasons[client] = reason
    return reasons


def _form(stats: Statistics, bound: FixedPoint | float) -> FixedPoint:
    """Return the fixed point in which a client's numbers are examined: nobody else's count makes it coarser."""
    if isinstance(bound, FixedPoint):
        return bound
    return FixedPoint(norm_bound=bound, max_samples=max(1, stats.n_samples))


def _bound(parts: list[Statistics], norm_bound: float | None) -> FixedPoint | float:
    """Return the fixed point that was agreed on, or the norm bound; what is not a number does not count."""
    if not parts:
        raise InputError("there is no client: give the statistics of at least one, as {client: statistics}")
    if parts[0].fixed_point:
        if norm_bound not in (None, parts[0].fixed_point.norm_bound):
            raise InputError(
                f"these statistics are in fixed point with norm_bound={parts[0].fixed_point.norm_bound:g}; another one "
                f"({norm_bound:g}) cannot be checked: leave norm_bound out"
            )
        return parts[0].fixed_point
    if norm_bound is None:
        norms = [norm for norm in map(_norm, parts) if np.isfinite(norm)]
        usual = float(np.median(norms)) if norms else 0.0
        norm_bound = ROOM * usual if usual > 0 else 1.0
    return norm_bound


def _norm(stats: Statistics) -> float:
    """Return the root mean square norm of a client's features, or without second moments of its class means.

    NaN where there are no samples, or where what was sent is not a number.
    """
    if not len(stats.classes) or stats.class_counts.min() < 1 or stats.n_samples < 1:
        return np.nan
    if "gram" in stats.spec.moments:
        return float(np.sqrt(max(float(packed_diagonal(stats.global_array("gram")).sum()), 0.0) / stats.n_samples))
    if "class_norms" in stats.spec.moments:
        return float(np.sqrt(max(float(stats.class_array("class_norms").sum()), 0.0) / stats.n_samples))
    means = stats.class_array("sums") / stats.class_counts[:, None]
    return float(np.sqrt(np.square(means).sum(axis=1)).max())
