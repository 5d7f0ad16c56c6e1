"""What a client can measure about its features: one small class a moment.

A moment says how many numbers it has, how it is accumulated from a batch, by which power of the features it grows
(for the fixed-point range), which coarser moments follow from it, and how it merges across clients:

========  ==========================================  =======================================
layout    one array                                   merges across clients by
========  ==========================================  =======================================
CLASS     (classes present, width)                    sum, class by class
GLOBAL    (width,)                                    sum
ROWS      (rows, width), each row with label, count   concatenation: clients stay apart
SKETCH    (rows, width), a block of rows a client     concatenation: clients stay apart
========  ==========================================  =======================================

Counts N_c and sums A_c = Σ x are part of every statistic. A new moment is one class: the lattice of specs, the ledger,
files, the wire, costs and the command line read the registry :data:`MOMENTS`. A moment of one's own is registered by
:func:`register_moment`, or by an entry point of the group ``fedmoments.moments`` that names its class. All parties need
it.

Derived moments (``DERIVED``) are held by merged statistics, but no client measures them: several parties compute them
together, around numbers that all of them made (:mod:`fedmoments.privacy.secure.two_phase`). So they are never sent
alone, and statistics that hold them are not merged any further.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import Enum
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.floats import add_samples
from fedmoments.core.linalg import new_gram, pack_symmetric, packed_diagonal, packed_size
from fedmoments.core.statistics.moment_trial import check_moment
from fedmoments.errors import InputError
from fedmoments.registry import Registry

__all__ = ["DERIVED", "MOMENTS", "Layout", "Moment", "cell_sums", "moment", "register_moment"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Given = TypeVar("Given")
#: Derives a coarser moment's array from a finer one's, in float64 or int64 alike.
Derivation = Callable[[NDArray[Any]], NDArray[Any]]

#: Up to this many (sample, cell) pairs a dense one-hot product beats a sparse one.
DENSE_PAIRS = 4096


class Layout(Enum):
    """How a moment's numbers are laid out, and so how they merge.

    Examples
    --------
    >>> Layout.CLASS.apart, Layout.ROWS.apart
    (False, True)
    """

    CLASS = "one row a class"
    GLOBAL = "one for all classes"
    ROWS = "rows kept apart"
    SKETCH = "blocks of rows kept apart"

    @property
    def apart(self) -> bool:
        """Whether numbers of different clients are never added up."""
        return self in (Layout.ROWS, Layout.SKETCH)


def cell_sums(values: NDArray[Any], cells: Ints, n_cells: int) -> NDArray[Any]:
    """Add up rows that fall into the same cell, (n, w) -> (n_cells, w), exact for integers.

    Examples
    --------
    >>> cell_sums(np.array([[1.0], [2.0], [4.0]]), np.array([1, 0, 1]), 3)
    array([[2.],
           [5.],
           [0.]])
    """
    n = len(cells)
    if n * n_cells <= DENSE_PAIRS:
        return np.asarray((np.arange(n_cells)[:, None] == cells).astype(values.dtype) @ values)
    from scipy.sparse import csc_array

    one_hot = csc_array((np.ones(n, values.dtype), cells, np.arange(n + 1)), shape=(n_cells, n))
    return np.asarray(one_hot @ values)


class Moment(ABC):
    """One kind of number that a client measures; stateless.

    **Laws.** Measuring a union gives the sum of measuring its parts. The numbers of one sample x have a length of at
    most ‖x‖ to the power :attr:`degree` (from degree 2 on, their absolute values add up to no more, or they are a
    packed matrix of that trace): the range of the fixed point and the checks of the wire count on it.

    Examples
    --------
    >>> import fedmoments as fm
    >>> gram = moment("gram")
    >>> isinstance(gram, fm.Moment), gram.width(dim=4), gram.degree
    (True, 10, 2)
    """

    name: ClassVar[str]
    symbol: ClassVar[str]
    layout: ClassVar[Layout] = Layout.CLASS
    degree: ClassVar[int]
    #: Name of every moment that follows from this one, with the function that derives it (None: see Statistics).
    implies: ClassVar[dict[str, Derivation | None]] = {}
    #: Moments that are of no use without, and so are always measured too.
    beside: ClassVar[tuple[str, ...]] = ()
    #: Whether :meth:`add` is given features in float64 even where large products are computed in float32.
    wide: ClassVar[bool] = True

    @abstractmethod
    def width(self, dim: int) -> int:
        """Return how many numbers a class, a row or (GLOBAL) the whole moment has, for features of ``dim``."""

    def unpacked_width(self, dim: int) -> int:
        """Return how many numbers there would be if symmetric matrices were not packed, as papers count them."""
        return self.width(dim)

    def flops(self, dim: int) -> int:
        """Return the multiply-adds that one sample costs."""
        return self.width(dim)

    @abstractmethod
    def workspace(self, n_cells: int, dim: int) -> NDArray[Any]:
        """Return a zero array that :meth:`add` can accumulate into."""

    @abstractmethod
    def add(self, work: NDArray[Any], X: Floats, cells: Ints) -> None:
        """Accumulate samples X (n, d) in float64 that belong to ``cells`` (n,) into ``work`` in place."""

    def finish(self, work: NDArray[Any]) -> NDArray[Any]:
        """Return the moment's array, packed, from the workspace."""
        return work


