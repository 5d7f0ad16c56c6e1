"""The commands of a federation's server: keys, terms, enrolment, and all that a ledger tells and undoes."""

import json
import re
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.waiting import HANG

import fedmoments as fm

pytest.importorskip("flwr")
pytest.importorskip("cryptography")

FEDERATE = ("federate", "--local", "3", "--clients", "12", "--engine", "memory", "--heads", "fedcof,fed3r")
LEDGER = "trial/federation/ledger.db"


@pytest.fixture
def trial(run: Any, features: str) -> dict[str, Any]:
    """A ledger that twelve clients contributed all to, and what the run printed."""
    printed = run(*FEDERATE, "--data", features, "--out", "trial", "--min-count", "1", "--json").stdout
    found: dict[str, Any] = json.loads(printed)
    return found


@pytest.fixture
def refuse(run: Any) -> Any:
    """Run a command that must be refused, and return its sentence."""

    def check(*arguments: str, code: int = 2) -> str:
        result = run(*arguments, code=code)
        *progress, last = result.stderr.splitlines()
        assert last.startswith("error: ")
        assert "Traceback" not in result.stderr
        assert not any(line.startswith("error: ") for line in progress)
        return str(last)

    return check


def create(run: Any, *arguments: str, name: str = "a.ledger") -> dict[str, Any]:
    document: dict[str, Any] = json.loads(run("server", "create", name, "--name", "pets", *arguments, "--json").stdout)
    return document


# -------------------------------------------------------------------------------------------------- keys


def test_keys_are_made_once_and_secret_ones_are_private(run: Any, refuse: Any, workshop: Path) -> None:
    server = json.loads(run("keys", "server", "keys", "--host", "fed.example.org", "--json").stdout)
    client = json.loads(run("keys", "client", "keys", "--name", "clinic", "--json").stdout)
    assert server["hand_over"] == ["keys/ca.crt"]
    assert client["hand_over"] == ["keys/clinic.card"]
    for document in (server, client):
        assert all(Path(path).stat().st_mode & 0o077 == 0 for path in document["secret"])
        assert all(Path(path).is_file() for path in document["public"])
    assert sorted(path.name for path in Path("keys").iterdir()) == sorted(
        Path(path).name for document in (server, client) for path in document["secret"] + document["public"]
    )
    assert "exists already" in refuse("keys", "client", "keys", "--name", "clinic")
    assert "exists already" in refuse("keys", "server", "keys")


def test_keys_say_what_is_secret_and_what_to_hand_over(run: Any) -> None:
    text = run("keys", "client", "keys", "--name", "clinic").stdout
    assert re.search(r"clinic\.card +public +hand it to", text)
    assert re.search(r"clinic\.identity +secret", text)
    assert "ca.crt" in text
    assert re.search(r"server\.key +secret", run("keys", "server", "keys").stdout)


def test_keys_refuse_names_that_cannot_be(refuse: Any, workshop: Path) -> None:
    assert "a client's name must be" in refuse("keys", "client", "keys", "--name", "../clinic")
    assert "DNS name or an IP address" in refuse("keys", "server", "keys", "--host", "a b")
    assert not Path("keys").exists() or not any(Path("keys").iterdir())


# -------------------------------------------------------------------------------------------------- terms


def test_create_writes_the_terms_that_the_ledger_holds(run: Any, features: str) -> None:
    from fedmoments.federation.store import FederationStore
    from fedmoments.federation.terms import Terms

    found = create(run, "--data", features, "--heads", "fedcof,fed3r", "--means-per-client", "2", "--norm-bound", "64")
    public = Terms.from_json(Path("a.ledger.terms.json").read_text())
    with FederationStore.open("a.ledger") as store:
        assert store.terms.id == public.id == found["id"]
    assert public.classes == tuple(f"class {label}" for label in range(10))
    assert (public.dim, public.spec.means_per_client, public.fixed_point.norm_bound) == (12, 2, 64.0)
    assert set(public.spec.sent) == {"gram", "client_means"}


