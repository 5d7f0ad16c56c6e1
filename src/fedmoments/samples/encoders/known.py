"""What is known of the named encoders without loading them: terms are drawn up where neither torch nor weights are.

``known.json`` is written by :func:`written` from the encoders themselves, with their own pooling, image encoders with
their own size and those of :data:`SIZES`; a test compares it with each that is installed.
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

__all__ = ["SIZES", "KnownEncoder", "known_encoder", "known_names", "known_sizes", "written"]

_FILE = "known.json"
#: Pixels of the side at which image encoders are known, beside their own.
SIZES = (64, 96, 128, 160, 192, 224)


class KnownEncoder(Encoder):
    """An encoder that can be named in terms, but encodes nothing.

    Parameters
    ----------
    entry
        Of the registry.
    facts
        Its weights, preprocessing, dimension, and behaviour by size.
    size
        Pixels of the side of an image; None: its own, and that of a text encoder.
    """

    def __init__(self, entry: EncoderEntry, facts: Mapping[str, Any], size: int | None = None) -> None:
        self.name, self.modality, self._entry, self._facts = entry.name, entry.modality, entry, facts
        self._size = size

    @property
    def dim(self) -> int:
        """Dimension d of the features."""
        return int(self._facts["dim"])

    @property
    def preprocessing(self) -> Mapping[str, Any]:
        """What happens to a sample before the model."""
        own: dict[str, Any] = self._facts["preprocessing"]
        return own | ({} if self._size is None else {"size": self._size})

    @property
    def weights_hash(self) -> str:
        """SHA-256 of the model's weights."""
        return str(self._facts["weights"])

    @cached_property
    def behaviour(self) -> Behaviour:
        """What it does with samples that everybody can make."""
        return Behaviour.from_text(self._facts["behaviours"][_size_of(self.preprocessing)])

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


def known_sizes(name: str) -> tuple[int, ...]:
    """Return the sizes at which an image encoder is known, ascending; a text encoder has none.

    Examples
    --------
    >>> 96 in known_sizes("efficientnet-lite0"), known_sizes("minilm")
    (True, ())
    """
    return tuple(sorted(int(size) for size in _known()[name]["behaviours"] if size))


def known_encoder(name: str, size: int | None = None) -> KnownEncoder | None:
    """Return what is known of an encoder with its own pooling; None where it must be loaded.

    A package that registered another encoder under the name is not taken for the one that is known.

    Parameters
    ----------
    name
        Of the registry.
    size
        Pixels of the side of an image; None: the encoder's own.

    Examples
    --------
    >>> known_encoder("minilm").dim, known_encoder("timm:resnet18"), known_encoder("efficientnet-lite0", size=97)
    (384, None, None)
    """
    facts, entry = _known().get(name), encoders().get(name)
    if facts is None or entry is None or [file.sha256 for file in entry.files] != facts["files"]:
        return None
    if size is not None and str(size) not in facts["behaviours"]:
        return None
    return KnownEncoder(entry, facts, size)


def _size_of(preprocessing: Mapping[str, Any]) -> str:
    """Return the key of a behaviour: pixels of the side of an image, empty for text."""
    return str(preprocessing.get("size", ""))


def written(loaded: Sequence[Encoder]) -> str:
    """Return the text of the file for encoders that are loaded.

    Parameters
    ----------
    loaded
        With their own pooling; of each the first has its own size, others may follow.
    """
    facts: dict[str, dict[str, Any]] = {}
    for encoder in loaded:
        own = {
            "weights": encoder.weights_hash,
            "files": [file.sha256 for file in encoders()[encoder.name].files],
            "preprocessing": dict(encoder.preprocessing),
            "dim": encoder.dim,
            "behaviours": {},
        }
        behaviours = facts.setdefault(encoder.name, own)["behaviours"]
        behaviours[_size_of(encoder.preprocessing)] = encoder.behaviour.to_text()
    return json.dumps(facts, indent=1, sort_keys=True) + "\n"
