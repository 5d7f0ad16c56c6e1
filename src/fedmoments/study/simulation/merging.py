"""Merged statistics of one federation: measured in parts (clients in turns, moments beside others), served to heads."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.heads import Head
from fedmoments.core.statistics import Statistics, StatisticsSpec
from fedmoments.core.statistics.sketches import SKETCH_INDEX
from fedmoments.errors import InputError

__all__ = ["by_client", "serve", "side_by_side"]


def by_client(total: Statistics, order: NDArray[np.int64]) -> Statistics:
    """Return statistics that were merged in turns as if clients had come by number.

    Parameters
    ----------
    total
        Merged; contribution i is that of client ``order[i]``.
    order
        (K,) clients.
    """
    arrays, index = dict(total.arrays), dict[str, Any]()
    if "client_means" in arrays:
        owners = order[total.row_owners]
        places = np.argsort(owners, kind="stable")
        arrays["client_means"] = arrays["client_means"][places]
        index |= {"row_labels": total.row_labels[places], "row_counts": total.row_counts[places]}
        index["row_owners"] = owners[places]
    if total.spec.has_sketch:
        sketches = total.sketches.select(np.argsort(order[total.sketch_owners], kind="stable"))
        arrays["scatter_sketch"] = sketches.rows
        index |= sketches.index | {"sketch_owners": order[sketches.owners]}
    return replace(total, arrays=arrays, **index)


def serve(head: Head, merged: Statistics, served: dict[StatisticsSpec, Statistics]) -> Statistics:
    """Return what a head is fitted from: one object for all heads with its needs, which share what they make of it.

    Parameters
    ----------
    head
        Without a map of its own.
    merged
        What clients sent for all heads.
    served
        What was returned before of the same; it is added to.

    Examples
    --------
    >>> from fedmoments.core.heads import make_head
    >>> served, merged = {}, Statistics.of(np.eye(2), [0, 1], StatisticsSpec.of("class_grams"), n_classes=2)
    >>> serve(make_head("gh-lda"), merged, served) is serve(make_head("fed3r"), merged, served)
    True
    """
    if head.needs not in served:
        needed = merged.restricted(head.needs)
        served[head.needs] = needed.as_sent() if head.needs.has_sketch else needed
    return served[head.needs]


def side_by_side(
    spec: StatisticsSpec, received: Statistics | None, beside: Statistics | None, lacking: Sequence[str]
) -> Statistics:
    """Return one value of moments that were measured in two.

    Parameters
    ----------
    spec
        What it holds.
    received, beside
        Both of the same samples, in float64; one of them may be missing.
    lacking
        Moments that ``beside`` has.
    """
    first = received if received is not None else beside
    if first is None:
        raise InputError("there are no statistics to look at")
    source = {name: beside if name in lacking and beside is not None else first for name in spec.sent}
    rows = source.get("client_means", first)
    return replace(
        first,
        spec=spec,
        arrays={name: each.raw(name) for name, each in source.items()},
        row_labels=rows.row_labels,
        row_counts=rows.row_counts,
        row_owners=rows.row_owners,
        **{name: getattr(first, name)[:0] for name in SKETCH_INDEX},
    )
