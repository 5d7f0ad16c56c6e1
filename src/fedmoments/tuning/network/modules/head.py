"""The head on top of a network: what :class:`~fedmoments.tuning.start.Start` says of features, with gradients.

Scores are z·W + b + base(x). Maps, centring and the frozen base are computed in float64, as the classifier does it,
and the linear part in float32; gradients flow through all of it to the features.

Feature maps that gradients flow through: the formulas of :mod:`fedmoments.core.maps`, in float64 as there.
"""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedmoments.core.classifier import Classifier
from fedmoments.core.classifier.quadratic import DiagonalClassifier, LowRankClassifier, QuadraticClassifier
from fedmoments.core.maps import (
    Chain,
    Clip,
    Directions,
    FeatureMap,
    Identity,
    Normalize,
    Offset,
    Power,
    RandomFourier,
    RandomProjection,
)
from fedmoments.errors import InputError
from fedmoments.tuning.start import BIAS, WEIGHTS, Start

__all__ = ["TorchHead", "differentiable"]


Function = Callable[[Tensor], Tensor]


def differentiable(feature_map: FeatureMap | None) -> Function | None:
    """Return a map (n, d) → (n, k) of float64 tensors; None for the map that changes nothing.

    Examples
    --------
    >>> function = differentiable(Normalize())
    >>> function(torch.tensor([[3.0, 4.0]], dtype=torch.float64)).tolist()
    [[0.6, 0.8]]
    """
    if feature_map is None or isinstance(feature_map, Identity):
        return None
    if isinstance(feature_map, Chain):
        return _chain([differentiable(part) for part in feature_map.maps])
    for kind, make in _MAKERS.items():
        if isinstance(feature_map, kind):
            return make(feature_map)
    kinds: list[type[FeatureMap]] = [Identity, *_MAKERS]
    able = ", ".join(kind.kind for kind in kinds)
    raise InputError(
        f"an encoder cannot be tuned behind the feature map '{feature_map.kind}': gradients are known of {able}. Tune "
        "the head alone (stage lp), or fit it behind another map"
    )


def _chain(functions: list[Function | None]) -> Function:
    def apply(x: Tensor) -> Tensor:
        for function in functions:
            x = x if function is None else function(x)
        return x

    return apply


def _power(feature_map: Power) -> Function:
    # |x|^p has no slope at 0: the smallest normal number stands for what is smaller, and zeros stay zeros.
    return lambda x: torch.sign(x) * torch.clamp(torch.abs(x), min=torch.finfo(x.dtype).tiny) ** feature_map.exponent


def _normalize(_feature_map: Normalize) -> Function:
    def apply(x: Tensor) -> Tensor:
        lengths = torch.linalg.vector_norm(x, dim=1, keepdim=True)
        return x / torch.where(lengths == 0, 1.0, lengths)

    return apply


def _clip(feature_map: Clip) -> Function:
    def apply(x: Tensor) -> Tensor:
        lengths = torch.linalg.vector_norm(x, dim=1, keepdim=True)
        margin = (x.shape[1] + 8) * np.finfo(np.float64).eps
        shorter = feature_map.norm * (1.0 - margin) / torch.where(lengths == 0, 1.0, lengths)
        return x * torch.where(lengths > feature_map.norm, shorter, 1.0)

    return apply


def _offset(feature_map: Offset) -> Function:
    vector = _tensor(feature_map.array)
    return lambda x: x - vector.to(x.device)


def _projection(feature_map: RandomProjection | Directions) -> Function:
    matrix = _tensor(feature_map.matrix)
    return lambda x: x @ matrix.to(x.device)


def _fourier(feature_map: RandomFourier) -> Function:
    frequencies, phases = _tensor(feature_map.frequencies), _tensor(feature_map.phases)
    scale = float(np.sqrt(2.0 / feature_map.n_features))
    return lambda x: torch.cos(x @ frequencies.to(x.device) + phases.to(x.device)) * scale


def _tensor(array: NDArray[np.float64]) -> Tensor:
    return torch.from_numpy(np.array(array, np.float64))


_MAKERS: dict[type[FeatureMap], Callable[..., Function]] = {
    Normalize: _normalize,
    Clip: _clip,
    Offset: _offset,
    Power: _power,
    RandomProjection: _projection,
    Directions: _projection,
    RandomFourier: _fourier,
}


Floats = NDArray[np.float64]
Base = Callable[[Tensor], Tensor]


