"""``fedmoments server tune`` and a client's consent: options, refusals before anything starts, and what is told."""

import json
import re
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr")
pytest.importorskip("cryptography")

from fedmoments.cli.client_record import event_text
from fedmoments.cli.server_tune import _show, tune
from fedmoments.tuning import TuningPlan

TERMS = ("--terms", "a.ledger.terms.json")


@pytest.fixture
def own(run: Any, features: str) -> tuple[str, ...]:
    run("server", "create", "a.ledger", "--name", "pets", "--data", features, "--heads", "fed3r")
    run("keys", "client", "keys", "--name", "clinic")
    run("server", "enrol", "a.ledger", "keys/clinic.card")
    return "client", "clinic", "--keys", "keys", "--data", features


# -------------------------------------------------------------------------------------------------- options


def test_every_field_of_a_plan_can_be_typed() -> None:
    offered = {(param.name or "").removeprefix("settings__plan__") for param in tune.params}
    assert {field.name for field in fields(TuningPlan)} <= offered


def test_options_tell_the_true_defaults(run: Any) -> None:
    shown = " ".join(run("server", "tune", "--help").stdout.split())
    for field in fields(TuningPlan):
        if field.name not in (
            "lr",
            "feature_scale",
            "server_lr",
            "temperature",
            "replacement",
            "dropout",
            "test_every",
        ):
            name = {"batch_size": "local-batch"}.get(field.name, field.name).replace("_", "-")
            after = shown.partition(f" --{name} ")[2]
            assert re.search(r"\[default: ([^]]*)\]", after)[1] == str(field.default), name  # type: ignore[index]
    assert TuningPlan(optimiser="fedadam").server_step == 0.01
    assert "[default: 0.01 with fedadam and fedyogi, otherwise 1]" in shown
    assert TuningPlan().step == 0.01
    assert "[default: auto, but 0.01 in ft, feat and deployments]" in shown
    assert "[default: chosen where lr is; else 0.1 for normalised heads, 1 for others]" in shown


def test_server_tune_refuses_before_anything_is_started(own: Any, run: Any, workshop: Path) -> None:
    before = sorted(workshop.rglob("*"))

    def sentence(*arguments: str) -> str:
        result = run("server", "tune", "a.ledger", *arguments, code=2)
        assert result.stderr.count("\n") == 1
        return str(result.stderr)

    assert "or --insecure" in sentence()
    assert "does not exist" in sentence("--keys", "nowhere")
    assert "needs" in sentence("--insecure", "--start", "gh-qda")
    assert "not 'fedcov'" in sentence("--insecure", "--start", "fedcov")
    assert "but the start is 'fed3r'" in sentence("--insecure", "--start", "fed3r", "--set", "gh-lda.shrinkage=1")
    assert "fraction must be above 0" in sentence("--insecure", "--start", "fed3r", "--fraction", "2")
    assert "unknown stage 'all'" in sentence("--insecure", "--start", "fed3r", "--stage", "all")
    assert "minimum must be 1 or more" in sentence("--insecure", "--start", "fed3r", "--minimum", "0")
    assert "is a file" in sentence("--insecure", "--start", "fed3r", "--out", "a.ledger")
    assert sorted(workshop.rglob("*")) == before


def test_server_tune_refuses_terms_that_hide_single_clients(run: Any, features: str, workshop: Path) -> None:
    private = ("--data", features, "--heads", "fed3r", "--epsilon", "8")
    run("server", "create", "a.ledger", "--name", "private", *private)
    result = run("server", "tune", "a.ledger", "--insecure", "--start", "fed3r", code=2)
    assert "promise an epsilon of 8" in result.stderr
    assert "without noise" in result.stderr


def test_what_a_run_found_is_shown_for_people(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    point = {"round": 0, "participants": 0, "accuracy": 0.875, "validation": None, "train_loss": None}
    later = {"participants": 5, "accuracy": None, "validation": 0.5, "train_loss": 0.25}
    points = [{**point, "up": 10, "down": 0}, *({**later, "round": n, "up": 10, "down": 90} for n in range(1, 31))]
    failures = [{"client": "clinic", "node": "7", "reason": "<class 'ValueError'>:<'no such file'>"}]
    failures.append({"node": "8", "clients": [{"client": "bank", "why": "it declined"}]})  # type: ignore[dict-item]
    results = {"plan": TuningPlan().to_dict(), "points": points, "start": "fedcof", "temperature": 0.1}
    results |= {"clients": {"clinic": {"train": 1200, "validation": 0}}, "failures": failures, "stopped": "no better"}
    _show({**results, "classifier": "ab" * 32}, tmp_path)
    text = capsys.readouterr().out
    assert "fedavg, lp, from fedcof at temperature 0.1: 1,200 samples of 1 client" in text
    assert re.search(r"0 +0 +87.50 +– +– +10 B", text)
    assert re.search(r"30 +5 +– +50.00 +0.2500 +100 B", text)
    assert "…" in text
    assert "note: clinic: no such file" in text
    assert "note: bank: it declined" in text
    assert "no better" in text
    last = text.rstrip().splitlines()[-1]
    assert (
        last
        == f"wrote {tmp_path}/tuned.safetensors, classifier abababababababab, tuning.json and {tmp_path}/report.html"
    )


# -------------------------------------------------------------------------------------------------- the client


def test_a_plan_says_what_may_be_trained(own: Any, run: Any) -> None:
    plain = run(*own, "--plan", *TERMS)
    assert "no model would be trained on its samples: that needs --allow-tuning" in plain.stdout
    allowed = run(*own, "--plan", *TERMS, "--allow-tuning", "feat", "--max-rounds", "30")
    assert "if the server asks, a head or an encoder would be trained" in allowed.stdout
    assert "in at most 30 rounds" in allowed.stdout
    written = tomllib.loads(Path("clinic/client.toml").read_text())
    assert written["policy"] == {"tuning": "feat", "max_rounds": 30}
    assert json.loads(run(*own, "--plan", *TERMS, "--allow-tuning", "lp", "--json").stdout)["tuning"] == "lp"
    assert json.loads(run(*own, "--plan", *TERMS, "--json").stdout)["tuning"] == "none"
    refused = run(*own, "--plan", *TERMS, "--allow-tuning", "head", code=2)
    assert "tuning of a client's policy must be none, lp, feat, ft, not 'head'" in refused.stderr


def test_a_record_of_tuning_is_event_text_to_people() -> None:
    line = {"client": "clinic", "event": "tuned", "round": 3, "stage": "lp", "samples": 1200, "bytes": 5000}
    assert event_text(line) == "clinic: round 3, lp: trained on 1,200 samples, sent parameters (5.0 kB)"
    scored = {"client": "clinic", "event": "scored", "part": "test", "samples": 90}
    assert event_text(scored) == "clinic: tested a model on 90 samples (test), sent sums"
