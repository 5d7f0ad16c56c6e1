"""Attacks on scatter sketches: at full rank they succeed, and under the default policy they find less."""

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from fedmoments import Statistics, StatisticsSpec
from fedmoments.core.statistics import SketchPlan
from fedmoments.federation.policy import ClientPolicy
from fedmoments.privacy.leaks import EXPOSED, WEAK, LeakReport
from fedmoments.privacy.sketch_leaks import Exposure, measure_exposure, outlines_of, sketch_facts
from fedmoments.privacy.small_classes import limit_sketch

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
D = 16


def sketched(X: Floats, y: Ints, share: float = 1.0, code: str = "float64", rank: int = 999) -> Statistics:
    spec = StatisticsSpec.of("scatter_sketch", sketch=SketchPlan(None, rank=rank, code=code, share=share))
    return Statistics.of(X, y, spec, n_classes=int(y.max()) + 1)


def normal(n: int, dim: int = D, seed: int = 1) -> Floats:
    return np.random.default_rng(seed).normal(size=(n, dim))


# ---------------------------------------------------------------------------------------------- two samples


def pair(stats: Statistics) -> Floats:
    """The attack: one class of two samples among single ones; the only row is √2 times half of what they differ by."""
    (place,) = np.flatnonzero(stats.row_counts == 2)
    mean = stats.rows.block_means()[place]
    offset = stats.sketches.rows[0] / np.sqrt(2)
    return np.stack([mean + offset, mean - offset])


def test_both_samples_of_a_class_are_read_from_a_sketch_of_full_rank() -> None:
    X, y = normal(4), np.array([0, 1, 1, 2])
    sent = sketched(X, y)
    assert sent.sketches.sizes.tolist() == [1]
    found = pair(sent)
    assert min(np.abs(found - X[1:3]).max(), np.abs(found[::-1] - X[1:3]).max()) < 1e-6
    report = LeakReport.of(sent)
    assert report.about("pair") == 2
    assert [each.labels for each in report.findings if each.kind == "pair"] == [(1,)]
    rounded = pair(sketched(X, y, code="int8"))
    assert min(np.abs(rounded - X[1:3]).max(), np.abs(rounded[::-1] - X[1:3]).max()) < 0.02  # int8 hides nothing


def test_half_of_the_spare_samples_leave_no_row_for_a_pair() -> None:
    sent = sketched(normal(4), np.array([0, 1, 1, 2]), share=0.5)
    assert sent.sketches.sizes.tolist() == [0]
    assert LeakReport.of(sent).about("pair", "membership", "span") == 0


# ---------------------------------------------------------------------------------------------- membership


def spanned(stats: Statistics, samples: Floats, labels: Ints) -> Floats:
    """The attack: which part of what a known vector differs from its class mean by lies in the told directions."""
    gaps = samples - (stats.sums / np.maximum(stats.counts, 1)[:, None])[labels]
    right = np.linalg.qr(stats.sketches.rows.T)[0].T
    return np.asarray(np.square(gaps @ right.T).sum(axis=1) / np.square(gaps).sum(axis=1))


def auc(members: Floats, others: Floats) -> float:
    return float((members[:, None] > others).mean() + 0.5 * (members[:, None] == others).mean())


def test_membership_is_certain_at_full_rank() -> None:
    X, y, others = normal(12), np.repeat([0, 1], 6), normal(50, seed=2)
    sent = sketched(X, y)
    np.testing.assert_allclose(spanned(sent, X, y), 1.0)
    assert spanned(sent, others, np.arange(50) % 2).max() < 0.99
    report = LeakReport.of(sent)
    assert next((e.kind, e.severity) for e in report.findings) == ("membership", EXPOSED)
    assert report.exposes


def test_features_of_fewer_dimensions_are_told_whole_by_fewer_rows() -> None:
    flat = normal(12)
    flat[:, 4:] = 0.0
    sent = sketched(flat, np.repeat([0, 1], 6), share=0.5, code="int8")
    assert sent.sketches.sizes.tolist() == [4]  # of 10 spare samples
    assert LeakReport.of(sent).exposes


def test_above_d_spare_samples_a_whole_sketch_is_a_guess_as_a_gram_is() -> None:
    X, y = normal(40), np.zeros(40, np.int64)
    (found,) = [each for each in LeakReport.of(sketched(X, y)).findings if each.kind == "membership"]
    assert found.severity == WEAK
    assert "the whole scatter in d = 16" in found.sentence
    assert LeakReport.of(sketched(normal(4000), np.zeros(4000, np.int64))).about("membership", "span") == 0


