"""A network and a head with named arrays: what is sent, loaded, trained and scored.

A client's part of a round on torch: the rule of :mod:`fedmoments.tuning.engine`, step by step.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedmoments.errors import InputError
from fedmoments.samples.encoders.encoder import Encoder
from fedmoments.settings.plan import TuningPlan
from fedmoments.tuning.engine import AVERAGED, Arrays
from fedmoments.tuning.local_rules import LocalRule
from fedmoments.tuning.network.modules.head import TorchHead
from fedmoments.tuning.network.modules.lora import adapt, merged_weights
from fedmoments.tuning.network.modules.networks import network_of, normalising, taking_part
from fedmoments.tuning.network.modules.prompting import prompt
from fedmoments.tuning.start import BIAS, WEIGHTS, Start

__all__ = ["ENCODER", "LocalRound", "TunedModel", "mean_gradient", "train_locally"]


#: Names of the encoder's arrays among the parameters begin with this.
ENCODER = "encoder/"
_RUNNING = ("running_mean", "running_var")


class TunedModel:
    """An encoder's network under a head, of which a stage trains some parameters.

    Parameters
    ----------
    plan
        Its stage and batch normalisation say which arrays are sent.
    start
        The head.
    encoder
        Its network is copied.
    device
        Where it computes.

    Examples
    --------
    >>> from fedmoments.tuning.start import random_start
    >>> from fedmoments.samples.encoders import load_encoder
    >>> encoder = load_encoder("squeezenet-1.1", size=32, threads=1)
    >>> start, plan = random_start(512, np.array([True, True]), seed=0), TuningPlan(stage="ft", lr=1e-3)
    >>> model = TunedModel(plan, start, encoder)
    >>> len(model.names), model.names[-1], model.scores([np.zeros((3, 3, 32, 32), np.uint8)]).shape
    (52, 'head/bias', torch.Size([3, 2]))
    """

    def __init__(self, plan: TuningPlan, start: Start, encoder: Encoder, device: Any = None) -> None:
        self._device = device or torch.device("cpu")
        self.network = network_of(encoder, self._device)
        self.head = TorchHead(start, encoder.dim).requires_grad_(requires_grad=False).to(self._device)
        self.trained: dict[str, nn.Parameter] = {}
        self.running: dict[str, Tensor] = {}
        self._learning: list[nn.Module] = []
        kept = set(normalising(self.network).values())
        self._dropping = [m for m in (self.network.modules() if plan.dropout else ()) if m not in kept]
        if plan.stage != "lp":
            self._train_encoder(plan)
        if plan.stage != "feat":
            self.trained |= {WEIGHTS: self.head.weights, BIAS: self.head.bias}
        for parameter in self.trained.values():
            parameter.requires_grad = True
        # Classes that take no part have no gradient, and no penalty either: nothing of them changes.
        self.penalised = {WEIGHTS: _tensor(start.present.astype(np.float32)).to(self._device)}
        self.penalised[BIAS] = self.penalised[WEIGHTS]
        # Counters of batches are not sent: every client begins with those that the encoder came with.
        self._counters = [
            (buffer, buffer.clone()) for buffer in self.network.buffers() if not buffer.dtype.is_floating_point
        ]

    def _train_encoder(self, plan: TuningPlan) -> None:
        """Let the encoder's parameters be trained, and with averaged batch normalisation send its running values."""
        kind, size = plan.adapter_part
        parts = {"lora": adapt, "prompt": prompt}
        named = parts[kind](self.network, size, plan.seed) if plan.adapts else taking_part(self.network)
        self.trained |= {ENCODER + name: parameter for name, parameter in named.items()}
        if plan.batchnorm == "averaged":
            layers = normalising(self.network)
            self._learning = list(layers.values())
            self.running = {
                f"{AVERAGED}{ENCODER}{name}.{value}": getattr(layer, value)
                for name, layer in layers.items()
                for value in _RUNNING
            }

    @property
    def names(self) -> list[str]:
        """Names of all arrays that are sent, in order."""
        return [*self.trained, *self.running]

    def load(self, arrays: Mapping[str, NDArray[np.floating[Any]]]) -> None:
        """Put arrays into the model; all that are sent must be there, of the right shapes, and no others."""
        tensors = {**self.trained, **self.running}
        missing, unknown = sorted(tensors.keys() - arrays.keys()), sorted(arrays.keys() - tensors.keys())
        if missing or unknown:
            lacks, extra = ", ".join(missing[:3]) or "none", ", ".join(unknown[:3]) or "none"
            raise InputError(
                f"this stage trains {len(tensors)} arrays, but {len(arrays)} arrived: missing {lacks}; unknown {extra}."
                " They belong to another stage, encoder or way of batch normalisation"
            )
        with torch.no_grad():
            for name, tensor in tensors.items():
                if arrays[name].shape != tuple(tensor.shape):
                    raise InputError(
                        f"the array '{name}' must have the shape {tuple(tensor.shape)}, not {arrays[name].shape}"
                    )
                tensor.copy_(_tensor(arrays[name]))
            for buffer, first in self._counters:
                buffer.copy_(first)

    def read(self) -> Arrays:
        """Return copies of all arrays that are sent."""
        return {name: _array(tensor) for name, tensor in {**self.trained, **self.running}.items()}

    def plain(self, arrays: Arrays) -> Arrays:
        """Return arrays as those of the encoder without adapters, whose changes are added to its weights."""
        self.load(arrays)
        merged = {ENCODER + name: array for name, array in merged_weights(self.network).items()}
        if not merged:
            return arrays
        return {**merged, **{n: a for n, a in arrays.items() if not n.startswith(ENCODER)}}

    def features(self, batch: Sequence[NDArray[Any]]) -> Tensor:
        """Return features (n, d) of a batch."""
        features: Tensor = self.network(*(_tensor(array).to(self._device) for array in batch))
        return features

    def scores(self, batch: Sequence[NDArray[Any]]) -> Tensor:
        """Return scores over the temperature, (n, P), of the present classes."""
        scores: Tensor = self.head(self.features(batch))
        return scores

    def loss(self, batch: Sequence[NDArray[Any]], targets: NDArray[np.int64]) -> Tensor:
        """Return the mean cross-entropy of a batch; targets are places among the present classes."""
        with self._learning_statistics(len(targets)):
            scores = self.scores(batch)
        return nn.functional.cross_entropy(scores, _tensor(targets).to(self._device))

    @contextmanager
    def _learning_statistics(self, samples: int) -> Iterator[None]:
        """Drop activations, normalise by the batch and learn running values, where that was requested.

        One sample has no variance: a batch of one is normalised by the running values, which it leaves alone.
        """
        learning = [*self._dropping, *(self._learning if samples > 1 else [])]
        try:
            for layer in learning:
                layer.training = True
            yield
        finally:
            for layer in learning:
                layer.training = False


