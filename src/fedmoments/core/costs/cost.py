"""The result of pricing a method: numbers and bytes, up and down, in total and per upload.

Checks of what a caller of the cost formulas passed in; each failure is one full sentence.
"""

import math
import operator
from dataclasses import dataclass
from typing import SupportsIndex

from fedmoments.errors import InputError

__all__ = [
    "Cost",
    "check_not_negative",
    "check_positive",
    "check_sampled",
    "check_share",
    "check_whole",
    "kibibytes",
    "megabytes",
]


def check_whole(name: str, value: SupportsIndex, *, least: int = 1) -> int:
    """Return a whole number of at least `least`, or say what arrived instead.

    Examples
    --------
    >>> check_whole("clients", 100)
    100
    >>> check_whole("clients", 0)
    Traceback (most recent call last):
    ...
    fedmoments.errors.InputError: clients must be a whole number of at least 1, but is 0.
    """
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or number < least:
        raise InputError(f"{name} must be a whole number of at least {least}, but is {value!r}.")
    return number


def check_positive(name: str, value: float) -> float:
    """Return a finite number above zero, or say what arrived instead.

    Examples
    --------
    >>> check_positive("bytes_per_number", 2)
    2
    """
    if not (math.isfinite(value) and value > 0):
        raise InputError(f"{name} must be a finite number above zero, but is {value!r}.")
    return value


def check_not_negative(name: str, value: float) -> float:
    """Return a finite number of zero or more, or say what arrived instead.

    Examples
    --------
    >>> check_not_negative("encoder_flops", 332.9e6)
    332900000.0
    """
    if not (math.isfinite(value) and value >= 0):
        raise InputError(f"{name} must be a finite number of zero or more, but is {value!r}.")
    return value


def check_sampled(clients: SupportsIndex, sampled: SupportsIndex) -> tuple[int, int]:
    """Return the numbers of clients and of clients sampled a round, or say why they do not fit together.

    Examples
    --------
    >>> check_sampled(100, 10)
    (100, 10)
    """
    known, drawn = check_whole("clients", clients), check_whole("sampled", sampled)
    if drawn > known:
        raise InputError(
            f"sampled must be at most the number of clients, {known}, because a round draws distinct clients, "
            f"but is {drawn}."
        )
    return known, drawn


def check_share(share: float) -> float:
    """Return a share of clients in (0, 1], or say what arrived instead.

    Examples
    --------
    >>> check_share(0.25)
    0.25
    """
    if not 0 < share <= 1:
        raise InputError(
            f"share must lie above 0 and be at most 1 (0.25 is a quarter of the clients), but is {share!r}."
        )
    return share


def megabytes(size: float) -> float:
    """Bytes to MB, 10⁶ bytes: the unit of Fed3R's and FedCOF's tables.

    Examples
    --------
    >>> megabytes(279_500_000)
    279.5
    """
    return size / 1e6


def kibibytes(size: float) -> float:
    """Bytes to KiB, 1024 bytes: the unit of GH-OFL's tables, printed there as KB.

    Examples
    --------
    >>> kibibytes(2064)
    2.015625
    """
    return size / 1024


