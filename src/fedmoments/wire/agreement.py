"""What both ends of the wire agreed on before the first byte: everything a contribution is checked against."""

from dataclasses import dataclass

from fedmoments.errors import InputError
from fedmoments.statistics import FixedPoint, StatisticsSpec

__all__ = ["ROW_TYPES", "Agreement"]

#: Types in which rows of client means may travel: fixed-point sums, or means in half precision.
ROW_TYPES = ("int64", "float16", "bfloat16")
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
        Which moments.
    fixed_point
        Their form.
    rows
        Type in which rows of client means travel (`ROW_TYPES`).
    max_bytes
        Cap on the size of one contribution, checked before anything is parsed.
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

    def __post_init__(self) -> None:
        if self.rows not in ROW_TYPES:
            raise InputError(f"rows must travel as one of {', '.join(ROW_TYPES)}, not {self.rows!r}")
        if self.n_classes < 1 or self.dim < 1:
            raise InputError(f"n_classes and dim must be 1 or more, not {self.n_classes} and {self.dim}")
        if not 1024 <= self.max_bytes <= MOST_BYTES:
            raise InputError(f"max_bytes must be from 1024 to {MOST_BYTES}, not {self.max_bytes}")
