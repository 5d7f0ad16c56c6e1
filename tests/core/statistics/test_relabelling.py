"""The same statistics under another class list; ledgers and estimators to which classes are added."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmoments import FixedPoint, Ledger, Statistics, StatisticsSpec, fit
from fedmoments.core.statistics.relabelling import among, relabelled
from fedmoments.errors import InputError, LedgerError, MergeError

SPEC = StatisticsSpec.of("client_means", "gram", "class_squares")
FORM = FixedPoint(norm_bound=64.0, max_samples=10_000)


def measured(seed: int, labels: Any, n_classes: int, spec: StatisticsSpec = SPEC) -> Statistics:
    rng = np.random.default_rng(seed)
    y = np.asarray(labels)
    return Statistics.of(rng.normal(size=(len(y), 3)), y, spec, n_classes=n_classes, fixed_point=FORM)


@given(st.permutations(range(5)), st.integers(0, 2**16))
def test_relabelled_statistics_are_those_of_relabelled_samples(order: list[int], seed: int) -> None:
    y = np.random.default_rng(seed).integers(0, 4, 30)  # class 4 has no sample
    new = np.array(order)
    assert relabelled(measured(seed, y, 5), new, 5) == measured(seed, new[y], 5)


def test_sketches_of_classes_follow_their_class() -> None:
    spec = StatisticsSpec.of("scatter_sketch")
    from fedmoments import SketchPlan

    plan = spec.with_plan(SketchPlan(budget=None, rank=8, rows="class"))
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 4)), np.repeat([0, 1], 30)
    first = Statistics.of(X, y, plan, n_classes=2)
    assert relabelled(first, [0, 1], 3).sketch_labels.tolist() == first.sketch_labels.tolist()
    assert set(relabelled(first, [2, 0], 3).sketch_labels.tolist()) == {0, 2}


@pytest.mark.parametrize("labels", [[0, 0], [0, 3], [-1, 0], [0], [0, 1, 2]])
def test_labels_that_are_none_are_refused(labels: list[int]) -> None:
    with pytest.raises(InputError, match="needs a label of its own"):
        relabelled(measured(0, [0, 1], 2), labels, 3)


def test_class_lists_in_another_order_merge_by_name() -> None:
    one, two = measured(1, [0, 0, 1], 2), measured(2, [0, 1, 1], 2)
    names = ["ape", "bee", "cat"]
    merged = among(one, ["bee", "ape"], names) + among(two, ["cat", "bee"], names)
    assert merged.counts.tolist() == [1, 4, 1]
    with pytest.raises(InputError, match="lacks dog"):
        among(one, ["dog", "ape"], names)


@pytest.mark.parametrize("fold", [False, True])
def test_a_ledger_to_which_classes_are_added_is_the_one_that_had_them_from_the_start(fold: bool) -> None:
    first, second = measured(1, [0, 1, 1], 2), measured(2, [0, 2, 2, 3], 4)
    grown = Ledger(SPEC, n_classes=2, dim=3, fixed_point=FORM, fold=fold)
    grown.join("clinic", first)
    grown.extend(4)
    grown.extend(4)
    grown.join("lab", second)
    whole = Ledger(SPEC, n_classes=4, dim=3, fixed_point=FORM, fold=fold)
    whole.join("clinic", relabelled(first, [0, 1], 4))
    whole.join("lab", second)
    assert grown.statistics() == whole.statistics()
    grown.join("late", measured(3, [1, 1], 2))  # a party that knows of two classes only
    grown.leave("late", measured(3, [1, 1], 2) if fold else None)
    grown.leave("clinic", first if fold else None)
    whole.leave("clinic", relabelled(first, [0, 1], 4) if fold else None)
    assert grown.statistics() == whole.statistics()
    if fold:
        with pytest.raises(LedgerError, match="another contribution"):
            grown.leave("lab", measured(9, [0, 2, 2, 3], 4))
    with pytest.raises(MergeError, match="n_classes=3"):
        grown.join("strange", measured(4, [0], 3))
    with pytest.raises(InputError, match="only added"):
        grown.extend(3)


@pytest.mark.parametrize("head", ["fedcof", "fed3r", "gh-lda"])
def test_class_incremental_heads_are_those_of_fitting_at_once(head: str) -> None:
    rng = np.random.default_rng(0)
    y = np.arange(90) % 3
    X = rng.normal(size=(90, 3)) + 4 * np.eye(3)[y]
    spec = StatisticsSpec.of("client_means", "gram")
    old = [np.flatnonzero((np.arange(90) % 5 == k) & (y < 2)) for k in range(5)]
    new = [np.flatnonzero((np.arange(90) % 5 == k) & (y == 2)) for k in range(5)]
    grown = Ledger(spec, n_classes=2, dim=3, fixed_point=FORM)
    whole = Ledger(spec, n_classes=3, dim=3, fixed_point=FORM)
    for k, rows in enumerate(old):
        grown.join(k, Statistics.of(X[rows], y[rows], spec, n_classes=2, fixed_point=FORM))
        whole.join(k, Statistics.of(X[rows], y[rows], spec, n_classes=3, fixed_point=FORM))
    grown.extend(3)
    for k, rows in enumerate(new):
        part = Statistics.of(X[rows], y[rows], spec, n_classes=3, fixed_point=FORM)
        grown.join(5 + k, part)
        whole.join(5 + k, part)
    assert fit(head, grown).to_bytes() == fit(head, whole).to_bytes()
    assert (fit(head, grown).predict(X) == y).mean() > 0.9