@dataclass(frozen=True)
class Cost:
    """What a method sends, over all clients and rounds.

    Parameters
    ----------
    method
        Name of the method; ``a+b`` for the sum of two.
    uploads
        How many times a client uploaded: clients of a one-shot method, sampled clients × rounds of an iterative one.
    up_floats, down_floats
        Numbers sent from all clients to the server and back, counts excluded.
    counts
        Whole numbers n_kc sent up beside the floats.
    bytes_per_number
        4 for FP32, 2 for half precision.
    coded, coded_bytes
        How many of the floats sent up travel in a code of their own (scatter sketches, and means within a budget), and
        the bytes of those.

    Examples
    --------
    >>> cost = Cost("fedcof", uploads=100, up_floats=2870 * 512, down_floats=0, counts=2870)
    >>> cost.up_bytes, cost.up_bytes_per_client
    (5877760, 58777.6)
    >>> print(cost)
    fedcof: up 5.9 MB, down 0 B; 100 uploads of 58.8 kB, downloads of 0 B; 2,870 counts not included
    """

    method: str
    uploads: int
    up_floats: int
    down_floats: int
    counts: int = 0
    bytes_per_number: float = 4
    coded: int = 0
    coded_bytes: float = 0

    def __post_init__(self) -> None:
        check_whole("uploads", self.uploads)
        check_not_negative("up_floats", self.up_floats)
        check_not_negative("down_floats", self.down_floats)
        check_not_negative("counts", self.counts)
        check_positive("bytes_per_number", self.bytes_per_number)
        check_not_negative("coded_bytes", self.coded_bytes)
        if not 0 <= self.coded <= self.up_floats:
            raise InputError(f"coded must be some of the {self.up_floats} floats sent up, but is {self.coded}.")

    @property
    def up_numbers(self) -> int:
        """Floats and counts sent up, as GH-OFL's formulas count them."""
        return self.up_floats + self.counts

    @property
    def up_bytes(self) -> float:
        """Bytes of the floats sent up by all clients."""
        return (self.up_floats - self.coded) * self.bytes_per_number + self.coded_bytes

    @property
    def up_bytes_with_counts(self) -> float:
        """Bytes sent up by all clients if a count is as wide as a float."""
        return self.up_bytes + self.counts * self.bytes_per_number

    @property
    def down_bytes(self) -> float:
        """Bytes sent down to all clients."""
        return self.down_floats * self.bytes_per_number

    @property
    def total_bytes(self) -> float:
        """Bytes of the floats in both directions."""
        return self.up_bytes + self.down_bytes

    @property
    def up_floats_per_client(self) -> float:
        """Floats of one upload (of a client, in a round), averaged where clients differ."""
        return self.up_floats / self.uploads

    @property
    def down_floats_per_client(self) -> float:
        """Floats that come down for one upload."""
        return self.down_floats / self.uploads

    @property
    def up_bytes_per_client(self) -> float:
        """Bytes of the floats of one upload, averaged where clients differ."""
        return self.up_bytes / self.uploads

    @property
    def down_bytes_per_client(self) -> float:
        """Bytes that come down for one upload."""
        return self.down_bytes / self.uploads

    def __add__(self, other: "Cost") -> "Cost":
        """Return the cost of one method and then the other: a head, then fine-tuning.

        Examples
        --------
        >>> head = Cost("fedcof", uploads=100, up_floats=51_200, down_floats=0, counts=100)
        >>> (head + Cost("fedavg-lp", uploads=300, up_floats=900, down_floats=900)).up_floats
        52100
        """
        if self.bytes_per_number != other.bytes_per_number:
            raise InputError(
                f"costs in different number widths cannot be added: {self.method} has {self.bytes_per_number} bytes "
                f"per number, {other.method} has {other.bytes_per_number}; price both with the same width."
            )
        return Cost(
            f"{self.method}+{other.method}",
            self.uploads + other.uploads,
            self.up_floats + other.up_floats,
            self.down_floats + other.down_floats,
            self.counts + other.counts,
            self.bytes_per_number,
            self.coded + other.coded,
            self.coded_bytes + other.coded_bytes,
        )

    def __str__(self) -> str:
        counts = f"; {self.counts:,} counts not included" if self.counts else ""
        return (
            f"{self.method}: up {_readable(self.up_bytes)}, down {_readable(self.down_bytes)}; "
            f"{self.uploads:,} uploads of {_readable(self.up_bytes_per_client)}, "
            f"downloads of {_readable(self.down_bytes_per_client)}{counts}"
        )


def _readable(size: float) -> str:
    """Bytes in the largest unit that leaves at least one whole, with one decimal."""
    for power, unit in ((4, "TB"), (3, "GB"), (2, "MB"), (1, "kB")):
        if size >= 1000**power:
            return f"{size / 1000**power:,.1f} {unit}"
    return f"{size:.0f} B"
