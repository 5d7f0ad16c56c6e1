"""Charts of tuning: accuracy against rounds, bytes or FLOPs, one line a start, with one-shot heads as rings.

A line is the mean over seeds, the band about it reaches from the lowest seed to the highest. A start has the same
colour in all charts; the random one, which others are compared with, is grey. A random start begins near chance: the
vertical axis begins where the other lines are, and the grey one enters from below.

One chart of tuning as an SVG of its own, with the page's colours, light or dark as the viewer's system asks.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from fedmoments.core.observations import Observation
from fedmoments.core.observations.tuning import Tuning, TuningRun, Waypoint
from fedmoments.errors import InputError, UnknownNameError
from fedmoments.pages.chart import Chart, Point, Scale, Series, Style, Symbol, Trace, bytes_scale, share_scale
from fedmoments.pages.figure import figure_file
from fedmoments.pages.formats import METHODS, bytes_, flops_, percent
from fedmoments.pages.plot import fitted
from fedmoments.settings.plan import RANDOM

__all__ = ["AXES", "Against", "accuracy_range", "optimiser_name", "tuning_chart", "tuning_figure"]


#: Share of the vertical axis below the lowest line of a start that is not random.
ROOM_BELOW = 0.3


#: Accuracy, bytes and FLOPs of a head that was not tuned.
OneShot = Mapping[str, Observation]


@dataclass(frozen=True)
class Against:
    """What accuracy is drawn against: its name, its scale, and where points of runs and one-shot heads lie on it."""

    title: str
    scale: Callable[[Sequence[float]], Scale]
    waypoint: Callable[[Waypoint], float | None]
    head: Callable[[OneShot], float | None]


def _rounds(places: Sequence[float]) -> Scale:
    last = max(*places, 1.0)
    return Scale("round", words="{:,.0f}".format, values=(0.0, last), bounds=(0.0, last), whole=True)


def _above_zero(cost: float | None) -> float | None:
    """Return a cost that a logarithmic axis has a place for."""
    return cost if cost and cost > 0 else None


AXES = {
    "rounds": Against("rounds", _rounds, lambda waypoint: float(waypoint.round), lambda _: 0.0),
    "bytes": Against(
        "bytes",
        lambda _: bytes_scale("bytes up and down (logarithmic)"),
        lambda waypoint: _above_zero(waypoint.bytes),
        lambda head: _above_zero(head["bytes"].mean),
    ),
    "flops": Against(
        "compute",
        lambda _: bytes_scale("FLOPs (logarithmic)", unit=flops_),
        lambda waypoint: _above_zero(waypoint.flops),
        lambda head: _above_zero(head["flops"].mean),
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
    heads = [head["accuracy"] for head in tuning.one_shots.values()]
    every = [*heads, *chain.from_iterable(map(_accuracies, tuning.runs))]
    if not every:
        return None
    high = max(accuracy.high for accuracy in every)
    low = min((accuracy.low for accuracy in (*heads, *chain.from_iterable(map(_shown, tuning.runs)))), default=high)
    if any(run.start == RANDOM for run in tuning.runs):
        low -= ROOM_BELOW * (high - low)
    return max(low, 0.0), min(high, 1.0)


def _shown(run: TuningRun) -> list[Observation]:
    """Return the part of a line that must be seen: all of it, but of a random start its last point and its end."""
    accuracies = _accuracies(run)
    if run.start != RANDOM:
        return accuracies
    return [*accuracies[-1:], *([run.end] if run.end.known else [])]


def _accuracies(run: TuningRun) -> list[Observation]:
    return [waypoint.accuracy for waypoint in run.trail if waypoint.accuracy.known]


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
    rings = tuple(
        _ring(tuning, name, head, at)
        for name, head in tuning.one_shots.items()
        if (at := against.head(head)) is not None
    )
    ends = "; ".join(f"from {run.start} to {percent(run.end.mean)}" for run in runs if run.end.known)
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


def _line(tuning: Tuning, run: TuningRun, against: Against) -> Series:
    points = [
        Point(x, accuracy.mean or 0.0, accuracy.low, accuracy.high, _tip(run, waypoint))
        for waypoint in run.trail
        if (accuracy := waypoint.accuracy).known and (x := against.waypoint(waypoint)) is not None
    ]
    return Series(run.start, tuple(points), _style(tuning, run.start), spread="band")


def _tip(run: TuningRun, waypoint: Waypoint) -> str:
    accuracy = waypoint.accuracy
    tip = f"{run.start}, round {waypoint.round}: {percent(accuracy.mean)}"
    if len(accuracy.known) > 1:
        tip += f" ({accuracy.low * 100:.1f} to {accuracy.high * 100:.1f} over {len(accuracy.known)} seeds)"
    return tip + _costs(waypoint.bytes, waypoint.flops)


def _costs(size: float | None, flops: float | None) -> str:
    return "".join(f", {words}" for words in (bytes_(size) if size else "", flops_(flops) if flops else "") if words)


def _style(tuning: Tuning, start: str) -> Style:
    """Return a start's style, which is the same in all charts."""
    if start == RANDOM:
        return Style.numbered(0, baseline=True)
    return Style.numbered([name for name in tuning.starts if name != RANDOM].index(start))


