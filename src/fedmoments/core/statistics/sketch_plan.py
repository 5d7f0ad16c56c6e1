"""How a client spends bytes on its scatter sketch: the rank, and the codes of means and sketch rows.

A budget is what the rows of one contribution may take: client means, sketch rows, their scales and the residual trace.
Counts and labels, which every method sends alike, are not in it.

==============  ==============================================================================
budget          bytes for a client that holds |C_k| classes in d dimensions
==============  ==============================================================================
``means``       4·d·|C_k|: FedNCM's and FedCOF's means in float32
``gram``        4·(d·|C_k| + d(d+1)/2): Fed3R's means and packed gram in float32
``means/8``     a part or a multiple of either: ``means*1.5``, ``gram/2``
``50KB``        so many bytes, whatever the client holds (KB = 1000, KiB = 1024, MB, MiB, B)
``800/class``   so many bytes for each class that the client holds
==============  ==============================================================================

Means in int8 come first: they lose no accuracy against float32. Then as many int4 sketch rows as fit, because one more
direction is worth more than finer digits. What is left when the rank is at its cap refines sketch rows to int8, then to
float16, then means and at last sketch rows to float32; means never travel in float16, whose range they may leave. The
cap, r_k ≤ share·(n_k − |C_k|), keeps the sketch from spanning the client's samples: see docs/sketch.md.

Rows are the leading directions of all classes of a client together (``pooled``), or of each class by itself
(``class``): then a client spends its rows on whichever class has most energy left, at most share·(n_kc − 1) of a class.
``automatic`` is ``class`` from :data:`LEAST_CLASSES` classes on: a rule that every party can apply.
In fewer than ten dimensions, where scales weigh as much as a row, the residual trace may come on top of a budget.
"""

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.statistics.coding import FACTOR_CODES, factor_row_bytes, mean_row_bytes
from fedmoments.errors import InputError

__all__ = ["Budget", "Choice", "SketchPlan"]

#: A block: its residual trace, one float64, and, where a client has several, how many rows it has.
RESIDUAL_BYTES, SIZE_BYTES = 8, 8
#: From so many classes of a federation on, sketch rows belong to one class each.
LEAST_CLASSES = 20
UNITS = {"": 1, "b": 1, "kb": 1000, "kib": 1024, "mb": 10**6, "mib": 2**20, "gb": 10**9, "gib": 2**30}
_AMOUNT = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[kmg]?i?b|)(?P<each>/class)?", re.IGNORECASE)
_WORD = re.compile(r"(?P<word>means|gram)(?:(?P<sign>[/*])(?P<number>\d+(?:\.\d+)?))?")
#: Means may take this share of a budget before features are projected: in fewer dimensions there is room for a sketch.
MEANS_SHARE = 0.6
#: What means and sketch rows may be refined to, one step after the other, once the rank is at its cap.
REFINEMENTS = (("int8", "int8"), ("int8", "float16"), ("float32", "float16"), ("float32", "float32"))
#: What sketch rows travel in as long as more of them would fit.
ROW_CODE = "int4"


@dataclass(frozen=True)
class Budget:
    """Bytes for the rows of one contribution: ``fixed`` + ``per_class`` · |C_k|.

    Examples
    --------
    >>> Budget.parse("means", dim=512)
    Budget(fixed=0.0, per_class=2048.0)
    >>> Budget.parse("50KB", dim=512).bytes(present=10)
    50000
    >>> Budget.parse("gram/2", dim=4).bytes(present=1)
    28
    >>> Budget.parse("much", dim=4)
    Traceback (most recent call last):
    fedmoments.errors.InputError: a budget is means, gram, a part of one (means/8, gram*2), ...
    """

    fixed: float
    per_class: float

    @classmethod
    def parse(cls, text: str, dim: int) -> "Budget":
        """Return the budget that a word stands for, in ``dim`` dimensions."""
        parts = [cls._part(part.strip(), dim) for part in text.split("+")]
        budget = cls(sum(part.fixed for part in parts if part), sum(part.per_class for part in parts if part))
        if None in parts or budget.fixed + budget.per_class <= 0:
            raise InputError(
                "a budget is means, gram, a part of one (means/8, gram*2), or bytes of a client (50KB, 20KiB) or of a "
                f"class (800/class), but '{text}' arrived"
            )
        return budget

    @classmethod
    def _part(cls, text: str, dim: int) -> "Budget | None":
        """Return what one summand stands for, or None."""
        if match := _WORD.fullmatch(text):
            number = float(match["number"] or 1)
            times = 1 / number if match["sign"] == "/" and number else number
            matrix = 2.0 * dim * (dim + 1) if match["word"] == "gram" else 0.0
            return cls(times * matrix, times * 4.0 * dim) if number else None
        if match := _AMOUNT.fullmatch(text):
            number = float(match["number"]) * UNITS[match["unit"].lower()]
            return cls(0.0, number) if match["each"] else cls(number, 0.0)
        return None

    def bytes(self, present: int) -> int:
        """Return the bytes for a client that holds ``present`` classes."""
        return int(self.fixed + self.per_class * present + 1e-6)

    def __str__(self) -> str:
        parts = [f"{self.fixed:.15g}" if self.fixed else "", f"{self.per_class:.15g}/class" if self.per_class else ""]
        return "+".join(part for part in parts if part)


