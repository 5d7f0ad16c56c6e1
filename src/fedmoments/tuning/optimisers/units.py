"""Parameters in their own units: what makes the numbers of an optimiser independent of the size of features."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from fedmoments.tuning.engine import AVERAGED, Arrays, Update
from fedmoments.tuning.optimisers.strategies import ServerOptimiser

__all__ = ["InUnits"]


class InUnits(ServerOptimiser):
    """An optimiser of the server that works on parameters divided by their units.

    Parameters
    ----------
    inner
        What merges.
    units
        Name of an array -> its unit; others have 1.

    Examples
    --------
    >>> from fedmoments.settings.plan import TuningPlan
    >>> from fedmoments.tuning.optimisers.yogi import FedYogi
    >>> inner = FedYogi(TuningPlan(optimiser="fedyogi", server_lr=1.0, beta_1=0.0, beta_2=0.0, tau=1e-9))
    >>> now, sent = {"w": np.zeros(1)}, [Update("a", 3, 1, 0.5, {"w": np.ones(1)})]
    >>> InUnits(inner, {"w": 50.0}).step(1, now, sent)["w"].round(3)  # one step of the size of a unit
    array([50.])
    """

    def __init__(self, inner: ServerOptimiser, units: Mapping[str, float]) -> None:
        self.name, self._inner, self._units = inner.name, inner, dict(units)

    def control(self, arrays: Arrays) -> Arrays | None:
        return self._inner.control(arrays)

    def informed(self, arrays: Arrays, updates: Sequence[Update]) -> Arrays:
        return self._inner.informed(arrays, updates)

    def step(self, round_number: int, arrays: Arrays, updates: Sequence[Update]) -> Arrays:
        sent = [replace(update, arrays=self._per_unit(update.arrays)) for update in updates]
        merged = self._inner.step(round_number, self._per_unit(arrays), sent)
        return {name: (array * self._unit(name)).astype(arrays[name].dtype) for name, array in merged.items()}

    def _per_unit(self, arrays: Arrays) -> Arrays:
        return {name: np.asarray(array, np.float64) / self._unit(name) for name, array in arrays.items()}

    def _unit(self, name: str) -> float:
        return 1.0 if name.startswith(AVERAGED) else self._units.get(name, 1.0)

    def state(self) -> Arrays:
        return self._inner.state()

    def restore(self, state: Arrays) -> None:
        self._inner.restore(state)
