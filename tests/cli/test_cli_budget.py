"""Bytes as people type them: simulate --budget, --budget-curve, measure and federate within a budget."""

import csv
import json
import shlex
from pathlib import Path
from typing import Any

import pytest

import fedmoments as fm
from fedmoments.core.statistics import load_statistics


def squeezed(text: str) -> str:
    return " ".join(text.split())


def test_simulate_sweeps_budgets(run: Any, features: str) -> None:
    given = ("--clients", "4", "--alpha", "0.5", "--seeds", "1", "--heads", "fedcof,sketch")
    text = run("simulate", features, *given, "--budget", "means,gram", "--out", "out").stdout
    assert "budget" in text
    assert "sketches count as they are coded" in squeezed(text)
    document = json.loads(Path("out/results.json").read_text("utf-8"))
    assert [(row["head"], row["budget"]) for row in document["rows"]] == [
        ("fedcof", None),
        ("sketch", "means"),
        ("sketch", "gram"),
    ]
    with Path("out/results.csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert [line["budget"] for line in lines] == ["", "means", "gram"]
    assert [float(line["up_bytes_per_client"]) for line in lines] == [
        pytest.approx(row["up_bytes_per_client"]) for row in document["rows"]
    ]
    assert 'budgets = ["means", "gram"]' in Path("out/config.toml").read_text("utf-8")


def test_the_budget_curve_is_printed_and_drawn(run: Any, features: str) -> None:
    given = ("--clients", "4", "--alpha", "0.5", "--seeds", "1", "--heads", "fedncm,sketch")
    text = run("simulate", features, *given, "--budget-curve", "--out", "out").stdout
    assert "accuracy in per cent, by bytes per client: means is" in squeezed(text)
    curve = json.loads(Path("out/results.json").read_text("utf-8"))["budget_curve"]
    assert [each["head"] for each in curve["curves"]] == ["fedncm", "sketch"]
    assert "means/2" in Path("out/report.html").read_text("utf-8")


def test_measure_keeps_to_a_budget(run: Any, features: str) -> None:
    run("measure", features, "--head", "sketch", "--budget", "means*2", "-o", "clinic.stats")
    stats, _ = load_statistics("clinic.stats")
    assert str(stats.spec.plan) == "budget means*2"
    assert stats.rounded
    text = run("fit", "clinic.stats", "--head", "sketch", "-o", "sketch.head").stdout
    assert "sketch" in text


def test_a_budget_for_what_spends_none_is_refused(run: Any, features: str) -> None:
    text = run("measure", features, "--head", "fedcof", "--budget", "means", "-o", "x.stats", code=2).stderr
    assert "add --head sketch" in squeezed(text)
    text = run("simulate", features, "--heads", "fedcof", "--budget", "means", code=2).stderr
    assert "heads on scatter sketches" in squeezed(text)
    text = run("simulate", features, "--heads", "sketch", "--budget", "much", code=2).stderr
    assert "a budget is means, gram" in squeezed(text)


def test_a_federation_within_a_budget_fits_what_the_simulation_fits(run: Any, features: str) -> None:
    pytest.importorskip("flwr")
    given = ("--data", features, "--heads", "sketch,lda-sketch", "--clients", "5", "--alpha", "1")
    for place, budget in enumerate(("means*2", "means/2")):
        more = ("--budget", budget, "--out", f"fed{place}", "--keep", f"kept{place}", "--json")
        found = json.loads(run("federate", "--local", "2", "--engine", "memory", *given, *more).stdout)
        words = shlex.split(found["simulate"])[1:]
        assert words[words.index("--budget") + 1] == budget
        assert words[words.index("--sketch-spare") + 1] == "20"
        simulated = json.loads(run(*words, "--out", f"sim{place}", "--json").stdout)
        ours = {each["head"]: each["digest"] for each in simulated["details"]}
        assert {each["head"]: each["classifier"] for each in found["heads"]} == ours


def test_several_means_beside_a_sketch_are_refused_not_joined_in_silence(run: Any, features: str) -> None:
    asked = ("--head", "sketch", "--head", "fedcof", "--means-per-client", "2", "--out", "a.stats")
    refused = squeezed(run("measure", features, *asked, code=2).stderr)
    assert "--means-per-client 2: a scatter sketch travels with one mean a class" in refused
    assert not Path("a.stats").exists()


def test_a_classifier_behind_a_budgets_projection_says_on_what_it_was_measured(run: Any, features: str) -> None:
    given = ("--clients", "4", "--alpha", "0.5", "--seeds", "1", "--heads", "fedcof,sketch", "--budget", "30/class")
    run("simulate", features, *given, "--out", "out")
    plain, projected = (fm.load(f"out/heads/{name}.safetensors") for name in ("fedcof", "sketch"))
    assert plain.feature_map is None
    assert projected.feature_map is not None
    assert plain.info["fingerprint"] != projected.info["fingerprint"]
    alone = ("--clients", "4", "--alpha", "0.5", "--seeds", "1", "--heads", "sketch", "--budget", "30/class")
    run("simulate", features, *alone, "--out", "alone")
    assert fm.load("alone/heads/sketch.safetensors").info["fingerprint"] == projected.info["fingerprint"]
