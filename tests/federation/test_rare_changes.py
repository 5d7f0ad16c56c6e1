"""The difference of two versions is a second moment of what changed: no row of it may be a sample."""

from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cryptography")
pytest.importorskip("flwr")

from hypothesis import given
from hypothesis import strategies as st
from tests.federation.living import DIM, Party, ask, enrol, held, new_ledger

from fedmoments.core.maps import RandomProjection
from fedmoments.core.statistics import SketchPlan, StatisticsSpec
from fedmoments.errors import FileFormatError, PolicyError
from fedmoments.federation.outbox import Outbox
from fedmoments.federation.outbox.differences import sample_keys, tells_second_moments
from fedmoments.federation.outbox.rare_changes import Measured, SharedValues, require_common_change
from fedmoments.federation.store import FederationStore
from fedmoments.federation.terms import Terms
from fedmoments.privacy.rare_values import Shown
from fedmoments.samples.fingerprint import Fingerprint
from fedmoments.settings.policy import PolicyRules

FEWEST = 5
RULES = PolicyRules(min_count=FEWEST)
TERMS = Terms(
    "pets",
    {"name": "identity", "options": {}},
    Fingerprint("none", "none", None, ("cat", "dog")),
    DIM,
    StatisticsSpec.of("gram"),
)


def behind_a_relu(n: int, holders: int, seed: int = 0, offset: float = 0.0) -> Any:
    """Features of which the first column is ``offset`` but for the first few samples."""
    X = np.abs(np.random.default_rng(seed).normal(size=(n, DIM))).astype(np.float32) + 0.1
    X[:, 0] = offset
    X[:holders, 0] += np.arange(1.0, holders + 1)
    return X


def test_versions_of_a_sketch_of_all_directions_are_compared_like_grams() -> None:
    n = 100
    keys = sample_keys(np.random.default_rng(0).normal(size=(n, DIM)), np.arange(n) % 2)
    for rank, told in ((DIM, True), (DIM - 1, False)):
        plan = SketchPlan(None, rank=rank, code="float64", share=1.0)
        terms = replace(TERMS, spec=StatisticsSpec.of("scatter_sketch", sketch=plan))
        assert tells_second_moments(keys, terms, RULES) is told
        assert not tells_second_moments(keys, terms, replace(RULES, sketch_share=0.01))
        assert not tells_second_moments(keys[: 12 * 8], terms, RULES)  # the policy keeps most rows of few samples


class Clinic:
    """A party whose data change, in a federation of grams under the default policy."""

    def __init__(self, place: Path, **policy: Any) -> None:
        self.place, self.ledger = place, place / "ledger"
        new_ledger(self.ledger, ("cat", "dog"), ("fed3r",))
        self.party = Party("clinic", place / "clinic", "", {"policy": policy})
        enrol(self.ledger, self.party)

    def give(self, X: Any) -> Any:
        """Have the party measure cats, beside dogs that stay; return what it would send."""
        path, dogs = self.place / f"{sha256(X.tobytes()).hexdigest()}.npz", behind_a_relu(20, 10, seed=9)
        y = np.repeat([0, 1], [len(X), len(dogs)])
        tests: Any = {"x_test": X[:2], "y_test": [0, 0], "classes": np.array(["cat", "dog"])}
        np.savez(path, x_train=np.concatenate([X, dogs]), y_train=y, **tests)
        self.party.data = str(path)
        with FederationStore.open(self.ledger) as store:
            return self.party.offer(store.terms)

    def gram(self, X: Any) -> Any:
        """Return what the server holds once it asked for these cats."""
        offer = self.give(X)
        assert offer.clients == ("clinic",), offer.declined
        ask(self.ledger, self.party)
        return held(self.ledger).to_float().gram


@pytest.mark.parametrize("offset", [0.0, -1.5])
@pytest.mark.parametrize("n", [DIM + 1, 4 * DIM])
def test_one_of_many_added_samples_does_not_come_back(n: int, offset: float, tmp_path: Path) -> None:
    """Six of the class have the feature already, so it is measured; of what is added, one sample has it."""
    old, new = behind_a_relu(30, 6, offset=offset), behind_a_relu(n, 1, seed=1, offset=offset)
    shown = Clinic(tmp_path, small_changes=True)  # what the rule is for
    difference = shown.gram(np.concatenate([old, new])) - shown.gram(old)
    row = difference[0] - offset * new.sum(axis=0, dtype=np.float64)
    np.testing.assert_allclose(row / (new[0, 0] - offset), new[0], atol=1e-4)
    (tmp_path / "default").mkdir()
    clinic = Clinic(tmp_path / "default")
    clinic.gram(old)
    offer = clinic.give(np.concatenate([old, new]))
    assert offer.clients == ()
    assert "few have a feature that the others lack" in offer.declined[0]["why"]
    assert "1 of the columns of cat" in offer.declined[0]["details"]
    assert "cat" not in offer.declined[0]["why"]
    clinic.gram(np.concatenate([old, behind_a_relu(n, FEWEST, seed=2, offset=offset)]))


