"""``fedmoments diagnose``: of data and of statistics files, for people, as JSON and as a page."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedmoments as fm
from fedmoments.core.diagnostics import NEEDS, diagnose


def document(result: Any) -> Any:
    assert result.stdout.count("\n}\n") == 1
    return json.loads(result.stdout)


@pytest.fixture
def statistics(run: Any, features: str) -> Any:
    """Return what measures three clients' moments, and names their files."""
    run("split", features, "--split", "iid", "--clients", "3", "-o", "s")

    def measured(*arguments: str) -> list[str]:
        files = [f"{client}.stats" for client in range(3)]
        for client, file in enumerate(files):
            run("measure", features, "--split", "s", "--client", str(client), *arguments, "-o", file)
        return files

    return measured


def test_data_are_diagnosed_in_a_federation(run: Any, features: str) -> None:
    arguments = ["--clients", "5", "--split", "dirichlet:0.5", "--seed", "3", "--out", "a/b"]
    text = run("diagnose", features, *arguments).stdout
    for words in (
        "|skewness|",
        "excess kurtosis",
        "effective rank",
        "LDA, free",
        "means of a class (K_c)",
        "wrote a/b",
    ):
        assert words in text
    written = json.loads(Path("a/b/diagnostics.json").read_text("utf-8"))
    found = document(run("diagnose", features, *arguments, "--json"))
    assert {**written, "command": ""} == {**found, "command": ""}
    about = found["diagnosis"]
    assert (about["clients"], about["split"], about["seed"]) == (5, "dirichlet:0.5", 3)
    assert about["diagnostics"]["unknown"] == []
    assert about["diagnostics"]["curves"]["exact"]["full_accuracy"] > 0.5
    page = Path("a/b/report.html").read_text("utf-8")
    assert "Do the assumptions hold?" in page
    assert "could be fitted" not in page


def test_figures_are_those_of_the_library(run: Any, features: str, arrays: Any) -> None:
    found = document(run("diagnose", features, "--clients", "4", "--split", "iid", "--json"))["diagnosis"][
        "diagnostics"
    ]
    stats = fm.Statistics.of(arrays["x_train"], arrays["y_train"], NEEDS, n_classes=10)
    expected = diagnose(stats, test=(arrays["x_test"], arrays["y_test"]))
    assert expected.gaussianity is not None
    for key in ("mean", "median", "p90"):
        wanted = getattr(expected.gaussianity.kurtosis, key)
        assert found["gaussianity"]["kurtosis"][key] == pytest.approx(wanted)
    assert found["curves"]["exact"]["energy"] == pytest.approx(expected.curves["exact"].energy)
    assert tuple(found["curves"]["exact"]["accuracy"]) == expected.curves["exact"].accuracy


def test_statistics_files_tell_what_they_can_and_how_to_know_the_rest(run: Any, statistics: Any, features: str) -> None:
    files = statistics("--head", "fedcof")
    text = run("diagnose", *files).stdout
    assert "3 clients: counts + client_means" in text
    assert "not known from these statistics" in text
    assert "skewness and kurtosis: class_squares, class_thirds and class_fourths were not measured" in text
    assert "LDA" not in text.split("warning")[0]
    found = document(run("diagnose", *files, "--json"))["diagnosis"]
    assert {*found["diagnostics"]["spectra"]} == {"free"}
    command = found["measure"].split()
    assert f"let every client run: {found['measure']}" in text
    assert command[:4] == ["fedmoments", "measure", "FEATURES.npz", "--moments"]
    again = document(run("diagnose", *statistics("--moments", command[4]), "--json"))["diagnosis"]
    assert again["diagnostics"]["unknown"] == []
    assert again["measure"] is None


def test_statistics_files_are_tested_on_features(run: Any, statistics: Any, features: str, arrays: Any) -> None:
    files = statistics("--head", "gh-lda", "--project", "6", "--seed", "2")
    found = document(run("diagnose", *files, "--test", features, "--json"))["diagnosis"]
    run("fit", *files, "--head", "gh-lda", "-o", "c")
    predicted = fm.load("c").predict(arrays["x_test"])
    assert found["diagnostics"]["curves"]["exact"]["full_accuracy"] == pytest.approx(
        (predicted == arrays["y_test"]).mean()
    )
    assert "and the same maps and seed as before" in found["measure"]


def test_the_number_of_test_samples_and_the_priors_are_told(run: Any, statistics: Any, features: str) -> None:
    text = run("diagnose", *statistics("--head", "fedcof"), "--test", features).stdout
    assert "10 classes, 200 test samples\n" in text
    assert "LDA in all dimensions, with balanced priors: " in text
    assert "test samples" not in run("diagnose", *statistics("--head", "fedcof")).stdout.splitlines()[0]


def test_the_page_of_statistics_files_names_what_is_missing(run: Any, statistics: Any) -> None:
    run("diagnose", *statistics("--head", "fedncm"), "--out", "p")
    page = Path("p/report.html").read_text("utf-8")
    assert "Not known" in page
    assert "fedmoments measure FEATURES.npz --moments" in page


def test_merged_files_are_diagnosed_as_their_parts(run: Any, statistics: Any) -> None:
    files = statistics("--moments", ",".join(NEEDS.sent[1:] if NEEDS.sent[0] == "sums" else NEEDS.sent))
    run("merge", *files, "-o", "all.stats")
    first, second = (document(run("diagnose", *names, "--json"))["diagnosis"] for names in (files, ["all.stats"]))
    assert first == second


def test_a_configuration_of_simulate_is_read(run: Any, features: str) -> None:
    run("simulate", features, "--heads", "fedncm", "--clients", "6", "--split", "iid", "--seeds", "1", "--out", "r")
    simulated = json.loads(Path("r/results.json").read_text("utf-8"))["diagnosis"]
    assert document(run("diagnose", "--config", "r/config.toml", "--json"))["diagnosis"] == simulated
    other = document(run("diagnose", "--config", "r/config.toml", "--clients", "3", "--project", "5", "--json"))
    assert (other["diagnosis"]["clients"], other["diagnosis"]["diagnostics"]["dim"]) == (3, 5)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "nothing to diagnose"),
        (["a.stats", "--clients", "3", "--split", "iid"], "--clients, --split: only for data"),
        (["a.stats", "digits"], "digits is none"),
        (["digits", "runs/demo/digits.npz"], "one source of data"),
        (["a.classifier"], "a.classifier"),
        (["gone.stats"], "gone.stats does not exist"),
        (["a.stats", "a.stats"], "each client counts once"),
        (["a.stats", "--test", "gone.npz"], "gone.npz does not exist"),
        (["a.stats", "--out", "a.stats"], "a.stats is a file"),
        (["runs/demo/digits.npz", "--split", "nothing"], "nothing"),
    ],
)
def test_what_cannot_be_diagnosed_is_refused_in_a_sentence(
    run: Any, features: str, arguments: list[str], sentence: str
) -> None:
    run("measure", features, "--head", "gh-lda", "-o", "a.stats")
    run("fit", "a.stats", "--head", "gh-lda", "-o", "a.classifier")
    result = run("diagnose", *arguments, code=2)
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert sentence in result.stderr


def test_test_samples_with_other_classes_are_refused(run: Any, features: str, arrays: Any, workshop: Path) -> None:
    run("measure", features, "--head", "gh-lda", "-o", "a.stats")
    np.savez(workshop / "other.npz", **{**arrays, "classes": arrays["classes"][::-1]})
    assert "different class names" in run("diagnose", "a.stats", "--test", "other.npz", code=2).stderr
