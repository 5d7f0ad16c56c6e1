"""Charts of tuning: accuracy against rounds, bytes or FLOPs, one line a start, with one-shot heads as rings.

A line is the mean over seeds, the band about it reaches from the lowest seed to the highest. A start has the same
colour in all charts; the random one, which others are compared with, is grey. A random start begins near chance: the
vertical axis begins where the other lines are, and the grey one enters from below.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain

from fedmoments.pages.chart import Chart, Point, Scale, Series, Style, Symbol, Trace, bytes_scale, share_scale
from fedmoments.pages.formats import METHODS, bytes_, flops_, percent
from fedmoments.pages.tuning_reading import RANDOM, Figure, OneShot, Run, Spot, Tuning

__all__ = ["AXES", "Against", "accuracy_range", "optimiser_name", "tuning_chart"]

#: Share of the vertical axis below the lowest line of a start that is not random.
ROOM_BELOW = 0.3


@dataclass(frozen=True)
class Against:
    """What accuracy is drawn against: its name, its scale, and where points of runs and one-shot heads lie on it."""

    title: str
    scale: Callable[[Sequence[float]], Scale]
    spot: Callable[[Spot], float | None]
    head: Callable[[OneShot], float | None]


def _rounds(places: Sequence[float]) -> Scale:
    last = max(*places, 1.0)
    return Scale("round", words="{:,.0f}".format, values=(0.0, last), bounds=(0.0, last), whole=True)


AXES = {
    "rounds": Against("rounds", _rounds, lambda spot: float(spot.round), lambda _: 0.0),
    "bytes": Against(
        "bytes",
        lambda _: bytes_scale("bytes up and down (logarithmic)"),
        lambda spot: spot.bytes or None,
        lambda head: head.bytes or None,
    ),
    "flops": Against(
        "compute",
        lambda _: bytes_scale("FLOPs (logarithmic)", unit=flops_),
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
    return METHODS.get(name, name)


def accuracy_range(tuning: Tuning) -> tuple[float, float] | None:
    """Return the lowest and highest accuracy that charts show, or None when none is known.

    All of every line is shown, but of random starts only the upper part.
    """
    heads = [head.accuracy for head in tuning.heads]
    every = [*heads, *chain.from_iterable(map(_figures, tuning.runs))]
    if not every:
        return None
    high = max(figure.high for figure in every)
    low = min((figure.low for figure in (*heads, *chain.from_iterable(map(_seen, tuning.runs)))), default=high)
    if any(run.start == RANDOM for run in tuning.runs):
        low -= ROOM_BELOW * (high - low)
    return max(low, 0.0), min(high, 1.0)


def _seen(run: Run) -> list[Figure]:
    """Return the part of a line that must be seen: all of it, but of a random start its last point and its end."""
    figures = _figures(run)
    if run.start != RANDOM:
        return figures
    return [*figures[-1:], *([run.end] if run.end else [])]


def _figures(run: Run) -> list[Figure]:
    return [figure for _, figure in run.trail if figure]


def tuning_chart(
    tuning: Tuning, optimiser: str, against: Against, *, bounds: tuple[float, float], height: float = 276.0
) -> Chart | None:
    """Return one chart, or None when no run has anything on its horizontal axis.

    Parameters
    ----------
    tuning
        All runs: a start has the same colour whatever is drawn.
    optimiser
        Whose runs are drawn.
    against
        The horizontal axis.
    bounds
        Lowest and highest accuracy, so that neighbouring charts share the vertical axis.
    height
        Of the plot in pixels.
    """
    runs = tuning.under(optimiser)
    lines = tuple(line for run in runs if (line := _line(tuning, run, against)).points)
    if not lines:
        return None
    rings = tuple(_ring(tuning, head, at) for head in tuning.heads if (at := against.head(head)) is not None)
    ends = "; ".join(f"from {run.start} to {percent(run.end.mean)}" for run in runs if run.end)
    return Chart(
        f"Accuracy against {against.title}, {optimiser_name(optimiser)}: {ends}",
        against.scale([point.x for line in lines for point in line.points]),
        share_scale(values=bounds, about=9),
        (*lines, Series("", rings, line=False, spread="none")),
        traces=_level(tuning.target(optimiser), bounds),
        height=height,
    )


def _level(target: float | None, bounds: tuple[float, float]) -> tuple[Trace, ...]:
    """Return the line where the random start ends, if that is in the chart."""
    if target is None or not bounds[0] <= target <= bounds[1]:
        return ()
    return (Trace(((-math.inf, target), (math.inf, target)), "target"),)


def _line(tuning: Tuning, run: Run, against: Against) -> Series:
    points = [
        Point(x, figure.mean, figure.low, figure.high, _told(run, spot, figure))
        for spot, figure in run.trail
        if figure is not None and (x := against.spot(spot)) is not None
    ]
    return Series(run.start, tuple(points), _style(tuning, run.start), spread="band")


def _told(run: Run, spot: Spot, figure: Figure) -> str:
    told = f"{run.start}, round {spot.round}: {percent(figure.mean)}"
    if figure.seeds > 1:
        told += f" ({figure.low * 100:.1f} to {figure.high * 100:.1f} over {figure.seeds} seeds)"
    return told + _costs(spot.bytes, spot.flops)


def _costs(size: float | None, flops: float | None) -> str:
    return "".join(f", {words}" for words in (bytes_(size) if size else "", flops_(flops) if flops else "") if words)


def _style(tuning: Tuning, start: str) -> Style:
    """Return a start's style, which is the same in all charts."""
    if start == RANDOM:
        return Style.numbered(0, baseline=True)
    return Style.numbered([each for each in tuning.starts if each != RANDOM].index(start))


def _ring(tuning: Tuning, head: OneShot, at: float) -> Point:
    """Return a ring for a one-shot head, in the colour of the start that it is, or else with its name."""
    started = head.name in tuning.starts
    accuracy = head.accuracy.mean
    return Point(
        at,
        accuracy,
        tip=f"{head.name}, one shot: {percent(accuracy)}{_costs(head.bytes, head.flops)}",
        label="" if started else head.name,
        weight=accuracy,
        symbol=Symbol(size=6.0, dot=True),
        kind=f"shot s{_style(tuning, head.name).colour}" if started else "shot quiet",
        head=head.name,
        focus=True,
    )