def test_one_of_many_forgotten_samples_does_not_come_back(tmp_path: Path) -> None:
    kept, gone = behind_a_relu(30, 6), behind_a_relu(12, 1, seed=1)
    clinic = Clinic(tmp_path)
    clinic.gram(np.concatenate([kept, gone]))
    offer = clinic.give(kept)
    assert offer.clients == ()
    assert "1 of the columns of cat" in offer.declined[0]["details"]
    clinic.gram(np.concatenate([kept, gone[:1]]))  # eleven that lack the feature may go


def test_a_rotation_of_the_features_hides_no_change_of_few() -> None:
    rotation, rules = RandomProjection(DIM, DIM, seed=1), PolicyRules(min_count=FEWEST)
    terms = replace(TERMS, fingerprint=replace(TERMS.fingerprint, feature_map=rotation))
    old, new = behind_a_relu(30, 6), behind_a_relu(20, 1, seed=1)
    whole = np.concatenate([old, new])
    y = np.zeros(len(whole), np.int64)
    shown, before = (Shown(X, y[: len(X)], rotation, {"gram"}, FEWEST).compared for X in (whole, old))
    keys = sample_keys(whole, y)
    for former, X, now in (
        ((sample_keys(old, y[:30]), SharedValues.of(before, y[:30])), whole, shown),
        ((keys, SharedValues.of(shown, y)), old, before),
    ):
        with pytest.raises(PolicyError, match="few have a feature"):
            require_common_change([former], Measured(sample_keys(X, y[: len(X)]), now), terms, "clinic", rules)


def test_dense_features_change_as_before(tmp_path: Path) -> None:
    clinic, X = Clinic(tmp_path), np.random.default_rng(3).normal(size=(40, DIM)).astype(np.float32)
    clinic.gram(X[:20])
    clinic.gram(X)
    clinic.gram(X[:30])


def test_what_an_older_release_did_not_keep_cannot_be_told(tmp_path: Path) -> None:
    clinic, X = Clinic(tmp_path), np.random.default_rng(3).normal(size=(40, DIM)).astype(np.float32)
    clinic.gram(X[:30])
    with Outbox(clinic.party.folder) as outbox, outbox._database.writing() as connection:
        connection.execute("UPDATE samples SET shared = NULL")
    assert "few have a feature" in clinic.give(X[:20]).declined[0]["why"]
    clinic.gram(X)  # of what is added everything is known


@pytest.mark.parametrize("damage", [b"", b"\0" * 16, b"\xff" * 40])
def test_damaged_notes_are_named(damage: bytes) -> None:
    with pytest.raises(FileFormatError, match="what the outbox keeps of an earlier version is damaged"):
        SharedValues.from_bytes(damage)


@given(st.data())
def test_no_row_of_a_difference_that_passes_is_of_few_samples(data: st.DataObject) -> None:
    """Law: of the samples that changed, those with another value than the shared one are none, all, or enough."""
    fewest, n = 3, 24
    X = np.zeros((n, 3))
    X[:, 1:] = np.random.default_rng(0).normal(size=(n, 2))
    X[:, 0] = data.draw(st.lists(st.sampled_from([0.0, 0.0, 0.0, 2.0, 5.0]), min_size=n, max_size=n))
    sets = [sorted(data.draw(st.sets(st.integers(0, n - 1), min_size=9))) for _ in range(2)]
    y = np.zeros(n, np.int64)
    measured = [Shown(X[rows], y[rows], None, {"gram"}, fewest) for rows in sets]
    keys = [sample_keys(X[rows], y[rows]) for rows in sets]
    former = (keys[0], SharedValues.from_bytes(SharedValues.of(measured[0], y[sets[0]]).to_bytes()))
    try:
        require_common_change([former], Measured(keys[1], measured[1]), TERMS, "clinic", PolicyRules(min_count=fewest))
    except PolicyError:
        return
    shown = [
        dict(zip(rows, part[np.arange(len(rows))][:, 0], strict=True))
        for rows, part in zip(sets, measured, strict=True)
    ]
    moved = [row for row in {*sets[0], *sets[1]} if shown[0].get(row, 0.0) != shown[1].get(row, 0.0)]
    stayed = set(sets[0]) & set(sets[1])
    if stayed.isdisjoint(moved):
        for side in (set(sets[0]) - stayed, set(sets[1]) - stayed):
            assert not 0 < len(side.intersection(moved)) < min(fewest, len(side))
    else:  # the class as a whole hides what it showed, or the other way round
        assert len(moved) >= fewest
