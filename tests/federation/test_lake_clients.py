"""A client whose lake is measured file by file: what leaves is what leaves of the same rows in memory."""

import json
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cryptography")
pytest.importorskip("flwr")

from tests.federation.living import CENTRES, DIM, Party, ask, enrol, held, new_ledger
from tests.waiting import HANG

from fedmoments.core.maps import Normalize, Offset, RandomProjection
from fedmoments.core.statistics import Statistics
from fedmoments.errors import InputError, PolicyError
from fedmoments.federation.deploy.network import choose_port
from fedmoments.federation.flower import holdings
from fedmoments.federation.flower.choosing import Chooser, Chosen
from fedmoments.federation.flower.holdings import made_holdings
from fedmoments.federation.flower.measured import measure_held
from fedmoments.federation.flower.node import Node
from fedmoments.federation.own_memory import forget
from fedmoments.federation.policy import ClientPolicy
from fedmoments.federation.store import FederationStore
from fedmoments.federation.terms import Terms
from fedmoments.settings.client import ClientSettings

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyarrow.compute")
parquet = pytest.importorskip("pyarrow.parquet")

CLASSES = ("cat", "dog", "yak", "emu", "ox")
#: Rows without a finite number somewhere.
GAPS = 5
POLICY = {"min_count": 5, "max_per_class": 150}


def write_lake(folder: Path, files: int = 6, seed: int = 0) -> Path:
    """Write rows with all that rules ask for: rare values, a small class, copies, gaps, a strange class, long classes.

    Rows are in no order, files of different lengths, and one of them is empty. ``all.parquet`` beside them has all.
    """
    rng = np.random.default_rng(seed)
    y = rng.choice(5, size=700, p=[0.4, 0.3, 0.2, 0.09, 0.01])
    y[:3], y[y == 4] = 4, 4  # of the last class there are few
    X = np.stack([CENTRES[CLASSES[label]] for label in y]) + rng.normal(size=(len(y), DIM))
    X = np.maximum(X - 1.5, 0.0).astype(np.float32)  # as behind a ReLU, where many are 0
    X[:, 4] = 0.0
    X[rng.choice(len(y), 3, replace=False), 4] = 7.0  # few rows differ from 0 here
    X[y == 3] = X[np.flatnonzero(y == 3)[:4]][rng.integers(0, 4, int((y == 3).sum()))]  # copies of four rows
    names = np.array(CLASSES, object)[y]
    names[rng.choice(len(y), 9, replace=False)] = "gnu"
    X[rng.choice(np.flatnonzero((y < 3) & (names != "gnu")), GAPS, replace=False), 0] = np.nan
    columns = {"label": pa.array(names, pa.string()), **{f"f{j}": X[:, j] for j in range(DIM)}}
    whole = pa.table(columns)
    (folder / "lake").mkdir(parents=True)
    cuts = np.sort(rng.choice(len(y), files - 2, replace=False)).tolist()
    bounds = [0, *cuts, len(y)]
    for number, (start, stop) in enumerate(pairwise(bounds)):
        parquet.write_table(whole.slice(start, stop - start), folder / "lake" / f"part-{number}.parquet")
    parquet.write_table(whole.slice(0, 0), folder / "lake" / "part-99.parquet")
    parquet.write_table(whole, folder / "all.parquet")
    return folder


def settings_of(place: Path, *, by_file: bool, **more: Any) -> ClientSettings:
    own = ClientSettings(name="clinic", key_seed="trial", data=f"parquet:{place / 'all.parquet'}", test_share=0.0)
    own = replace(own, ignore_unknown=True, features="f*", policy=POLICY)
    if by_file:
        own = replace(own, data=f"parquet:{place / 'lake'}", test_share=None, workers=1)
    return replace(own, **more)


def chosen_of(settings: ClientSettings, terms: Terms) -> tuple[Chosen, Statistics]:
    policy = ClientPolicy.from_dict(settings.policy)
    chosen = Chooser(made_holdings(settings, terms), policy, terms).choose("clinic")
    return chosen, measure_held(chosen.held, terms, policy)


