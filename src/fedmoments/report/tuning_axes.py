"""Horizontal axes of tuning's charts: rounds, bytes and FLOPs; and optimisers by their names."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fedmoments.report.axes import Axis, linear_axis, log_axis, sparse
from fedmoments.report.formats import THIN, bytes_, flops_
from fedmoments.report.tuning_reading import OneShot, Spot

__all__ = ["AXES", "Against", "horizontal", "optimiser_name"]

#: Names as papers write them.
OPTIMISERS = {
    "fedavg": "FedAvg",
    "fedavgm": "FedAvgM",
    "fedadam": "FedAdam",
    "fedprox": "FedProx",
    "scaffold": "SCAFFOLD",
}


@dataclass(frozen=True)
class Against:
    """A horizontal axis: what is on it, in words, and where points and heads lie on it."""

    key: str
    title: str
    axis_title: str
    words: Callable[[float], str]
    spot: Callable[[Spot], float | None]
    head: Callable[[OneShot], float | None]
    log: bool = True


#: What accuracy is drawn against.
AXES = {
    "rounds": Against(
        "rounds",
        "Rounds",
        "round",
        lambda v: f"{v:,.0f}",
        lambda spot: float(spot.round),
        lambda _: 0.0,
        log=False,
    ),
    "bytes": Against(
        "bytes",
        "Bytes",
        "bytes up and down (logarithmic)",
        bytes_,
        lambda spot: spot.bytes or None,
        lambda head: head.bytes or None,
    ),
    "flops": Against(
        "flops",
        "Compute",
        "FLOPs (logarithmic)",
        flops_,
        lambda spot: spot.flops or None,
        lambda head: head.flops or None,
    ),
}


def optimiser_name(name: str) -> str:
    """Return an optimiser's name as papers write it.

    Examples
    --------
    >>> optimiser_name("fedadam"), optimiser_name("other")
    ('FedAdam', 'other')
    """
    return OPTIMISERS.get(name, name)


def horizontal(against: Against, places: Sequence[float], start: float, end: float) -> Axis:
    """Return the axis that holds all places, from the pixel where it starts to that where it ends."""
    if not against.log:
        last = max(*places, 1.0)
        axis = linear_axis([0.0, last], start, end, against.words, bounds=(0.0, last))
        whole = tuple(tick for tick in axis.ticks if tick[0] == int(tick[0]))
        return Axis(axis.low, axis.high, whole, start, end)
    return sparse(log_axis(places, start, end, lambda v: against.words(v).replace(f".0{THIN}", THIN)))
