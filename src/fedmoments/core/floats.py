"""In which floating-point numbers the large products are computed: float64, or centred blocks of float32.

The products that take the time are XᵀX over samples (grams, class grams) and over client means (the free scatter). In
``float32`` a block Z of at most :data:`BLOCK` rows, less its own mean, is rounded and multiplied in float32
(``ssyrk``), and the product is added to the float64 total; what the mean took away is put back in float64. Counts,
sums, what is subtracted from what, and all that is solved stay in float64.

**Law** what differs from float64 is, in every entry (i, j) of a gram,

    |error| ≤ (BLOCK + 4)·2⁻²⁴·Σ |z_i|·|z_j|,

z being samples around the mean of their block: it scales with the scatter, never with how far features lie from the
origin. Errors of single products do not agree in sign, so that about √BLOCK·2⁻²⁴ is seen.

:func:`precision` is the one switch. It holds for the block of code under it, in this thread; fixed point is exact
whatever it says.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas

from fedmoments.core.linalg import add_gram, blocks
from fedmoments.errors import UnknownNameError

__all__ = [
    "BLOCK",
    "PRECISIONS",
    "add_centred_rows",
    "add_samples",
    "check_precision",
    "current_precision",
    "is_single",
    "precision",
    "single_rows",
]

Floats = NDArray[np.float64]

PRECISIONS = ("float64", "float32")
#: Rows that are multiplied at once in float32: a product (d, d) is added to the total once in so many.
BLOCK = 2048

_CURRENT: ContextVar[str] = ContextVar("precision", default="float64")


class _Scratch(threading.local):
    """Room for one block of rows and one product, kept by a thread: fresh memory costs as much as a small product."""

    def __init__(self) -> None:
        self.rows = np.empty((0, 0), np.float32)
        self.product = np.empty((0, 0), np.float32, order="F")

    def block(self, n: int, dim: int) -> NDArray[np.float32]:
        """Return an array (n, d) of any content."""
        if self.rows.shape[0] < n or self.rows.shape[1] != dim:
            self.rows = np.empty((n, dim), np.float32)
        return self.rows[:n]

    def gram(self, rows: NDArray[np.float32], weight: float) -> NDArray[np.float32]:
        """Return ``weight``·RᵀR (d, d), its upper triangle meaningful, until the next one is requested."""
        dim = rows.shape[1]
        if len(self.product) != dim:
            self.product = np.zeros((dim, dim), np.float32, order="F")
        blas.ssyrk(weight, rows.T, beta=0.0, c=self.product, overwrite_c=1, lower=0)
        return self.product


_SCRATCH = _Scratch()


def check_precision(name: str) -> None:
    """Refuse what is none of :data:`PRECISIONS`.

    Examples
    --------
    >>> check_precision("float32")
    """
    if name not in PRECISIONS:
        raise UnknownNameError("precision", name, list(PRECISIONS))


@contextmanager
def precision(name: str) -> Iterator[None]:
    """Compute the large products under this block in ``float64`` (the default) or ``float32``, about twice as fast.

    Examples
    --------
    >>> import fedmoments as fm
    >>> X, y = np.random.default_rng(0).normal(size=(300, 8)) + 1000.0, np.arange(300) % 3
    >>> with fm.precision("float32"):
    ...     quick = fm.Statistics.of(X, y, fm.spec_for("gh-lda"), n_classes=3)
    >>> exact = fm.Statistics.of(X, y, fm.spec_for("gh-lda"), n_classes=3)
    >>> bool(np.abs(quick.gram - exact.gram).max() < 1e-3)
    True
    """
    check_precision(name)
    token = _CURRENT.set(name)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def current_precision() -> str:
    """Return which numbers large products are computed in here.

    Examples
    --------
    >>> current_precision()
    'float64'
    """
    return _CURRENT.get()


def is_single() -> bool:
    """Say whether large products are computed in float32 here.

    Examples
    --------
    >>> with precision("float32"):
    ...     is_single()
    True
    """
    return _CURRENT.get() == "float32"


def add_samples(out: Floats, X: NDArray[np.floating]) -> None:
    """Add XᵀX of samples X (n, d) to the upper triangle of ``out``, as :func:`precision` says.

    Parameters
    ----------
    out
        (d, d) from :func:`fedmoments.core.linalg.new_gram`.
    X
        (n, d) in float64 or float32, wherever they lie.

    Examples
    --------
    >>> from fedmoments.core.linalg import new_gram
    >>> gram = new_gram(2)
    >>> with precision("float32"):
    ...     add_samples(gram, np.array([[1001.0, 2.0], [1003.0, 2.0]]))
    >>> gram[0, 0]
    np.float64(2008010.0)
    """
    if not is_single():
        add_gram(out, X)
        return
    for block in blocks(len(X), BLOCK):
        rows, centred = X[block], _SCRATCH.block(block.stop - block.start, X.shape[1])
        total = rows.sum(axis=0, dtype=np.float64)
        mean = (total / len(rows)).astype(X.dtype)
        np.subtract(rows, mean, out=centred, casting="same_kind")
        _add_single(out, centred)
        # Σ x xᵀ = Σ z zᵀ + m (Σ z + n m/2)ᵀ + (Σ z + n m/2) mᵀ, and Σ z + n m/2 is Σ x − n m/2
        wide = mean.astype(np.float64)
        blas.dsyr2(1.0, wide, total - 0.5 * len(rows) * wide, lower=0, a=out, overwrite_a=1)


def single_rows(n: int, dim: int) -> NDArray[np.float32]:
    """Return room (n, d) for rows that :func:`add_centred_rows` takes next, of any content; a thread has one."""
    return _SCRATCH.block(n, dim)


def add_centred_rows(out: Floats, rows: NDArray[np.floating], weight: float = 1.0) -> None:
    """Add ``weight``·RᵀR of rows R (r, d) that are differences from a mean already, as :func:`precision` says.

    Examples
    --------
    >>> from fedmoments.core.linalg import new_gram
    >>> gram = new_gram(1)
    >>> add_centred_rows(gram, np.array([[3.0], [4.0]]))
    >>> gram
    array([[25.]])
    """
    if not is_single():
        add_gram(out, rows, weight=weight)
        return
    for block in blocks(len(rows), BLOCK):
        _add_single(out, np.ascontiguousarray(rows[block], dtype=np.float32), weight)


def _add_single(out: Floats, rows: NDArray[np.float32], weight: float = 1.0) -> None:
    """Add ``weight``·RᵀR of one block in float32 to the upper triangle of ``out``."""
    product = _SCRATCH.gram(rows, weight)
    for start in range(0, len(out), 256):  # a strip of columns at a time: nothing below the triangle is read
        stop = start + 256
        out[:stop, start:stop] += product[:stop, start:stop]
