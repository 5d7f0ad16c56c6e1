"""SCAFFOLD (Karimireddy et al., 2020, arXiv:1910.06378): control variates against the drift of clients.

The server keeps c, each client c_k, all 0 at first. Clients correct their gradients by c − c_k and send, beside their
parameters, the change Δc_k of their own (see :mod:`fedmoments.tuning.engine`). With p_k = n_k/Σ_j n_j over *all*
clients, and S those of the round, the server sets

    w ← w + η·Σ_{k∈S} (n_k/Σ_{j∈S} n_j)·(w_k − w),    c ← c + Σ_{k∈S} p_k·Δc_k.

**Law** c = Σ_k p_k·c_k after every round, whoever took part: clients that were not drawn keep their c_k, and their
share of c stays. With clients of one size this is the paper's |S|/K times the mean of Δc_k.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from fedmoments.errors import InputError
from fedmoments.settings.optimisers import Optimiser
from fedmoments.settings.plan import TuningPlan
from fedmoments.tuning.engine import AVERAGED, Arrays, Update
from fedmoments.tuning.optimisers.strategies import ServerOptimiser, require_updates, weighted_mean

__all__ = ["Scaffold"]


class Scaffold(ServerOptimiser):
    """The server of SCAFFOLD.

    Parameters
    ----------
    plan
        Has the server's learning rate η.
    samples
        n_k of every client.

    Examples
    --------
    >>> optimiser = Scaffold(TuningPlan(optimiser="scaffold"), {"a": 3, "b": 1})
    >>> now, one = {"w": np.zeros(1)}, {"w": np.ones(1)}
    >>> optimiser.step(1, now, [Update("a", 3, 1, 0.5, one, control=one)])
    {'w': array([1.])}
    >>> optimiser.control(now)
    {'w': array([0.75])}
    """

    name = "scaffold"

    def __init__(self, plan: TuningPlan, samples: Mapping[str, int]) -> None:
        self._step, self._samples = plan.server_step, dict(samples)
        self._total = sum(samples.values())
        self._control: Arrays = {}

    def control(self, arrays: Arrays) -> Arrays:
        """Return c, in the types of the parameters that are optimised."""
        names = [name for name in arrays if not name.startswith(AVERAGED)]
        if not self._control:
            self._control = {name: np.zeros(arrays[name].shape, np.float64) for name in names}
        return {name: self._control[name].astype(arrays[name].dtype) for name in names}

    def step(self, round_number: int, arrays: Arrays, updates: Sequence[Update]) -> Arrays:  # noqa: ARG002
        require_updates(arrays, updates)
        self._require_controls(arrays, updates)
        mean = weighted_mean(arrays, updates)
        for update in updates:
            for name, change in (update.control or {}).items():
                self._control[name] += update.samples / self._total * change
        return {
            name: mean[name]
            if name.startswith(AVERAGED) or self._step == 1.0
            else (array + self._step * (mean[name] - array)).astype(array.dtype)
            for name, array in arrays.items()
        }

    def _require_controls(self, arrays: Arrays, updates: Sequence[Update]) -> None:
        """Refuse updates without a change of every control variate, or of other sample counts than announced."""
        known = self.control(arrays)
        for update in updates:
            if update.control is None or set(update.control) != set(known):
                raise InputError(f"client {update.client} sent no change of its control variates, which SCAFFOLD needs")
            if self._samples.get(update.client) != update.samples:
                raise InputError(
                    f"client {update.client} trained on {update.samples} samples, but "
                    f"{self._samples.get(update.client, 'none')} were announced: its share of the control variates "
                    "would be wrong"
                )

    def state(self) -> Arrays:
        return {f"control/{name}": array for name, array in self._control.items()}

    def restore(self, state: Arrays) -> None:
        self._control = {name.removeprefix("control/"): array.astype(np.float64) for name, array in state.items()}


OPTIMISERS = (Optimiser("scaffold", Scaffold, controlled=True),)
