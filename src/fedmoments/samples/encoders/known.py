"""What is known of the named encoders without loading them: terms are drawn up where neither torch nor weights are.

``known.json`` is written by :func:`written` from the encoders themselves, with their own size and pooling; a test
compares it with each that is installed.
"""

import json
from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from importlib.resources import files
from typing import Any, NoReturn

from fedmoments.errors import InputError
from fedmoments.samples.encoders.encoder import Encoder
from fedmoments.samples.encoders.entry import EncoderEntry
from fedmoments.samples.encoders.probe import Behaviour
from fedmoments.samples.encoders.registry import encoders

__all__ = ["KnownEncoder", "known_encoder", "known_names", "written"]

_FILE = "known.json"


class KnownEncoder(Encoder):
    """An encoder that can be named in terms, but encodes nothing.

    Parameters
    ----------
    entry
        Of the registry.
    facts
        Its weights, preprocessing, dimension and behaviour.
    """

    def __init__(self, entry: EncoderEntry, facts: Mapping[str, Any]) -> None:
        self.name, self.modality, self._entry, self._facts = entry.name, entry.modality, entry, facts

    @property
    def dim(self) -> int:
        """Dimension d of the features."""
        return int(self._facts["dim"])

    @property
    def preprocessing(self) -> Mapping[str, Any]:
        """What happens to a sample before the model."""
        return dict(self._facts["preprocessing"])

    @property
    def weights_hash(self) -> str:
        """SHA-256 of the model's weights."""
        return str(self._facts["weights"])

    @cached_property
    def behaviour(self) -> Behaviour:
        """What it does with samples that everybody can make."""
        return Behaviour.from_text(self._facts["behaviour"])

    def prepare(self, sample: Any) -> NoReturn:  # noqa: ARG002
        """Refuse: nothing of the encoder is loaded."""
        raise InputError(
            f"the encoder '{self.name}' is only known here, not loaded: load it with load_encoder, which needs "
            f"pip install 'fedmoments[{self._entry.extra}]'"
        )

    def encode(self, batch: Sequence[Any]) -> NoReturn:
        """Refuse: nothing of the encoder is loaded."""
        self.prepare(batch)


@cache
def _known() -> dict[str, dict[str, Any]]:
    document: dict[str, dict[str, Any]] = json.loads(files(__package__).joinpath(_FILE).read_text("utf-8"))
    return document


def known_names() -> tuple[str, ...]:
    """Return the encoders that terms may name without loading them.

    Examples
    --------
    >>> "efficientnet-lite0" in known_names()
    True
    """
    return tuple(_known())


def known_encoder(name: str) -> KnownEncoder | None:
    """Return what is known of an encoder with its own size and pooling; None where it must be loaded.

    A package that registered another encoder under the name is not taken for the one that is known.

    Examples
    --------
    >>> known_encoder("minilm").dim, known_encoder("timm:resnet18")
    (384, None)
    """
    facts, entry = _known().get(name), encoders().get(name)
    if facts is None or entry is None or [file.sha256 for file in entry.files] != facts["files"]:
        return None
    return KnownEncoder(entry, facts)


def written(loaded: Sequence[Encoder]) -> str:
    """Return the text of the file for encoders that are loaded.

    Parameters
    ----------
    loaded
        With their own size and pooling.
    """
    facts = {
        encoder.name: {
            "weights": encoder.weights_hash,
            "files": [file.sha256 for file in encoders()[encoder.name].files],
            "preprocessing": dict(encoder.preprocessing),
            "dim": encoder.dim,
            "behaviour": encoder.behaviour.to_text(),
        }
        for encoder in loaded
    }
    return json.dumps(facts, indent=1, sort_keys=True) + "\n"
