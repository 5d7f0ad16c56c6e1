"""One command for accuracy against dimensions, baselines beside heads, and notes as plain lines."""

import csv
import json
import warnings
from pathlib import Path
from typing import Any

import pytest

import fedmoments as fm
from fedmoments.core.heads.nearest_mean import NearestMean
from fedmoments.core.maps import RandomProjection
from fedmoments.errors import FitWarning
from fedmoments.study.baselines import baseline_names

SENTENCE = "the teacher teaches nothing: give class covariances"


@pytest.fixture
def simulated(run: Any, features: str) -> Any:
    """Run 'simulate' with few clients and one seed."""

    def simulate(*more: str, code: int = 0) -> Any:
        given = ("--clients", "4", "--alpha", "0.5") if "--alpha" not in more else ("--clients", "4")
        return run("simulate", features, *given, *more, code=code)

    return simulate


def squeezed(text: str) -> str:
    return " ".join(text.split())


def test_one_command_sweeps_the_dimension(simulated: Any, arrays: Any) -> None:
    heads = ("gh-nb", "gh-lda", "gh-qda")
    given = ("--project", "full,6,3", "--heads", ",".join(heads), "--seeds", "2", "--out", "out")
    text = simulated(*given, "-v").stdout
    assert "projection" in text
    assert "digests that a real federation of the same clients reproduces, seed 0, all dimensions" in squeezed(text)
    document = json.loads(Path("out/results.json").read_text("utf-8"))
    assert [(row["projection"], row["head"]) for row in document["rows"]] == [
        (k, head) for k in (None, 6, 3) for head in heads
    ]
    sizes = {
        k: [row["up_bytes_per_client"] for row in document["rows"] if row["projection"] == k] for k in (None, 6, 3)
    }
    assert all(few < many for few, many in zip(sizes[3], sizes[6], strict=True))
    assert all(few < many for few, many in zip(sizes[6], sizes[None], strict=True))
    with Path("out/results.csv").open(encoding="utf-8", newline="") as file:
        assert [line["projection"] for line in csv.DictReader(file)][::6] == ["", "6", "3"]
    assert 'projections = ["full", "6", "3"]' in Path("out/config.toml").read_text("utf-8")
    again = json.loads(simulated("--config", "out/config.toml", "--json").stdout)
    assert [row["accuracy"] for row in again["rows"]] == [row["accuracy"] for row in document["rows"]]
    for row in document["rows"]:
        for each in row["seeds"]:
            made = RandomProjection(12, row["projection"], each["seed"]) if row["projection"] else None
            whole = {"all": (arrays["x_train"], arrays["y_train"])}
            direct = fm.fit(row["head"], whole, n_classes=10, feature_map=made)
            assert each["accuracy"] == pytest.approx((direct.predict(arrays["x_test"]) == arrays["y_test"]).mean())


def test_a_single_projection_is_told_above_the_table(simulated: Any) -> None:
    text = squeezed(simulated("--project", "5", "--heads", "fedncm", "--seeds", "1").stdout)
    assert "1 mean per client and class, default shrinkage, projected to 5 dimensions" in text
    plain = simulated("--heads", "fedncm", "--seeds", "1").stdout
    assert "dimensions" not in plain
    assert "projection" not in plain


def test_a_narrow_terminal_names_every_setting(simulated: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    text = simulated("--project", "full,5", "--heads", "fedncm", "--seeds", "2").stdout
    assert "\nall dimensions\n" in text
    assert "\nprojected to 5 dimensions\n" in text


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("13", "the features, which have 12; 13 were requested: ask for 1 to 12, or ask for 'full'"),
        ("full,none", "a projection is typed as full or as a number of dimensions from 1, not 'none'"),
        (",", "--project takes at least one value"),
    ],
)
def test_projections_that_cannot_be_are_refused(simulated: Any, given: str, words: str) -> None:
    result = simulated("--project", given, "--heads", "fedncm", code=2)
    assert words in result.stderr
    assert result.stdout == ""


def test_measure_and_diagnose_refuse_more_dimensions_than_there_are(run: Any, features: str) -> None:
    words = "a projection has no more dimensions than the features, which have 12; 13 were requested: ask for 1 to 12"
    refused = run("measure", features, "--head", "fedncm", "--project", "13", "-o", "a.stats", code=2)
    assert f"{words}, or leave --project out" in refused.stderr
    assert not Path("a.stats").exists()
    assert words in run("diagnose", features, "--clients", "3", "--project", "13", code=2).stderr
    run("measure", features, "--head", "fedncm", "--project", "12", "-o", "a.stats")


# -------------------------------------------------------------------------------------------------- baselines


def test_a_baseline_stands_beside_heads(simulated: Any) -> None:
    given = ("--heads", "gh-lda,ensemble", "--set", "ensemble.decay=0.5", "--seeds", "2")
    text = simulated(*given, "-v").stdout
    assert "ensemble (baseline)" in text
    assert "clients' time" in text
    assert "note: no digest of ensemble: the clients of a baseline send what does not add up" in squeezed(text)
    document = json.loads(simulated(*given, "--json").stdout)
    head, baseline = document["rows"]
    assert (head["baseline"], baseline["baseline"]) == (False, True)
    assert baseline["hyper"]["decay"] == 0.5
    assert baseline["client_seconds"] > 0
    assert head["client_seconds"] is None
    assert "clients' time" not in simulated("--heads", "gh-lda", "--seeds", "1").stdout