def require_equal(ours: Statistics, theirs: Statistics) -> None:
    """Of the very same rows: sums differ by no more than how float64 rounds, which is a unit of the fixed point."""
    assert ours.spec == theirs.spec
    np.testing.assert_array_equal(ours.classes, theirs.classes)
    np.testing.assert_array_equal(ours.class_counts, theirs.class_counts)
    np.testing.assert_array_equal(ours.row_labels, theirs.row_labels)
    np.testing.assert_array_equal(ours.row_counts, theirs.row_counts)
    for name in ours.spec.sent:
        if name != "scatter_sketch":
            apart = np.abs(np.asarray(ours.arrays[name], np.float64) - np.asarray(theirs.arrays[name], np.float64))
            assert apart.max(initial=0) <= 1, name


@pytest.mark.parametrize("min_count", [1, 5])
@pytest.mark.parametrize("heads", [("fedcof",), ("fed3r",), ("gh-qda",), ("gh-lda", "fedncm"), ("lda-sketch",)])
def test_files_one_by_one_tell_what_the_same_rows_tell_in_memory(
    heads: tuple[str, ...], min_count: int, tmp_path: Path
) -> None:
    folder, terms = write_lake(tmp_path / "data"), new_ledger(tmp_path / "ledger", CLASSES, heads)
    policy = {**POLICY, "min_count": min_count}
    (one, ours), (other, theirs) = (
        chosen_of(settings_of(folder, by_file=by_file, policy=policy), terms) for by_file in (True, False)
    )
    assert one.held.keys() == other.held.keys()
    # rows with gaps are left out by both; of a table in memory they are a problem of its reader, which nobody is told
    assert one.notes["unreadable"]["samples"] == GAPS
    assert replace(one.withheld, samples=one.withheld.samples - GAPS) == other.withheld
    notes = [{key: note for key, note in each.notes.items() if key != "unreadable"} for each in (one, other)]
    assert notes[0] == notes[1]
    require_equal(ours, theirs)
    assert (one.withheld.classes > 0) == (min_count > 1)


def test_several_means_of_a_class_are_over_the_very_rows_that_they_are_in_memory(tmp_path: Path) -> None:
    folder = write_lake(tmp_path / "data", files=40)
    terms = new_ledger(tmp_path / "ledger", CLASSES, means_per_client=4)
    assert terms.spec.means_per_client == 4
    found = [chosen_of(settings_of(folder, by_file=by_file), terms)[1] for by_file in (True, False)]
    require_equal(*found)
    assert found[0].row_counts.min() >= 5


def test_rare_values_and_copies_do_not_leave_a_lake(tmp_path: Path) -> None:
    folder, terms = write_lake(tmp_path / "data"), new_ledger(tmp_path / "ledger", CLASSES, ("gh-qda",))
    chosen, stats = chosen_of(settings_of(folder, by_file=True), terms)
    assert 3 not in stats.classes  # of whose rows four differ
    assert 4 not in stats.classes  # of which there are few
    assert {"emu", "ox"} == set(chosen.notes["classes_kept_back"])
    kept = stats.float64() if hasattr(stats, "float64") else stats
    assert all(abs(float(gram[4, 4])) < 1e-6 for _, gram in kept.class_grams)
    _, open_ = chosen_of(settings_of(folder, by_file=True, policy={"min_count": 1}), terms)
    assert sum(float(gram[4, 4]) for _, gram in open_.class_grams) > 40


def test_rare_values_of_a_lake_are_hidden_before_a_map_too(tmp_path: Path) -> None:
    folder, terms = write_lake(tmp_path / "data"), new_ledger(tmp_path / "ledger", CLASSES, ("gh-qda",))
    rotation = RandomProjection(terms.dim, terms.dim, seed=1)
    behind = replace(terms, fingerprint=replace(terms.fingerprint, feature_map=rotation))
    ours, theirs = (chosen_of(settings_of(folder, by_file=by_file), behind)[1] for by_file in (True, False))
    require_equal(ours, theirs)
    back = np.linalg.inv(rotation.matrix)
    grams = [back.T @ gram @ back for _, gram in ours.to_float().class_grams]
    assert all(abs(float(gram[4, 4])) < 1e-3 for gram in grams)  # as rounded; in the open it is more than 40