def _tensor(array: NDArray[Any]) -> Tensor:
    contiguous = np.ascontiguousarray(array)
    return torch.from_numpy(contiguous if contiguous.flags.writeable else contiguous.copy())


def _array(tensor: Tensor) -> NDArray[np.float32]:
    return np.array(tensor.detach().cpu().numpy(), np.float32, order="C")


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
    model: TunedModel,
    plan: TuningPlan,
    batches: Iterable[Batch],
    correction: Arrays | None = None,
    *,
    measured: bool = False,
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
        What is added to every step, by name; see :mod:`fedmoments.tuning.local_rules`.
    measured
        Whether the mean of the raw gradients is returned.

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
    sums = [torch.zeros_like(parameter) for parameter in parameters] if measured else None
    rule = LocalRule.of(plan)
    anchor = _Anchor(model, plan, parameters) if rule.anchored else None
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
            gradients = _weighed(gradients, anchor.gradients(batch, targets) if anchor else None, rule.weight)
            velocities = _accelerated(velocities, drift.added_to(gradients, parameters), plan.momentum)
            _add(parameters, velocities, -plan.step)
    means = None if sums is None else _means(model, sums, len(losses))
    return LocalRound(len(losses), float(np.mean(losses)) if losses else float("nan"), means)


def _weighed(gradients: list[Tensor], start: Sequence[Tensor] | None, weight: float) -> list[Tensor]:
    """Return gradients less those at the start, where a rule asks for that, times a weight."""
    if start is not None:
        gradients = [here - there for here, there in zip(gradients, start, strict=True)]
    return [gradient * weight for gradient in gradients] if weight != 1.0 else gradients


def mean_gradient(model: TunedModel, plan: TuningPlan, batches: Iterable[Batch]) -> Arrays:
    """Return the raw gradient of the mean loss over some samples, L2 penalty included, by name.

    Batch normalisation uses its running values, whatever the plan says: a batch of these samples is not a step.
    """
    parameters = list(model.trained.values())
    sums, samples = [torch.zeros_like(parameter) for parameter in parameters], 0
    for batch, targets in batches:
        _add(sums, _gradients(model, parameters, batch, targets))
        samples += len(targets)
    with torch.no_grad():
        means = [total / max(samples, 1) for total in sums]
        means = _penalised(model, means, plan.weight_decay) if plan.weight_decay else means
    return {name: _array(mean) for name, mean in zip(model.trained, means, strict=True)}


def _gradients(
    model: TunedModel, parameters: Sequence[Tensor], batch: Sequence[NDArray[Any]], targets: NDArray[np.int64]
) -> tuple[Tensor, ...]:
    """Return gradients of the summed loss of a batch, without penalty, dropout or statistics of its own."""
    places = _tensor(targets).to(parameters[0].device)
    loss = nn.functional.cross_entropy(model.scores(batch), places, reduction="sum")
    return torch.autograd.grad(loss, parameters)


class _Anchor:
    """Gradients at the parameters that a round began with; the mean over all batches is that of `mean_gradient`."""

    def __init__(self, model: TunedModel, plan: TuningPlan, parameters: Sequence[nn.Parameter]) -> None:
        self._model, self._decay, self._parameters = model, plan.weight_decay, parameters
        self._first = [parameter.detach().clone() for parameter in parameters]
        self._running = {name: value.detach().clone() for name, value in model.running.items()}

    def gradients(self, batch: Sequence[NDArray[Any]], targets: NDArray[np.int64]) -> list[Tensor]:
        """Return the raw gradient of the mean loss of a batch there, L2 penalty included."""
        held = [*self._parameters, *self._model.running.values()]
        now = [tensor.detach().clone() for tensor in held]
        self._put(held, [*self._first, *self._running.values()])
        try:
            with torch.enable_grad():
                slopes = _gradients(self._model, self._parameters, batch, targets)
            means = [gradient / max(len(targets), 1) for gradient in slopes]
            return _penalised(self._model, means, self._decay) if self._decay else means
        finally:
            self._put(held, now)

    @staticmethod
    def _put(tensors: Sequence[Tensor], values: Sequence[Tensor]) -> None:
        with torch.no_grad():
            for tensor, value in zip(tensors, values, strict=True):
                tensor.copy_(value)


@dataclass(frozen=True)
class _DriftTerms:
    """What is added to gradients: the pull towards what was sent, weight times w − w₀, and what the rule adds."""

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