def test_create_without_data_takes_classes_from_a_list_or_a_file(run: Any, workshop: Path) -> None:
    Path("names.txt").write_text("cat\n\n dog \n", "utf-8")
    from_file = create(run, "--encoder", "identity", "--dim", "8", "--classes", "names.txt")
    listed = create(run, "--encoder", "identity", "--dim", "8", "--classes", "cat,dog", name="b.ledger")
    for found in (from_file, listed):
        assert found["fingerprint"]["classes"] == ["cat", "dog"]
        assert found["dim"] == 8
    assert from_file["id"] != listed["id"]


def test_create_prints_the_terms_readably(run: Any, features: str) -> None:
    text = run("server", "create", "a.ledger", "--name", "pets", "--data", features, "--rows", "float16").stdout
    assert re.search(r"each client sends +counts, class means \(counts \+ client_means\)", text)
    assert re.search(r"means are encoded as +float16", text)
    assert re.search(r"id +[0-9a-f]{64}", text)
    assert "largest contribution" in text


def test_create_refuses_what_makes_no_terms(refuse: Any, run: Any, features: str, workshop: Path) -> None:
    def sentence(*arguments: str) -> str:
        return str(refuse("server", "create", "new.ledger", "--name", "pets", *arguments))

    assert "--encoder NAME" in sentence("--classes", "a,b")
    assert "--classes FILE_OR_LIST" in sentence("--encoder", "identity", "--dim", "3")
    assert "--dim D" in sentence("--encoder", "identity", "--classes", "a,b")
    assert "'cats.txt' is neither" in sentence("--encoder", "identity", "--dim", "3", "--classes", "cats.txt")
    assert "unknown head 'fedcov'" in sentence("--data", features, "--heads", "fedcov")
    assert "need a kernel width" in sentence("--data", features, "--heads", "fed3r-rf")
    assert "rows" in sentence("--data", features, "--rows", "int4")
    Path("latin.txt").write_bytes(b"caf\xe9\nbar\n")
    assert "not in UTF-8" in sentence("--encoder", "identity", "--dim", "3", "--classes", "latin.txt")
    assert not list(workshop.glob("new.ledger*"))
    create(run, "--data", features, name="new.ledger")
    before = Path("new.ledger.terms.json").read_text()
    assert "exists" in sentence("--data", features)
    assert Path("new.ledger.terms.json").read_text() == before


def test_enrol_and_revoke(run: Any, refuse: Any, features: str) -> None:
    create(run, "--data", features)
    for name in ("clinic", "lab"):
        run("keys", "client", "keys", "--name", name)
    assert "2 clients in all" in run("server", "enrol", "a.ledger", "keys/clinic.card", "keys/lab.card").stdout
    assert "contributes no more" in run("server", "revoke", "a.ledger", "lab").stdout
    found = json.loads(run("status", "a.ledger", "--json").stdout)
    assert (found["enrolled"], found["revoked"], found["waiting"]) == (1, 1, ["clinic"])
    assert found["classes_not_covered"] == [f"class {label}" for label in range(10)]
    assert "was revoked" in refuse("server", "enrol", "a.ledger", "keys/lab.card")
    assert "nobody of that name" in refuse("server", "revoke", "a.ledger", "bank")
    assert "not a client's card" in refuse("server", "enrol", "a.ledger", "a.ledger.terms.json")
    assert "does not exist" in refuse("server", "enrol", "a.ledger", "keys/none.card")
    run("keys", "client", "other", "--name", "clinic")
    run("keys", "client", "keys", "--name", "bank")
    assert "is enrolled with the key" in refuse("server", "enrol", "a.ledger", "keys/bank.card", "other/clinic.card")
    assert json.loads(run("status", "a.ledger", "--json").stdout)["waiting"] == ["clinic"]  # all cards or none


def test_the_app_folder_is_a_flower_app(run: Any) -> None:
    assert json.loads(run("server", "app", "app", "--json").stdout) == {"app": "app"}
    assert "fedmoments_app.server_app:app" in Path("app", "pyproject.toml").read_text()


