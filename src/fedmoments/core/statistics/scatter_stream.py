"""The leading part of one client's class-centred scatter, from a stream, in memory that does not grow with it.

M = Σ_c Σ_{i∈c} (x_i − μ_c)(x_i − μ_c)ᵀ is a sum over *steps* (Welford; the rows of a Helmert matrix): the sample that
finds s ≥ 1 samples of its class before it, of mean m, contributes the row

    w = √(s/(s+1)) · (x − m),      M = Σ w wᵀ,      tr M = Σ ‖w‖²,

and the first sample of a class contributes none. So a client of n samples of p classes has exactly n − p rows, nothing
cancels (an offset of the features drops out in x − m), and the trace is a sum of squares that is kept as a number.

Samples are taken up in chunks of :data:`CHUNK`, counted from the stream's beginning, so the result does not depend on
how the stream was cut into batches: **bit for bit**. Rows w are collected. When there are more than ``buffer``:

- if ``buffer`` ≥ d, they are added up in a (d, d) matrix, and **nothing is ever lost**;
- else they are compressed by α-Frequent Directions (Ghashami, Liberty, Phillips, Woodruff 2016; Desai, Ghashami,
  Phillips 2016) with α = ½: of the singular values σ₁ ≥ σ₂ ≥ … of the collected rows, with ℓ = buffer/2, at least
  :func:`sketch_rows`, and δ = σ²_{ℓ+1}, the first ℓ/2 are kept as they are, the next ℓ/2 become √(σ² − δ), the rest is
  dropped.

**Law**: with F the rows that are kept, 0 ⪯ M − FᵀF and ‖M − FᵀF‖₂ ≤ Δ ≤ (tr M − tr FᵀF)/(ℓ/2), where Δ, the sum of all
δ, is known (:attr:`ScatterStream.error`). While n − p ≤ ``buffer``, and whenever M has a rank of at most ℓ, Δ is 0.

A stream may keep classes apart (``by_class``): then each row w belongs to its class, M_c = Σ_{i∈c} w wᵀ, and all of the
above holds for the block-diagonal matrix of the M_c, whose singular vectors are those of the classes one by one. A
compression keeps the ℓ largest of all classes, whichever they belong to, so that memory does not grow with the classes
either; nothing is added up in (d, d) matrices. Classes together are one class: ``by_class=False``.

Two streams of one client merge exactly: M = M_a + M_b + Σ_c (n_a n_b/(n_a + n_b)) (m_a − m_b)(m_a − m_b)ᵀ, so rows of
both, and one row a class that both hold, are rows of the union; they are compressed as above, and Δ adds up.

Rows that are kept are those of :mod:`fedmoments.core.statistics.leading_rows`: FᵀF errs by the rounding of ‖M‖ and no
more. There is no randomness anywhere.

Memory: at most (buffer + CHUNK + p)·d numbers between two batches, or (d + 5·CHUNK + p)·d once rows are added up; while
rows are compressed, about as much again and a few times (buffer + CHUNK)². Nothing grows with the samples.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.linalg import add_gram, new_gram
from fedmoments.core.statistics.leading_rows import leading_of_blocks, leading_of_gram
from fedmoments.core.statistics.sketches import ALL_CLASSES
from fedmoments.errors import InputError

__all__ = ["CHUNK", "ScatterStream", "buffer_rows", "sketch_rows"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Samples that are centred at once: enough for BLAS, few against any buffer.
CHUNK = 64
#: Rows kept beyond twice the capacity.
_SPARE = 16


def sketch_rows(capacity: int) -> int:
    """Return ℓ, how many rows a compression keeps so that ``capacity`` rows are among those that it does not shorten.

    Examples
    --------
    >>> sketch_rows(30)
    76
    """
    return 2 * capacity + _SPARE


def buffer_rows(capacity: int) -> int:
    """Return how many rows are collected, unless it is said otherwise, before they are compressed.

    Examples
    --------
    >>> buffer_rows(30), buffer_rows(100)
    (256, 432)
    """
    return max(2 * sketch_rows(capacity), 4 * CHUNK)


@dataclass(frozen=True)
class _Settled:
    """Rows w (m, d) of samples, the block (m,) that each belongs to, and all classes seen: labels, counts, means."""

    rows: Floats
    blocks: Ints
    classes: Ints
    counts: Ints
    means: Floats


class ScatterStream:
    """Collects the leading part of one client's class-centred scatter.

    Parameters
    ----------
    dim
        Dimension d of the features.
    capacity
        The largest rank that :meth:`factor` will be asked for.
    buffer
        Rows that are collected before they are compressed, more than :func:`sketch_rows`; by default
        :func:`buffer_rows` of the capacity.
    by_class
        Keep the scatter of each class apart, in one block each; else all classes are one block.

    Examples
    --------
    >>> stream = ScatterStream(2, capacity=1)
    >>> stream.update(np.array([[0.0, 5.0], [2.0, 5.0]]), [0, 0])
    >>> stream.update(np.array([[7.0, 1.0], [7.0, 2.0]]), [1, 1])
    >>> rows, trace = stream.factor(1)
    >>> rows.round(12) + 0.0, round(trace, 12)
    (array([[1.41421356, 0.        ]]), 2.5)
    """

    def __init__(self, dim: int, capacity: int, *, buffer: int | None = None, by_class: bool = False) -> None:
        if dim < 1 or capacity < 0:
            raise InputError(f"a scatter has 1 dimension or more and a rank of 0 or more, not {dim} and {capacity}")
        if buffer is not None and buffer <= sketch_rows(capacity):
            raise InputError(
                f"a buffer of {buffer} rows cannot be compressed to the {sketch_rows(capacity)} rows that a rank of "
                f"{capacity} needs: give it more rows than that, or omit it"
            )
        self.dim, self.capacity, self._fixed_buffer, self.by_class = dim, capacity, buffer, by_class
        self._classes, self._counts, self._means = np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros((0, dim))
        self._staged: list[tuple[Floats, Ints]] = []
        self._n_staged = 0
        self._rows: list[Floats] = []
        self._blocks: list[Ints] = []
        self._gram: Floats | None = None
        self._traces: dict[int, float] = {}
        self._error = 0.0

    # ------------------------------------------------------------------------------------------------ what is known

    @property
    def buffer(self) -> int:
        """Rows that are collected before they are compressed or added up."""
        return buffer_rows(self.capacity) if self._fixed_buffer is None else self._fixed_buffer

    @property
    def error(self) -> float:
        """Δ, which the spectral norm of what was lost does not exceed: 0 while nothing was lost."""
        return self._error

    @property
    def classes(self) -> Ints:
        """(p,) labels seen so far, ascending."""
        return self._centred().classes

    @property
    def counts(self) -> Ints:
        """(p,) samples of each of the :attr:`classes`."""
        return self._centred().counts

    @property
    def n_samples(self) -> int:
        """Samples seen so far."""
        return int(self._counts.sum()) + self._n_staged

    @property
    def size(self) -> float:
        """The largest entry of a class mean so far, without its sign."""
        return float(np.abs(self._centred().means).max(initial=0.0))

    @property
    def nbytes(self) -> int:
        """Bytes that are held between two batches."""
        held = [self._means, *self._rows, *(X for X, _ in self._staged), *([] if self._gram is None else [self._gram])]
        return sum(array.nbytes for array in held)

    # --------------------------------------------------------------------------------------------------- collecting

    def update(self, X: NDArray[np.floating], labels: NDArray[np.integer] | list[int]) -> None:
        """Add a batch, X (n, d) and labels (n,); a batch that is refused leaves the stream as it was."""
        features, cells = np.asarray(X), np.asarray(labels)
        if features.ndim != 2 or features.shape[1] != self.dim or cells.shape != features.shape[:1]:
            raise InputError(
                f"a batch is X (n, {self.dim}) with n labels, but X of shape {features.shape} and labels of shape "
                f"{cells.shape} arrived"
            )
        if cells.size and cells.dtype.kind not in "iu":
            raise InputError(f"labels are whole numbers, but an array of {cells.dtype} arrived")
        if not np.isfinite(features).all():
            raise InputError("features are finite numbers, but some of this batch are not: drop these samples")
        start = 0
        while start < len(features):
            stop = min(start + CHUNK - self._n_staged, len(features))
            self._staged.append((np.array(features[start:stop], np.float64), np.array(cells[start:stop], np.int64)))
            self._n_staged += stop - start
            start = stop
            if self._n_staged == CHUNK:
                self._settle()

    def state(self) -> dict[str, NDArray[Any]]:
        """Return all that is held, as arrays by name, once samples that wait for their chunk are settled."""
        self._settle()
        none = np.zeros((0, self.dim))
        held = {
            "classes": self._classes, "counts": self._counts, "means": self._means,
            "rows": np.concatenate([none, *self._rows]),
            "blocks": np.concatenate([np.zeros(0, np.int64), *self._blocks]),
            "trace_blocks": np.array(list(self._traces), np.int64),
            "traces": np.array(list(self._traces.values()), np.float64),
            "error": np.array([self._error]),
        }  # fmt: skip
        return held if self._gram is None else {**held, "gram": self._gram}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take over what :meth:`state` returned of a stream of the same settings, checked."""
        p, m, b = len(state["classes"]), len(state["rows"]), len(state["trace_blocks"])
        shapes: dict[str, tuple[int, ...]] = {
            "classes": (p,), "counts": (p,), "means": (p, self.dim), "rows": (m, self.dim), "blocks": (m,),
            "trace_blocks": (b,), "traces": (b,), "error": (1,), "gram": (self.dim, self.dim),
        }  # fmt: skip
        for name, array in state.items():
            _check_array(name, array, shapes[name])
        if (state["counts"] < 1).any() or (np.diff(state["classes"]) < 1).any() or (state["traces"] < 0).any():
            raise InputError("a scatter has ascending classes of 1 sample or more, and traces of 0 or more")
        self._classes, self._counts, self._means = (state[name].copy() for name in ("classes", "counts", "means"))
        self._rows, self._blocks = [state["rows"].copy()], [state["blocks"].copy()]
        self._traces = dict(zip(state["trace_blocks"].tolist(), state["traces"].tolist(), strict=True))
        self._error = float(state["error"][0])
        self._gram = state["gram"].copy(order="F") if "gram" in state else None

    def _stage(self) -> tuple[Floats, Ints]:
        """Return the samples that wait for their chunk to be full."""
        if not self._staged:
            return np.zeros((0, self.dim)), np.zeros(0, np.int64)
        return np.concatenate([X for X, _ in self._staged]), np.concatenate([labels for _, labels in self._staged])

    def _settle(self) -> None:
        """Turn the samples that wait into rows, and compress the rows if there are too many."""
        new = self._centred()
        self._classes, self._counts, self._means = new.classes, new.counts, new.means
        self._staged, self._n_staged = [], 0
        self._traces = self._with_energy(new)
        self._collect(new.rows, new.blocks)

    def _collect(self, rows: Floats, blocks: Ints) -> None:
        """Keep rows of these blocks, and compress all rows if there are too many."""
        self._rows.append(rows)
        self._blocks.append(blocks)
        if sum(map(len, self._rows)) <= (self.buffer if self._gram is None else 4 * CHUNK):
            return
        if self._gram is None and (self.by_class or self.buffer < self.dim):
            self._compress()
        else:
            self._gram = self._added_up(self._gram)
            self._rows, self._blocks = [], []

    def _with_energy(self, new: _Settled) -> dict[int, float]:
        """Return the trace of every block, with that of new rows."""
        traces = dict(self._traces)
        for block in np.unique(new.blocks).tolist():
            traces[block] = traces.get(block, 0.0) + _energy(new.rows[new.blocks == block])
        return traces

    def _added_up(self, gram: Floats | None) -> Floats:
        """Return the (d, d) matrix, a new one or the one given, with the rows added to its upper triangle."""
        total = new_gram(self.dim) if gram is None else gram
        for rows in self._rows:
            add_gram(total, rows)
        return total

    def merge(self, other: "ScatterStream") -> None:
        """Add what another stream of the same client, of the same settings, has collected.

        Examples
        --------
        >>> X, y = np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 2
        >>> whole, one, other = (ScatterStream(3, capacity=3) for _ in range(3))
        >>> whole.update(X, y), one.update(X[:7], y[:7]), other.update(X[7:], y[7:])
        (None, None, None)
        >>> one.merge(other)
        >>> np.allclose(one.factor(3)[0], whole.factor(3)[0])
        True
        """
        ours = (self.dim, self.capacity, self.buffer, self.by_class)
        if ours != (other.dim, other.capacity, other.buffer, other.by_class):
            raise InputError("scatters merge only if their dimension, capacity, buffer and kind of blocks are the same")
        self._settle()
        theirs = other._centred()
        for block, trace in other._with_energy(theirs).items():
            self._traces[block] = self._traces.get(block, 0.0) + trace
        self._error += other._error
        if other._gram is not None:
            self._gram = other._gram.copy(order="F") if self._gram is None else self._gram + other._gram
        for rows, blocks in zip(other._rows, other._blocks, strict=True):
            self._collect(rows.copy(), blocks.copy())
        self._collect(theirs.rows, theirs.blocks)
        self._meet(theirs)

    def _meet(self, theirs: _Settled) -> None:
        """Take over the classes of another stream; those of both add a row for the distance of their means."""
        classes = np.union1d(self._classes, theirs.classes)
        counts, means = np.zeros((2, len(classes)), np.int64), np.zeros((2, len(classes), self.dim))
        for side, (labels, n, mean) in enumerate(
            ((self._classes, self._counts, self._means), (theirs.classes, theirs.counts, theirs.means))
        ):
            places = np.searchsorted(classes, labels)
            counts[side, places], means[side, places] = n, mean
        total = counts.sum(axis=0)
        both = (counts > 0).all(axis=0)
        weights = np.sqrt(counts[0] / total * counts[1])[both]
        rows = weights[:, None] * (means[0] - means[1])[both]
        blocks = classes[both] if self.by_class else np.full(len(rows), ALL_CLASSES, np.int64)
        # from the larger side, so that nothing cancels
        self._means = np.where((counts[0] >= counts[1])[:, None], means[0], means[1])
        lesser = counts.min(axis=0) / total
        away = np.where((counts[0] >= counts[1])[:, None], means[1] - means[0], means[0] - means[1])
        self._means = self._means + np.where(both, lesser, 0.0)[:, None] * away
        self._classes, self._counts = classes, total
        self._traces = self._with_energy(_Settled(rows, blocks, classes, total, self._means))
        self._collect(rows, blocks)

    def _compress(self) -> None:
        """Make ℓ rows of more: one step of α-Frequent Directions."""
        size = max(sketch_rows(self.capacity), self.buffer // 2)
        rows, blocks, energies = leading_of_blocks(np.concatenate(self._rows), np.concatenate(self._blocks), size + 1)
        if len(rows) > size:
            least = float(energies[size])
            self._error += least
            half = size // 2
            rows, blocks = rows[:size], blocks[:size]
            rows[half:] *= np.sqrt(np.maximum(1.0 - least / energies[half:size], 0.0))[:, None]
        self._rows, self._blocks = [rows], [blocks]

    def _centred(self) -> _Settled:
        """Return rows of the samples that wait, and all classes with them."""
        X, labels = self._stage()
        classes = np.union1d(self._classes, labels)
        counts, means = np.zeros(len(classes), np.int64), np.zeros((len(classes), self.dim))
        old = np.searchsorted(classes, self._classes)
        counts[old], means[old] = self._counts, self._means
        cells = np.searchsorted(classes, labels)
        fresh, first = np.unique(cells, return_index=True)
        new = counts[fresh] == 0
        means[fresh[new]] = X[first[new]]  # any point of the class serves as the origin of its deviations

        deviations = X - means[cells]
        before = np.tril(cells[:, None] == cells, -1)
        seen = counts[cells] + before.sum(axis=1)
        weights = np.sqrt(seen / (seen + 1.0))
        steps = np.diag(weights) - before * (weights / np.maximum(seen, 1))[:, None]
        rows = (steps @ deviations)[seen > 0]
        blocks = labels[seen > 0] if self.by_class else np.full(len(rows), ALL_CLASSES, np.int64)

        members = (fresh[:, None] == cells).astype(np.float64)
        counts[fresh] += members.sum(axis=1).astype(np.int64)
        means[fresh] += (members @ deviations) / counts[fresh, None]
        return _Settled(rows, blocks, classes, counts, means)

    # ---------------------------------------------------------------------------------------------------- the result

    def factor(self, rank: int) -> tuple[Floats, float]:
        """Return the leading ``rank`` rows of the scatter's factor, and the scatter's trace; the stream can go on.

        Parameters
        ----------
        rank
            How many rows at most; no more than :attr:`capacity` once something was lost.

        Returns
        -------
        rows, trace
            (r, d) right singular vectors times singular values, by falling singular value, the largest entry of each
            positive, without those of singular value 0; and tr M, exact whatever was lost. Of a stream by class, rows
            of all classes.
        """
        rows, _, traces = self._factor(rank, None)
        return rows, sum(traces.values())

    def blocks(self, rank: int, most: Ints | None = None) -> list[tuple[int, Floats, float]]:
        """Return (label, rows, trace) of every block; :data:`ALL_CLASSES` alone, unless classes are kept apart.

        The leading ``rank`` rows of all blocks together are taken, those of a block by falling singular value.

        Parameters
        ----------
        rank
            How many rows at most, of all blocks together.
        most
            (p,) how many at most of each of the :attr:`classes`, where these are kept apart; any number by default.

        Examples
        --------
        >>> stream = ScatterStream(1, capacity=2, by_class=True)
        >>> stream.update(np.array([[0.0], [2.0], [7.0], [1.0], [1.0]]), [0, 0, 1, 0, 1])
        >>> [(label, rows.round(12).tolist(), round(trace, 12)) for label, rows, trace in stream.blocks(1)]
        [(0, [], 2.0), (1, [[4.242640687119]], 18.0)]
        """
        labels = self.classes if self.by_class else np.full(min(self.n_samples, 1), ALL_CLASSES, np.int64)
        caps = None if most is None else dict(zip(labels.tolist(), most.tolist(), strict=True))
        rows, blocks, traces = self._factor(rank, caps)
        return [(label, rows[blocks == label], traces.get(label, 0.0)) for label in labels.tolist()]

    def _factor(self, rank: int, caps: dict[int, int] | None) -> tuple[Floats, Ints, dict[int, float]]:
        """Return the leading rows of all blocks, the block of each, and the trace of every block."""
        if rank < 0 or (rank > self.capacity and self._error > 0):
            raise InputError(
                f"a stream that has compressed its rows has a factor of 0 to {self.capacity} rows, its capacity, but "
                f"{rank} were requested: give it a larger capacity before it begins"
            )
        late = self._centred()
        if self._gram is None:
            every, owners = np.concatenate([*self._rows, late.rows]), np.concatenate([*self._blocks, late.blocks])
            rows, blocks, _ = leading_of_blocks(every, owners, rank, caps)
        else:
            gram = self._added_up(self._gram.copy(order="F"))
            add_gram(gram, late.rows)
            rows = leading_of_gram(gram, rank)
            blocks = np.full(len(rows), ALL_CLASSES, np.int64)
        peaks = np.abs(rows).argmax(axis=1)
        signs = np.where(rows[np.arange(len(rows)), peaks] < 0, -1.0, 1.0)
        return rows * signs[:, None], blocks, self._with_energy(late)


def _energy(rows: Floats) -> float:
    """Return Σ‖row‖²."""
    return float(np.square(rows).sum())


def _check_array(name: str, array: NDArray[Any], shape: tuple[int, ...]) -> None:
    """Refuse an array of a state that is of another type or shape, or not finite."""
    whole = name in ("classes", "counts", "blocks", "trace_blocks")
    if array.shape != shape or array.dtype != (np.int64 if whole else np.float64):
        raise InputError(f"'{name}' of a scatter must be of shape {shape}, but is {array.dtype} of {array.shape}")
    if not np.isfinite(array).all():
        raise InputError(f"'{name}' of a scatter holds NaN or infinity")
