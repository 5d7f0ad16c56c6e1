"""Laws of heads behind maps agreed on in exchanges: the Fisher kernel, deep layers, sketched random features."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import fedmoments as fm
from fedmoments.core.heads.deep import DAMPING, DeepRidge, residual_weights
from fedmoments.core.heads.fisher_fourier import typical_distance
from fedmoments.core.heads.second_exchange import fisher_directions
from fedmoments.core.maps import Directions, FeatureMap, RandomFourier, ReluBeside, ReluResidual, from_description
from fedmoments.core.statistics import Statistics, StatisticsSpec
from fedmoments.errors import InputError

Array = npt.NDArray[Any]
GRAM = StatisticsSpec.of("gram")


def draw(seed: int, n: int = 240, d: int = 6) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    return rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) + 3.0 * rng.normal(size=(3, d))[y], y


def clients(X: Array, y: Array, holders: Array) -> dict[int, tuple[Array, Array]]:
    return {int(k): (X[holders == k], y[holders == k]) for k in np.unique(holders)}


# ------------------------------------------------------------------------------------------------- the Fisher kernel


def test_the_fisher_kernel_is_ridge_behind_a_public_map() -> None:
    X, y = draw(0)
    parties = clients(X, y, np.arange(len(y)) % 4)
    head = fm.make_head("fisher-rf", n_features=40, first="exact", scatter="total", covariance="exact")
    found = fm.fit(head, parties)
    pilot = fm.measure(parties, GRAM, fold=True).statistics()
    Q = fisher_directions(pilot, "exact")
    width = 0.7 * typical_distance(pilot, Q, "exact")
    public = Q | RandomFourier(Q.n_components, 40, width, 0)
    again = fm.fit("fed3r", parties, feature_map=public)
    assert found.feature_map is not None
    assert found.feature_map.fingerprint() == public.fingerprint()
    assert found.digest() == again.digest()


def test_the_typical_distance_is_that_of_all_pairs() -> None:
    X, y = draw(1)
    stats = Statistics.of(X, y, GRAM, n_classes=3)
    Q = Directions.of(np.linalg.qr(np.random.default_rng(0).normal(size=(6, 2)))[0])
    Z = Q(X)
    pairs = np.square(Z[:, None] - Z[None]).sum(axis=2).mean()
    assert typical_distance(stats, Q, "exact") == pytest.approx(np.sqrt(pairs), rel=1e-9)


def test_a_fisher_kernel_without_its_first_exchange_is_refused() -> None:
    with pytest.raises(InputError, match="first exchange"):
        fm.make_head("fisher-rf").feature_map(4, None)


# --------------------------------------------------------------------------------------------------- deep heads


@pytest.mark.parametrize("layers", [1, 3])
def test_any_partition_gives_the_same_deep_head(layers: int) -> None:
    X, y = draw(2)
    head = DeepRidge(layers=layers, width=16)
    one = fm.fit(head, {"all": (X, y)})
    for seed, n_clients in ((0, 5), (1, 60)):
        other = fm.fit(head, clients(X, y, np.random.default_rng(seed).integers(0, n_clients, len(y))), n_classes=3)
        assert np.allclose(one.scores(X), other.scores(X), atol=1e-5)  # residuals travel in float32
        assert np.array_equal(one.predict(X), other.predict(X))


def naive_layer(z: Array, h: Array, Y: Array, penalty: float) -> tuple[Array, Array]:
    """The residual by least squares over all of its entries at once, by Kronecker products; and W."""
    d, w = z.shape[1], h.shape[1]
    W = np.linalg.solve(z.T @ z + penalty * np.eye(d), z.T @ Y)
    hidden, weights = h.T @ h, W @ W.T
    products = np.outer(np.linalg.eigvalsh(hidden).clip(0), np.linalg.eigvalsh(weights).clip(0))
    gamma = DAMPING * products.mean() * d / Y.shape[1]
    system = np.kron(hidden, weights) + gamma * np.eye(w * d)
    return np.linalg.solve(system, (h.T @ (Y - z @ W) @ W.T).ravel()).reshape(w, d), W


def test_the_residual_is_the_least_squares_one() -> None:
    from fedmoments.core.cross_validation import gcv_ridge

    X, y = draw(3, d=4)
    layer, Y = ReluBeside(4, 5, seed=3), np.eye(3)[y]
    penalty = gcv_ridge(X.T @ X, X.T @ Y, energy=float(len(y)), n_samples=len(y))
    naive, W = naive_layer(X, layer.hidden(X), Y, penalty)
    found = residual_weights(Statistics.of(layer(X), y, GRAM, n_classes=3), 4)
    assert np.allclose(found, naive, rtol=1e-6, atol=1e-9)
    before, after = (np.square(Y - z @ W).sum() for z in (X, X + layer.hidden(X) @ found))
    assert after < before


def test_one_layer_is_ridge_on_random_features_beside_the_features() -> None:
    X, y = draw(4)
    deep = fm.fit(DeepRidge(layers=1, width=8, map_seed=5), {"a": (X, y)})
    plain = fm.fit("fed3r", {"a": (X, y)}, feature_map=ReluBeside(6, 8, seed=5))
    assert deep.digest() == plain.digest()


def test_features_times_a_constant_change_no_prediction_of_a_deep_head() -> None:
    X, y = draw(5)
    one, other = (fm.fit(DeepRidge(layers=2, width=16), {"a": (times * X, y)}) for times in (1.0, 1000.0))
    assert np.array_equal(one.predict(X), other.predict(1000.0 * X))


def test_layers_are_what_they_say_and_travel() -> None:
    X, _ = draw(6)
    layer = ReluBeside(6, 7, seed=1)
    hidden = np.maximum(X @ layer.matrix, 0.0)
    assert np.allclose(layer(X), np.hstack([X, hidden]))
    weights = np.random.default_rng(0).normal(size=(7, 6)).astype(np.float32).astype(np.float64)
    residual: FeatureMap = ReluResidual.of(layer, weights)
    assert np.allclose(residual(X), X + hidden @ weights)
    again = from_description(residual.describe())
    assert again.fingerprint() == residual.fingerprint()
    assert np.array_equal(again(X), residual(X))
    with pytest.raises(InputError, match="finite"):
        ReluResidual.of(layer, np.full((7, 6), np.nan))


def test_a_deep_head_knows_the_problem_that_no_line_solves() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 2))
    y = (X[:, 0] * X[:, 1] > 0).astype(np.int64)
    parties = clients(X, y, np.arange(600) % 7)
    assert fm.fit("fed3r", parties).score(X, y) < 0.7
    assert fm.fit(DeepRidge(layers=2, width=64), parties).score(X, y) > 0.9


# ----------------------------------------------------------------------------------- simulated: exchanges are priced


@pytest.mark.parametrize("layers", [1, 3])
def test_every_upload_of_a_deep_head_is_priced(layers: int) -> None:
    from fedmoments.samples.features import Features, Samples

    X, y = draw(7)
    part = Samples(X, y)
    features = Features("toy", 3, train=part, test=part)
    result = fm.simulate(features, [DeepRidge(layers=layers, width=10)], clients=[4], splits=["iid"], seeds=1)
    width = 6 + 10
    assert result.rows[0].up_bytes_total == 4 * layers * 4 * (3 * width + width * (width + 1) // 2)
    assert (result.rows[0].accuracy or 0.0) > 0.8
