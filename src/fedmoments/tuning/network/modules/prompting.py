"""Visual prompts as what is trained: drawn from the plan's seed, or those that the encoder was tuned with before."""

import numpy as np
import torch
from torch import nn

from fedmoments.errors import InputError
from fedmoments.samples.encoders.modules.prompts import add_prompts, prompts_of, token_layer
from fedmoments.tuning.draws import stream
from fedmoments.tuning.network.modules.networks import Network

__all__ = ["prompt"]


def prompt(network: Network, number: int, seed: int) -> dict[str, nn.Parameter]:
    """Give a network prompts, the rest being frozen; return what is trained, by names of the body.

    New ones are uniform in ±√(6/(3s² + h)), s being the side of a patch and h the width of a token (as its authors draw
    them). Unlike fresh low-rank adapters they change features from the first round on.

    Parameters
    ----------
    network
        Changed in place.
    number
        How many prompts.
    seed
        New ones follow from it.
    """
    before, (_, layer) = prompts_of(network.body), token_layer(network.body)
    if before is None:
        patches = next(module for module in layer.modules() if isinstance(module, nn.Conv2d))
        bound = np.sqrt(6.0 / (3 * np.prod(patches.kernel_size) + patches.out_channels))
        drawn = stream(seed, "prompts").uniform(-bound, bound, (number, patches.out_channels))
        add_prompts(network.body, torch.from_numpy(drawn.astype(np.float32)))
    elif len(before) != number:
        raise InputError(f"this encoder was tuned with {len(before)} prompts: take adapter prompt:{len(before)}")
    for parameter in network.parameters():
        parameter.requires_grad = False
    own = prompts_of(network.body)
    return {name: parameter for name, parameter in network.body.named_parameters() if parameter is own}
