"""Where samples come from.

How samples become features: which encoder, and how it runs here.
"""

from dataclasses import dataclass, fields
from functools import partial
from typing import Any

from fedmoments.settings.option import option

__all__ = ["ByFile", "Columns", "EncoderChoice", "Encoding", "Running", "SampleSource"]


_encoder = partial(option, group="Encoder")


@dataclass(frozen=True)
class EncoderChoice:
    """The encoder, and what of its preprocessing may be chosen: what all parties of a federation must agree on."""

    encoder: str | None = option(
        None, "Name, path or id: see 'fedmoments encoders'. The default depends on the kind of data.", common=2
    )
    size: int | None = _encoder(None, "Pixels of the side of an image, after preprocessing.", metavar="PIXELS")
    pooling: str | None = _encoder(None, "cls or mean, for transformers.")


@dataclass(frozen=True)
class Running:
    """How an encoder runs here; nothing of this changes features by more than rounding."""

    runtime: str = _encoder("torch", "torch or onnx (exported once, about 3 times faster).", metavar="torch|onnx")
    device: str = _encoder("cpu", "Device for torch: cpu, cuda or mps.")
    threads: int | None = _encoder(None, "Threads of the encoder.", metavar="N")
    batch_size: int | None = _encoder(None, "Samples encoded per batch.", metavar="N")
    readers: int = _encoder(2, "Threads that read and preprocess samples.", metavar="N")
    cache: str | None = _encoder(None, "Folder of the feature cache; the user's by default.", metavar="FOLDER")
    trust: tuple[str, ...] = _encoder(
        (),
        "Let terms or a model file name this encoder, a file, a function or a download: torch:…, onnx:….",
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


_data = partial(option, group="Data")


@dataclass(frozen=True)
class Columns:
    """Data, and which of their columns or folders hold what."""

    data: str = option(
        "digits",
        "digits, folder:PATH, csv:PATH, parquet:PATH, npz:PATH, npy:FOLDER or hf:NAME; a path alone if it "
        "is a folder or its ending says what it is.",
        common=1,
    )
    text: str | None = _data(None, "Column of sentences.")
    image: str | None = _data(None, "Column of images or of image paths.")
    label: str | None = _data(None, "Column of labels.")
    domains: bool | None = _data(None, "Folders are domain/class, not class.")
    table: str | None = _data(
        None,
        "Samples are rows of a raw table with numbers, categories and gaps: draft (types are detected; "
        "draft:COLUMN,… names columns of codes), or a file of 'fedmoments table' (see "
        "docs/tutorials/tables.md).",
        metavar="draft|FILE",
    )


@dataclass(frozen=True)
class ByFile:
    """Who measures the files of a lake, one by one."""

    workers: int | None = _data(None, "Measure tables file by file, with this number of local processes.", metavar="N")
    cluster: str | None = _data(
        None, "Measure tables file by file, on the workers of a Dask scheduler, tcp://… or tls://….", metavar="ADDRESS"
    )


@dataclass(frozen=True)
class SampleSource(Columns):
    """Data with all that their readers take."""

    client: str | None = _data(None, "Column of clients, for the split 'id'.")
    domain: str | None = _data(None, "Column of domains, for the split 'domain'.")
    group: str | None = _data(
        None, "Column of groups, such as patients: each stays on one side of the test split, at one client."
    )
    features: str | None = _data(
        None, 'Number columns that make up a sample: a,b,c or "emb*", or one column of vectors.', metavar="COLUMN,…"
    )
    test: str | None = _data(None, "A second file, to test on.")
    test_share: float | None = _data(
        None, "Share held out for testing, if the data have no test part.", metavar="SHARE"
    )
    strict: bool = _data(False, "Stop at the first unreadable sample.")
    seed: int = option(0, "First seed; every random choice follows from it.", common=8)
