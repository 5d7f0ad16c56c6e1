"""From what a person typed to features: load the data, choose the encoder, encode (or read the cache)."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

import fedmoments
from fedmoments.data import parse_split
from fedmoments.data.dataset import DataSet
from fedmoments.data.samples import Problem
from fedmoments.data.sources.registry import load_data
from fedmoments.errors import InputError
from fedmoments.features.encoder import Encoder
from fedmoments.features.entry import Runtime
from fedmoments.features.pipeline import EncodedSamples, encode_samples
from fedmoments.features.registry import load_encoder
from fedmoments.federation import Fingerprint
from fedmoments.jobs.config import JobConfig
from fedmoments.maps import FeatureMap
from fedmoments.simulation import Features
from fedmoments.simulation.features import Samples
from fedmoments.simulation.run import CLIENTS, finds_clients

__all__ = ["Encoded", "choose_encoder", "encode_data", "read_data"]

#: The encoder that is taken when none is named.
DEFAULTS = {"image": "efficientnet-lite0", "text": "minilm", "features": "identity"}

#: Called with (done, in all, what is being done).
Progress = Callable[[int, int, str], None]

_SOURCE_OPTIONS = ("text", "image", "label", "client", "domain", "test", "domains", "test_share")


@dataclass(frozen=True, eq=False)
class Encoded:
    """Features of a whole data set, where they came from, and which training and test samples have them."""

    data: DataSet
    encoder: Encoder
    features: Features
    problems: tuple[Problem, ...]
    computed: int
    options: dict[str, Any]
    kept: tuple[NDArray[np.int64], NDArray[np.int64]]

    def measured_as(self, feature_map: FeatureMap | None = None) -> Fingerprint:
        """Return the fingerprint of what clients measure, behind a public map if there is one."""
        encoder = self.encoder
        return Fingerprint(encoder.weights_hash, dict(encoder.preprocessing), feature_map, self.data.class_names)

    def basis(self) -> list[str]:
        """Return what every outcome depends on besides its setting: version, data, encoder, and who holds what."""
        groups = hashlib.sha256()
        for keys in (self.features.domains, self.features.ids):
            groups.update(json.dumps(None if keys is None else [str(key) for key in keys.tolist()]).encode())
        return [fedmoments.__version__, self.data.digest, self.encoder.fingerprint, groups.hexdigest()]

    def describe(self) -> dict[str, Any]:
        """Return what results say of the data, ready for JSON."""
        features = self.features
        return {
            "name": self.data.name,
            "description": self.data.description,
            "train": len(features.train),
            "test": len(features.test),
            "dim": features.dim,
            "classes": features.n_classes,
            "class_names": list(self.data.class_names),
            "modality": self.data.modality,
            "digest": self.data.digest,
            "problems": [{"where": problem.where, "why": problem.why} for problem in self.problems],
            "encoder": {
                "name": self.encoder.name,
                "options": self.options,
                "dim": self.encoder.dim,
                "fingerprint": self.encoder.fingerprint,
                "preprocessing": dict(self.encoder.preprocessing),
            },
        }


def choose_encoder(config: JobConfig, modality: str, dim: int | None = None) -> Encoder:
    """Return the encoder that was asked for, or the default one of the modality.

    Parameters
    ----------
    config
        Encoder, size, pooling, runtime, device, threads and batch size.
    modality
        What the samples are.
    dim
        Dimension of features that are given.
    """
    name = config.encoder or DEFAULTS[modality]
    if name == "identity" and dim is None:
        raise InputError(
            "the encoder 'identity' takes features that are given, but the data hold none: name another one"
        )
    options = {key: getattr(config, key) for key in ("size", "pooling", "threads", "batch_size")}
    given = {key: value for key, value in options.items() if value is not None}
    if name == "identity":  # there is nothing to run, but a size or pooling that cannot be obeyed is refused
        return load_encoder(name, dim=dim, size=config.size, pooling=config.pooling)
    runtime = cast("Runtime", config.runtime)  # load_encoder refuses any other word
    return load_encoder(name, runtime=runtime, device=config.device, **given)


def read_data(config: JobConfig) -> DataSet:
    """Load the data of a job, without encoding them."""
    where = {name: getattr(config, name) for name in _SOURCE_OPTIONS}
    return load_data(config.data, **where, seed=config.seed, strict=config.strict or None)


def encode_data(
    config: JobConfig, *, cache_dir: Any = None, progress: Progress | None = None, encoder: Encoder | None = None
) -> Encoded:
    """Load the data of a job and encode both parts of it, by the encoder that the job names unless one is given."""
    data = read_data(config)
    if not len(data.test):
        raise InputError(f"{config.data} holds no sample to test on: give a test part, or a test_share above 0")
    _require_splits(config, data)
    given = data.train.items.shape[1] if data.modality == "features" else None  # type: ignore[union-attr]
    encoder = encoder or choose_encoder(config, data.modality, given)
    parts: dict[str, EncodedSamples] = {}
    for name, samples in (("training", data.train), ("test", data.test)):

        def say(done: int, total: int, name: str = name) -> None:
            if progress:
                progress(done, total, f"encoding {name} samples")

        parts[name] = encode_samples(
            encoder, samples, cache_dir=cache_dir, readers=config.readers, progress=say, strict=config.strict
        )
    train, test = parts["training"], parts["test"]
    features = Features(
        config.data,
        len(data.class_names),
        Samples(train.features, train.labels),
        Samples(test.features, test.labels),
        class_names=data.class_names,
        domains=train.domains,
        ids=train.clients,
    )
    problems = tuple(dict.fromkeys(train.problems + test.problems))
    options = {name: getattr(config, name) for name in ("size", "pooling") if getattr(config, name) is not None}
    kept = (train.kept, test.kept)
    return Encoded(data, encoder, features, problems, train.computed + test.computed, options, kept)


def _require_splits(config: JobConfig, data: DataSet) -> None:
    """Refuse a split that these data do not allow, before hours of encoding."""
    part = data.train
    for text in config.splits:
        for number in config.clients or (None if finds_clients(text) else CLIENTS,):
            parse_split(text).apply(
                part.labels, n_clients=number, seed=config.seed, domains=part.domains, ids=part.clients
            )
