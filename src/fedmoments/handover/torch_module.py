"""A module of torch that scores as a classifier does; imported where torch is wanted."""

import copy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedmoments.handover.model import Model
from fedmoments.handover.scoring import familiarity, probabilities, scores, taken

__all__ = ["ScoringModule"]


class _TorchTensors:
    """Tensors of torch; constants are buffers of a module, registered in the first pass and read in every later one."""

    def __init__(self, module: nn.Module) -> None:
        self._module, self._count = module, 0

    def constant(self, array: NDArray[Any]) -> Any:
        name = f"constant_{self._count}"
        self._count += 1
        if not hasattr(self._module, name):
            self._module.register_buffer(name, torch.from_numpy(np.array(array, order="C")))
        return getattr(self._module, name)

    def cast(self, x: Any, dtype: str) -> Any:
        return x.to(getattr(torch, dtype))

    def add(self, x: Any, y: Any) -> Any:
        return x + y

    def subtract(self, x: Any, y: Any) -> Any:
        return x - y

    def multiply(self, x: Any, y: Any) -> Any:
        return x * y

    def divide(self, x: Any, y: Any) -> Any:
        return x / y

    def minimum(self, x: Any, y: Any) -> Any:
        return torch.minimum(x, y)

    def matmul(self, x: Any, y: Any) -> Any:
        return x @ y

    def cos(self, x: Any) -> Any:
        return x.cos()

    def exp(self, x: Any) -> Any:
        return x.exp()

    def sqrt(self, x: Any) -> Any:
        return x.sqrt()

    def sum(self, x: Any, axis: int, *, keep: bool) -> Any:
        return x.sum(axis, keepdim=keep)

    def least(self, x: Any, axis: int) -> Any:
        return x.amin(axis)

    def logsumexp(self, x: Any, axis: int) -> Any:
        return x.logsumexp(axis)

    def log_softmax(self, x: Any) -> Any:
        return x.log_softmax(-1)

    def softmax(self, x: Any) -> Any:
        return x.softmax(-1)

    def ones_for_zeros(self, x: Any) -> Any:
        return torch.where(x == 0, torch.ones_like(x), x)

    def reshape(self, x: Any, shape: tuple[int, ...]) -> Any:
        return x.reshape(shape)

    def transpose(self, x: Any) -> Any:
        return x.transpose(0, 1)


class ScoringModule(nn.Module):
    """From what a model takes to (probabilities, scores), (n, C) float32 each, and familiarity (n,) where it is known.

    Parameters
    ----------
    model
        Classifier, temperature.
    network
        From samples to features (n, d); None where features are given.
    examples
        Inputs to try it with.
    """

    def __init__(self, model: Model, network: Any, examples: tuple[Tensor, ...]) -> None:
        super().__init__()
        self._model = model
        # Encoders keep their weights channel by channel for speed; torch.export.save wants them as they are declared.
        self.encoder = copy.deepcopy(network).to(memory_format=torch.contiguous_format) if network else None
        self.eval()
        with torch.no_grad():
            self(*examples)  # registers every constant
        self.requires_grad_(requires_grad=False)

    def forward(self, *given: Tensor) -> tuple[Tensor, ...]:
        features = self.encoder(*given) if self.encoder is not None else given[0]
        ops = _TorchTensors(self)
        classifier = self._model.classifier
        mapped = taken(ops, features, classifier)
        scored = scores(ops, mapped, classifier)
        answer = probabilities(ops, scored, classifier).float(), scored.float()
        if classifier.familiar is None:
            return answer
        return *answer, familiarity(ops, mapped, classifier.familiar).float()
