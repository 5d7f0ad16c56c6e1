"""A server that signs two second stages of one federation: a client refuses the second, witnesses have the proof."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cryptography")
pytest.importorskip("flwr")

from tests.federation.living import Party, ask, enrol, new_ledger, write_features

from fedmoments.errors import FileFormatError, PolicyError
from fedmoments.federation.drawing_up import amend_terms
from fedmoments.federation.store import FederationStore
from fedmoments.federation.terms import Terms
from fedmoments.federation.transparency.amended import apart, line_of
from fedmoments.federation.transparency.heads import LogHead
from fedmoments.federation.transparency.notebook import Notebook, Noted
from fedmoments.wire import IdentityKey


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    new_ledger(tmp_path / "ledger", ("cat", "dog"))
    return tmp_path / "ledger"


def stages(ledger: Path, *chains: tuple[str, ...]) -> list[Terms]:
    """Return terms that the server signed, each chain of single classes from the first ones on."""
    made = []
    with FederationStore.open(ledger) as store:
        for chain in chains:
            terms = store.terms
            for name in chain:
                terms = amend_terms(terms, [name], store.signing_key)
            made.append(terms)
    return made


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fedmoments", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_terms_part_unless_one_follows_from_the_other(ledger: Path) -> None:
    first, yak, emu, yak_emu, emu_yak = stages(ledger, (), ("yak",), ("emu",), ("yak", "emu"), ("emu", "yak"))
    assert apart([first, yak, yak_emu]) == []
    assert apart([first, emu, emu_yak]) == []
    assert len(apart([yak, emu, yak_emu, emu_yak])) == 4


def test_a_client_that_is_shown_two_amendments_refuses_and_keeps_the_proof(ledger: Path, tmp_path: Path) -> None:
    yak, emu = stages(ledger, ("yak",), ("emu",))
    notebook = Notebook(tmp_path / "heads.jsonl")
    for _ in range(2):
        notebook.follow_terms(yak)
    with pytest.raises(PolicyError, match="of which neither follows from the other"):
        notebook.follow_terms(emu)
    assert notebook.amended() == [yak, emu]
    notebook.follow_terms(yak)  # what it was shown first still holds, and so does what follows
    notebook.follow_terms(stages(ledger, ("yak", "ox"))[0])
    assert notebook.noted() == []


def test_two_parties_that_are_told_two_stories_have_the_proof_together(ledger: Path, tmp_path: Path) -> None:
    """Each party alone is answered without a flaw: one hears of yaks, the other of emus, one log or none tells more."""
    data = write_features(tmp_path / "data.npz", {"cat": 9, "dog": 8}, 1)
    parties = [Party(name, tmp_path / name, str(data)) for name in ("clinic", "lab")]
    enrol(ledger, *parties)
    for party, terms in zip(parties, stages(ledger, ("yak",), ("emu",)), strict=True):
        party.folder.mkdir()
        Notebook(party.folder / "heads.jsonl").follow_terms(terms)
        alone = run("witness", tmp_path / f"{party.name}.jsonl", party.folder)
        assert alone.returncode == 0, alone.stderr
    both = run("witness", tmp_path / "clinic.jsonl", tmp_path / "lab.jsonl")  # notebooks that were mailed
    assert both.returncode == 1
    assert "signed two amendments" in both.stderr
    assert "'yak'" in both.stderr
    told = run("witness", tmp_path / "clinic.jsonl", tmp_path / "lab.jsonl", "--json")
    assert len(json.loads(told.stdout)["amendments"]) == 1


def test_a_node_notes_what_its_server_amended(ledger: Path, tmp_path: Path) -> None:
    party = Party("clinic", tmp_path / "clinic", str(write_features(tmp_path / "d.npz", {"cat": 9, "dog": 8}, 1)))
    enrol(ledger, party)
    with FederationStore.open(ledger) as store:
        party.changes |= {"federation": store.terms.id}
        (emu,) = stages(ledger, ("emu",))
        store.amend(["yak"])
        shown = store.terms
    ask(ledger, party)
    notebook = Notebook(party.folder / "heads.jsonl")
    assert notebook.amended() == [shown]
    ask(ledger, party)  # the same again is fine, and so are heads beside it
    assert (len(notebook.amended()), len(notebook.noted()) > 0) == (1, True)
    with pytest.raises(PolicyError, match="two stories"):
        notebook.follow_terms(emu)
    assert run("witness", tmp_path / "mine.jsonl", party.folder, ledger).returncode == 1


def test_nobody_else_makes_amendments_that_are_noted(ledger: Path, tmp_path: Path) -> None:
    (yak,) = stages(ledger, ("yak",))
    value = yak.to_dict()
    stranger = IdentityKey.generate()
    lies: list[dict[str, Any]] = [
        {**value, "amended": [{**value["amended"][0], "signature": "00" * 64}]},
        {**value, "server": stranger.public.hex},
        {name: part for name, part in value.items() if name != "amended"},
    ]
    for lie in lies:
        (tmp_path / "lie.jsonl").write_text(json.dumps({"terms": json.dumps(lie)}, separators=(",", ":")) + "\n")
        with pytest.raises(FileFormatError):
            Notebook(tmp_path / "lie.jsonl").amended()
        assert run("witness", tmp_path / "mine.jsonl", tmp_path / "lie.jsonl").returncode != 0
    assert line_of(yak).endswith(b"\n")


def test_two_stories_of_a_federation_that_nobody_knows_spoil_no_notebook(ledger: Path, tmp_path: Path) -> None:
    """Anybody can found a federation and sign two amendments, and two heads: they are named once, and kept nowhere."""
    (yak,) = stages(ledger, ("yak",))
    Notebook(tmp_path / "mine.jsonl").follow_terms(yak)
    before = (tmp_path / "mine.jsonl").read_bytes()
    (tmp_path / "elsewhere").mkdir()
    new_ledger(tmp_path / "elsewhere" / "ledger", ("ox", "cow"))
    made = stages(tmp_path / "elsewhere" / "ledger", ("yak",), ("emu",))
    with FederationStore.open(tmp_path / "elsewhere" / "ledger") as store:
        heads = [
            LogHead.signed(store.signing_key, made[0].id, 3, bytes([n] * 32), counter=0, time="2030-01-01T00:00:00Z")
            for n in range(2)
        ]
    told = {"terms": map(line_of, made), "heads": (Noted(head).to_line() for head in heads)}
    for name, lines in told.items():
        (tmp_path / name).write_bytes(b"".join(lines))
        assert run("witness", tmp_path / "mine.jsonl", tmp_path / name).returncode == 1
        assert (tmp_path / "mine.jsonl").read_bytes() == before
    Notebook(tmp_path / "other.jsonl").follow_terms(yak)
    assert run("witness", tmp_path / "mine.jsonl", tmp_path / "other.jsonl").returncode == 0
