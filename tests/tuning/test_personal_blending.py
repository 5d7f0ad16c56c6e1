"""Laws of blended class means, and a naive referee of the leave-one-out in closed form."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedmoments as fm
from fedmoments.core.heads import make_head
from fedmoments.core.statistics import Statistics, StatisticsSpec
from fedmoments.errors import InputError
from fedmoments.tuning.blending import TAUS, blend, leave_one_out, means_of, statistics_of_means, translated
from fedmoments.tuning.personal import mask_to_labels

C, D = 4, 5
SEEDS = st.integers(0, 2**32)
NEAREST = {metric: make_head("fedncm", metric=metric) for metric in ("cosine", "euclidean")}
HEADS = ["fedncm", "fed3r", "gh-lda", "fedcof-oracle", "fedcgs"]


def drawn(seed: int, n: int = 60, classes: int = C) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    y = rng.integers(classes, size=n)
    return rng.normal(size=(n, D)) + 2 * np.eye(C, D)[y] + 1.0, y


def measured(X: Any, y: Any, *moments: str) -> Statistics:
    return Statistics.of(X, y, StatisticsSpec.of(*moments), n_classes=C)


# ---------------------------------------------------------------------------------------------- translation


@settings(max_examples=40, deadline=None)
@given(SEEDS, st.sampled_from([(), ("gram",), ("client_means",), ("gram", "client_means")]))
def test_translated_statistics_are_those_of_translated_samples(seed: int, moments: tuple[str, ...]) -> None:
    X, y = drawn(seed)
    shifts = np.random.default_rng(seed).normal(size=(C, D))
    clients = [slice(k, None, 3) for k in range(3)]
    merged = Statistics.merge(measured(X[k], y[k], *moments) for k in clients)
    expected = Statistics.merge(measured((X + shifts[y])[k], y[k], *moments) for k in clients)
    moved = translated(merged, shifts)
    assert moved.spec == expected.spec
    assert np.array_equal(moved.counts, expected.counts)
    for name in expected.arrays:
        np.testing.assert_allclose(moved.arrays[name], expected.arrays[name], rtol=1e-10, atol=1e-9)


def test_a_free_scatter_does_not_move_with_its_classes() -> None:
    plain = measured(*drawn(0))
    spec = StatisticsSpec.of("contributors", "free_scatter")
    scatter = np.arange(D * (D + 1) // 2 + 1.0)
    arrays = {**plain.arrays, "contributors": np.full((C, 1), 3.0), "free_scatter": scatter}
    moved = translated(Statistics(spec, C, D, plain.classes, plain.class_counts, arrays), np.ones((C, D)))
    assert np.array_equal(moved.global_array("free_scatter"), scatter)
    np.testing.assert_allclose(means_of(moved), means_of(plain) + 1)


def test_moments_that_cannot_be_moved_are_refused() -> None:
    with pytest.raises(InputError, match="hold class_grams: choose a head"):
        translated(measured(*drawn(0), "class_grams"), np.zeros((C, D)))


@pytest.mark.parametrize("shifts", [np.zeros((C, D + 1)), np.full((C, D), np.nan)])
def test_shifts_must_be_finite_and_one_a_class(shifts: Any) -> None:
    with pytest.raises(InputError, match="one row a class"):
        translated(measured(*drawn(0)), shifts)


# ---------------------------------------------------------------------------------------------- laws of the blend


@pytest.mark.parametrize("name", HEADS)
def test_no_weight_is_the_global_head(name: str) -> None:
    head = make_head(name)
    stats = Statistics.of(*drawn(1), head.needs, n_classes=C)
    assert blend(stats, *drawn(2, 10), beta=0.0).fit(head).digest() == head.fit(stats).digest()


@settings(max_examples=40, deadline=None)
@given(SEEDS, st.sampled_from(sorted(NEAREST)))
def test_full_weight_is_the_local_nearest_mean_on_local_classes(seed: int, metric: str) -> None:
    X, y = drawn(seed, 12, classes=3)
    head = NEAREST[metric]
    mine = mask_to_labels(blend(measured(*drawn(seed + 1, 200)), X, y, beta=1.0).fit(head), y.tolist())
    local = head.fit(measured(X, y))
    points = drawn(seed + 2)[0]
    assert np.array_equal(mine.present, local.present)
    assert np.array_equal(mine.predict(points), local.predict(points))


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("beta", [0.5, 1.0, "auto"])
def test_a_client_whose_means_are_the_global_ones_changes_nothing(name: str, beta: Any) -> None:
    head = make_head(name)
    X, y = drawn(3)
    stats = Statistics.of(X, y, head.needs, n_classes=C)
    twice = Statistics.merge([stats, stats])
    expected, found = (made.scores(X) for made in (head.fit(twice), blend(twice, X, y, beta=beta).fit(head)))
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("name", HEADS)
def test_a_blended_head_is_the_head_of_translated_samples(name: str) -> None:
    head = make_head(name)
    (X, y), (own, labels) = drawn(4, 200), drawn(5, 9, classes=2)
    found = blend(Statistics.of(X, y, head.needs, n_classes=C), own, labels, beta=0.3)
    shifts = np.zeros((C, D))
    for label in np.unique(labels):
        shifts[label] = 0.3 * (own[labels == label].mean(axis=0) - X[y == label].mean(axis=0))
    expected = head.fit(Statistics.of(X + shifts[y], y, head.needs, n_classes=C))
    np.testing.assert_allclose(found.fit(head).scores(X), expected.scores(X), rtol=1e-7, atol=1e-7)


@settings(max_examples=40, deadline=None)
@given(SEEDS, st.floats(1e-3, 1e3))
def test_features_that_are_scaled_leave_weights_and_predictions_as_they_are(seed: int, scale: float) -> None:
    (X, y), (own, labels), points = drawn(seed, 100), drawn(seed + 1, 20), drawn(seed + 2)[0]
    first, second = (blend(measured(s * X, y), s * own, labels) for s in (1.0, scale))
    assert first.tau == second.tau
    assert np.array_equal(first.betas, second.betas)
    plain, scaled = first.fit(NEAREST["cosine"]), second.fit(NEAREST["cosine"])
    assert np.array_equal(plain.predict(points), scaled.predict(scale * points))


def test_classes_that_the_client_lacks_keep_the_global_mean() -> None:
    stats = measured(*drawn(6))
    own, labels = drawn(7, 10, classes=2)
    found = blend(stats, own, labels, beta=0.7)
    assert found.betas.tolist() == [0.7, 0.7, 0.0, 0.0]
    assert np.array_equal(found.means[2:], means_of(stats)[2:])
    for label in (0, 1):
        expected = 0.3 * means_of(stats)[label] + 0.7 * own[labels == label].mean(axis=0)
        np.testing.assert_allclose(found.means[label], expected)


def test_automatic_weights_grow_with_the_samples_of_a_class() -> None:
    own, labels = drawn(8, 40)
    shifted = own + 20.0
    found = blend(measured(*drawn(9, 400)), shifted, labels, included=False)
    assert found.tau is not None
    np.testing.assert_allclose(found.betas, found.counts / (found.counts + found.tau))


def test_a_class_that_nobody_contributed_stays_unknown() -> None:
    stats = measured(*drawn(10, classes=3))
    found = blend(stats, [[1.0] * D, [2.0] * D], [3, 0], beta=1.0)
    assert found.betas.tolist() == [1.0, 0.0, 0.0, 0.0]
    assert found.fit(make_head("fedncm")).present.tolist() == [True, True, True, False]


def test_class_means_alone_serve_as_well_as_statistics() -> None:
    stats, points = measured(*drawn(11, classes=3)), drawn(12)[0]
    means = np.where(stats.counts[:, None] > 0, means_of(stats), np.nan)
    for head in NEAREST.values():
        first, second = (blend(each, *drawn(13, 9), beta=0.4).fit(head) for each in (stats, means))
        assert np.array_equal(first.present, second.present)
        assert np.array_equal(first.predict(points), second.predict(points))


def test_a_euclidean_nearest_mean_classifier_carries_the_means() -> None:
    X, y = drawn(14, classes=3)
    made = fm.fit("fedncm", {"a": (X, y)}, n_classes=C, metric="euclidean")
    found = means_of(made)
    np.testing.assert_allclose(found[:3], means_of(measured(X, y))[:3], atol=1e-12)
    assert np.isnan(found[3]).all()
    assert statistics_of_means(found).counts.tolist() == [1, 1, 1, 0]


@pytest.mark.parametrize("head", ["fedncm", "gh-lda"])
def test_a_classifier_without_means_is_refused(head: str) -> None:
    X, y = drawn(15)
    with pytest.raises(InputError, match="does not hold class means"):
        means_of(fm.fit(head, {"a": (X, y)}))


@pytest.mark.parametrize("beta", [-0.1, 1.5, math.nan, "often"])
def test_weights_outside_of_zero_to_one_are_refused(beta: Any) -> None:
    with pytest.raises(InputError, match="from 0 to 1 or 'auto'"):
        blend(measured(*drawn(0)), *drawn(1), beta=beta)


def test_features_of_another_encoder_are_refused() -> None:
    with pytest.raises(InputError, match="3 dimensions, but the federation's class means 5"):
        blend(measured(*drawn(0)), np.ones((2, 3)), [0, 1])


# ---------------------------------------------------------------------------------------------- leave-one-out


def naive(X: Any, y: Any, rest: tuple[Any, Any], tau: float, *, included: bool) -> float:
    """Leave every sample out in turn, blend anew, and add up its squared distance to the mean of its class."""
    others, labels = rest
    total = 0.0
    for i in range(len(y)):
        local = np.delete(X, i, axis=0)[np.delete(y, i) == y[i]]
        everybody = np.concatenate([others[labels == y[i]], local if included else np.zeros((0, D))])
        if not len(local) or not len(everybody):
            continue
        beta = len(local) / (len(local) + tau)
        mean = (1 - beta) * everybody.mean(axis=0) + beta * local.mean(axis=0)
        total += float(((X[i] - mean) ** 2).sum())
    return total


@pytest.mark.parametrize("included", [True, False])
@settings(max_examples=40, deadline=None)
@given(SEEDS, st.integers(1, 25))
def test_leave_one_out_is_what_leaving_out_each_sample_gives(included: bool, seed: int, n: int) -> None:
    (X, y), rest = drawn(seed, n, classes=3), drawn(seed + 1, 40)
    everybody = measured(np.concatenate([X, rest[0]]), np.concatenate([y, rest[1]])) if included else measured(*rest)
    held = [label for label in np.unique(y) if everybody.counts[label]]
    local = {label: X[y == label] for label in held}
    counts = [len(local[label]) for label in held]
    scatters = [((local[label] - local[label].mean(axis=0)) ** 2).sum() for label in held]
    means = means_of(everybody)
    distances = [((local[label].mean(axis=0) - means[label]) ** 2).sum() for label in held]
    totals = everybody.counts[held] if included else np.full(len(held), np.inf)
    found = leave_one_out(counts, scatters, distances, totals)
    expected = [naive(X, y, rest, tau, included=included) for tau in TAUS]
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


@settings(max_examples=40, deadline=None)
@given(SEEDS, st.booleans())
def test_automatic_weights_are_the_best_of_the_grid(seed: int, included: bool) -> None:
    (X, y), rest = drawn(seed, 30), drawn(seed + 1, 40)
    everybody = measured(np.concatenate([X, rest[0]]), np.concatenate([y, rest[1]])) if included else measured(*rest)
    found = blend(everybody, X, y, included=included)
    errors = {tau: naive(X, y, rest, tau, included=included) for tau in TAUS}
    assert found.tau is not None
    assert errors[found.tau] <= min(errors.values()) * (1 + 1e-6)


def test_a_client_of_single_samples_keeps_the_global_means() -> None:
    found = blend(measured(*drawn(16)), *(each[:1] for each in drawn(17)))
    assert (found.tau, found.betas.sum()) == (math.inf, 0.0)


def test_clients_that_differ_take_their_own_means_and_clients_that_do_not_keep_the_global_ones() -> None:
    rng = np.random.default_rng(18)
    chosen = {}
    for apart in (0.0, 3.0):
        parts = []
        for _ in range(10):
            X, y = drawn(int(rng.integers(2**31)), 60)
            parts.append((X + apart * rng.normal(size=D), y))
        stats = Statistics.merge(measured(*part) for part in parts)
        chosen[apart] = [float(blend(stats, *part).betas.mean()) for part in parts]
    assert max(chosen[0.0]) < 0.35 < 0.65 < min(chosen[3.0])


def test_the_notes_of_a_blended_head_are_plain() -> None:
    made = blend(measured(*drawn(19)), *drawn(20, 1)).fit(make_head("fedncm"))
    assert made.info["blend"] == {"tau": "inf", "mean_beta": 0.0, "samples": 1}
    made = blend(measured(*drawn(19)), *drawn(20, 9), beta=0.5).fit(make_head("fedncm"))
    assert made.info["blend"] == {"tau": None, "mean_beta": 0.5, "samples": 9}
