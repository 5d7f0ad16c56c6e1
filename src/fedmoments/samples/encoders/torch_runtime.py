"""Encoders that run on torch: device, threads, and a hash of weights that does not depend on either.

On a CPU a batch of images is encoded by one thread, and several batches at the same time; a short batch is filled up to
the full size. For torch chooses kernels by the size of the batch and the number of threads, and the last bits of an
image's features would depend on how many others there were and on the cores of the machine. So they depend on the image
alone, whoever encodes it in whatever order, on machines of one kind with the same batch size.
"""

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.errors import InputError
from fedmoments.extras import require
from fedmoments.samples.encoders.batches import encode_in_batches
from fedmoments.samples.encoders.image_encoder import ImageEncoder, stacked
from fedmoments.samples.encoders.images import ImagePreprocessing
from fedmoments.samples.encoders.onnx_file import OnnxParts
from fedmoments.samples.encoders.probe import probe_pixels

__all__ = ["TorchImageEncoder", "chosen_device", "hash_of_state", "inference", "load_state"]


class TorchImageEncoder(ImageEncoder):
    """An image encoder on torch.

    Parameters
    ----------
    name, images, pooling, weights_hash, batch_size
        As of :class:`~fedmoments.samples.encoders.image_encoder.ImageEncoder`.
    model
        A :class:`~fedmoments.samples.encoders.modules.pixels.PixelModel`.
    device
        Any that torch offers.
    threads
        On a CPU: batches that are encoded at the same time; as many as there are cores by default.
    """

    def __init__(
        self,
        name: str,
        images: ImagePreprocessing,
        *,
        pooling: str,
        weights_hash: str,
        model: Any,
        device: str = "cpu",
        threads: int | None = None,
        batch_size: int | None = None,
    ) -> None:
        torch = require("torch", f"The encoder '{name}'", "torch")
        self.device = chosen_device(device)
        # Channels last: 1.2 to 2 times as fast on one core for the bundled networks; features change by rounding only.
        self.model = model.eval().requires_grad_(requires_grad=False).to(self.device, memory_format=torch.channels_last)
        self.parallel = (threads or os.cpu_count() or 1) if self.device.type == "cpu" else 1
        with inference(self.device, 1):
            dim = model(torch.zeros(1, 3, images.size, images.size, dtype=torch.uint8, device=self.device)).shape[1]
        super().__init__(name, images, pooling=pooling, weights_hash=weights_hash, dim=dim, batch_size=batch_size)

    def encode(self, batch: Sequence[Any]) -> NDArray[np.float32]:
        return encode_in_batches(batch, self.batch_size, self.dim, self._full_batch, self.parallel)

    def probed(self) -> NDArray[np.float32]:
        return self._run(self.model, list(probe_pixels(self.images.size)))  # not filled up to a batch: half the time

    def _full_batch(self, batch: Sequence[Any]) -> NDArray[np.float32]:
        pixels = stacked(batch)
        missing = self.batch_size - len(pixels)
        full: Any = np.concatenate([pixels, np.repeat(pixels[-1:], missing, axis=0)]) if missing > 0 else pixels
        return self._run(self.model, full)[: len(pixels)]

    def classify(self, batch: Sequence[Any]) -> NDArray[np.float32]:
        """Return the scores (n, classes) of the model's own classification layer for prepared images."""
        if self.model.classifier is None:
            raise InputError(f"the encoder '{self.name}' has no classification layer of its own")
        return self._run(self.model.classify, batch)

    def onnx_parts(self) -> OnnxParts:
        """Return what :func:`~fedmoments.samples.encoders.onnx_export.export_onnx` needs."""
        torch = require("torch", "Exporting to ONNX", "torch")
        size = self.images.size
        pixels = torch.zeros(2, 3, size, size, dtype=torch.uint8, device=self.device)
        return OnnxParts("image", self.model, (pixels,), {"pixels": {0: "n"}, "features": {0: "n"}})

    def _run(self, function: Any, batch: Sequence[Any]) -> NDArray[np.float32]:
        torch = require("torch", f"The encoder '{self.name}'", "torch")
        with inference(self.device, 1):
            pixels = torch.from_numpy(stacked(batch)).to(self.device)
            features: NDArray[np.float32] = function(pixels).float().cpu().numpy()
        return features


@contextmanager
def inference(device: Any, threads: int | None) -> Iterator[None]:
    """Run without gradients, with this many threads on the CPU and reproducible kernels on a GPU; then put all back.

    Threads are set here and not once for all: torch keeps their number for each calling thread.
    """
    torch = require("torch", "The encoder", "torch")
    before = torch.get_num_threads()
    try:
        if threads is not None and threads != before:
            torch.set_num_threads(threads)
        with torch.inference_mode():
            if device.type != "cuda":
                yield
            else:
                with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False):
                    yield
    finally:
        if threads is not None and threads != before:
            torch.set_num_threads(before)


def chosen_device(name: str) -> Any:
    """Return a torch device, once it is known to work.

    Examples
    --------
    >>> chosen_device("cpu").type
    'cpu'
    """
    torch = require("torch", "The encoder", "torch")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).cpu()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        works = ["cpu"]
        if torch.cuda.is_available():
            works += [f"cuda:{index}" for index in range(torch.cuda.device_count())]
        if torch.backends.mps.is_available():
            works.append("mps")
        reason = str(error).partition("\n")[0]
        raise InputError(f"torch cannot use the device '{name}' ({reason}): here it has {', '.join(works)}") from error
    return device


def hash_of_state(state: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a state dict: names, types, shapes and little-endian bytes, in order of name.

    Examples
    --------
    >>> import torch
    >>> a, b = torch.zeros(2), torch.ones(3, dtype=torch.bfloat16)
    >>> hash_of_state({"a": a, "b": b}) == hash_of_state({"b": b, "a": a}), hash_of_state({"a": a})[:8]
    (True, '954e8d2f')
    """
    torch = require("torch", "The encoder", "torch")
    sha = hashlib.sha256()
    for name in sorted(state):
        if not isinstance(state[name], torch.Tensor):
            raise InputError(f"weights must be tensors to have a hash, but '{name}' is {type(state[name]).__name__}")
        tensor = state[name].detach().cpu().contiguous()
        sha.update(f"\n{name} {tensor.dtype} {tuple(tensor.shape)} ".encode())
        sha.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return sha.hexdigest()


def load_state(path: Any) -> dict[str, Any]:
    """Return a state dict from a file, running nothing that is in it."""
    torch = require("torch", "The encoder", "torch")
    state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    return state
