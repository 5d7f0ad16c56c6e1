"""FedDyn (Acar et al., 2021, arXiv:2111.04263): a penalty that moves until clients agree on one solution.

A client of the round minimises L_k(w) − ⟨c_k, w⟩ + ½α‖w − w₀‖² and keeps c_k ← c_k − α·(w_k − w₀) (see
:mod:`fedmoments.tuning.local_rules`): where it has found the minimum, c_k is the gradient of L_k at w_k. With
p_k = n_k/Σ_j n_j over *all* clients, and S those of the round, the server sets

    s ← s + Σ_{k∈S} p_k·(w_k − w₀),    w ← Σ_{k∈S} (n_k/Σ_{j∈S} n_j)·w_k + s.

**Law** −α·s = Σ_k p_k·c_k after every round, whoever took part. **Law** where nothing moves any more, Σ_k p_k·∇L_k = 0:
that is the solution of pooled data, whatever the clients' skew. With α = 0 nobody remembers anything, s stays 0, and
the rounds are FedAvg's; for a small α they are not, since s does not depend on α.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from fedmoments.errors import InputError
from fedmoments.settings.optimisers import Optimiser
from fedmoments.settings.plan import TuningPlan
from fedmoments.tuning.engine import AVERAGED, Arrays, Update
from fedmoments.tuning.optimisers.strategies import ServerOptimiser, require_updates, weighted_mean

__all__ = ["FedDyn"]


class FedDyn(ServerOptimiser):
    """The server of FedDyn.

    Parameters
    ----------
    plan
        Has α; a learning rate of the server other than 1 is refused, since the algorithm has none.
    samples
        n_k of every client.

    Examples
    --------
    >>> optimiser = FedDyn(TuningPlan(optimiser="feddyn"), {"a": 3, "b": 1})
    >>> now, one = {"w": np.zeros(1)}, {"w": np.ones(1)}
    >>> optimiser.step(1, now, [Update("a", 3, 1, 0.5, one)])
    {'w': array([1.75])}
    """

    name = "feddyn"

    def __init__(self, plan: TuningPlan, samples: Mapping[str, int]) -> None:
        if plan.server_step != 1.0:
            raise InputError(
                f"feddyn has no learning rate of the server, but server_lr is {plan.server_step:g}: leave it out"
            )
        self._alpha, self._samples = plan.alpha, dict(samples)
        self._total = sum(samples.values())
        self._moved: Arrays = {}

    def step(self, round_number: int, arrays: Arrays, updates: Sequence[Update]) -> Arrays:  # noqa: ARG002
        require_updates(arrays, updates)
        mean = weighted_mean(arrays, updates)
        if not self._alpha:
            return mean
        self._require_announced(updates)
        return {
            name: mean[name] if name.startswith(AVERAGED) else self._stepped(name, array, mean[name], updates)
            for name, array in arrays.items()
        }

    def _stepped(self, name: str, array: np.ndarray, mean: np.ndarray, updates: Sequence[Update]) -> np.ndarray:
        moved = self._moved.setdefault(name, np.zeros(array.shape, np.float64))
        for update in updates:
            moved += update.samples / self._total * (np.asarray(update.arrays[name], np.float64) - array)
        return np.asarray(mean + moved, array.dtype)

    def _require_announced(self, updates: Sequence[Update]) -> None:
        for update in updates:
            if self._samples.get(update.client) != update.samples:
                announced = self._samples.get(update.client, "none")
                raise InputError(
                    f"client {update.client} trained on {update.samples} samples, but {announced} were announced: its "
                    "share of the penalty would be wrong"
                )

    def state(self) -> Arrays:
        return dict(self._moved)

    def restore(self, state: Arrays) -> None:
        self._moved = {name: array.astype(np.float64) for name, array in state.items()}


OPTIMISERS = (Optimiser("feddyn", FedDyn, local="feddyn"),)
