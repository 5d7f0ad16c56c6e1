"""The class sums of a contribution, how far each may be off, and the groups of samples that they are made of.

Checks of moments against each other take one :class:`Evidence` and a function that refuses; a new check is a file with
such a function and a line in :func:`fedmoments.wire.checks.check_moments`. Slack is derived there.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.linalg import packed_diagonal
from fedmoments.core.statistics import MOMENTS, FixedPoint, Layout, Statistics
from fedmoments.core.statistics.fixed_point import SLACK
from fedmoments.core.statistics.moments import cell_sums
from fedmoments.wire.agreement import Agreement
from fedmoments.wire.body import Refuse
from fedmoments.wire.mean_rows import error_norms, mean_errors
from fedmoments.wire.reason import Reason

__all__ = ["MATRICES", "UNIT", "Evidence", "Sums", "counts_of", "read_evidence", "relative_error"]

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