# -------------------------------------------------------------------------------------------------- federate


def test_federate_prints_the_digests_of_the_simulation_it_names(run: Any, features: str) -> None:
    text = run(*FEDERATE, "--data", features, "--out", "trial", "--seed", "3", "--means-per-client", "2").stdout
    command = re.search("the same split in one process, with its digests: fedmoments (.*) --verbose", text)
    assert command
    simulated = json.loads(run(*command[1].split(), "--json").stdout)["details"]
    for detail in simulated:
        assert f"{detail['head']} classifier {detail['digest']}\n" in text
        assert f"{detail['head']} statistics {detail['statistics_digest']}\n" in text
    assert [detail["head"] for detail in simulated] == ["fedcof", "fed3r"]


def test_federate_without_options_is_the_simulation_with_its_minimum_count(run: Any, features: str) -> None:
    found = json.loads(run("federate", "--local", "2", "--engine", "memory", "--data", features, "--json").stdout)
    assert found["clients"] == found["clients_in_all"] == 100
    assert "--heads auto " in found["simulate"]
    (detail,) = json.loads(run(*found["simulate"].split()[1:], "--json").stdout)["details"]
    assert found["heads"][0]["classifier"] == detail["digest"]
    assert Path("runs/federation/heads/auto.safetensors").is_file()
    assert Path(found["ledger"]) == Path("runs/federation/federation/ledger.db").resolve()


@pytest.mark.parametrize(
    ("options", "heads"),
    [((), ["auto"]), (("--rows", "float16"), ["fedcof"]), (("--means-per-client", "2"), ["fedcof"])],
)
def test_a_federation_that_names_no_head_is_created_for_one_that_its_rules_allow(
    run: Any, features: str, options: tuple[str, ...], heads: list[str]
) -> None:
    terms = json.loads(
        run("server", "create", "a.ledger", "--name", "pets", "--data", features, *options, "--json").stdout
    )
    sketched = "scatter_sketch" in json.dumps(terms)
    assert sketched == (heads == ["auto"])


@pytest.mark.parametrize("word", ["power", "none"])
def test_a_federation_behind_a_named_map_is_the_simulation_behind_it(run: Any, features: str, word: str) -> None:
    options = ("--data", features, "--heads", "lda-sketch", "--clients", "6", "--map", word)
    found = json.loads(run("federate", "--local", "2", "--engine", "memory", *options, "--json").stdout)
    assert f"--map {word}" in found["simulate"]
    (detail,) = json.loads(run(*found["simulate"].split()[1:], "--json").stdout)["details"]
    assert found["heads"][0]["classifier"] == detail["digest"]
    behind = fm.load("runs/federation/heads/lda-sketch.safetensors").feature_map
    assert (behind is not None) == (word == "power")


def test_federate_tells_progress_on_stderr_and_only_json_on_stdout(run: Any, features: str) -> None:
    result = run(*FEDERATE, "--data", features, "--out", "trial", "--json")
    assert json.loads(result.stdout)["engine"] == "memory"
    assert "3/3: nodes are here" in result.stderr.splitlines()


def test_federate_keeps_what_clients_withhold(run: Any, features: str) -> None:
    text = run(*FEDERATE, "--data", features, "--out", "trial", "--min-count", "20").stdout
    command = re.search("the same split in one process, with its digests: fedmoments (.*) --verbose", text)
    assert command
    assert "the digests differ" not in text
    for detail in json.loads(run(*command[1].split(), "--json").stdout)["details"]:
        assert f"{detail['head']} classifier {detail['digest']}\n" in text
    found = json.loads(run("status", LEDGER, "--json").stdout)
    assert sum(each["withheld_samples"] for each in found["contributors"]) == 600 - found["samples"] > 0
    assert all(count == 0 or count >= 20 for count in found["class_counts"].values())


