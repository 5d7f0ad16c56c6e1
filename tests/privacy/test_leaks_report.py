"""The leak report finds what the attacks find, and under the default rule no feature vector is exposed."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmoments import Statistics, StatisticsSpec
from fedmoments.core.statistics import MOMENTS
from fedmoments.errors import InputError
from fedmoments.federation.audit import Audit
from fedmoments.federation.policy import ClientPolicy
from fedmoments.privacy.leaks import EXPOSED, WEAK, LeakReport
from fedmoments.privacy.outline import Outline

LABELS = st.lists(st.integers(0, 4), max_size=60)
SPECS = st.builds(
    lambda names, shares: (
        StatisticsSpec.of(*names, "client_means", means_per_client=shares) if shares > 1 else StatisticsSpec.of(*names)
    ),
    st.sets(st.sampled_from(sorted(MOMENTS))),
    st.integers(1, 4),
)


def kinds(report: LeakReport, severity: str) -> dict[str, tuple[int, ...]]:
    return {each.kind: each.labels for each in report.findings if each.severity == severity}


@given(LABELS, SPECS)
def test_an_outline_of_labels_is_that_of_what_is_measured(labels: list[int], spec: StatisticsSpec) -> None:
    stats = Statistics.of(np.ones((len(labels), 2)), np.array(labels, np.int64), spec, n_classes=5)
    from_labels, from_stats = Outline.of_labels(np.array(labels, int), spec, 2), Outline.of(stats)
    assert from_labels.counts == from_stats.counts
    assert {k: sorted(v) for k, v in from_labels.rows.items()} == {k: sorted(v) for k, v in from_stats.rows.items()}


@given(LABELS, SPECS, st.integers(5, 9))
def test_no_feature_vector_is_exposed_by_what_a_policy_of_five_or_more_lets_out(
    labels: list[int], spec: StatisticsSpec, least: int
) -> None:
    for small in ("withhold", "merge"):
        audit = Audit.of(np.array(labels, int), spec, 2, ClientPolicy(min_count=least, small_classes=small))
        assert audit.after.about("sample", "pair", "values", "few") == 0


@given(LABELS)
def test_every_sample_is_kept_back_or_counted(labels: list[int]) -> None:
    audit = Audit.of(np.array(labels, int), StatisticsSpec(), 2)
    assert audit.withheld.samples + audit.after.outline.n_samples == len(labels)
    assert audit.withheld.classes + len(audit.after.outline.counts) == len(set(labels))


def test_a_single_sample_is_exposed_whatever_is_measured() -> None:
    for name in MOMENTS:
        report = LeakReport.of_labels([0, 1, 1, 1, 1, 1], StatisticsSpec.of(name), 2)
        assert kinds(report, EXPOSED)["sample"] == (0,)


def test_two_samples_are_exposed_by_their_own_second_moment_only() -> None:
    labels = [0] * 2 + [1] * 2 + [2] * 9
    exposed = kinds(LeakReport.of_labels(labels, StatisticsSpec.of("class_grams"), 2), EXPOSED)
    assert exposed["pair"] == (0, 1)
    assert "values" not in exposed
    assert kinds(LeakReport.of_labels(labels, StatisticsSpec.of("class_squares"), 2), EXPOSED) == {"values": (0, 1)}
    assert not LeakReport.of_labels(labels, StatisticsSpec.of("gram"), 2).exposes
    assert not LeakReport.of_labels(labels, StatisticsSpec.of("class_norms"), 2).exposes
    alone = LeakReport.of_labels([0, 1, 1, 2], StatisticsSpec.of("gram"), 3)
    assert kinds(alone, EXPOSED)["pair"] == (1,)


def test_power_sums_expose_as_many_samples_as_they_have_degrees() -> None:
    labels = [0] * 3 + [1] * 4 + [2] * 5
    third, fourth = ("class_squares", "class_thirds"), ("class_squares", "class_thirds", "class_fourths")
    for moments, found in ((third, (0,)), (fourth, (0, 1)), (("class_fourths",), None)):
        report = LeakReport.of_labels(labels, StatisticsSpec.of(*moments), 64)
        assert kinds(report, EXPOSED).get("values") == found


def test_two_samples_follow_from_sums_and_third_powers_without_squares() -> None:
    """x + y and x³ + y³ give xy = (s³ − t)/(3s), and so both values of every coordinate."""
    spec, X = StatisticsSpec.of("class_thirds"), np.random.default_rng(0).normal(size=(2, 5))
    stats = Statistics.of(X, [0, 0], spec, n_classes=1)
    s, t = stats.class_array("sums")[0], stats.class_array("class_thirds")[0]
    roots = [np.sort(np.roots([1.0, -a, (a**3 - b) / (3 * a)]).real) for a, b in zip(s, t, strict=True)]
    np.testing.assert_allclose(np.array(roots).T, np.sort(X, axis=0), atol=1e-6)
    assert kinds(LeakReport.of(stats), EXPOSED) == {"values": (0,)}


@pytest.mark.parametrize(("n", "severity"), [(8, EXPOSED), (9, WEAK), (249, WEAK), (250, None)])
def test_membership_depends_on_samples_and_dimension(n: int, severity: str | None) -> None:
    report = LeakReport.of_labels([0] * n, StatisticsSpec.of("gram"), 8)
    assert [each.severity for each in report.findings if each.kind == "membership"] == ([severity] if severity else [])


def test_class_grams_are_judged_class_by_class() -> None:
    report = LeakReport.of_labels([0] * 300 + [1] * 7 + [2] * 100, StatisticsSpec.of("class_grams"), 8)
    found = {each.severity: (each.labels, each.samples) for each in report.findings if each.kind == "membership"}
    assert found == {EXPOSED: ((1,), 7), WEAK: ((2,), 100)}


def test_a_report_is_ready_for_json_and_tables() -> None:
    report = LeakReport.of_labels([0, 1, 1], StatisticsSpec(), 2, class_names=("cat", "dog"))
    document = json.loads(json.dumps(report.to_dict()))
    assert [each["classes"] for each in document["findings"]] == [["cat"], ["dog"], ["cat", "dog"]]
    assert all(len(row) == 4 for row in report.rows())
    many = LeakReport.of_labels(np.arange(9), StatisticsSpec(), 2)
    assert many.findings[0].sentence.endswith("classes '0', '1', '2', '3', '4' and 4 more")


def test_nothing_reveals_nothing() -> None:
    report = LeakReport.of(Statistics.zero(StatisticsSpec.of("gram"), n_classes=3, dim=2))
    assert report.findings == ()
    assert not report.exposes


def test_wrong_input_is_refused() -> None:
    with pytest.raises(InputError, match="2 class names, but a class has the number 4"):
        LeakReport.of_labels([4], StatisticsSpec(), 2, class_names=("a", "b"))
    with pytest.raises(InputError, match="min_count must be 1 or more"):
        LeakReport.of_labels([4], StatisticsSpec(), 2, min_count=0)
    with pytest.raises(InputError, match="one whole number a sample"):
        LeakReport.of_labels([0.5], StatisticsSpec(), 2)


def test_moments_that_no_client_measures_are_not_audited() -> None:
    with pytest.raises(InputError, match="no client measures free_scatter"):
        LeakReport.of_labels([0, 0], StatisticsSpec.of("free_scatter"), 2)