def _accept(given: Any, name: str | None) -> Moment:
    kind = given if isinstance(given, type) else type(given)
    if not issubclass(kind, Moment):
        raise InputError("it must be a class made from fedmoments.Moment, or one of its objects")
    accepted: Moment = kind() if isinstance(given, type) else given
    if name is not None and name != accepted.name:
        raise InputError(f"it calls itself '{accepted.name}', but '{name}' was requested: files hold its own name")
    check_moment(accepted)
    return accepted


_OURS: list[Moment] = []
#: All known moments by name: ours in the order in which they are shown, then others by name.
MOMENTS: Registry[Moment] = Registry(
    "moment", group="fedmoments.moments", accept=_accept, built_in=lambda: _OURS, order=None
)
#: Those that only merged statistics hold.
DERIVED: dict[str, Moment] = {}


def register_moment(moment: Given) -> Given:
    """Make a moment known by its name in this process; also a class decorator.

    It is tried on a few samples first: sizes, adding up, and the bound that the wire and noise count on.

    Parameters
    ----------
    moment
        A class made from :class:`Moment`, or one of its objects; of layout CLASS or GLOBAL.

    Examples
    --------
    >>> @register_moment
    ... class Magnitudes(ClassSums):
    ...     name, symbol = "class_magnitudes", "Σ|x|"
    ...     def add(self, work, X, cells):
    ...         super().add(work, np.abs(X), cells)
    >>> MOMENTS["class_magnitudes"].width(7)
    7
    >>> MOMENTS.remove("class_magnitudes")
    """
    MOMENTS.register(moment)
    return moment


def built_in(cls: type[Moment]) -> type[Moment]:
    """Make a moment of fedmoments known (class decorator)."""
    _OURS.append(cls())
    return cls


def moment(name: str) -> Moment:
    """Return the moment of that name, derived ones too.

    Examples
    --------
    >>> moment("gram").width(dim=3)
    6
    """
    return DERIVED[name] if name in DERIVED else MOMENTS.find(name)


class _Powers(Moment):
    """Coordinate-wise powers Σ x^degree of a class, (C, d)."""

    def width(self, dim: int) -> int:
        return dim

    def flops(self, dim: int) -> int:
        return dim if self.degree <= 2 else 2 * dim

    def workspace(self, n_cells: int, dim: int) -> NDArray[Any]:
        return np.zeros((n_cells, dim))

    def add(self, work: NDArray[Any], X: Floats, cells: Ints) -> None:
        power = X
        for _ in range(self.degree - 1):  # products: a general power is ten times slower
            power = power * X
        work += cell_sums(power, cells, len(work))


@built_in
class ClassSums(_Powers):
    """A_c = Σ x over the samples of class c; with the counts, part of every statistic."""

    name = "sums"
    symbol = "A"
    degree = 1


@built_in
class ClassNorms(Moment):
    """Σ ‖x‖² over the samples of class c: one number a class, enough for a spherical covariance."""

    name = "class_norms"
    symbol = "Σ‖x‖²"
    degree = 2

    def width(self, dim: int) -> int:  # noqa: ARG002 - one number whatever the dimension
        return 1

    def flops(self, dim: int) -> int:
        return dim

    def workspace(self, n_cells: int, dim: int) -> NDArray[Any]:  # noqa: ARG002
        return np.zeros((n_cells, 1))

    def add(self, work: NDArray[Any], X: Floats, cells: Ints) -> None:
        work += cell_sums(np.einsum("ij,ij->i", X, X)[:, None], cells, len(work))


@built_in
class ClassSquares(_Powers):
    """D_c = Σ x⊙x over the samples of class c."""

    name = "class_squares"
    symbol = "D"
    degree = 2
    implies: ClassVar[dict[str, Derivation | None]] = {
        "class_norms": lambda squares: squares.sum(axis=1, keepdims=True)
    }


@built_in
class ClassThirds(_Powers):
    """Σ x³ coordinate-wise, for skewness."""

    name = "class_thirds"
    symbol = "Σx³"
    degree = 3


@built_in
class ClassFourths(_Powers):
    """Σ x⁴ coordinate-wise, for kurtosis."""

    name = "class_fourths"
    symbol = "Σx⁴"
    degree = 4


