"""The classifiers that a job saves are, bit for bit, those that a federation of the same clients fits."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedmoments as fm
from fedmoments.samples import parse_split
from fedmoments.settings.study import StudySettings
from fedmoments.study.jobs import JobResult, run_job
from fedmoments.study.simulation.payload import sent_by

HEADS = ("fedncm", "fedcof", "fed3r", "gh-lda", "gh-qda")
SEED, CLIENTS, SPLIT = 4, 9, "dirichlet:0.1"


@pytest.fixture
def features(tmp_path: Path) -> str:
    """Features as an encoder gives them: float32, many dimensions, nothing that adds up exactly; a class is absent."""
    rng = np.random.default_rng(5)
    means = rng.normal(size=(6, 70))
    arrays: dict[str, Any] = {"classes": np.array(list("abcdef"))}
    for part, n in (("train", 900), ("test", 150)):
        y = rng.integers(5, size=n)
        arrays |= {f"x_{part}": (means[y] + 3 * rng.normal(size=(n, 70))).astype(np.float32), f"y_{part}": y}
    np.savez(tmp_path / "many.npz", **arrays)
    return "npz:many.npz"


def job(features: str, **changes: Any) -> JobResult:
    config = StudySettings(data=features, heads=HEADS, clients=(CLIENTS,), splits=(SPLIT,), seeds=1, seed=SEED)
    return run_job(replace(config, **changes))


def federate(heads: tuple[str, ...], means: int, *, n_clients: int = CLIENTS) -> fm.Statistics:
    """Do what the clients of a federation do, each on its own, and merge what they send in their order."""
    arrays = np.load("many.npz")
    X, y = arrays["x_train"], arrays["y_train"]
    spec = fm.spec_for(*heads, means_per_client=means)
    split = parse_split(SPLIT).apply(y, n_clients=n_clients, seed=SEED)
    parts = [
        fm.Statistics.of(X[mine], y[mine], spec, n_classes=6, seed=SEED, fixed_point=fm.FixedPoint())
        for mine in split
        if len(mine)
    ]
    return fm.Statistics.merge(parts)


@pytest.mark.parametrize("heads", [HEADS, ("fedncm", "fedcof"), ("fedncm",), ("fedncm", "fed3r", "fedcof")])
@pytest.mark.parametrize("means", [1, 2])
def test_digests_are_those_of_a_federation(features: str, heads: tuple[str, ...], means: int) -> None:
    found = job(features, heads=heads, means_per_client=(means,))
    merged = federate(heads, means)
    details = found.document["details"]
    assert [detail["head"] for detail in details] == list(heads)
    for detail in details:
        head = fm.make_head(detail["head"])
        assert detail["digest"] == head.fit(merged.restricted(head.needs)).digest()
        assert detail["digest"] == head.fit(merged).digest() == found.classifiers[detail["head"]].digest()
        assert detail["statistics_digest"] == merged.restricted(sent_by(head, means)).digest()
        assert (detail["measured"], detail["digest_reason"]) == (str(merged.spec), None)


def test_clients_without_a_sample_send_nothing(features: str) -> None:
    found = job(features, heads=("fedcof",), clients=(400,))
    sizes = np.bincount([client for client, _, _ in found.document["holders"]["cells"]], minlength=400)
    assert (sizes == 0).sum() > 100
    expected = fm.make_head("fedcof").fit(federate(("fedcof",), 1, n_clients=400))
    assert found.document["details"][0]["digest"] == expected.digest()


def test_float64_would_have_another_digest(features: str) -> None:
    arrays = np.load("many.npz")
    split = parse_split(SPLIT).apply(arrays["y_train"], n_clients=CLIENTS, seed=SEED)
    spec = fm.spec_for(*HEADS)
    ledger = fm.Ledger.of(arrays["x_train"], arrays["y_train"], split.clients, spec, n_classes=6)
    for detail in job(features).document["details"]:
        assert detail["digest"] != fm.make_head(detail["head"]).fit(ledger).digest()


def test_saved_files_have_the_digests_of_the_results(features: str) -> None:
    run_job(StudySettings(data=features, heads=HEADS, clients=(CLIENTS,), seeds=1), Path("out"))
    details = json.loads(Path("out/results.json").read_text("utf-8"))["details"]
    for detail in details:
        assert fm.load(Path(f"out/heads/{detail['head']}.safetensors")).digest() == detail["digest"]
    page = Path("out/report.html").read_text("utf-8")
    assert all(detail[name][:16] in page for detail in details for name in ("digest", "statistics_digest"))


def test_a_head_with_its_own_map_has_no_digest_and_says_why(features: str) -> None:
    found = job(features, heads=("fedncm", "fed3r-rf"), hyper={"fed3r-rf": {"n_features": 20}})
    nearest, own = found.document["details"]
    assert nearest["digest"] == fm.make_head("fedncm").fit(federate(("fedncm",), 1)).digest()
    assert (own["digest"], own["statistics_digest"], own["measured"]) == (None, None, None)
    assert "feature map of its own" in own["digest_reason"]
    assert "fed3r-rf" in found.classifiers


def test_too_many_numbers_are_measured_in_float64_and_said(
    features: str, monkeypatch: pytest.MonkeyPatch, run: Callable[..., Any]
) -> None:
    arguments = ("simulate", features, "--heads", "fedncm,gh-qda", "--clients", "9", "--seeds", "1")
    detail = json.loads(run(*arguments, "--json").stdout)["details"][1]
    assert detail["digest"]
    monkeypatch.setattr("fedmoments.study.simulation.payload.MOST_NUMBERS", 10_000)
    details = json.loads(run(*arguments, "--json").stdout)["details"]
    for each in details:
        assert (each["digest"], each["statistics_digest"]) == (None, None)
        assert (
            "numbers: too many to measure client by client here (the most are 10,000 numbers" in each["digest_reason"]
        )
    assert details[1]["confusion"] == detail["confusion"]
    text = run(*arguments, "-v").stdout
    assert f"note: no digest of fedncm, gh-qda: {details[0]['digest_reason']}" in " ".join(text.split())
    assert "digests that a real federation of the same clients reproduces" not in text


@pytest.mark.parametrize(("factor", "why"), [(100.0, "a training sample has the norm"), (4.0, None)])
def test_features_beyond_the_norm_bound_do_not_stop_a_job(features: str, factor: float, why: str | None) -> None:
    arrays = dict(np.load("many.npz"))
    np.savez("long.npz", **{name: factor * each if name[0] == "x" else each for name, each in arrays.items()})
    found = job("npz:long.npz", heads=("fedncm", "gh-lda"))
    assert set(found.classifiers) == {"fedncm", "gh-lda"}
    for detail in found.document["details"]:
        assert (detail["digest"] is None) == (why is not None)
        assert (why or "") in (detail["digest_reason"] or "")
    assert found.document["rows"][0]["accuracy"] > 0.5


def test_the_command_prints_sixteen_digits_of_each(features: str, run: Callable[..., Any]) -> None:
    arguments = ("simulate", features, "--heads", "fedcof,gh-lda", "--clients", "9,5", "--seeds", "2", "--seed", "4")
    text = run(*arguments, "-v").stdout
    details = json.loads(run(*arguments, "--json").stdout)["details"]
    below = text[text.index("digests that") :].split("\n")
    assert below[0] == "digests that a real federation of the same clients reproduces, seed 4, 9 clients"
    assert below[1] == "if each client sends counts + gram + client_means:"
    for line, detail in zip(below[3:5], details, strict=True):
        assert line.split() == [detail["head"], detail["digest"][:16], detail["statistics_digest"][:16]]


def test_classifiers_have_the_shrinkage_of_the_first_setting(features: str) -> None:
    found = job(features, heads=("fedncm", "gh-lda"), shrinkages=("blend:0.9", "none"))
    row = next(row for row in found.document["rows"] if row["head"] == "gh-lda")
    assert found.classifiers["gh-lda"].info["settings"]["shrinkage"] == row["shrinkage"] == "blend:0.9"
    merged = federate(("fedncm", "gh-lda"), 1)
    expected = fm.make_head("gh-lda", shrinkage="blend:0.9").fit(merged)
    assert found.document["details"][1]["digest"] == expected.digest() != fm.make_head("gh-lda").fit(merged).digest()
