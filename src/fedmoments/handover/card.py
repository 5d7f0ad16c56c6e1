"""The model card: what a person must know before a model is used, made from what the run recorded.

What a run cannot know (what the model is for, where it must not be used) is left to be filled in, and marked so.
"""

from collections.abc import Mapping
from typing import Any

from fedmoments.core.classifier import Classifier
from fedmoments.samples.encoders.encoder import Encoder
from fedmoments.samples.encoders.registry import encoders

__all__ = ["TO_FILL_IN", "model_card"]

#: Marks what a person must write.
TO_FILL_IN = "*To be filled in by a person before use.*"
ORIGIN = (
    "Made by fedmoments: parties measured moments of frozen features and sent them once; this classifier was solved "
    "from their sums. No sample left a party."
)
#: Class names that the card lists; the rest is counted.
LISTED = 30


def model_card(classifier: Classifier, encoder: Encoder | None = None) -> str:
    """Return a model card in Markdown.

    Parameters
    ----------
    classifier
        Its notes say how it was made.
    encoder
        The encoder before it, if it is part of the model.

    Examples
    --------
    >>> import fedmoments as fm
    >>> parties = {"a": ([[0.0, 1.0], [0.1, 0.9]], [0, 0]), "b": ([[1.0, 0.0]], [1])}
    >>> print(model_card(fm.fit("fedncm", parties)).splitlines()[0])
    # Model card: fedncm, 2 classes
    """
    info = classifier.info
    head = str(info.get("head", f"a {classifier.kind} classifier"))
    sections = [
        f"# Model card: {head}, {classifier.n_classes} classes",
        ORIGIN,
        "## What it is\n\n" + _listed(_facts(classifier, encoder, head)),
        "## Classes\n\n" + _classes(classifier),
        "## Who took part\n\n" + _listed(_parties(info)),
        "## How good it is\n\n" + _tested(info),
        f"## Intended use\n\n{TO_FILL_IN}",
        f"## Where it must not be used, known limits\n\n{TO_FILL_IN}",
    ]
    return "\n\n".join(sections) + "\n"


def _facts(classifier: Classifier, encoder: Encoder | None, head: str) -> dict[str, str]:
    info = classifier.info
    noted = info.get("encoder")
    name = encoder.name if encoder else noted.get("name", "unknown") if isinstance(noted, Mapping) else "unknown"
    settings = info.get("settings") or {}
    return {
        "Head": head + (f" ({', '.join(f'{key} = {value}' for key, value in settings.items())})" if settings else ""),
        "Encoder": name,
        "Licence of the encoder": _licence(name),
        "Feature map": str(classifier.feature_map) if classifier.feature_map else "none",
        "Features": f"{classifier.dim} dimensions",
        "Temperature": f"{classifier.temperature:.4g}",
        "Digest": f"`{classifier.digest()}`",
    }


def _licence(name: str) -> str:
    entry = next((found for found in encoders().values() if found.name.rstrip(":") == name.partition(":")[0]), None)
    return entry.licence if entry is not None and entry.licence else "unknown: ask whoever gave it to you"


def _classes(classifier: Classifier) -> str:
    names = [
        f"{name}" if there else f"{name} (no training sample: never predicted)"
        for name, there in zip(classifier.class_names, classifier.present, strict=True)
    ]
    more = [] if len(names) <= LISTED else [f"and {len(names) - LISTED} more"]
    return "\n".join(f"- {name}" for name in [*names[:LISTED], *more])


def _parties(info: Mapping[str, Any]) -> dict[str, str]:
    return {
        "Parties": f"{info['clients']:,}" if isinstance(info.get("clients"), int) else "not recorded",
        "Samples": f"{info['samples']:,}" if isinstance(info.get("samples"), int) else "not recorded",
        "Protection": str(info.get("protection") or "contributions were sent in the clear"),
    }


def _tested(info: Mapping[str, Any]) -> str:
    accuracy = info.get("accuracy")
    if not isinstance(accuracy, float | int):
        return "Not tested: no accuracy was recorded with this classifier."
    return f"Accuracy {accuracy:.2%}, as recorded when it was fitted."


def _listed(facts: Mapping[str, str]) -> str:
    return "\n".join(f"- **{name}**: {value}" for name, value in facts.items())