@built_in
class Gram(Moment):
    """B = Σ x xᵀ over all samples; packed."""

    name = "gram"
    symbol = "B"
    layout = Layout.GLOBAL
    degree = 2
    wide = False

    def width(self, dim: int) -> int:
        return packed_size(dim)

    def unpacked_width(self, dim: int) -> int:
        return dim * dim

    def workspace(self, n_cells: int, dim: int) -> NDArray[Any]:  # noqa: ARG002 - one for all classes
        return new_gram(dim)

    def add(self, work: NDArray[Any], X: NDArray[np.floating], cells: Ints) -> None:  # noqa: ARG002
        add_samples(work, X)

    def finish(self, work: NDArray[Any]) -> NDArray[Any]:
        return pack_symmetric(work)


@built_in
class ClassGrams(Moment):
    """S_c = Σ x xᵀ over the samples of class c; packed."""

    name = "class_grams"
    symbol = "S"
    degree = 2
    wide = False
    implies: ClassVar[dict[str, Derivation | None]] = {
        "gram": lambda grams: grams.sum(axis=0),
        "class_squares": packed_diagonal,
    }

    def width(self, dim: int) -> int:
        return packed_size(dim)

    def unpacked_width(self, dim: int) -> int:
        return dim * dim

    def workspace(self, n_cells: int, dim: int) -> NDArray[Any]:
        return np.zeros((n_cells, dim, dim))  # C order survives pickling; the transpose below is what syrk wants

    def add(self, work: NDArray[Any], X: NDArray[np.floating], cells: Ints) -> None:
        order = np.argsort(cells, kind="stable")
        present, starts = np.unique(cells[order], return_index=True)
        for cell, start, stop in zip(present, starts, [*starts[1:], len(cells)], strict=True):
            add_samples(work[cell].T, X[order[start:stop]])

    def finish(self, work: NDArray[Any]) -> NDArray[Any]:
        dim = work.shape[1]
        packed = [pack_symmetric(matrix.T) for matrix in work]
        return np.stack(packed) if packed else np.zeros((0, packed_size(dim)))


@built_in
class ClientMeans(_Powers):
    """Rows (label, n, Σ x) of one client's class (or of a random share of it), never added across clients.

    What travels is the mean; what is stored is the sum n·mean, because sums are exact in fixed point.
    """

    name = "client_means"
    symbol = "μ_kc"
    layout = Layout.ROWS
    degree = 1
    implies: ClassVar[dict[str, Derivation | None]] = {"sums": None}


@built_in
class ScatterSketch(Moment):
    """V: the leading right singular vectors of a client's class-centred features, scaled; with a residual trace.

    How many rows, and in which code, says the spec's ``core.statistics.sketch_plan.SketchPlan``. Rows are
    measured by :class:`~fedmoments.core.statistics.scatter_stream.ScatterStream`, and always held in float64.
    """

    name = "scatter_sketch"
    symbol = "V_k"
    layout = Layout.SKETCH
    degree = 1
    beside = ("client_means",)

    def width(self, dim: int) -> int:
        return dim

    def flops(self, dim: int) -> int:
        return dim * dim  # at most: as a gram; less where the rank is small

    def workspace(self, n_cells: int, dim: int) -> NDArray[Any]:  # noqa: ARG002 - rows come from a stream
        return np.zeros((0, dim))

    def add(self, work: NDArray[Any], X: Floats, cells: Ints) -> None:  # noqa: ARG002
        raise TypeError("a scatter sketch is accumulated by a ScatterStream, not by cells")


class _Derived(Moment):
    """What no client measures alone."""

    def workspace(self, n_cells: int, dim: int) -> NDArray[Any]:  # noqa: ARG002 - refused for any
        raise InputError(
            f"the moment '{self.name}' is not measured by a client: several parties compute it together. Measure "
            "client_means, and add them up in two phases"
        )

    def add(self, work: NDArray[Any], X: Floats, cells: Ints) -> None:  # noqa: ARG002
        self.workspace(0, 0)


class Contributors(_Derived):
    """K_c: how many clients hold class c."""

    name = "contributors"
    symbol = "K_c"
    degree = 0

    def width(self, dim: int) -> int:  # noqa: ARG002 - one number whatever the dimension
        return 1


class FreeScatter(_Derived):
    """FedCOF's pooled scatter Σ_c w_c Σ_k n_kc (μ_kc−μ_c)(μ_kc−μ_c)ᵀ, w_c = (N_c−1)/(K_c−1), packed; then its spread.

    The spread, Σ_c Σ_k n_kc ‖μ_kc−μ_c‖², is the last number: shrinkage is measured against it.
    """

    name = "free_scatter"
    symbol = "Ŝ"
    layout = Layout.GLOBAL
    degree = 2

    def width(self, dim: int) -> int:
        return packed_size(dim) + 1


DERIVED.update({derived.name: derived for derived in (Contributors(), FreeScatter())})
