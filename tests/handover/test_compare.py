"""What changed from one classifier to another, on samples and on the sums of a run's report."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import fedmoments as fm
from fedmoments.cli.app import app
from fedmoments.handover.compare import compare_names

DIM, NAMES = 4, ["ant", "bee", "cow"]


def invoke(*arguments: str, code: int = 0, lines: str = "") -> Any:
    result = CliRunner().invoke(app, list(arguments), lines)
    assert result.exit_code == code, result.output
    return result


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Write features, and two classifiers of them; the second knows a class more."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 400)
    X = (rng.normal(size=(400, DIM)) + 1.5 * np.eye(3, DIM)[y]).astype(np.float32)
    np.savez("features.npz", x_train=X[:200], y_train=y[:200], x_test=X[200:], y_test=y[200:], classes=NAMES)
    first = fm.fit("fedncm", {"a": (X[:20], y[:20])}, class_names=NAMES)
    # The same classes in another order: names decide, not numbers.
    second = fm.fit("gh-lda", {"a": (X[:200], 3 - y[:200])}, class_names=["dog", "cow", "bee", "ant"])
    first.save("first.classifier")
    second.noting(version={"name": "toy", "number": 2, "parent": first.digest()}).save("second.classifier")
    return {"X": X[200:], "y": np.array(NAMES)[y[200:]], "first": first, "second": second}


def test_counts_are_those_of_a_loop() -> None:
    rng = np.random.default_rng(3)
    true, one, other = (rng.choice(["a", "b", "long name"], 300).tolist() for _ in range(3))
    found = compare_names(true, one, other)
    rows = list(zip(true, one, other, strict=True))
    assert found.right == (sum(t == a for t, a, _ in rows), sum(t == b for t, _, b in rows))
    for name, count, first, second in found.by_class:
        mine = [row for row in rows if row[0] == name]
        assert (count, first, second) == (len(mine), sum(t == a for t, a, _ in mine), sum(t == b for t, _, b in mine))
    for first_says, second_says, count in found.disagreements:
        assert count == sum((a, b) == (first_says, second_says) for _, a, b in rows)
    assert sum(count for *_, count in found.disagreements) == sum(a != b for _, a, b in rows)
    assert found.test.only_first == sum(t == a and t != b for t, a, b in rows)


def test_two_classifiers_are_compared_by_the_names_of_classes(data: dict[str, Any]) -> None:
    found = json.loads(invoke("compare", "first.classifier", "second.classifier", "features.npz", "--json").stdout)
    said = [np.array(data[which].predict_names(data["X"])) for which in ("first", "second")]
    assert found["accuracy"] == pytest.approx([(names == data["y"]).mean() for names in said])
    assert (found["classes_added"], found["classes_removed"]) == (["dog"], [])
    assert found["second_follows_first"]
    assert found["changed"]["head"] == ["fedncm", "gh-lda"]
    assert found["mcnemar"]["only_second"] == int(((said[1] == data["y"]) & (said[0] != data["y"])).sum())
    text = invoke("compare", "first.classifier", "second.classifier", "features.npz").stdout
    assert "exact McNemar test" in text
    assert "the second was made from the first" in text
    same = json.loads(invoke("compare", "first.classifier", "first.classifier", "features.npz", "--json").stdout)
    assert (same["same_parameters"], same["disagreements"], same["changed"]) == (True, [], {})


def test_without_data_the_runs_own_sums_are_compared(data: dict[str, Any]) -> None:
    assert "give data to compare on" in invoke("compare", "first.classifier", "second.classifier").stdout
    runs = []
    for heads in ("fedncm", "gh-lda"):
        invoke("simulate", "features.npz", "--heads", heads, "--clients", "4", "--seeds", "1", "--out", heads)
        runs.append(f"{heads}/heads/{heads}.safetensors")
    found = json.loads(invoke("compare", *runs, "--json").stdout)
    for path, sums in zip(runs, found["reports"], strict=True):
        right = (np.array(fm.load(path).predict_names(data["X"])) == data["y"]).sum()
        assert (sums["samples"], sums["right"]) == (len(data["y"]), right)
    assert "where they disagree is not in sums" in invoke("compare", *runs).stdout


def test_features_are_classified_from_arrays_tables_and_lines(data: dict[str, Any]) -> None:
    expected = data["first"].predict_names(data["X"])
    arrays = json.loads(invoke("predict", "first.classifier", "features.npz", "--json").stdout)["predictions"]
    assert [each["class"] for each in arrays] == expected
    assert arrays[7]["source"] == "features.npz x_test[7]"
    np.savetxt("rows.csv", data["X"], delimiter=",", header="a,b,c,d", comments="", fmt="%.9g")
    table = json.loads(invoke("predict", "first.classifier", "rows.csv", "--json").stdout)["predictions"]
    assert [each["top"] for each in table] == [each["top"] for each in arrays]
    lines = "\n".join(" ".join(f"{value:.9g}" for value in row) for row in data["X"]) + "\n1 2 three 4\n1 2\n"
    read = json.loads(invoke("predict", "first.classifier", "-", "--json", lines=lines).stdout)
    assert [each["class"] for each in read["predictions"]] == expected
    assert [problem["where"] for problem in read["problems"]] == ["standard input line 201", "standard input line 202"]


def test_evaluation_counts_what_a_comparison_counts(data: dict[str, Any]) -> None:
    tested = json.loads(invoke("evaluate", "second.classifier", "features.npz", "--json").stdout)
    found = json.loads(invoke("compare", "second.classifier", "second.classifier", "features.npz", "--json").stdout)
    assert tested["accuracy"] == pytest.approx(found["accuracy"][0])
    assert tested["samples"] == found["samples"] == len(data["y"])
