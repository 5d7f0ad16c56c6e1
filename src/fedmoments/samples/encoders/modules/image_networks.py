"""Networks for images, as their packages have them.

SqueezeNet 1.1 (Iandola et al., 2016, arXiv:1602.07360) as Keras has it: no padding but in the 3 × 3 expansions.

EfficientNet-Lite0 (Tan and Le, 2019, arXiv:1905.11946; no squeeze-and-excitation, ReLU6) of its PyPI package.

MobileNetV2 (Sandler et al., 2018, arXiv:1801.04381, table 2) with the parameter names of torchvision.
"""

from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["EfficientNetLite", "MobileNetV2", "SqueezeNet"]


class EfficientNetLite(nn.Module):
    """Maps (n, 1280, ⌈h/32⌉, ⌈w/32⌉) of images (n, 3, h, w).

    Parameters
    ----------
    package
        The imported package ``efficientnet_lite_pytorch``.
    name
        Of the variant, as the package has it.
    size
        Side of the images: TensorFlow's padding is asymmetric and depends on it.
    """

    def __init__(self, package: Any, name: str, size: int) -> None:
        super().__init__()
        self.net = package.EfficientNet.from_name(name, image_size=size)

    def forward(self, x: Tensor) -> Tensor:
        maps: Tensor = self.net.extract_features(x)
        return maps

    def scores(self, maps: Tensor) -> Tensor:
        """Return ImageNet scores (n, 1000) of maps (n, 1280, h, w)."""
        scores: Tensor = self.net._fc(maps.mean((2, 3)))
        return scores


# Expansion t, channels c, repetitions n, stride s of the first: table 2 of the paper.
_TABLE = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def _convolution(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, (kernel - 1) // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU6(),
    )


class _InvertedResidual(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = inputs * expansion
        expand = [_convolution(inputs, hidden, 1)] if expansion != 1 else []
        self.shortcut = stride == 1 and inputs == outputs
        self.conv = nn.Sequential(
            *expand,
            _convolution(hidden, hidden, 3, stride, groups=hidden),
            nn.Conv2d(hidden, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.conv(x)
        return x + y if self.shortcut else y


class MobileNetV2(nn.Module):
    """Maps (n, 1280, h/32, w/32) of images (n, 3, h, w); ``classifier`` gives ImageNet scores of their means."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [_convolution(3, 32, 3, stride=2)]
        inputs = 32
        for expansion, outputs, repetitions, stride in _TABLE:
            for index in range(repetitions):
                layers.append(_InvertedResidual(inputs, outputs, stride if index == 0 else 1, expansion))
                inputs = outputs
        self.features = nn.Sequential(*layers, _convolution(inputs, 1280, 1))
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, 1000))

    def forward(self, x: Tensor) -> Tensor:
        maps: Tensor = self.features(x)
        return maps

    def scores(self, maps: Tensor) -> Tensor:
        """Return ImageNet scores (n, 1000) of maps (n, 1280, h, w)."""
        scores: Tensor = self.classifier(maps.mean((2, 3)))
        return scores


# Channels in, squeezed, expanded (each half) of the modules fire2 … fire9; pooling comes before fire2, fire4, fire6.
_FIRES = (
    ("fire2", 64, 16, 64),
    ("fire3", 128, 16, 64),
    ("fire4", 128, 32, 128),
    ("fire5", 256, 32, 128),
    ("fire6", 256, 48, 192),
    ("fire7", 384, 48, 192),
    ("fire8", 384, 64, 256),
    ("fire9", 512, 64, 256),
)
_POOL_BEFORE = ("fire2", "fire4", "fire6")


class _Fire(nn.Module):
    def __init__(self, inputs: int, squeezed: int, expanded: int) -> None:
        super().__init__()
        self.squeeze1x1 = nn.Conv2d(inputs, squeezed, 1)
        self.expand1x1 = nn.Conv2d(squeezed, expanded, 1)
        self.expand3x3 = nn.Conv2d(squeezed, expanded, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        squeezed = torch.relu(self.squeeze1x1(x))
        return torch.relu(torch.cat([self.expand1x1(squeezed), self.expand3x3(squeezed)], 1))


class SqueezeNet(nn.Module):
    """Maps (n, 512, h', w') of images (n, 3, h, w): the output of the last fire module."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 3, stride=2)
        self.pool = nn.MaxPool2d(3, stride=2)
        for name, inputs, squeezed, expanded in _FIRES:
            self.add_module(name, _Fire(inputs, squeezed, expanded))
        self.conv10 = nn.Conv2d(512, 1000, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.conv1(x))
        for name, *_ in _FIRES:
            if name in _POOL_BEFORE:
                x = self.pool(x)
            x = self.get_submodule(name)(x)
        return x

    def scores(self, maps: Tensor) -> Tensor:
        """Return ImageNet scores (n, 1000) of maps (n, 512, h, w)."""
        return torch.relu(self.conv10(maps)).mean((2, 3))
