"""``fedmoments audit``: what would be revealed, what the policy withholds, and the exit code that says so."""

import json
import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest

EXPOSES = 3


@pytest.fixture
def few(workshop: Path, arrays: Any) -> str:
    """Features of a client with one sample of class 3 and four of class 7."""
    y = arrays["y_train"]
    kept = np.flatnonzero(~np.isin(y, [3, 7])).tolist()
    kept += np.flatnonzero(y == 3)[:1].tolist() + np.flatnonzero(y == 7)[:4].tolist()
    np.savez("few.npz", **{**arrays, "x_train": arrays["x_train"][kept], "y_train": y[kept]})
    return "few.npz"


def severities(report: dict[str, Any]) -> dict[str, list[str]]:
    return {each["kind"]: each["classes"] for each in report["findings"] if each["severity"] != "counts"}


def test_a_file_with_a_single_sample_is_said_to_expose_it(run: Any, few: str) -> None:
    run("measure", few, "--head", "fedcof", "--out", "a.stats")
    text = run("audit", "a.stats", code=EXPOSES).stdout
    assert "the feature vector of the only sample, exactly, as its mean: class 'class 3'" in text
    assert "a mean over fewer than 5 samples, each of which it resembles: class 'class 7'" in text
    assert "would withhold 2 classes, 5 samples of it" in text
    found = json.loads(run("audit", "a.stats", "--json", code=EXPOSES).stdout)
    assert found["exposes"] is True
    assert severities(found["reveals"]) == {"sample": ["class 3"], "few": ["class 7"]}
    assert found["would_withhold"] == {"classes": 2, "samples": 5}


def test_a_file_without_small_classes_exposes_nothing(run: Any, features: str) -> None:
    run("measure", features, "--head", "fedcof", "--out", "a.stats")
    found = json.loads(run("audit", "a.stats", "--json").stdout)
    assert found["exposes"] is False
    assert severities(found["reveals"]) == {}
    assert "would withhold" not in run("audit", "a.stats").stdout


def test_data_are_audited_with_and_without_the_policy(run: Any, few: str) -> None:
    found = json.loads(run("audit", "--data", few, "--head", "fedcof", "--json").stdout)
    (each,) = found["contributions"]
    assert severities(each["before"]) == {"sample": ["class 3"], "few": ["class 7"]}
    assert severities(each["after"]) == {}
    assert each["withheld"] == {"classes": 2, "samples": 5}
    text = run("audit", "--data", few, "--head", "fedcof").stdout
    assert "the policy (min_count = 5) withholds 2 classes, 5 samples; the upload then reveals" in text
    open_handed = run("audit", "--data", few, "--head", "fedcof", "--min-count", "1", "--json", code=EXPOSES).stdout
    assert severities(json.loads(open_handed)["contributions"][0]["after"]) == {
        "sample": ["class 3"],
        "few": ["class 7"],
    }


def test_what_is_asked_for_decides(run: Any, few: str) -> None:
    grams = json.loads(run("audit", "--data", few, "--moments", "class_grams", "--json").stdout)
    assert severities(grams["contributions"][0]["after"])["membership"]
    wide = run("audit", "--data", few, "--moments", "gram", "--project", "999", "--json", code=EXPOSES).stdout
    finding = json.loads(wide)["contributions"][0]["after"]["findings"][0]
    assert (finding["kind"], finding["severity"]) == ("membership", "exposed")
    means = ("--moments", "client_means", "--means-per-client", "30", "--min-count", "4")
    withheld = json.loads(run("audit", "--data", few, *means, "--json").stdout)["contributions"][0]
    merged = json.loads(run("audit", "--data", few, *means, "--small-classes", "merge", "--json").stdout)
    assert withheld["withheld"]["samples"] > merged["contributions"][0]["withheld"]["samples"] == 1


def test_a_client_is_audited_with_its_own_rules_and_nothing_is_written(run: Any, few: str, workshop: Path) -> None:
    pytest.importorskip("flwr")
    pytest.importorskip("cryptography")
    run("server", "create", "a.ledger", "--name", "pets", "--data", few, "--heads", "fedcof")
    run("keys", "client", "keys", "--name", "clinic")
    terms = ("--terms", "a.ledger.terms.json")
    run("client", "clinic", "--keys", "keys", "--data", few, "--min-count", "1", "--plan", *terms)
    before = sorted(workshop.rglob("*"))
    config = ("audit", "--config", "clinic/client.toml", *terms)
    (each,) = json.loads(run(*config, "--json", code=EXPOSES).stdout)["contributions"]
    assert each["client"] == "clinic"
    assert severities(each["after"]) == {"sample": ["class 3"], "few": ["class 7"]}
    from_data = json.loads(run("audit", "--data", few, *terms, "--min-count", "1", "--json", code=EXPOSES).stdout)
    assert from_data["contributions"][0]["after"] == each["after"]
    assert sorted(workshop.rglob("*")) == before


