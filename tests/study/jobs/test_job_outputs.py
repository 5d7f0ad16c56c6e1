"""What a job leaves: one document, the same figures as a table, a page, and classifiers that do what was reported."""

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedmoments as fm
from fedmoments.settings.study import StudySettings
from fedmoments.study.jobs import JobResult, run_job
from fedmoments.study.jobs.run import COLUMNS

HEADS = ("fedncm", "fedcof", "gh-lda", "gh-qda", "fed3r-rf")
HYPER = {"fed3r-rf": {"n_features": 40}}


@pytest.fixture
def config(features_file: str) -> StudySettings:
    return StudySettings(
        data=features_file,
        heads=HEADS,
        hyper=HYPER,
        clients=(6, 9),
        splits=("dirichlet:0.3",),
        participation=("2", "2:replacement"),
        seeds=2,
        seed=4,
    )


@pytest.fixture
def found(config: StudySettings) -> JobResult:
    return run_job(config, Path("a/b/out"), command="fedmoments simulate …")


OUT = Path("a/b/out")


def test_the_files_are_those_that_are_promised(found: JobResult) -> None:
    names = {"results.json", "results.csv", "report.html", "config.toml", "progress.jsonl", "heads"}
    assert {path.name for path in OUT.iterdir()} == names
    assert {path.name for path in found.files} == names - {"progress.jsonl"}
    assert all(path.exists() for path in found.files)
    assert {path.name for path in (OUT / "heads").iterdir()} == {f"{head}.safetensors" for head in HEADS}


def test_results_json_holds_everything_by_its_name(found: JobResult, config: StudySettings) -> None:
    document = json.loads((OUT / "results.json").read_text("utf-8"))
    assert document == json.loads(json.dumps(found.document))
    assert set(document) == {
        "bias", "command", "config", "data", "details", "diagnosis", "format", "holders",
        "privacy", "rounds", "rows", "seconds", "seeds", "splits", "timings", "version",
    }  # fmt: skip
    assert (document["format"], document["version"], document["seeds"]) == (2, fm.__version__, 2)
    assert document["config"] == {**config.to_dict(), "encoder": "identity"}
    data = document["data"]
    assert (data["train"], data["test"], data["dim"], data["classes"], data["modality"]) == (300, 120, 9, 5, "features")
    assert data["class_names"] == ["ant", "bee", "cat", "dog", "eel"]
    assert re.fullmatch("[0-9a-f]{64}", data["digest"])
    assert data["problems"] == []
    assert len(document["rows"]) == 2 * len(HEADS)
    for row in document["rows"]:
        assert [outcome["seed"] for outcome in row["seeds"]] == [4, 5]
        assert row["accuracy"] == pytest.approx(np.mean([outcome["accuracy"] for outcome in row["seeds"]]))
        assert (row["detail"] is None) == (row["clients"] != 6)


def test_details_are_those_of_the_first_setting_and_seed(found: JobResult) -> None:
    document = found.document
    rows = [row for row in document["rows"] if row["detail"] is not None]
    assert [row["head"] for row in rows] == list(HEADS)
    for row in rows:
        detail = document["details"][row["detail"]]
        table = np.array(detail["confusion"])
        assert (detail["head"], detail["seed"]) == (row["head"], 4)
        assert table.sum() == 120
        assert np.trace(table) / 120 == pytest.approx(row["seeds"][0]["accuracy"])
        bins = detail["calibration"]["bins"]
        assert sum(each["count"] for each in bins) == 120
        assert sum(each["count"] * (each["accuracy"] or 0) for each in bins) == pytest.approx(np.trace(table))
    cells = np.array(document["holders"]["cells"])
    assert cells[:, 2].sum() == 300
    assert (document["holders"]["n_clients"], cells[:, 0].max()) == (6, 5)
    assert len(document["bias"]["relative"]) == 5


def test_the_last_round_is_one_shot_with_and_without_replacement(found: JobResult) -> None:
    first = [row for row in found.document["rows"] if row["clients"] == 6]
    once = {(row["head"], each["seed"]): each["accuracy"] for row in first for each in row["seeds"]}
    curves = found.document["rounds"]
    # Heads with a covariance a class or a map of their own are not fitted after every round.
    assert [(curve["replacement"], curve["seed"], curve["head"]) for curve in curves] == [
        (again, seed, head) for again in (False, True) for seed in (4, 5) for head in ("fedncm", "fedcof", "gh-lda")
    ]
    for curve in curves:
        last = curve["points"][-1]
        assert last["seen"] == curve["clients"] == 6
        assert last["accuracy"] == pytest.approx(once[curve["head"], curve["seed"]])
        assert curve["replacement"] or last["round"] == 3


