"""A client's part of a round on torch: the rule of :mod:`fedmoments.tuning.engine`, step by step."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedmoments.settings.plan import TuningPlan
from fedmoments.tuning.engine import Arrays
from fedmoments.tuning.network.modules.model import TunedModel

__all__ = ["LocalRound", "train_locally"]

#: A batch as the network takes it, and the places of its labels among the present classes.
Batch = tuple[Sequence[NDArray[Any]], NDArray[np.int64]]


@dataclass(frozen=True, eq=False)
class LocalRound:
    """What came of a client's steps; the parameters are in the model.

    Parameters
    ----------
    steps
        How many there were.
    loss
        Mean over the steps of the cross-entropy before each.
    gradients
        Mean over the steps of the raw gradients, by name; None where nobody asked.
    """

    steps: int
    loss: float
    gradients: Arrays | None


def train_locally(
    model: TunedModel, plan: TuningPlan, batches: Iterable[Batch], correction: Arrays | None = None
) -> LocalRound:
    """Make one step a batch, from the parameters that are in the model.

    Parameters
    ----------
    model
        Loaded with the global parameters; its own are changed.
    plan
        lr, momentum, weight decay and μ.
    batches
        In order.
    correction
        c − c_k by name, with SCAFFOLD; then the mean of the raw gradients is returned.

    Examples
    --------
    >>> from fedmoments.tuning.start import random_start
    >>> from fedmoments.samples.encoders import load_encoder
    >>> encoder = load_encoder("squeezenet-1.1", size=32, threads=1)
    >>> start, plan = random_start(512, np.array([True, True]), seed=0), TuningPlan(stage="ft", lr=1e-3)
    >>> model = TunedModel(plan, start, encoder)
    >>> batch = (np.zeros((2, 3, 32, 32), np.uint8),), np.array([0, 1])
    >>> train_locally(model, plan, [batch, batch]).steps
    2
    """
    parameters = list(model.trained.values())
    drift = _DriftTerms.of(model, plan, correction)
    sums = None if correction is None else [torch.zeros_like(parameter) for parameter in parameters]
    velocities: list[Tensor] = []
    losses: list[float] = []
    for batch, targets in batches:
        loss = model.loss(batch, targets)
        gradients = list(torch.autograd.grad(loss, parameters))
        losses.append(float(loss.detach()))
        with torch.no_grad():
            if plan.weight_decay:
                gradients = _penalised(model, gradients, plan.weight_decay)
            if sums is not None:
                _add(sums, gradients)
            velocities = _accelerated(velocities, drift.added_to(gradients, parameters), plan.momentum)
            _add(parameters, velocities, -plan.lr)
    means = None if sums is None else _means(model, sums, len(losses))
    return LocalRound(len(losses), float(np.mean(losses)) if losses else float("nan"), means)


@dataclass(frozen=True)
class _DriftTerms:
    """What is added to gradients against the drift of a client: FedProx's pull, weight times w − w₀, and c − c_k."""

    proximal: float
    first: list[Tensor] | None
    correction: list[Tensor] | None

    @classmethod
    def of(cls, model: TunedModel, plan: TuningPlan, correction: Arrays | None) -> "_DriftTerms":
        """Return the terms of a round that begins with the parameters in the model."""
        first = [parameter.detach().clone() for parameter in model.trained.values()] if plan.proximal else None
        named = None if correction is None else [torch.from_numpy(correction[name]) for name in model.trained]
        return cls(plan.proximal, first, named)

    def added_to(self, gradients: list[Tensor], parameters: Sequence[Tensor]) -> list[Tensor]:
        """Return gradients with the terms."""
        if self.first is not None:
            triples = zip(gradients, parameters, self.first, strict=True)
            gradients = [g.add(w - w0, alpha=self.proximal) for g, w, w0 in triples]
        if self.correction is not None:
            gradients = [g.add(c.to(g.device)) for g, c in zip(gradients, self.correction, strict=True)]
        return gradients


def _accelerated(velocities: list[Tensor], steps: list[Tensor], momentum: float) -> list[Tensor]:
    """Return the steps with momentum times the velocities, which are changed in place; the first step has none."""
    if not momentum or not velocities:
        return steps
    return [v.mul_(momentum).add_(s) for v, s in zip(velocities, steps, strict=True)]


def _penalised(model: TunedModel, gradients: Sequence[Tensor], weight: float) -> list[Tensor]:
    """Return gradients of the loss with ½·weight·‖w‖² added."""
    penalised = []
    for (name, parameter), gradient in zip(model.trained.items(), gradients, strict=True):
        mask = model.penalised.get(name)
        penalised.append(gradient.add(parameter if mask is None else parameter * mask, alpha=weight))
    return penalised


def _add(targets: Sequence[Tensor], values: Sequence[Tensor], scale: float = 1.0) -> None:
    for target, value in zip(targets, values, strict=True):
        target.add_(value, alpha=scale)


def _means(model: TunedModel, sums: Sequence[Tensor], steps: int) -> Arrays:
    return {
        name: np.array((total / max(steps, 1)).cpu().numpy(), np.float32, order="C")
        for name, total in zip(model.trained, sums, strict=True)
    }
