"""A party's own names of classes: aliases, classes that the federation does not have, and what of them leaves."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cryptography")
pytest.importorskip("flwr")

from hypothesis import given
from hypothesis import strategies as st
from tests.federation.living import Party, ask, enrol, held, loaded, new_ledger, write_features

from fedmoments.errors import InputError, OwnDataError, in_full
from fedmoments.federation.own_data import label_table
from fedmoments.privacy.protection import Agreed
from fedmoments.privacy.secure import HelperKey
from fedmoments.settings.client import ClientSettings

CLASSES = ("cat", "dog", "yak")
SECRET = "patients-of-ward-7"


def test_an_alias_measures_what_the_agreed_name_would(tmp_path: Path) -> None:
    found = []
    for own, more in (("cat", {}), ("kitten", {"classes": {"kitten": "cat"}})):
        folder = tmp_path / own
        folder.mkdir()
        data = write_features(folder / "a.npz", {own: 7, "dog": 6}, 1)
        ledger = folder / "ledger"
        new_ledger(ledger, CLASSES)
        party = Party("clinic", folder / "clinic", str(data), more)
        enrol(ledger, party)
        ask(ledger, party)
        found.append(held(ledger))
    assert found[0].counts.tolist() == [7, 6, 0]
    # sorted by name, 'dog' comes before 'kitten': rows are in another order in the file, and not in the ledger
    assert found[0].counts.tolist() == found[1].counts.tolist()
    assert found[0].row_labels.tolist() == found[1].row_labels.tolist()


def test_two_own_classes_may_be_one_of_the_federation(tmp_path: Path) -> None:
    data = write_features(tmp_path / "a.npz", {"cat": 7, "kitten": 5}, 1)
    ledger = tmp_path / "ledger"
    new_ledger(ledger, CLASSES)
    party = Party("clinic", tmp_path / "clinic", str(data), {"classes": {"kitten": "cat"}})
    enrol(ledger, party)
    ask(ledger, party)
    assert held(ledger).counts.tolist() == [12, 0, 0]


def test_names_of_unknown_classes_never_leave(tmp_path: Path) -> None:
    data = write_features(tmp_path / "a.npz", {"cat": 7, SECRET: 5}, 1)
    terms = new_ledger(tmp_path / "ledger", CLASSES)
    party = Party("clinic", tmp_path / "clinic", str(data))
    offer = party.offer(terms)
    assert SECRET not in json.dumps(offer.fields())
    assert SECRET.encode() not in offer.bundle
    assert str(tmp_path) not in json.dumps(offer.fields())
    assert "does not have" in offer.fields()["declined"][0]["why"]
    (line,) = [json.loads(text) for text in (party.folder / "record.jsonl").read_text().splitlines()]
    assert SECRET in line["sentence"]
    assert "--ignore-unknown" in line["sentence"]


def test_paths_of_unreadable_data_never_leave(tmp_path: Path) -> None:
    terms = new_ledger(tmp_path / "ledger", CLASSES)
    party = Party("clinic", tmp_path / "clinic", str(tmp_path / SECRET / "a.npz"))
    offer = party.offer(terms)
    assert SECRET not in json.dumps(offer.fields())
    assert SECRET in offer.declined[0]["details"]


def test_what_was_measured_does_not_leave_with_a_refusal(tmp_path: Path) -> None:
    """Terms with a bound that nobody's data keep made every client tell the largest of its sums, masks or not."""
    file = write_features(tmp_path / "a.npz", {"cat": 7, "dog": 6}, 1)
    arrays = loaded(file)
    arrays["x_train"][3, 1] = 987654.0
    np.savez(file, **arrays)
    for way, agreed in enumerate([Agreed(), Agreed(secure="sums", helper=HelperKey.generate().public)]):
        terms = new_ledger(tmp_path / f"ledger-{way}", CLASSES, ("fedncm",), privacy=agreed)
        party = Party("clinic", tmp_path / f"clinic-{way}", str(file))
        offer = party.offer(terms)
        assert "larger than the norm_bound of these terms allows" in json.dumps(offer.fields())
        assert "98765" not in json.dumps(offer.fields())
        assert "98765" in offer.declined[0]["details"]


def test_no_size_leaves_with_the_refusal_of_what_is_too_large(tmp_path: Path) -> None:
    """The size of a contribution in the clear tells how many classes a client holds."""
    whys = set()
    for counts in ({"cat": 7}, {"cat": 7, "dog": 6, "yak": 8}):
        file = write_features(tmp_path / f"{len(counts)}.npz", counts, 1)
        terms = new_ledger(tmp_path / f"ledger-{len(counts)}", CLASSES)
        policy = {"min_count": 5, "max_bytes": 100}
        party = Party("clinic", tmp_path / f"clinic-{len(counts)}", str(file), {"policy": policy})
        (declined,) = party.offer(terms).declined
        assert re.search(r"it has \d+ bytes", declined["details"])
        (line,) = [json.loads(text) for text in (party.folder / "record.jsonl").read_text().splitlines()]
        assert re.search(r"it has \d+ bytes", line["sentence"])
        whys.add(json.dumps(party.offer(terms).fields()))
    assert len(whys) == 1
    assert "max_bytes" in whys.pop()


def test_ignored_classes_are_as_if_they_were_not_there(tmp_path: Path) -> None:
    ledger, both = tmp_path / "ledger", []
    new_ledger(ledger, CLASSES)
    for name, counts in (("with", {"cat": 7, "zebra": 5}), ("without", {"cat": 7})):
        data = write_features(tmp_path / f"{name}.npz", counts, 1)
        both.append(Party(name, tmp_path / name, str(data), {"ignore_unknown": True}))
    enrol(ledger, *both)
    offers = [ask(ledger, party) for party in both]
    assert not any(offer.declined for offer in offers)
    stats = held(ledger)
    first, second = (stats.raw("client_means")[stats.row_owners == owner] for owner in (0, 1))
    assert np.array_equal(first, second)
    noted = [json.loads(text) for text in (both[0].folder / "record.jsonl").read_text().splitlines()]
    assert noted[0]["unknown"] == {"classes": 1, "samples": 11}
    assert "zebra" not in json.dumps(noted)


def test_an_alias_to_nothing_is_refused() -> None:
    with pytest.raises(OwnDataError) as caught:
        label_table(["cat"], CLASSES, {"puppy": "hound"})
    assert "hound" in in_full(caught.value)
    assert "hound" not in str(caught.value)
    with pytest.raises(InputError, match="names the federation's class"):
        ClientSettings(name="a", key_seed="b", classes={"laptop": 3})


def test_a_close_name_is_suggested() -> None:
    with pytest.raises(OwnDataError) as caught:
        label_table(["laptop"], ["mug", "laptop_computer"])
    assert "--alias 'laptop=laptop_computer'" in in_full(caught.value)


@given(
    st.lists(st.sampled_from("abcdef"), unique=True), st.dictionaries(st.sampled_from("uvw"), st.sampled_from("abcd"))
)
def test_every_own_class_gets_the_label_of_its_agreed_name(mine: list[str], aliases: dict[str, str]) -> None:
    agreed = list("dbca")
    table = label_table([*mine, *aliases], agreed, aliases, ignore_unknown=True)
    for name, label in zip([*mine, *aliases], table.tolist(), strict=True):
        meant: Any = aliases.get(name, name)
        assert label == (agreed.index(meant) if meant in agreed else -1)