@pytest.mark.parametrize(("share", "least", "most"), [(0.125, 0.6, 0.85), (0.25, 0.75, 0.93), (0.5, 0.9, 0.995)])
def test_membership_is_guessed_less_well_from_a_smaller_share(share: float, least: float, most: float) -> None:
    """Digits' pixels: 40 samples of four classes, and others of the same classes."""
    X, y = load_digits(return_X_y=True)
    found = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        groups = [rng.permutation(np.flatnonzero(y == label))[:20].reshape(2, 10) for label in range(4)]
        inside, outside = np.concatenate(groups, axis=1)
        sent = sketched(X[inside], y[inside], share)
        found.append(auc(spanned(sent, X[inside], y[inside]), spanned(sent, X[outside], y[outside])))
    assert least < np.mean(found) < most


def labelled(X: Floats, y: Ints, share: float = 1.0, rank: int = 999) -> Statistics:
    plan = SketchPlan(None, rank=rank, code="float64", share=share, rows="class")
    return Statistics.of(X, y, StatisticsSpec.of("scatter_sketch", sketch=plan), n_classes=int(y.max()) + 1)


def spanned_by_class(stats: Statistics, samples: Floats, labels: Ints) -> Floats:
    """The same attack with the rows of the vector's own class: one has to know, or try, its label."""
    found = np.zeros(len(labels))
    for (rows, _, _), label in zip(stats.sketches.blocks(), stats.sketches.labels.tolist(), strict=True):
        mine = labels == label
        gaps = samples[mine] - stats.sums[label] / stats.counts[label]
        right = np.linalg.qr(rows.T)[0].T
        found[mine] = np.square(gaps @ right.T).sum(axis=1) / np.square(gaps).sum(axis=1)
    return found


@pytest.mark.parametrize("share", [0.125, 0.25, 0.5])
def test_rows_of_a_class_tell_no_more_of_membership_than_as_many_rows_of_all_classes(share: float) -> None:
    """Digits' pixels: 84 samples of four classes."""
    X, y = load_digits(return_X_y=True)
    found = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        groups = [rng.permutation(np.flatnonzero(y == label))[:42].reshape(2, 21) for label in range(4)]
        inside, outside = np.concatenate(groups, axis=1)
        pooled, own = sketched(X[inside], y[inside], share), labelled(X[inside], y[inside], share)
        assert len(own.sketches.rows) <= len(pooled.sketches.rows)
        found.append(
            [
                auc(attack(sent, X[inside], y[inside]), attack(sent, X[outside], y[outside]))
                for attack, sent in ((spanned, pooled), (spanned_by_class, own))
            ]
        )
    by_all, by_class = np.mean(found, axis=0)
    assert by_class < by_all + 0.02
    assert {0.125: 0.6, 0.25: 0.75, 0.5: 0.9}[share] < by_class < 1.0


def test_a_pair_of_samples_has_a_row_of_its_own_class_at_full_rank_and_none_by_the_quarter() -> None:
    X, y = normal(9), np.array([0, 1, 1, 2, 2, 2, 2, 2, 2])
    whole = labelled(X, y)
    (place,) = np.flatnonzero(whole.sketches.labels == 1)
    row = whole.sketches.select(np.array([place])).rows[0] / np.sqrt(2)
    mean = X[1:3].mean(axis=0)
    assert min(np.abs(mean + row - X[1]).max(), np.abs(mean - row - X[1]).max()) < 1e-6
    report = LeakReport.of(whole)
    assert [finding.labels for finding in report.findings if finding.kind == "pair"] == [(1,)]
    quarter = limit_sketch(whole, 0.25, least=0)
    assert quarter.sketches.sizes.tolist() == [0, 0, 1]
    assert LeakReport.of(quarter).about("pair") == 0
    assert limit_sketch(whole).sketches.sizes.tolist() == [0, 0, 0]  # by the default policy: too few spare samples


def test_rows_of_a_small_class_are_nearer_to_single_samples_so_that_the_policy_counts_by_class() -> None:
    X, y = normal(60, dim=64), np.arange(60) % 12
    pooled, own = sketched(X, y, 0.25), labelled(X, y, 0.25)
    near = [LeakReport.of(sent).outline.measured(X, y, 0.25).sketches for sent in (pooled, own)]
    worst = [max(sketch.exposure.nearest for sketch in sketches if sketch.exposure) for sketches in near]
    assert worst[1] > worst[0] + 0.1
    assert ClientPolicy().limited(pooled).sketches.sizes.sum() == 12
    assert ClientPolicy().limited(own).sketches.sizes.sum() == 0