def test_results_name_who_did_not_take_part(trial: Any, capsys: Any) -> None:
    from fedmoments.cli.federation_runs import read_results, show_results

    path = Path("trial/federation.json")
    document = json.loads(path.read_text())
    document["federation"]["failures"] = [{"node": "7", "code": 2, "reason": "<class 'KeyError'>:<'boom'>"}]
    document["federation"]["rounds"][0]["declined"] = [{"node": 7, "client": f"c{n}", "why": "no"} for n in range(7)]
    path.write_text(json.dumps(document))
    show_results(read_results(Path("trial")))
    printed = capsys.readouterr().out
    assert "note: node 7 did not test the heads: boom\n" in printed
    assert printed.count("note: c") == 5
    assert "… and 2 more" in printed


def test_federate_refuses_before_it_makes_anything(refuse: Any, features: str, workshop: Path) -> None:
    before = sorted(workshop.rglob("*"))

    def sentence(*arguments: str) -> str:
        return str(refuse("federate", "--local", "2", "--data", features, *arguments))

    assert "--engine must be one of" in sentence("--engine", "grpc")
    assert "give one of them" in sentence("--split", "iid", "--alpha", "0.1")
    assert "unknown head" in sentence("--heads", "fedcov")
    assert "not among the heads" in sentence("--set", "fed3r.ridge=1")
    assert "HEAD.NAME=VALUE" in sentence("--set", "ridge=1")
    assert "is a file" in sentence("--out", features)
    assert "clients must be 1 or more" in sentence("--clients", "0")
    assert "Missing option '--local'" in refuse("federate")
    assert sorted(workshop.rglob("*")) == before


def test_federate_never_overwrites_a_federation(trial: Any, refuse: Any, run: Any, features: str) -> None:
    run(*FEDERATE, "--data", features, "--out", "trial")
    assert Path("trial/federation-2/ledger.db").is_file()
    assert json.loads(run("status", LEDGER, "--json").stdout)["federation"] == trial["federation"]
    run(*FEDERATE, "--data", features, "--out", "trial", "--keep", "elsewhere")
    assert Path("elsewhere/ledger.db").is_file()
    again = (*FEDERATE, "--data", features, "--out", "trial", "--keep", "elsewhere")
    assert "holds a federation already" in refuse(*again)


# -------------------------------------------------------------------------------------------------- the ledger


def test_status_tells_who_is_in(trial: Any, run: Any) -> None:
    found = json.loads(run("status", LEDGER, "--json").stdout)
    assert found["federation"] == trial["federation"]
    assert (found["clients"], found["samples"], found["waiting"]) == (12, 600, [])
    assert found["bytes"] == sum(each["bytes"] for each in found["contributors"])
    text = run("status", LEDGER).stdout
    assert "12 of 12 clients contributed 600 samples" in text
    assert "10 of 10 classes covered\n" in text
    assert re.search(r"client-0011 +1 +\d", text)


def test_status_shows_refusals(trial: Any, run: Any) -> None:
    from fedmoments.errors import RefusedError
    from fedmoments.federation.store import FederationStore

    with FederationStore.open(LEDGER) as store, pytest.raises(RefusedError):
        store.submit(b"no contribution")
    text = run("status", LEDGER).stdout
    assert "1 refusal; the latest:" in text
    assert re.search(r"somebody: \w+: ", text)
    assert json.loads(run("status", LEDGER, "--json").stdout)["last_refusals"][0]["facts"]["bytes"] == 15


