"""Heads beyond the papers' tables against plain numpy that was written from their formulas alone.

Predictions are compared, on samples that nobody was fitted to: one that differs is an error of one of the two.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.optimize import minimize

import fedmoments as fm

Array = npt.NDArray[Any]

D, C, N = 8, 5, 900
rng = np.random.default_rng(7)
CENTRES, MIXING = 1.3 * rng.normal(size=(C, D)), 0.6 * rng.normal(size=(D, D))
SPREADS = np.exp(0.4 * rng.normal(size=(C, D)))


def draw(n: int, seed: int) -> tuple[Array, Array]:
    own = np.random.default_rng(seed)
    y = own.integers(0, C, n)
    return CENTRES[y] + (own.normal(size=(n, D)) @ MIXING.T) * SPREADS[y], y


X, truth = draw(N, 1)
TEST, TEST_Y = draw(3000, 2)
held = rng.integers(0, 7, N)
PARTIES = {k: (X[held == k], truth[held == k]) for k in range(7)}
COUNTS = np.bincount(truth, minlength=C).astype(float)
MEANS = np.array([X[truth == c].mean(axis=0) for c in range(C)])
POOLED = (X.T @ X - sum(n * np.outer(m, m) for n, m in zip(COUNTS, MEANS, strict=True))) / (N - C)
PRIORS = COUNTS / N


def scaled_covariances() -> list[Array]:
    """Return R_cΣR_c from counts, sums, gram and class squares alone."""
    squares = np.array([(X[truth == c] ** 2).sum(axis=0) for c in range(C)])
    variances = (squares - COUNTS[:, None] * MEANS**2) / (COUNTS[:, None] - 1)
    ratios = np.sqrt(variances / np.diag(POOLED))
    return [ratio[:, None] * POOLED * ratio for ratio in ratios]


def fisher(within: Array) -> Array:
    """Return V with VᵀS_W V = I, by falling energy, C − 1 of them."""
    centre = PRIORS @ MEANS
    between = sum(p * np.outer(m - centre, m - centre) for p, m in zip(PRIORS, MEANS, strict=True))
    values, vectors = np.linalg.eigh(within)
    white = vectors / np.sqrt(values)
    _, turned = np.linalg.eigh(white.T @ between @ white)
    return np.asarray((white @ turned)[:, ::-1][:, : C - 1])


def log_softmax(scores: Array) -> Array:
    shifted = scores - scores.max(axis=1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))


def ridge(gram: Array, right: Array, amount: float) -> Array:
    weights = np.linalg.solve(gram + amount * np.eye(len(gram)), right)
    return np.asarray(weights / np.linalg.norm(weights, axis=0))


@pytest.mark.parametrize("added", [0.0, 0.5])
@pytest.mark.parametrize("borrowed", [0.0, 1.0, 20.0])
def test_naive_bayes_in_the_fisher_space(added: float, borrowed: float) -> None:
    V = fisher(POOLED + added * np.eye(D))
    own = np.array([np.diag(V.T @ (S + added * np.eye(D)) @ V) for S in scaled_covariances()])
    freedom = COUNTS[:, None] - 1
    variances = (freedom * own + borrowed) / (freedom + borrowed)
    z, m = TEST @ V, MEANS @ V
    scores = np.log(PRIORS) - 0.5 * ((z[:, None] - m) ** 2 / variances + np.log(variances)).sum(axis=-1)
    shrinkage = f"absolute:{added}" if added else "none"
    found = fm.fit("gh-nb-fisher", PARTIES, shrinkage=shrinkage, pooling=borrowed)
    assert (found.predict(TEST) != scores.argmax(axis=1)).sum() == 0


def synthetic(covariances: list[Array], V: Array, seed: int, n: int = 2000) -> tuple[Array, Array]:
    own = np.random.default_rng(seed)
    drawn = [own.multivariate_normal(m, 0.81 * S, n) for m, S in zip(MEANS @ V, covariances, strict=True)]
    return np.concatenate(drawn), np.repeat(np.arange(C), n)


@pytest.mark.parametrize("spread", ["class", "diagonal"])
def test_fishermix_from_the_cheap_upload_differs_from_another_draw_no_more_than_draws_do(spread: str) -> None:
    V = fisher(POOLED)
    covariances = [V.T @ S @ V for S in scaled_covariances()]
    if spread == "diagonal":
        covariances = [np.diag(np.diag(S)) for S in covariances]

    def labels(seed: int) -> Array:
        Z, y = synthetic(covariances, V, seed)
        inputs, marks = np.c_[Z, np.ones(len(Z))], np.eye(C)[y]

        def loss(flat: Array) -> tuple[float, Array]:
            W = flat.reshape(C, C)
            logs = log_softmax(inputs @ W)
            penalty = np.r_[1e-3 * W[:-1], np.zeros((1, C))]
            slope = inputs.T @ (np.exp(logs) - marks) / len(Z) + penalty
            return -(logs * marks).sum() / len(Z) + 5e-4 * (W[:-1] ** 2).sum(), slope.ravel()

        W = minimize(loss, np.zeros(C * C), jac=True, method="L-BFGS-B").x.reshape(C, C)
        return np.asarray((np.c_[TEST @ V, np.ones(len(TEST))] @ W).argmax(axis=1))

    settings: dict[str, Any] = {"shrinkage": "none", "pooling": "none", "spread": spread, "priors": "balanced"}
    found = fm.fit("fishermix-scaled", PARTIES, samples=2000, **settings).predict(TEST)
    one, two = labels(0), labels(1)
    assert np.mean(found != one) <= np.mean(one != two) + 0.01
    pooled = fm.fit("gh-lda", PARTIES, shrinkage="none", priors="balanced").predict(TEST)
    assert np.mean(found != pooled) > np.mean(found != one)


def test_proto_hyper_from_the_cheap_upload_is_the_minimiser_of_its_loss() -> None:
    V = fisher(POOLED)
    m, covariances = MEANS @ V, [V.T @ S @ V for S in scaled_covariances()]
    variances = np.array([np.diag(S) for S in covariances])

    def lda(z: Array) -> Array:
        return np.asarray(-0.5 * ((z[:, None] - m) ** 2).sum(axis=-1))

    def naive(z: Array) -> Array:
        return np.asarray(-0.5 * ((z[:, None] - m) ** 2 / variances + np.log(variances)).sum(axis=-1))

    Z, y = synthetic(covariances, V, 0, 4000)
    base, marks, T, share = lda(Z) / 0.81, np.eye(C)[y], 4.0, 0.4
    taught = np.exp(log_softmax((0.7 * lda(Z) + 0.3 * naive(Z)) / 0.81 / T))

    def loss(flat: Array) -> tuple[float, Array]:
        W = flat.reshape(C - 1, C)
        cool, plain = log_softmax((base + Z @ W) / T), log_softmax(base + Z @ W)
        kept = share * T * T * (taught * (np.log(taught) - cool)).sum() - (1 - share) * (marks * plain).sum()
        slope = share * T * (np.exp(cool) - taught) + (1 - share) * (np.exp(plain) - marks)
        return kept / len(Z) + 2.5e-4 * (W**2).sum(), (Z.T @ slope / len(Z) + 5e-4 * W).ravel()

    W = minimize(loss, np.zeros((C - 1) * C), jac=True, method="L-BFGS-B").x.reshape(C - 1, C) * 0.81
    z = TEST @ V
    settings: dict[str, Any] = {"shrinkage": "none", "pooling": "none", "priors": "balanced", "rank": C}
    found = fm.fit("proto-hyper-scaled", PARTIES, **settings).predict(TEST)
    assert np.mean(found != (lda(z) + z @ W).argmax(axis=1)) < 0.006


@pytest.mark.parametrize("scatter", ["total", "within"])
def test_ridge_on_random_features_by_either_scatter(scatter: str) -> None:
    settings: dict[str, Any] = {"scatter": "within", "covariance": "exact", "shrinkage": "none"}
    found = fm.fit(
        "fed3r-rf", PARTIES, n_features=64, bandwidth=3.0, ridge=0.01, **(settings if scatter == "within" else {})
    )
    assert found.feature_map is not None
    Z, Z_test = found.feature_map(X), found.feature_map(TEST)
    means, centre = np.array([Z[truth == c].mean(axis=0) for c in range(C)]), Z.mean(axis=0)
    gram = Z.T @ Z
    if scatter == "within":
        gram = gram - (COUNTS[:, None] * means).T @ means + N * np.outer(centre, centre)
    weights = ridge(gram, (COUNTS[:, None] * means).T, 0.01)
    assert (found.predict(TEST) != (Z_test @ weights).argmax(axis=1)).sum() == 0


def test_labels_from_the_sums_are_those_of_pooled_ridge_and_its_thresholds() -> None:
    targets = X @ np.random.default_rng(0).normal(size=(D, 3)) + np.sin(X[:, :3])
    marks = targets > 1.0
    found = fm.fit("multi-label", {k: (X[held == k], marks[held == k]) for k in range(7)}, ridge=0.7)
    centred = X - X.mean(axis=0)
    W = np.linalg.solve(centred.T @ centred + 0.7 * np.eye(D), centred.T @ (marks - marks.mean(axis=0)))
    known, new = (marks.mean(axis=0) + (points - X.mean(axis=0)) @ W for points in (X, TEST))
    for j in range(3):
        yes, no = known[marks[:, j], j], known[~marks[:, j], j]
        variance = (((yes - yes.mean()) ** 2).sum() + ((no - no.mean()) ** 2).sum()) / N
        step = variance / (yes.mean() - no.mean()) * np.log(len(no) / len(yes))
        threshold = (yes.mean() + no.mean()) / 2 + step
        assert ((new[:, j] > threshold) != found.predict(TEST)[:, j]).sum() == 0


def test_a_deep_head_of_three_layers_layer_by_layer() -> None:
    found: Any = fm.fit("deep-ridge", PARTIES, layers=3, width=32, ridge=0.5)
    *residuals, last = found.feature_map.maps
    marks, (z, z_test) = np.eye(C)[truth], (X, TEST)
    for layer in residuals:
        h, h_test = (np.maximum(points @ layer.layer.matrix, 0.0) for points in (z, z_test))
        values, vectors = np.linalg.eigh(z.T @ z)
        along = ((vectors.T @ z.T @ marks) ** 2).sum(axis=1)
        grid = np.exp(np.linspace(-10.0, 10.0, 8001))  # generalised cross-validation, by trying
        left = [(marks**2).sum() - (along * (values + 2 * a) / (values + a) ** 2).sum() for a in grid]
        free = [(N - (values / (values + a)).sum()) ** 2 for a in grid]
        amount = grid[int(np.argmin(np.array(left) / np.array(free)))]
        W = np.linalg.solve(z.T @ z + amount * np.eye(D), z.T @ marks)
        lam, U = np.linalg.eigh(h.T @ h)
        theta, V = np.linalg.eigh(W @ W.T)
        products = np.outer(lam, np.maximum(theta, 0.0))
        damping = 0.01 * products.mean() * D / C
        omega = U @ ((U.T @ h.T @ (marks - z @ W) @ W.T @ V) / (products + damping)) @ V.T
        np.testing.assert_allclose(omega, layer.weights, atol=2e-3 * np.abs(omega).max())
        z, z_test = z + h @ omega, z_test + h_test @ omega
    both, both_test = (np.hstack([points, np.maximum(points @ last.matrix, 0.0)]) for points in (z, z_test))
    scores = both_test @ ridge(both.T @ both, both.T @ marks, 0.5)
    assert (found.predict(TEST) != scores.argmax(axis=1)).sum() <= 1  # residuals travel in float32