@dataclass(frozen=True)
class Choice:
    """What one client sends: codes of its means and of its sketch rows, and how many of these at most.

    Parameters
    ----------
    means, code
        Of means (None: not rounded) and of sketch rows.
    rank
        Sketch rows, of all classes together.
    by_class
        Whether each row belongs to one class.

    Examples
    --------
    >>> SketchPlan("means").choose(n_samples=1000, present=10, dim=512)
    Choice(means='int8', code='int4', rank=58, by_class=False)
    """

    means: str | None
    code: str
    rank: int
    by_class: bool = False

    def index_bytes(self, present: int) -> int:
        """Return what the residual traces of so many classes take, and how many rows each has."""
        return present * (RESIDUAL_BYTES + SIZE_BYTES) if self.by_class else RESIDUAL_BYTES

    def bytes(self, present: int, dim: int) -> int:
        """Return what the means of so many classes, the sketch rows, all scales and the residual traces take."""
        means = present * mean_row_bytes(self.means, dim) if self.means else 0
        return means + self.rank * factor_row_bytes(self.code, dim) + self.index_bytes(present)


@dataclass(frozen=True)
class SketchPlan:
    """How every client of a federation chooses the size of its sketch.

    Parameters
    ----------
    budget
        Bytes that a client's rows may take; see the module for the words. None: ``rank`` says it all, and means are not
        rounded.
    rank
        Sketch rows of every client, as far as ``share`` allows; only without a budget.
    code
        Code of sketch rows without a budget: float64, float32, float16, int8 or int4.
    share
        r_k is at most this share of n_k − |C_k|, the rank at which the sketch would span the client's samples.
    spare
        With fewer spare samples n_k − |C_k| than this, no sketch row leaves a client; means travel as if some did.
        Where rows belong to classes, none leaves of a class with fewer spare samples n_kc − 1.
    rows
        ``pooled``: leading directions of all classes together; ``class``: of each class by itself; ``automatic``: as
        the number of classes says (:meth:`settled`).

    Examples
    --------
    >>> SketchPlan("means/2").choose(n_samples=1000, present=10, dim=512).rank
    19
    >>> SketchPlan("gram").choose(n_samples=20, present=10, dim=512)
    Choice(means='float32', code='float32', rank=2, by_class=False)
    >>> SketchPlan(budget=None, rank=4, code="float16").choose(n_samples=100, present=10, dim=512)
    Choice(means=None, code='float16', rank=4, by_class=False)
    """

    budget: str | None = "means"
    rank: int | None = None
    code: str = "int8"
    share: float = 0.25
    spare: int = 0
    rows: str = "automatic"

    ROWS: ClassVar[tuple[str, ...]] = ("automatic", "pooled", "class")

    def __post_init__(self) -> None:
        if (self.budget is None) == (self.rank is None):
            raise InputError(
                "a sketch has either a budget or a rank, which then is the same for all clients: "
                f"budget={self.budget!r} and rank={self.rank!r} arrived"
            )
        for what, number in (("rank of a sketch", self.rank), ("least number of spare samples", self.spare)):
            if number is not None and (isinstance(number, bool) or number < 0):
                raise InputError(f"the {what} is a whole number of 0 or more, not {number!r}")
        if self.code not in FACTOR_CODES:
            raise InputError(f"sketch rows travel as one of {', '.join(FACTOR_CODES)}, not {self.code!r}")
        if not 0.0 <= self.share <= 1.0:
            raise InputError(f"the share of n − |C| that a sketch may span is from 0 to 1, not {self.share}")
        if self.rows not in self.ROWS:
            raise InputError(f"the rows of a sketch are one of {', '.join(self.ROWS)}, not {self.rows!r}")
        if self.budget is not None:
            object.__setattr__(self, "budget", str(self.budget))
            Budget.parse(str(self.budget), 1)

    @property
    def by_class(self) -> bool:
        """Whether each row belongs to one class; not before that is settled."""
        return self.rows == "class"

    def settled(self, n_classes: int) -> "SketchPlan":
        """Return the plan that says whether rows are pooled, for a federation of so many classes.

        Examples
        --------
        >>> [SketchPlan().settled(classes).rows for classes in (10, 77)]
        ['pooled', 'class']
        """
        if self.rows != "automatic":
            return self
        return replace(self, rows="class" if n_classes >= LEAST_CLASSES else "pooled")

    def serves(self, asked: "SketchPlan") -> bool:
        """Return whether a sketch by this plan is one by another, which may leave open whether rows are pooled."""
        return asked == (self if asked.rows != "automatic" else replace(self, rows="automatic"))

    def class_ranks(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how many rows each class may have at most, by its samples n_kc: share·(n_kc − 1), none below spare.

        Examples
        --------
        >>> SketchPlan().class_ranks(np.array([1, 4, 5, 41]))
        array([ 0,  0,  1, 10])
        """
        spare = np.maximum(counts - 1, 0)
        return np.where(spare < self.spare, 0, self.share * spare + 1e-9).astype(np.int64)

    def at(self, dim: int) -> "SketchPlan":
        """Return the same plan with its budget in bytes, so that it stays the same behind a projection.

        Examples
        --------
        >>> SketchPlan("means/8").at(512).budget
        '256/class'
        """
        return self if self.budget is None else replace(self, budget=str(Budget.parse(self.budget, dim)))

    def most_rank(self, n_samples: int, present: int, dim: int) -> int:
        """Return the largest rank that the share allows."""
        return min(int(self.share * max(n_samples - present, 0) + 1e-9), self._full_rank(present, dim))

    def _full_rank(self, present: int, dim: int) -> int:
        """Return as many rows as there can be directions."""
        return present * dim if self.by_class else dim

    def capacity(self, present: int, dim: int) -> int:
        """Return the largest rank that any client of so many classes may choose, whatever its samples.

        Examples
        --------
        >>> SketchPlan("means").capacity(present=10, dim=512)
        78
        """
        full = self._full_rank(present, dim)
        if self.budget is None:
            return min(self.rank or 0, full)
        return min(Budget.parse(self.budget, dim).bytes(present) // factor_row_bytes(ROW_CODE, dim), full)

    def choose(self, n_samples: int, present: int, dim: int) -> Choice:
        """Return what a client with so many samples of so many classes sends: one mean a class, and a sketch.

        Raises
        ------
        InputError
            When not even means in int8 fit the budget.
        """
        return _chosen(self, n_samples, present, dim)

    def _choose(self, n_samples: int, present: int, dim: int) -> Choice:
        most = self.most_rank(n_samples, present, dim)
        if self.budget is None:
            return Choice(None, self.code, min(self.rank or 0, most), self.by_class)
        allowed = Budget.parse(self.budget, dim).bytes(present)
        small = min(("int8", "float32"), key=lambda code: mean_row_bytes(code, dim))  # int8 has 8 bytes of scales
        least = Choice(small, ROW_CODE, 0, self.by_class)
        taken = least.bytes(present, dim)
        coarsest = taken - least.index_bytes(present)
        if present and coarsest > allowed:
            raise InputError(
                f"a budget of {allowed} bytes cannot hold {present} means in {dim} dimensions: in {small}"
                f" they take {coarsest} bytes; project features to fewer dimensions, or allow more"
            )
        best = replace(least, rank=min(max(allowed - taken, 0) // factor_row_bytes(ROW_CODE, dim), most))
        if best.rank == most:
            for means, code in REFINEMENTS:
                finer = replace(best, means=means, code=code)
                if finer.bytes(present, dim) <= allowed:
                    best = finer
        return best

    def projection(self, n_classes: int, dim: int) -> int | None:
        """Return to how many dimensions features must be projected so that any client fits; None for as they are.

        Examples
        --------
        >>> SketchPlan("means/8").projection(n_classes=10, dim=512)
        144
        >>> SketchPlan("means").projection(n_classes=10, dim=512) is None
        True
        """
        if self.budget is None:
            return None
        budget = Budget.parse(self.budget, dim)
        worst = 1 if not budget.fixed else n_classes
        allowed = budget.bytes(worst) - Choice("int8", ROW_CODE, 0, self.by_class).index_bytes(worst)
        overhead = mean_row_bytes("int8", dim) - dim
        fits = int(MEANS_SHARE * (allowed / worst - overhead))
        if fits >= dim:
            return None
        if fits < 1:
            raise InputError(
                f"a budget of '{self.budget}' leaves {max(allowed, 0)} bytes for the means of {worst} classes, not one "
                "dimension each: allow more"
            )
        return int(fits)

    def __str__(self) -> str:
        # Neither share nor spare: they say how much a client withholds, and a client that withholds more by its own
        # policy contributes the same kind of statistics, of the same digest.
        size = f"budget {self.budget}" if self.budget is not None else f"rank {self.rank} in {self.code}"
        return f"{size}, rows a class" if self.by_class else size


@lru_cache(maxsize=4096)
def _chosen(plan: SketchPlan, n_samples: int, present: int, dim: int) -> Choice:
    """Return a plan's choice, which a server asks for each client more than once."""
    best = plan._choose(n_samples, present, dim)
    return replace(best, rank=0) if n_samples - present < plan.spare else best