def test_heads_lists_baselines_apart(run: Any) -> None:
    text = run("heads").stdout
    _, found, below = text.partition("Baselines, for comparison in simulations")
    assert found
    document = json.loads(run("heads", "--json").stdout)
    assert [each["name"] for each in document["baselines"]] == list(baseline_names())
    for each in document["baselines"]:
        assert each["name"] in below
        assert each["sends"] in squeezed(below)
    assert not {each["name"] for each in document["heads"]} & set(baseline_names())


def test_elsewhere_a_baseline_is_refused_as_one(run: Any, features: str) -> None:
    run("measure", features, "--head", "gh-lda", "-o", "a.stats")
    refused = run("fit", "a.stats", "--head", "ensemble", "-o", "a.classifier", code=2).stderr
    assert refused.startswith("error: 'ensemble' is a baseline, for comparison in simulations only")
    assert "ensemble" in run("costs", "ensemble").stdout, "its price is known before anything is measured"
    rounds = run("simulate", features, "--heads", "ensemble", "--participation", "2", code=2).stderr
    assert "rounds of participation are for heads" in rounds
    unknown = run("simulate", features, "--set", "ensembel.decay=1", code=2).stderr
    assert "unknown head 'ensembel': did you mean 'ensemble'?" in unknown


# -------------------------------------------------------------------------------------------------- notes


@pytest.fixture
def warning_head(monkeypatch: pytest.MonkeyPatch) -> None:
    really = NearestMean.solve

    def solve(self: NearestMean, stats: Any) -> Any:
        warnings.warn(SENTENCE, FitWarning, stacklevel=2)
        return really(self, stats)

    monkeypatch.setattr(NearestMean, "solve", solve)


@pytest.mark.usefixtures("warning_head")
def test_simulate_tells_a_note_once_below_the_table(simulated: Any) -> None:
    result = simulated("--heads", "fedncm,gh-lda", "--seeds", "2")
    assert result.stdout.count(SENTENCE) == 1
    assert f"note: fedncm: {SENTENCE}\n" in result.stdout
    assert result.stderr == ""


def test_simulate_tells_what_a_head_chose_on_the_first_seed(simulated: Any) -> None:
    arguments = ["--heads", "gh-auto,gh-lda", "--clients", "4", "--seeds", "2", "--out", "chosen"]
    result = simulated(*arguments)
    document = json.loads(Path("chosen/results.json").read_text("utf-8"))
    auto, lda = document["rows"]
    assert auto["choice"].startswith(("chose lda: class covariances differ ", "chose qda: class covariances differ "))
    assert auto["choice"] == auto["seeds"][0]["choice"] == document["details"][0]["choice"]
    assert (lda["choice"], document["details"][1]["choice"]) == (None, None)
    told = " ".join(result.stdout.split())
    assert f"note: gh-auto {auto['choice']} " in told
    assert told.count(" chose ") == 1
    assert "Chosen from the statistics" in Path("chosen/report.html").read_text("utf-8")
    assert " ".join(simulated(*arguments).stdout.split()).count(f"note: gh-auto {auto['choice']} ") == 1, "resumed"


def test_a_deviation_is_explained_where_there_is_one(simulated: Any) -> None:
    words = "± is the standard deviation over seeds"
    assert words not in simulated("--heads", "fedncm", "--seeds", "1").stdout
    assert words in simulated("--heads", "fedncm", "--seeds", "2").stdout


@pytest.mark.usefixtures("warning_head")
def test_other_commands_tell_a_note_as_one_plain_line_on_stderr(run: Any, features: str) -> None:
    run("measure", features, "--head", "fedncm", "-o", "a.stats")
    for _ in range(2):  # in every run of the program, not in the first alone
        result = run("fit", "a.stats", "--head", "fedncm", "-o", "a.classifier", "--json")
        assert result.stderr == f"note: {SENTENCE}\n"
        assert json.loads(result.stdout)["head"] == "fedncm"


def test_other_warnings_are_shown_as_usual(run: Any, features: str, monkeypatch: pytest.MonkeyPatch) -> None:
    really = NearestMean.solve

    def solve(self: NearestMean, stats: Any) -> Any:
        warnings.warn("numbers are odd", RuntimeWarning, stacklevel=2)
        return really(self, stats)

    monkeypatch.setattr(NearestMean, "solve", solve)
    run("measure", features, "--head", "fedncm", "-o", "a.stats")
    hook = warnings.showwarning
    with pytest.warns(RuntimeWarning, match="numbers are odd"):
        result = run("fit", "a.stats", "--head", "fedncm", "-o", "a.classifier")
    assert "note:" not in result.stderr
    assert warnings.showwarning is hook, "the hook is taken away with the command"


def test_a_projected_classifier_scores_features_as_they_are(run: Any, simulated: Any, features: str) -> None:
    simulated("--project", "6", "--heads", "gh-lda", "--seeds", "1", "--out", "out")
    accuracy = json.loads(Path("out/results.json").read_text("utf-8"))["rows"][0]["accuracy"]
    found = json.loads(run("evaluate", "out/heads/gh-lda.safetensors", features, "--json").stdout)
    assert found["accuracy"] == pytest.approx(accuracy)
