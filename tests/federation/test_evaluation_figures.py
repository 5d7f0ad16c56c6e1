"""Figures by class of a confusion table, against scikit-learn, and none where the table tells too little."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedmoments.federation.evaluation.figures import Evaluation


def answers(n: int = 400) -> tuple[Evaluation, NDArray[Any], NDArray[Any]]:
    rng = np.random.default_rng(0)
    y, given = rng.integers(0, 4, n), rng.integers(0, 4, n)
    given = np.where(rng.random(n) < 0.6, y, given)
    table = np.zeros((4, 4), np.int64)
    np.add.at(table, (y, given), 1)
    return Evaluation(("a", "b", "c", "d"), table), y, given


def test_macro_f1_and_specificities_are_those_of_scikit_learn() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    result, y, given = answers()
    assert result.macro_f1 == pytest.approx(metrics.f1_score(y, given, average="macro"))
    for label in range(4):
        expected = metrics.recall_score(y != label, given != label)
        assert result.class_specificities[label] == pytest.approx(expected)
    document = result.to_dict(per_class=True)
    assert document["macro_f1"] == result.macro_f1
    assert document["per_class"][1]["specificity"] == result.class_specificities[1]


def test_a_table_that_does_not_tell_all_gives_neither() -> None:
    result, _, _ = answers()
    for untold in (
        Evaluation(result.class_names, result.table, totals=(450, 250)),
        Evaluation(result.class_names, np.zeros((4, 4), np.int64)),
    ):
        document = untold.to_dict(per_class=True)
        assert document["macro_f1"] is None
        assert all(row["specificity"] is None for row in document["per_class"])
