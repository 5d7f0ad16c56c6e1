"""What a party's own machine is called stays there: errors that reach a server name no file or folder of it."""

import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cryptography")
pytest.importorskip("flwr")

from tests.federation.living import Party, ask, enrol, new_ledger, write_features

from fedmoments.errors import FileFormatError, InputError, LedgerError, PolicyError, told_elsewhere
from fedmoments.federation.store import FederationStore


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (LedgerError("the outbox /home/ann smith/clinic/outbox.db cannot be used"), "the outbox … cannot be used"),
        (FileFormatError(r"C:\\Users\\ann\\answers.db is damaged"), "… is damaged"),
        (InputError("'~/scans/ann.png' is no image"), "'…' is no image"),
        (PolicyError("between 1/2 and 3/4 of org/model are declined: look at https://example.org/x"), None),
        (PermissionError(13, "Permission denied", "/home/ann"), "PermissionError; its own log says more"),
        (ValueError("could not convert 17.25"), "ValueError; its own log says more"),
    ],
)
def test_places_and_what_libraries_say_are_left_out(error: Exception, told: str | None) -> None:
    assert told_elsewhere(error) == (str(error) if told is None else told)


@pytest.mark.parametrize("damage", ["junk", "folder", "empty"])
@pytest.mark.parametrize("name", ["outbox.db", "heads.jsonl", "server-keys.json", "record.jsonl"])
def test_a_damaged_folder_is_not_named_to_the_server(name: str, damage: str, tmp_path: Path) -> None:
    pytest.importorskip("flwr")
    from flwr.app import Context, RecordDict

    from fedmoments.federation.flower.client_app import node_of

    place = tmp_path / "of Ann Example"
    place.mkdir()
    terms = new_ledger(place / "ledger", ("cat", "dog"))
    one = Party("clinic", place / "clinic", str(write_features(place / "d.npz", {"cat": 9, "dog": 8}, 1)))
    enrol(place / "ledger", one)
    ask(place / "ledger", one)
    file = one.folder / name
    file.unlink(missing_ok=True)
    if damage == "folder":
        file.mkdir()
    else:
        file.write_bytes(b"\xff\0" * 99 if damage == "junk" else b"")
    settings = f'data = "{one.data}"\nfolder = "{one.folder}"\nname = "clinic"\nkey_seed = "trial"\n'
    (place / "client.toml").write_text(settings)
    context: Any = Context(1, 1, {"client-config": str(place / "client.toml")}, RecordDict(), {})
    try:
        offer = node_of(context).contribute(terms, most_bytes=2**20)
        told = str(offer.fields())
    except Exception as error:  # as the executor answers it
        told = told_elsewhere(error)
    assert "Ann" not in told
    assert str(tmp_path) not in told
    shutil.rmtree(one.folder)
    with FederationStore.open(place / "ledger") as store:
        assert store.verify().whole
