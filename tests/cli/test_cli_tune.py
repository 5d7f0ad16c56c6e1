"""``fedmoments tune``: options become plans, tables and documents, folders that go on, refusals."""

import json
from pathlib import Path
from typing import Any

import pytest

from fedmoments.tuning.rates import STABLE

SMALL = ["--clients", "8", "--rounds", "3", "--seeds", "1", "--starts", "random,fedcof"]


def document(result: Any) -> Any:
    return json.loads(result.stdout)["tuning"]


def test_a_table_for_people_and_a_document_for_machines(run: Any, features: str) -> None:
    told = run("tune", features, *SMALL, "--optimisers", "fedavg,scaffold", "--out", "t").stdout
    for words in ("linear probing", "random", "fedcof", "FedAvg", "SCAFFOLD", "wrote t/report.html"):
        assert words in told
    found = document(run("tune", features, *SMALL, "--optimisers", "fedavg,scaffold", "--json"))
    assert found == json.loads(Path("t/results.json").read_text("utf-8"))["tuning"]
    again = run("tune", features, *SMALL, "--optimisers", "fedavg,scaffold", "--out", "t").stdout
    assert "4 runs of an earlier job in t were kept" in again


def test_every_number_of_a_plan_can_be_typed(run: Any, features: str) -> None:
    typed = {
        "rounds": 2, "fraction": 0.5, "lr": 0.2, "momentum": 0.3, "weight_decay": 0.01, "epochs": 2, "server_lr": 0.7,
        "server_momentum": 0.4, "beta_1": 0.8, "beta_2": 0.95, "tau": 0.01, "mu": 0.5, "alpha": 0.2,
        "feature_scale": 3.0, "adapter": "none", "augment": "none", "temperature": 0.3,
        "batchnorm": "averaged", "validation": 0.2, "check_every": 1, "patience": 3, "test_every": 2, "stage": "lp",
    }  # fmt: skip
    options = [word for name, value in typed.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    arguments = ["--clients", "4", "--seeds", "1", "--seed", "5", "--starts", "fedncm", "--local-batch", "7"]
    curve = document(run("tune", features, *arguments, *options, "--replacement", "--json"))["curves"][0]
    expected = {**typed, "batch_size": 7, "replacement": True, "dropout": False, "optimiser": "fedavg", "seed": 5}
    assert curve["plan"] == expected


def test_numbers_for_some_runs_and_a_configuration_file(run: Any, features: str) -> None:
    run("tune", features, *SMALL, "--for", "random.lr=0.5", "--for", "fedcof/fedavg.momentum=0.5", "--out", "a")
    found = document(run("tune", "--config", "a/config.toml", "--for", "random.epochs=2", "--rounds", "1", "--json"))
    plans = {curve["start"]: curve["plan"] for curve in found["curves"]}
    assert (plans["random"]["lr"], plans["random"]["epochs"], plans["random"]["rounds"]) == (0.5, 2, 1)
    assert (plans["fedcof"]["lr"], plans["fedcof"]["momentum"]) == (STABLE, 0.5)  # auto, as it was run


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--for", "lr=1"], "--for is typed as RUN.NAME=VALUE"),
        (["--for", "random.lr=fast"], "lr must be"),
        (["--temperature", "warm"], "--temperature takes a number above 0, or 'auto'"),
        (["--stage", "fit"], "unknown stage 'fit'"),
        (["--stage", "ft"], "these data are features already"),
        (["--starts", "fedcov"], "did you mean 'fedcof'"),
        (["--optimisers", "sgd"], "unknown optimiser 'sgd'"),
    ],
)
def test_what_is_typed_wrongly_is_refused_in_one_line(run: Any, features: str, arguments: list[str], told: str) -> None:
    result = run("tune", features, "--clients", "4", "--rounds", "1", "--seeds", "1", *arguments, code=2)
    assert told in result.stderr
    assert result.stderr.count("\n") == 1


def test_fresh_forgets_what_an_earlier_job_left(run: Any, features: str) -> None:
    run("tune", features, *SMALL, "--out", "t")
    kept = Path("t/curves/lp-fedcof-fedavg-0.json")
    entry = json.loads(kept.read_text("utf-8"))
    entry["curve"]["points"][-1]["accuracy"] = 0.125  # what nobody measured
    kept.write_text(json.dumps(entry))
    again = document(run("tune", features, *SMALL, "--out", "t", "--json"))
    assert [each["points"][-1]["accuracy"] for each in again["curves"]][1] == 0.125
    fresh = run("tune", features, *SMALL, "--out", "t", "--fresh").stdout
    assert "earlier job" not in fresh
    found = json.loads(Path("t/results.json").read_text("utf-8"))["tuning"]["curves"][1]
    assert found["points"][-1]["accuracy"] != 0.125
