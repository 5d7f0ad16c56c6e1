"""What both ends of the wire agreed on before the first byte: everything a contribution is checked against."""

from dataclasses import dataclass, replace

from fedmoments.core.statistics import FixedPoint, StatisticsSpec
from fedmoments.core.statistics.sketch_plan import Choice, SketchPlan
from fedmoments.errors import InputError

__all__ = ["ROW_TYPES", "Agreement", "rows_of"]

#: Types in which rows of client means may travel: fixed-point sums, means in a code, or in that of a sketch's budget.
ROW_TYPES = ("int64", "float32", "float16", "bfloat16", "int8", "budget")
#: A contribution is held in memory once or twice, and in a database that takes a billion bytes at once.
MOST_BYTES = 900_000_000


@dataclass(frozen=True)
class Agreement:
    """The numbers and digests that a contribution must match.

    Parameters
    ----------
    federation, fingerprint, classes
        SHA-256, 64 hexadecimal digits each: of the terms, of how features are made, of the class list.
    n_classes, dim
        C, and the dimension d of the features that are measured.
    spec
        Which moments; scatter sketches by a plan, the default one where none is given.
    fixed_point
        Their form.
    rows
        Type in which rows of client means travel (`ROW_TYPES`). Beside scatter sketches that have a budget, means
        travel in the code that the budget leaves them: int64, the default, becomes ``budget`` then, and no other type
        may be asked for.
    max_bytes
        Cap on the size of one contribution, checked before anything is parsed.
    formers
        The same federation's before classes were added: what was made under one of these is still good.

    Examples
    --------
    >>> spec, form = StatisticsSpec.of("scatter_sketch"), FixedPoint(4.0, 1000)
    >>> agreement = Agreement("ab" * 32, "ab" * 32, "ab" * 32, 10, 512, spec, form)
    >>> agreement.rows, agreement.choice(n_samples=1000, present=10)
    ('budget', Choice(means='int8', code='int4', rank=58, by_class=False))
    """

    federation: str
    fingerprint: str
    classes: str
    n_classes: int
    dim: int
    spec: StatisticsSpec
    fixed_point: FixedPoint
    rows: str = "int64"
    max_bytes: int = 2**28
    formers: tuple["Agreement", ...] = ()

    def __post_init__(self) -> None:
        if self.n_classes < 1 or self.dim < 1:
            raise InputError(f"n_classes and dim must be 1 or more, not {self.n_classes} and {self.dim}")
        if not 1024 <= self.max_bytes <= MOST_BYTES:
            raise InputError(f"max_bytes must be from 1024 to {MOST_BYTES}, not {self.max_bytes}")
        object.__setattr__(self, "rows", rows_of(self.spec, self.rows))
        object.__setattr__(self, "spec", self.spec.settled(self.n_classes))
        for present in (1, self.n_classes):  # a budget is linear in the classes, so what holds for both holds between
            self.choice(present, present)

    def under(self, classes: str) -> "Agreement":
        """Return the agreement with the class list of this digest: this one, unless a former one has it."""
        return next((former for former in self.formers if former.classes == classes), self)

    @property
    def plan(self) -> SketchPlan:
        """How large scatter sketches are; only where the moments include them."""
        if self.spec.plan is None:
            raise InputError(f"the agreed moments, {self.spec}, include no scatter sketch, so that it has no plan")
        return self.spec.plan

    def choice(self, n_samples: int, present: int) -> Choice:
        """Return in which codes a client sends means and sketch rows, and how many of these at most.

        Parameters
        ----------
        n_samples, present
            Its samples and classes, as it sends them: so both ends choose alike.
        """
        plan = self.spec.plan
        if plan is None:
            return Choice(self.rows, "float64", 0)
        chosen = plan.choose(n_samples, present, self.dim)
        return chosen if self.rows == "budget" else replace(chosen, means=self.rows)


def rows_of(spec: StatisticsSpec, rows: str) -> str:
    """Return in which type rows of client means travel, once it is sure that they can.

    Examples
    --------
    >>> rows_of(StatisticsSpec.of("client_means"), "float16"), rows_of(StatisticsSpec.of("scatter_sketch"), "int64")
    ('float16', 'budget')
    >>> rows_of(StatisticsSpec.of("scatter_sketch"), "float16")
    Traceback (most recent call last):
    fedmoments.errors.InputError: beside scatter sketches with a budget ('means') means travel in the code that it ...
    """
    if rows not in ROW_TYPES:
        raise InputError(f"rows must travel as one of {', '.join(ROW_TYPES)}, not {rows!r}")
    budget = spec.plan.budget if spec.plan else None
    if budget is None:
        if rows == "budget":
            raise InputError(
                "rows travel as 'budget' only beside scatter sketches that have one, but the moments are "
                f"{spec}: choose another type, or a sketch plan with a budget"
            )
        return rows
    if rows not in ("int64", "budget"):
        raise InputError(
            f"beside scatter sketches with a budget ('{budget}') means travel in the code that it leaves them, but "
            f"{rows!r} was requested: leave rows out, or plan sketches by rank"
        )
    if spec.means_per_client > 1:
        raise InputError(
            f"a budget ('{budget}') counts one mean a class, but means_per_client={spec.means_per_client} was asked "
            "for: agree on one mean, or plan sketches by rank"
        )
    return "budget"
