"""Classify images or sentences with a fitted head and the encoder that it was fitted behind."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedmoments.core.classifier import Classifier
from fedmoments.core.linalg import blocks
from fedmoments.errors import InputError
from fedmoments.samples.encoders.encoder import Encoder
from fedmoments.samples.encoders.pipeline import encode_samples
from fedmoments.samples.encoders.registry import load_encoder, require_trusted
from fedmoments.samples.samples import Problem, Samples

__all__ = ["Prediction", "encoder_of", "predict", "text_items"]

_NOTES = "the notes of this classifier"


@dataclass(frozen=True)
class Prediction:
    """A sample's class, and how sure the classifier is of it.

    Parameters
    ----------
    source
        Which sample: a file's name, or a line.
    name
        Class name.
    confidence
        Probability of that class.
    runners_up
        Further classes with their probabilities, likeliest first.
    """

    source: str
    name: str
    confidence: float
    runners_up: tuple[tuple[str, float], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the prediction, ready for JSON."""
        return {
            "source": self.source,
            "class": self.name,
            "confidence": self.confidence,
            "runners_up": [{"class": name, "confidence": share} for name, share in self.runners_up],
        }


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


def predict(
    classifier: Classifier, encoder: Encoder, items: Sequence[Any], sources: Sequence[str], *, most: int = 3
) -> tuple[list[Prediction], tuple[Problem, ...]]:
    """Classify samples; those that cannot be read are returned as problems.

    Parameters
    ----------
    classifier, encoder
        A head and the encoder that it was fitted behind (:func:`encoder_of`).
    items
        Paths of images, image arrays, or sentences.
    sources
        A short name of each.
    most
        How many classes to return for each, the predicted one included.
    """
    labels = np.zeros(len(items), np.int64)
    samples = Samples(list(items), labels, classifier.class_names, encoder.modality, list(sources))
    encoded = encode_samples(encoder, samples, cache_dir=False)
    found: list[Prediction] = []
    for block in blocks(len(encoded)):
        shares = classifier.predict_proba(encoded.features[block])
        order = np.argsort(-shares, axis=1, kind="stable")[:, : max(most, 1)]
        for place, best, share in zip(encoded.kept[block], order, shares, strict=True):
            ranked = [(classifier.class_names[label], float(share[label])) for label in best]
            found.append(Prediction(samples.source(int(place)), *ranked[0], tuple(ranked[1:])))
    return found, encoded.problems


def text_items(paths: Sequence[Path]) -> tuple[list[str], list[str]]:
    """Return the lines of text files that are not empty, and a short name of each."""
    items: list[str] = []
    sources: list[str] = []
    for path in paths:
        try:
            lines = path.read_text("utf-8").splitlines()
        except UnicodeDecodeError as error:
            raise InputError(f"{path} is no text file: {error}") from error
        for number, line in enumerate(lines, start=1):
            if line.strip():
                items.append(line)
                sources.append(f"{path}:{number}")
    return items, sources
