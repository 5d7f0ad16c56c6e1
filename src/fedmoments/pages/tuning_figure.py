"""One chart of tuning as an SVG of its own, with the page's colours, light or dark as the viewer's system asks."""

from fedmoments.core.observations.tuning import Tuning
from fedmoments.errors import InputError, UnknownNameError
from fedmoments.pages.figure import figure_file
from fedmoments.pages.plot import fitted
from fedmoments.pages.tuning_chart import AXES, accuracy_range, optimiser_name, tuning_chart

__all__ = ["tuning_figure"]


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
