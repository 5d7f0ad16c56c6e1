"""MimeLite and Mime (Karimireddy et al., 2021, arXiv:2008.03606): clients step with the server's momentum.

With weights p_k = n_k/Σ_{j∈S} n_j over the clients S of a round, and c = Σ p_k·∇L_k(w) of all their samples at the w
that came, the server sets in both

    w ← w + η·Σ p_k·(w_k − w),    m ← β·m + (1−β)·c,

so that momentum is that of pooled data, and not of whoever trained last. Every step of a client is

    MimeLite    (1−β)·g(y) + β·m                        with the m of the round before;
    Mime        (1−β)·(g(y) − g(w) + c) + β·m           with the gradients g of one batch at y and at w.

Mime's steps need c, which no client knows: a round has two exchanges, parameters for gradients, then the new momentum
(1−β)·c + β·m, which is all of a step but (1−β)·(g(y) − g(w)), for parameters. **Law** with β = 0 MimeLite's rounds are
FedAvg's, to the last bit. **Law** where everybody takes part, Mime stays where Σ p_k·∇L_k = 0, the solution of pooled
data, whatever the clients' skew.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from fedmoments.errors import InputError
from fedmoments.settings.optimisers import Optimiser
from fedmoments.settings.plan import TuningPlan
from fedmoments.tuning.engine import AVERAGED, Arrays, Update
from fedmoments.tuning.optimisers.strategies import ServerOptimiser, require_updates, weighted_mean

__all__ = ["Mime", "MimeLite"]


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

    def control(self, arrays: Arrays) -> Arrays | None:
        """Return m, in the types of the parameters that are optimised."""
        return self._sent(arrays)

    def step(self, round_number: int, arrays: Arrays, updates: Sequence[Update]) -> Arrays:  # noqa: ARG002
        require_updates(arrays, updates)
        self._learn(arrays, updates)
        return self._merged(arrays, updates)

    def _sent(self, arrays: Arrays) -> Arrays:
        names = [name for name in arrays if not name.startswith(AVERAGED)]
        if not self._momentum:
            self._momentum = {name: np.zeros(arrays[name].shape, np.float64) for name in names}
        return {name: self._momentum[name].astype(arrays[name].dtype) for name in names}

    def _learn(self, arrays: Arrays, updates: Sequence[Update]) -> None:
        """Set m ← β·m + (1−β)·c."""
        known = self._sent(arrays)
        gradients = []
        for update in updates:
            if update.control is None or set(update.control) != set(known):
                raise InputError(f"client {update.client} sent no gradient of its samples, which {self.name} needs")
            gradients.append((update.samples, update.control))
        total = sum(samples for samples, _ in gradients)
        for name in known:
            self._momentum[name] *= self._beta
            for samples, gradient in gradients:
                self._momentum[name] += (1.0 - self._beta) * samples / total * gradient[name]

    def _merged(self, arrays: Arrays, updates: Sequence[Update]) -> Arrays:
        """Return w + η·Σ p_k·(w_k − w)."""
        mean = weighted_mean(arrays, updates)
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


class Mime(MimeLite):
    """The server of Mime, which learns its momentum between the two exchanges of a round.

    Parameters
    ----------
    plan, samples
        As of :class:`MimeLite`.

    Examples
    --------
    >>> optimiser = Mime(TuningPlan(optimiser="mime", server_momentum=0.75))
    >>> now, one = {"w": np.zeros(1)}, {"w": np.ones(1)}
    >>> optimiser.informed(now, [Update("a", 3, 0, 0.5, {}, control=one)])
    {'w': array([0.25])}
    >>> optimiser.step(1, now, [Update("a", 3, 1, 0.5, one)])
    {'w': array([1.])}
    """

    name = "mime"

    def control(self, arrays: Arrays) -> Arrays | None:  # noqa: ARG002 - what is sent follows from what clients tell
        """Return None: in the first exchange parameters go alone."""
        return None

    def informed(self, arrays: Arrays, updates: Sequence[Update]) -> Arrays:
        if not updates:
            raise InputError("no client sent its gradient in this round: there is nothing to step with")
        self._learn(arrays, updates)
        return self._sent(arrays)

    def step(self, round_number: int, arrays: Arrays, updates: Sequence[Update]) -> Arrays:  # noqa: ARG002
        require_updates(arrays, updates)
        return self._merged(arrays, updates)


OPTIMISERS = (
    Optimiser("mimelite", MimeLite, controlled=True, local="mimelite"),
    Optimiser("mime", Mime, controlled=True, local="mime"),
)
