"""What all text encoders share: how a sentence is prepared, and what identifies a tokenizer.

How a sentence is prepared: white space at both ends goes; an empty one is refused.
"""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedmoments.core.maps.canonical import canonical_json
from fedmoments.errors import InputError
from fedmoments.extras import require
from fedmoments.samples.encoders.encoder import Encoder, Modality

__all__ = ["TextEncoder", "clean_sentence", "is_local", "quiet_loading", "tokenizer_hash"]


def clean_sentence(sample: Any) -> str:
    r"""Return a sentence without white space at its ends.

    Raises
    ------
    InputError
        When it is not a text, is empty, or holds half of a character (a lone surrogate).

    Examples
    --------
    >>> clean_sentence("  Where is my card?\n")
    'Where is my card?'
    >>> clean_sentence(" ")
    Traceback (most recent call last):
    fedmoments.errors.InputError: the sentence is empty
    """
    if not isinstance(sample, str):
        raise InputError(f"a sentence must be a text, but is {type(sample).__name__}")
    sentence = sample.strip()
    if not sentence:
        raise InputError("the sentence is empty")
    try:
        sentence.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"the sentence is not valid Unicode: {error.reason} at position {error.start}") from error
    return sentence


# Upper case, accents, ligatures, digits, punctuation, Chinese, Arabic, an emoji, a long word, odd spaces.
_PROBE = "The Ångström naïve ﬁle; don't re-enter 3.14 %  中文 العربية 🙂 Donaudampfschifffahrt\tstraße\u00a0end"


class TextEncoder(Encoder):
    """An encoder of sentences; subclasses implement :meth:`encode`.

    Parameters
    ----------
    name
        What a user types to get it again.
    preprocessing
        All that happens to a sentence before and after the model.
    weights_hash
        SHA-256 of the weights.
    dim
        Dimension of the features.
    batch_size
        Sentences that are encoded at once.
    """

    modality: Modality = "text"

    def __init__(
        self, name: str, preprocessing: Mapping[str, Any], weights_hash: str, dim: int, batch_size: int | None = None
    ) -> None:
        self.name = name
        self._preprocessing = dict(preprocessing)
        self._weights_hash = weights_hash
        self._dim = dim
        self.batch_size = batch_size or 64

    @property
    def dim(self) -> int:
        return self._dim

    @property
    def preprocessing(self) -> Mapping[str, Any]:
        return self._preprocessing

    @property
    def weights_hash(self) -> str:
        return self._weights_hash

    def prepare(self, sample: Any) -> str:
        return clean_sentence(sample)


def tokenizer_hash(tokenizer: Any) -> str:
    """Return the SHA-256 of what a Hugging Face tokenizer does: its vocabulary, and the tokens of a trial text.

    What it *is* changes with the version of its library; what it does must not.
    """
    described = {
        "vocabulary": dict(tokenizer.get_vocab()),
        "trial": list(tokenizer(_PROBE, truncation=False)["input_ids"]),
        "lower case": list(tokenizer(_PROBE.lower(), truncation=False)["input_ids"]),
    }
    return hashlib.sha256(canonical_json(described).encode()).hexdigest()


def is_local(argument: str, name: str) -> bool:
    """Say whether a model is a folder here, not a name on the hub: then nothing is asked of the network."""
    if Path(argument).expanduser().is_dir():
        return True
    if argument.startswith((".", "/", "~")):
        raise InputError(f"the encoder '{name}' cannot be loaded: the folder {argument} does not exist")
    return False


@contextmanager
def quiet_loading(name: str) -> Iterator[None]:
    """Load a model of the ``transformers`` library without its progress bars, and with one kind of error."""
    logging = require("transformers.utils.logging", f"The encoder '{name}'", "text")
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    except Exception as error:  # whatever a folder holds, the libraries' own kinds of errors among it
        raise InputError(f"the encoder '{name}' cannot be loaded: {error}") from error
    finally:
        if shown:
            logging.enable_progress_bar()
