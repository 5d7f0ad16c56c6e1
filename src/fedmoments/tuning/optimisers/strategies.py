"""FedAvg, FedAvgM, FedAdam and FedProx: Flower's strategies, fed with updates and read out as arrays.

With Δ the mean of the clients' changes, weighted by n_k:

- FedAvg: w ← w + Δ; FedProx the same, its μ acts on clients;
- FedAvgM: v ← β·v + Δ (v = Δ at first), w ← w + η·v;
- FedAdam: m ← β₁·m + (1−β₁)·Δ, v ← β₂·v + (1−β₂)·Δ², w ← w + η_t·m/(√v + τ), where in round t
  η_t = η·√(1−β₂^(t+1))/(1−β₁^(t+1)): Flower corrects for one round more than Adam does.

Flower's FedAvg and FedProx have no server learning rate; where one is requested, FedAvgM without momentum is the same.

What every optimiser of the server can do.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from fedmoments.errors import InputError
from fedmoments.extras import require
from fedmoments.settings.optimisers import Optimiser
from fedmoments.settings.plan import TuningPlan
from fedmoments.tuning.engine import AVERAGED, Arrays, Update

__all__ = ["FlowerStrategy", "ServerOptimiser", "require_updates", "weighted_mean"]


class ServerOptimiser(ABC):
    """Turns what clients send after a round into the parameters of the next.

    Arrays whose names begin with ``averaged/`` are averaged by n_k and not optimised: a momentum or an adaptive step
    could make a running variance negative.
    """

    name: str

    def control(self, arrays: Arrays) -> Arrays | None:  # noqa: ARG002 - SCAFFOLD, MimeLite send some
        """Return what is sent beside the parameters; None where there is nothing."""
        return None

    def informed(self, arrays: Arrays, updates: Sequence[Update]) -> Arrays:  # noqa: ARG002 - only Mime asks first
        """Return what is sent beside the parameters in the second exchange of a round.

        Parameters
        ----------
        arrays
            The parameters that were sent.
        updates
            Gradients that clients answered with in the first.
        """
        raise InputError(f"'{self.name}' has one exchange a round: it does not ask clients for gradients first")

    @abstractmethod
    def step(self, round_number: int, arrays: Arrays, updates: Sequence[Update]) -> Arrays:
        """Return the parameters after a round.

        Parameters
        ----------
        round_number
            From 1.
        arrays
            The parameters that were sent.
        updates
            What clients sent, at least one.
        """

    @abstractmethod
    def state(self) -> Arrays:
        """Return what must be kept from round to round."""

    @abstractmethod
    def restore(self, state: Arrays) -> None:
        """Go on from a state."""


def require_updates(arrays: Arrays, updates: Sequence[Update]) -> None:
    """Refuse a round without updates, and updates that do not have the arrays that were sent."""
    if not updates:
        raise InputError("no client sent an update in this round: there is nothing to average")
    for update in updates:
        if set(update.arrays) != set(arrays):
            odd = sorted(set(update.arrays) ^ set(arrays))[0]
            raise InputError(f"client {update.client} sent other arrays than it was sent: they differ in '{odd}'")
        if update.samples < 1:
            raise InputError(f"client {update.client} trained on {update.samples} samples: it has no weight")


_WHAT = "Federated optimisation"


class FlowerStrategy(ServerOptimiser):
    """One of Flower's strategies.

    Parameters
    ----------
    plan
        Names the optimiser and has its numbers.
    samples
        Not asked for: clients are weighted by what they trained on.

    Examples
    --------
    >>> import numpy as np
    >>> optimiser = FlowerStrategy(TuningPlan(optimiser="fedavg"))
    >>> now = {"w": np.zeros(1, np.float32)}
    >>> sent = [Update("a", 3, 1, 0.5, {"w": np.ones(1, np.float32)}), Update("b", 1, 1, 0.5, now)]
    >>> optimiser.step(1, now, sent)
    {'w': array([0.75], dtype=float32)}
    """

    def __init__(self, plan: TuningPlan, samples: Mapping[str, int] | None = None) -> None:  # noqa: ARG002
        self.name = plan.optimiser
        self._names: list[str] = []
        with _quiet():
            self._strategy, self._kept = _make(plan)

    def step(self, round_number: int, arrays: Arrays, updates: Sequence[Update]) -> Arrays:
        require_updates(arrays, updates)
        averaged = {name: array for name, array in arrays.items() if name.startswith(AVERAGED)}
        optimised = {name: array for name, array in arrays.items() if name not in averaged}
        stepped = dict(weighted_mean(averaged, updates)) if averaged else {}
        if optimised:
            self._hand_over(optimised)
            with _quiet():
                merged, _ = self._strategy.aggregate_train(round_number, _replies(optimised, updates))
            stepped |= {name: array.numpy().astype(optimised[name].dtype) for name, array in merged.items()}
        return {name: stepped[name] for name in arrays}

    def _hand_over(self, arrays: Arrays) -> None:
        """Hand over the parameters that were sent, as Flower's own loop does when it makes its messages."""
        if "m_t" in self._kept:
            self._strategy.current_arrays = dict(arrays)
        if "momentum_vector" in self._kept:  # FedAvgM goes by position where FedAdam goes by name
            self._strategy.current_arrays = _record(arrays)
            if self._strategy.momentum_vector and self._names != list(arrays):
                named = dict(zip(self._names, self._strategy.momentum_vector, strict=True))
                self._strategy.momentum_vector = [named[name] for name in arrays]
            self._names = list(arrays)

    def state(self) -> Arrays:
        state: Arrays = {}
        for kept in self._kept:
            value = getattr(self._strategy, kept)
            if value:
                named = value if isinstance(value, Mapping) else dict(zip(self._names, value, strict=True))
                state |= {f"{kept}/{name}": array for name, array in named.items()}
        return state

    def restore(self, state: Arrays) -> None:
        for kept in self._kept:
            mine = {name.removeprefix(f"{kept}/"): a for name, a in state.items() if name.startswith(f"{kept}/")}
            self._names = list(mine)
            setattr(self._strategy, kept, (list(mine.values()) if kept == "momentum_vector" else mine) or None)


