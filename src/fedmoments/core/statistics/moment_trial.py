"""Try a moment that somebody else wrote, before it is believed."""

import re
from typing import TYPE_CHECKING

import numpy as np

from fedmoments.errors import InputError

if TYPE_CHECKING:
    from fedmoments.core.statistics.moments import Moment

__all__ = ["check_moment"]

_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
_CELLS = np.array([0, 2, 2, 0, 1, 2])


def check_moment(moment: "Moment") -> None:
    """Raise InputError unless a moment keeps the laws of :class:`~fedmoments.core.statistics.Moment` on a trial."""
    from fedmoments.core.statistics.moments import Layout

    if not _NAME.fullmatch(str(getattr(moment, "name", ""))):
        raise InputError(f"its name must be lower-case letters, digits and _, up to 40, but is {moment.name!r}")
    if type(getattr(moment, "degree", None)) is not int or not 0 <= moment.degree <= 4:
        raise InputError("its degree must be a whole number from 0 to 4: by which power of the features it grows")
    if moment.layout not in (Layout.CLASS, Layout.GLOBAL):
        raise InputError(
            "its layout must be Layout.CLASS or Layout.GLOBAL: rows and sketches have rules of their own, which "
            "client_means and scatter_sketch alone follow"
        )
    for dim in (1, 5):
        _try(moment, dim, per_class=moment.layout is Layout.CLASS)


def _try(moment: "Moment", dim: int, *, per_class: bool) -> None:
    X = np.random.default_rng(dim).normal(size=(len(_CELLS), dim))
    cells = int(_CELLS.max()) + 1

    def measured(rows: slice) -> np.ndarray:
        work = moment.workspace(cells, dim)
        moment.add(work, X[rows].copy(), _CELLS[rows])
        return np.asarray(moment.finish(work), np.float64)

    shape = (cells, moment.width(dim)) if per_class else (moment.width(dim),)
    whole = measured(slice(None))
    if whole.shape != shape:
        raise InputError(f"of {cells} classes and features of {dim} it must give the shape {shape}, not {whole.shape}")
    if not np.allclose(measured(slice(0, 3)) + measured(slice(3, None)), whole, rtol=1e-9, atol=1e-9):
        raise InputError("measuring a union must give the sum of its parts' numbers, but does not: it does not merge")
    for row, x in enumerate(X):
        numbers = measured(slice(row, row + 1))
        size = np.abs(numbers).sum() if moment.degree >= 2 else np.sqrt((numbers**2).sum())
        most = np.sqrt(x @ x) ** moment.degree
        if not size <= most * (1 + 1e-9):
            what = "absolute values add up to" if moment.degree >= 2 else "length is"
            raise InputError(
                f"the numbers of one sample of length {np.sqrt(x @ x):.3g} may have a size of {most:.3g} (its length "
                f"to the power {moment.degree}), but their {what} {size:.3g}: divide it, or change the degree"
            )
