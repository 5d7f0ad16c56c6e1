"""SqueezeNet 1.1 (Iandola et al., 2016, arXiv:1602.07360) as Keras has it: no padding but in the 3 × 3 expansions."""

import torch
from torch import Tensor, nn

__all__ = ["SqueezeNet"]

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
