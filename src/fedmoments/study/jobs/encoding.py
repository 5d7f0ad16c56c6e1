"""From what a person typed to features: load the data, choose the encoder, encode (or read the cache)."""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.maps import FeatureMap
from fedmoments.core.maps.power import AUTO
from fedmoments.core.observations.parts import Data
from fedmoments.core.observations.parts import Problem as SampleProblem
from fedmoments.core.tables import FIRST_EXCHANGE, table_after
from fedmoments.errors import InputError
from fedmoments.provenance import code_of
from fedmoments.samples import parse_split
from fedmoments.samples.class_words import name_features
from fedmoments.samples.dataset import DataSet
from fedmoments.samples.duplicates import find_duplicates
from fedmoments.samples.encoders.encoder import Encoder
from fedmoments.samples.encoders.pipeline import EncodedSamples
from fedmoments.samples.feature_maps import chosen_map
from fedmoments.samples.features import Features, Samples
from fedmoments.samples.fingerprint import Fingerprint
from fedmoments.samples.raw_tables import is_draft
from fedmoments.samples.reading import choose_encoder, encode_parts, read_data
from fedmoments.samples.samples import Problem
from fedmoments.samples.splits.numbers import CLIENTS, finds_clients
from fedmoments.settings.study import StudySettings

__all__ = ["Encoded", "encode_data"]

#: What may become of test samples that are trained on, too.
DUPLICATES = ("warn", "drop", "keep")
#: Called with (done, in all, what is being done).
Progress = Callable[[int, int, str], None]


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
    drafted: bool = False
    notes: tuple[str, ...] = ()

    def measured_as(self, feature_map: FeatureMap | None = None) -> Fingerprint:
        """Return the fingerprint of what clients measure, behind a public map if there is one."""
        return Fingerprint.of(self.encoder, feature_map, self.data.class_names)

    def behind(self, word: str, heads: Sequence[str]) -> "Encoded":
        """Return the same with the public map that a word, or these heads by themselves, stand for.

        Where no word is given, heads that choose have the map of their rule also beside heads that have none. Of a raw
        table, its map comes first: as it is given, or made of a first exchange in which all clients take part.
        """
        train = self.features.train
        table, exchange = self.data.table, None
        if table is not None and self.drafted:
            exchange = (FIRST_EXCHANGE, len(table.outputs))
            table = table_after(table, train.X, train.y, n_classes=self.features.n_classes)
        given = (train.X, train.y) if self.data.modality == "features" else (None, None)
        public_map = chosen_map(word, heads, self.encoder.name, *given, table=table)
        advised = None if word or public_map else chosen_map(AUTO, heads, self.encoder.name, *given)
        return replace(
            self, features=replace(self.features, public_map=public_map, advised_map=advised, first_exchange=exchange)
        )

    def _exchanged(self) -> tuple[str, ...]:
        """Say what a first exchange was about, where there was one."""
        if self.features.first_exchange is None:
            return ()
        spec, columns = self.features.first_exchange
        said = f"the map of this raw table comes from a first exchange ({spec}, {columns:,} columns)"
        return (f"{said}, whose bytes are counted",)

    def basis(self) -> list[str]:
        """Return what every outcome depends on besides its setting: code, data, encoder, and who holds what."""
        groups = hashlib.sha256()
        for keys in (self.features.domains, self.features.ids, self.features.groups):
            groups.update(json.dumps(None if keys is None else [str(key) for key in keys.tolist()]).encode())
        encoder = (self.encoder.fingerprint, self.encoder.behaviour.digest)
        names = "names" if self.features.names is not None else ""
        maps = (self.features.public_map, self.features.advised_map)
        stages = [type(stage) for part in maps if part for stage in getattr(part, "maps", (part,))]
        code, printed = code_of(type(self.encoder), *stages), [part.fingerprint() if part else "" for part in maps]
        tested = str(len(self.features.test))  # fewer where duplicates are left out
        return [code, self.data.digest, *encoder, groups.hexdigest(), *printed, names, tested]

    def describe(self) -> Data:
        """Return what results say of the data."""
        features = self.features
        return Data(
            self.data.name,
            self.data.description,
            len(features.train),
            len(features.test),
            features.dim,
            features.n_classes,
            tuple(self.data.class_names),
            self.data.modality,
            self.data.digest,
            feature_map=features.public_map.describe() if features.public_map else None,
            problems=tuple(SampleProblem(problem.where, problem.why) for problem in self.problems),
            encoder={**self.encoder.note(self.options), "preprocessing": dict(self.encoder.preprocessing)},
            notes=(*self.notes, *self._exchanged()),
        )


