"""Client-level privacy: no client's contribution exceeds the public norm, whatever it holds."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedmoments.core.heads.registry import make_head
from fedmoments.core.statistics import FixedPoint, Statistics, StatisticsSpec
from fedmoments.errors import InputError
from fedmoments.privacy.dense import DenseLayout
from fedmoments.privacy.dp import Accountant, Stream, clip_client, plan, release
from fedmoments.privacy.dp.client_clip import weighted_norm
from fedmoments.privacy.dp.noise_plan import ROUNDING_SCALE
from fedmoments.privacy.protection import Agreed

pytest.importorskip("cryptography")
pytest.importorskip("dp_accounting")

FORM = FixedPoint(1.0, 10**5)


def contribution(seed: Any, n: Any, n_classes: Any, dim: Any, *moments: Any) -> Any:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, dim)) + rng.normal(size=dim)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    y = rng.integers(n_classes, size=n)
    return Statistics.of(X, y, StatisticsSpec.of(*moments), n_classes=n_classes, fixed_point=FORM)


def naive_norm(stats: Any, made: Any) -> Any:
    """Return the norm of the weighted dense vector, entry by entry: by the noise itself, less that of discreteness."""
    scales = np.sqrt(made.grid_scales()[stats.n_classes :] ** 2 - ROUNDING_SCALE**2)
    vector = made.layout.signed(made.layout.pack(stats))[stats.n_classes :]
    return float(np.linalg.norm(made.sigma * vector / scales))


@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 200),
    st.integers(1, 12),
    st.floats(2.5, 20.0),
    st.sampled_from([(), ("class_squares",), ("class_grams",), ("gram",)]),
)
@settings(max_examples=60, deadline=None)
def test_no_contribution_exceeds_the_public_norm_and_what_is_within_is_left_alone(
    seed: Any, n: Any, classes: Any, bound: Any, moments: Any
) -> None:
    stats = contribution(seed, n, classes, 3, *moments)
    bound = max(bound, 2 * math.sqrt(classes)) if "gram" in moments else bound  # room for all counts
    agreed = Agreed(epsilon=1.0, unit="client", client_norm=bound)
    layout = DenseLayout(stats.spec, classes, 3)
    made = plan(layout, FORM, agreed)
    clipped = clip_client(stats, agreed)
    assert naive_norm(clipped, made) <= bound * (1 + 1e-9)
    if weighted_norm(stats, made) <= bound:
        assert clipped == stats
    else:
        assert naive_norm(clipped, made) > 0.4 * bound


def test_a_clipped_contribution_is_one_that_a_client_could_have_sent() -> None:
    stats = contribution(0, 300, 4, 3, "gram")
    clipped = clip_client(stats, Agreed(epsilon=1.0, unit="client", client_norm=12.0))
    assert clipped.classes.tolist() == stats.classes.tolist()
    assert clipped.n_samples < stats.n_samples
    means = clipped.class_array("sums") / clipped.class_counts[:, None]
    before = stats.class_array("sums") / stats.class_counts[:, None]
    assert (np.linalg.norm(means, axis=1) <= np.linalg.norm(before, axis=1) + 1e-9).all()
    cosines = (means * before).sum(axis=1) / np.linalg.norm(means, axis=1) / np.linalg.norm(before, axis=1)
    assert np.allclose(cosines, 1.0)
    scatter = clipped.gram - (clipped.sums / clipped.counts[:, None]).T @ clipped.sums
    assert np.linalg.eigvalsh(scatter)[0] > -1e-9
    assert np.trace(clipped.gram) <= clipped.n_samples


def test_a_client_of_very_many_classes_keeps_the_largest() -> None:
    rng = np.random.default_rng(0)
    y = np.concatenate([np.arange(300), np.repeat([7, 9], 40)])
    X = np.ones((len(y), 2)) / math.sqrt(2)
    stats = Statistics.of(X, rng.permutation(y), StatisticsSpec(), n_classes=300, fixed_point=FORM)
    clipped = clip_client(stats, Agreed(epsilon=1.0, unit="client", client_norm=4.0))
    assert len(clipped.classes) < 300
    assert {7, 9} <= set(clipped.classes.tolist())


def test_the_norm_must_have_room_for_the_counts() -> None:
    agreed = Agreed(epsilon=1.0, unit="client", client_norm=1.0)
    with pytest.raises(InputError, match="counts of 50 classes alone can take"):
        plan(DenseLayout(StatisticsSpec.of("gram"), 50, 4), FORM, agreed)


@pytest.mark.parametrize("classes", range(2, 40))
def test_the_least_norm_that_has_room_keeps_all_classes_and_the_whole_gram(classes: Any) -> None:
    layout = DenseLayout(StatisticsSpec.of("gram"), classes, 3)
    room = 2.0 * plan(layout, FORM, Agreed(epsilon=1.0)).weights["counts"] * math.sqrt(classes)
    stats = contribution(classes, 40 * classes, classes, 3, "gram")
    agreed = Agreed(epsilon=1.0, unit="client", client_norm=room)
    clipped = clip_client(stats, agreed)
    assert clipped.classes.tolist() == stats.classes.tolist()
    assert naive_norm(clipped, plan(layout, FORM, agreed)) <= room * (1 + 1e-9)


def test_the_norm_that_the_refusal_names_is_enough() -> None:
    for classes in range(2, 60):
        layout = DenseLayout(StatisticsSpec.of("gram"), classes, 4)
        with pytest.raises(InputError, match="agree on") as refused:
            plan(layout, FORM, Agreed(epsilon=1.0, unit="client", client_norm=0.01))
        named = float(str(refused.value).split("agree on ")[1].split()[0])
        plan(layout, FORM, Agreed(epsilon=1.0, unit="client", client_norm=named))


@pytest.mark.parametrize(("neighbours", "factor"), [("add-remove", 1.0), ("replace", 2.0)])
def test_the_sensitivity_of_a_client_is_the_norm(neighbours: Any, factor: Any) -> None:
    agreed = Agreed(epsilon=1.0, unit="client", client_norm=5.0, neighbours=neighbours)
    assert plan(DenseLayout(StatisticsSpec(), 3, 4), FORM, agreed).sensitivity == 5.0 * factor


def test_statistics_without_a_norm_or_in_floats_are_refused() -> None:
    stats = contribution(0, 10, 2, 2)
    with pytest.raises(InputError, match="client_norm None arrived"):
        clip_client(stats, Agreed(epsilon=1.0))
    with pytest.raises(InputError, match="in fixed point is clipped"):
        clip_client(stats.to_float(), Agreed(epsilon=1.0, unit="client", client_norm=5.0))


def test_nearest_mean_is_useful_with_many_clients_and_not_with_few() -> None:
    rng = np.random.default_rng(0)
    means = rng.normal(size=(10, 16))
    means /= np.linalg.norm(means, axis=1, keepdims=True)

    def draw(n: Any) -> Any:
        y = rng.integers(10, size=n)
        X = means[y] + 0.25 * rng.normal(size=(n, 16))
        return X / np.linalg.norm(X, axis=1, keepdims=True), y

    T, t = draw(400)
    agreed, head, reached = Agreed(epsilon=2.0, unit="client", client_norm=3.0), make_head("fedncm"), {}
    for clients in (30, 1500):
        dealt = (draw(8) for _ in range(clients))
        parts = [Statistics.of(X, y, head.needs, n_classes=10, fixed_point=FORM) for X, y in dealt]
        merged = Statistics.merge([clip_client(part, agreed) for part in parts])
        out = release(merged, agreed, Accountant(2.0, 1e-5), Stream(bytes(32))).statistics
        reached[clients] = float((head.fit(out).predict(T) == t).mean())
    assert reached[1500] > 0.9
    assert reached[30] < 0.6
