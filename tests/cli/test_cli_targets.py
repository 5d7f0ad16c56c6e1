"""Targets on the command line: measure, merge, fit, evaluate and predict on tables and arrays."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyarrow")

Run = Any


def write_table(path: Path, seed: int, n: int = 60) -> None:
    rng = np.random.default_rng(seed)
    size, age = rng.uniform(20, 120, n), rng.uniform(0, 50, n)
    rent = 10 * size - 3 * age + 100 + rng.normal(0, 20, n)
    rows = [f"{s:.3f},{a:.3f},{r:.3f},{int(r > 700)}" for s, a, r in zip(size, age, rent, strict=True)]
    path.write_text("\n".join(["size,age,rent,dear", *rows]) + "\n")


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    for seed, name in enumerate(("a", "b", "test")):
        write_table(tmp_path / f"{name}.csv", seed)
    return tmp_path


def measured(run: Run, tables: Path, name: str, targets: str, head: str) -> Path:
    out = tables / f"{name}.stats"
    options = ["--targets", targets, "--features", "size,age", "--head", head, "--out", str(out)]
    run("measure", str(tables / f"{name}.csv"), *options)
    return out


def test_two_clients_of_tables_predict_as_their_pooled_rows(run: Run, tables: Path) -> None:
    parts = [str(measured(run, tables, name, "rent", "ridge-regression")) for name in "ab"]
    run("merge", *parts, "--out", str(tables / "both.stats"))
    model = str(tables / "model")
    run("fit", str(tables / "both.stats"), "--head", "ridge-regression", "--set", "ridge=1", "--out", model)
    figures: dict[str, Any] = json.loads(run("evaluate", model, str(tables / "test.csv"), "--json").stdout)
    rows = [np.genfromtxt(tables / f"{name}.csv", delimiter=",", skip_header=1) for name in ("a", "b", "test")]
    pooled, test = np.vstack(rows[:2]), rows[2]
    centre = pooled.mean(axis=0)
    X, t = (pooled - centre)[:, :2], (pooled - centre)[:, 2]
    weights = np.linalg.solve(X.T @ X + np.eye(2), X.T @ t)
    said = (test[:, :2] - centre[:2]) @ weights + centre[2]
    wanted = 1 - np.square(said - test[:, 2]).sum() / np.square(test[:, 2] - test[:, 2].mean()).sum()
    assert figures["targets"][0]["name"] == "rent"
    assert figures["targets"][0]["r_squared"] == pytest.approx(wanted, rel=1e-9)
    (tables / "new.csv").write_text("size,age\n50,10\n")
    answer = json.loads(run("predict", model, str(tables / "new.csv"), "--json").stdout)["predictions"][0]
    expected = (np.array([50.0, 10.0]) - centre[:2]) @ weights + centre[2]
    assert answer["values"]["rent"] == pytest.approx(expected, rel=1e-5)
    assert "rent" in run("predict", model, str(tables / "new.csv"), "--csv").stdout.splitlines()[0]


def test_labels_of_which_a_row_has_any_number(run: Run, tables: Path) -> None:
    part = measured(run, tables, "a", "dear", "multi-label")
    assert "multi-label" in run("inspect", str(part)).stdout
    run("fit", str(part), "--head", "multi-label", "--out", str(tables / "model"))
    shown = run("evaluate", str(tables / "model"), str(tables / "test.csv"))
    assert "F1" in shown.stdout
    figures = json.loads(run("evaluate", str(tables / "model"), str(tables / "test.csv"), "--json").stdout)
    assert figures["targets"][0]["f1"] > 0.9
    (tables / "new.csv").write_text("size,age\n110,1\n25,40\n")
    lines = run("predict", str(tables / "model"), str(tables / "new.csv"), "--csv").stdout.splitlines()
    assert [line.rpartition(",")[2] for line in lines] == ["dear", "yes", "no"]


def test_arrays_hold_targets_in_the_place_of_labels(run: Run, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 3))
    np.savez(tmp_path / "f.npz", x_train=X, y_train=X @ [[1.0, 0.0], [0.0, 1.0], [2.0, 2.0]])
    file, out = str(tmp_path / "f.npz"), str(tmp_path / "f.stats")
    run("measure", file, "--targets", "one,two", "--head", "ridge-regression", "--out", out)
    told = run("fit", out, "--head", "ridge-regression", "--out", str(tmp_path / "model")).stdout
    assert "2 targets, d = 3" in told
    assert "one 1.000, two 1.000" in told


def test_heads_and_statistics_that_do_not_go_together_are_refused(run: Run, tables: Path) -> None:
    target = measured(run, tables, "a", "rent", "ridge-regression")
    refused = run("fit", str(target), "--head", "gh-lda", "--out", str(tables / "x"), code=2)
    assert "holds targets (rent)" in refused.output
    table = str(tables / "a.csv")
    without = run("measure", table, "--head", "ridge-regression", "--out", str(tables / "x"), code=2)
    assert "--targets" in without.output
    other = run("measure", table, "--targets", "rent", "--head", "gh-lda", "--out", str(tables / "x"), code=2)
    assert "a head for classes" in other.output
    missing = run("measure", table, "--targets", "price", "--head", "multi-label", "--out", str(tables / "x"), code=2)
    assert "no column 'price' of targets" in missing.output
