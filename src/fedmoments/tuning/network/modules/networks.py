"""Encoders with gradients: copies of their networks, called with batches of prepared samples.

A copy is always in evaluation mode, so that dropout and stochastic depth are off; only layers of batch normalisation
are switched to training, where their running values are learnt.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from fedmoments.errors import InputError
from fedmoments.samples.encoders.encoder import Encoder
from fedmoments.samples.encoders.families.sentence_models import SentenceEncoder
from fedmoments.samples.encoders.families.transformer_models import TransformerEncoder
from fedmoments.samples.encoders.families.tuned import body_of
from fedmoments.samples.encoders.modules.pixels import PixelModel
from fedmoments.samples.encoders.modules.sentences import pool_tokens
from fedmoments.samples.encoders.torch_runtime import TorchImageEncoder

__all__ = ["Network", "fixed_threads", "network_of", "normalising", "seeded", "taking_part"]


class Network(nn.Module, ABC):
    """Features (n, d) of a batch, as the encoder computes them; ``body`` has the parameters."""

    body: nn.Module

    def laid_out(self) -> "Network":
        """Return the network with its weights in the order that is fastest."""
        return self

    @abstractmethod
    def trial(self, tokens: int) -> tuple[Tensor, ...]:
        """Return a batch of one sample, all zeros; a text has so many tokens."""


class _Pixels(Network):
    def __init__(self, encoder: TorchImageEncoder) -> None:
        super().__init__()
        self.body = copy.deepcopy(encoder.model.body)
        self.model = PixelModel(self.body, encoder.images, encoder.pooling)
        self.size = encoder.images.size

    def forward(self, pixels: Tensor) -> Tensor:
        features: Tensor = self.model(pixels)
        return features.float()

    def laid_out(self) -> Network:
        network: Any = self  # torch's types know nothing of this way to call it
        return cast("Network", network.to(memory_format=torch.channels_last))

    def trial(self, tokens: int) -> tuple[Tensor, ...]:  # noqa: ARG002 - images have none
        return (torch.zeros(1, 3, self.size, self.size, dtype=torch.uint8),)


class _Tokens(Network):
    def trial(self, tokens: int) -> tuple[Tensor, ...]:
        ids = torch.zeros(1, tokens, dtype=torch.int64)
        return ids, torch.ones_like(ids)


class _Sentences(_Tokens):
    def __init__(self, encoder: SentenceEncoder) -> None:
        super().__init__()
        self.model = copy.deepcopy(encoder.model)
        self.body = self.model[0].auto_model

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": torch.zeros_like(ids)}
        features: Tensor = self.model(given)["sentence_embedding"]
        return features.float()


class _Transformer(_Tokens):
    def __init__(self, encoder: TransformerEncoder) -> None:
        super().__init__()
        self.body = copy.deepcopy(encoder.model)
        self.pooling: Literal["mean", "cls"] = encoder.pooling

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        states = self.body(input_ids=ids, attention_mask=mask).last_hidden_state
        return pool_tokens(states, mask, self.pooling)


def network_of(encoder: Encoder, device: Any = None) -> Network:
    """Return a copy of an encoder's network that can be trained; the encoder itself is not touched.

    Raises
    ------
    InputError
        When it has no network on torch; says which encoders have.

    Examples
    --------
    >>> from fedmoments.samples.encoders import load_encoder
    >>> encoder = load_encoder("squeezenet-1.1", size=32, threads=1)
    >>> network_of(encoder)(torch.zeros(2, 3, 32, 32, dtype=torch.uint8)).shape
    torch.Size([2, 512])
    """
    body_of(encoder)  # refuses what cannot be tuned
    network: Network
    if isinstance(encoder, TorchImageEncoder):
        network = _Pixels(encoder)
    elif isinstance(encoder, TransformerEncoder):
        network = _Transformer(encoder)
    elif isinstance(encoder, SentenceEncoder):
        network = _Sentences(encoder)
    else:
        raise InputError(f"the encoder '{encoder.name}' cannot be tuned: no rule for {type(encoder).__name__}")
    network = network.eval().requires_grad_(requires_grad=False).to(device or "cpu")
    return network.laid_out()


def taking_part(network: Network) -> dict[str, nn.Parameter]:
    """Return, by the names of the body, the parameters that features depend on.

    Classification layers that the encoder came with, and a transformer's unused pooler, are not among them.

    Examples
    --------
    >>> from fedmoments.samples.encoders import load_encoder
    >>> encoder = load_encoder("squeezenet-1.1", size=32, threads=1)
    >>> network = network_of(encoder)
    >>> sorted(set(dict(network.body.named_parameters())) - set(taking_part(network)))
    ['conv10.bias', 'conv10.weight']
    """
    named = dict(network.body.named_parameters())
    device = next(iter(named.values())).device
    for parameter in named.values():
        parameter.requires_grad = True
    features = network(*(tensor.to(device) for tensor in network.trial(2)))
    gradients: Sequence[Tensor | None] = torch.autograd.grad(features.sum(), list(named.values()), allow_unused=True)
    trainable = {
        name: parameter
        for (name, parameter), gradient in zip(named.items(), gradients, strict=True)
        if gradient is not None
    }
    for parameter in named.values():
        parameter.requires_grad = False
    return trainable


def normalising(network: Network) -> dict[str, _BatchNorm]:
    """Return the layers of batch normalisation that keep running values, by the names of the body.

    Examples
    --------
    >>> from fedmoments.samples.encoders import load_encoder
    >>> encoder = load_encoder("squeezenet-1.1", size=32, threads=1)
    >>> normalising(network_of(encoder))
    {}
    """
    return {
        name: module
        for name, module in network.body.named_modules()
        if isinstance(module, _BatchNorm) and module.running_mean is not None
    }


@contextmanager
def seeded(rng: np.random.Generator) -> Iterator[None]:
    """Let torch draw from a number of this generator, and then go on as if nothing had been drawn.

    Examples
    --------
    >>> import numpy as np
    >>> def drawn():
    ...     with seeded(np.random.default_rng(3)):
    ...         return float(torch.rand(1))
    >>> drawn() == drawn()
    True
    """
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(int(rng.integers(2**63)))
        yield


@contextmanager
def fixed_threads(threads: int) -> Iterator[None]:
    """Let torch use so many threads on a CPU, and reproducible kernels on a GPU; then put all back.

    Examples
    --------
    >>> with fixed_threads(1):
    ...     torch.get_num_threads()
    1
    """
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False):
            yield
    finally:
        torch.set_num_threads(before)