def test_rows_of_a_lake_are_not_scaled_around_a_chosen_center(tmp_path: Path) -> None:
    folder, terms = write_lake(tmp_path / "data"), new_ledger(tmp_path / "ledger", CLASSES)
    aimed = Offset(np.ones(terms.dim)) | Normalize()
    behind = replace(terms, fingerprint=replace(terms.fingerprint, feature_map=aimed))
    with pytest.raises(PolicyError, match="scaled around a chosen center"):
        chosen_of(settings_of(folder, by_file=True), behind)


def test_any_number_of_processes_gives_the_same_bytes(tmp_path: Path) -> None:
    folder, terms = write_lake(tmp_path / "data"), new_ledger(tmp_path / "ledger", CLASSES, ("fedcof", "gh-qda"))
    found = [chosen_of(settings_of(folder, by_file=True, workers=n), terms)[1] for n in (1, 2)]
    assert found[0] == found[1]


def test_a_ledger_takes_in_a_lake_and_the_folder_keeps_its_survey(tmp_path: Path) -> None:
    folder, ledger = write_lake(tmp_path / "data"), tmp_path / "ledger"
    new_ledger(ledger, CLASSES)
    own = {"workers": 1, "ignore_unknown": True, "features": "f*", "policy": POLICY}
    party = Party("clinic", tmp_path / "clinic", f"parquet:{folder / 'lake'}", own)
    enrol(ledger, party)
    ask(ledger, party)
    assert held(ledger).counts[:3].min() > 50
    assert len(list(party.folder.glob("lake-survey-*"))) == 1
    assert json.loads((party.folder / "progress.json").read_text())["what"] == "measuring"
    again = ask(ledger, party)  # nothing new: it holds a receipt
    assert again.held == ("clinic",)


def test_a_new_file_is_a_new_version_and_too_small_a_change_is_refused(tmp_path: Path) -> None:
    folder, ledger = write_lake(tmp_path / "data"), tmp_path / "ledger"
    new_ledger(ledger, CLASSES)
    own = {"workers": 1, "ignore_unknown": True, "features": "f*", "policy": {"min_count": 5}}
    party = Party("clinic", tmp_path / "clinic", f"parquet:{folder / 'lake'}", own)
    enrol(ledger, party)
    ask(ledger, party)
    before = held(ledger).counts.copy()
    part = parquet.read_table(folder / "lake" / "part-0.parquet")
    cats = part.filter(pa.compute.equal(part["label"], "dog"))
    new = pa.table({name: np.asarray(cats[name])[:20] if name == "label" else np.asarray(cats[name])[:20] + 1 for name in cats.column_names})  # fmt: skip  # noqa: E501
    parquet.write_table(new.slice(0, 2), folder / "lake" / "part-8.parquet")
    holdings._HOLDINGS._values.clear()  # as a new process
    with_two = party.offer(new_terms(ledger))
    assert "fewer samples of a class than" in with_two.declined[0]["why"]
    parquet.write_table(new, folder / "lake" / "part-8.parquet")
    holdings._HOLDINGS._values.clear()
    ask(ledger, party)
    assert (held(ledger).counts - before).tolist() == [0, new.num_rows, 0, 0, 0]