def weighted_mean(arrays: Arrays, updates: Sequence[Update]) -> Arrays:
    """Return the mean of clients' arrays, weighted by n_k, of the names and types of ``arrays``.

    Examples
    --------
    >>> import numpy as np
    >>> sent = [Update(k, n, 1, 0.0, {"w": np.full(2, float(n))}) for k, n in (("a", 1), ("b", 3))]
    >>> weighted_mean({"w": np.zeros(2)}, sent)
    {'w': array([2.5, 2.5])}
    """
    strategy = _strategies().FedAvg()
    with _quiet():
        merged, _ = strategy.aggregate_train(1, _replies(arrays, updates))
    return {name: merged[name].numpy().astype(arrays[name].dtype) for name in arrays}


class _Reply:
    """What a strategy reads of a reply."""

    def __init__(self, content: Any) -> None:
        self.content = content

    def has_error(self) -> bool:
        """Say that it is none."""
        return False


def _replies(arrays: Arrays, updates: Sequence[Update]) -> list[_Reply]:
    app = require("flwr.app", _WHAT, "flower")
    return [
        _Reply(
            app.RecordDict(
                {
                    "arrays": _record({name: update.arrays[name] for name in arrays}),
                    "metrics": app.MetricRecord({"num-examples": update.samples}),
                }
            )
        )
        for update in updates
    ]


def _record(arrays: Arrays) -> Any:
    app = require("flwr.app", _WHAT, "flower")
    return app.ArrayRecord({name: app.Array(np.ascontiguousarray(array)) for name, array in arrays.items()})


def _strategies() -> Any:
    return require("flwr.serverapp.strategy", _WHAT, "flower")


def _make(plan: TuningPlan) -> tuple[Any, tuple[str, ...]]:
    """Return the strategy, and the names of what it keeps from round to round."""
    known = _strategies()
    if plan.optimiser == "fedadam":
        betas = {"beta_1": plan.beta_1, "beta_2": plan.beta_2, "tau": plan.tau}
        return known.FedAdam(eta=plan.server_step, eta_l=plan.step, **betas), ("m_t", "v_t")
    if plan.optimiser == "fedavgm" or plan.server_step != 1.0:
        momentum = plan.server_momentum if plan.optimiser == "fedavgm" else 0.0
        step = {"server_learning_rate": plan.server_step, "server_momentum": momentum}
        return known.FedAvgM(**step), ("momentum_vector",)
    if plan.optimiser == "fedprox":
        return known.FedProx(proximal_mu=plan.mu), ()
    return known.FedAvg(), ()


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Flower's log of every merge to itself: rounds have a progress bar and a record of their own."""
    logger = logging.getLogger("flwr")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


OPTIMISERS = (
    Optimiser("fedavg", FlowerStrategy),
    Optimiser("fedavgm", FlowerStrategy),
    Optimiser("fedadam", FlowerStrategy, server_lr=0.01),
    Optimiser("fedprox", FlowerStrategy, proximal=True),
)
