"""What former releases left on disk is opened, upgraded and gone on with; what a later one left is refused."""

import json
import sqlite3
import tarfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cryptography")
pytest.importorskip("flwr")

from tests.federation.flower.secure_trials import run
from tests.federation.living import Party, ask, held, write_features

import fedmoments as fm
from fedmoments.cli.app import app
from fedmoments.core.statistics import Statistics
from fedmoments.errors import FileFormatError, LedgerError, RefusedError
from fedmoments.federation.deploy.local import LocalFederation
from fedmoments.federation.enrolment.invitations import Invitations
from fedmoments.federation.enrolment.kit import Kit
from fedmoments.federation.flower.holdings import Holdings
from fedmoments.federation.flower.measured import measure_held
from fedmoments.federation.outbox import Outbox
from fedmoments.federation.outbox.answers import Answers, Spent
from fedmoments.federation.own_memory import forget
from fedmoments.federation.store import FederationStore
from fedmoments.federation.transparency.notebook import Notebook
from fedmoments.privacy.secure.memory import Memory
from fedmoments.settings.client import ClientSettings
from fedmoments.settings.helper import HelperSettings
from fedmoments.settings.server import ServerSettings

ARCHIVES = sorted((Path(__file__).parents[1] / "data").glob("written-by-*.tar.xz"))


