"""Encoders, and the features that they made: one file a family, and a cache."""

from fedmoments.errors import MissingWeightsError
from fedmoments.samples.encoders.encoder import Encoder, Modality
from fedmoments.samples.encoders.entry import EncoderEntry
from fedmoments.samples.encoders.images import IMAGENET, ImagePreprocessing
from fedmoments.samples.encoders.install import install
from fedmoments.samples.encoders.onnx_export import export_onnx
from fedmoments.samples.encoders.registry import (
    DEFAULT_IMAGE_ENCODER,
    DEFAULT_TEXT_ENCODER,
    encoder_names,
    encoders,
    load_encoder,
    register_encoder,
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
    "register_encoder",
]