# ---------------------------------------------------------------------------------------------- what is told of samples


def naive(X: Floats, y: Ints, rows: Floats) -> Exposure:
    """The referee: one sample at a time, by least squares."""
    shares, nearest = [], 0.0
    for x, label in zip(X, y, strict=True):
        gap = x - X[y == label].mean(axis=0)
        if gap @ gap > 0:
            inside = rows.T @ np.linalg.lstsq(rows.T, gap, rcond=None)[0] if len(rows) else 0 * gap
            shares.append((inside @ inside) / (gap @ gap))
            nearest = max([nearest, *((gap @ row) ** 2 / (gap @ gap) / (row @ row) for row in rows)])
    return Exposure(float(np.mean(shares)), float(np.max(shares)), float(nearest))


@pytest.mark.parametrize("rank", [0, 1, 5, 40])
def test_law_what_is_told_equals_the_naive_referee(rank: int) -> None:
    X, y = normal(30), np.arange(30) % 3
    rows = sketched(X, y, rank=rank, code="int8").sketches.rows
    found, wanted = measure_exposure(X, y, rows), naive(X, y, rows)
    np.testing.assert_allclose(
        [found.mean, found.worst, found.nearest], [wanted.mean, wanted.worst, wanted.nearest], atol=1e-9
    )


def test_law_the_told_shares_weighted_by_energy_are_the_share_of_the_trace() -> None:
    X, y = normal(30) * np.linspace(3, 0.1, D), np.arange(30) % 3
    stats = sketched(X, y, rank=4)
    gaps = X - np.stack([X[y == label].mean(axis=0) for label in range(3)])[y]
    weights = np.square(gaps).sum(axis=1)
    (outline,) = outlines_of(stats)
    assert outline.energy is not None
    np.testing.assert_allclose(np.average(spanned(stats, X, y), weights=weights), outline.energy)
    assert outline.energy >= outline.share


def test_at_full_rank_every_sample_is_told_whole() -> None:
    X, y = normal(12), np.repeat([0, 1], 6)
    found = measure_exposure(X, y, sketched(X, y).sketches.rows)
    assert found.mean == pytest.approx(1.0)
    assert found.worst == pytest.approx(1.0)


def test_an_outlier_stands_in_a_row_by_itself_at_any_share() -> None:
    """The reason why small clients send no rows: a share bounds the average, not the one that sticks out."""
    X, y = normal(12) * 0.1, np.repeat([0, 1], 6)
    X[0] += 10.0
    sent = sketched(X, y, rank=1)
    assert measure_exposure(X, y, sent.sketches.rows).nearest > 0.99
    outline = LeakReport.of(sent).outline.measured(X, y)
    kinds = {each.kind: each.severity for each in LeakReport.of(outline).findings}
    assert kinds["outlier"] == EXPOSED
    calm = normal(12)
    quiet = LeakReport.of(LeakReport.of(sketched(calm, y, rank=1)).outline.measured(calm, y))
    assert quiet.about("outlier") == 0
    assert ClientPolicy().limited(sent).sketches.sizes.tolist() == [0]


def test_digits_that_leave_under_the_default_policy_are_told_in_part() -> None:
    X, y = load_digits(return_X_y=True)
    mine = np.random.default_rng(0).permutation(np.flatnonzero(y < 5))[:100]
    whole = sketched(X[mine], y[mine])
    half, quarter = (limit_sketch(whole, share) for share in (0.5, 0.25))
    shares = [measure_exposure(X[mine], y[mine], each.sketches.rows).mean for each in (whole, half, quarter)]
    assert shares[0] == pytest.approx(1.0)
    assert shares[0] > shares[1] > shares[2] > 0.25
    assert measure_exposure(X[mine], y[mine], quarter.sketches.rows).nearest < 0.9


# ---------------------------------------------------------------------------------------------- merged statistics


def test_merged_sketches_are_outlined_client_by_client() -> None:
    one = sketched(normal(12), np.repeat([0, 1], 6), rank=3)
    two = limit_sketch(sketched(normal(9), np.repeat([1, 1, 1], 3), rank=3), share=0.25, least=0)
    for merged in (one + two, two + one):
        found = sorted((each.rank, each.spare) for each in outlines_of(merged))
        assert found == [(2, 8), (3, 10)]
    facts = sketch_facts(one + two)
    assert facts is not None
    assert (facts["clients"], facts["rows"], facts["most"]) == (2, 5, 0.3)
    assert sketch_facts(Statistics.of(np.eye(2), [0, 0], StatisticsSpec(), n_classes=1)) is None