class Former:
    """An archive that is unpacked: its folder, and what the release that wrote it said of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.facts: dict[str, Any] = json.loads((folder / "facts.json").read_text())
        self.ledger = folder / "plain" / "fed.ledger"

    def party(self, name: str) -> Party:
        plain = self.folder / "plain"
        kept = ClientSettings.load(plain / f"{name}.toml")
        own = {"federation": kept.federation, "accepted": kept.accepted, "ignore_unknown": kept.ignore_unknown}
        return Party(name, plain / name, kept.data, own)


@pytest.fixture(params=ARCHIVES, ids=lambda path: path.name.removesuffix(".tar.xz"))
def former(request: pytest.FixtureRequest, tmp_path: Path) -> Former:
    with tarfile.open(request.param) as archive:
        archive.extractall(tmp_path, filter="data")
    return Former(tmp_path)


def version_of(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])


def plain_sum(former: Former, *names: str) -> Statistics:
    """Return what measuring, plainly and now, what some parties have gives."""
    with FederationStore.open(former.ledger) as store:
        terms = store.terms
    parts = []
    for name in names:
        own = former.party(name).settings
        stage = terms if own.accepted else terms.stages[0]
        parts.append(measure_held(Holdings(own, stage).train(name), terms))
    return Statistics.merge(parts)


def test_there_is_an_archive_of_the_release_before_this_one() -> None:
    assert "written-by-0.2.0.tar.xz" in [path.name for path in ARCHIVES]


@pytest.mark.parametrize(("name", "file"), [("plain", "fed.ledger"), ("secure", "ledger.db")])
def test_a_former_ledger_says_what_it_said(former: Former, name: str, file: str) -> None:
    facts, path = former.facts[name], former.folder / name / file
    with FederationStore.open(path) as store:
        status = store.status()
        assert (store.terms.id, store.terms.digest) == (facts["federation"], facts["terms"])
        assert store.statistics().digest() == facts["statistics"]
        assert {each.client: [each.version, each.digest] for each in status.contributors} == facts["in"]
        assert [[entry.event, entry.hash] for entry in store.audit()] == facts["log"]
        assert store.verify().whole


def test_a_former_head_predicts_what_is_fitted_now(former: Former) -> None:
    loaded = fm.load(former.folder / "plain" / "head.safetensors")
    again = fm.fit("fed3r", held(former.ledger), class_names=list(loaded.class_names))
    assert loaded.digest() == former.facts["plain"]["head"]
    X = np.random.default_rng(0).normal(size=(20, 5))
    # solved on another machine, whose last bits may differ; the sums that it was solved from may not (above)
    np.testing.assert_allclose(again.scores(X), loaded.scores(X), rtol=1e-9, atol=1e-12)
    assert again.temperature == pytest.approx(loaded.temperature, rel=1e-9)


def test_the_tables_of_a_former_ledger_are_those_of_a_new_one(former: Former, tmp_path: Path) -> None:
    with FederationStore.open(former.ledger) as store:
        FederationStore.create(tmp_path / "new", replace(store.terms, amended=(), server="")).close()

    def tables(path: Path) -> Any:
        with closing(sqlite3.connect(path)) as connection:
            rows = connection.execute("SELECT type, name, tbl_name FROM sqlite_master ORDER BY 1, 2").fetchall()
            return rows, version_of(path)

    assert tables(former.ledger) == tables(tmp_path / "new")


def test_a_former_party_goes_on_where_it_was(former: Former) -> None:
    clinic, lab = former.party("clinic"), former.party("lab")
    with FederationStore.open(former.ledger) as store:
        terms = store.terms
        before = store.status().head
        for party in (clinic, lab):  # they hold a receipt for just these samples, and send nothing
            offer = party.offer(terms)
            assert (offer.clients, offer.declined) == ((), ())
        assert store.status().head == before
    assert len((clinic.folder / "forgotten.txt").read_text().splitlines()) == 3
    forget(clinic.settings, ["train sample 5"])
    clinic.changes |= {"policy": {"min_count": 1, "small_changes": True}}
    ask(former.ledger, clinic)
    with FederationStore.open(former.ledger) as store:
        store.leave("old")
        assert {each.client: each.version for each in store.status().contributors} == {"clinic": 3, "lab": 2}
        assert store.verify().whole
    assert held(former.ledger) == plain_sum(former, "clinic", "lab")


def test_a_former_federation_is_amended_again_and_left_again(former: Former, tmp_path: Path) -> None:
    with FederationStore.open(former.ledger) as store:
        terms = store.amend(("ox",))
    assert [len(stage.classes) for stage in terms.stages] == [3, 4, 5]
    lab = former.party("lab")
    lab.changes |= {"accepted": terms.digest}
    lab.changes |= {"also": (str(write_features(tmp_path / "more.npz", {"ox": 6}, 9)),)}
    ask(former.ledger, lab)
    assert held(former.ledger).counts[4] == 6
    with FederationStore.open(former.ledger) as store:
        store.leave("lab")
        assert store.verify().whole


def test_who_left_or_was_revoked_stays_so(former: Former) -> None:
    plain = former.folder / "plain"
    with pytest.raises(LedgerError, match="ward"):  # the journal tells of it, the snapshot does not
        FederationStore.restore(plain / "copy.db", plain / "back", journal=plain / "fed.ledger.journal")
    with FederationStore.restore(
        plain / "copy.db", plain / "back", journal=plain / "fed.ledger.journal", departed={"ward": "out"}
    ) as store:
        assert sorted(each.client for each in store.status().contributors) == ["clinic", "lab", "old"]
        assert {member.client: member.status for member in store.enrolled()}["old"] == "revoked"
        assert store.verify().whole
        item = ward_sent(former)
        with pytest.raises(RefusedError, match="left"):
            store.submit(item)


def ward_sent(former: Former) -> bytes:
    """Return the contribution of the party that left, as the snapshot from before holds it."""
    with closing(sqlite3.connect(former.folder / "plain" / "copy.db")) as connection:
        return bytes(connection.execute("SELECT data FROM payloads WHERE client = 'ward'").fetchone()[0])


def test_invitations_kits_answers_and_heads_of_the_log_are_kept(former: Former) -> None:
    plain, federation = former.folder / "plain", former.facts["plain"]["federation"]
    with pytest.raises(
        FileFormatError, match="format is 1, and this release reads 2: let the operator invite you again"
    ):
        Kit.from_bytes((plain / "guest.kit").read_bytes())
    with Invitations(former.ledger, federation) as invitations:
        assert [each.client for each in invitations.all()] == ["guest"]
    answers = Answers(plain / "clinic")
    assert answers.spent("clinic") == Spent(2, 0.0)
    assert answers.give("clinic", "q1", federation, 2, lambda spent: b"never made") == b"former"
    latest = Notebook(plain / "clinic" / "heads.jsonl").latest(federation)
    assert latest is not None
    assert latest.federation == federation


def test_a_former_helper_gives_the_former_sum(former: Former) -> None:
    place = former.folder / "secure"
    plan = LocalFederation(place, 2, 6, ServerSettings(str(place / "ledger.db"), heads=("fed3r", "fedncm")), True)
    own = ClientSettings.load(plan.shared_settings)
    moved = replace(own, data=f"npz:{former.folder / 'toy.npz'}", folder=str(place / "nodes"))
    plan.shared_settings.write_text(moved.to_toml())
    helper = HelperSettings.load(plan.helper_settings)
    moved_helper = replace(helper, folder=str(place / "helper"), key=str(place / "keys" / "helper.helper"))
    plan.helper_settings.write_text(moved_helper.to_toml())
    run(plan)
    with FederationStore.open(place / "ledger.db") as store:
        assert store.statistics().digest() == former.facts["secure"]["statistics"]
        assert {each.client for each in store.status().contributors} == set(former.facts["secure"]["in"])
        assert store.verify().whole


def test_the_commands_read_former_files(former: Former, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["status"], ["ledger", "verify"], ["ledger", "log"]):
        with pytest.raises(SystemExit) as ended:
            app([*words, str(former.ledger)])
        assert ended.value.code == 0
    assert "1 left, 1 revoked" in capsys.readouterr().out


LATER: dict[str, tuple[str, Callable[[Path], object]]] = {
    "ledger": ("plain/fed.ledger", FederationStore.open),
    "outbox": ("plain/clinic/outbox.db", lambda path: Outbox(path.parent)),
    "account of answers": ("plain/clinic/answers.db", lambda path: Answers(path.parent)),
    "list of invitations": (
        "plain/fed.ledger.invitations",
        lambda path: Invitations(path.with_suffix(""), "ab" * 32),
    ),
    "helper's memory": ("secure/helper/memory.db", lambda path: Memory(path, "ab" * 32, 3)),
}


@pytest.mark.parametrize("kind", LATER)
def test_a_file_of_a_later_release_is_refused_in_words_and_not_touched(former: Former, kind: str) -> None:
    name, opened = LATER[kind]
    path = former.folder / name
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version=99")
    before = path.read_bytes()
    with pytest.raises(FileFormatError, match="tables of version 99, but this release opens version"):
        opened(path)
    assert path.read_bytes() == before
