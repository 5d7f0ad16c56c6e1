"""Laws of METHODS 4 about ridge heads: Fed3R, FedCOF and its oracle, AFL, recursive updates."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedmoments as fm
from fedmoments.core.classifier import LinearClassifier
from fedmoments.core.heads import ridge as ridge_module
from fedmoments.core.heads.recursive import RecursiveRidge
from fedmoments.core.heads.ridge import FourierRidge, Ridge
from fedmoments.core.linalg import solve_rows_plus_ridge
from fedmoments.core.maps import RandomFourier
from fedmoments.core.statistics import FixedPoint, Ledger, Statistics, StatisticsSpec
from fedmoments.errors import InputError, MergeError, MissingMomentError

Array = npt.NDArray[Any]
GRAM = StatisticsSpec.of("gram")


def draw(seed: int, n: int = 120, dim: int = 6, n_classes: int = 4, n_clients: int = 8) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(seed)
    y, holders = rng.integers(0, n_classes, n), rng.integers(0, n_clients, n)
    X = rng.normal(size=(n, dim)) @ rng.normal(size=(dim, dim)) + 2 * rng.normal(size=(n_classes, dim))[y]
    return X, y, holders


def linear(classifier: Any) -> LinearClassifier:
    assert isinstance(classifier, LinearClassifier)
    return classifier


def weights_of(head: Ridge, source: Statistics | Ledger) -> Array:
    return linear(head.fit(source)).weights


def relative_error(ours: Array, theirs: Array) -> float:
    return float(np.linalg.norm(ours - theirs) / np.linalg.norm(theirs))


def one_hot(y: Array, n_classes: int) -> Array:
    return np.eye(n_classes)[y]


def unit(weights: Array) -> Array:
    return np.asarray(weights / np.linalg.norm(weights, axis=0))


def centralised_ridge(X: Array, y: Array, n_classes: int, penalty: float) -> Array:
    """Ridge regression as least squares on stacked rows: no normal equations, no cancellation."""
    d = X.shape[1]
    stacked = np.vstack([X, np.sqrt(penalty) * np.eye(d)])
    right = np.vstack([one_hot(y, n_classes), np.zeros((d, n_classes))])
    return np.asarray(np.linalg.lstsq(stacked, right, rcond=None)[0])


# -------------------------------------------------------------------------------------------------- Fed3R


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 30), st.sampled_from([0.01, 1.0, "relative:0.1", "automatic"]))
def test_fed3r_is_identical_for_every_partition_and_order(seed: int, n_clients: int, penalty: Any) -> None:
    X, y, _ = draw(seed)
    head = Ridge(ridge=penalty)
    together = weights_of(head, Statistics.of(X, y, GRAM, n_classes=4))
    rng = np.random.default_rng(seed)
    holders = rng.integers(0, n_clients, len(X))
    ledger = Ledger(GRAM, n_classes=4, dim=6, fold=bool(seed % 2))
    for client in rng.permutation(n_clients):
        mine = rng.permutation(np.flatnonzero(holders == client))
        ledger.join(int(client), Statistics.of(X[mine], y[mine], GRAM, n_classes=4))
    assert relative_error(weights_of(head, ledger), together) < 1e-10
    half = Ledger.of(X[::2], y[::2], holders[::2], GRAM, n_classes=4)
    assert relative_error(weights_of(head, half), together) > 1e-3


@pytest.mark.parametrize("penalty", [0.01, 1.0, 100.0])
def test_fed3r_is_centralised_ridge_regression(penalty: float) -> None:
    X, y, holders = draw(1)
    ledger = Ledger.of(X, y, holders, GRAM, n_classes=4)
    expected = centralised_ridge(X, y, 4, penalty)
    assert relative_error(weights_of(Ridge(ridge=penalty, normalize=False), ledger), expected) < 1e-10
    assert relative_error(weights_of(Ridge(ridge=penalty), ledger), unit(expected)) < 1e-10
    assert relative_error(weights_of(Ridge(ridge=2 * penalty, normalize=False), ledger), expected) > 1e-6


def test_fed3r_with_intercept_is_ridge_with_an_unpenalised_constant() -> None:
    X, y, holders = draw(2)
    fitted = linear(Ridge(ridge=0.5, intercept=True, normalize=False).fit(Ledger.of(X, y, holders, GRAM, n_classes=4)))
    d, labels = X.shape[1], one_hot(y, 4)
    penalty = np.hstack([np.sqrt(0.5) * np.eye(d), np.zeros((d, 1))])
    stacked = np.vstack([np.hstack([X, np.ones((len(X), 1))]), penalty])
    expected = np.linalg.lstsq(stacked, np.vstack([labels, np.zeros((d, 4))]), rcond=None)[0]
    np.testing.assert_allclose(fitted.weights, expected[:d], rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(fitted.scores(X), X @ expected[:d] + expected[d], rtol=1e-9, atol=1e-10)


def test_relative_ridge_is_in_units_of_the_mean_eigenvalue() -> None:
    X, y, _ = draw(3)
    stats = Statistics.of(X, y, GRAM, n_classes=4)
    absolute = 0.3 * np.trace(X.T @ X) / X.shape[1]
    ours = weights_of(Ridge(ridge="relative:0.3"), stats)
    assert relative_error(ours, weights_of(Ridge(ridge=float(absolute)), stats)) < 1e-12
    none = weights_of(Ridge(ridge="none", normalize=False), stats)
    assert relative_error(none, np.linalg.lstsq(X, one_hot(y, 4), rcond=None)[0]) < 1e-9


def test_afl_absolute_aggregation_law_equals_fed3r() -> None:
    # Local solutions W_k = (G_k + λI)⁻¹B_k merge with their Grams: (G_k + λI) W_k = B_k, so
    # W = (ΣG_k + λI)⁻¹ Σ_k (G_k + λI) W_k is Fed3R's, although every client had solved with a λ of its own.
    X, y, holders = draw(4)
    penalty, identity = 0.7, np.eye(6)
    grams, solutions = [], []
    for k in range(8):
        stats = Statistics.of(X[holders == k], y[holders == k], GRAM, n_classes=4)
        local = weights_of(Ridge(ridge=penalty, normalize=False), stats)
        grams.append(stats.gram)
        solutions.append(local)
    right = sum((G + penalty * identity) @ W for G, W in zip(grams, solutions, strict=True))
    merged = np.linalg.solve(sum(grams) + penalty * identity, right)
    fed3r = weights_of(Ridge(ridge=penalty, normalize=False), Ledger.of(X, y, holders, GRAM, n_classes=4))
    assert relative_error(merged, fed3r) < 1e-10
    # AFL's pairwise form, two parties at a time, each time with the λ that the parts have accumulated
    weights, gram, count = solutions[0], grams[0] + penalty * identity, 1
    for W, G in zip(solutions[1:], grams[1:], strict=True):
        local = G + penalty * identity
        weights = np.linalg.solve(gram + local, gram @ weights + local @ W)
        gram, count = gram + local, count + 1
    restored = np.linalg.solve(gram - (count - 1) * penalty * identity, gram @ weights)
    assert relative_error(restored, fed3r) < 1e-10
    assert relative_error(np.mean(solutions, axis=0), fed3r) > 1e-2  # averaging weights is not the law


# -------------------------------------------------------------------------------------------------- FedCOF


def fedcof_referee(X: Array, y: Array, holders: Array, n_classes: int, shrinkage: float, penalty: float) -> Array:
    """FedCOF from its formulas, one class covariance at a time, with K_c − 1."""
    d, n = X.shape[1], len(X)
    G = n * np.outer(X.mean(axis=0), X.mean(axis=0))
    for c in np.unique(y):
        mean, spread, held_by = X[y == c].mean(axis=0), np.zeros((d, d)), 0
        for k in np.unique(holders[y == c]):
            mine = X[(y == c) & (holders == k)]
            spread += len(mine) * np.outer(mine.mean(axis=0) - mean, mine.mean(axis=0) - mean)
            held_by += 1
        covariance = spread / (held_by - 1) if held_by > 1 else np.zeros((d, d))
        G += ((y == c).sum() - 1) * (covariance + shrinkage * np.eye(d))
    B = X.T @ one_hot(y, n_classes)
    return np.asarray(np.linalg.solve(G + penalty * np.eye(d), B))


@pytest.mark.parametrize("dim", [6, 60])
def test_fedcof_equals_its_formulas_class_by_class(dim: int) -> None:
    X, y, holders = draw(5, dim=dim)
    holders[y == 3] = 0  # held by one client: counts through shrinkage alone
    stats = Ledger.of(X, y, holders, StatisticsSpec.of("client_means"), n_classes=5).statistics()
    head = Ridge(scatter="within", covariance="free", shrinkage=0.5, ridge=0.01, normalize=False)
    expected = fedcof_referee(X, y, holders, 5, 0.5, 0.01)
    assert relative_error(weights_of(head, stats), expected) < 1e-9
    unshrunk = fedcof_referee(X, y, holders, 5, 0.0, 0.01)
    assert relative_error(weights_of(head, stats), unshrunk) > 1e-3


@pytest.mark.parametrize("shrinkage", ["automatic", 0.1, "relative:0.5", "blend:0.2"])
@pytest.mark.parametrize("penalty", ["automatic", 0.01, "relative:0.1"])
def test_primal_and_dual_solves_agree(monkeypatch: pytest.MonkeyPatch, shrinkage: Any, penalty: Any) -> None:
    X, y, holders = draw(6, dim=80)
    stats = Ledger.of(X, y, holders, StatisticsSpec.of("client_means"), n_classes=4).statistics()
    head = Ridge(scatter="within", covariance="free", shrinkage=shrinkage, ridge=penalty)
    assert len(stats.rows) + 1 < ridge_module.DUAL_SHARE * 80  # the dual is chosen …
    called = []

    def solve_and_note(rows: Array, penalty: float, right: Array) -> Array:
        called.append(1)
        return solve_rows_plus_ridge(rows, penalty, right)

    monkeypatch.setattr(ridge_module, "solve_rows_plus_ridge", solve_and_note)
    dual = weights_of(head, stats)
    assert called == [1]
    monkeypatch.setattr(ridge_module, "DUAL_SHARE", 0.0)  # … and here it is not
    primal = weights_of(head, stats)
    assert called == [1]
    assert relative_error(dual, primal) < 1e-9


def test_without_any_ridge_the_dual_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y, holders = draw(7, dim=80)
    stats = Ledger.of(X, y, holders, StatisticsSpec.of("client_means"), n_classes=4).statistics()
    monkeypatch.setattr(ridge_module, "solve_rows_plus_ridge", None)
    weights = weights_of(Ridge(scatter="within", covariance="free", shrinkage="none"), stats)
    assert np.isfinite(weights).all()


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32))
def test_the_oracle_is_solved_from_fed3rs_payload(seed: int) -> None:
    X, y, holders = draw(seed)
    assert fm.make_head("fedcof-oracle").needs == fm.make_head("fed3r").needs == GRAM
    head = Ridge(scatter="within", covariance="exact", shrinkage=0.3, ridge=0.01, normalize=False)
    ours = weights_of(head, Ledger.of(X, y, holders, GRAM, n_classes=4))
    n, d = len(X), X.shape[1]
    G = n * np.outer(X.mean(axis=0), X.mean(axis=0)) + 0.01 * np.eye(d)
    for c in np.unique(y):
        mine = X[y == c]
        covariance = np.cov(mine, rowvar=False) if len(mine) > 1 else np.zeros((d, d))
        G += (len(mine) - 1) * (covariance + 0.3 * np.eye(d))
    expected = np.linalg.solve(G, X.T @ one_hot(y, 4))
    assert relative_error(ours, expected) < 1e-9


def test_with_one_sample_per_client_fedcof_is_its_oracle() -> None:
    X, y, _ = draw(8)
    spec = StatisticsSpec.of("client_means", "gram")
    stats = Ledger.of(X, y, np.arange(len(X)), spec, n_classes=4).statistics()
    for shrinkage in ("automatic", 0.1, "relative:0.5", "blend:0.1"):
        free = weights_of(Ridge(scatter="within", covariance="free", shrinkage=shrinkage), stats)
        exact = weights_of(Ridge(scatter="within", covariance="exact", shrinkage=shrinkage), stats)
        assert relative_error(free, exact) < 1e-10


@pytest.mark.parametrize("source", ["diagonal", "spherical"])
def test_diagonal_and_spherical_sharing_equal_their_formulas(source: str) -> None:
    X, y, holders = draw(9)
    n, d = X.shape
    scatter = sum(((X[y == c] - X[y == c].mean(axis=0)) ** 2).sum(axis=0) for c in range(4))
    if source == "spherical":
        scatter = np.full(d, scatter.sum() / d)
    G = np.diag(scatter) + n * np.outer(X.mean(axis=0), X.mean(axis=0)) + (0.2 * (n - 4) + 0.01) * np.eye(d)
    head = Ridge(scatter="within", covariance=source, shrinkage=0.2, ridge=0.01, normalize=False)
    ours = weights_of(head, Ledger.of(X, y, holders, head.needs, n_classes=4))
    assert relative_error(ours, np.linalg.solve(G, X.T @ one_hot(y, 4))) < 1e-9


# -------------------------------------------------------------------------------------------------- recursive


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([0.01, 1.0]))
def test_recursive_updates_agree_with_solving_again(seed: int, penalty: float) -> None:
    X, y, holders = draw(seed)
    rng = np.random.default_rng(seed)
    parts = {k: Statistics.of(X[holders == k], y[holders == k], GRAM, n_classes=4) for k in range(8)}
    model = RecursiveRidge(n_classes=4, dim=6, ridge=penalty)
    inside: list[int] = []
    for step in range(14):
        outside = [k for k in parts if k not in inside]
        if inside and (step > 9 or not outside):
            gone = inside.pop(int(rng.integers(len(inside))))
            model.leave(parts[gone])
        else:
            new = outside[int(rng.integers(len(outside)))]
            model.join(parts[new])
            inside.append(new)
        merged = Statistics.merge([Statistics.zero(GRAM, n_classes=4, dim=6), *(parts[k] for k in inside)])
        if merged.n_samples == 0:
            continue
        expected = linear(Ridge(ridge=penalty).fit(merged))
        ours = linear(model.classifier())
        assert relative_error(ours.weights, expected.weights) < 1e-7
        assert np.array_equal(ours.present, expected.present)
        plain = linear(model.classifier(normalize=False)).weights
        assert relative_error(plain, weights_of(Ridge(ridge=penalty, normalize=False), merged)) < 1e-7


def test_recursive_updates_take_fixed_point_contributions() -> None:
    X, y, holders = draw(10)
    form = FixedPoint(norm_bound=64.0, max_samples=1000)
    ledger = Ledger.of(X, y, holders, GRAM, n_classes=4, fixed_point=form)
    model = RecursiveRidge(n_classes=4, dim=6, ridge=0.1)
    for k in ledger.clients:
        model.join(ledger.client(k))
    assert relative_error(linear(model.classifier()).weights, weights_of(Ridge(ridge=0.1), ledger)) < 1e-8


def test_a_recursive_model_refuses_what_does_not_fit_and_stays_as_it_was() -> None:
    X, y, _ = draw(11)
    stats = Statistics.of(X, y, GRAM, n_classes=4)
    model = RecursiveRidge(n_classes=4, dim=6, ridge=0.1)
    model.join(stats)
    before = model.classifier().digest()
    with pytest.raises(MergeError, match="4 classes and 6 dimensions, but statistics of 5 and 6"):
        model.leave(Statistics.of(X, y, GRAM, n_classes=5))
    with pytest.raises(MergeError, match="of 4 and 5 arrived"):
        model.join(Statistics.of(X[:, :5], y, GRAM, n_classes=4))
    with pytest.raises(MissingMomentError, match="RecursiveRidge needs"):
        model.join(Statistics.of(X, y, StatisticsSpec(), n_classes=4))
    with pytest.raises(MergeError, match="has it joined"):
        model.leave(stats + stats)
    model.join(Statistics.of(np.zeros((0, 6)), [], GRAM, n_classes=4))  # a client without a sample changes nothing
    assert model.classifier().digest() == before
    zeros = Statistics.of(np.zeros((2, 6)), [0, 1], GRAM, n_classes=4)  # a client whose Gram has rank 0
    model.join(zeros)
    model.leave(zeros)
    assert model.classifier().digest() == before
    with pytest.raises(InputError, match="ridge must be a positive number"):
        RecursiveRidge(n_classes=2, dim=2, ridge=0.0)


# -------------------------------------------------------------------------------------------------- parameters


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"scatter": "between"}, "'total' or 'within'"),
        ({"ridge": "blend:0.1"}, "ridge is automatic, none, a number"),
        ({"scatter": "within", "intercept": True}, "intercept belongs to the total scatter"),
        ({"covariance": "guess"}, "covariance source"),
        ({"shrinkage": "much"}, "shrinkage is one of"),
    ],
)
def test_wrong_hyper_parameters_of_ridge_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Ridge(**options)


@pytest.mark.parametrize("bandwidth", [0.0, -1.0, "wide"])
def test_a_bandwidth_is_automatic_or_positive(bandwidth: Any) -> None:
    with pytest.raises(InputError, match="bandwidth must be 'automatic' or a positive number"):
        FourierRidge(bandwidth=bandwidth)


def test_an_automatic_bandwidth_needs_a_first_exchange() -> None:
    with pytest.raises(InputError, match="counts, sums and norms first"):
        FourierRidge().feature_map(4, None)


def test_fed3r_rf_is_ridge_on_the_mapped_features() -> None:
    X, y, holders = draw(12)
    parties = {k: (X[holders == k], y[holders == k]) for k in range(8)}
    fitted = linear(fm.fit("fed3r-rf", parties, n_features=64, bandwidth=5.0, ridge=0.5, normalize=False))
    assert fitted.feature_map is not None
    Z = fitted.feature_map(X)
    assert relative_error(fitted.weights, centralised_ridge(Z, y, 4, 0.5)) < 1e-9
    np.testing.assert_allclose(fitted.scores(X), Z @ fitted.weights, rtol=1e-12)
    automatic = fm.fit("fed3r-rf", parties, n_features=64)
    assert isinstance(automatic.feature_map, RandomFourier)
    sigma = np.sqrt(2 * np.trace(np.cov(X, rowvar=False)))
    assert np.isclose(automatic.feature_map.bandwidth, sigma)
