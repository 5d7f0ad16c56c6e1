"""A small federation: terms, clients with keys of their own, and contributions that they signed."""

import hashlib
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmoments.core.statistics import FixedPoint, Statistics, StatisticsSpec
from fedmoments.federation.store import FederationStore
from fedmoments.federation.terms import Terms
from fedmoments.samples.fingerprint import Fingerprint
from fedmoments.wire import IdentityKey, Withheld, encode


@dataclass
class Federation:
    """Makes contributions: the same content number gives the same samples, whoever holds them."""

    terms: Terms
    keys: dict[str, IdentityKey] = field(default_factory=dict)

    @classmethod
    def of(cls, *moments: str, dim: int = 8, n_classes: int = 5, rows: str = "int64", **more: Any) -> "Federation":
        max_samples = more.pop("max_samples", 10**6)
        fingerprint = Fingerprint("none", "none", None, tuple(f"class {label}" for label in range(n_classes)))
        return cls(
            Terms(
                "test",
                {"name": "identity", "options": {}},
                fingerprint,
                dim,
                StatisticsSpec.of(*moments, **more),
                FixedPoint(64.0, max_samples),
                rows=rows,
                nonce="fixed",
            )
        )

    def key(self, client: str) -> IdentityKey:
        if client not in self.keys:
            self.keys[client] = IdentityKey.from_bytes(hashlib.sha256(client.encode()).digest())
        return self.keys[client]

    def statistics(self, content: int, samples: int = 12) -> Statistics:
        rng = np.random.default_rng([content, samples])
        present = rng.choice(self.terms.agreement.n_classes, 3, replace=False)
        y = rng.choice(present, samples)
        X = rng.normal(size=(samples, self.terms.dim))
        stats = Statistics.of(X, y, self.terms.spec, n_classes=self.terms.agreement.n_classes)
        return stats.quantized(self.terms.fixed_point)

    def data(
        self,
        client: str,
        version: int = 1,
        content: int | None = None,
        samples: int = 12,
        withheld: Withheld = Withheld(),  # noqa: B008
    ) -> bytes:
        number = int.from_bytes(hashlib.sha256(client.encode()).digest()[:4], "big") if content is None else content
        stats = self.statistics(number, samples)
        agreement = self.terms.agreement
        return encode(stats, agreement, client=client, version=version, key=self.key(client), withheld=withheld)

    def store(self, path: Path, clients: Iterable[str] = ()) -> FederationStore:
        store = FederationStore.create(path, self.terms)
        store.enrol_many((client, self.key(client).public, None) for client in clients)
        return store


def totals_of(path: Path) -> dict[tuple[str, int], bytes]:
    """Every row of the running sums, read without the store."""
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT moment, label, data FROM totals").fetchall()
    return {(moment, label): data for moment, label, data in rows}


@pytest.fixture
def federation() -> Federation:
    return Federation.of("client_means", "gram")


@pytest.fixture
def federation_of() -> Callable[..., Federation]:
    return Federation.of


@pytest.fixture
def read_totals() -> Callable[[Path], dict[tuple[str, int], bytes]]:
    return totals_of


@pytest.fixture
def store(federation: Federation, tmp_path: Path) -> Iterator[FederationStore]:
    """A ledger with the clients a, b, c and d enrolled."""
    with federation.store(tmp_path / "ledger", "abcd") as store:
        yield store
