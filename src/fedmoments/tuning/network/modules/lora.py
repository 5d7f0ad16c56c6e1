"""Low-rank adapters (LoRA, Hu et al., 2021, arXiv:2106.09685): a few numbers a layer are trained instead of all.

A linear layer with weights W (out, in) becomes x ↦ W·x + b + (α/r)·U·D·x with D (r, in), U (out, r) and α = 2r, so
that the step does not depend on the rank. W and b stay. U begins at 0: **law** the encoder with fresh adapters is the
encoder, to the last bit, and a run begins at the accuracy of its head. D is drawn from the plan's seed, uniform in
±√(3/in). Layers that features do not depend on have none. Afterwards W + (α/r)·U·D are the weights of a plain encoder.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedmoments.errors import InputError
from fedmoments.tuning.draws import stream
from fedmoments.tuning.network.modules.networks import Network, taking_part

__all__ = ["Adapted", "adapt", "merged_weights"]

#: α/r.
SCALE = 2.0
_DOWN, _UP = "lora_down", "lora_up"


class Adapted(nn.Module):
    """A linear layer that stays, with a low-rank change beside it.

    Examples
    --------
    >>> layer = nn.Linear(4, 3)
    >>> adapted = Adapted(layer, np.ones((2, 4), np.float32))
    >>> x = torch.ones(1, 4)
    >>> bool((adapted(x) == layer(x)).all()), sum(p.numel() for p in (adapted.lora_down, adapted.lora_up))
    (True, 14)
    """

    def __init__(self, layer: nn.Linear, down: NDArray[np.float32]) -> None:
        super().__init__()
        self.layer = layer
        self.lora_down = nn.Parameter(torch.from_numpy(down))
        self.lora_up = nn.Parameter(torch.zeros(layer.out_features, len(down)))

    @property
    def weight(self) -> Tensor:
        """W + (α/r)·U·D; some models look at a layer's weights."""
        return self.layer.weight + SCALE * (self.lora_up @ self.lora_down)

    @property
    def bias(self) -> Tensor | None:
        """Bias of the layer, which stays."""
        return self.layer.bias

    def forward(self, x: Tensor) -> Tensor:
        plain: Tensor = self.layer(x)
        return plain + SCALE * ((x @ self.lora_down.T) @ self.lora_up.T)


def adapt(network: Network, rank: int, seed: int) -> dict[str, nn.Parameter]:
    """Put adapters beside the linear layers of a network; return what is trained, by names of the body.

    Parameters
    ----------
    network
        Changed in place.
    rank
        r.
    seed
        Every D follows from it and from the name of its layer.
    """
    used = taking_part(network)
    linear = {
        name: module
        for name, module in network.body.named_modules()
        if isinstance(module, nn.Linear) and f"{name}.weight" in used
    }
    if not linear:
        raise InputError(
            "low-rank adapters stand beside linear layers, as transformers have them, but this encoder has none that "
            "its features depend on: tune it as a whole (--adapter none)"
        )
    trained: dict[str, nn.Parameter] = {}
    for name, layer in linear.items():
        if rank > min(layer.in_features, layer.out_features):
            most = min(layer.in_features, layer.out_features)
            raise InputError(f"adapters of rank {rank} are more than the layer '{name}' has: take {most} or fewer")
        bound = np.sqrt(3.0 / layer.in_features)
        drawn = stream(seed, "adapter", name).random((rank, layer.in_features)) * 2.0 * bound - bound
        adapted = Adapted(layer, drawn.astype(np.float32)).to(layer.weight.device)
        parent, _, own = name.rpartition(".")
        setattr(network.body.get_submodule(parent), own, adapted)
        trained |= {f"{name}.{_DOWN}": adapted.lora_down, f"{name}.{_UP}": adapted.lora_up}
    for parameter in network.parameters():
        parameter.requires_grad = False
    return trained


def merged_weights(network: Network) -> dict[str, NDArray[np.float32]]:
    """Return the weights of the adapted layers with their changes added, by the names of the plain body."""
    return {
        f"{name}.weight": np.array(module.weight.detach().cpu().numpy(), np.float32)
        for name, module in network.body.named_modules()
        if isinstance(module, Adapted)
    }
