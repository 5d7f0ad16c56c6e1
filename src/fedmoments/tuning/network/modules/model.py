"""A network and a head with named arrays: what is sent, loaded, trained and scored."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedmoments.errors import InputError
from fedmoments.samples.encoders.encoder import Encoder
from fedmoments.settings.plan import TuningPlan
from fedmoments.tuning.engine import AVERAGED, Arrays
from fedmoments.tuning.network.modules.head import TorchHead
from fedmoments.tuning.network.modules.networks import network_of, normalising, taking_part
from fedmoments.tuning.start import BIAS, WEIGHTS, Start

__all__ = ["ENCODER", "TunedModel"]

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
        self.network = network_of(encoder, device)
        self.head = TorchHead(start, encoder.dim).requires_grad_(requires_grad=False).to(device or "cpu")
        self._device = device or torch.device("cpu")
        self.trained: dict[str, nn.Parameter] = {}
        self.running: dict[str, Tensor] = {}
        self._learning: list[nn.Module] = []
        if plan.stage != "lp":
            self._train_encoder(averaged=plan.batchnorm == "averaged")
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

    def _train_encoder(self, *, averaged: bool) -> None:
        """Let the encoder's parameters be trained, and with averaged batch normalisation send its running values."""
        self.trained |= {ENCODER + name: parameter for name, parameter in taking_part(self.network).items()}
        if averaged:
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
        """Normalise by the batch and learn running values, where that was asked for.

        One sample has no variance: a batch of one is normalised by the running values, which it leaves alone.
        """
        learning = self._learning if samples > 1 else []
        try:
            for layer in learning:
                layer.train()
            yield
        finally:
            for layer in learning:
                layer.eval()


def _tensor(array: NDArray[Any]) -> Tensor:
    contiguous = np.ascontiguousarray(array)
    return torch.from_numpy(contiguous if contiguous.flags.writeable else contiguous.copy())


def _array(tensor: Tensor) -> NDArray[np.float32]:
    return np.array(tensor.detach().cpu().numpy(), np.float32, order="C")