def encode_data(
    config: StudySettings,
    *,
    cache_dir: Any = None,
    progress: Progress | None = None,
    encoder: Encoder | None = None,
    tables: bool = False,
) -> Encoded:
    """Load the data of a job and encode both parts of it, by the encoder that the job names unless one is given.

    Parameters
    ----------
    config
        The job.
    cache_dir, progress, encoder
        Folder of the feature cache; called before every step; in place of the encoder that the job names.
    tables
        Whether this job measures behind a map, which raw tables need.
    """
    data = read_data(config)
    if data.table is not None and not tables:
        raise InputError(
            "raw tables (--table) are for simulate, measure, evaluate, predict and federations; write features by "
            "'fedmoments encode --table FILE' for other commands"
        )
    if not len(data.test):
        raise InputError(f"{config.data} holds no sample to test on: give a test part, or a test_share above 0")
    if data.modality != "features":  # otherwise nothing takes long before the splits themselves are made
        _require_splits(config, data)
    width = data.train.items.shape[1] if data.modality == "features" else None  # type: ignore[union-attr]
    encoder = encoder or choose_encoder(config, data.modality, width)
    parts = encode_parts(data, encoder, progress, cache_dir=cache_dir, readers=config.readers, strict=config.strict)
    train, test = parts["train"], parts["test"]
    tested, notes = _tested(config, data, train, test)
    features = Features(
        config.data,
        len(data.class_names),
        Samples(train.features, train.labels),
        Samples(test.features[tested], test.labels[tested]),
        class_names=data.class_names,
        domains=train.domains,
        ids=train.clients,
        groups=train.groups,
        names=name_features(data.class_names, encoder, data.modality) if config.names else None,
    )
    problems = tuple(dict.fromkeys(train.problems + test.problems))
    options = {name: getattr(config, name) for name in ("size", "pooling") if getattr(config, name) is not None}
    kept = (train.kept, test.kept[tested])
    return Encoded(
        data, encoder, features, problems, train.computed + test.computed, options, kept, is_draft(config.table), notes
    )


def _tested(
    config: StudySettings, data: DataSet, train: EncodedSamples, test: EncodedSamples
) -> tuple[NDArray[np.int64] | slice, tuple[str, ...]]:
    """Return which encoded test samples are tested on, and what is to be said of those that are trained on, too."""
    if config.duplicates not in DUPLICATES:
        raise InputError(f"--duplicates is one of {', '.join(DUPLICATES)}, not '{config.duplicates}'")
    if config.duplicates == "keep":
        return slice(None), ()
    rows = None if data.modality == "features" else (train.features, test.features)
    found = find_duplicates(data.train.take(train.kept), data.test.take(test.kept), rows)
    dropped = config.duplicates == "drop"
    sentence = found.sentence(dropped=dropped)
    if dropped and found.any_kind.all():
        raise InputError(f"{sentence}: nothing is left to test on")
    return np.flatnonzero(~found.any_kind) if dropped else slice(None), (sentence,) if sentence else ()


def _require_splits(config: StudySettings, data: DataSet) -> None:
    """Refuse a split that these data do not allow, before hours of encoding."""
    part = data.train
    for text in config.splits:
        for number in config.clients or (None if finds_clients(text) else CLIENTS,):
            parse_split(text).apply(
                part.labels,
                n_clients=number,
                seed=config.seed,
                domains=part.domains,
                ids=part.clients,
                groups=part.groups,
            )
