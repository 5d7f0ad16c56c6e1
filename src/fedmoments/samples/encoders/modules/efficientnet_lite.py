"""EfficientNet-Lite0 (Tan and Le, 2019, arXiv:1905.11946; no squeeze-and-excitation, ReLU6) of its PyPI package."""

from typing import Any

from torch import Tensor, nn

__all__ = ["EfficientNetLite0"]


class EfficientNetLite0(nn.Module):
    """Maps (n, 1280, ⌈h/32⌉, ⌈w/32⌉) of images (n, 3, h, w).

    Parameters
    ----------
    package
        The imported package ``efficientnet_lite_pytorch``.
    size
        Side of the images: TensorFlow's padding is asymmetric and depends on it.
    """

    def __init__(self, package: Any, size: int) -> None:
        super().__init__()
        self.net = package.EfficientNet.from_name("efficientnet-lite0", image_size=size)

    def forward(self, x: Tensor) -> Tensor:
        maps: Tensor = self.net.extract_features(x)
        return maps

    def scores(self, maps: Tensor) -> Tensor:
        """Return ImageNet scores (n, 1000) of maps (n, 1280, h, w)."""
        scores: Tensor = self.net._fc(maps.mean((2, 3)))
        return scores
