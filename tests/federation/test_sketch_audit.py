"""The audit of a contribution with a scatter sketch: from labels alone, and measured where features are at hand."""

import numpy as np
import pytest

from fedmoments import Statistics, StatisticsSpec
from fedmoments.core.statistics import SketchPlan
from fedmoments.federation.audit import Audit
from fedmoments.federation.policy import ClientPolicy
from fedmoments.privacy.leaks import LeakReport
from fedmoments.privacy.sketch_leaks import measure_exposure

D = 32
WIDE = StatisticsSpec.of("scatter_sketch", sketch=SketchPlan(None, rank=D, share=1.0))
Y = np.repeat([0, 1, 2], [20, 11, 3])
X = np.random.default_rng(0).normal(size=(len(Y), D)) * np.linspace(2.0, 0.1, D)


def sentence(report: LeakReport, kind: str) -> str:
    return next(each.sentence for each in report.findings if each.kind == kind)


def test_labels_alone_tell_the_rank_before_and_after_the_policy() -> None:
    audit = Audit.of(Y, WIDE, D, ClientPolicy())
    (before,), (after,) = audit.before.outline.sketches, audit.after.outline.sketches
    assert (before.rank, before.spare) == (31, 31)  # 34 samples of 3 classes
    assert (after.rank, after.spare) == (7, 29)  # 31 of 2, and a quarter of what is to spare
    assert audit.before.exposes
    assert "the whole scatter of n − |C| = 31 samples, fewer than d = 32" in sentence(audit.before, "membership")
    assert not audit.after.exposes
    assert "7 of the n − |C| = 29 directions" in sentence(audit.after, "span")
    assert "hold 24% of all differences or more" in sentence(audit.after, "span")


def test_features_at_hand_make_it_a_measurement() -> None:
    audit = Audit.of(Y, WIDE, D, ClientPolicy(), features=X)
    mask, _ = ClientPolicy().select(Y)
    sent = ClientPolicy().limited(Statistics.of(X[mask], Y[mask], WIDE, n_classes=3))
    wanted = measure_exposure(X[mask], Y[mask], sent.sketches.rows)
    (after,) = audit.after.outline.sketches
    assert after.exposure == wanted
    assert f"{wanted.mean:.0%} of a sample's difference on average and {wanted.worst:.0%} at worst" in sentence(
        audit.after, "span"
    )
    assert audit.to_dict()["after"]["sketches"] == [after.to_dict()]
    assert after.to_dict()["told"]["worst"] == wanted.worst
    assert after.energy is not None
    assert after.energy >= after.share


@pytest.mark.parametrize("features", [None, X])
def test_a_refusing_policy_lets_nothing_out_of_a_small_client(features: np.ndarray | None) -> None:
    policy = ClientPolicy(small_sketches="refuse", sketch_spare=30)
    audit = Audit.of(Y, WIDE, D, policy, features=features)
    assert audit.after.findings == ()
    assert audit.withheld.samples == len(Y)
    kept = Audit.of(Y, StatisticsSpec.of("client_means"), D, policy)
    assert kept.withheld.samples == 3


def test_a_small_client_sends_the_trace_alone() -> None:
    audit = Audit.of(Y, WIDE, D, ClientPolicy(sketch_spare=30), features=X)
    (after,) = audit.after.outline.sketches
    assert (after.rank, after.energy) == (0, 0.0)
    assert audit.after.about("span", "membership", "outlier") == 0


def test_beside_a_gram_a_sketch_tells_nothing_new_of_pairs_and_membership() -> None:
    spec = StatisticsSpec(WIDE.moments | {"gram"}, sketch=WIDE.sketch)
    kinds = [each.kind for each in LeakReport.of_labels([0, 0, 1], spec, D).findings]
    assert kinds.count("pair") == kinds.count("membership") == 1


def test_what_was_measured_is_reported_by_its_numbers() -> None:
    stats = ClientPolicy().limited(Statistics.of(X, Y, WIDE, n_classes=3))
    report = LeakReport.of(stats)
    (sketch,) = report.outline.sketches
    energy = 1 - stats.sketch_residuals[0] / stats.sketches.trace
    assert sketch.energy == pytest.approx(energy)
    assert f"which hold {energy:.0%} of all differences" in sentence(report, "span")
    both = LeakReport.of(stats + stats)
    assert len(both.outline.sketches) == 2
    assert both.about("span") == 2 * 31
