"""FedYogi (Reddi et al., 2021, arXiv:2003.00295): Adam's server step with squares that change by a bounded amount.

With Δ the mean of the clients' changes, weighted by n_k, and squares that begin at τ²,

    m ← β₁·m + (1−β₁)·Δ,    v ← v − (1−β₂)·Δ²·sign(v − Δ²),    w ← w + η·m/(√v + τ).

There is no correction of the first rounds, as in the paper. **Law** v never changes by more than (1−β₂)·Δ² in a round,
and never becomes negative.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from fedmoments.settings.optimisers import Optimiser
from fedmoments.settings.plan import TuningPlan
from fedmoments.tuning.engine import AVERAGED, Arrays, Update
from fedmoments.tuning.optimisers.strategies import ServerOptimiser, require_updates, weighted_mean

__all__ = ["FedYogi"]


class FedYogi(ServerOptimiser):
    """The server of FedYogi.

    Parameters
    ----------
    plan
        Has η, β₁, β₂ and τ.
    samples
        Not asked for: clients are weighted by what they trained on.

    Examples
    --------
    >>> optimiser = FedYogi(TuningPlan(optimiser="fedyogi", server_lr=1.0, beta_1=0.0, beta_2=0.0))
    >>> now, one = {"w": np.zeros(1)}, {"w": np.ones(1)}
    >>> optimiser.step(1, now, [Update("a", 3, 1, 0.5, one)])["w"].round(3)  # 1/(√(1 + τ²) + τ)
    array([0.999])
    """

    name = "fedyogi"

    def __init__(self, plan: TuningPlan, samples: Mapping[str, int] | None = None) -> None:  # noqa: ARG002
        self._plan = plan
        self._mean: Arrays = {}
        self._square: Arrays = {}

    def step(self, round_number: int, arrays: Arrays, updates: Sequence[Update]) -> Arrays:  # noqa: ARG002
        require_updates(arrays, updates)
        merged = weighted_mean(arrays, updates)
        return {
            name: merged[name] if name.startswith(AVERAGED) else self._stepped(name, array, merged[name])
            for name, array in arrays.items()
        }

    def _stepped(self, name: str, array: np.ndarray, merged: np.ndarray) -> np.ndarray:
        plan, change = self._plan, np.asarray(merged, np.float64) - array
        mean = self._mean.get(name, np.zeros(array.shape))
        square = self._square.get(name, np.full(array.shape, plan.tau**2))
        self._mean[name] = mean = plan.beta_1 * mean + (1.0 - plan.beta_1) * change
        self._square[name] = square = square - (1.0 - plan.beta_2) * change**2 * np.sign(square - change**2)
        return np.asarray(array + plan.server_step * mean / (np.sqrt(square) + plan.tau), array.dtype)

    def state(self) -> Arrays:
        kept = (("mean", self._mean), ("square", self._square))
        return {f"{kind}/{name}": array for kind, arrays in kept for name, array in arrays.items()}

    def restore(self, state: Arrays) -> None:
        for kind, own in (("mean", self._mean), ("square", self._square)):
            mine = {name: array for name, array in state.items() if name.startswith(f"{kind}/")}
            own.update({name.removeprefix(f"{kind}/"): array.astype(np.float64) for name, array in mine.items()})


OPTIMISERS = (Optimiser("fedyogi", FedYogi, server_lr=0.01),)