class TorchHead(nn.Module):
    """Scores (n, P) of features (n, d) for the P present classes, divided by the temperature.

    Parameters
    ----------
    start
        Whose map, offset, subspace, base, parameters and temperature these are.
    dim
        d, of the encoder's features.

    Examples
    --------
    >>> from fedmoments.tuning.start import random_start
    >>> start = random_start(4, np.array([True, False, True]), seed=0)
    >>> TorchHead(start, 4)(torch.zeros(5, 4)).shape
    torch.Size([5, 2])
    """

    def __init__(self, start: Start, dim: int) -> None:
        super().__init__()
        classifier = start.classifier
        width = classifier.feature_map.output_dim(dim) if classifier.feature_map else dim
        if width != classifier.dim:
            raise InputError(
                f"the start '{start.name}' scores features of {classifier.dim} dimensions, but the encoder's are of "
                f"{width}: was it fitted behind another encoder?"
            )
        self._map = differentiable(classifier.feature_map)
        self._offset = _constant(getattr(classifier, "offset", None))
        self._basis = _constant(getattr(classifier, "basis", None))
        self._base = _base(classifier)
        self._present = torch.from_numpy(np.flatnonzero(start.present))
        self._temperature = start.temperature
        arrays = start.arrays()
        self.weights = nn.Parameter(torch.from_numpy(arrays[WEIGHTS].copy()))
        self.bias = nn.Parameter(torch.from_numpy(arrays[BIAS].copy()))

    def forward(self, features: Tensor) -> Tensor:
        x = features.double()
        if self._map is not None:
            x = self._map(x)
        if self._offset is not None:
            x = x - self._offset.to(x.device)
        if self._basis is not None:
            x = x @ self._basis.to(x.device)
        present = self._present.to(x.device)
        scores = (x.float() @ self.weights + self.bias)[:, present]
        if self._base is not None:
            frozen = self._base(x)[:, present]  # less the highest of its row, which saves digits in float32
            scores = scores + (frozen - frozen.max(1, keepdim=True).values).float()
        return scores / self._temperature


def _constant(array: Floats | None) -> Tensor | None:
    return None if array is None else torch.from_numpy(np.array(array, np.float64))


def _base(classifier: Classifier) -> Base | None:
    """Return the frozen scores (n, C) of centred features (n, k); 0 for classes without samples."""
    if isinstance(classifier, QuadraticClassifier):
        return _quadratic(classifier)
    if isinstance(classifier, LowRankClassifier):
        return _low_rank(classifier)
    if isinstance(classifier, DiagonalClassifier):
        return _diagonal(classifier)
    return None


def _diagonal(classifier: DiagonalClassifier | LowRankClassifier) -> Base:
    present = classifier.present
    means, precisions = classifier.means[present], classifier.precisions[present]
    weighted = means * precisions
    constant = _spread(classifier.bias[present] - 0.5 * np.einsum("cd,cd->c", means, weighted), present)
    linear, square = _spread(weighted.T, present), _spread(0.5 * precisions.T, present)
    return lambda x: x @ linear.to(x.device) - x.square() @ square.to(x.device) + constant.to(x.device)


def _low_rank(classifier: LowRankClassifier) -> Base:
    diagonal = _diagonal(classifier)
    present = classifier.present
    projections = torch.from_numpy(np.where(present[:, None, None], classifier.projections, 0.0))
    shift = torch.einsum("crd,cd->cr", projections, torch.from_numpy(np.where(present[:, None], classifier.means, 0.0)))

    def apply(x: Tensor) -> Tensor:
        inside = torch.einsum("nd,crd->ncr", x, projections.to(x.device)) - shift.to(x.device)
        return diagonal(x) + 0.5 * inside.square().sum(2)

    return apply


def _quadratic(classifier: QuadraticClassifier) -> Base:
    present = np.flatnonzero(classifier.present)
    whiteners = torch.from_numpy(classifier.whiteners[present])
    means, bias = torch.from_numpy(classifier.means[present]), torch.from_numpy(classifier.bias[present])
    C = classifier.n_classes

    def apply(x: Tensor) -> Tensor:
        scores = x.new_zeros(len(x), C)
        columns = [
            b - 0.5 * ((x - mean) @ whitener.T).square().sum(1)
            for whitener, mean, b in zip(whiteners.to(x.device), means.to(x.device), bias.to(x.device), strict=True)
        ]
        scores[:, torch.from_numpy(present).to(x.device)] = torch.stack(columns, 1)
        return scores

    return apply


def _spread(columns: Floats, present: NDArray[np.bool_]) -> Tensor:
    """Return columns of present classes among zeros for the others."""
    full = np.zeros((*columns.shape[:-1], len(present)))
    full[..., present] = columns
    return torch.from_numpy(full)
