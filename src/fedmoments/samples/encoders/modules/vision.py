"""What a network of ``transformers`` or ``open_clip`` says of images, as one vector."""

from typing import Any

from torch import Tensor, nn

from fedmoments.samples.encoders.modules.prompts import prompts_of

__all__ = ["ClipImages", "VisionStates"]


class VisionStates(nn.Module):
    """The image side of a model of ``transformers``: projected features where it has them, else its last states.

    Parameters
    ----------
    model
        With ``get_image_features`` (CLIP, SigLIP), or whose output has ``last_hidden_state`` (ViT, DINOv2, ResNet).
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixels: Tensor) -> Tensor:
        if not hasattr(self.model, "get_image_features"):
            states: Tensor = self.model(pixel_values=pixels).last_hidden_state
            prompts = prompts_of(self.model)
            return states if prompts is None else states[:, : states.shape[1] - len(prompts)]
        features = self.model.get_image_features(pixel_values=pixels)
        # Since transformers 5 this is an output with the projected vector as its pooled one.
        vector: Tensor = features if isinstance(features, Tensor) else features.pooler_output
        return vector


class ClipImages(nn.Module):
    """The image side of a model of ``open_clip``."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixels: Tensor) -> Tensor:
        features: Tensor = self.model.encode_image(pixels)
        return features