def test_leave_gives_the_same_receipt_twice_and_refit_forgets(trial: Any, run: Any, refuse: Any) -> None:
    run("refit", LEDGER, "--heads", "fedcof,fed3r", "--out", "before")
    assert json.loads(Path("before/federation.json").read_text())["details"][0]["digest"] in {
        each["classifier"] for each in trial["heads"]
    }
    text = run("leave", LEDGER, "client-0003").stdout
    assert "11 clients remain" in text
    assert "still contain it" in text
    receipt = json.loads(run("leave", LEDGER, "client-0003", "--json").stdout)
    assert receipt["event"] == "left"
    assert receipt["chain"] in text
    after = json.loads(run("refit", LEDGER, "--heads", "fedcof,fed3r", "--out", "after", "--json").stdout)
    assert after["clients"] == 11
    for old, new in zip(trial["heads"], after["heads"], strict=True):
        assert old["classifier"] != new["classifier"]
    versions = [
        json.loads(run("card", f"{place}/heads/fedcof.safetensors", "--json").stdout) for place in ("before", "after")
    ]
    assert [each["version"]["number"] for each in versions] == [1, 2]  # the same parameters are the same version
    assert versions[1]["version"]["parent"] == trial["heads"][0]["classifier"] == versions[0]["digest"]
    assert versions[1]["version"]["entry"] > versions[0]["version"]["entry"]
    card = Path("after/heads/fedcof.md").read_text("utf-8")
    assert "- **Parties**: 11" in card
    assert "client-0000" not in card
    assert "heads/fedcof.md" in Path("after/report.html").read_text("utf-8")
    assert "cannot leave" in refuse("leave", LEDGER, "nobody")
    assert "11 of 12 clients" in run("status", LEDGER).stdout


def test_refit_fits_what_the_terms_serve(trial: Any, run: Any, refuse: Any) -> None:
    found = json.loads(run("refit", LEDGER, "--out", "again", "--set", "fedcof.ridge=2", "--json").stdout)
    assert [each["head"] for each in found["heads"]] == ["fedcof"]
    assert found["heads"][0]["classifier"] != trial["heads"][0]["classifier"]
    assert found["heads"][0]["statistics"] == trial["heads"][0]["statistics"]
    assert "needs" in refuse("refit", LEDGER, "--heads", "gh-qda", "--out", "never")
    assert not Path("never").exists()


def test_without_fedcof_all_heads_that_the_terms_serve_are_fitted(run: Any, features: str) -> None:
    run(*FEDERATE[:-1], "fed3r", "--data", features, "--out", "trial")
    found = json.loads(run("refit", LEDGER, "--out", "again", "--json").stdout)
    assert {"fed3r", "gh-lda"} <= {each["head"] for each in found["heads"]}


def test_verify_finds_what_was_changed(trial: Any, run: Any, refuse: Any) -> None:
    chain = json.loads(run("ledger", "log", LEDGER, "--last", "1", "--json").stdout)[0]["hash"]
    assert "whole" in run("ledger", "verify", LEDGER, "--expect", chain).stdout
    assert "no entry has the hash" in refuse("ledger", "verify", LEDGER, "--expect", "0" * 64, code=1)
    with sqlite3.connect(LEDGER) as database:
        database.execute("UPDATE audit SET facts = replace(facts, 'client-0003', 'client-0004') WHERE event = 'joined'")
    database.close()
    assert "does not have the hash of what it says" in refuse("ledger", "verify", LEDGER, code=1)
    result = run("ledger", "verify", LEDGER, "--json", code=1)
    assert json.loads(result.stdout)["whole"] is False


def test_log_shows_the_latest_entries(trial: Any, run: Any) -> None:
    entries = json.loads(run("ledger", "log", LEDGER, "--last", "1000", "--json").stdout)
    assert [each["seq"] for each in entries] == list(range(1, len(entries) + 1))
    assert [each["event"] for each in entries].count("joined") == 12
    text = run("ledger", "log", LEDGER, "--last", "1").stdout
    assert text.count("\n") == 2
    assert "run finished" in text


