"""MimeLite (Karimireddy et al., 2021, arXiv:2008.03606): clients step with the server's momentum, and leave it.

The server sends m beside w. Every step of a client is (1−β)·g + β·m; it sends its parameters, and the gradient of all
its samples at the w that came. With weights n_k/Σ_{j∈S} n_j over the clients S of a round, the server sets

    w ← w + η·Σ (w_k − w),    m ← β·m + (1−β)·Σ ∇L_k(w),

so that momentum is that of pooled data, and not of whoever trained last. **Law** with β = 0 these are FedAvg's rounds,
to the last bit. (Mime also corrects every step by gradients at w, which needs two exchanges in a round, and is not
here.)
"""

from collections.abc import Mapping, Sequence

import numpy as np

from fedmoments.errors import InputError
from fedmoments.settings.optimisers import Optimiser
from fedmoments.settings.plan import TuningPlan
from fedmoments.tuning.engine import AVERAGED, Arrays, Update
from fedmoments.tuning.optimisers.strategies import ServerOptimiser, require_updates, weighted_mean

__all__ = ["MimeLite"]


class MimeLite(ServerOptimiser):
    """The server of MimeLite.

    Parameters
    ----------
    plan
        Has β (``server_momentum``) and η (``server_lr``).
    samples
        Not asked for: clients are weighted by what they trained on.

    Examples
    --------
    >>> optimiser = MimeLite(TuningPlan(optimiser="mimelite", server_momentum=0.75))
    >>> now, one = {"w": np.zeros(1)}, {"w": np.ones(1)}
    >>> optimiser.step(1, now, [Update("a", 3, 1, 0.5, one, control=one)]), optimiser.control(now)
    ({'w': array([1.])}, {'w': array([0.25])})
    """

    name = "mimelite"

    def __init__(self, plan: TuningPlan, samples: Mapping[str, int] | None = None) -> None:  # noqa: ARG002
        self._step, self._beta = plan.server_step, plan.server_momentum
        self._momentum: Arrays = {}

    def control(self, arrays: Arrays) -> Arrays:
        """Return m, in the types of the parameters that are optimised."""
        names = [name for name in arrays if not name.startswith(AVERAGED)]
        if not self._momentum:
            self._momentum = {name: np.zeros(arrays[name].shape, np.float64) for name in names}
        return {name: self._momentum[name].astype(arrays[name].dtype) for name in names}

    def step(self, round_number: int, arrays: Arrays, updates: Sequence[Update]) -> Arrays:  # noqa: ARG002
        require_updates(arrays, updates)
        known = self.control(arrays)
        for update in updates:
            if update.control is None or set(update.control) != set(known):
                raise InputError(f"client {update.client} sent no gradient of its samples, which MimeLite needs")
        total = sum(update.samples for update in updates)
        mean = weighted_mean(arrays, updates)
        for name in known:
            self._momentum[name] *= self._beta
            for update in updates:
                share = (1.0 - self._beta) * update.samples / total
                self._momentum[name] += share * (update.control or {})[name]
        return {
            name: mean[name]
            if name.startswith(AVERAGED) or self._step == 1.0
            else (array + self._step * (mean[name] - array)).astype(array.dtype)
            for name, array in arrays.items()
        }

    def state(self) -> Arrays:
        return dict(self._momentum)

    def restore(self, state: Arrays) -> None:
        self._momentum = {name: array.astype(np.float64) for name, array in state.items()}


OPTIMISERS = (Optimiser("mimelite", MimeLite, controlled=True, local="mimelite"),)
