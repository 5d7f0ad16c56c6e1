"""From settings to samples and their encoder: the one place where both are looked up."""

from collections.abc import Callable
from dataclasses import fields
from typing import Any, cast

from fedmoments.core.maps import TableMap
from fedmoments.errors import InputError
from fedmoments.samples.dataset import DataSet
from fedmoments.samples.encoders.encoder import Encoder
from fedmoments.samples.encoders.entry import Runtime
from fedmoments.samples.encoders.pipeline import EncodedSamples, encode_samples
from fedmoments.samples.encoders.registry import load_encoder
from fedmoments.samples.sources.registry import load_data, takes_option
from fedmoments.settings.samples import Encoding, SampleSource

__all__ = ["DEFAULTS", "choose_encoder", "encode_parts", "read_data"]

#: The encoder that is taken when none is named.
DEFAULTS = {"image": "efficientnet-lite0", "text": "minilm", "audio": "resemblyzer", "features": "identity"}

_OWN = ("data", "strict")  # fields of a source that are not options of its reader, or are given as something else


def read_data(source: SampleSource, table: TableMap | None = None) -> DataSet:
    """Load samples, without encoding them.

    Parameters
    ----------
    source
        Where from, and how.
    table
        What codes the cells, where the data are a raw table; features that are given are taken as coded already.

    Examples
    --------
    >>> len(read_data(SampleSource("digits")).class_names)
    10
    """
    options = {option.name: getattr(source, option.name) for option in fields(SampleSource) if option.name not in _OWN}
    if table is not None and takes_option(source.data, "table"):
        options["table"] = table
    return load_data(source.data, **options, strict=source.strict or None)


def choose_encoder(encoding: Encoding, modality: str, dim: int | None = None) -> Encoder:
    """Return the encoder that was requested, or the default one of the modality.

    Parameters
    ----------
    encoding
        Which one, and how it runs.
    modality
        What the samples are.
    dim
        Dimension of features that are given.

    Examples
    --------
    >>> choose_encoder(Encoding(), "features", 64).name
    'identity'
    """
    name = encoding.encoder or DEFAULTS[modality]
    if name == "identity" and dim is None:
        raise InputError(
            "the encoder 'identity' takes features that are given, but the data hold none: name another one"
        )
    if name == "identity":  # there is nothing to run, but a size or pooling that cannot be obeyed is refused
        return load_encoder(name, dim=dim, size=encoding.size, pooling=encoding.pooling)
    options = {key: getattr(encoding, key) for key in ("size", "pooling", "threads", "batch_size")}
    given = {key: value for key, value in options.items() if value is not None}
    runtime = cast("Runtime", encoding.runtime)  # load_encoder refuses any other word
    return load_encoder(name, runtime=runtime, device=encoding.device, trusted=encoding.trust, **given)


def encode_parts(
    data: DataSet, encoder: Encoder, progress: Callable[[int, int, str], None] | None = None, **options: Any
) -> dict[str, EncodedSamples]:
    """Encode those parts of a data set that have samples.

    Parameters
    ----------
    data
        Samples.
    encoder
        What encodes them.
    progress
        Called with (done, in all, what is being done).
    options
        As in :func:`~fedmoments.samples.encoders.pipeline.encode_samples`.

    Returns
    -------
    dict
        ``"train"`` and ``"test"``, as far as they hold samples.

    Examples
    --------
    >>> import numpy as np
    >>> from fedmoments.samples.samples import Samples
    >>> part = Samples(np.eye(2), np.array([0, 1]), ("a", "b"), "features")
    >>> data = DataSet(part, part.take(np.array([], int)), "toy", "Two points.")
    >>> encode_parts(data, choose_encoder(Encoding(), "features", 2))["train"].features.tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    done: dict[str, EncodedSamples] = {}
    for name, words, samples in (("train", "training", data.train), ("test", "test", data.test)):

        def say(settled: int, total: int, words: str = words) -> None:
            if progress:
                progress(settled, total, f"encoding {words} samples")

        if len(samples):
            done[name] = encode_samples(encoder, samples, progress=say, **options)
    return done
