"""Laws of free covariances that are scaled to exact traces, or that far clients do not decide."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import fedmoments as fm
from fedmoments.core.gaussian import ClassGaussians
from fedmoments.core.gaussian.free_sources import Robust, effective_dimension
from fedmoments.core.gaussian.projected import projected_class_covariances
from fedmoments.core.statistics import Statistics, StatisticsSpec
from fedmoments.errors import ClientsPooledError

Array = npt.NDArray[Any]
BOTH = StatisticsSpec.of("client_means", "class_norms")


def draw(seed: int, n: int = 400, d: int = 6, n_clients: int = 12, *, shift: float = 0.0) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(seed)
    y, holders = rng.integers(0, 3, n), rng.integers(0, n_clients, n)
    moved = shift * rng.normal(size=(n_clients, d))[holders]
    return rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) + 3.0 * rng.normal(size=(3, d))[y] + moved, y, holders


def merged(X: Array, y: Array, holders: Array, order: Array | None = None) -> Statistics:
    clients = np.unique(holders) if order is None else order
    return Statistics.merge([Statistics.of(X[holders == k], y[holders == k], BOTH, n_classes=3) for k in clients])


@pytest.mark.parametrize("shift", [0.0, 8.0])
def test_every_class_covariance_has_its_exact_trace(shift: float) -> None:
    X, y, holders = draw(0, shift=shift)
    gaussians = ClassGaussians(merged(X, y, holders), "energy")
    for label, covariance, _ in gaussians.class_covariances():
        exact = np.cov(X[y == label].T)
        assert np.trace(covariance) == pytest.approx(np.trace(exact), rel=1e-9)
    variances, dof = gaussians.class_variances()
    assert np.allclose((variances / dof[:, None]).sum(axis=1), [np.trace(np.cov(X[y == c].T)) for c in range(3)])


def test_one_sample_a_client_is_the_free_covariance() -> None:
    X, y, _ = draw(1, n=60)
    stats = merged(X, y, np.arange(60))
    free, energy = (ClassGaussians(stats, source).raw_covariance() for source in ("free", "energy"))
    assert np.allclose(free, energy, rtol=1e-10)


def test_the_shape_is_that_of_client_means() -> None:
    X, y, holders = draw(2, shift=3.0)
    stats = merged(X, y, holders)
    for (_, free, _), (_, energy, _) in zip(
        ClassGaussians(stats, "free").class_covariances(),
        ClassGaussians(stats, "energy").class_covariances(),
        strict=True,
    ):
        assert np.allclose(free / np.trace(free), energy / np.trace(energy))


@pytest.mark.parametrize("source", ["energy", "robust"])
def test_the_order_of_clients_changes_nothing(source: str) -> None:
    X, y, holders = draw(3, shift=1.0)
    one, other = (merged(X, y, holders, order) for order in (np.arange(12), np.arange(12)[::-1]))
    forwards, backwards = (ClassGaussians(stats, source).raw_covariance() for stats in (one, other))
    assert np.allclose(forwards, backwards, rtol=1e-9)


@pytest.mark.parametrize("source", ["energy", "robust"])
def test_features_times_a_constant_change_no_prediction(source: str) -> None:
    X, y, holders = draw(4, shift=1.0)
    for head in ("lda-free", "qda-free"):
        one, other = (
            fm.fit(fm.make_head(head, covariance=source), merged(times * X, y, holders)).predict(times * X)
            for times in (1.0, 1e3)
        )
        assert np.array_equal(one, other)


def naive_weights(X: Array, y: Array, holders: Array, inner: Any) -> dict[tuple[int, int], float]:
    """The same weights, from samples, client by client and pass by pass; ``inner`` are the dimensions of each pass."""
    held = {c: [k for k in np.unique(holders) if ((holders == k) & (y == c)).any()] for c in range(3)}
    parts = {(int(k), c): X[(holders == k) & (y == c)] for c in range(3) for k in held[c]}
    weights = dict.fromkeys(parts, 1.0)
    for own in inner:
        centres = {
            c: sum(weights[k, c] * parts[k, c].sum(axis=0) for k in held[c])
            / sum(weights[k, c] * len(parts[k, c]) for k in held[c])
            for c in range(3)
        }
        energies = {
            (k, c): len(part) * np.square(part.mean(axis=0) - centres[c]).sum() / (1 - 1 / len(held[c]))
            for (k, c), part in parts.items()
        }
        trace = np.mean([weights[key] * energies[key] for key in parts])
        weights = {key: (4 + own) / (4 + own * energies[key] / trace) for key in parts}
    mean = sum(weights.values()) / len(weights)
    return {key: weight / mean for key, weight in weights.items()}


def test_robust_weights_are_the_naive_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y, holders = draw(5, shift=0.5)
    stats = merged(X, y, holders)
    dimensions: list[float] = []

    def noted(stats: Statistics, means: Array) -> float:
        dimensions.append(effective_dimension(stats, means))
        return dimensions[-1]

    monkeypatch.setattr("fedmoments.core.gaussian.free_sources.effective_dimension", noted)
    _, found = Robust().about(stats, ClassGaussians(stats, "free").means)
    assert found is not None
    naive = naive_weights(X, y, holders, dimensions)
    clients = np.unique(holders)
    rows = zip(stats.row_owners.tolist(), stats.row_labels.tolist(), strict=True)
    assert np.allclose(found, [naive[int(clients[owner]), label] for owner, label in rows])


def test_few_far_clients_do_not_decide_a_robust_covariance() -> None:
    X, y, holders = draw(6, n=3000, n_clients=40)
    far = X + 30.0 * (holders < 2)[:, None]
    truth = sum(np.cov(X[y == c].T) * ((y == c).sum() - 1) for c in range(3)) / (len(y) - 3)
    stats = merged(far, y, holders)
    free, robust = (np.trace(ClassGaussians(stats, source).raw_covariance()) for source in ("free", "robust"))
    assert free > 20 * np.trace(truth)
    assert robust < 5 * np.trace(truth)


def test_pooled_free_scatters_are_refused() -> None:
    X, y, holders = draw(7)
    with pytest.raises(ClientsPooledError):
        fm.fit("lda-energy", merged(X, y, holders).restricted(StatisticsSpec.of("class_norms")))


@pytest.mark.parametrize("source", ["free", "energy", "robust"])
def test_covariances_in_a_subspace_are_those_of_all_dimensions(source: str) -> None:
    gaussians = ClassGaussians(merged(*draw(8, shift=2.0)), source)
    V = np.random.default_rng(0).normal(size=(6, 2))
    inside = {label: covariance for label, covariance, _ in projected_class_covariances(gaussians, V)}
    for label, covariance, _ in gaussians.class_covariances():
        assert np.allclose(inside[label], V.T @ covariance @ V)
