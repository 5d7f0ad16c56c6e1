"""The solvers of softmax regression: they find the minimum, never climb, and stop when they should."""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.optimize import minimize

from fedmoments.core.softmax import Block, SoftmaxFit, SoftmaxLoss, curvature, fit_low_rank, fit_softmax, solver
from fedmoments.errors import InputError

Array = npt.NDArray[Any]
C, K = 4, 3


def problem(
    n: int = 400, *, decay: float = 1e-3, seed: int = 0, dtype: Any = np.float64, far: float = 1.5
) -> SoftmaxLoss:
    rng = np.random.default_rng(seed)
    means = far * rng.normal(size=(C, K))
    blocks = [Block((means[c] + rng.normal(size=(n, K))).astype(dtype), c) for c in range(C)]
    return SoftmaxLoss(blocks, C, decay=decay)


def least(loss: SoftmaxLoss) -> float:
    """Return the minimum by scipy, to all digits."""

    def flat(point: Array) -> tuple[float, Array]:
        value, (by_weight, by_bias) = loss(point[:-C].reshape(K, C), point[-C:])
        return value, np.concatenate([by_weight.ravel(), by_bias])

    return float(minimize(flat, np.zeros(K * C + C), jac=True, method="BFGS", options={"gtol": 1e-9}).fun)


def zero() -> tuple[Array, Array]:
    return np.zeros((K, C)), np.zeros(C)


@pytest.mark.parametrize("decay", [0.0, 1e-3, 0.1])
@pytest.mark.parametrize("thin", [1, 8])
def test_the_minimum_is_found(decay: float, thin: int) -> None:
    loss = problem(decay=decay)
    fit = fit_softmax(loss, *zero(), tolerance=1e-8, thin=thin)
    assert fit.loss == pytest.approx(least(loss), abs=1e-9)
    assert np.abs(loss(fit.weights, fit.bias)[1][0]).max() < 1e-8
    assert fit.passes < 60


