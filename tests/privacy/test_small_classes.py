"""Laws of small classes: nobody measures below the minimum, nothing is measured twice, and merging changes no sum."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from fedmoments import Statistics, StatisticsSpec
from fedmoments.core.statistics import FixedPoint
from fedmoments.errors import InputError
from fedmoments.privacy.small_classes import NOBODY, hand_over, merge_rows, row_counts

TABLES = arrays(np.int64, array_shapes(min_dims=2, max_dims=2, max_side=6), elements=st.integers(0, 12))


def naive(counts: np.ndarray, least: int) -> np.ndarray:
    """Decide class by class and client by client, as the sentence in the documentation says it."""
    found = np.zeros_like(counts)
    for c in range(counts.shape[1]):
        column = counts[:, c].tolist()
        small = [k for k, n in enumerate(column) if 0 < n < least]
        taker = column.index(max(column))
        together = sum(column[k] for k in {*small, taker})
        for k in range(len(column)):
            found[k, c] = k if k not in small else taker if together >= least else NOBODY
    return found


def measured_at(counts: np.ndarray, takers: np.ndarray) -> np.ndarray:
    total = np.zeros_like(counts)
    for k, c in np.ndindex(*counts.shape):
        if takers[k, c] != NOBODY:
            total[takers[k, c], c] += counts[k, c]
    return total


@given(TABLES, st.integers(1, 9))
def test_handing_over_is_what_the_sentence_says(counts: np.ndarray, least: int) -> None:
    np.testing.assert_array_equal(hand_over(counts, least), naive(counts, least))


@given(TABLES, st.integers(1, 9))
def test_nobody_measures_a_class_below_the_minimum(counts: np.ndarray, least: int) -> None:
    total = measured_at(counts, hand_over(counts, least))
    assert ((total == 0) | (total >= least)).all()


@given(TABLES, st.integers(1, 9))
def test_a_class_is_lost_only_where_all_together_have_too_few(counts: np.ndarray, least: int) -> None:
    kept = measured_at(counts, hand_over(counts, least)).sum(axis=0)
    whole = counts.sum(axis=0)
    np.testing.assert_array_equal(kept, np.where(whole >= least, whole, 0))


@given(TABLES)
def test_a_minimum_of_one_leaves_everything_where_it_is(counts: np.ndarray) -> None:
    np.testing.assert_array_equal(measured_at(counts, hand_over(counts, 1)), counts)


def test_counts_of_the_wrong_kind_are_refused() -> None:
    for wrong in ([1, 2], [[-1]], [[0.5]]):
        with pytest.raises(InputError, match=r"one a client and class, \(K, C\)"):
            hand_over(wrong, 5)
    with pytest.raises(InputError, match="min_count must be 1 or more, not 0"):
        hand_over([[1]], 0)


# ---------------------------------------------------------------------------------------------- rows


@given(st.lists(st.integers(0, 3), max_size=80), st.integers(1, 6), st.integers(1, 9))
def test_no_row_that_could_be_merged_stays_thin(labels: list[int], shares: int, least: int) -> None:
    spec = StatisticsSpec.of("client_means", "class_squares", means_per_client=shares)
    X = np.random.default_rng(3).normal(size=(len(labels), 2))
    stats = Statistics.of(X, np.array(labels, np.int64), spec, n_classes=4)
    merged = merge_rows(stats, least)
    counts = dict(zip(stats.classes.tolist(), stats.class_counts.tolist(), strict=True))
    for label, count in counts.items():
        rows = merged.row_counts[merged.row_labels == label].tolist()
        whole = sorted(row_counts(count, shares), reverse=True)
        assert sorted(rows, reverse=True) == (whole if whole[-1] >= least else [count])
    np.testing.assert_allclose(merged.sums, stats.sums, atol=1e-12)
    np.testing.assert_array_equal(merged.class_array("class_squares"), stats.class_array("class_squares"))
    assert merge_rows(merged, least).digest() == merged.digest()


def test_rows_of_several_clients_are_not_merged_into_one() -> None:
    spec = StatisticsSpec.of("client_means")
    parts = [Statistics.of([[1.0]] * 2, [0, 1], spec, n_classes=2) for _ in range(2)]
    with pytest.raises(InputError, match="rows of several clients"):
        merge_rows(Statistics.merge(parts), 5)


def test_statistics_without_rows_are_left_as_they_are() -> None:
    stats = Statistics.of([[1.0]], [0], StatisticsSpec.of("gram"), n_classes=1, fixed_point=FixedPoint())
    assert merge_rows(stats, 5) is stats
