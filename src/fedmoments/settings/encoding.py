"""How samples become features: which encoder, and how it runs here."""

from dataclasses import dataclass, fields
from functools import partial
from typing import Any

from fedmoments.settings.option import option

__all__ = ["EncoderChoice", "Encoding", "Running"]

_encoder = partial(option, group="Encoder")


@dataclass(frozen=True)
class EncoderChoice:
    """The encoder, and what of its preprocessing may be chosen: what all parties of a federation must agree on."""

    encoder: str | None = option(
        None, "Name, path or id: see 'fedmoments encoders'. By default, the data's kind decides.", common=2
    )
    size: int | None = _encoder(None, "Pixels of the side of an image, after preprocessing.", metavar="PIXELS")
    pooling: str | None = _encoder(None, "cls or mean, for transformers.")


@dataclass(frozen=True)
class Running:
    """How an encoder runs here; nothing of this changes features by more than rounding."""

    runtime: str = _encoder("torch", "torch or onnx (exported once, about 3 times faster).", metavar="torch|onnx")
    device: str = _encoder("cpu", "Where torch computes: cpu, cuda or mps.")
    threads: int | None = _encoder(None, "Threads of the encoder.", metavar="N")
    batch_size: int | None = _encoder(None, "Samples that are encoded at once.", metavar="N")
    readers: int = _encoder(2, "Threads that read and preprocess samples.", metavar="N")
    cache: str | None = _encoder(None, "Folder of the feature cache; the user's by default.", metavar="FOLDER")
    trust: tuple[str, ...] = _encoder(
        (),
        "Encoder that terms or a model file may name though it is a file, a function or a download: torch:…, onnx:….",
        "--trust-encoder",
        metavar="NAME",
    )

    def with_encoder(self, encoder: str | None, **options: Any) -> "Encoding":
        """Return how this encoder runs here.

        Parameters
        ----------
        encoder
            Its name; None: the one for the data's modality.
        options
            Its size and pooling, where they are chosen.

        Examples
        --------
        >>> Running(threads=2).with_encoder("minilm", pooling="mean").threads
        2
        """
        return Encoding(encoder, **options, **{option.name: getattr(self, option.name) for option in fields(Running)})


@dataclass(frozen=True)
class Encoding(Running, EncoderChoice):  # the fields of the last come first
    """Which encoder, and how it runs."""
