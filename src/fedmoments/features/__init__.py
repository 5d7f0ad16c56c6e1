"""Encoders, and the features that they made: one file a family, and a cache."""

from fedmoments.errors import MissingWeightsError
from fedmoments.features.encoder import Encoder, Modality
from fedmoments.features.entry import EncoderEntry
from fedmoments.features.images import IMAGENET, ImagePreprocessing
from fedmoments.features.install import install
from fedmoments.features.onnx_export import export_onnx
from fedmoments.features.registry import (
    DEFAULT_IMAGE_ENCODER,
    DEFAULT_TEXT_ENCODER,
    encoder_names,
    encoders,
    load_encoder,
)

__all__ = [
    "DEFAULT_IMAGE_ENCODER",
    "DEFAULT_TEXT_ENCODER",
    "IMAGENET",
    "Encoder",
    "EncoderEntry",
    "ImagePreprocessing",
    "MissingWeightsError",
    "Modality",
    "encoder_names",
    "encoders",
    "export_onnx",
    "install",
    "load_encoder",
]
