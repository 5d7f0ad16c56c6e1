"""Visual prompts (Jia et al., 2022, arXiv:2203.12119): tokens that are learnt and stand beside the patches of an image.

A transformer of images turns patches into tokens (n, t, h). Prompts (p, h) are appended to the tokens of every image,
all layers attend to them, and they are left out of what the network gives. They are a parameter of the layer that makes
the tokens, so that a network with prompts has the names of the plain one and one more.
"""

from typing import Any

import torch
from torch import Tensor, nn

from fedmoments.errors import InputError

__all__ = ["PROMPTS", "add_prompts", "prompts_of", "token_layer"]

#: Name of the parameter.
PROMPTS = "visual_prompts"
#: What a layer that makes tokens of patches has, in the transformers of images that ``transformers`` knows.
_PATCHES = ("patch_embeddings", "patch_embedding")


def token_layer(body: nn.Module) -> tuple[str, nn.Module]:
    """Return the layer that makes tokens of an image's patches, with its name.

    Raises
    ------
    InputError
        When there is none: the network is no transformer of images, or of a library that is not known here.

    Examples
    --------
    >>> token_layer(nn.Linear(2, 2))
    Traceback (most recent call last):
    fedmoments.errors.InputError: visual prompts stand beside the patches of a transformer of images ...
    """
    for name, module in body.named_modules():
        if name.rpartition(".")[2] == "embeddings" and any(hasattr(module, part) for part in _PATCHES):
            return name, module
    raise InputError(
        "visual prompts stand beside the patches of a transformer of images (transformers-image:NAME, such as ViT, "
        "DINOv2, CLIP or SigLIP), and this encoder is none: take adapter lora:RANK, or none"
    )


def prompts_of(body: nn.Module) -> Tensor | None:
    """Return the prompts (p, h) of a network, or None where it has none."""
    return next((value for name, value in body.named_parameters() if name.rpartition(".")[2] == PROMPTS), None)


def add_prompts(body: nn.Module, prompts: Tensor) -> str:
    """Give a network prompts (p, h), in place; return the name of the parameter.

    Raises
    ------
    InputError
        When it has prompts already, or tokens of another width.
    """
    name, layer = token_layer(body)
    if prompts_of(body) is not None:
        raise InputError("this network has prompts already")
    width = _width(layer)
    if prompts.ndim != 2 or prompts.shape[1] != width or not len(prompts):
        raise InputError(f"prompts of this network have the shape (p, {width}), not {tuple(prompts.shape)}")
    device = next(layer.parameters()).device
    layer.register_parameter(PROMPTS, nn.Parameter(prompts.detach().clone().to(device)))
    layer.register_forward_hook(_appended)
    return f"{name}.{PROMPTS}"


def _width(layer: nn.Module) -> int:
    """Return h: the outputs of the convolution that reads patches."""
    return int(next(module.out_channels for module in layer.modules() if isinstance(module, nn.Conv2d)))


def _appended(layer: nn.Module, _inputs: Any, tokens: Tensor) -> Tensor:
    """Return the tokens of the layer and, behind them, its prompts."""
    prompts: Tensor = layer.get_parameter(PROMPTS)
    return torch.cat([tokens, prompts.expand(tokens.shape[0], -1, -1)], dim=1)