@pytest.mark.parametrize("rows", [200, 10**6])
def test_few_samples_for_the_curvature_and_its_diagonal_alone_lead_to_the_same_minimum(
    rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    loss = problem()
    expected = least(loss)
    monkeypatch.setattr(solver, "ROWS", rows)
    monkeypatch.setattr(solver, "ROWS_PER_CLASS", 1)
    assert fit_softmax(loss, *zero(), tolerance=1e-7).loss == pytest.approx(expected, abs=1e-8)
    monkeypatch.setattr(curvature, "MOST_BLOCK_FLOATS", 1)
    assert fit_softmax(loss, *zero(), tolerance=1e-7).loss == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("scale", [0.0, 1.0, 10.0, 1000.0])
@pytest.mark.parametrize("decay", [0.0, 1e-3])
def test_the_loss_is_never_above_that_of_the_start(scale: float, decay: float) -> None:
    for seed in range(5):
        loss = problem(60, decay=decay, seed=seed)
        rng = np.random.default_rng(seed)
        start = scale * rng.normal(size=(K, C)), scale * rng.normal(size=C)
        fit = fit_softmax(loss, *start, most_passes=30)
        assert fit.loss <= loss(*start)[0]
        assert fit.loss == pytest.approx(loss(fit.weights, fit.bias)[0], rel=1e-12)


def test_probabilities_of_0_and_1_have_no_curvature_and_are_fitted_all_the_same() -> None:
    block = Block(np.array([[1000.0], [-1000.0]]), np.array([1, 0]))
    for decay in (0.0, 1e-3):
        loss = SoftmaxLoss([block], 2, decay=decay)
        start = np.array([[10.0, 0.0]]), np.zeros(2)
        fit = fit_softmax(loss, *start)
        assert np.isfinite(fit.weights).all()
        assert np.isfinite(fit.bias).all()
        assert loss(*start)[0] == pytest.approx(1e4, rel=1e-2)
        assert fit.loss < 0.1


@pytest.mark.parametrize("scale", [5.0, 50.0, 200.0, 1000.0, -50.0, -1000.0])
@pytest.mark.parametrize("decay", [0.0, 1e-3])
@pytest.mark.parametrize("free_bias", [True, False])
def test_a_start_with_scores_that_are_far_too_large_leads_to_the_minimum(
    scale: float, decay: float, free_bias: bool
) -> None:
    for seed in range(3):
        rng = np.random.default_rng(seed)
        y = rng.integers(5, size=500)
        Z = rng.normal(size=(5, 8))[y] + rng.normal(size=(500, 8))
        loss = SoftmaxLoss([Block(Z, y)], 5, decay=decay, free_bias=free_bias)
        best = fit_softmax(loss, np.zeros((8, 5)), np.zeros(5), tolerance=1e-7)
        start = scale * best.weights, scale * best.bias
        fit = fit_softmax(loss, *start)
        assert loss(*start)[0] > 2 * best.loss
        assert fit.loss == pytest.approx(best.loss, abs=1e-5)


def test_scores_that_are_far_too_large_before_any_weight_lead_to_the_minimum() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(C, size=400)
    Z = rng.normal(size=(C, K))[y] + rng.normal(size=(400, K))
    plain = SoftmaxLoss([Block(Z, y)], C, decay=0.0)
    wrong = 300.0 * rng.normal(size=(K, C))
    shifted = SoftmaxLoss([Block(Z, y, base=Z @ wrong)], C, decay=0.0)
    # smaller weights cannot help: the minimum is that without a base, at weights less those of the base
    assert shifted(*zero())[0] > 100
    assert fit_softmax(shifted, *zero()).loss == pytest.approx(least(plain), abs=1e-5)


@pytest.mark.parametrize("most_passes", [1, 4, 200])
def test_a_thinner_set_that_leads_astray_does_not_raise_the_loss(most_passes: int) -> None:
    rng = np.random.default_rng(0)
    Z, y = rng.normal(size=(400, K)), rng.integers(C, size=400)
    y[::8] = Z[::8].argmax(axis=1)  # the thinner set is separable, the whole is noise
    loss = SoftmaxLoss([Block(Z, y)], C)
    start = fit_softmax(loss, *zero(), tolerance=1e-9)
    alone = fit_softmax(replace(loss, every=8), start.weights, start.bias, most_passes=8 * most_passes)
    assert loss(alone.weights, alone.bias)[0] > start.loss + 0.1
    fit = fit_softmax(loss, start.weights, start.bias, thin=8, most_passes=most_passes)
    assert fit.loss <= loss(start.weights, start.bias)[0]
    assert fit.loss == pytest.approx(loss(fit.weights, fit.bias)[0], rel=1e-12)


def test_separable_samples_without_decay_end_all_the_same() -> None:
    loss = problem(50, decay=0.0, far=50.0)
    fit = fit_softmax(loss, *zero())
    assert fit.loss < 1e-4
    assert np.isfinite(fit.weights).all()


def test_noise_stops_earlier_and_costs_less_than_the_sample_does() -> None:
    loss = problem(2000)
    exact, rough = fit_softmax(loss, *zero(), tolerance=1e-9), fit_softmax(loss, *zero(), noise=0.1)
    assert rough.passes < exact.passes
    n_parameters, n = K * C + C, loss.n_samples
    assert 0 <= rough.loss - exact.loss < 0.1 * n_parameters / (2 * n)


def test_passes_are_bounded() -> None:
    loss = problem()
    counted: list[int] = []
    watched = replace(loss, blocks=Watched(list(loss.blocks), counted))
    assert fit_softmax(watched, *zero(), tolerance=0.0, most_passes=6).passes <= 8
    assert len(counted) <= 8  # one of them counts the samples


class Watched:
    """Blocks that note how often they are visited."""

    def __init__(self, blocks: list[Block], visits: list[int]) -> None:
        self.blocks, self.visits = blocks, visits

    def __iter__(self) -> Any:
        self.visits.append(1)
        return iter(self.blocks)


def test_classes_that_take_no_part_keep_their_weights() -> None:
    loss = problem()
    present = np.array([True, True, True, True, False])
    wider = SoftmaxLoss(loss.blocks, C + 1, present, decay=1e-3)
    weights, bias = np.full((K, C + 1), 7.0), np.full(C + 1, 7.0)
    fit = fit_softmax(wider, weights, bias)
    assert (fit.weights[:, -1] == 7).all()
    same = fit_softmax(loss, weights[:, :-1], bias[:-1])
    np.testing.assert_array_equal(fit.weights[:, :-1], same.weights)
    assert (weights == 7).all()  # the start is not overwritten


def test_a_bias_that_is_not_free_stays() -> None:
    loss = replace(problem(), free_bias=False)
    bias = np.array([0.5, -0.5, 0.0, 1.0])
    fit = fit_softmax(loss, np.zeros((K, C)), bias)
    np.testing.assert_array_equal(fit.bias, bias)
    assert fit.loss < loss(np.zeros((K, C)), bias)[0]


def test_single_precision_finds_the_minimum_to_its_digits() -> None:
    fit = fit_softmax(problem(dtype=np.float32), *zero(), tolerance=1e-5)
    assert fit.loss == pytest.approx(least(problem()), abs=1e-5)


def test_the_preconditioner_is_symmetric_and_positive() -> None:
    loss = problem(100)
    rng = np.random.default_rng(1)
    bent = loss.visit(rng.normal(size=(K, C)), rng.normal(size=C), keep=1)[2]
    solve, size = bent.preconditioner(), (K + 1) * C
    matrix = np.stack([solve(row.reshape(K + 1, C)).ravel() for row in np.eye(size)])
    np.testing.assert_allclose(matrix, matrix.T, atol=1e-9 * np.abs(matrix).max())
    assert np.linalg.eigvalsh(matrix).min() > 0
    exact = np.stack([bent.product(row.reshape(K + 1, C)).ravel() for row in np.eye(size)])
    plain = np.linalg.eigvalsh(exact)
    eased = np.abs(np.linalg.eigvals(matrix @ exact))
    kept = plain > 1e-6 * plain.max()  # a shift of all biases bends nothing
    assert np.sort(eased)[-kept.sum() :].max() / np.sort(eased)[-kept.sum() :].min() < plain.max() / plain[kept].min()


# -------------------------------------------------------------------------------------------------- low rank


def low_rank_problem() -> tuple[SoftmaxLoss, SoftmaxFit]:
    loss = replace(problem(200), free_bias=False)
    return loss, fit_softmax(loss, *zero(), tolerance=1e-8)


def test_a_rank_bounds_the_weights_and_more_rank_is_never_worse() -> None:
    loss, full = low_rank_problem()
    losses = []
    for rank in (1, 2, 3):
        fit = fit_low_rank(loss, full, rank)
        assert np.linalg.matrix_rank(fit.weights, tol=1e-8) <= rank
        assert fit.loss == pytest.approx(loss(fit.weights, fit.bias)[0], rel=1e-12)
        losses.append(fit.loss)
    assert loss(*zero())[0] > losses[0] > losses[1] > losses[2] - 1e-9
    assert losses[2] == pytest.approx(full.loss, abs=1e-6)


def test_the_factors_have_the_gradient_of_finite_differences() -> None:
    loss, full = low_rank_problem()
    fit = fit_low_rank(loss, full, 1, most_passes=200)
    # at a minimum over matrices of rank 1, no small change of either factor lowers the loss
    U, s, Vt = np.linalg.svd(fit.weights)
    rng = np.random.default_rng(0)
    for _ in range(20):
        left, right = s[0] * U[:, :1] + 1e-2 * rng.normal(size=(K, 1)), Vt[:1] + 1e-2 * rng.normal(size=(1, C))
        assert loss(left @ right, fit.bias)[0] > fit.loss - 1e-7


def test_a_cut_that_is_worse_than_nothing_is_not_started_from() -> None:
    loss, full = low_rank_problem()
    bad = SoftmaxFit(-50.0 * full.weights, full.bias, full.loss, 1)
    fit = fit_low_rank(loss, bad, 2)
    assert fit.loss < loss(*zero())[0]
    with pytest.raises(InputError, match="rank of a residual"):
        fit_low_rank(loss, full, 0)
