"""How many numbers the clients of a real split send, and how much memory their statistics take.

How one simulated federation measures: in fixed point, as a deployed one does, or else in float64, and why.

In fixed point the statistics, and so the classifiers, are bit for bit those of a deployed federation of these clients.
Whether that is possible is decided before anything is measured, once for a setting and seed: the norms of the features,
how much they vary and how many numbers clients send are known.

What clients of a simulation withhold: the policy of a deployed client, applied to every part of a split.

Merged statistics of one federation: measured in parts (clients in turns, moments beside others), served to heads.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.costs import PayloadSize, floats_of
from fedmoments.core.costs.sketches import sketch_sizes
from fedmoments.core.gaussian.folded import folded_spec
from fedmoments.core.heads import Head
from fedmoments.core.linalg import blocks
from fedmoments.core.observations.rows import BYTES_PER_NUMBER
from fedmoments.core.statistics import MOMENTS, FixedPoint, Layout, SketchPlan, Statistics, StatisticsSpec
from fedmoments.core.statistics.moments import Moment, cell_sums, moment
from fedmoments.core.statistics.partition import NUMBERS
from fedmoments.core.statistics.sketches import SKETCH_INDEX
from fedmoments.errors import InputError
from fedmoments.federation.policy import ClientPolicy
from fedmoments.samples import DROPPED, Split
from fedmoments.samples.features import Features

__all__ = [
    "MOST_NUMBERS",
    "Form",
    "by_client",
    "choose_form",
    "coded_size",
    "room_of",
    "sent_by",
    "serve",
    "side_by_side",
    "upload_size",
    "withhold",
]


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


def serve(
    head: Head, merged: Statistics, served: dict[StatisticsSpec, Statistics], *, apart: bool = False
) -> Statistics:
    """Return what a head is fitted from: one object for all heads with its needs, which share what they make of it.

    Parameters
    ----------
    head
        Without a map of its own.
    merged
        What clients sent for all heads.
    served
        What was returned before of the same; it is added to.
    apart
        Whether clients' class sums are kept apart.

    Examples
    --------
    >>> from fedmoments.core.heads import make_head
    >>> served, merged = {}, Statistics.of(np.eye(2), [0, 1], StatisticsSpec.of("class_grams"), n_classes=2)
    >>> serve(make_head("gh-lda"), merged, served) is serve(make_head("fed3r"), merged, served)
    True
    """
    spec = head.apart_needs if apart else head.needs
    if spec not in served:
        folded = "free_scatter" in merged.spec.moments
        needed = merged.restricted(folded_spec(spec) if folded else spec)
        served[spec] = needed.as_sent() if spec.has_sketch else needed
    return served[spec]


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
        arrays={name: statistics.raw(name) for name, statistics in source.items()},
        row_labels=rows.row_labels,
        row_counts=rows.row_counts,
        row_owners=rows.row_owners,
        **{name: getattr(first, name)[:0] for name in SKETCH_INDEX},
    )


#: Numbers that all clients together may send for their statistics to be measured client by client, which takes about
#: 8 s of one core then; and how many numbers a client costs besides, whatever it sends.
MOST_NUMBERS, CLIENT_NUMBERS = 500_000_000, 20_000
#: Steps of the fixed point must be smaller than this share of what a feature varies by within classes.
COARSE = 0.05


@dataclass(frozen=True)
class Form:
    """The fixed point that is measured in, or None for float64, and the reason."""

    fixed_point: FixedPoint | None
    reason: str | None = None


@dataclass(frozen=True, eq=False)
class _Scale:
    """Norms (n,) of the training samples, and the mean over coordinates of the variance within classes.

    Where samples of a class are equal, what tells classes apart is how large features are: their mean square counts.
    """

    norms: NDArray[np.float64]
    variance: float

    @property
    def least(self) -> tuple[str, float]:
        """What must be larger than the steps of a fixed point, in words and squared."""
        if self.variance > 0 or not self.norms.any():
            return "vary by {:.3g} within classes", self.variance
        # A norm of 1e-200 has no square in float64: it counts as nothing, and as far too small.
        return "do not vary within classes, and are of size {:.3g}", float(np.mean(self.norms**2)) or 5e-324


_SCALES: "WeakKeyDictionary[Features, _Scale]" = WeakKeyDictionary()


def choose_form(features: Features, split: Split, spec: StatisticsSpec, numbers: int, form: FixedPoint | None) -> Form:
    """Return the form that statistics are measured in.

    Parameters
    ----------
    features, split
        What clients measure, and who holds what.
    spec, numbers
        What every client sends, and how many numbers all of them send together.
    form
        The fixed point that is requested, or None for float64.

    Examples
    --------
    >>> from fedmoments.samples.features import Samples
    >>> part = Samples(np.array([[3.0, 4.0], [0.0, 2.0]]), np.array([0, 0]))
    >>> split = Split(np.array([0, 0]), n_clients=1, scheme="by hand")
    >>> features = Features("toy", 1, part, part)
    >>> choose_form(features, split, StatisticsSpec(), 2, FixedPoint()).reason
    >>> choose_form(features, split, StatisticsSpec(), 2, FixedPoint(norm_bound=4.0)).reason
    'a training sample has the norm 5, more than the norm bound of 4 ...'
    """
    if form is None:
        return Form(None, "it was requested in float64")
    held = split.clients != DROPPED
    senders = int((split.sizes > 0).sum())
    if numbers + CLIENT_NUMBERS * senders > MOST_NUMBERS:
        return Form(
            None,
            f"its {senders:,} clients together send {numbers:,} numbers: too many to measure client by client here "
            f"(the most are {MOST_NUMBERS:,} numbers, less {CLIENT_NUMBERS:,} for every client)",
        )
    if int(held.sum()) > form.max_samples:
        return Form(
            None, f"there are {int(held.sum()):,} samples, more than the {form.max_samples:,} that are agreed on"
        )
    scale = _scale_of(features)
    longest = float(scale.norms[held].max(initial=0.0))
    if longest > form.norm_bound:
        return Form(
            None,
            f"a training sample has the norm {longest:.6g}, more than the norm bound of {form.norm_bound:g} that a "
            "federation agrees on by default: scale features, or put them on the unit sphere",
        )
    sizes, square = scale.least
    for degree in sorted({MOMENTS[name].degree for name in spec.sent}):
        step, spread = form.resolution(degree), square ** (degree / 2)
        if square > 0 and step > COARSE * spread:
            return Form(
                None,
                f"features {sizes.format(square**0.5)}, too little for steps of {step:.3g} in "
                f"sums of degree {degree}, which a federation has by default (norm bound {form.norm_bound:g}): scale "
                "features, or agree on a smaller norm bound",
            )
    return Form(form)


def _scale_of(features: Features) -> _Scale:
    """Return norms and variance of training samples, worked out once for all settings and seeds."""
    if features not in _SCALES:
        X, y = features.train.X, features.train.y
        n, dim = len(X), features.dim
        centre = X.mean(axis=0, dtype=np.float64) if n else np.zeros(dim)
        norms, sums = np.empty(n), np.zeros((features.n_classes, dim))
        total = 0.0
        for block in blocks(n):
            rows = X[block].astype(np.float64)
            norms[block] = np.sqrt(np.einsum("ij,ij->i", rows, rows))
            rows -= centre
            total += float(np.einsum("ij,ij->", rows, rows))
            sums += cell_sums(rows, y[block], features.n_classes)
        counts = np.bincount(y, minlength=features.n_classes)
        between = float((np.einsum("ij,ij->i", sums, sums) / np.maximum(counts, 1)).sum())
        _SCALES[features] = _Scale(norms, max(total - between, 0.0) / max(n * dim, 1))
    return _SCALES[features]


def withhold(split: Split, labels: NDArray[np.int64], min_count: int, means_per_client: int = 1) -> Split:
    """Return the split without the samples that clients withhold.

    Parameters
    ----------
    split
        Who holds what.
    labels
        (n,) the class of every sample.
    min_count
        A client withholds a class of which it has fewer samples.
    means_per_client
        Into how many means a class is split; each must be over ``min_count`` samples or more.

    Examples
    --------
    >>> split = Split(np.array([0, 0, 0, 1]), n_clients=2, scheme="by hand")
    >>> withhold(split, np.array([0, 0, 1, 1]), min_count=2).clients
    array([ 0,  0, -1, -1])
    """
    if min_count <= 1:
        return split
    policy = ClientPolicy(min_count=min_count)
    clients = split.clients.copy()
    for mine in split:
        mask, _ = policy.select(labels[mine], means_per_client)
        clients[mine[~mask]] = DROPPED
    kept_back = int((clients == DROPPED).sum() - (split.clients == DROPPED).sum())
    if not kept_back:
        return split
    sentence = f"Clients withhold classes of fewer than {min_count} samples: {kept_back:,} samples."
    return replace(split, clients=clients, why=f"{split.why} {sentence}".strip())


#: How often the numbers of a moment are in memory at once, from the first client to the classifier.
COPIES = {Layout.CLASS: 5, Layout.GLOBAL: 2, Layout.ROWS: 1, Layout.SKETCH: 4}
#: The same of one row (d,) a class: heads hold means, variances and their terms as arrays (C, d) of their own besides.
SMALL_COPIES = 7
#: Matrices (d, d) that solving takes, and those in which a client compresses its sketch; means keep one more.
SQUARES, SKETCH_SQUARES = 4, 8
#: Numbers a sample, and blocks of rows, that folding client means takes at most.
FOLDED_NUMBERS, BLOCKS = 11, 1


def upload_size(spec: StatisticsSpec, dim: int, cells: Any) -> PayloadSize:
    """Return counts and floats that all clients send together: packed, and nothing for what a client does not hold.

    Scatter sketches are not in it: how large they are is a matter of plans (``core.costs.sketches``).

    Parameters
    ----------
    spec
        What is measured.
    dim
        Dimension of the features it is measured on, after any map.
    cells
        (K, C) sparse array of samples by client and class (:meth:`fedmoments.samples.Split.cells`). A client without a
        sample sends nothing.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> cells = csr_array(np.array([[3, 0], [1, 9], [0, 0]]))
    >>> upload_size(StatisticsSpec.of("gram"), 4, cells)
    PayloadSize(counts=3, floats=32)
    >>> upload_size(StatisticsSpec.of("client_means", means_per_client=2), 4, cells)
    PayloadSize(counts=4, floats=16)
    """
    present = np.diff(cells.indptr)
    senders = present > 0
    if not senders.any():
        return PayloadSize(0, 0)
    apart = [name for name in spec.sent if MOMENTS[name].layout is Layout.ROWS]
    added = [name for name in spec.sent if not MOMENTS[name].layout.apart]
    each_class = floats_of(added, dim, present[senders])
    if not apart:
        return each_class
    # A class with too few samples for several means is sent as one; a row brings its own count.
    shares = np.where(cells.data >= 2 * spec.means_per_client, spec.means_per_client, 1)
    rows = np.bincount(np.repeat(np.arange(len(present)), present), weights=shares, minlength=len(present))
    each_row = floats_of(apart, dim, rows[senders].astype(np.int64))
    return PayloadSize(each_row.counts, each_row.floats + each_class.floats)


def coded_size(spec: StatisticsSpec, dim: int, cells: Any, plan: SketchPlan) -> tuple[PayloadSize, int | None]:
    """Return the numbers that all clients send, and the bytes where a sketch, and means within its budget, are coded.

    Parameters
    ----------
    spec, dim, cells
        As in :func:`upload_size`.
    plan
        How scatter sketches are made.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> coded_size(StatisticsSpec.of("gram"), 4, csr_array(np.array([[3, 0], [1, 9]])), SketchPlan())
    (PayloadSize(counts=3, floats=32), None)
    """
    if not spec.has_sketch:
        return upload_size(spec, dim, cells), None
    coded, present = sketch_sizes(plan, dim, cells), np.diff(cells.indptr)
    in_codes = (Layout.SKETCH,) if plan.budget is None else (Layout.SKETCH, Layout.ROWS)
    rest = [name for name in spec.sent if MOMENTS[name].layout not in in_codes]
    more = floats_of(rest, dim, present[present > 0]).floats if rest and present.any() else 0
    return PayloadSize(int(cells.nnz), coded.numbers + more), coded.bytes + more * BYTES_PER_NUMBER


def room_of(spec: StatisticsSpec, dim: int, cells: Any, plan: SketchPlan) -> int:
    """Return the bytes of memory that measuring statistics and fitting a head from them takes, features left out.

    What is allocated: mean rows once, as they lie in the ledger (heads read them in blocks); what is added up as the
    total, its copy, the numbers that a head takes from it, and the classifier; a few matrices (d, d) where a head
    solves for one.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> rows = room_of(StatisticsSpec.of("client_means"), 100, csr_array(np.ones((9000, 10))), SketchPlan())
    >>> round(rows / 8 / 100 / 90_000, 1)
    1.0
    """
    shares = np.where(cells.data >= 2 * spec.means_per_client, spec.means_per_client, 1)
    times = {Layout.CLASS: int(cells.shape[1]), Layout.GLOBAL: 1, Layout.ROWS: int(shares.sum())}
    times[Layout.SKETCH] = sketch_sizes(plan, dim, cells).rows if spec.has_sketch else 0
    sent = [moment(name) for name in spec.sent]
    numbers = sum(_copies(own, dim) * own.width(dim) * times[own.layout] for own in sent)
    square = any(own.layout.apart or own.width(dim) > dim for own in sent)
    folded = "free_scatter" in spec.moments  # the order of the samples, sizes and labels of the cells, and one block
    order = FOLDED_NUMBERS * int(cells.sum()) + BLOCKS * NUMBERS if folded else 0
    squares = SQUARES * square + SKETCH_SQUARES * spec.has_sketch + spec.keeps_clients_apart
    return 8 * (numbers + order + squares * dim * dim)


def _copies(moment: Moment, dim: int) -> int:
    small = moment.layout is Layout.CLASS and moment.width(dim) <= dim
    return SMALL_COPIES if small else COPIES[moment.layout]


def sent_by(head: Head, means_per_client: int, plan: SketchPlan | None = None) -> StatisticsSpec:
    """Return what a client sends for one head; sketches by a plan, with one mean a class.

    Examples
    --------
    >>> from fedmoments.core.heads import make_head
    >>> str(sent_by(make_head("fedcof"), 2)), str(sent_by(make_head("fedncm"), 2))
    ('counts + client_means × 2', 'counts + sums')
    """
    needs = head.needs
    if needs.has_sketch:
        return needs.with_plan(plan or needs.plan)
    if means_per_client > 1 and needs.keeps_clients_apart:
        return needs | StatisticsSpec.of("client_means", means_per_client=means_per_client)
    return needs
