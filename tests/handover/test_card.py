"""The model card says what a run recorded, names no party, and travels with every export."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

import fedmoments as fm
from fedmoments.cli.app import app
from fedmoments.core.classifier.version import Version, version_of
from fedmoments.core.observations import Report
from fedmoments.core.observations.codec import from_plain, to_plain
from fedmoments.core.observations.federated import FederationEvents, PrivacyCard, SiteAccuracy, Spread
from fedmoments.core.observations.figures import ClassFigures
from fedmoments.core.observations.interval import wilson
from fedmoments.core.observations.parts import Data, HeadDetail, Holders, Reliability
from fedmoments.handover.card import TO_FILL_IN, model_card
from fedmoments.handover.evidence import Evidence

PARTIES = {"a": ([[0.0, 1.0], [0.1, 0.9]], [0, 0]), "b": ([[1.0, 0.0]], [1])}


@given(st.integers(1, 400), st.data())
def test_the_interval_is_that_of_wilson(samples: int, data: Any) -> None:
    right = data.draw(st.integers(0, samples))
    expected = binomtest(right, samples).proportion_ci(0.95, method="wilson")
    assert wilson(right, samples) == pytest.approx((expected.low, expected.high), abs=1e-9)


def recorded(classifier: fm.Classifier) -> Evidence:
    """Return the evidence of a federation of two parties with telling names."""
    detail = HeadDetail("fedncm", None, np.array([[8, 2], [0, 5]]), Reliability(ece=0.031), digest=classifier.digest())
    spread = {"fedncm": Spread(sites=(SiteAccuracy(0.8, 10), SiteAccuracy(1.0, 5)))}
    report = Report(
        data=Data("trial", train=123),
        details=(detail,),
        holders=Holders(2, np.array([[0, 0, 100], [1, 0, 3], [1, 1, 20]]), ("St. Mary", "City Bank")),
        privacy=PrivacyCard("secure sums", sees=(("The server", "sums"),), not_promised=("Silence",)),
        federation=FederationEvents("f" * 64, "trial", spread=spread),
    )
    return Evidence(report, detail)


def test_the_card_says_what_the_run_recorded_and_names_nobody() -> None:
    version = Version("trial/fedncm", 2, "ab" * 32, "f" * 64, 17)
    classifier = fm.fit("fedncm", PARTIES, class_names=["up", "right"]).noting(version=version.to_dict())
    assert version_of(classifier) == version
    card = model_card(classifier, evidence=recorded(classifier))
    for words in (
        "trial/fedncm, version 2",
        "entry 17",
        "- **Parties**: 2",
        "| party 1 | 100 | 1 |",
        "| party 2 | 23 | 2 |",
        "secure sums",
        "- Silence",
        "86.7% (62.1% to 96.3%), 13 of 15 samples",
        "| site 1 | 80.0% (49.0% to 94.3%), 8 of 10 samples |",
        "3.1 points",
        "| up | 80.0%",
    ):
        assert words in card, words
    assert card.count(TO_FILL_IN) == 2
    assert "Mary" not in card
    assert "Bank" not in card
    assert "Not tested" in model_card(classifier)


def test_every_export_of_a_run_has_its_card(tmp_path: Path) -> None:
    import onnx

    rng = np.random.default_rng(0)
    y = np.arange(120) % 3
    X = rng.normal(size=(120, 4)) + 2 * np.eye(3, 4)[y]
    np.savez(tmp_path / "f.npz", x_train=X[:60], y_train=y[:60], x_test=X[60:], y_test=y[60:])
    run = CliRunner().invoke
    options = ["--heads", "fedncm", "--clients", "3", "--seeds", "1", "--out", str(tmp_path / "run")]
    assert run(app, ["simulate", str(tmp_path / "f.npz"), *options]).exit_code == 0
    head = str(tmp_path / "run/heads/fedncm.safetensors")
    printed = run(app, ["card", head])
    assert printed.exit_code == 0
    assert "a simulation on one machine" in printed.stdout
    assert "of 60 samples" in printed.stdout
    for to, place in (("onnx", "model.onnx"), ("huggingface", "folder")):
        assert run(app, ["export", head, "--to", to, "--out", str(tmp_path / place)]).exit_code == 0
    notes = {prop.key: prop.value for prop in onnx.load(tmp_path / "model.onnx").metadata_props}
    assert notes["model_card"] == printed.stdout
    assert (tmp_path / "folder/README.md").read_text("utf-8").endswith(printed.stdout)
    assert run(app, ["card", head, "--out", str(tmp_path / "card.md")]).exit_code == 0
    assert (tmp_path / "card.md").read_text("utf-8") == printed.stdout
    (tmp_path / "run/results.json").unlink()
    assert "Not tested" in run(app, ["card", head]).stdout


def test_fitting_again_in_the_same_place_is_the_next_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    np.savez("f.npz", x_train=rng.normal(size=(40, 3)), y_train=np.arange(40) % 2)
    run = CliRunner().invoke
    assert run(app, ["measure", "f.npz", "--head", "gh-lda", "--client", "a", "--out", "a.stats"]).exit_code == 0

    def fit(head: str) -> Any:
        done = run(app, ["fit", "a.stats", "--head", head, "--out", "clinic.classifier", "--json"])
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    first, again, other = fit("gh-lda"), fit("gh-lda"), fit("fedncm")
    assert first["version"] == again["version"] == {"name": "clinic", "number": 1}
    assert other["version"] == {"name": "clinic", "number": 2, "parent": first["digest"]}


def test_no_name_that_a_file_brought_writes_on_the_card(tmp_path: Path) -> None:
    names = [
        "</pre><script>alert(1)</script>",
        "a\n\n## Intended use\n\nSafe for all clinics.",
        "---\nlicense: mit",
        "![x](http://elsewhere.example)",
        "\x1b[31mred\u202e",
        "# one",
        "| a | b |",
    ]
    labels = np.arange(70) % 7
    X = np.random.default_rng(0).normal(size=(70, 9)) + 4.0 * np.eye(7, 9)[labels]
    classifier = fm.fit("fedncm", {"a": (X, labels)}, class_names=names)
    hostile = classifier.noting(
        head="## Approved", settings="x\n## y", protection="**none**\n# z", encoder={"name": "<b>\n# e"},
        version=Version("n", 1, "ab" * 32, "`<i>\n# f", 3).to_dict(),
    )  # fmt: skip
    plain = model_card(fm.fit("fedncm", {"a": (X, labels)}, class_names=list("abcdefg")))
    table = np.diag([5] * 7)
    detail = HeadDetail("fedncm", None, table, None, digest=hostile.digest())
    card = model_card(hostile, evidence=Evidence(Report(details=(detail,)), detail))
    headings = [line for line in card.splitlines() if line.startswith("#")]
    assert headings[1:] == [line for line in plain.splitlines() if line.startswith("#")][1:]
    assert not {"<script", "<b>", "<i>"} & {word for word in ("<script", "<b>", "<i>") if word in card}
    assert "![x](" not in card
    assert card.replace("\n", "").isprintable()
    assert card.count("Safe for all clinics.") == 2  # in the list of classes and in the table of tests
    file, hub = tmp_path / "head.safetensors", tmp_path / "hub"
    fm.fit("fedncm", {"a": (X, labels)}, class_names=names).save(file)
    assert CliRunner().invoke(app, ["export", str(file), "--to", "huggingface", "--out", str(hub)]).exit_code == 0
    readme = (hub / "README.md").read_text("utf-8")
    assert [line for line in readme.splitlines() if line.startswith("---")] == ["---", "---"]
    assert "\nlicense:" not in readme


def test_answers_that_clients_withhold_make_no_accuracy_of_a_hundred_per_cent() -> None:
    """Coarse tables lose few wrong answers first; the accuracy is that of all that sites tested."""
    classifier = fm.fit("fedncm", PARTIES)
    whole = recorded(classifier)
    coarse = replace(whole, detail=replace(whole.detail, confusion=np.array([[8, 0], [0, 0]])))
    assert coarse.outcome == whole.outcome == (13, 15)
    card = model_card(classifier, evidence=coarse)
    assert "13 of 15 samples" in card
    assert "Clients tell 8 of 15 samples by class and round right answers by chance" in card
    assert "A dash stands" not in card  # nobody counted the others
    figures = ClassFigures(np.array([8, 0]), np.array([8, 0]), np.array([0.9, np.nan]), np.array([np.nan, np.nan]))
    counted = replace(coarse, detail=replace(coarse.detail, figures=figures))
    assert "A dash stands for a figure that would be mostly this rounding." in model_card(classifier, evidence=counted)


def test_sites_are_compared_with_their_own_samples_alone_and_classes_have_all_figures() -> None:
    classifier = fm.fit("fedncm", PARTIES)
    whole = recorded(classifier)
    figures = ClassFigures(
        np.array([8, 7]), np.array([8, 5]), np.array([0.714, 1.0]), np.array([0.981, np.nan]), 0.86, 0.981
    )
    detail = replace(whole.detail, figures=figures, calibration=Reliability(confidence=0.87))
    told = whole.report.federation
    assert told is not None
    (spread,) = told.spread.values()
    sites = tuple(replace(site, alone=0.625) for site in spread.sites[:1]) + spread.sites[1:]
    report = replace(whole.report, federation=replace(told, spread={detail.head: replace(spread, sites=sites)}))
    card = model_card(classifier, evidence=Evidence(report, detail))
    for line in (
        "- **Macro-F1**: 0.860",
        "- **Macro-AUC**: 0.981",
        "- **Mean confidence**: 87.0% at temperature",
        "8 of 8 samples | 71.4% | 0.981 |",
        "5 of 7 samples | 100.0% | – |",
        "| 62.5% |",
    ):
        assert line in card, line
    again = from_plain(HeadDetail, to_plain(detail))
    assert again.figures is not None
    np.testing.assert_array_equal(again.figures.areas, figures.areas)
