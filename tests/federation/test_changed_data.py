"""Data that come and go at a party: every state of the ledger is that of measuring what is there now, bit for bit."""

import json
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cryptography")
pytest.importorskip("flwr")

from hypothesis import given
from hypothesis import strategies as st
from tests.federation.living import DIM, Party, ask, enrol, held, loaded, new_ledger, write_features

from fedmoments.errors import FileFormatError, InputError
from fedmoments.federation.outbox import Outbox
from fedmoments.federation.outbox.differences import changed_samples, sample_keys
from fedmoments.federation.own_memory import FORGOTTEN, HELD_OUT, forget, remembered_data
from fedmoments.federation.store import FederationStore
from fedmoments.privacy.protection import Agreed
from fedmoments.samples.digests import sample_digests

CLASSES = ("cat", "dog", "yak")


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    new_ledger(tmp_path / "ledger", CLASSES, ("fedcof", "fed3r"))
    return tmp_path / "ledger"


def party(ledger: Path, counts: dict[str, int], **changes: Any) -> Party:
    path = write_features(ledger.parent / "base.npz", counts, 1)
    one = Party("clinic", ledger.parent / "clinic", str(path), changes)
    enrol(ledger, one)
    return one


def only(tmp_path: Path, arrays: dict[str, Any]) -> Any:
    """Return what a ledger holds whose one client never had anything but these samples."""
    path = tmp_path / "plain.npz"
    np.savez(path, **arrays)
    new_ledger(tmp_path / "plain", CLASSES, ("fedcof", "fed3r"))
    one = Party("clinic", tmp_path / "plain-clinic", str(path))
    enrol(tmp_path / "plain", one)
    ask(tmp_path / "plain", one)
    return held(tmp_path / "plain")


def test_added_data_are_measured_as_if_they_had_always_been_there(ledger: Path, tmp_path: Path) -> None:
    one = party(ledger, {"cat": 9, "dog": 8})
    ask(ledger, one)
    more = write_features(tmp_path / "more.npz", {"dog": 6, "yak": 7}, 2)
    one.changes["also"] = (str(more),)
    ask(ledger, one)
    base, new = loaded(one.data), loaded(more)
    labels = {"base": base["y_train"], "more": new["y_train"] + 1}
    together = {
        "x_train": np.concatenate([base["x_train"], new["x_train"]]),
        "y_train": np.concatenate([labels["base"], labels["more"]]),
        "classes": np.array(CLASSES),
        "x_test": base["x_test"],
        "y_test": base["y_test"],
    }
    assert held(ledger) == only(tmp_path, together)
    assert held(ledger).counts.tolist() == [9, 14, 7]


def test_forgotten_samples_are_as_if_they_had_never_been_there(ledger: Path, tmp_path: Path) -> None:
    one = party(ledger, {"cat": 9, "dog": 8})
    ask(ledger, one)
    assert forget(one.settings, ["train sample 3", "train sample 12"]) == 2
    ask(ledger, one)
    base = loaded(one.data)
    stays = np.setdiff1d(np.arange(17), [3, 12])
    arrays = {name: base[name] for name in ("x_test", "y_test", "classes")}
    left = only(tmp_path, {**arrays, "x_train": base["x_train"][stays], "y_train": base["y_train"][stays]})
    assert held(ledger) == left
    assert held(ledger).raw("client_means").tobytes() == left.raw("client_means").tobytes()
    with pytest.raises(InputError, match="not among"):
        forget(one.settings, ["train sample 999"])


def test_a_copy_of_a_forgotten_sample_is_forgotten_too(ledger: Path) -> None:
    one = party(ledger, {"cat": 9, "dog": 8})
    one.folder.mkdir()
    one.changes["also"] = (str(write_features(ledger.parent / "copy.npz", {"cat": 9, "dog": 8}, 1)),)
    with pytest.raises(InputError, match="not among"):
        forget(one.settings, ["nobody"])
    assert forget(one.settings, [f"{one.data}:train sample 0"]) == 2
    assert len(remembered_data(one.settings, keep=False).train) == 32


def test_what_is_held_out_stays_held_out_whatever_comes_or_goes(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, DIM)).astype(np.float32), np.arange(60) % 3

    def write(rows: Any) -> None:
        np.savez(tmp_path / "a.npz", x_train=X[rows], y_train=y[rows], classes=np.array(CLASSES))

    write(np.arange(50))
    one = Party("clinic", tmp_path / "clinic", str(tmp_path / "a.npz"))
    one.folder.mkdir()
    first = remembered_data(one.settings, keep=True)
    tested = {row.tobytes() for row in sample_digests(first.test)}
    assert len(tested) == 10
    write(np.r_[np.arange(7, 60)])  # seven samples are gone, ten came
    then = remembered_data(one.settings, keep=True)
    assert {row.tobytes() for row in sample_digests(then.test)} <= tested
    assert not tested & {row.tobytes() for row in sample_digests(then.train)}
    assert len(then.train) + len(then.test) == 53
    (one.folder / HELD_OUT).write_text("[]")
    with pytest.raises(FileFormatError, match="is damaged"):
        remembered_data(one.settings, keep=False)
    (one.folder / HELD_OUT).unlink()
    (one.folder / FORGOTTEN).write_text("nonsense\n")
    with pytest.raises(FileFormatError, match="come back"):
        remembered_data(one.settings, keep=False)


