"""Results as a figure of matplotlib, for notebooks: a line for each head, means over seeds with their deviation."""

from collections.abc import Sequence
from typing import Any

from fedmoments.core.observations.observation import Observation, is_share, sorted_values
from fedmoments.errors import InputError
from fedmoments.extras import require

__all__ = ["plot"]


def plot(observations: Sequence[Observation], x: str, axes: Any) -> Any:
    """Draw observations of one quantity over one key of their place: see :meth:`Results.plot`."""
    here = [each for each in observations if x in each.where and each.mean is not None]
    if not here:
        known = sorted({key for each in observations for key in each.where})
        raise InputError(f"nothing was measured over '{x}'; there is {', '.join(known) or 'nothing'}")
    if axes is None:
        axes = require("matplotlib.pyplot", "A figure of results", "plot").subplots()[1]
    places = list(sorted_values(here, x))
    percent = 100 if is_share({"quantity": here[0].quantity}) else 1
    for name in dict.fromkeys(each.where.get("head", "") for each in here):
        line = sorted(
            (places.index(each.where[x]), percent * (each.mean or 0.0), percent * (each.spread or 0.0))
            for each in here
            if each.where.get("head", "") == name
        )
        at, means, spreads = zip(*line, strict=True)
        axes.errorbar(at, means, yerr=spreads, marker="o", capsize=3, label=str(name))
    axes.set_xticks(range(len(places)), [str(place) for place in places])
    axes.set(xlabel=x, ylabel=f"{here[0].quantity}{' (%)' if percent == 100 else ''}")
    if x != "head":
        axes.legend()
    return axes
