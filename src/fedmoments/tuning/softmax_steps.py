"""Local SGD of many clients at once: softmax regression on cached inputs by stacked matrix products.

Clients stand side by side in one array θ (K, k+1, C), bias in the last row. In every step, neighbours whose batches
have equally many rows step together; clients in order of their samples are mostly such neighbours. With z (m, k+1) the
inputs of a client's batch, with a column of ones, and y its labels, the raw gradient of the mean loss is

    G = (softmax((z·θ + base)/T) − onehot(y)) / (m·T),    g = zᵀ·G + weight_decay·θ,

where classes that do not take part have probability 0 and no penalty, so that nothing of them changes. What is done
with g is said in :mod:`fedmoments.tuning.engine`. Every product has the shape of one client's batch alone: no client's
result depends on whom it trains beside.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from fedmoments.tuning.samples import Samples
from fedmoments.tuning.start import Floats

__all__ = ["StepRule", "Stepped", "local_steps", "softmax_gradients"]

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class StepRule:
    """Numbers of a client's SGD, as :class:`~fedmoments.tuning.TuningPlan` has them.

    ``units`` (k+1, 1), where there are any, are squares of the units that rate and penalties are meant in;
    ``anchored`` subtracts the gradient of the same batch at the parameters that came.

    Examples
    --------
    >>> StepRule(lr=0.1, temperature=0.5).momentum
    0.0
    """

    lr: float
    temperature: float
    momentum: float = 0.0
    weight_decay: float = 0.0
    proximal: float = 0.0
    weight: float = 1.0
    units: Floats | None = None
    anchored: bool = False


@dataclass(frozen=True, eq=False)
class Stepped:
    """What K clients have after their steps.

    Parameters
    ----------
    parameters
        θ, (K, k+1, C).
    losses
        (K,) mean over a client's steps of its batch's cross-entropy before the step.
    gradients
        (K, k+1, C) mean over a client's steps of its raw gradients; None where they were not asked for.
    """

    parameters: Floats
    losses: NDArray[np.float64]
    gradients: Floats | None


def local_steps(
    samples: Samples,
    batches: Sequence[Sequence[Ints]],
    start: Floats,
    rule: StepRule,
    extra: Floats | None = None,
    *,
    measured: bool = False,
) -> Stepped:
    """Let K clients train from the same parameters.

    Parameters
    ----------
    samples
        Of all clients.
    batches
        Of every client, one or more: rows of ``samples``. Clients in order of the lengths are fastest.
    start
        (k+1, C), in the type to compute in.
    rule
        Of the steps.
    extra
        (K, k+1, C), or (1, k+1, C) for all clients: added to every step of a client.
    measured
        Whether mean gradients are returned as well.

    Examples
    --------
    >>> from fedmoments.tuning.start import random_start
    >>> head = random_start(1, np.array([True, True]), seed=0)
    >>> samples = Samples.of(head, [("clinic", [[-1.0], [1.0]], [0, 1])])
    >>> done = local_steps(samples, [[np.array([0, 1])] * 50], np.zeros((2, 2), np.float32), StepRule(1.0, 1.0))
    >>> (samples.inputs @ done.parameters[0]).argmax(axis=1)
    array([0, 1])
    """
    parameters = np.repeat(start[None], len(batches), axis=0)
    gradients = np.zeros_like(parameters) if measured else None
    velocity = np.zeros_like(parameters) if rule.momentum else None
    decay = np.where(samples.present, rule.weight_decay, 0.0).astype(start.dtype)
    buffer, scratch, losses = np.empty_like(parameters), np.empty_like(parameters), np.zeros(len(batches))
    steps = np.array([len(own) for own in batches])
    for rows, mine in _together(batches):
        theta, g, term = parameters[mine], buffer[mine], scratch[mine]
        losses[mine] += softmax_gradients(samples, rows, theta, rule.temperature, g)
        _penalise(g, theta, decay, rule, term)
        if gradients is not None:
            gradients[mine] += g
        if rule.anchored:
            g -= _anchor(samples, rows, start, decay, rule)
        _correct(g, rule, extra, mine)
        _pull_back(g, theta, start, rule, term)
        _descend(theta, g, None if velocity is None else velocity[mine], rule)
    mean = None if gradients is None else gradients / steps[:, None, None].astype(start.dtype)
    return Stepped(parameters, losses / steps, mean)


def _penalise(gradients: Floats, there: Floats, decay: Floats, rule: StepRule, term: Floats | None = None) -> None:
    """Add the gradient of the weight decay, in place."""
    if rule.weight_decay:
        gradients += _per_unit(np.multiply(there, decay, out=term), rule)


def _correct(gradients: Floats, rule: StepRule, extra: Floats | None, mine: slice) -> None:
    """Weigh gradients of some clients, and add what a rule adds to every step of all, or of each, in place."""
    if rule.weight != 1.0:
        gradients *= rule.weight
    if extra is not None:
        gradients += extra if len(extra) == 1 else extra[mine]


def _anchor(samples: Samples, rows: Ints, start: Floats, decay: Floats, rule: StepRule) -> Floats:
    """Return the raw gradients of m batches at the parameters that came, (m, k+1, C)."""
    there = np.repeat(start[None], len(rows), axis=0)
    gradients = np.empty_like(there)
    softmax_gradients(samples, rows, there, rule.temperature, gradients)
    _penalise(gradients, there, decay, rule)
    return gradients


def _pull_back(g: Floats, theta: Floats, start: Floats, rule: StepRule, term: Floats) -> None:
    """Add FedProx's μ·(θ − θ₀) to gradients in place; ``term`` is overwritten."""
    if rule.proximal:
        np.subtract(theta, start, out=term)
        g += _per_unit(np.multiply(term, rule.proximal, out=term), rule)


