"""Write a torch encoder as an ONNX file, once; onnxruntime then runs it without torch, and faster.

On one core 1.4 to 3.4 times as fast as torch, for the bundled image encoders at 96 and 224 pixels.
"""

import io
import os
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from fedmoments.errors import FedMomentsError, FileFormatError
from fedmoments.extras import require
from fedmoments.files import write_whole
from fedmoments.samples.encoders.encoder import Encoder, fingerprint_of
from fedmoments.samples.encoders.folders import cache_folder
from fedmoments.samples.encoders.onnx_file import OnnxParts, read_description, sealed
from fedmoments.samples.encoders.onnx_runtime import session
from fedmoments.samples.encoders.probe import Behaviour
from fedmoments.samples.encoders.torch_runtime import inference

__all__ = ["OPSET", "TOLERANCE", "Exportable", "cached_export", "export_onnx", "traced"]

#: Largest difference of a feature between torch and ONNX that an export may show on its trial, per unit of the
#: largest feature where that is above one.
TOLERANCE = 1e-3
OPSET = 17
_FORMAT = 2
# The exporter keeps global state; and one process exports one file at a time.
_LOCK = threading.Lock()


@runtime_checkable
class Exportable(Protocol):
    """A torch encoder that can be written as ONNX."""

    def onnx_parts(self) -> OnnxParts:
        """Return the module to trace, example inputs and axes."""
        ...


def export_onnx(encoder: Encoder, path: str | os.PathLike[str]) -> Path:
    """Write a torch encoder as a self-describing ONNX file, whole or not at all, after a trial against torch.

    The file takes what :meth:`Encoder.prepare` makes (normalisation is inside) in batches of any size, and loads again
    with ``load_encoder("onnx:FILE")`` with the same fingerprint (image encoders).

    Parameters
    ----------
    encoder
        One that runs on torch.
    path
        The file.

    Raises
    ------
    FedMomentsError
        When the encoder does not run on torch, or ONNX does not give the same features to 1e-3.
    """
    with _LOCK:
        parts = _parts(encoder)
        description = {
            "format": _FORMAT,
            "kind": parts.kind,
            "name": encoder.name,
            "dim": encoder.dim,
            "weights": encoder.weights_hash,
            "preprocessing": dict(encoder.preprocessing),
            "behaviour": encoder.behaviour.to_text(),
        }
        model = _exported(parts)
        _try_out(encoder, parts, model)
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        write_whole(target, sealed(model, description))
    return target


def traced(encoder: Encoder) -> bytes:
    """Return the ONNX model of a torch encoder, after a trial against torch: prepared samples in, ``features`` out."""
    with _LOCK:
        parts = _parts(encoder)
        model = _exported(parts)
        _try_out(encoder, parts, model)
    return model


def _parts(encoder: Encoder) -> OnnxParts:
    if not isinstance(encoder, Exportable):
        raise FedMomentsError(
            f"the encoder '{encoder.name}' cannot be exported to ONNX: image encoders (with the runtime torch) "
            "and minilm can"
        )
    return encoder.onnx_parts()


def cached_export(
    fingerprint: str,
    build: Callable[[], Encoder],
    cache: str | os.PathLike[str] | None = None,
    behaviour: Behaviour | None = None,
) -> Path:
    """Return the ONNX file of an encoder, exporting it if there is none, a damaged one, or one that does other things.

    Two processes that start together both export and the later file takes the place of the earlier, equal one.

    Parameters
    ----------
    fingerprint
        Of the encoder.
    build
        Makes the torch encoder; called only if it must be exported.
    cache
        The folder, see :func:`~fedmoments.samples.encoders.folders.cache_folder`.
    behaviour
        Of the encoder, where it is loaded: code that is not ours may have changed since it was exported.
    """
    path = cache_folder("onnx", cache) / f"{fingerprint}-{_FORMAT}.onnx"
    return path if _is_export_of(fingerprint, behaviour, path) else export_onnx(build(), path)


def _is_export_of(fingerprint: str, behaviour: Behaviour | None, path: Path) -> bool:
    try:
        said = read_description(path) if path.is_file() else None
    except FileFormatError:  # a damaged file in a cache is exported again
        return False
    if said is None or fingerprint != fingerprint_of(said["weights"], said["preprocessing"], said["dim"]):
        return False
    return behaviour is None or behaviour.agrees(Behaviour.from_text(said.get("behaviour")))


def _exported(parts: OnnxParts) -> bytes:
    torch = require("torch", "Exporting to ONNX", "torch")
    buffer = io.BytesIO()
    *inputs, output = parts.axes
    with warnings.catch_warnings():
        # The exporter that needs nothing but torch is deprecated in favour of one that needs onnxscript; it also warns
        # of constants that it leaves unfolded, of shapes that it takes as fixed, as they are here.
        warnings.simplefilter("ignore")
        torch.onnx.export(
            parts.module,
            parts.inputs,
            buffer,
            dynamo=False,
            opset_version=OPSET,
            input_names=inputs,
            output_names=[output],
            dynamic_axes=parts.axes,
        )
    return buffer.getvalue()


def _try_out(encoder: Encoder, parts: OnnxParts, model: bytes) -> None:
    """Compare ONNX and torch on noise, in a batch of another size than the exporter saw."""
    torch = require("torch", "Exporting to ONNX", "torch")
    rng = np.random.default_rng(0)
    trial = [_noise(tensor, name, rng) for name, tensor in zip(parts.axes, parts.inputs, strict=False)]
    device = parts.inputs[0].device
    with inference(device, threads=1):
        expected = parts.module(*(torch.from_numpy(array).to(device) for array in trial)).float().cpu().numpy()
    runner = session(model, encoder.name, threads=1)
    got = runner.run(["features"], dict(zip(parts.axes, trial, strict=False)))[0]
    scale = max(1.0, float(np.abs(expected).max()))
    worst = float(np.abs(got - expected).max()) if got.shape == expected.shape else float("inf")
    if not worst <= TOLERANCE * scale:
        raise FedMomentsError(
            f"the ONNX export of '{encoder.name}' is not faithful: on a trial its features differ from torch by "
            f"{worst:.2g}, more than {TOLERANCE * scale:.2g}; use runtime='torch'"
        )


def _noise(tensor: Any, name: str, rng: np.random.Generator) -> Any:
    array = tensor.cpu().numpy()
    shape = (3, *array.shape[1:])
    if name == "attention_mask":
        lengths = np.arange(array.shape[1], array.shape[1] - 3, -1)
        return (np.arange(array.shape[1]) < lengths[:, np.newaxis]).astype(array.dtype)
    if name == "token_type_ids":
        return np.zeros(shape, array.dtype)
    return rng.integers(0, 256, shape).astype(array.dtype)
