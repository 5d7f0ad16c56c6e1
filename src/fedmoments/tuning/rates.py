"""Rates that follow from the features, and rates that are chosen on a validation share.

**The stable step.** With inputs z, the Hessian of the mean cross-entropy of softmax((z·W + b)/T) is
E[(diag p − p pᵀ) ⊗ [z; 1][z; 1]ᵀ]/T², and diag p − p pᵀ has no eigenvalue above ½. Let m be the mean of z, s² the
largest eigenvalue of its covariance, and train V = W·s/T and c = (b + m·W)/T instead, on u = (z − m)/s: the second
moment of [u; 1] is that of u beside 1, so that none of its eigenvalues is above 1, and none of the Hessian's in (V, c)
above L = ½. Descent with any step below 2/L = 4 is stable, and 1/L = 2 is the rate that ``lr = "auto"`` takes, for
parameters in these units: T/s for W, and T for b. Without the mean taken off, s² would be that of the mean's own
direction, often a hundred times as large, in which nothing has to be learnt that b cannot say.

**Law** features times a constant change nothing of a run but its units: s grows with them, and so do the temperatures
(s for a random start, those that are tried for a head whose columns have unit length), so that all logits stay.
Server rates, τ of the adaptive optimisers, and all penalties are numbers for parameters in these units, too.

**Grids.** ``lr = "0.01,0.1,1"`` trains once with each, on what a validation share leaves, and takes the rate with the
best check; the run itself begins anew with that.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmoments.errors import InputError
from fedmoments.settings.plan import AUTO, RANDOM, TuningPlan
from fedmoments.tuning.loop import Tuned
from fedmoments.tuning.prices import Bill
from fedmoments.tuning.start import Start

__all__ = ["Chosen", "Spread", "candidates", "choose_rates", "scaled", "spread_of"]

#: 1/L of the softmax problem in its own units.
STABLE = 2.0
#: Times an adaptive server's own step: chosen on BANKING77 (40 rounds from four starts), kept on CIFAR-10.
ADAPTIVE = 3.0
#: Power iteration: steps at most, and the relative change of the eigenvalue at which it ends.
_MOST_STEPS, _SETTLED = 100, 1e-4
#: Share that is held out for choosing where the plan has none.
TRIAL_SHARE = 0.1


@dataclass(frozen=True)
class Spread:
    """How far inputs lie from the origin.

    Parameters
    ----------
    centre
        (k,) their mean m.
    largest
        s, the root of the largest eigenvalue of their covariance.
    length
        Root mean square of their lengths, from the origin.

    Examples
    --------
    >>> Spread(np.zeros(2), 1.0, 2.0).length
    2.0
    """

    centre: NDArray[np.float64]
    largest: float
    length: float


def spread_of(start: Start, parts: Iterable[tuple[ArrayLike, ArrayLike]]) -> Spread:
    """Return how far the inputs that a start makes of clients' features lie from the origin.

    The eigenvalue is found by power iteration over the samples, from their mean on: d numbers of memory beside them.

    Parameters
    ----------
    start
        Maps and centres features.
    parts
        Features (n_k, d) and labels of every client.

    Examples
    --------
    >>> from fedmoments.tuning.start import random_start
    >>> start = random_start(2, np.array([True, True]), seed=0)
    >>> found = spread_of(start, [([[3.0, 0.0], [0.0, 1.0]], [0, 1])])
    >>> found.centre.tolist(), round(found.largest, 3), round(found.length, 3)  # roots of 10/4 and of 10/2
    ([1.5, 0.5], 1.581, 2.236)
    """
    inputs = [start.inputs(X, np.float64) for X, _ in parts if len(np.asarray(X))]
    n = sum(map(len, inputs))
    centre = sum((z.sum(axis=0) for z in inputs), np.zeros(start.width)) / max(n, 1)
    square = sum(float(np.square(z).sum()) for z in inputs) / max(n, 1)
    inputs = [z - centre for z in inputs]
    spread = sum(float(np.square(z).sum()) for z in inputs) / max(n, 1)
    if not n or not 1e-12 * square < spread < math.inf:
        raise InputError(
            "no rate follows from features that are all the same, or from none: give one (--lr) or look at the features"
        )
    return Spread(centre, math.sqrt(_largest_eigenvalue(inputs, n)), math.sqrt(square))


def _largest_eigenvalue(inputs: Sequence[NDArray[np.floating[Any]]], n: int) -> float:
    """Return the largest eigenvalue of Σ zᵀz / n."""
    width = inputs[0].shape[1]
    vector, largest = np.linspace(1.0, 2.0, width), 0.0
    for _ in range(_MOST_STEPS):
        vector /= np.linalg.norm(vector)
        product_ = sum((z.T @ (z @ vector) for z in inputs), np.zeros(width)) / n
        before, largest = largest, float(vector @ product_)
        vector = product_
        if largest - before <= _SETTLED * largest:
            break
    return largest


def scaled(plan: TuningPlan, start: Start, spread: Callable[[], Spread]) -> tuple[TuningPlan, Start]:
    """Return a plan whose rate is a number, and its start at the temperature that fits these features.

    Parameters
    ----------
    plan
        Left alone where its rate is a number, or where it trains more than a head.
    start
        A linear one is centred; the temperature of a random one is changed where nobody gave any.
    spread
        Asked where it matters.

    Examples
    --------
    >>> from fedmoments.tuning.start import random_start
    >>> start = random_start(2, np.array([True, True]), seed=0)
    >>> plan, begun = scaled(TuningPlan(), start, lambda: Spread(np.zeros(2), 50.0, 60.0))
    >>> plan.lr, plan.feature_scale, begun.temperature
    (2.0, 50.0, 50.0)
    """
    if plan.lr != AUTO or plan.stage != "lp":
        return plan, start
    deviation = spread()
    plan_here, start = replace(plan, lr=STABLE, feature_scale=deviation.largest), start.centred(deviation.centre)
    if plan.server_lr is None and plan.server_step != 1.0:
        plan_here = replace(plan_here, server_lr=ADAPTIVE * plan.server_step)
    if start.name == RANDOM and not isinstance(plan.temperature, int | float):
        return plan_here, start.stretched(deviation.largest)
    return plan_here, start


def candidates(plan: TuningPlan) -> list[TuningPlan]:
    """Return the plan with every combination of its rates, each with one of each.

    Examples
    --------
    >>> [(each.lr, each.server_lr) for each in candidates(TuningPlan(lr="0.1,1", server_lr="0.5,1"))]
    [(0.1, 0.5), (0.1, 1.0), (1.0, 0.5), (1.0, 1.0)]
    """
    pairs = product(plan.grid("lr"), plan.grid("server_lr"))
    return [replace(plan, lr=lr, server_lr=server_lr) for lr, server_lr in pairs]


@dataclass(frozen=True)
class Chosen:
    """The plan with the rates that did best, what each did, and what trying them cost.

    Parameters
    ----------
    plan
        With one rate of each.
    tried
        Rates in words -> the best accuracy on the validation share; 0 where the run diverged before any.
    bill
        Bytes and FLOPs of all trials.
    """

    plan: TuningPlan
    tried: Mapping[str, float]
    bill: Bill


def choose_rates(plan: TuningPlan, trial: Callable[[TuningPlan], Tuned]) -> Chosen:
    """Return the rates of a grid under which the validation share is best predicted, of equal ones the first.

    Parameters
    ----------
    plan
        With a grid; a plan without a validation share holds out a tenth while rates are chosen.
    trial
        Trains with a plan, and returns what came of it.

    Examples
    --------
    >>> from fedmoments.tuning.loop import RoundPoint
    >>> def trial(plan):
    ...     return Tuned({}, (RoundPoint(0, validation=0.2), RoundPoint(1, up=3, validation=plan.lr)))
    >>> chosen = choose_rates(TuningPlan(lr="0.1,0.5,0.3"), trial)
    >>> chosen.plan.lr, dict(chosen.tried), chosen.bill.up
    (0.5, {'0.1': 0.1, '0.5': 0.5, '0.3': 0.3}, 9)
    """
    share = plan.validation or TRIAL_SHARE
    tried: dict[str, tuple[float, float]] = {}
    known = candidates(plan)
    bill = Bill()
    for each in known:
        points = trial(replace(each, validation=share, test_every=max(plan.rounds, 1))).points
        checks = [(p.validation, -(p.validation_loss or 0.0)) for p in points if p.validation is not None]
        tried[_words(each, plan)] = max(checks[1:] or checks, default=(0.0, -math.inf))
        last = points[-1]
        bill += Bill(int(last.up), int(last.down), last.up_formula, last.down_formula, last.flops)
    best = max(known, key=lambda each: tried[_words(each, plan)])
    return Chosen(
        replace(plan, lr=best.lr, server_lr=best.server_lr), {words: loss for words, (loss, _) in tried.items()}, bill
    )


def _words(plan: TuningPlan, asked: TuningPlan) -> str:
    """Return the rates of a candidate that differ between candidates."""
    client = f"{plan.lr:g}" if isinstance(plan.lr, float | int) else plan.lr
    if len(asked.grid("server_lr")) == 1:
        return client
    return f"{client}, server {plan.server_step:g}"
