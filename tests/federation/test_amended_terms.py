"""Classes that are added while a federation runs: signed terms, consent, contributions of before, heads of after."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cryptography")
pytest.importorskip("flwr")

from tests.federation.living import Party, ask, enrol, held, loaded, new_ledger, write_features

from fedmoments.core.api import fit
from fedmoments.core.statistics import Statistics
from fedmoments.core.statistics.relabelling import relabelled
from fedmoments.errors import FedMomentsError, InputError, PrivacyError
from fedmoments.federation.drawing_up import amend_terms
from fedmoments.federation.flower.node import AMENDED
from fedmoments.federation.store import FederationStore
from fedmoments.federation.terms import Terms
from fedmoments.privacy.protection import Agreed
from fedmoments.wire import IdentityKey, unpack_bundle

OLD, NEW = ("cat", "dog"), ("yak", "emu")
HEADS = ("fedcof", "fed3r")


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    new_ledger(tmp_path / "ledger", OLD, HEADS)
    return tmp_path / "ledger"


def party(tmp_path: Path, name: str, counts: dict[str, int], **changes: Any) -> Party:
    return Party(name, tmp_path / name, str(write_features(tmp_path / f"{name}.npz", counts, len(name))), changes)


def bind(one: Party, terms: Terms) -> None:
    one.changes |= {"federation": terms.id, "accepted": terms.digest if terms.amended else ""}


def amended(ledger: Path, *classes: str) -> Terms:
    with FederationStore.open(ledger) as store:
        return store.amend(classes)


def at_once(tmp_path: Path, *parties: Party) -> Statistics:
    """Return what a federation holds that had all classes from the start."""
    path = tmp_path / "at-once"
    new_ledger(path, OLD + NEW, HEADS)
    same = [Party(one.name, tmp_path / f"{one.name}-again", one.data) for one in parties]
    enrol(path, *same)
    for one in same:
        ask(path, one)
    return held(path)


def test_class_incremental_is_fitting_at_once(ledger: Path, tmp_path: Path) -> None:
    first, second = (
        party(tmp_path, "clinic", {"cat": 9, "dog": 8}),
        party(tmp_path, "lab", {"dog": 7, "yak": 9, "emu": 6}),
    )
    enrol(ledger, first, second)
    ask(ledger, first)
    before = held(ledger)
    bind(second, amended(ledger, *NEW))
    ask(ledger, second)
    after, whole = held(ledger), at_once(tmp_path, first, second)
    assert after == whole
    assert after.raw("client_means").tobytes() == whole.raw("client_means").tobytes()
    assert after.raw("gram").tobytes() == whole.raw("gram").tobytes()
    for head in HEADS:
        one, other = (fit(head, stats, class_names=OLD + NEW) for stats in (after, whole))
        assert one.to_bytes() == other.to_bytes()
        assert "yak" in one.predict_names(loaded(second.data)["x_test"])
    with FederationStore.open(ledger) as store:
        assert store.verify().whole
        store.leave("lab")
        assert store.statistics() == relabelled(before, range(2), 4)


def test_a_party_that_did_not_accept_goes_on_without_the_new_classes(ledger: Path, tmp_path: Path) -> None:
    one = party(tmp_path, "clinic", {"cat": 9, "dog": 8})
    enrol(ledger, one)
    with FederationStore.open(ledger) as store:
        bind(one, store.terms)
    new = amended(ledger, *NEW)
    ask(ledger, one)
    assert held(ledger).counts.tolist() == [9, 8, 0, 0]
    assert Terms.from_json((one.folder / AMENDED).read_text()) == new
    lines = [json.loads(line) for line in (one.folder / "record.jsonl").read_text().splitlines()]
    (told,) = [line["sentence"] for line in lines if line["event"] == "amended"]
    assert told.startswith("the server added classes to the terms: yak, emu")
    size = (one.folder / "record.jsonl").stat().st_size
    assert ask(ledger, one).clients == ()
    assert (one.folder / "record.jsonl").stat().st_size == size  # told once


def test_accepting_without_new_samples_sends_nothing_again(ledger: Path, tmp_path: Path) -> None:
    one = party(tmp_path, "clinic", {"cat": 9, "dog": 8})
    enrol(ledger, one)
    ask(ledger, one)
    bind(one, amended(ledger, *NEW))
    assert ask(ledger, one).clients == ()
    with FederationStore.open(ledger) as store:
        assert [entry.version for entry in store.status().contributors] == [1]


def test_a_party_with_samples_of_the_new_class_sends_a_new_version(ledger: Path, tmp_path: Path) -> None:
    one = party(tmp_path, "clinic", {"cat": 9, "dog": 8, "yak": 5}, ignore_unknown=True)
    enrol(ledger, one)
    ask(ledger, one)
    assert held(ledger).counts.tolist() == [9, 8]
    bind(one, amended(ledger, "yak"))
    ask(ledger, one)
    assert held(ledger).counts.tolist() == [9, 8, 5]


def test_the_id_stays_and_every_stage_follows_from_the_last(ledger: Path) -> None:
    with FederationStore.open(ledger) as store:
        first = store.terms
        store.amend(["yak"])
        last = store.amend(["emu"])
    assert last.id == first.id != last.digest
    assert [stage.classes for stage in last.stages] == [OLD, (*OLD, "yak"), OLD + NEW]
    assert last.stages[0] == first
    read = Terms.from_json(last.to_json())
    assert (read, read.id, read.digest) == (last, last.id, last.digest)
    with FederationStore.open(ledger) as store:
        assert store.terms == last
        assert [entry.details["classes"] for entry in store.audit() if entry.event == "amended"] == [["yak"], ["emu"]]


def test_an_amendment_that_the_server_did_not_sign_is_refused(ledger: Path) -> None:
    terms = amended(ledger, *NEW)
    document = json.loads(terms.to_json())
    other = amend_terms(replace(terms.stages[0], server=(key := IdentityKey.generate()).public.hex), NEW, key)
    forged = [
        {**document, "amended": [{**document["amended"][0], "signature": "00" * 64}]},
        {**document, "amended": [asdict(other.amended[0])]},
        {**document, "fingerprint": {**document["fingerprint"], "classes": [*OLD, "emu", "yak"]}},
        {**document, "amended": [{**document["amended"][0], "classes": 1}]},
        {**document, "amended": [{**document["amended"][0], "max_bytes": 4096}]},
        {**document, "amended": []},
        {**document, "amended": document["amended"] * 2},
        {**document, "amended": [{**document["amended"][0], "classes": True}]},
    ]
    for text in forged:
        with pytest.raises(FedMomentsError):
            Terms.from_json(json.dumps(text))
    assert Terms.from_json(json.dumps(document)) == terms


def test_a_party_takes_part_under_no_other_amendment_than_its_own(ledger: Path, tmp_path: Path) -> None:
    one = party(tmp_path, "clinic", {"cat": 9, "yak": 8})
    enrol(ledger, one)
    with FederationStore.open(ledger) as store:
        terms, key = store.terms, store.signing_key
    bind(one, amend_terms(terms, ["yak"], key))
    for other in (terms, amend_terms(terms, ["emu"], key)):
        offer = one.offer(other)
        assert "do not follow from them" in offer.declined[0]["why"]
        assert offer.clients == ()
    assert one.offer(amend_terms(amend_terms(terms, ["yak"], key), ["emu"], key)).clients == ("clinic",)


def test_the_same_classes_again_after_a_restore_are_the_same_terms(ledger: Path, tmp_path: Path) -> None:
    with FederationStore.open(ledger) as store:
        store.snapshot(tmp_path / "copy")
        new = store.amend(NEW)
    for path in (ledger, tmp_path / "ledger.key"):
        assert path.exists()
    with FederationStore.restore(tmp_path / "copy", tmp_path / "second", journal=tmp_path / "ledger.journal") as store:
        (tmp_path / "second.key").write_bytes((tmp_path / "ledger.key").read_bytes())
        assert store.terms == new.stages[0]
        assert store.amend(NEW) == new


@pytest.mark.parametrize("classes", [[], ["cat"], ["yak", "yak"], [""]])
def test_what_is_no_new_class_is_refused(ledger: Path, classes: list[str]) -> None:
    with FederationStore.open(ledger) as store:
        before = store.terms
        with pytest.raises(InputError):
            store.amend(classes)
        assert store.terms == before


def test_masked_and_noised_sums_take_no_class_later(tmp_path: Path) -> None:
    for number, agreed in enumerate([Agreed(epsilon=2.0), Agreed(secure="sums", helper="ab" * 32)]):
        path = tmp_path / f"ledger-{number}"
        new_ledger(path, OLD, ("fed3r",), privacy=agreed)
        with FederationStore.open(path) as store, pytest.raises(PrivacyError, match="from the start"):
            store.amend(NEW)


def test_a_contribution_of_before_is_checked_by_the_terms_of_before(ledger: Path, tmp_path: Path) -> None:
    one = party(tmp_path, "clinic", {"cat": 9})
    enrol(ledger, one)
    with FederationStore.open(ledger) as store:
        offer = one.offer(store.terms)
        store.amend(NEW)
        (item,) = unpack_bundle(offer.bundle, max_bytes=2**30, max_items=1)
        assert store.submit(bytes(item)).event == "joined"
        assert store.statistics().n_classes == 4
