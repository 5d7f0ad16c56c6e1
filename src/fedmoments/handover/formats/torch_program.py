"""torch: a plain ``nn.Module``, and the program that ``torch.export`` makes of it.

``torch.export.load(FILE).module()`` runs it without fedmoments. It takes what the encoder takes, or features (n, d)
float32, and returns probabilities and scores, (n, C) float32 each; then, of a classifier that knows what is new to it,
familiarity (n,) float32.
"""

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedmoments.errors import FedMomentsError, InputError
from fedmoments.extras import require
from fedmoments.files import write_whole
from fedmoments.handover.export import Export
from fedmoments.handover.model import Model
from fedmoments.samples.encoders.onnx_export import Exportable

if TYPE_CHECKING:
    from torch import nn

__all__ = ["EXPORTS", "to_torch"]

WHAT = "Export to torch"


def to_torch(model: Model) -> "nn.Module":
    """Return a module from what the model takes to (probabilities, scores), float32, and familiarity where it is known.

    Examples
    --------
    >>> import torch
    >>> import fedmoments as fm
    >>> parties = {"a": ([[0.0, 1.0], [0.1, 0.9]], [0, 0]), "b": ([[1.0, 0.0]], [1])}
    >>> module = to_torch(Model(fm.fit("fedncm", parties)))
    >>> module(torch.tensor([[0.0, 2.0]]))[0].argmax().item()
    0
    """
    require("torch", WHAT, "torch")
    from fedmoments.handover.torch_module import ScoringModule

    network, examples = _inputs(model)
    return ScoringModule(model, network, examples)


def _inputs(model: Model) -> tuple[Any, tuple[Any, ...]]:
    """Return the encoder's network, if there is one, and example inputs."""
    encoder: Any = model.encoder
    if encoder is None:
        given = model.classifier.feature_map
        width = (given.required_dim() if given else None) or model.classifier.dim
        return None, (require("torch", WHAT, "torch").zeros(2, width),)
    if not isinstance(encoder, Exportable):
        raise InputError(
            f"the encoder '{encoder.name}' does not run on torch here: load it with runtime='torch', or export the "
            "head alone"
        )
    parts = encoder.onnx_parts()
    return parts.module, parts.inputs


def _write(model: Model, place: Path) -> list[Path]:
    torch = require("torch", WHAT, "torch")
    batch = torch.export.Dim("n", min=1, max=4096)
    _, examples = _inputs(model)
    shapes = tuple({0: batch} if example.ndim != 2 or model.encoder is None else {0: batch, 1: torch.export.Dim.AUTO}
                   for example in examples)  # fmt: skip
    module = to_torch(model)
    try:
        program = torch.export.export(module, examples, dynamic_shapes=(shapes,), strict=False)
    except Exception as error:  # whatever torch cannot trace, it says in ways of its own
        raise FedMomentsError(f"torch.export cannot trace this model: {str(error).partition(chr(10))[0]}") from error
    buffer = io.BytesIO()
    torch.export.save(program, buffer, extra_files={f"{name}.txt": text for name, text in model.notes().items()})
    write_whole(place, buffer.getvalue())
    return [place]


EXPORTS = (Export("torch", "a torch.export program (.pt2): torch.export.load runs it", _write, ".pt2"),)
