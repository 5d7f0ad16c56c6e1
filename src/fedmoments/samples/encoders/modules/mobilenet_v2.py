"""MobileNetV2 (Sandler et al., 2018, arXiv:1801.04381, table 2) with the parameter names of torchvision."""

from torch import Tensor, nn

__all__ = ["MobileNetV2"]

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
