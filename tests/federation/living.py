"""A small federation that lives: parties with files of features, a ledger, and rounds without a network."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedmoments.core.statistics import Statistics
from fedmoments.federation.drawing_up import draw_up_terms
from fedmoments.federation.flower.node import Node, Offer, identity_of
from fedmoments.federation.store import FederationStore
from fedmoments.federation.store.showing import make_signing_key
from fedmoments.federation.terms import Terms
from fedmoments.samples.encoders import load_encoder
from fedmoments.settings.client import ClientSettings
from fedmoments.settings.samples import EncoderChoice
from fedmoments.wire import unpack_bundle

DIM = 5
#: A point in feature space for every class that tests use.
CENTRES = {name: 4.0 * np.eye(DIM)[place] for place, name in enumerate(["cat", "dog", "yak", "emu", "ox"])}


def write_features(path: Path, counts: dict[str, int], seed: int) -> Path:
    """Write so many samples of each class, dealt out in turn, with a small test part."""
    rng = np.random.default_rng(seed)
    names = sorted(counts)
    known = {name: CENTRES.get(name, CENTRES["cat"]) for name in names}
    labels = np.concatenate([np.full(counts[name], place) for place, name in enumerate(names)])
    X = np.stack([known[names[place]] for place in labels]) + rng.normal(size=(len(labels), DIM))
    tests = np.arange(len(names)).repeat(6)
    T = np.stack([known[names[place]] for place in tests]) + rng.normal(size=(len(tests), DIM))
    classes = np.array(names)
    arrays: dict[str, Any] = {"x_train": X.astype(np.float32), "x_test": T.astype(np.float32)}
    np.savez(path, **arrays, y_train=labels, y_test=tests, classes=classes)
    return path


def loaded(path: str | Path) -> dict[str, Any]:
    """Return the arrays of a features file, which is closed again."""
    with np.load(path) as archive:
        return {name: archive[name] for name in archive.files}


def new_ledger(path: Path, classes: tuple[str, ...], heads: tuple[str, ...] = ("fedcof",), **more: Any) -> Terms:
    """Make a ledger whose log is signed, as ``server create`` does."""
    terms = draw_up_terms("pets", EncoderChoice(), load_encoder("identity", dim=DIM), classes, heads, **more)
    terms = replace(terms, server=make_signing_key(path).public.hex)
    FederationStore.create(path, terms).close()
    return terms


@dataclass
class Party:
    """One party: its folder, its settings, and what it says when it is asked."""

    name: str
    folder: Path
    data: str
    changes: dict[str, Any] = field(default_factory=dict)

    @property
    def settings(self) -> ClientSettings:
        """Return its settings as they are now."""
        own = ClientSettings(
            data=self.data, folder=str(self.folder), name=self.name, key_seed="trial", policy={"min_count": 1}
        )
        return replace(own, **self.changes)

    def offer(self, terms: Terms, **more: Any) -> Offer:
        """Return what it would send."""
        return Node(self.settings).contribute(terms, most_bytes=2**30, **more)


def enrol(ledger: Path, *parties: Party) -> None:
    """Enrol parties with their keys."""
    with FederationStore.open(ledger) as store:
        store.enrol_many([(party.name, identity_of(party.settings, party.name).public, None) for party in parties])


def ask(ledger: Path, party: Party, **more: Any) -> Offer:
    """Let a ledger ask a party, take in what it sends, and acknowledge it; nothing may be refused."""
    with FederationStore.open(ledger) as store:
        offer = party.offer(store.terms, **more)
        receipts = [store.submit(bytes(item)) for item in unpack_bundle(offer.bundle, max_bytes=2**30, max_items=9)]
        shown = store.show([receipt.seq for receipt in receipts], offer.seen)
        problems = Node(party.settings).acknowledge([receipt.to_json() for receipt in receipts], [], shown)
    assert problems == []
    return offer


def held(ledger: Path) -> Statistics:
    """Return what a ledger holds."""
    with FederationStore.open(ledger) as store:
        return store.statistics()
