"""From tokens to one vector a sentence: run a transformer, pool over its tokens, perhaps normalise."""

from typing import Literal

import torch
from torch import Tensor, nn

__all__ = ["SentenceModel", "pool_tokens"]


def pool_tokens(states: Tensor, mask: Tensor, pooling: Literal["cls", "mean"]) -> Tensor:
    """Return (n, d) of token states (n, t, d): the first token's, or the mean over those that the mask (n, t) keeps."""
    if pooling == "cls":
        return states[:, 0]
    weights = mask.to(states.dtype).unsqueeze(-1)
    return (states * weights).sum(1) / weights.sum(1)


class SentenceModel(nn.Module):
    """Mean-pooled features (n, d) of tokens (n, t), of unit length: what is exported to ONNX."""

    def __init__(self, transformer: nn.Module) -> None:
        super().__init__()
        self.transformer = transformer

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> Tensor:
        states = self.transformer(
            input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids
        ).last_hidden_state
        return torch.nn.functional.normalize(pool_tokens(states, attention_mask, "mean"), dim=1)
