"""What is handed over: a classifier, the encoder that stands before it, and the model card."""

import json
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fedmoments.core.classifier import Classifier, load
from fedmoments.errors import InputError
from fedmoments.handover.card import model_card
from fedmoments.handover.evidence import Evidence, evidence_of
from fedmoments.samples.encoders.encoder import Encoder
from fedmoments.samples.encoders.families.identity import IdentityEncoder
from fedmoments.samples.encoders.registry import load_encoder, require_trusted

__all__ = ["Model", "encoder_of"]

#: Share of familiar samples that an application rejects which asks for nothing else.
ABSTAIN = 0.01
#: Coverages whose prediction sets exports hold a threshold of.
COVERAGES = (0.5, 0.8, 0.9, 0.95, 0.98, 0.99)

_NOTES = "the notes of this classifier"


@dataclass(frozen=True)
class Model:
    """A classifier with all that an application needs to use it as we do.

    Parameters
    ----------
    classifier
        Head and feature map.
    encoder
        From samples to features; None for a model that takes features.
    evidence
        What the report of the run that made it says of it.
    """

    classifier: Classifier
    encoder: Encoder | None = None
    evidence: Evidence | None = None

    @classmethod
    def read(
        cls,
        file: str | os.PathLike[str],
        name: str | None = None,
        *,
        encode: bool = True,
        before: "Model | None" = None,
        **options: Any,
    ) -> "Model":
        """Read a classifier file, and load the encoder that it names; one fitted on features has none.

        Parameters
        ----------
        file
            Of the classifier.
        name
            Another way to get the same encoder.
        encode
            Whether to load the encoder; without it the model takes features.
        before
            A model whose encoder is taken where it is the same.
        options
            As in :func:`encoder_of`.
        """
        classifier = load(file)
        evidence = evidence_of(classifier, file)
        noted = classifier.info.get("encoder")
        if not encode or (
            name is None and (noted is None or (isinstance(noted, dict) and noted.get("name") == "identity"))
        ):
            return cls(classifier, None, evidence)
        if name is None and before is not None and before.classifier.info.get("encoder") == noted:
            return cls(classifier, before.encoder, evidence)
        return cls(classifier, encoder_of(classifier, name, beside=Path(file), **options), evidence)

    @cached_property
    def taking(self) -> Encoder:
        """The encoder, or one that takes features as they are."""
        if self.encoder is not None:
            return self.encoder
        given = self.classifier.feature_map
        return IdentityEncoder((given.required_dim() if given else None) or self.classifier.dim)

    @cached_property
    def digest(self) -> str:
        """Of the classifier; computed once."""
        return self.classifier.digest()

    def require_no_sounds(self, what: str) -> None:
        """Refuse to do what is made for images, sentences and rows of numbers with a model of sounds."""
        if self.takes == "audio":
            raise InputError(f"{what} takes no sounds: use 'fedmoments predict', or leave the encoder out")

    @property
    def takes(self) -> str:
        """What the model takes: ``"image"``, ``"text"``, ``"audio"`` or ``"features"``."""
        return self.encoder.modality if self.encoder else "features"

    def notes(self) -> Mapping[str, str]:
        """Return what travels in the metadata of every format, as texts: JSON where it is more than a word."""
        preprocessing: Mapping[str, Any] = self.encoder.preprocessing if self.encoder else {}
        doubts = {name: json.dumps(value, sort_keys=True) for name, value in self.doubts().items()}
        return {
            **doubts,
            "class_names": json.dumps(self.classifier.class_names),
            "takes": self.takes,
            "preprocessing": json.dumps(dict(preprocessing), sort_keys=True),
            "temperature": repr(self.classifier.temperature),
            "digest": self.digest,
            "model_card": self.card(),
        }

    def doubts(self) -> dict[str, Any]:
        """Return when samples are unknown, and what prediction sets need; ready for JSON, empty where it has neither.

        ``abstain_below``: samples of a lower familiarity are unknown. ``prediction_sets``: the set of a sample are the
        classes at or above ``least_probability`` of a coverage by softmax(scores / temperature), and the likeliest one.
        """
        document: dict[str, Any] = {}
        if self.classifier.familiar is not None:
            document["abstain_below"] = ABSTAIN
        ranks = self.classifier.ranks
        if ranks is not None:
            least = {f"{coverage:g}": ranks.threshold(coverage) for coverage in COVERAGES}
            document["prediction_sets"] = {
                "temperature": ranks.temperature,
                "samples": int(ranks.counts.sum()),
                "least_probability": least,
            }
        return document

    def card(self) -> str:
        """Return the model card, in Markdown."""
        return model_card(self.classifier, self.encoder, self.evidence)


def encoder_of(
    classifier: Classifier,
    name: str | None = None,
    *,
    beside: Path | None = None,
    trusted: Collection[str] = (),
    **options: Any,
) -> Encoder:
    """Return the encoder that a classifier was fitted behind, refusing another one.

    Parameters
    ----------
    classifier
        Saved by a job: its notes name the encoder.
    name
        Another way to get the same encoder (a local path, say).
    beside
        File of the classifier: a tuned encoder that is no longer where it was may lie beside it.
    trusted
        Encoders that the notes may name though they are files, functions or downloads.
    options
        Runtime, device, threads, batch size.
    """
    noted = classifier.info.get("encoder")
    if not isinstance(noted, dict) or not all(isinstance(noted.get(key), str) for key in ("name", "fingerprint")):
        raise InputError(
            "this classifier does not say which encoder it was fitted behind: score features with it instead"
        )
    if noted["name"] == "identity":
        raise InputError("this classifier was fitted on features that were given: score features with it instead")
    given = noted.get("options", {})
    if not isinstance(given, dict) or not set(given) <= {"size", "pooling", "crop"}:
        raise InputError("this classifier names options of its encoder that no encoder has: was the file changed?")
    chosen = name or require_trusted(_found(noted["name"], beside), trusted, _NOTES, families=("tuned:",))
    encoder = load_encoder(chosen, trusted=trusted, **given, **options)
    encoder.require_same(noted, "this classifier was fitted behind")
    return encoder


def _found(name: str, beside: Path | None) -> str:
    """Return the name of an encoder; that of a tuned one which was moved together with its head is its new place."""
    family, _, place = name.partition(":")
    if family != "tuned" or beside is None or Path(place).is_file():
        return name
    near = beside.resolve().parent / Path(place).name
    return f"tuned:{near}" if near.is_file() else name
