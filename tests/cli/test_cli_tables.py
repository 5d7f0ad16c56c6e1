"""Raw tables on the command line: draft, first exchange, measure, fit, evaluate, predict; and simulated federations."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.raw_tables import clinic, write_clinic

from fedmoments.core.classifier import load
from fedmoments.core.maps import table_of
from fedmoments.samples.raw_tables import read_map, write_map
from fedmoments.samples.sources.registry import load_data

SIMULATE = ("--label", "outcome", "--group", "patient", "--clients", "4", "--split", "iid", "--seeds", "1", "--json")


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for seed, name in enumerate(["a", "b", "test"]):
        write_clinic(tmp_path / f"{name}.csv", 150, seed)
    return tmp_path


def test_from_drafts_to_predictions_by_files(run: Any, tables: Path) -> None:
    columns = ("--label", "outcome", "--features", "age,score,ward")
    shown = run("table", "csv:a.csv", *columns, "--out", "draft.json").stdout
    assert "3 columns give" in shown
    for name in "ab":
        run(
            "measure",
            f"csv:{name}.csv",
            "--label",
            "outcome",
            "--table",
            "draft.json",
            "--moments",
            "class_squares",
            "--out",
            f"{name}.first",
        )
    run("table", "draft.json", "--after", "a.first", "--after", "b.first", "--out", "table.json")
    for name in "ab":
        run(
            "measure",
            f"csv:{name}.csv",
            "--label",
            "outcome",
            "--table",
            "table.json",
            "--head",
            "gh-lda",
            "--out",
            f"{name}.stats",
        )
    run("fit", "a.stats", "b.stats", "--head", "gh-lda", "--out", "x.head")
    found = json.loads(run("evaluate", "x.head", "test.csv", "--label", "outcome", "--json").stdout)
    assert found["accuracy"] > 0.9
    said = json.loads(run("predict", "x.head", "test.csv", "--json").stdout)
    assert len(said["predictions"]) == 150
    audited = run("audit", "a.first").stdout
    assert "categories and gaps" in audited
    assert table_of(load("x.head").feature_map) == read_map(tables / "table.json")


def test_the_examples_of_the_help_work_as_they_stand(run: Any, tables: Path) -> None:
    write_clinic(tables / "clinic.csv")
    _, _, end = run("table", "--help").stdout.rpartition("Example")
    lines = [line.strip() for line in end.splitlines()[1:] if line.strip()]
    for line in lines:
        run(*line.split()[1:])
    assert len(lines) == 3
    assert (tables / "table.json").exists()


def test_files_that_do_not_belong_together_are_refused(run: Any, tables: Path) -> None:
    for name in "ab":
        codes = ("--categories", "age") if name == "b" else ()
        run("table", f"csv:{name}.csv", "--label", "outcome", *codes, "--out", f"{name}.json")
    measure = ("--label", "outcome", "--moments", "class_squares", "--out", "x.first")
    run("measure", "csv:a.csv", "--table", "a.json", *measure)
    assert "measured behind b.json" in run("table", "b.json", "--after", "x.first", "--out", "t.json", code=2).stderr
    assert "the same table" in run("measure", "csv:a.csv", "--table", "draft", *measure, code=2).stderr
    assert (
        "says itself" in run("table", "b.json", "--after", "x.first", "--label", "y", "--out", "t.json", code=2).stderr
    )
    assert "no option 'table'" in run("simulate", "digits", "--table", "draft", code=2).stderr
    assert "raw tables" in run("diagnose", "csv:a.csv", "--label", "outcome", "--table", "draft", code=2).stderr


def test_a_simulation_of_a_raw_table_counts_its_first_exchange(run: Any, tables: Path) -> None:
    given = ("simulate", "csv:a.csv", *SIMULATE, "--heads", "gh-lda")
    drafted = json.loads(run(*given, "--table", "draft", "--out", "drafted").stdout)
    classifier = load(tables / "drafted" / "heads" / "gh-lda.safetensors")
    table = table_of(classifier.feature_map)
    assert table is not None
    write_map(tables / "map.json", table)
    known = json.loads(run(*given, "--table", "map.json", "--out", "known").stdout)
    one, other = (document["rows"][0]["seeds"][0] for document in (drafted, known))
    assert one["accuracy"] == other["accuracy"] > 0.8
    draft = draft_outputs(tables)
    assert one["up_floats"] - other["up_floats"] == 4 * 2 * 2 * draft  # 4 clients, 2 classes, sums and squares
    assert drafted["data"]["feature_map"]["kind"] == "table"


def draft_outputs(tables: Path) -> int:
    table = load_data(f"csv:{tables / 'a.csv'}", table="draft", label="outcome", group="patient").table
    assert table is not None
    return len(table.outputs)


def test_the_map_of_a_simulation_does_not_depend_on_who_holds_what(run: Any, tables: Path) -> None:
    maps = []
    for split in ("iid", "dirichlet:0.1"):
        options = (*SIMULATE[:-5], "--split", split, "--seeds", "1", "--json")
        run("simulate", "csv:a.csv", *options, "--heads", "fedncm", "--table", "draft", "--out", split)
        maps.append(load(tables / split / "heads" / "fedncm.safetensors").feature_map)
    assert maps[0] == maps[1]


def test_an_epsilon_does_not_cover_a_first_exchange(run: Any, tables: Path) -> None:
    given = ("simulate", "csv:a.csv", *SIMULATE, "--heads", "fedncm", "--table", "draft", "--epsilon", "2")
    assert "the first exchange of a raw table is exact" in run(*given, code=2).output


def test_features_behind_a_table_are_written_for_other_commands(run: Any, tables: Path) -> None:
    table = load_data("csv:a.csv", table="draft", label="outcome", group="patient").table
    assert table is not None
    write_map(tables / "t.json", table)
    options = ("--label", "outcome", "--group", "patient", "--out", "a.npz")
    run("encode", "csv:a.csv", "--table", "t.json", *options)
    with np.load("a.npz") as arrays:
        wanted = table(table.code(clinic(150, 0)))
        np.testing.assert_allclose(arrays["x_train"], wanted, rtol=1e-6)
        assert arrays["group_train"].shape == (150,)
    assert "all parties agreed on" in run("encode", "csv:a.csv", "--table", "draft", *options, code=2).stderr


def test_a_local_federation_runs_on_a_raw_table(run: Any, tables: Path) -> None:
    options = ("--label", "outcome", "--table", "draft", "--local", "2", "--clients", "4", "--engine", "memory")
    found = json.loads(
        run(
            "federate",
            "--data",
            "csv:a.csv",
            *options,
            "--heads",
            "gh-lda",
            "--min-count",
            "1",
            "--out",
            "trial",
            "--json",
        ).stdout
    )
    assert "gh-lda" in json.dumps(found)
    assert table_of(load(next((tables / "trial").rglob("gh-lda*.safetensors"))).feature_map) is not None
