"""FedPFT and CCVR: what is drawn, what is merged, what is sent."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from fedmoments.core.classifier import LinearClassifier
from fedmoments.core.linalg import packed_size
from fedmoments.errors import InputError
from fedmoments.study.baselines import Upload, make_baseline
from fedmoments.study.baselines.ccvr import Ccvr, merged_moments
from fedmoments.study.baselines.fedpft import FedPft, variance_floor
from fedmoments.study.baselines.mixture import COVARIANCES, trapezoid_size

Array = npt.NDArray[Any]
C, D = 4, 3


def draw(n: int, seed: int = 0, classes: int = C) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    y = rng.integers(classes, size=n)
    shape = rng.normal(size=(C, D, D))
    X = 10 + np.einsum("nij,nj->ni", shape[y], rng.normal(size=(n, D))) + 4 * rng.normal(size=(C, D))[y]
    return X, y


def uploads_of(method: FedPft | Ccvr, X: Array, y: Array, holders: Array) -> list[Upload]:
    return [method.local(X[holders == k], y[holders == k], n_classes=C, seed=int(k)) for k in np.unique(holders)]


# ---------------------------------------------------------------------------------------------------------- FedPFT


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_law_one_component_and_one_client_draw_from_its_class_gaussians(covariance: str) -> None:
    X, y = draw(40_000)
    method = FedPft(components=1, covariance=covariance)
    drawn, labels, origin = method.synthesise(uploads_of(method, X, y, np.zeros(len(y))), dim=D, seed=1)
    assert np.array_equal(np.bincount(labels), np.bincount(y))
    for c in range(C):
        real, made = X[y == c], drawn[labels == c] + origin
        exact = np.cov(real.T, bias=True)
        wanted = {"full": exact, "diagonal": np.diag(np.diag(exact)), "spherical": np.trace(exact) / D * np.eye(D)}
        noise = 5 * np.trace(exact) / np.sqrt(len(made))
        np.testing.assert_allclose(made.mean(axis=0), real.mean(axis=0), atol=5 * np.sqrt(np.trace(exact) / len(made)))
        np.testing.assert_allclose(np.cov(made.T, bias=True), wanted[covariance], atol=noise)


def test_mixtures_of_several_clients_are_drawn_as_often_as_they_have_samples() -> None:
    X = np.concatenate([np.zeros((300, D)), np.full((100, D), 50.0)]) + np.random.default_rng(0).normal(size=(400, D))
    y, holders = np.zeros(400, int), np.repeat([0, 1], [300, 100])
    method = FedPft(components=2)
    drawn, _, origin = method.synthesise(uploads_of(method, X, y, holders), dim=D, seed=0)
    assert ((drawn + origin).mean(axis=1) > 25).sum() == 100


@pytest.mark.parametrize("components", [1, 2, 10])
@pytest.mark.parametrize("covariance", COVARIANCES)
def test_fedpft_sends_what_its_formula_says(covariance: str, components: int) -> None:
    y = np.repeat([0, 2, 3], [1, 4, 30])
    X = np.random.default_rng(0).normal(size=(35, D))
    sent = FedPft(components=components, covariance=covariance).local(X, y, n_classes=C, seed=0)
    assert sent.n_counts == 3
    floats = 0
    for n in (1, 4, 30):
        g = min(components, n)
        each = {"spherical": 1, "diagonal": D, "full": trapezoid_size(n - 1, D)}[covariance]
        floats += g * (1 + D + each)
        assert each <= packed_size(D)
    assert sent.n_floats == floats + (covariance == "full")


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_what_arrives_is_the_mixture_that_was_fitted(covariance: str) -> None:
    """EM leaves mixtures with the mean of their samples, which shows whether components came back in their places."""
    X, y = draw(9)
    method = FedPft(components=3, covariance=covariance)
    sent = method.local(X, y, n_classes=C, seed=0)
    assert sum(len(each.weights) for each in method._mixtures(sent, D)) == len(sent.arrays["weights"])
    for mixture, label in zip(method._mixtures(sent, D), np.unique(y), strict=True):
        mean = mixture.weights @ mixture.means
        np.testing.assert_allclose(mean, X[y == label].mean(axis=0), rtol=1e-6)
        np.testing.assert_allclose(mixture.weights.sum(), 1.0)


def test_the_floor_scales_with_the_features() -> None:
    X, y = draw(30)
    assert np.isclose(variance_floor(100 * X, y, 0.01), 1e4 * variance_floor(X, y, 0.01))
    within = np.concatenate([X[y == c] - X[y == c].mean(axis=0) for c in range(C)])
    assert np.isclose(variance_floor(X, y, 0.01), 0.01 * np.square(within).sum() / ((30 - C) * D))
    alone = variance_floor(X[:1], y[:1], 0.01)
    assert 0 < alone < 1e-9
    assert variance_floor(np.zeros((2, D)), y[:2], 0.01) > 0


# ------------------------------------------------------------------------------------------------------------ CCVR


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("clients", [1, 3, 20, 60])
def test_law_merged_moments_equal_the_pooled_ones_for_any_split(clients: int, seed: int) -> None:
    X, y = draw(60, seed)
    holders = np.random.default_rng(seed).integers(clients, size=60)
    found = list(merged_moments(uploads_of(Ccvr(), X, y, holders), D))
    assert [label for label, _, _ in found] == np.unique(y).tolist()
    for label, mean, covariance in found:
        np.testing.assert_allclose(mean, X[y == label].mean(axis=0), rtol=1e-10)
        np.testing.assert_allclose(covariance, np.cov(X[y == label].T), atol=1e-10)


def test_a_class_of_one_sample_has_no_covariance() -> None:
    X, y = draw(30)
    y = np.where(np.arange(30) == 4, 3, y % 3)
    (label, mean, covariance) = list(merged_moments(uploads_of(Ccvr(), X, y, np.arange(30) % 2), D))[-1]
    assert label == 3
    assert np.array_equal(mean, X[4])
    assert not covariance.any()


def test_ccvr_sends_what_its_formula_says() -> None:
    y = np.repeat([0, 2, 3], [1, 3, 30])
    sent = Ccvr().local(np.random.default_rng(0).normal(size=(34, D)), y, n_classes=C, seed=0)
    scatter = trapezoid_size(0, D) + trapezoid_size(2, D) + trapezoid_size(29, D)
    assert scatter == 0 + (D + D - 1) + packed_size(D)
    assert sent.n_floats == 3 * (D + 1) + 3 * D + scatter
    assert sent.n_counts == 3


def test_ccvr_forgets_the_split_but_for_its_start() -> None:
    X, y = draw(400)
    method = Ccvr(virtual=4_000, calibration_decay=1e-3)
    mixed = method.combine(uploads_of(method, X, y, np.arange(400) % 5), dim=D, seed=0)
    apart = method.combine(uploads_of(method, X, y, y), dim=D, seed=0)
    assert (mixed.predict(X) == apart.predict(X)).mean() > 0.99


@pytest.mark.parametrize(("balance", "sizes"), [("equal", [500, 500]), ("counts", [900, 100])])
def test_virtual_features_are_balanced_or_in_proportion(
    balance: str, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Array] = []

    def look(X: Array, *, labels: Array, present: Array, **_: Any) -> LinearClassifier:
        seen.append(np.bincount(labels))
        return LinearClassifier(weights=np.zeros((D, C)), bias=np.zeros(C), present=present)

    monkeypatch.setattr("fedmoments.study.baselines.ccvr.fit_server_head", look)
    X, y = draw(100)[0], np.repeat([0, 1], [90, 10])
    method = Ccvr(virtual=1_000, balance=balance)
    method.combine(uploads_of(method, X, y, np.zeros(100)), dim=D, seed=0)
    assert seen[0].tolist() == sizes


def test_virtual_features_have_the_moments_of_their_class(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Array] = {}

    def look(X: Array, *, origin: Array, labels: Array, present: Array, **_: Any) -> LinearClassifier:
        seen.update(X=X + origin, y=labels)
        return LinearClassifier(weights=np.zeros((D, C)), bias=np.zeros(C), present=present)

    monkeypatch.setattr("fedmoments.study.baselines.ccvr.fit_server_head", look)
    X, y = draw(200)
    method = Ccvr(virtual=80_000)
    method.combine(uploads_of(method, X, y, np.arange(200) % 7), dim=D, seed=0)
    for c in range(C):
        made, exact = seen["X"][seen["y"] == c], np.cov(X[y == c].T)
        noise = 5 * np.trace(exact) / np.sqrt(len(made))
        np.testing.assert_allclose(made.mean(axis=0), X[y == c].mean(axis=0), atol=5 * np.sqrt(np.trace(exact) / 2e4))
        np.testing.assert_allclose(np.cov(made.T), exact, atol=noise)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FedPft(components=0), "components must be a whole number more than 0, not 0"),
        (lambda: FedPft(covariance="round"), "covariance must be one of"),
        (lambda: FedPft(floor=0.0), "floor must be more than 0"),
        (lambda: FedPft(decay=float("nan")), "decay must be more than 0, not nan"),
        (lambda: make_baseline("ccvr", virtual=1.5), "virtual must be a whole number"),
        (lambda: Ccvr(balance="some"), "balance must be one of equal, counts"),
        (lambda: Ccvr(calibration_decay=-1), "calibration_decay must be more than 0"),
    ],
)
def test_wrong_hyper_parameters_are_refused(make: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()
