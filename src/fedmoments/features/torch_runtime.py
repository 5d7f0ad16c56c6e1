"""Encoders that run on torch: device, threads, and a hash of weights that does not depend on either.

The same batch gives the same features, bit for bit, on the same machine with the same number of threads.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.errors import InputError
from fedmoments.extras import require
from fedmoments.features.batches import encode_in_batches
from fedmoments.features.image_encoder import ImageEncoder, stacked
from fedmoments.features.images import ImagePreprocessing
from fedmoments.features.onnx_file import OnnxParts

__all__ = ["TorchImageEncoder", "chosen_device", "hash_of_state", "inference", "load_state"]


class TorchImageEncoder(ImageEncoder):
    """An image encoder on torch.

    Parameters
    ----------
    name, images, pooling, weights_hash, batch_size
        As of :class:`~fedmoments.features.image_encoder.ImageEncoder`.
    model
        A :class:`~fedmoments.features.modules.pixels.PixelModel`.
    device
        Any that torch offers.
    threads
        On a CPU; None leaves torch's own number.
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
        self.threads = threads
        with inference(self.device, threads):
            dim = model(torch.zeros(1, 3, images.size, images.size, dtype=torch.uint8, device=self.device)).shape[1]
        super().__init__(name, images, pooling=pooling, weights_hash=weights_hash, dim=dim, batch_size=batch_size)

    def encode(self, batch: Sequence[Any]) -> NDArray[np.float32]:
        return encode_in_batches(batch, self.batch_size, self.dim, lambda part: self._run(self.model, part))

    def classify(self, batch: Sequence[Any]) -> NDArray[np.float32]:
        """Return the scores (n, classes) of the model's own classification layer for prepared images."""
        if self.model.classifier is None:
            raise InputError(f"the encoder '{self.name}' has no classification layer of its own")
        return self._run(self.model.classify, batch)

    def onnx_parts(self) -> OnnxParts:
        """Return what :func:`~fedmoments.features.onnx_export.export_onnx` needs."""
        torch = require("torch", "Exporting to ONNX", "torch")
        size = self.images.size
        pixels = torch.zeros(2, 3, size, size, dtype=torch.uint8, device=self.device)
        return OnnxParts("image", self.model, (pixels,), {"pixels": {0: "n"}, "features": {0: "n"}})

    def _run(self, function: Any, batch: Sequence[Any]) -> NDArray[np.float32]:
        torch = require("torch", f"The encoder '{self.name}'", "torch")
        with inference(self.device, self.threads):
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
