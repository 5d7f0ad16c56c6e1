"""From pixels to features: normalise, run a network, pool."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from fedmoments.errors import InputError
from fedmoments.samples.encoders.images import ImagePreprocessing

__all__ = ["PixelModel"]


class PixelModel(nn.Module):
    """Features (n, d) of prepared images (n, 3, size, size), uint8.

    Parameters
    ----------
    body
        A network from normalised images to (n, d), a map (n, d, h, w) or tokens (n, t, d).
    images
        How images are normalised.
    pooling
        How a map or tokens become one vector: ``"mean"``, ``"max"``, or ``"cls"`` for the first token.
    classifier
        From what the body gives to scores (n, classes), if there is one.
    """

    mean: Tensor
    scale: Tensor

    def __init__(
        self,
        body: nn.Module,
        images: ImagePreprocessing,
        pooling: str,
        classifier: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.body = body
        self.pooling = pooling
        self.reverse = images.channels == "BGR"
        self.classifier = classifier
        self.register_buffer("mean", torch.tensor(images.mean).reshape(1, 3, 1, 1), persistent=False)
        self.register_buffer("scale", torch.tensor(images.scale).reshape(1, 3, 1, 1), persistent=False)

    def forward(self, pixels: Tensor) -> Tensor:
        return self._pooled(self._maps(pixels))

    def classify(self, pixels: Tensor) -> Tensor:
        """Return the scores (n, classes) of the network's own classification layer."""
        if self.classifier is None:
            raise InputError("this network has no classification layer")
        return self.classifier(self._maps(pixels))

    def _maps(self, pixels: Tensor) -> Tensor:
        ordered = pixels[:, [2, 1, 0]] if self.reverse else pixels
        normalized = (ordered.float() - self.mean) / self.scale
        maps = self.body(normalized.contiguous(memory_format=torch.channels_last))
        if not isinstance(maps, Tensor):
            raise InputError(f"the network must return a tensor, but returned {type(maps).__name__}")
        return maps

    def _pooled(self, maps: Tensor) -> Tensor:
        if maps.ndim == 2:
            return maps
        if maps.ndim not in (3, 4):
            raise InputError(f"the network's output must have 2, 3 or 4 axes, but its shape is {tuple(maps.shape)}")
        if maps.ndim == 3 and self.pooling == "cls":
            return maps[:, 0]
        if self.pooling not in ("mean", "max"):
            raise InputError(f"pooling '{self.pooling}' does not fit features of shape {tuple(maps.shape)}")
        axes = (2, 3) if maps.ndim == 4 else (1,)
        return maps.mean(axes) if self.pooling == "mean" else maps.amax(axes)