def test_a_new_version_of_second_moments_is_refused_where_it_cannot_be_compared(tmp_path: Path) -> None:
    folder, ledger = write_lake(tmp_path / "data"), tmp_path / "ledger"
    new_ledger(ledger, CLASSES, ("gh-qda",))
    own: dict[str, Any] = {"workers": 1, "ignore_unknown": True, "features": "f*", "policy": {"min_count": 5}}
    party = Party("clinic", tmp_path / "clinic", f"parquet:{folder / 'lake'}", own)
    enrol(ledger, party)
    ask(ledger, party)
    part = parquet.read_table(folder / "all.parquet")
    moved = part.set_column(2, "f1", pa.array(np.asarray(part["f1"]) + 1))
    moved = moved.filter(pa.compute.is_in(moved["label"], pa.array(["cat", "dog"])))
    parquet.write_table(moved.slice(0, 300), folder / "lake" / "part-8.parquet")
    holdings._HOLDINGS._values.clear()
    offer = party.offer(new_terms(ledger))
    assert "which files that are measured one by one do not allow" in offer.declined[0]["why"]
    own["policy"]["small_changes"] = True
    ask(ledger, party)


def new_terms(ledger: Path) -> Terms:
    with FederationStore.open(ledger) as store:
        return store.terms


def test_a_run_that_was_cut_short_reads_no_file_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedmoments.federation.lake.reader import FileReader
    from fedmoments.samples.lakes import manifest

    monkeypatch.setattr(manifest, "EVERY", 0.0)
    folder, terms = write_lake(tmp_path / "data"), new_ledger(tmp_path / "ledger", CLASSES)
    (tmp_path / "clinic").mkdir()
    own = settings_of(folder, by_file=True, folder=str(tmp_path / "clinic"))
    expected = chosen_of(settings_of(folder, by_file=True), terms)[1]
    read: list[str] = []
    whole = FileReader.rows

    def counting(self: FileReader, path: str) -> Any:
        read.append(Path(path).name)
        if len(read) == 4:
            raise KeyboardInterrupt
        return whole(self, path)

    monkeypatch.setattr(FileReader, "rows", counting)
    with pytest.raises(KeyboardInterrupt):
        chosen_of(own, terms)
    assert chosen_of(own, terms)[1] == expected
    survey, sums = read[:7], read[7:]
    assert survey[3] == survey[4]  # it was not done
    assert len(set(survey)) == 6
    assert len(set(sums)) == len(sums) == 6


def test_a_file_that_changes_between_two_passes_is_refused(tmp_path: Path) -> None:
    folder, terms = write_lake(tmp_path / "data"), new_ledger(tmp_path / "ledger", CLASSES)
    own = settings_of(folder, by_file=True)
    policy = ClientPolicy.from_dict(own.policy)
    chosen = Chooser(made_holdings(own, terms), policy, terms).choose("clinic")
    table = parquet.read_table(folder / "lake" / "part-1.parquet")
    parquet.write_table(table.slice(1), folder / "lake" / "part-1.parquet")
    with pytest.raises(InputError, match=r"part-1.parquet was changed while it was measured"):
        measure_held(chosen.held, terms, policy)


def test_what_needs_all_rows_at_once_is_refused_in_one_sentence(tmp_path: Path) -> None:
    folder, terms = write_lake(tmp_path / "data"), new_ledger(tmp_path / "ledger", CLASSES)
    own = settings_of(folder, by_file=True)
    for wrong in ({"also": ("parquet:b",)}, {"test_share": 0.2}, {"policy": {"tuning": "lp"}}, {"table": "draft"}):
        with pytest.raises(InputError, match="files are measured one by one"):
            replace(own, **wrong)
    with pytest.raises(InputError, match="where they are tables"):
        made_holdings(replace(own, data="digits"), terms)
    with pytest.raises(InputError, match="never together"):
        _ = made_holdings(own, terms).train("clinic").X
    place = tmp_path / "clinic"
    place.mkdir()
    with pytest.raises(InputError, match="take rows that are to be forgotten out of"):
        forget(replace(own, folder=str(place)), ["row 1"])
    (place / "forgotten.txt").write_text("ab row 1\n")
    with pytest.raises(InputError, match="cannot read its data"):
        made_holdings(replace(own, folder=str(place)), terms)
    with pytest.raises(PolicyError, match="max_numbers"):
        ClientPolicy(max_numbers=1).require(terms)


