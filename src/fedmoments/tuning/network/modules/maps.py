"""Feature maps that gradients flow through: the formulas of :mod:`fedmoments.core.maps`, in float64 as there."""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

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

__all__ = ["differentiable"]

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
