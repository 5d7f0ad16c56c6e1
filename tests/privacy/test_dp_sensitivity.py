"""Sensitivity: no pair of neighbours is farther apart than is claimed, and some pair is as far."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedmoments.core.linalg import pack_symmetric
from fedmoments.core.statistics import FixedPoint, Statistics, StatisticsSpec
from fedmoments.errors import InputError, PrivacyError, UnknownNameError
from fedmoments.privacy.dense import DenseLayout
from fedmoments.privacy.dp import plan, shares_of
from fedmoments.privacy.dp.noise_plan import MARGIN, ROUNDING_SCALE, require_additive
from fedmoments.privacy.dp.sensitivity import sample_sensitivity
from fedmoments.privacy.protection import Agreed

SPECS = [
    (),
    ("gram",),
    ("class_grams",),
    ("class_squares",),
    ("class_norms",),
    ("gram", "class_squares"),
    ("class_thirds", "class_fourths", "gram"),
]


def record(x: Any, label: Any, layout: Any, weights: Any) -> Any:
    """Return the weighted vector of one sample, written out: the naive way."""
    parts = []
    square = np.outer(x, x)
    for c in range(layout.n_classes):
        here = float(c == label)
        parts.append([weights["counts"] * here])
        naive = {
            "sums": x,
            "class_norms": [x @ x],
            "class_squares": x**2,
            "class_thirds": x**3,
            "class_fourths": x**4,
            "class_grams": square.ravel(),  # unpacked: its norm is the Frobenius norm
        }
        parts += [weights[name] * here * np.asarray(naive[name]) for name in layout.of_class]
    parts += [weights[name] * square.ravel() for name in layout.of_all]
    return np.concatenate(parts)


@st.composite
def releases(draw: Any) -> Any:
    spec = StatisticsSpec.of(*draw(st.sampled_from(SPECS)))
    layout = DenseLayout(spec, draw(st.integers(1, 3)), draw(st.integers(1, 4)))
    weights = {name: draw(st.floats(0.01, 3.0)) for name in ("counts", *spec.sent)}
    return layout, weights, draw(st.floats(0.3, 3.0))


def ball(rng: Any, dim: Any, norm: Any, n: Any) -> Any:
    """Return vectors of norms up to ``norm``, half of them on the sphere, some along axes."""
    x = rng.normal(size=(n, dim))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    x[: n // 8] = np.eye(dim)[rng.integers(dim, size=n // 8)] * rng.choice([-1, 1], size=(n // 8, 1))
    x[: n // 2] *= norm
    x[n // 2 :] *= norm * rng.random((n - n // 2, 1))
    return x


@given(releases(), st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_no_pair_of_neighbours_is_farther_apart_than_claimed(release: Any, seed: Any) -> None:
    layout, weights, norm = release
    rng = np.random.default_rng(seed)
    added = sample_sensitivity(layout, weights, norm, "add-remove")
    replaced = sample_sensitivity(layout, weights, norm, "replace")
    for x, other in zip(ball(rng, layout.dim, norm, 16), rng.permutation(ball(rng, layout.dim, norm, 16)), strict=True):
        labels = rng.integers(layout.n_classes, size=2)
        one, two = record(x, labels[0], layout, weights), record(other, labels[1], layout, weights)
        assert np.linalg.norm(one) <= added * (1 + 1e-12)
        assert np.linalg.norm(one - two) <= replaced * (1 + 1e-12)
        opposite = record(-x, labels[0], layout, weights)
        assert np.linalg.norm(one - opposite) <= replaced * (1 + 1e-12)


def farthest(layout: Any, weights: Any, norm: Any) -> Any:
    """Return the largest distance that a brute-force search over pairs in a plane finds."""
    best = 0.0
    for label in range(min(layout.n_classes, 2)):
        for angle in np.linspace(0, math.pi, 61):
            for turn in np.linspace(0, math.pi / 2, 19):
                x, other = np.zeros(layout.dim), np.zeros(layout.dim)
                x[:2] = norm * math.cos(turn), norm * math.sin(turn)
                other[:2] = norm * math.cos(turn + angle), norm * math.sin(turn + angle)
                gap = record(x, 0, layout, weights) - record(other, label, layout, weights)
                best = max(best, float(np.linalg.norm(gap)))
    return best


@pytest.mark.parametrize("moments", [(), ("gram",), ("class_grams",), ("class_squares",)])
@pytest.mark.parametrize(("counts", "second"), [(1.0, 1.0), (0.05, 0.4), (0.05, 2.0)])
@pytest.mark.parametrize("classes", [1, 2])
def test_brute_force_finds_a_pair_as_far_apart_as_claimed(moments: Any, counts: Any, second: Any, classes: Any) -> None:
    layout = DenseLayout(StatisticsSpec.of(*moments), classes, 2)
    weights = {"counts": counts, "sums": 1.0, **dict.fromkeys(moments, second)}
    claimed = sample_sensitivity(layout, weights, 1.3, "replace")
    assert 0.995 * claimed <= farthest(layout, weights, 1.3) <= claimed * (1 + 1e-12)
    alone = np.linalg.norm(record(np.array([1.3, 0.0]), 0, layout, weights))
    assert math.isclose(alone, sample_sensitivity(layout, weights, 1.3, "add-remove"))


def test_unit_weights_give_the_known_figures() -> None:
    layout = DenseLayout(StatisticsSpec.of("gram"), 5, 8)
    unit = {"counts": 1.0, "sums": 1.0, "gram": 1.0}
    assert math.isclose(sample_sensitivity(layout, unit, 1.0, "add-remove"), math.sqrt(3))
    assert math.isclose(sample_sensitivity(layout, unit, 1.0, "replace"), math.sqrt(6))
    # One class: the counts cancel, and t = −1/2 is the worst cosine.
    assert math.isclose(sample_sensitivity(DenseLayout(layout.spec, 1, 8), unit, 1.0, "replace"), math.sqrt(4.5))


def weighted(vector: Any, made: Any) -> Any:
    """Return a difference of dense vectors in weighted units: by the noise itself, less that of discreteness."""
    scales = np.sqrt(made.grid_scales()[made.layout.n_classes :] ** 2 - ROUNDING_SCALE**2)
    return made.sigma * vector[made.layout.n_classes :] / scales


@given(st.sampled_from(SPECS), st.integers(0, 2**32 - 1), st.sampled_from(["add-remove", "replace"]))
@settings(max_examples=40, deadline=None)
def test_the_fixed_point_vectors_of_neighbours_stay_within_the_claim(moments: Any, seed: Any, neighbours: Any) -> None:
    """Through the real measuring: float32 features, rounding of sums, packing, √2 on off-diagonals."""
    rng = np.random.default_rng(seed)
    form, spec = FixedPoint(1.0, 500), StatisticsSpec.of(*moments)
    layout = DenseLayout(spec, 2, 3)
    made = plan(layout, form, Agreed(epsilon=1.0, neighbours=neighbours))
    X = rng.normal(size=(12, 3)).astype(np.float32)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    y = rng.integers(2, size=12)

    def packed(rows: Any) -> Any:
        return layout.pack(Statistics.of(X[rows], y[rows], spec, n_classes=2, fixed_point=form))

    base = list(range(10))
    other = [*base, 10] if neighbours == "add-remove" else [*base[:-1], 11]
    gap = layout.signed(packed(other) - packed(base)).astype(float)
    assert np.linalg.norm(weighted(gap, made)) <= made.sensitivity * (1 + 1e-9)


@given(st.integers(1, 6), st.integers(0, 2**32 - 1))
@settings(max_examples=30, deadline=None)
def test_packed_differences_have_the_frobenius_norm(dim: Any, seed: Any) -> None:
    rng = np.random.default_rng(seed)
    one, two = rng.normal(size=(2, dim, dim))
    gap = one + one.T - two - two.T
    layout = DenseLayout(StatisticsSpec.of("gram"), 1, dim)
    made = plan(layout, FixedPoint(1.0, 1000), Agreed(epsilon=1.0, budget="equal"))
    scales = made.grid_scales()[layout.global_block]
    assert math.isclose(np.linalg.norm(pack_symmetric(gap) / scales), np.linalg.norm(gap) / scales[0], rel_tol=1e-9)


def test_slack_and_rounding_are_part_of_the_sensitivity() -> None:
    layout, form = DenseLayout(StatisticsSpec.of("gram"), 3, 4), FixedPoint(1.0, 1000)
    made = plan(layout, form, Agreed(epsilon=1.0, budget="equal"))
    # Weights are for the largest norm that slack allows: a norm of 1 + 1e-5 has a distance of 1, and no more.
    assert math.isclose(made.weights["gram"], math.sqrt(1 / 3) / (1 + 1e-5) ** 2)
    assert 1.0 < made.sensitivity < 1 + 1e-9
    coarse = plan(layout, FixedPoint(1e6, 2**40), Agreed(epsilon=1.0, clip=1e6))
    assert coarse.sensitivity > 1 + 1e-10


def test_a_larger_clip_norm_scales_every_moment_by_its_degree() -> None:
    layout = DenseLayout(StatisticsSpec.of("gram"), 3, 4)
    one = plan(layout, FixedPoint(1.0, 10**6), Agreed(epsilon=1.0)).sigmas
    three = plan(layout, FixedPoint(3.0, 10**6), Agreed(epsilon=1.0, clip=3.0)).sigmas
    assert [round(three[name] / one[name], 6) for name in one] == [1.0, 3.0, 9.0]


def test_noise_is_the_claimed_ratio_times_sensitivity_over_weight() -> None:
    layout, form = DenseLayout(StatisticsSpec.of("gram"), 3, 4), FixedPoint(1.0, 10**6)
    made = plan(layout, form, Agreed(epsilon=2.0, budget="counts=0.1,sums=1,second=0.5"))
    for name in ("sums", "gram"):
        sigma = made.ratio * made.sensitivity * (1 + MARGIN) / made.weights[name]
        assert math.isclose(made.sigmas[name], sigma, rel_tol=1e-9)
    assert math.isclose(made.sigmas["counts"] ** 2, (made.sigma / made.weights["counts"]) ** 2 + 1.5**2)
    assert made.describe()["noise"] == made.sigmas
    assert math.isclose(made.weights["gram"] / made.weights["sums"], 0.5, rel_tol=1e-4)


@pytest.mark.parametrize("moments", SPECS)
@pytest.mark.parametrize(("classes", "dim"), [(2, 512), (77, 128), (1203, 1280)])
def test_automatic_shares_follow_the_rule_and_add_up(moments: Any, classes: Any, dim: Any) -> None:
    layout = DenseLayout(StatisticsSpec.of(*moments), classes, dim)
    shares = shares_of("automatic", layout)
    assert math.isclose(sum(shares.values()), 1.0)
    assert max(shares.values()) == shares["sums"]
    assert math.isclose(shares["counts"] / shares["sums"], dim**-0.5)
    if "gram" in layout.spec.sent:
        assert math.isclose(shares["gram"] / shares["sums"], min(1.0, dim**0.5 / classes))


@pytest.mark.parametrize(
    ("word", "error", "message"),
    [
        ("counts=0.1,sums", InputError, "one weight above 0 for each part"),
        ("counts=0.1,sums=-1", InputError, "one weight above 0"),
        ("counts=0.1,counts=1", InputError, "one weight above 0"),
        ("count=1", UnknownNameError, "did you mean 'counts'"),
        ("counts=1,sums=1", InputError, "gives no weight to second"),
        ("", UnknownNameError, "part of a budget"),
    ],
)
def test_a_budget_that_cannot_be_read_is_refused(word: Any, error: Any, message: Any) -> None:
    with pytest.raises(error, match=message):
        shares_of(word, DenseLayout(StatisticsSpec.of("gram"), 3, 4))


def test_client_means_are_refused_and_no_epsilon_is_an_error() -> None:
    with pytest.raises(PrivacyError, match="fedcof-oracle"):
        require_additive(StatisticsSpec.of("client_means"))
    with pytest.raises(InputError, match="no epsilon was agreed on"):
        plan(DenseLayout(StatisticsSpec(), 2, 2), FixedPoint(1.0, 100), Agreed())
