"""What is handed over: a classifier, the encoder that stands before it, and the model card."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedmoments.core.classifier import Classifier
from fedmoments.handover.card import model_card
from fedmoments.samples.encoders.encoder import Encoder

__all__ = ["Model"]


@dataclass(frozen=True)
class Model:
    """A classifier with all that an application needs to use it as we do.

    Parameters
    ----------
    classifier
        Head and feature map.
    encoder
        From samples to features; None for a model that takes features.
    """

    classifier: Classifier
    encoder: Encoder | None = None

    @property
    def takes(self) -> str:
        """What the model takes: ``"image"``, ``"text"`` or ``"features"``."""
        return self.encoder.modality if self.encoder else "features"

    def notes(self) -> Mapping[str, str]:
        """Return what travels in the metadata of every format, as texts: JSON where it is more than a word."""
        preprocessing: Mapping[str, Any] = self.encoder.preprocessing if self.encoder else {}
        return {
            "class_names": json.dumps(self.classifier.class_names),
            "takes": self.takes,
            "preprocessing": json.dumps(dict(preprocessing), sort_keys=True),
            "temperature": repr(self.classifier.temperature),
            "digest": self.classifier.digest(),
            "model_card": self.card(),
        }

    def card(self) -> str:
        """Return the model card, in Markdown."""
        return model_card(self.classifier, self.encoder)
