"""Start-up kits on the command line: one file a party, and one command there."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.waiting import HANG, until

pytest.importorskip("flwr")
pytest.importorskip("cryptography")


@pytest.fixture
def kits(run: Any, features: str) -> dict[str, str]:
    """Kits of two parties of a federation."""
    run("keys", "server", "keys", "--host", "localhost")
    run("server", "create", "fed.ledger", "--name", "toys", "--data", features, "--heads", "fedcof")
    found: dict[str, str] = json.loads(run("server", "invite", "fed.ledger", "clinic", "lab", "--json").stdout)["kits"]
    return found


def test_invite_writes_a_private_kit_for_each_party(kits: dict[str, str], run: Any) -> None:
    from fedmoments.federation.enrolment.kit import read_kit

    assert kits == {"clinic": "clinic.kit", "lab": "lab.kit"}
    clinic, lab = map(read_kit, kits.values())
    assert (clinic.server, clinic.desk) == ("localhost:9092", "localhost:9093")
    assert clinic.token != lab.token
    assert Path("clinic.kit").stat().st_mode & 0o077 == 0
    log = json.loads(run("ledger", "log", "fed.ledger", "--json").stdout)
    assert [entry["facts"]["client"] for entry in log if entry["facts"].get("note") == "invited"] == ["clinic", "lab"]
    assert clinic.token not in json.dumps(log)


def test_a_kit_shows_its_plan_with_the_rules_that_the_operator_proposes(run: Any, kits: Any, features: str) -> None:
    run("server", "invite", "fed.ledger", "clinic", "--min-count", "55")
    plan = json.loads(run("client", "clinic.kit", "--data", features, "--plan", "--json").stdout)
    contribution = plan["contributions"][0]
    assert contribution["client"] == "clinic"
    assert 0 < contribution["withheld"]["classes"] < 10
    own = json.loads(run("client", "clinic.kit", "--data", features, "--min-count", "2", "--plan", "--json").stdout)
    assert own["contributions"][0]["withheld"]["classes"] == 0
    assert Path("clinic.keys/clinic.identity").stat().st_mode & 0o077 == 0


def test_a_kit_typed_again_keeps_added_data_and_accepted_classes(run: Any, kits: Any, features: str) -> None:
    """As the systemd unit of a party does after each restart."""
    typed = ("client", "clinic.kit", "--data", features, "--plan", "--json")
    before = json.loads(run(*typed).stdout)
    run("server", "amend", "fed.ledger", "--classes", "yak")
    run("client", "clinic", "--accept-terms", "fed.ledger.terms.json")
    with np.load(features) as archive:
        x, names = archive["x_train"], [*archive["classes"]]
    np.savez("more.npz", x_train=x[:30] + 1, y_train=np.full(30, 1), classes=np.array([names[0], "yak"]))
    run("client", "clinic", "--add", "more.npz")
    after = json.loads(run(*typed).stdout)
    assert after["contributions"][0]["samples"] > before["contributions"][0]["samples"]
    assert after["contributions"][0]["classes"]["yak"] > 0
    assert json.loads(run("client", "clinic", "--plan", "--json").stdout) == after
    assert json.loads(run("client", "clinic.kit", "--plan", "--json").stdout) == after


def test_data_that_cannot_be_read_are_not_added(run: Any, kits: Any, features: str) -> None:
    run("client", "clinic.kit", "--data", features, "--plan")
    before = Path("clinic/client.toml").read_bytes()
    assert "nowhere.npz" in run("client", "clinic", "--add", "nowhere.npz", code=2).stderr
    assert Path("clinic/client.toml").read_bytes() == before


def test_nothing_is_sent_without_consent(run: Any, kits: Any, features: str) -> None:
    result = run("client", "clinic.kit", "--data", features, code=2)
    assert "--yes" in result.stderr
    assert not Path("clinic/enrolled").exists()


def test_kits_are_refused_where_they_cannot_be(run: Any, kits: Any, features: str) -> None:
    def refused(*arguments: str) -> str:
        return str(run(*arguments, code=2).stderr)

    assert "looser" in refused("server", "invite", "fed.ledger", "ward", "--min-count", "1")
    assert "no party would believe" in refused("server", "invite", "fed.ledger", "ward", "--server", "example.org")
    assert "client's name" in refused("server", "invite", "fed.ledger", "../ward")
    assert "days" in refused("server", "invite", "fed.ledger", "ward", "--days", "0")
    assert "--terms" in refused("client", "clinic.kit", "--data", features, "--terms", "fed.ledger.terms.json")
    assert "--data DATA" in refused("client", "clinic.kit")
    assert "--ca" in refused("client", "clinic.kit", "--data", features, "--insecure")
    Path("lab").mkdir()
    Path("lab/notes.txt").write_text("mine")
    assert "is not a client's folder" in refused("client", "lab.kit", "--data", features, "--plan")
    assert sorted(path.name for path in Path("lab").iterdir()) == ["notes.txt"]
    run("keys", "client", "keys", "--name", "ward")
    run("server", "enrol", "fed.ledger", "keys/ward.card")
    assert "needs no kit" in refused("server", "invite", "fed.ledger", "ward")
    assert "void" in run("server", "revoke", "fed.ledger", "lab").stdout


@pytest.mark.long
def test_two_parties_with_kits_type_one_command_each_while_a_browser_watches(
    run: Any, kits: Any, features: str, browser: Any
) -> None:
    from fedmoments.federation.deploy.network import choose_port
    from fedmoments.federation.store import FederationStore

    port, desk = choose_port("127.0.0.1"), choose_port("127.0.0.1")
    run("server", "invite", "fed.ledger", "clinic", "lab", "--server", f"localhost:{port}", "--desk", str(desk))
    command = [sys.executable, "-m", "fedmoments"]
    parties = [
        subprocess.Popen(
            [*command, "client", f"{name}.kit", "--data", features, "--part", part, "--yes", "--json"],
            stdout=subprocess.PIPE,
        )
        for name, part in (("clinic", "1/2"), ("lab", "2/2"))
    ]
    watched = choose_port("127.0.0.1")
    serving = ["--keys", "keys", "--port", str(port), "--desk", str(desk), "--wait", "400", "--page", str(watched)]
    with Path("server.log").open("w") as log:
        server = subprocess.Popen(
            [*command, "server", "run", "fed.ledger", *serving, "--nodes", "2", "--quorum", "2", "--log-json"],
            stderr=log, stdout=log,
        )  # fmt: skip
    try:
        until(lambda: "live page" in Path("server.log").read_text() or server.poll() is not None)
        browser.get(f"http://127.0.0.1:{watched}/")
        seen = set()
        while server.poll() is None:
            seen |= set(re.findall(r"(?:clinic|lab) (\w+)", browser.find_element("id", "parties").text))
        assert server.returncode == 0, Path("server.log").read_text()
        outcomes = [json.loads(party.communicate(timeout=HANG)[0]) for party in parties]
    finally:
        for process in (server, *parties):
            process.kill()
            process.communicate()
    assert "contributed" in seen
    assert seen & {"enrolled", "connected", "measuring"}
    said = [entry["message"] for entry in browser.get_log("browser")]
    assert not [words for words in said if "net::ERR" not in words]  # the server's end is no fault of the page
    assert {json.loads(line)["level"] for line in Path("server.log").read_text().splitlines() if line[:1] == "{"}
    assert [outcome["acknowledged"] for outcome in outcomes] == [True, True]
    with FederationStore.open("fed.ledger") as store:
        assert [contributor.client for contributor in store.status().contributors] == ["clinic", "lab"]
        assert store.status().samples == 600