def _descend(theta: Floats, g: Floats, velocity: Floats | None, rule: StepRule) -> None:
    """Move parameters against their gradients, or their velocities with momentum; all are changed in place."""
    if velocity is not None:
        velocity *= rule.momentum
        velocity += g
    moved = np.multiply(g if velocity is None else velocity, rule.lr, out=g)
    if rule.units is not None:
        moved *= rule.units
    theta -= moved


def _per_unit(penalty: Floats, rule: StepRule) -> Floats:
    """Return the gradient of a penalty on parameters in their units; changed in place."""
    if rule.units is not None:
        penalty /= rule.units
    return penalty


def _together(batches: Sequence[Sequence[Ints]]) -> Iterator[tuple[Ints, slice]]:
    """Yield rows (m, B) and places of neighbouring clients that step together, all first steps before any second."""
    for step in range(max(map(len, batches), default=0)):
        due = [own[step] if step < len(own) else None for own in batches]
        first = 0
        for size, run in groupby(due, key=lambda rows: -1 if rows is None else len(rows)):
            stacked = list(run)
            if size >= 0:
                yield np.array(stacked), slice(first, first + len(stacked))
            first += len(stacked)


def softmax_gradients(
    samples: Samples, rows: Ints, parameters: Floats, temperature: float, out: Floats
) -> NDArray[np.float64]:
    """Write the gradients of m batches into ``out`` (m, k+1, C), without penalty; return their mean losses (m,).

    Parameters
    ----------
    samples
        Of all clients.
    rows
        (m, B) rows of each batch.
    parameters
        (m, k+1, C).
    temperature
        T.
    out
        Where gradients go.

    Examples
    --------
    >>> from fedmoments.tuning.start import random_start
    >>> head = random_start(1, np.array([True, True]), seed=0)
    >>> samples, gradient = Samples.of(head, [("clinic", [[2.0]], [1])]), np.empty((1, 2, 2), np.float32)
    >>> softmax_gradients(samples, np.array([[0]]), np.zeros((1, 2, 2), np.float32), 0.5, gradient).round(4)
    array([0.6931])
    >>> gradient[0].tolist()
    [[2.0, -2.0], [1.0, -1.0]]
    """
    m, size = rows.shape
    inputs = samples.inputs[rows]
    scores = inputs @ parameters
    if samples.base is not None:
        scores += samples.base[rows]
    if not samples.present.all():
        scores[..., ~samples.present] = -np.inf
    scores -= scores.max(axis=-1, keepdims=True)
    scores /= temperature
    where = (np.arange(m)[:, None], np.arange(size), samples.labels[rows])
    mine = scores[where]
    np.exp(scores, out=scores)
    sums = scores.sum(axis=-1)
    losses = np.asarray((np.log(sums) - mine).mean(axis=1), np.float64)
    scores /= sums[..., None]
    scores[where] -= 1.0
    scores /= temperature * size
    np.matmul(inputs.swapaxes(1, 2), scores, out=out)
    return losses
