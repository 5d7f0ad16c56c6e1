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

from fedmoments.errors import FileFormatError, InputError, PolicyError
from fedmoments.federation.flower.node import identity_of
from fedmoments.federation.outbox import Outbox
from fedmoments.federation.outbox.differences import (
    changed_samples,
    require_wide_change,
    sample_keys,
    thin_parts,
)
from fedmoments.federation.own_memory import FORGOTTEN, HELD_OUT, forget, remembered_data
from fedmoments.federation.store import FederationStore
from fedmoments.privacy.protection import Agreed
from fedmoments.samples.digests import sample_digests
from fedmoments.settings.policy import PolicyRules
from fedmoments.wire import decode, unpack_bundle

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


def test_a_difference_of_few_samples_is_refused_and_named_to_its_own_party_only(tmp_path: Path) -> None:
    ledger = tmp_path / "means"
    new_ledger(ledger, CLASSES)
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


def sent_rows(offer: Any, terms: Any, one: Party) -> Any:
    """Return the sums of all means that an offer holds, as whoever reads it has them."""
    (item,) = unpack_bundle(offer.bundle, max_bytes=2**30, max_items=9)
    key = identity_of(one.settings, one.name).public
    return decode(bytes(item), terms.agreement, key_of=lambda _: key).statistics.rows.block_sums()


def test_samples_that_are_added_do_not_stand_alone_in_one_of_several_means(tmp_path: Path) -> None:
    """Five more samples are dealt to four means: three of these change by one sample, which is the difference."""
    terms = new_ledger(tmp_path / "ledger", CLASSES, means_per_client=4)
    X = np.random.default_rng(1).normal(size=(45, DIM)).astype(np.float32)

    def write(cats: int) -> str:
        y, path = np.repeat([0, 1], [cats, 20]), tmp_path / f"{cats}.npz"
        held_out: Any = {"x_test": X[:2], "y_test": [0, 1], "classes": np.array(CLASSES[:2])}
        np.savez(path, x_train=np.concatenate([X[:cats], X[25:]]), y_train=y, **held_out)
        return str(path)

    one = Party("clinic", tmp_path / "clinic", write(20), {"policy": {"min_count": 5}})
    enrol(tmp_path / "ledger", one)
    before = sent_rows(ask(tmp_path / "ledger", one), terms, one)
    one.data = write(25)
    offer = one.offer(terms)
    assert offer.clients == ()
    assert "1 of cat" in offer.declined[0]["details"]
    one.changes["policy"] = {"min_count": 5, "small_changes": True}
    after = sent_rows(one.offer(terms), terms, one)  # what the rule is for: differences of rows are samples
    differences = (after[:, None] - before).reshape(-1, 1, DIM)
    assert (np.abs(differences - X[20:25]).max(axis=2) < 1e-6).any(axis=0).sum() >= 3


def test_no_sum_of_several_versions_is_over_few_samples(ledger: Path) -> None:
    """Any two of five versions differ widely, and v1 − v2 + v4 − v5 is one sample."""
    X = np.random.default_rng(0).normal(size=(31, DIM)).astype(np.float32)
    alone, first, second, third = np.split(np.arange(26), [1, 6, 16])
    whole = np.arange(26, 31)
    histories = [(alone, first), (first, second), (third,), (second, third), (third, first)]
    versions = [np.concatenate([whole, *parts]) for parts in histories]
    sums = [X[rows].sum(axis=0, dtype=np.float64) for rows in versions]
    assert np.allclose(sums[0] - sums[1] + sums[3] - sums[2], X[0], atol=1e-5)
    keys = [sample_keys(X[rows], np.zeros(len(rows), np.int64)) for rows in versions]
    pairs = [changed_samples(a, b)[0] for place, a in enumerate(keys) for b in keys[:place]]
    assert min(pairs) >= 5
    terms, rules = _terms(ledger), PolicyRules(min_count=5)
    told = 0
    for place, now in enumerate(keys):
        try:
            require_wide_change(keys[:place], now, terms, "clinic", rules)
        except PolicyError:
            continue
        told += 1
    assert told < len(keys)


def test_copies_of_one_sample_are_no_wide_change(ledger: Path) -> None:
    X = np.random.default_rng(0).normal(size=(21, DIM))
    before, after = X[:20], np.concatenate([X[:20], np.tile(X[20], (5, 1))])
    former, now = (sample_keys(rows, np.zeros(len(rows), np.int64)) for rows in (before, after))
    with pytest.raises(PolicyError, match="differs from one that it sent"):
        require_wide_change([former], now, _terms(ledger), "clinic", PolicyRules(min_count=5))


def test_a_second_moment_of_few_changed_samples_is_not_told(ledger: Path) -> None:
    """Of five changed samples behind a ReLU, rows of the difference of two grams are samples."""
    terms = _terms(ledger)
    X, y = np.random.default_rng(0).normal(size=(60, DIM)), np.repeat([0, 1, 2], 20)
    rules = PolicyRules(min_count=5)

    def change(rows: Any, **more: Any) -> None:
        keys = (sample_keys(X[: 2 * 20], y[: 2 * 20]), sample_keys(X[rows], y[rows]))
        require_wide_change(keys[:1], keys[1], terms, "clinic", PolicyRules(min_count=5, **more))

    with pytest.raises(PolicyError, match="second moments differ") as caught:
        change(np.arange(5, 40))
    assert "5 of cat" in caught.value.__notes__[0]
    assert "cat" not in str(caught.value)
    change(np.arange(5, 40), small_changes=True)
    change(np.arange(6, 40))  # more than there are columns
    change(np.arange(60))  # a whole class is what a first version tells
    change(np.arange(20, 40))
    require_wide_change(
        [sample_keys(X, y)], sample_keys(X[5:], y[5:]), new_ledger(ledger.parent / "m", CLASSES), "", rules
    )


@given(st.lists(st.sets(st.integers(0, 11), min_size=1), min_size=2, max_size=5), st.integers(1, 4))
def test_whatever_is_computed_of_versions_that_pass_is_over_enough_samples(sets: list[set[int]], fewest: int) -> None:
    """Law: in every history that passes, the least that sums can be combined to is a cell of ``fewest`` samples."""
    X = np.eye(12)
    sent: list[bytes] = []
    shown: list[set[int]] = []
    for rows in sets:
        now = sample_keys(X[sorted(rows)], np.zeros(len(rows), np.int64))
        if len(rows) >= fewest and (not sent or not thin_parts(sent, now, fewest)):
            sent.append(now)
            shown.append(rows)
    cells = Counter(tuple(sample in rows for rows in shown) for sample in range(12))
    assert all(n >= fewest for pattern, n in cells.items() if any(pattern))


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
