"""Export a model to formats that are loaded without fedmoments; a format is one file in ``formats``."""

import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from fedmoments.core.classifier import Classifier, TargetModel
from fedmoments.errors import InputError
from fedmoments.handover.evidence import Evidence
from fedmoments.handover.model import Model
from fedmoments.registry import Registry, scan
from fedmoments.samples.encoders.encoder import Encoder

__all__ = ["EXPORTS", "Export", "export", "register_export"]

Given = TypeVar("Given")


@dataclass(frozen=True)
class Export:
    """A format that models are written in.

    Parameters
    ----------
    name
        What users type.
    description
        One line: what is written, and what loads it.
    write
        Writes a model to a place that does not exist yet, and returns the files written, the main one first. Its
        keyword-only parameters are the options of the format.
    suffix
        Of the file; empty for a folder.
    """

    name: str
    description: str
    write: Callable[..., list[Path]]
    suffix: str = ""

    def check(self, options: Mapping[str, Any]) -> None:
        """Refuse options that this format does not have."""
        parameters = inspect.signature(self.write).parameters.values()
        known = sorted(option.name for option in parameters if option.kind is option.KEYWORD_ONLY)
        for name in sorted(set(options) - set(known)):
            has = f"its options are {', '.join(known)}" if known else "it has none"
            raise InputError(f"the format '{self.name}' has no option '{name}': {has}")


def _accept(given: Any, _name: str | None) -> Export:
    if not isinstance(given, Export):
        raise InputError("it must be a fedmoments.handover.export.Export")
    return given


EXPORTS: Registry[Export] = Registry(
    "export", group="fedmoments.exports", accept=_accept, built_in=scan("fedmoments.handover.formats", "EXPORTS")
)
"""Every format by its name."""


def register_export(given: Given) -> Given:
    r"""Make a format known by its name in this process.

    Examples
    --------
    >>> from pathlib import Path
    >>> def names(model, place):
    ...     place.write_text("\n".join(model.classifier.class_names))
    ...     return [place]
    >>> _ = register_export(Export("names", "class names alone", names, ".txt"))
    >>> EXPORTS["names"].suffix
    '.txt'
    >>> EXPORTS.remove("names")
    """
    EXPORTS.register(given)
    return given


def export(
    classifier: Classifier,
    to: str,
    place: str | os.PathLike[str],
    *,
    encoder: Encoder | None = None,
    evidence: Evidence | None = None,
    **options: Any,
) -> list[Path]:
    """Write a classifier, and the encoder before it, in a format that needs no fedmoments.

    Parameters
    ----------
    classifier
        Fitted or loaded.
    to
        Name of the format: :data:`EXPORTS` lists them.
    place
        File or folder to write; it must not exist.
    encoder
        The encoder that the classifier was fitted behind; without it the model takes features.
    evidence
        What the report of its run says of it, for the model card.
    options
        Of the format: ``runtime_folder``, ``abstain`` and ``coverage`` of ``web``.

    Returns
    -------
    list of Path
        The files written, the main one first.

    Examples
    --------
    >>> import json, tempfile
    >>> import fedmoments as fm
    >>> parties = {"a": ([[0.0, 1.0], [0.1, 0.9]], [0, 0]), "b": ([[1.0, 0.0]], [1])}
    >>> classifier = fm.fit("fedncm", parties, class_names=["up", "right"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     files = export(classifier, "huggingface", Path(folder, "model"))
    ...     [path.name for path in files]
    ['config.json', 'model.safetensors', 'README.md']
    """
    chosen = EXPORTS.find(to)
    chosen.check(options)
    if isinstance(classifier, TargetModel):
        raise InputError(
            f"a model of targets ({classifier.kind}) has values, not probabilities of classes, and no format that is "
            "exported to: read its file, whose layout docs/export.md has, or predict with fedmoments"
        )
    target = Path(place)
    if target.exists():
        raise InputError(f"{target} exists: exports do not overwrite; name another place, or remove it first")
    if encoder is not None:
        noted = classifier.info.get("encoder")
        if isinstance(noted, dict):
            encoder.require_same(noted, "this classifier was fitted behind")
    model = Model(classifier, encoder, evidence)
    model.require_no_sounds("an exported model")
    target.parent.mkdir(parents=True, exist_ok=True)
    return chosen.write(model, target, **options)
