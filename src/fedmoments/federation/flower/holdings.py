"""What a node holds: the features and labels of its clients, measured behind the encoder that the terms name.

A node in the field holds one client's own data. In a trial it plays some parts of a data set that is split over many.
Only its own samples are encoded; what was encoded before is found in the feature cache.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedmoments.errors import InputError
from fedmoments.federation.flower.held import Held
from fedmoments.federation.outbox.progress import Progress
from fedmoments.federation.own_data import accepted_terms, read_own, reading_own
from fedmoments.federation.own_memory import memory_stamp
from fedmoments.federation.terms import Terms
from fedmoments.samples import Split, parse_split
from fedmoments.samples.dataset import DataSet
from fedmoments.samples.encoders.encoder import Encoder
from fedmoments.samples.encoders.pipeline import encode_samples
from fedmoments.samples.encoders.registry import require_trusted
from fedmoments.samples.fingerprint import Fingerprint
from fedmoments.samples.reading import choose_encoder
from fedmoments.samples.samples import Samples
from fedmoments.samples.splits.split import client_name
from fedmoments.settings.client import ClientSettings

__all__ = ["MOST_NAMES", "Holdings", "holdings_of", "made_holdings"]

#: Names that a client's own record lists.
MOST_NAMES = 20

T = TypeVar("T")
Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.int64]


class Holdings:
    """The data of one node's clients under the terms of one federation.

    Parameters
    ----------
    settings
        The client's own.
    terms
        Of the federation; another encoder, preprocessing or class list than theirs is refused.

    Attributes
    ----------
    clients
        Ids of this node's clients.
    terms
        As given.
    unknown
        Own classes that the federation does not have, whose samples are left out, and how many samples of each.
    """

    def __init__(self, settings: ClientSettings, terms: Terms) -> None:
        self._settings, self.terms = settings, terms
        parts = (0,) if settings.name and settings.split else ()
        remembering = "" if settings.split else settings.memory or settings.folder
        whole = replace(settings, partitions=parts, policy={}, folder="", memory=remembering)
        keep = bool(settings.folder)
        base = _SHARED.get(f"{whole}{terms.digest}{memory_stamp(whole)}", lambda: _load(whole, terms, keep=keep))
        self._data, self._encoder, self._labels, self._splits = base.data, base.encoder, base.labels, base.splits
        self._numbers = self._own_numbers()
        self._parts: dict[int, tuple[Floats, Ints]] = {}
        #: Samples of this node that could not be read, by name: to train on and to test on; known once encoded.
        self.unreadable: list[tuple[str, ...]] = [(), ()]
        self.clients = tuple(self._numbers)
        self.unknown = base.unknown

    def _own_numbers(self) -> dict[str, int]:
        """Client id -> number of its part of the data."""
        if self._splits is None:
            return {self._settings.name: 0}
        n = self._splits[0].n_clients
        wanted: Sequence[int] = self._settings.partitions or range(n)
        if not all(0 <= number < n for number in wanted):
            raise InputError(f"partitions must be from 0 to {n - 1}, but {sorted(wanted)} arrived")
        if self._settings.name:
            return {self._settings.name: wanted[0]}
        return {client_name(number, n): number for number in wanted}

    def train(self, client: str) -> Held:
        """Return what a client measures."""
        return self._held(client, 0)

    def notes_of_unreadable(self, part: int) -> dict[str, Any]:
        """Return what the party's own record says of samples that could not be read; nothing if there are none."""
        names = self.unreadable[part]
        return {"unreadable": {"samples": len(names), "names": list(names[:MOST_NAMES])}} if names else {}

    def test(self, client: str) -> Held:
        """Return what a client evaluates broadcast heads on; nothing, if its data have no test part."""
        return self._held(client, 1)

    @property
    def encoder(self) -> Encoder:
        """What the terms name."""
        return self._encoder

    def samples(self, *, test: bool = False) -> Samples:
        """Return all samples of the data set's training or test part, this node's and others'."""
        return self._data.test if test else self._data.train

    def rows(self, client: str, *, test: bool = False) -> tuple[Ints, Ints]:
        """Return which of :meth:`samples` are a client's and can be read, ascending, and their labels."""
        samples = self.samples(test=test)
        mine = np.arange(len(samples), dtype=np.int64)
        if self._splits is not None:
            mine = np.sort(self._splits[int(test)].indices(self._numbers[client]))
        if self._data.modality != "features":
            mine = mine[np.isin(mine, self._encoded(int(test))[1])]
        return mine, self._labels[samples.labels[mine]]

    def _held(self, client: str, part: int) -> Held:
        samples = (self._data.train, self._data.test)[part]
        everything = np.arange(len(samples), dtype=np.int64)
        mine = everything if self._splits is None else self._splits[part].indices(self._numbers[client])
        if self._data.modality == "features" and isinstance(samples.items, np.ndarray):
            return self._given(samples, mine)
        features, kept = self._encoded(part)
        at = np.searchsorted(kept, mine)
        present = (at < len(kept)) & (kept[np.minimum(at, max(len(kept) - 1, 0))] == mine) if len(kept) else mine < 0
        return Held(features[at[present]], self._labels[samples.labels[mine[present]]])

    def _given(self, samples: Samples, mine: Ints) -> Held:
        """Return features that came as features; rows that are not finite are left out, as an encoder would."""
        X = np.asarray(np.asarray(samples.items)[mine], np.float32)
        finite = np.isfinite(X).all(axis=1)
        if not finite.all():
            X, mine = X[finite], mine[finite]
        return Held(X, self._labels[samples.labels[mine]])

    def _encoded(self, part: int) -> tuple[Floats, Ints]:
        """Return features of all samples of this node in one part, and which samples those are, ascending."""
        if part not in self._parts:
            samples = (self._data.train, self._data.test)[part]
            mine = np.arange(len(samples), dtype=np.int64)
            if self._splits is not None:
                mine = np.sort(np.concatenate([self._splits[part].indices(k) for k in self._numbers.values()]))
            self._parts[part] = (np.zeros((0, self._encoder.dim), np.float32), mine[:0])
            if len(mine):
                own = samples if self._splits is None else samples.take(mine)
                chosen = self._settings
                cache: Any = chosen.cache
                with reading_own():
                    encoded = encode_samples(
                        self._encoder, own, cache_dir=cache, readers=chosen.readers, strict=chosen.strict,
                        progress=Progress(Path(chosen.folder), "encoding", "sample").move if chosen.folder else None,
                    )  # fmt: skip
                self._parts[part] = (encoded.features, mine[encoded.kept])
                gone = np.setdiff1d(np.arange(len(own)), encoded.kept)
                self.unreadable[part] = tuple(own.source(place) for place in gone.tolist())
        return self._parts[part]