def test_a_node_of_several_clients_has_a_line_for_each(run: Any, features: str) -> None:
    pytest.importorskip("flwr")
    trial = ("federate", "--local", "2", "--clients", "6", "--engine", "memory", "--data", features, "--out", "trial")
    run(*trial, "--min-count", "1")
    run("server", "create", "a.ledger", "--name", "pets", "--data", features)
    text = run(
        "audit", "--config", "trial/federation/nodes.toml", "--terms", "a.ledger.terms.json", code=EXPOSES
    ).stdout
    assert [line.split()[0] for line in text.splitlines()[1:7]] == [f"client-000{n}" for n in range(6)]


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        ((), "nothing to audit"),
        (("a.stats", "--data", "digits"), "one of them"),
        (("--data", "few.npz"), "no upload to audit"),
        (("--data", "few.npz", "--head", "fedcof", "--terms", "none.json"), "none.json does not exist"),
        (("a.stats", "--head", "fedcof"), "--head: a.stats says that itself"),
        (("--data", "few.npz", "--head", "fedcof", "--min-count", "0"), "min_count"),
        (("--data", "few.npz", "--head", "fedcof", "--small-classes", "hide"), "withhold or merge"),
        (("--data", "few.npz", "--moments", "grams"), "unknown moment 'grams'"),
        (("none.stats",), "none.stats does not exist"),
    ],
)
def test_what_cannot_be_audited_is_refused_with_a_sentence(run: Any, few: str, typed: Any, sentence: str) -> None:
    run("measure", few, "--head", "fedcof", "--out", "a.stats")
    assert sentence in run("audit", *typed, code=2).stderr


# ---------------------------------------------------------------------------------------------- scatter sketches


def test_a_sketch_of_features_at_hand_is_measured(run: Any, features: str) -> None:
    asked = ("audit", "--data", features, "--head", "sketch", "--budget", "gram")
    (each,) = json.loads(run(*asked, "--json").stdout)["contributions"]
    (before,), (after,) = each["before"]["sketches"], each["after"]["sketches"]
    assert after["rank"] == min(before["rank"], int(0.25 * after["spare"]))
    assert 0 < after["told"]["mean"] <= after["told"]["worst"] <= 1
    text = run(*asked, "--sketch-share", "0.01").stdout
    assert f"of the sketch's {before['rank']} rows, {int(0.01 * after['spare'])} would be sent" in text
    assert "sketch_share = 0.01, sketch_spare = 20" in text
    (none,) = json.loads(run(*asked, "--sketch-spare", "100000", "--json").stdout)["contributions"]
    assert none["after"]["sketches"][0]["rank"] == 0


def test_a_budget_is_for_sketches(run: Any, features: str) -> None:
    refused = run("audit", "--data", features, "--head", "fedcof", "--budget", "means", code=2)
    assert "a budget is spent on a scatter sketch, but counts + client_means is all that is measured" in refused.stderr


def test_a_file_with_a_sketch_is_audited_by_its_numbers(run: Any, features: str) -> None:
    run("measure", features, "--head", "sketch", "--out", "s.stats")
    found = json.loads(run("audit", "s.stats", "--json").stdout)
    (sketch,) = found["reveals"]["sketches"]
    assert 0 < sketch["energy"] < 1
    assert sketch["rank"] < sketch["spare"]


def test_an_audit_opens_no_connection_and_writes_nothing(
    run: Any, few: str, workshop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("measure", few, "--head", "fedcof", "--out", "a.stats")
    before = {path: path.read_bytes() for path in workshop.rglob("*") if path.is_file()}
    asked: list[Any] = []

    def connect(_self: socket.socket, address: Any) -> None:
        asked.append(address)
        raise OSError("an audit speaks to nobody")

    monkeypatch.setattr(socket.socket, "connect", connect)
    run("audit", "--data", few, "--head", "fedcof")
    run("audit", "a.stats", code=EXPOSES)
    assert not asked
    assert {path: path.read_bytes() for path in workshop.rglob("*") if path.is_file()} == before