def test_snapshot_and_restore(trial: Any, run: Any, refuse: Any) -> None:
    run("ledger", "snapshot", LEDGER, "today.ledger")
    run("leave", LEDGER, "client-0003")
    assert "--journal FILE" in refuse("ledger", "restore", "today.ledger", "again.ledger")
    journal = ("--journal", f"{LEDGER}.journal")
    assert "--departed NAME=out" in refuse("ledger", "restore", "today.ledger", "again.ledger", *journal)
    decided = ("--departed", "client-0003=out", *journal)
    assert "11 clients" in run("ledger", "restore", "today.ledger", "again.ledger", *decided).stdout
    assert json.loads(run("status", "again.ledger", "--json").stdout)["clients"] == 11
    assert "whole" in run("ledger", "verify", "again.ledger").stdout
    assert "exist" in refuse("ledger", "restore", "today.ledger", "again.ledger")
    data = bytearray(Path("today.ledger").read_bytes())
    data[len(data) // 2] ^= 1
    Path("today.ledger").write_bytes(data)
    assert "damaged" in refuse("ledger", "restore", "today.ledger", "third.ledger")
    assert not Path("third.ledger").exists()


@pytest.mark.parametrize("command", ["status", "leave", "refit", "ledger verify", "ledger log", "server run"])
def test_what_is_no_ledger_is_refused(command: str, refuse: Any, features: str, workshop: Path) -> None:
    more = {"leave": ["clinic"], "refit": ["--out", "x"], "server run": ["--insecure"]}.get(command, [])
    assert "nowhere" in refuse(*command.split(), "nowhere", *more)
    assert "digits.npz" in refuse(*command.split(), features, *more)
    assert not Path("nowhere").exists()
    assert not Path("x").exists()


# -------------------------------------------------------------------------------------------------- server run


def test_server_run_refuses_before_anything_is_started(run: Any, refuse: Any, features: str, workshop: Path) -> None:
    create(run, "--data", features, "--heads", "fed3r")
    before = sorted(workshop.rglob("*"))

    def sentence(*arguments: str) -> str:
        return str(refuse("server", "run", "a.ledger", *arguments))

    assert "or --insecure" in sentence()
    assert "or --insecure" in sentence("--keys", "keys", "--insecure")
    assert "does not exist" in sentence("--keys", "keys")
    assert "needs" in sentence("--insecure", "--heads", "gh-qda")
    assert "close before its messages die" in sentence("--insecure", "--deadline", "9", "--ttl", "9")
    assert "quorum must be 1 or more" in sentence("--insecure", "--quorum", "0")
    assert "is a file" in sentence("--insecure", "--out", "a.ledger")
    assert sorted(workshop.rglob("*")) == before


def test_server_run_without_certificates_stays_on_this_machine(run: Any, refuse: Any, features: str) -> None:
    create(run, "--data", features)
    sentence = refuse("server", "run", "a.ledger", "--insecure", "--host", "0.0.0.0")
    assert "must listen at 127.0.0.1" in sentence


# -------------------------------------------------------------------------------------------------- without Flower


def test_help_works_and_a_run_says_what_to_install_without_flower(workshop: Path, features: str) -> None:
    def start(*arguments: str) -> subprocess.CompletedProcess[str]:
        hide = "import sys; sys.modules['flwr'] = None; import fedmoments.cli; sys.argv = ['fedmoments', *sys.argv[1:]]"
        command = [sys.executable, "-c", f"{hide}; fedmoments.cli.main()", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=HANG, check=False)

    assert "federate" in start("--help").stdout
    assert "--per-round" in start("server", "run", "--help").stdout
    for arguments in (
        ("federate", "--local", "2", "--data", features),
        ("client", "clinic", "--server", "localhost:1", "--insecure", "--keys", "keys", "--data", features),
    ):
        result = start(*arguments)
        assert result.returncode == 2
        assert result.stderr.endswith("pip install 'fedmoments[flower]'\n")
        assert result.stderr.count("\n") == 1


def test_a_failed_run_says_what_stood_in_its_way(run: Any, refuse: Any, workshop: Path, arrays: Any) -> None:
    np.savez("long.npz", **{**arrays, "x_train": arrays["x_train"] * 1e4, "x_test": arrays["x_test"] * 1e4})
    sentence = refuse("federate", "--local", "2", "--engine", "memory", "--data", "long.npz", "--out", "t", code=1)
    assert "In its way were: client-0002: features are larger than the norm_bound" in sentence
    assert "What was taken in stays in" in sentence