def test_results_csv_has_a_line_for_every_setting_head_and_seed(found: JobResult) -> None:
    with (OUT / "results.csv").open(encoding="utf-8", newline="") as file:
        table = list(csv.DictReader(file))
    assert tuple(table[0]) == COLUMNS
    expected = [(row, outcome) for row in found.document["rows"] for outcome in row["seeds"]]
    assert len(table) == len(expected) == 2 * len(HEADS) * 2
    for line, (row, outcome) in zip(table, expected, strict=True):
        assert (line["head"], line["split"], int(line["clients"])) == (row["head"], row["split"], row["clients"])
        assert (int(line["seed"]), float(line["accuracy"])) == (outcome["seed"], outcome["accuracy"])
        assert int(line["up_bytes_total"]) == 4 * outcome["up_floats"]
        assert line["reason"] == ""


def test_a_head_that_cannot_be_fitted_has_its_reason_and_no_classifier(features_file: str) -> None:
    run_job(
        StudySettings(data=features_file, heads=("fedcof", "fedncm"), clients=(1,), splits=("iid",), seeds=1), Path("o")
    )
    with Path("o/results.csv").open(encoding="utf-8", newline="") as file:
        fedcof, fedncm = csv.DictReader(file)
    assert (fedcof["accuracy"], fedcof["fit_seconds"]) == ("", "")
    assert "shrinkage" in fedcof["reason"]
    assert float(fedncm["accuracy"]) > 0.5
    assert [path.name for path in Path("o/heads").iterdir()] == ["fedncm.safetensors"]


def test_the_report_needs_nothing_else(found: JobResult) -> None:
    page = (OUT / "report.html").read_text("utf-8")
    assert page.startswith("<!doctype html>")
    linked = re.findall(r"""\b(?:src|href|action|srcset)\s*=\s*["']?([^"'\s>]*)""", page)
    linked += re.findall(r"""url\(\s*["']?([^"')]*)""", page)
    assert all(place.startswith(("#", "data:")) for place in linked)
    assert not re.search("@import|<iframe|fetch\\(|XMLHttpRequest", page)
    for head in HEADS:
        assert head in page


def test_saved_classifiers_predict_what_was_reported(found: JobResult) -> None:
    arrays = np.load("features.npz")
    first = {row["head"]: row["seeds"][0]["accuracy"] for row in found.document["rows"] if row["clients"] == 6}
    for head in HEADS:
        classifier = fm.load(OUT / "heads" / f"{head}.safetensors")
        accuracy = (classifier.predict(arrays["x_test"]) == arrays["y_test"]).mean()
        assert accuracy == pytest.approx(first[head])
        assert classifier.class_names == ("ant", "bee", "cat", "dog", "eel")
        assert classifier.digest() == found.classifiers[head].digest()
        assert classifier.info["head"] == head
        assert classifier.info["encoder"]["name"] == "identity"
        assert classifier.info["fingerprint"] == found.document["data"]["fingerprint"]


def test_the_saved_configuration_is_the_effective_one_and_runs_again(
    found: JobResult, timeless: Callable[[Any], Any]
) -> None:
    config = StudySettings.load(OUT / "config.toml")
    assert (config.encoder, config.heads) == ("identity", HEADS)
    assert timeless(run_job(config).document) == timeless(found.document)


def test_all_heads_are_saved_by_name(features_file: str) -> None:
    found = run_job(StudySettings(data=features_file, heads=("all",), clients=(4,), splits=("iid",), seeds=1))
    assert found.document["config"]["heads"] == [
        head for head in fm.head_names() if head not in ("deep-ridge", "fed3r-rf", "fisher-rf", "qda-exchange")
    ]
    assert found.files == []


def test_every_random_choice_follows_from_the_seed(photos: str, timeless: Callable[[Any], Any]) -> None:
    def random_parts(seed: int) -> tuple[Any, ...]:
        config = StudySettings(
            data="folder:photos/train",
            encoder="blocks",
            heads=("fedncm", "fedcof"),
            clients=(7,),
            participation=("2:replacement",),
            seeds=2,
            seed=seed,
            test_share=0.3,
        )
        document = timeless(run_job(config).document)
        rounds = [[(point["round"], point["seen"]) for point in curve["points"]] for curve in document["rounds"]]
        return document, document["data"]["digest"], document["holders"]["cells"], document["splits"], rounds

    first, again, other = random_parts(0), random_parts(0), random_parts(1)
    assert first == again
    assert all(here != there for here, there in zip(first[:4], other[:4], strict=True))


def test_a_job_says_what_it_does_in_order(photos: str) -> None:
    said: list[tuple[int, int, str]] = []
    config = StudySettings(
        data=photos, encoder="blocks", heads=("fedncm",), clients=(3,), participation=("1",), seeds=2
    )
    run_job(config, progress=lambda *step: said.append(step))
    steps = list(dict.fromkeys(text for _, _, text in said))
    assert steps == [
        "encoding training samples", "encoding test samples", "adding 1 clients at a time, seed 0",
        "dirichlet:0.1, seed 0, fedncm", "adding 1 clients at a time, seed 1", "dirichlet:0.1, seed 1, fedncm", "done",
    ]  # fmt: skip
    assert all(0 <= done <= total for done, total, _ in said)
