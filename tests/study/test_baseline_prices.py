"""What a baseline sends at most, by formula, is what a client with samples enough sends."""

import numpy as np
import pytest

from fedmoments.study.baselines import baseline_names, make_baseline


@pytest.mark.parametrize("name", baseline_names())
@pytest.mark.parametrize(("dim", "held", "classes"), [(5, 3, 4), (4, 1, 6), (6, 4, 4)])
def test_the_formula_is_what_clients_with_samples_enough_send(name: str, dim: int, held: int, classes: int) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60 * held, dim)), np.repeat(np.arange(held), 60)
    baseline = make_baseline(name)
    assert baseline.local(X, y, n_classes=classes, seed=0).n_floats == baseline.most_floats(dim, held)
    few = baseline.local(X[::50], y[::50], n_classes=classes, seed=0)
    assert few.n_floats <= baseline.most_floats(dim, held)


@pytest.mark.parametrize("covariance", ["spherical", "full"])
def test_fedpft_is_priced_with_its_covariance(covariance: str) -> None:
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(120, 3)), np.repeat([0, 1], 60)
    baseline = make_baseline("fedpft", covariance=covariance, components=1)
    assert baseline.local(X, y, n_classes=2, seed=0).n_floats == baseline.most_floats(3, 2)