def test_what_is_wrong_with_files_is_told_to_their_owner_alone(tmp_path: Path) -> None:
    folder, terms = write_lake(tmp_path / "patients-of-ward-7"), new_ledger(tmp_path / "ledger", CLASSES)
    gnus = parquet.read_table(folder / "all.parquet").filter(pa.compute.scalar(value=False))
    wrong: dict[str, Any] = {"empty": gnus, "lacking": gnus.drop(["label"]), "nested": pa.table({"label": [[1]]})}
    for name, table in wrong.items():
        (folder / name).mkdir()
        parquet.write_table(table, folder / name / "a.parquet")
    for name, more in (("empty", {}), ("lacking", {}), ("nested", {}), ("lake", {"workers": 0}), ("nowhere", {})):
        own = settings_of(folder, by_file=True, data=f"parquet:{folder / name}", **more)
        offer = Node(own).contribute(terms, most_bytes=2**30)
        assert "patients" not in json.dumps(offer.fields())
        assert "cannot read its data" in offer.declined[0]["why"]
        assert "patients" in offer.declined[0]["details"] or more


def test_a_second_file_is_what_heads_are_tested_on(tmp_path: Path) -> None:
    folder, terms = write_lake(tmp_path / "data"), new_ledger(tmp_path / "ledger", CLASSES)
    own = settings_of(folder, by_file=True, test=str(folder / "all.parquet"))
    tests = made_holdings(own, terms).test("clinic")
    assert len(tests.y) == len(made_holdings(settings_of(folder, by_file=False), terms).train("clinic").y)


@pytest.mark.long
def test_a_deployed_client_measures_its_lake_with_two_processes_over_tls(tmp_path: Path) -> None:
    folder, ledger = write_lake(tmp_path / "data"), tmp_path / "fed.ledger"
    command = [sys.executable, "-m", "fedmoments"]

    def run(*words: object) -> str:
        done = subprocess.run(
            [*command, *map(str, words)], cwd=tmp_path, check=False, capture_output=True, text=True, timeout=HANG
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    port = choose_port("127.0.0.1")
    known = ["--encoder", "identity", "--classes", ",".join(CLASSES), "--dim", DIM]
    run("server", "create", ledger, "--name", "lakes", *known, "--heads", "gh-qda")
    run("keys", "server", "keys", "--host", "localhost")
    run("keys", "client", "keys", "--name", "clinic")
    run("server", "enrol", ledger, "keys/clinic.card")
    typed = ["client", "clinic", "--keys", "keys", "--data", f"parquet:{folder / 'lake'}", "--features", "f*"]
    typed += ["--ignore-unknown", "--workers", "2", "--terms", f"{ledger}.terms.json", "--min-count", "5"]
    plan = json.loads(run(*typed, "--plan", "--json"))["contributions"][0]
    assert plan["withheld"]["class_names"] == ["emu", "ox"]
    with (tmp_path / "server.log").open("w") as log:
        server = subprocess.Popen(
            [*command, "server", "run", str(ledger), "--keys", "keys", "--port", str(port), "--nodes", "1"],
            cwd=tmp_path, stderr=log, stdout=log,
        )  # fmt: skip
    try:
        outcome = json.loads(run(*typed, "--server", f"localhost:{port}", "--ca", "keys/ca.crt", "--json"))
        assert server.wait(HANG) == 0, (tmp_path / "server.log").read_text()
    finally:
        server.kill()
        server.wait()
    assert outcome["acknowledged"]
    with FederationStore.open(ledger) as store:
        terms, sent = store.terms, store.statistics()
    assert {CLASSES[label]: n for label, n in enumerate(sent.counts.tolist()) if n} == plan["classes"]
    settings = settings_of(folder, by_file=True, policy={"min_count": 5})
    assert np.array_equal(sent.arrays["class_grams"], chosen_of(settings, terms)[1].arrays["class_grams"])
