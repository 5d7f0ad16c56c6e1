"""Secure sums, noise and filters on the command line: what is drawn up, refused, shown and run."""

import json
from pathlib import Path
from typing import Any

import pytest

MEMORY = ("federate", "--local", "3", "--clients", "12", "--engine", "memory", "--min-count", "1", "--alpha", "5")
LEDGER = "trial/federation/ledger.db"


@pytest.fixture
def refuse(run: Any) -> Any:
    """Run a command that must be refused, and return its sentence."""

    def check(*arguments: str) -> str:
        last = run(*arguments, code=2).stderr.splitlines()[-1]
        assert last.startswith("error: ")
        return str(last)

    return check


@pytest.fixture
def card(run: Any) -> str:
    run("keys", "helper", "keys", "--name", "notary")
    return "keys/notary.helper.card"


def created(run: Any, features: str, card: str, *more: str) -> dict[str, Any]:
    options = ("--name", "a", "--data", features, "--heads", "fed3r", "--secure", "sums", "--helper", card)
    found: dict[str, Any] = json.loads(run("server", "create", "a.ledger", *options, *more, "--json").stdout)
    return found


def test_keys_helper_makes_keys_for_their_owner_and_a_card_for_all(run: Any, refuse: Any) -> None:
    made = json.loads(run("keys", "helper", "keys", "--name", "notary", "--json").stdout)
    assert made["hand_over"] == ["keys/notary.helper.card"]
    assert len(made["key"]) == 64
    assert oct(Path("keys/notary.helper").stat().st_mode & 0o777) == "0o600"
    assert "never overwritten" in refuse("keys", "helper", "keys", "--name", "notary")
    assert "a helper's name must be" in refuse("keys", "helper", "keys", "--name", "../x")


