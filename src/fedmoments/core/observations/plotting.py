"""Results as a figure of matplotlib, for notebooks: a line for each head, means over seeds with their deviation."""

from collections.abc import Sequence
from typing import Any

from fedmoments.core.observations.observation import Observation, is_share, sorted_values
from fedmoments.errors import InputError
from fedmoments.extras import require

__all__ = ["plot"]


def plot(observations: Sequence[Observation], x: str, axes: Any) -> Any:
    """Draw observations of one quantity over one key of their place: see :meth:`Results.plot`."""
    here = _over(observations, x)
    if axes is None:
        axes = require("matplotlib.pyplot", "A figure of results", "plot").subplots()[1]
    places = list(sorted_values(here, x))
    is_percent = is_share({"quantity": here[0].quantity})
    heads: dict[Any, list[Observation]] = {}
    for one in here:
        heads.setdefault(one.where.get("head", ""), []).append(one)
    for name, line in heads.items():
        _draw_line(axes, str(name), {places.index(one.where[x]): one for one in line}, 100 if is_percent else 1)
    axes.set_xticks(range(len(places)), [str(place) for place in places])
    axes.set(xlabel=x, ylabel=f"{here[0].quantity}{' (%)' if is_percent else ''}")
    if x != "head":
        axes.legend()
    return axes


def _draw_line(axes: Any, name: str, line: dict[int, Observation], unit: int) -> None:
    """Draw a head's means and deviations, multiplied by ``unit``, over the places of its observations."""
    at = sorted(line)
    means, spreads = ([unit * (getattr(line[place], what) or 0.0) for place in at] for what in ("mean", "spread"))
    axes.errorbar(at, means, yerr=spreads, marker="o", capsize=3, label=name)


def _over(observations: Sequence[Observation], x: str) -> list[Observation]:
    """Return what was measured at some value of a key."""
    here = [one for one in observations if x in one.where and one.mean is not None]
    if not here:
        known = sorted({key for one in observations for key in one.where})
        raise InputError(f"nothing was measured over '{x}'; there is {', '.join(known) or 'nothing'}")
    return here
