"""Student's interval and McNemar's test against scipy's own."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedmoments.core.observations.observation import differences, mcnemar, student_interval


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=12))
def test_the_interval_is_students(values: list[float]) -> None:
    interval = student_interval(values)
    assert interval is not None
    error = stats.sem(values)
    low, high = stats.t.interval(0.95, len(values) - 1, np.mean(values), error) if error else (np.mean(values),) * 2
    assert (interval.low, interval.high) == pytest.approx((low, high), abs=1e-9)


@given(st.integers(0, 60), st.integers(0, 60))
def test_mcnemar_is_the_exact_binomial_test(only_first: int, only_second: int) -> None:
    total = only_first + only_second
    expected = stats.binomtest(only_first, total, 0.5).pvalue if total else 1.0
    assert mcnemar(only_first, only_second).probability == pytest.approx(min(expected, 1.0), abs=1e-12)


def test_only_seeds_that_both_have_are_compared() -> None:
    assert differences([0.9, 0.8, 0.7], [3, 4, 5], [0.5, None, 0.6], [4, 5, 3]) == pytest.approx([0.3, 0.3])
