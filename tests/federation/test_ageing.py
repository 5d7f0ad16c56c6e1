"""Contributions that grow old: weights by age, which touch no stored integer, and drift of class means."""

import time
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cryptography")
pytest.importorskip("flwr")

from hypothesis import given
from hypothesis import strategies as st
from tests.federation.living import DIM, Party, ask, enrol, held, new_ledger, write_features

from fedmoments.core.statistics import Statistics
from fedmoments.errors import FedMomentsError, InputError, NotEnoughDataError
from fedmoments.federation import ageing
from fedmoments.federation.ageing import aged_statistics, drift_since, weights_of_ages
from fedmoments.federation.results import fit_heads, source_of
from fedmoments.federation.store import FederationStore
from fedmoments.privacy.protection import Agreed

CLASSES = ("cat", "dog")


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """Three parties, in a ledger of sums and client means."""
    path = tmp_path / "ledger"
    new_ledger(path, CLASSES, ("fed3r", "fedcof"))
    parties = [
        Party(name, tmp_path / name, str(write_features(tmp_path / f"{name}.npz", {"cat": 20, "dog": 20}, seed)))
        for seed, name in enumerate(["ann", "bob", "eve"])
    ]
    enrol(path, *parties)
    for one in parties:
        ask(path, one)
    return path


def with_ages(monkeypatch: pytest.MonkeyPatch, **days: float) -> None:
    monkeypatch.setattr(ageing, "_ages", lambda store: dict(days))


def test_a_weighed_ledger_is_one_whose_samples_were_measured_so_many_times(
    ledger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_ages(monkeypatch, ann=60.0, bob=30.0, eve=0.0)
    with FederationStore.open(ledger) as store:
        before, digest = store.statistics(), store.digest()
        weighed = aged_statistics(store, 30.0)
        parts = dict(store.contributions())
        spec = store.terms.spec.additive
        times = [*[parts["ann"]] * 1, *[parts["bob"]] * 2, *[parts["eve"]] * 4]
        assert weighed == Statistics.merge(part.restricted(spec) for part in times)
        assert (store.statistics(), store.digest()) == (before, digest)
        head = fit_heads(store, ["fed3r"], source=source_of(store, half_life=30.0))["fed3r"]
        assert head.classifier.n_classes == 2
        with pytest.raises(FedMomentsError, match="client_means"):
            fit_heads(store, ["fedcof"], source=source_of(store, half_life=30.0))
        with pytest.raises(InputError, match="not applied together"):
            source_of(store, half_life=30.0, max_samples=10)


def test_contributions_of_one_age_weigh_as_without_a_half_life(ledger: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_ages(monkeypatch, ann=9.0, bob=9.0, eve=9.0)
    with FederationStore.open(ledger) as store:
        assert aged_statistics(store, 1.0) == store.statistics(store.terms.spec.additive)


def test_no_half_life_makes_a_head_of_one_party_alone(ledger: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Class means of a party would be in a classifier that all parties receive."""
    with FederationStore.open(ledger) as store:
        with pytest.raises(NotEnoughDataError, match="only the contribution of 'eve' has a weight, of 3"):
            source_of(store, half_life=1e-9)
        with_ages(monkeypatch, ann=60.0, bob=30.0, eve=0.0)
        with pytest.raises(NotEnoughDataError, match="choose a longer half-life"):
            source_of(store, half_life=5.0)
        assert source_of(store, half_life=7.0).statistics.n_samples == 40 * (16 + 1)
        store.leave("ann")
        store.leave("bob")
        with_ages(monkeypatch, eve=0.0)
        assert source_of(store, half_life=5.0).statistics.n_samples == 40  # there is nobody else


def test_after_leaving_the_weighed_ledger_never_held_the_party(ledger: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_ages(monkeypatch, ann=60.0, bob=30.0, eve=0.0)
    with FederationStore.open(ledger) as store:
        parts, spec = dict(store.contributions()), store.terms.spec.additive
        store.leave("bob")
        with_ages(monkeypatch, ann=60.0, eve=0.0)
        times = [parts["ann"], *[parts["eve"]] * 4]
        assert aged_statistics(store, 30.0) == Statistics.merge(part.restricted(spec) for part in times)


@given(st.lists(st.floats(0, 1e5), min_size=1, max_size=8), st.floats(0.01, 1e4))
def test_weights_fall_with_age_and_the_newest_always_counts(days: list[float], half_life: float) -> None:
    weights = weights_of_ages(days, half_life)
    assert weights[days.index(min(days))] == max(weights) > 0
    pairs = sorted(zip(days, weights, strict=True))
    assert all(a[1] >= b[1] for a, b in pairwise(pairs))
    assert int(np.gcd.reduce(weights)) == 1


def test_a_half_life_is_a_number_of_days_above_nothing() -> None:
    for wrong in (0.0, -1.0, float("nan")):
        with pytest.raises(InputError, match="above 0"):
            weights_of_ages([0.0], wrong)


def test_ages_are_told_from_the_log(ledger: Path) -> None:
    with FederationStore.open(ledger) as store:
        ages = ageing._ages(store)
    assert set(ages) == {"ann", "bob", "eve"}
    assert min(ages.values()) == 0.0
    assert 0 <= max(ages.values()) < 1


def test_masked_and_noised_contributions_have_no_age(tmp_path: Path) -> None:
    new_ledger(tmp_path / "noised", CLASSES, ("fed3r",), privacy=Agreed(epsilon=1.0))
    with FederationStore.open(tmp_path / "noised") as store, pytest.raises(InputError, match="have no age"):
        aged_statistics(store, 30.0)


@pytest.mark.parametrize("heads", [("fed3r",), ("gh-nb",), ("fedcof",)])
def test_drift_is_told_in_units_of_the_spread_within_classes(tmp_path: Path, heads: tuple[str, ...]) -> None:
    path, rng = tmp_path / "ledger", np.random.default_rng(0)
    new_ledger(path, CLASSES, heads)
    y = np.arange(200) % 2
    moved = np.where(y == 1, 2.0, 0.0)[:, None] * np.eye(DIM)[0]  # dogs moved by 2, cats did not
    parties = []
    for number in range(6):
        X = rng.normal(size=(200, DIM)) + 3.0 * np.eye(DIM)[y + 1] + (moved if number >= 3 else 0.0)
        file = tmp_path / f"{number}.npz"
        arrays: Any = {"x_train": X.astype(np.float32), "y_train": y, "x_test": X[:9].astype(np.float32)}
        np.savez(file, **arrays, y_test=y[:9], classes=np.array(CLASSES))
        parties.append(Party(f"p{number}", tmp_path / f"p{number}", str(file)))
    enrol(path, *parties)
    for one in parties[:3]:
        ask(path, one)
    time.sleep(0.01)
    moment = datetime.now(UTC)
    for one in parties[3:]:
        ask(path, one)
    with FederationStore.open(path) as store:
        first, second = drift_since(store, moment)
        assert (first.name, first.before, first.since) == ("dog", 300, 300)
        if heads != ("fedcof",):  # the means of clients that moved spread more than chance: a smaller unit is not known
            assert first.distance == pytest.approx(2 / np.sqrt(DIM), rel=0.1)
            assert first.ratio > 50
        assert second.ratio < 5
        assert first.distance > 5 * second.distance
        with pytest.raises(NotEnoughDataError):
            drift_since(store, moment + timedelta(days=1))
    assert held(path).n_samples == 1200