@dataclass(frozen=True, eq=False)
class _Shared:
    """What all nodes of one process share, when they play parts of one data set."""

    data: DataSet
    encoder: Encoder
    labels: Ints
    unknown: Mapping[str, int]
    splits: tuple[Split, Split] | None


def _load(mine: ClientSettings, agreed: Terms, *, keep: bool) -> _Shared:
    require_trusted(agreed.encoder["name"], mine.trust, "the federation's terms")
    data, labels, unknown = read_own(mine, agreed, keep=keep)
    given = data.train.items.shape[1] if data.modality == "features" else None  # type: ignore[union-attr]
    encoder = choose_encoder(
        mine.with_encoder(agreed.encoder["name"], **agreed.encoder["options"]), data.modality, given
    )
    here = Fingerprint.of(encoder, agreed.fingerprint.feature_map, agreed.classes)
    agreed.fingerprint.require_same(here, ours="the federation's terms", theirs="this client")
    return _Shared(data, encoder, labels, unknown, _splits(mine, data))


def _splits(settings: ClientSettings, data: DataSet) -> tuple[Split, Split] | None:
    """Return who holds which training and which test sample; test samples are dealt out in turn."""
    if not settings.split:
        return None
    part = data.train
    split = parse_split(settings.split).apply(
        part.labels,
        n_clients=settings.clients,
        seed=settings.seed,
        domains=part.domains,
        ids=part.clients,
        groups=part.groups,
    )
    turns = np.arange(len(data.test), dtype=np.int64) % split.n_clients
    return split, Split(turns, split.n_clients, "in turn")


class _Recent(Generic[T]):
    """The values that were used last, by key."""

    def __init__(self, most: int) -> None:
        self._most, self._values = most, dict[str, T]()

    def get(self, key: str, make: Callable[[], T]) -> T:
        """Return the value of a key, made now if need be."""
        value = self._values.pop(key) if key in self._values else make()
        self._values[key] = value
        while len(self._values) > self._most:
            del self._values[next(iter(self._values))]
        return value


_SHARED: _Recent[_Shared] = _Recent(2)
_HOLDINGS: _Recent[Holdings] = _Recent(16)


def holdings_of(settings: ClientSettings, terms: Terms) -> Holdings:
    """Return the holdings of a node under the terms it accepted; data, encoder and split are loaded once a process."""
    terms = accepted_terms(settings, terms)
    return _HOLDINGS.get(f"{settings}{terms.digest}{memory_stamp(settings)}", lambda: made_holdings(settings, terms))


def made_holdings(settings: ClientSettings, terms: Terms) -> Holdings:
    """Return the holdings of a node, made now."""
    if not settings.by_file:
        return Holdings(settings, terms)
    from fedmoments.federation.lake.holdings import LakeHoldings

    return LakeHoldings(settings, terms)
