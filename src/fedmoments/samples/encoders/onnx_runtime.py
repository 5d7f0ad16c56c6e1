"""Encoders that run on onnxruntime."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.errors import FileFormatError, InputError
from fedmoments.extras import require
from fedmoments.samples.encoders.batches import encode_in_batches
from fedmoments.samples.encoders.image_encoder import ImageEncoder, stacked
from fedmoments.samples.encoders.images import ImagePreprocessing

__all__ = ["OnnxImageEncoder", "session"]


class OnnxImageEncoder(ImageEncoder):
    """An image encoder on onnxruntime.

    Parameters
    ----------
    name, images, pooling, weights_hash, batch_size
        As of :class:`~fedmoments.samples.encoders.image_encoder.ImageEncoder`.
    path
        The ONNX file. It takes images (n, 3, size, size): uint8 as they were prepared, or float32, normalised here.
        Its output ``features``, or its first, is (n, d), (n, d, h, w) or (n, tokens, d), pooled here.
    device, threads
        As of :func:`session`.
    """

    def __init__(
        self,
        name: str,
        images: ImagePreprocessing,
        *,
        pooling: str,
        weights_hash: str,
        path: Path,
        device: str = "cpu",
        threads: int | None = None,
        batch_size: int | None = None,
    ) -> None:
        self.session = session(path, name, device, threads)
        self._input = self.session.get_inputs()[0]
        outputs = [output.name for output in self.session.get_outputs()]
        self._output = "features" if "features" in outputs else outputs[0]
        self.images, self.pooling = images, pooling
        fixed = self._input.shape[0]
        #: A model may have been exported for one size of batch; then the last batch is filled up.
        self._fixed_batch = fixed if isinstance(fixed, int) else None
        dim = self._run(np.zeros((1, 3, images.size, images.size), np.uint8)).shape[1]
        super().__init__(
            name,
            images,
            pooling=pooling,
            weights_hash=weights_hash,
            dim=dim,
            batch_size=self._fixed_batch or batch_size,
        )

    def encode(self, batch: Sequence[Any]) -> NDArray[np.float32]:
        return encode_in_batches(batch, self.batch_size, self.dim, lambda part: self._run(stacked(part)))

    def _run(self, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        n = len(pixels)
        if self._fixed_batch and n < self._fixed_batch:
            pixels = np.concatenate([pixels, np.zeros((self._fixed_batch - n, *pixels.shape[1:]), np.uint8)])
        given = pixels if self._input.type == "tensor(uint8)" else self.images.normalize(pixels)
        return _pooled(self.session.run([self._output], {self._input.name: given})[0][:n], self.pooling)


def session(model: bytes | Path, name: str, device: str = "cpu", threads: int | None = None) -> Any:
    """Return an onnxruntime session.

    Parameters
    ----------
    model
        The bytes of an ONNX file, or its path.
    name
        Of the encoder, for messages.
    device
        ``"cpu"``, ``"cuda"``, or ``"cuda:1"``.
    threads
        For one operator; None leaves onnxruntime's own number, all cores.
    """
    runtime = require("onnxruntime", f"The encoder '{name}' on ONNX", "onnx")
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = threads or 0
    options.inter_op_num_threads = 1
    # A thread that waits must not burn the core that decodes the next images.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        source = model if isinstance(model, bytes) else str(model)
        return runtime.InferenceSession(source, options, providers=_providers(runtime, device))
    except InputError:
        raise
    except Exception as error:  # onnxruntime has a class of its own for each kind of bad file
        shown = "the model" if isinstance(model, bytes) else str(model)
        raise FileFormatError(f"onnxruntime cannot load {shown} of the encoder '{name}': {error}") from error


def _providers(runtime: Any, device: str) -> list[Any]:
    kind, _, index = device.partition(":")
    available = runtime.get_available_providers()
    if kind == "cpu":
        return ["CPUExecutionProvider"]
    if kind == "cuda" and "CUDAExecutionProvider" in available and index in ("", *map(str, range(64))):
        return [("CUDAExecutionProvider", {"device_id": index or "0", "use_tf32": "0"}), "CPUExecutionProvider"]
    raise InputError(
        f"onnxruntime cannot use the device '{device}': 'cpu' works always, 'cuda' with the package onnxruntime-gpu; "
        f"here it has {', '.join(available)}"
    )


def _pooled(features: NDArray[np.float32], pooling: str) -> NDArray[np.float32]:
    """Return (n, d) of (n, d), a map (n, d, h, w) or tokens (n, t, d)."""
    if features.ndim == 2:
        return features
    if features.ndim not in (3, 4):
        raise InputError(f"the model's output must have 2, 3 or 4 axes, but its shape is {features.shape}")
    if features.ndim == 3 and pooling == "cls":
        return features[:, 0]
    if pooling not in ("mean", "max"):
        raise InputError(f"pooling '{pooling}' does not fit features of shape {features.shape}")
    axes = (2, 3) if features.ndim == 4 else (1,)
    pooled: NDArray[np.float32] = features.mean(axes) if pooling == "mean" else features.max(axes)
    return pooled