def _ring(tuning: Tuning, name: str, head: OneShot, at: float) -> Point:
    """Return a ring for a one-shot head, in the colour of the start that it is, or else with its name."""
    started = name in tuning.starts
    accuracy = head["accuracy"].mean or 0.0
    return Point(
        at,
        accuracy,
        tip=f"{name}, one shot: {percent(accuracy)}{_costs(head['bytes'].mean, head['flops'].mean)}",
        label="" if started else name,
        weight=accuracy,
        symbol=Symbol(size=6.0, dot=True),
        kind=f"shot s{_style(tuning, name).colour}" if started else "shot quiet",
        head=name,
        focus=True,
    )


def tuning_figure(
    tuning: Tuning,
    against: str = "rounds",
    optimiser: str | None = None,
    *,
    size: tuple[float, float] = (860.0, 350.0),
) -> str:
    """Return accuracy against rounds, bytes or FLOPs as an SVG file that needs nothing else.

    Parameters
    ----------
    tuning
        All runs: ``read_report("results.json").tuning``.
    against
        ``rounds``, ``bytes`` or ``flops``.
    optimiser
        Whose runs to draw; the first one by default.
    size
        Width and height of the chart in pixels, without the margin about it.

    Raises
    ------
    UnknownNameError
        When the axis is another one, or there is no run of that optimiser.
    InputError
        When there is nothing to draw: no accuracy, or no such cost.

    Examples
    --------
    >>> from fedmoments.core.observations.tuning import RoundPoint, TuningCurve
    >>> points = tuple(RoundPoint(t, 1 - 0.5**t, up=8 * t) for t in range(1, 5))
    >>> drawn = tuning_figure(Tuning(curves=(TuningCurve("fedcof", "fedavg", 0, points),)), "bytes")
    >>> drawn[:4], "fedcof, round 4" in drawn
    ('<svg', True)
    """
    if against not in AXES:
        raise UnknownNameError("axis", against, tuple(AXES))
    bounds = accuracy_range(tuning)
    if bounds is None or not tuning.runs:
        raise InputError("a figure of tuning needs curves with accuracies, but there are none: run it with tests")
    chosen = tuning.optimisers[0] if optimiser is None else optimiser
    if chosen not in tuning.optimisers:
        raise UnknownNameError("optimiser", chosen, tuning.optimisers)
    chart = tuning_chart(tuning, chosen, AXES[against], bounds=bounds)
    if chart is None:
        raise InputError(
            f"no run of {optimiser_name(chosen)} has both an accuracy and "
            f"{AXES[against].title} to draw it against; the axes are {', '.join(AXES)}"
        )
    return figure_file([fitted(chart, *size)], width=size[0])