def test_a_difference_of_few_samples_is_refused_and_named_to_its_own_party_only(ledger: Path) -> None:
    one = party(ledger, {"cat": 9, "dog": 8}, policy={"min_count": 3})
    ask(ledger, one)
    before = held(ledger)
    forget(one.settings, ["train sample 3", "train sample 4"])
    offer = one.offer(_terms(ledger))
    assert offer.clients == ()
    assert "whoever holds both" in offer.declined[0]["why"]
    assert "cat" not in json.dumps(offer.fields())
    assert "2 of cat" in offer.declined[0]["details"]
    assert held(ledger) == before
    forget(one.settings, ["train sample 5"])
    assert ask(ledger, one).clients == ("clinic",)
    one.changes["policy"] = {"min_count": 3, "small_changes": True}
    forget(one.settings, ["train sample 6"])
    assert ask(ledger, one).clients == ("clinic",)
    assert held(ledger).counts.tolist() == [5, 8, 0]


def test_a_difference_from_any_former_version_must_be_wide(ledger: Path) -> None:
    """Six samples go and five come back: wide changes both, and together the sums of the one that stayed away."""
    one = party(ledger, {"cat": 20, "dog": 8}, policy={"min_count": 5})
    ask(ledger, one)
    forget(one.settings, [f"train sample {place}" for place in range(6)])
    assert ask(ledger, one).clients == ("clinic",)
    note = one.folder / FORGOTTEN
    note.write_text(note.read_text().splitlines()[0] + "\n")
    offer = one.offer(_terms(ledger))
    assert offer.clients == ()
    assert "differs from one that it sent" in offer.declined[0]["why"]
    assert "1 of cat" in offer.declined[0]["details"]
    note.unlink()
    assert ask(ledger, one).clients == ("clinic",)  # the very samples of the first version tell nothing new


def _terms(ledger: Path) -> Any:
    with FederationStore.open(ledger) as store:
        return store.terms


def test_under_secure_sums_a_client_does_not_report_other_samples(tmp_path: Path) -> None:
    terms = new_ledger(tmp_path / "ledger", CLASSES, ("fed3r",), privacy=Agreed(secure="sums", helper="07" * 32))
    path = write_features(tmp_path / "a.npz", {"cat": 9, "dog": 8}, 1)
    one = Party("clinic", tmp_path / "clinic", str(path))
    first = one.offer(terms)
    assert first.clients == ("clinic",)
    forget(one.settings, ["train sample 3"])
    second = one.offer(terms)
    assert "difference of two sums" in second.declined[0]["why"]
    assert "1 of cat" in second.declined[0]["details"]
    assert "1 of cat" not in json.dumps(second.fields())


def test_an_outbox_of_the_first_build_is_brought_up(tmp_path: Path) -> None:
    Outbox(tmp_path).close()
    connection = sqlite3.connect(tmp_path / "outbox.db")
    connection.executescript("DROP TABLE samples; DROP TABLE withdrawals; PRAGMA user_version = 1;")
    connection.close()
    with Outbox(tmp_path) as outbox:
        assert outbox.measured("ab" * 32, "clinic") == ()
    names = sqlite3.connect(tmp_path / "outbox.db").execute("SELECT name FROM sqlite_master WHERE name = 'samples'")
    assert names.fetchone() == ("samples",)


SAMPLES = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4)), max_size=12)


@given(SAMPLES, SAMPLES)
def test_changed_samples_are_the_symmetric_difference_of_multisets(one: list[Any], two: list[Any]) -> None:
    def keys(samples: list[Any]) -> bytes:
        X = np.array([[float(value)] for _, value in samples]).reshape(-1, 1)
        return sample_keys(X, np.array([label for label, _ in samples], np.int64))

    a, b = Counter(one), Counter(two)
    expected: dict[int, int] = {}
    for (label, _), n in ((a - b) + (b - a)).items():
        expected[label] = expected.get(label, 0) + n
    assert changed_samples(keys(one), keys(two)) == expected


def test_of_samples_with_the_same_content_as_many_are_held_out_as_were(tmp_path: Path) -> None:
    arrays: Any = {"x_train": np.ones((20, DIM), np.float32), "y_train": np.arange(20) % 2}
    np.savez(tmp_path / "a.npz", **arrays, classes=np.array(["cat", "dog"]))
    one = Party("clinic", tmp_path / "clinic", str(tmp_path / "a.npz"))
    one.folder.mkdir()
    for _ in range(2):
        data = remembered_data(one.settings, keep=True)
        assert (len(data.train), len(data.test)) == (16, 4)
        assert np.bincount(data.train.labels).tolist() == [8, 8]