def test_the_terms_say_what_protects_a_client(run: Any, features: str, card: str) -> None:
    terms = created(run, features, card, "--batch", "5", "--epsilon", "2", "--clip", "3")
    assert terms["privacy"]["secure"] == "sums"
    assert terms["privacy"]["batch"] == 5
    assert (terms["privacy"]["epsilon"], terms["norm_bound"]) == (2.0, 3.0)
    assert terms["fingerprint"]["feature_map"] == {"kind": "clip", "norm": 3.0}
    clear = json.loads(run("server", "create", "b.ledger", "--name", "b", "--data", features, "--json").stdout)
    assert "privacy" not in clear
    text = run("server", "create", "c.ledger", "--name", "c", "--data", features, "--epsilon", "1", "--heads", "fedncm")
    assert "ε = 1, δ = 1e-05, hiding one sample (add-remove)" in text.stdout
    assert "every contribution" in text.stdout


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--secure", "sums"], "--helper CARD"),
        (["--secure", "magic", "--helper", "CARD"], "unknown value of 'secure'"),
        (["--batch", "3"], "--batch belongs to secure sums"),
        (["--delta", "0.1"], "--delta belongs to differential privacy"),
        (["--secure", "sums", "--helper", "CARD", "--cohort", "5"], "--secure cohorts with it"),
        (["--secure", "sums", "--helper", "CARD", "--heads", "fedcof"], "agree on secure cohorts"),
        (["--secure", "cohorts", "--helper", "CARD", "--heads", "fed3r"], "agree on secure sums"),
        (["--epsilon", "-1"], "epsilon must be a finite number above 0"),
        (["--epsilon", "1", "--heads", "fedcof,fed3r"], "client means are released with differential privacy alone"),
        (["--epsilon", "1", "--noise", "local", "--heads", "fedcof"], "cannot be released with differential privacy"),
        (["--epsilon", "1", "--unit", "client"], "client_norm"),
        (["--epsilon", "1", "--unit", "client", "--client-norm", "0.1"], "client_norm is 0.1, but counts"),
        (["--epsilon", "0.001", "--max-samples", "1500"], "fit 64 bits"),
        (["--secure", "sums", "--helper", "DATA"], "is not a helper's card"),
        (["--secure", "sums", "--helper", "nowhere"], "does not exist"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_written(
    refuse: Any, features: str, card: str, options: list[str], why: str
) -> None:
    typed = [{"CARD": card, "DATA": features}.get(word, word) for word in options]
    heads = [] if "--heads" in typed else ["--heads", "fed3r"]
    assert why in refuse("server", "create", "a.ledger", "--name", "a", "--data", features, *heads, *typed)
    assert not Path("a.ledger").exists()


def test_helper_plan_shows_what_it_would_open(run: Any, refuse: Any, features: str, card: str) -> None:
    created(run, features, card)
    run("keys", "client", "keys", "--name", "clinic")
    plan = ("helper", "notary", "--keys", "keys", "--terms", "a.ledger.terms.json", "--plan")
    assert "must know which clients are real" in refuse(*plan)
    text = run(*plan, "--anybody").stdout
    assert "sums over 3 clients or more" in text
    assert "a server that makes up clients" in text
    found = json.loads(run(*plan, "--minimum", "7", "--member", "keys/clinic.card", "--json").stdout)
    assert (found["minimum"], found["members"]) == (7, 1)
    assert Path("notary/helper.toml").is_file()
    again = json.loads(run("helper", "notary", "--config", "notary/helper.toml", *plan[4:], "--json").stdout)
    assert again["minimum"] == 7
    assert "--server HOST:PORT" in refuse(*plan[:-1], "--anybody")
    assert "--keys FOLDER and --terms FILE" in refuse("helper", "notary", "--plan")
    assert "is not a client's card" in refuse(*plan, "--member", card)
    run("keys", "helper", "keys", "--name", "other")
    assert "start it with the key that the terms name" in refuse("helper", "other", *plan[2:], "--anybody")


def test_a_client_can_ask_for_masks_and_noise(run: Any, features: str, card: str) -> None:
    created(run, features, card, "--epsilon", "2")
    run("keys", "client", "keys", "--name", "clinic")
    asked = ("client", "clinic", "--keys", "keys", "--data", features, "--plan", "--terms")
    plan: tuple[str, ...] = (*asked, "a.ledger.terms.json")
    assert "Say min_count = 1" in run(*plan, "--max-epsilon", "2", code=1).stderr
    plan += ("--min-count", "1")
    text = run(*plan, "--require-secure", "--max-epsilon", "2").stdout
    assert ", masked: counts + sums + gram" in text
    assert run(*plan, "--helper", card).stdout == text
    run("keys", "helper", "elsewhere", "--name", "notary")
    other = run(*plan, "--helper", "elsewhere/notary.helper.card", code=1).stderr
    assert "helper: the terms name a helper with the key" in other
    assert (
        "max_epsilon: the terms promise an epsilon of 2, allowed is 1"
        in run(*plan, "--max-epsilon", "1", code=1).stderr
    )
    run("server", "create", "b.ledger", "--name", "b", "--data", features)
    clear = (*asked, "b.ledger.terms.json")
    assert "require_secure" in run(*clear, "--require-secure", code=1).stderr


def test_federate_secure_sums_gives_the_digests_of_the_simulation_it_names(run: Any, features: str) -> None:
    options = ("--data", features, "--out", "trial", "--heads", "fed3r,fedncm", "--json")
    found = json.loads(run(*MEMORY, "--secure", "sums", *options).stdout)
    assert found["complete"]
    assert found["privacy"]["mode"] == "secure sums"
    simulated = json.loads(run(*found["simulate"].split()[1:], "--json").stdout)["details"]
    assert [each["digest"] for each in simulated] == [each["classifier"] for each in found["heads"]]
    status = run("status", LEDGER).stdout
    assert "masked (secure sums)" in status
    assert "of 12 clients; 0 reports waiting" in status
    assert json.loads(run("status", LEDGER, "--json").stdout)["clients"] == 12


@pytest.mark.parametrize("mode", [["cohorts", "--cohort", "4"], ["two-phase"]])
def test_federate_serves_heads_on_client_means_behind_masks(run: Any, features: str, mode: list[str]) -> None:
    found = json.loads(run(*MEMORY, "--data", features, "--out", "trial", "--secure", *mode, "--json").stdout)
    assert found["complete"] == (mode == ["two-phase"])
    assert found["clients"] == 12
    assert found["heads"][0]["accuracy"] > 0.5
    simulated = json.loads(run(*found["simulate"].split()[1:], "--json").stdout)["details"]
    assert (simulated[0]["digest"] == found["heads"][0]["classifier"]) == (mode == ["two-phase"])


@pytest.mark.parametrize(
    ("mode", "why"),
    [
        (["sums", "--heads", "fed3r", "--batch", "20"], "secure sums are over 20 clients or more"),
        (["cohorts"], "12 clients make one cohort of 10"),
    ],
)
def test_sums_that_can_never_be_are_refused_at_once(refuse: Any, features: str, mode: list[str], why: str) -> None:
    assert why in refuse(*MEMORY, "--data", features, "--out", "trial", "--secure", *mode)


def test_noise_is_paid_once_and_refitting_is_free(run: Any, refuse: Any, features: str) -> None:
    options = ("--data", features, "--heads", "fed3r", "--epsilon", "8", "--out", "trial", "--json")
    found = json.loads(run(*MEMORY, *options).stdout)
    assert found["privacy"]["spent"]["epsilon"] == pytest.approx(8.0)
    assert "ε = 8 of 8 spent in 1 release, 0 left" in run("status", LEDGER).stdout
    again = json.loads(run("refit", LEDGER, "--out", "again", "--json").stdout)
    assert again["heads"][0]["classifier"] == found["heads"][0]["classifier"]
    run("leave", LEDGER, "client-0003")
    assert "would bring ε to" in refuse("refit", LEDGER, "--out", "third")
    assert "ε = 8 of 8 spent in 1 release" in run("status", LEDGER).stdout


def test_a_filter_is_told_and_refused_where_it_cannot_look(run: Any, refuse: Any, features: str) -> None:
    options = ("--data", features, "--heads", "fedncm", "--out", "trial", "--robust", "mad")
    found = json.loads(run(*MEMORY, *options, "--max-client-samples", "60", "--json").stdout)
    assert found["clients"] == 12
    assert all("60" in reason for reason in found["left_out"].values())
    assert found["left_out"]
    assert "was left out" in run("refit", LEDGER, "--out", "r", "--max-client-samples", "60").stdout
    sentence = refuse(*MEMORY, "--data", features, "--heads", "fed3r", "--secure", "sums", "--robust", "mad")
    assert "needs to see every contribution" in sentence
    assert "unknown robust filter 'median'" in refuse(*MEMORY, "--data", features, "--robust", "median")
    run("server", "create", "n.ledger", "--name", "n", "--data", features, "--heads", "fed3r", "--epsilon", "1")
    assert "with an epsilon nobody" in refuse("server", "run", "n.ledger", "--insecure", "--robust", "mad")
