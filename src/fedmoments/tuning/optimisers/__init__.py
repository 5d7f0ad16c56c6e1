"""How a server merges what clients send: one file an optimiser, all behind :class:`ServerOptimiser`.

FedAvg, FedAvgM, FedAdam and FedProx are Flower's own strategies; FedYogi, FedDyn, SCAFFOLD, MimeLite and Mime are
written here. A file declares ``OPTIMISERS``, a tuple of :class:`fedmoments.settings.optimisers.Optimiser`.
"""

from collections.abc import Mapping

from fedmoments.settings.optimisers import OPTIMISERS
from fedmoments.settings.plan import TuningPlan
from fedmoments.tuning.optimisers.scaffold import Scaffold
from fedmoments.tuning.optimisers.strategies import FlowerStrategy, ServerOptimiser
from fedmoments.tuning.optimisers.units import InUnits

__all__ = ["FlowerStrategy", "Scaffold", "ServerOptimiser", "make_optimiser"]


def make_optimiser(
    plan: TuningPlan, samples: Mapping[str, int], units: Mapping[str, float] | None = None
) -> ServerOptimiser:
    """Return the optimiser of a plan, at its beginning.

    Parameters
    ----------
    plan
        Its name and numbers.
    samples
        n_k of every client, drawn or not.
    units
        Of the arrays, by name: its numbers are meant in these; by default parameters are taken as they are.

    Examples
    --------
    >>> make_optimiser(TuningPlan(optimiser="scaffold"), {"a": 3, "b": 1}).name
    'scaffold'
    """
    optimiser: ServerOptimiser = OPTIMISERS.find(plan.optimiser).make(plan, samples)
    return InUnits(optimiser, units) if units else optimiser
