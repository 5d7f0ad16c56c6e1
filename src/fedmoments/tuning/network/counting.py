"""What a network costs: multiply-adds of a forward pass, and parameters that are trained.

A convolution with c outputs of h × w, g groups, cᵢ inputs and a kernel a × b takes c·h·w·(cᵢ/g)·a·b multiply-adds, a
linear layer outputs × inputs for every row. Biases, normalisation, activations, pooling, embeddings and the products
inside attention are not counted. A step of training is charged three forward passes.
"""

from typing import Any

from fedmoments.extras import require
from fedmoments.samples.encoders.encoder import Encoder

__all__ = ["forward_flops", "parameter_count"]


def forward_flops(encoder: Encoder, *, tokens: int = 16) -> float:
    """Return the multiply-adds of encoding one sample.

    Parameters
    ----------
    encoder
        One with a torch network.
    tokens
        Length of a sentence; images have the encoder's size.

    Examples
    --------
    >>> from fedmoments.samples.encoders import load_encoder
    >>> round(forward_flops(load_encoder("mobilenet-v2", threads=1)) / 1e6)
    299
    """
    torch = require("torch", "Counting operations", "torch")
    from fedmoments.tuning.network.modules.networks import network_of, taking_part

    network = network_of(encoder)
    counted = 0.0

    def count(module: Any, _inputs: Any, output: Any) -> None:
        nonlocal counted
        weight = module.weight
        if isinstance(module, torch.nn.Linear):
            counted += output.numel() * weight.shape[1]
        else:  # (outputs, inputs/groups, kernel …)
            counted += output.numel() * weight[0].numel()

    kinds = (torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d, torch.nn.Linear)
    used = {id(parameter) for parameter in taking_part(network).values()}
    layers = [layer for layer in network.modules() if isinstance(layer, kinds) and id(layer.weight) in used]
    hooks = [layer.register_forward_hook(count) for layer in layers]
    try:
        with torch.inference_mode():
            network(*network.trial(tokens))
    finally:
        for hook in hooks:
            hook.remove()
    return counted


def parameter_count(encoder: Encoder) -> int:
    """Return b, the numbers that tuning trains and sends: those that features depend on, without running values.

    Examples
    --------
    >>> from fedmoments.samples.encoders import load_encoder
    >>> parameter_count(load_encoder("squeezenet-1.1", size=32, threads=1))
    722496
    """
    require("torch", "Counting parameters", "torch")
    from fedmoments.tuning.network.modules.networks import network_of, taking_part

    return sum(parameter.numel() for parameter in taking_part(network_of(encoder)).values())
