"""The temperature: sums against plain loops, additive over clients, chosen as on pooled data."""

import numpy as np
import pytest
from tests.tuning.probing_workshop import CLASSES, DIM, clients, sample_gradient, start

from fedmoments.core.classifier import LinearClassifier
from fedmoments.errors import InputError, NotEnoughDataError
from fedmoments.tuning.start import Start
from fedmoments.tuning.temperature import TEMPERATURES, best_temperature, choose_temperature, cross_entropy_sums


@pytest.mark.parametrize("kind", ["linear", "diagonal", "quadratic", "low-rank"])
def test_sums_equal_plain_loops(kind: str) -> None:
    head, (X, y) = start(kind), clients()["big"]
    scores, grid = head.classifier.scores(X), [0.3, 1.0, 7.0]
    expected = [
        sum(sample_gradient(list(scores[i]), int(y[i]), temperature)[0] for i in range(len(y))) for temperature in grid
    ]
    np.testing.assert_allclose(cross_entropy_sums(head, X, y, grid), expected, rtol=1e-9)


def test_law_sums_add_up_over_clients_and_choose_as_pooled_data() -> None:
    head, parts = start(), clients()
    X, y = (np.concatenate([part[i] for part in parts.values()]) for i in (0, 1))
    apart = sum(cross_entropy_sums(head, *part) for part in parts.values())
    np.testing.assert_allclose(apart, cross_entropy_sums(head, X, y), rtol=1e-12)
    chosen, pooled = choose_temperature(head, parts.values()), choose_temperature(head, [(X, y)])
    assert chosen.temperature == pooled.temperature
    assert tuple(chosen.table) == TEMPERATURES
    np.testing.assert_allclose(list(chosen.table.values()), apart, rtol=1e-12)
    assert chosen.table[chosen.temperature] == min(chosen.table.values())


@pytest.mark.parametrize("factor", [0.1, 10.0])
def test_law_a_head_that_is_scaled_wants_a_temperature_that_is_scaled(factor: float) -> None:
    (X, y), rng = clients()["big"], np.random.default_rng(0)
    weights = rng.normal(size=(DIM, CLASSES))
    heads = [
        Start("head", LinearClassifier(weights=scale * weights, bias=np.zeros(CLASSES), present=np.ones(CLASSES, bool)))
        for scale in (1.0, factor)
    ]
    plain, scaled = (choose_temperature(head, [(X, y)], [0.1, 0.316, 1.0, 3.16, 10.0, 31.6, 100.0]) for head in heads)
    assert 0.1 < plain.temperature < 100
    assert scaled.temperature == pytest.approx(factor * plain.temperature, rel=1e-2)


def test_the_grid_has_the_usual_temperatures() -> None:
    assert {0.01, 0.1, 1.0, 10.0} <= set(TEMPERATURES)
    assert list(TEMPERATURES) == sorted(TEMPERATURES)


def test_of_equal_sums_the_largest_temperature_is_chosen() -> None:
    flat = LinearClassifier(weights=np.zeros((DIM, CLASSES)), bias=np.zeros(CLASSES), present=np.ones(CLASSES, bool))
    assert choose_temperature(Start("flat", flat), [clients()["big"]]).temperature == max(TEMPERATURES)
    assert best_temperature([2.0, 1.0, 1.0, 3.0], [10.0, 1.0, 2.0, 0.1]).temperature == 2.0


def test_clients_without_samples_add_nothing_and_none_at_all_is_refused() -> None:
    empty = (np.zeros((0, DIM)), np.zeros(0, int))
    assert not cross_entropy_sums(start(), *empty).any()
    with pytest.raises(NotEnoughDataError, match="no client has a sample"):
        choose_temperature(start(), [empty])


def test_unsound_input_is_refused() -> None:
    X, y = clients()["big"]
    with pytest.raises(InputError, match="temperatures must be above 0"):
        cross_entropy_sums(start(), X, y, [0.0, 1.0])
    with pytest.raises(InputError, match="clinic holds samples of class 3, which the start 'linear' has never seen"):
        cross_entropy_sums(start(), X, np.full_like(y, 3), whose="clinic")
    with pytest.raises(InputError, match="2 temperatures need as many sums"):
        best_temperature([1.0], [1.0, 2.0])
    with pytest.raises(InputError, match="must be finite"):
        best_temperature([np.nan], [1.0])
