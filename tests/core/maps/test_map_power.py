"""The power map, and the rule that says where it helps."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedmoments as fm
from fedmoments.core.maps import FeatureShape, Normalize, Power, from_description, named_map, recommended_map
from fedmoments.core.statistics import Statistics, StatisticsSpec
from fedmoments.errors import InputError

RNG = np.random.default_rng(0)
Y = np.arange(400) % 4


def relu_like(offset: float = 0.0) -> np.ndarray:
    """Non-negative, mostly small, sometimes large: as behind a ReLU."""
    return (RNG.exponential(size=(400, 16)) * (1.0 + np.eye(4, 16)[Y])) ** 2 + offset


@given(st.floats(0.1, 1.0), st.floats(0.1, 1.0))
def test_law_powers_compose_by_multiplying(p: float, q: float) -> None:
    X = RNG.normal(size=(5, 3))
    np.testing.assert_allclose((Power(p) | Power(q))(X), Power(p * q)(X), rtol=1e-12)


def test_power_keeps_zeros_and_signs_and_is_rebuilt_from_its_description() -> None:
    X = np.array([[0.0, -4.0, 9.0]])
    assert Power()(X).tolist() == [[0.0, -2.0, 3.0]]
    np.testing.assert_array_equal(Power(1.0)(X), X)
    chain = named_map("power")
    assert chain is not None
    assert from_description(chain.describe()) == chain == Power(0.5) | Normalize()
    assert np.isnan(Power()(np.array([[np.nan, 1.0]]))).any()


@pytest.mark.parametrize("wrong", [0.0, -1.0, 1.5, float("nan"), "half"])
def test_an_exponent_is_above_0_and_at_most_1(wrong: object) -> None:
    with pytest.raises(InputError, match="exponent"):
        Power(wrong)  # type: ignore[arg-type]


def test_the_rule_takes_skewed_features_without_a_negative_one() -> None:
    bounded = RNG.uniform(size=(400, 16))
    assert recommended_map([FeatureShape.of(relu_like(), Y)]) is not None
    assert recommended_map([FeatureShape.of(bounded, Y)]) is None
    assert recommended_map([FeatureShape.of(relu_like() - 0.5, Y)]) != named_map("power")
    assert recommended_map([]) is None
    assert FeatureShape.of(np.ones((3, 2)), np.zeros(3, int)).skewness == 0.0


def test_one_client_with_a_negative_feature_is_enough() -> None:
    others = [FeatureShape.of(relu_like(), Y) for _ in range(5)]
    one = FeatureShape.of(np.array([[-1e-9] + [1.0] * 15]), np.array([0]))
    assert recommended_map(others) == named_map("power")
    assert recommended_map([*others, one]) != named_map("power")


def test_fit_carries_the_map_that_was_named() -> None:
    X = relu_like()
    parties = {k: (X[k::8], Y[k::8]) for k in range(8)}
    named, chosen, plain = (fm.fit("lda-sketch", parties, feature_map=word) for word in ("power", "auto", "none"))
    assert named.feature_map == chosen.feature_map == named_map("power")
    assert plain.feature_map is None
    mapped = named_map("power")
    assert mapped is not None
    by_hand = fm.fit("lda-sketch", {k: (mapped(X[k::8]), Y[k::8]) for k in range(8)})
    np.testing.assert_array_equal(named.predict(X), by_hand.predict(mapped(X)))
    with pytest.raises(InputError, match="a map is one of none, power, length, auto"):
        fm.fit("fedcof", parties, feature_map="root")


def test_auto_cannot_look_at_what_was_measured_already() -> None:
    X = relu_like()
    stats = Statistics.of(X, Y, StatisticsSpec.of("gram"), n_classes=4)
    with pytest.raises(InputError, match="looks at features"):
        fm.fit("gh-lda", stats, feature_map="auto")


@pytest.mark.parametrize("clients", [1, 10, 100])
@pytest.mark.parametrize(("power", "skewed"), [(2.0, True), (0.5, False)])
def test_few_samples_a_client_do_not_change_the_rule(clients: int, power: float, skewed: bool) -> None:
    """Three or four samples of a class show less skewness than there is."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 800)
    X = rng.exponential(size=(800, 40)) ** power
    parts = [FeatureShape.of(X[k::clients], y[k::clients]) for k in range(clients)]
    assert (recommended_map(parts) is not None) == skewed


def test_clients_without_three_samples_of_a_class_tell_signs_alone() -> None:
    told = FeatureShape.of(relu_like(), Y)
    silent = FeatureShape.of(np.ones((2, told_width())), np.zeros(2, int))
    assert (silent.non_negative, silent.skewness, silent.n_samples) == (True, 0.0, 0)
    assert recommended_map([told, silent]) == named_map("power")
    assert recommended_map([silent]) is None
    negative = FeatureShape.of(-np.ones((1, told_width())), np.zeros(1, int))
    assert recommended_map([told, negative]) != named_map("power")


def told_width() -> int:
    return int(relu_like().shape[1])
