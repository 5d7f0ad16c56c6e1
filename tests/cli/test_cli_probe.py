"""``fedmoments probe``: tables and JSON of features before and after, and refitted heads as files."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedmoments as fm
from fedmoments.samples.features import load_features
from fedmoments.study.probing import refit


def document(result: Any) -> Any:
    assert result.stdout.count("\n}\n") == 1
    return json.loads(result.stdout)


@pytest.fixture
def folder(run: Any, features: str, workshop: Path) -> str:
    """What tuning of a head alone leaves behind."""
    run("measure", features, "--head", "fedncm", "-o", "all.stats")
    (workshop / "lp").mkdir()
    run("fit", "all.stats", "--head", "fedncm", "-o", "lp/head.safetensors")
    return "lp"


def test_a_trained_head_is_compared_with_refits_on_the_same_features(run: Any, features: str, folder: str) -> None:
    text = run("probe", features, folder, "--heads", "fed3r,gh-lda", "--out", "refits").stdout
    for words in ("the encoder was not tuned", "trained head", "any split gives the same", "wrote refits/fed3r"):
        assert words in text
    found = document(run("probe", features, folder, "--heads", "fed3r,gh-lda", "--json"))["probe"]
    expected = refit(load_features(features), None, ["fed3r", "gh-lda"])
    assert [(row["head"], row["after"]) for row in found["rows"]] == [(n, r.accuracy) for n, r in expected.items()]
    evaluated = document(run("evaluate", "lp/head.safetensors", features, "--json"))
    assert found["softmax"] == pytest.approx(evaluated["accuracy"])


def test_refits_are_classifier_files_like_any_other(run: Any, features: str, folder: str) -> None:
    found = document(run("probe", features, folder, "--heads", "gh-lda", "--out", "refits", "--json"))
    assert found["files"] == ["refits/gh-lda.safetensors"]
    evaluated = document(run("evaluate", "refits/gh-lda.safetensors", features, "--json"))
    assert evaluated["accuracy"] == pytest.approx(found["probe"]["rows"][0]["after"])
    info = fm.load("refits/gh-lda.safetensors").info
    assert (info["head"], info["refit"], info["encoder"]["name"]) == ("gh-lda", True, "identity")


def test_heads_from_client_means_are_fitted_for_a_split(run: Any, features: str, folder: str) -> None:
    options = ["--heads", "fedcof", "--clients", "7", "--split", "iid"]
    assert "(iid over 7 clients)" in run("probe", features, folder, *options).stdout
    assert "(dirichlet:0.1 over 100 clients)" in run("probe", features, folder, "--heads", "fedcof").stdout
    found = document(run("probe", features, folder, *options, "--json"))["probe"]
    assert found["split"] == {"scheme": "iid", "clients": 7}
    assert found["rows"][0]["after"] > 0.5


def test_a_head_that_cannot_be_fitted_is_told(run: Any, features: str, folder: str) -> None:
    text = run("probe", features, folder, "--heads", "fedcof,fed3r", "--clients", "1", "--split", "iid").stdout
    assert "note: fedcof: " in text


def test_two_encoders_are_compared(run: Any, workshop: Path) -> None:
    pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    y = np.arange(24) % 2
    x = rng.integers(0, 120, size=(24, 8, 8), dtype=np.uint8) + (y * 100).astype(np.uint8)[:, None, None]
    np.savez(workshop / "images.npz", x_train=x[:16], y_train=y[:16], x_test=x[16:], y_test=y[16:])
    options = ["--encoder", "squeezenet-1.1", "--base", "squeezenet-1.1", "--size", "32", "--threads", "1"]
    text = run("probe", "images.npz", *options).stdout
    assert "before: squeezenet-1.1, d = 512; after: squeezenet-1.1, d = 512" in text
    assert "+0.00" in text
    assert "the encoder was not tuned" in run("probe", "images.npz", "--encoder", *options[1:2], *options[4:]).stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "nothing to probe"),
        (["gone"], "gone does not exist"),
        (["runs"], "neither encoder.safetensors nor head.safetensors"),
        (["lp", "--base", "minilm"], "only a head was tuned"),
        (["--head", "gone"], "gone does not exist"),
        (["--encoder", "tuned:gone"], "gone"),
        (["both", "--encoder", "minilm"], "holds the tuned encoder already"),
        (["lp", "--heads", "fedcov"], "did you mean 'fedcof'"),
        (["lp", "--heads", "fedavg"], "fedavg"),
        (["lp", "--out", "all.stats"], "all.stats is a file"),
    ],
)
def test_what_cannot_be_probed_is_refused_in_a_sentence(
    run: Any, features: str, folder: str, workshop: Path, arguments: list[str], sentence: str
) -> None:
    (workshop / "both").mkdir()
    (workshop / "both" / "encoder.safetensors").touch()
    result = run("probe", features, *arguments, code=2)
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert sentence in result.stderr
