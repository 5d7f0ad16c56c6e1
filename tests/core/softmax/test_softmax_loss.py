"""The softmax loss against a naive referee: value, gradient, curvature, in both precisions, whatever a block holds."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from fedmoments.core.softmax import Block, SoftmaxLoss, objective
from fedmoments.errors import InputError

Array = npt.NDArray[Any]
C, K, M = 5, 3, 150
PRESENT = np.array([True, True, False, True, True])
NAMED = ["one label", "labels", "teacher", "labels and teacher", "one label and teacher", "labels and base", "all"]


def softmax(scores: Array) -> Array:
    """Return probabilities of one sample."""
    e = np.exp(scores - scores.max())
    return np.asarray(e / e.sum())


def naive(blocks: list[Block], W: Array, b: Array, loss: SoftmaxLoss) -> float:
    """Return the loss, a sample after the other."""
    total, n = 0.0, 0
    present = np.ones(C, bool) if loss.present is None else loss.present
    for block in blocks:
        for i in range(0, len(block.Z), loss.every):
            scores = np.array([block.Z[i] @ W[:, c] + b[c] for c in range(C)])
            scores = scores if block.base is None else scores + block.base[i]
            label = block.labels if block.labels is None or isinstance(block.labels, int) else block.labels[i]
            told = block.teacher is not None and loss.distill > 0
            share = 0.0 if not told else 1.0 if label is None else loss.distill
            n += 1
            if label is not None and share < 1:
                index = np.flatnonzero(present).tolist().index(label)
                total -= (1 - share) * np.log(softmax(scores[present])[index])
            if told:
                assert block.teacher is not None
                T = loss.temperature
                p, q = softmax(scores[present] / T), softmax(block.teacher[i][present] / T)
                total += share * T * T * sum(q * (np.log(q) - np.log(p)))
    return total / n + 0.5 * loss.decay * float((W[:, present] ** 2).sum())


def case(
    kind: str, *, dtype: Any = np.float64, masked: bool = True, **options: Any
) -> tuple[SoftmaxLoss, Array, Array]:
    rng = np.random.default_rng(NAMED.index(kind))

    def scores() -> Array:
        return np.asarray(2 * rng.normal(size=(M, C)), dtype)

    blocks = []
    for label in (1, 4):
        labels: Any = label if kind.startswith("one") else rng.choice([0, 1, 3, 4], M)
        blocks.append(
            Block(
                rng.normal(size=(M, K)).astype(dtype),
                None if kind == "teacher" else labels,
                scores() if "teacher" in kind or kind == "all" else None,
                scores() if "base" in kind or kind == "all" else None,
            )
        )
    distill = 1.0 if kind == "teacher" else 0.4 if "teacher" in kind or kind == "all" else 0.0
    loss = SoftmaxLoss(blocks, C, PRESENT if masked else None, 0.01, distill, 3.0, **options)
    return loss, rng.normal(size=(K, C)), rng.normal(size=C)


def gradient_by_differences(loss: SoftmaxLoss, W: Array, b: Array) -> tuple[Array, Array]:
    step = 1e-6
    by_weight, by_bias = np.zeros_like(W), np.zeros_like(b)
    for index in np.ndindex(W.shape):
        move = np.zeros_like(W)
        move[index] = step
        by_weight[index] = (loss(W + move, b)[0] - loss(W - move, b)[0]) / (2 * step)
    for c in range(C):
        move = np.zeros_like(b)
        move[c] = step
        by_bias[c] = (loss(W, b + move)[0] - loss(W, b - move)[0]) / (2 * step)
    return by_weight, by_bias


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("kind", NAMED)
def test_the_loss_is_that_of_the_naive_referee(kind: str, masked: bool) -> None:
    loss, W, b = case(kind, masked=masked)
    assert loss(W, b)[0] == pytest.approx(naive(list(loss.blocks), W, b, loss), rel=1e-12)


@pytest.mark.parametrize("kind", NAMED)
def test_the_gradient_is_that_of_finite_differences(kind: str) -> None:
    loss, W, b = case(kind)
    by_weight, by_bias = gradient_by_differences(loss, W, b)
    grad_w, grad_b = loss(W, b)[1]
    np.testing.assert_allclose(grad_w, by_weight, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(grad_b, by_bias, rtol=1e-6, atol=1e-8)
    assert (grad_w[:, 2] == 0).all()
    assert grad_b[2] == 0


@pytest.mark.parametrize("free_bias", [True, False])
@pytest.mark.parametrize("kind", NAMED)
def test_the_curvature_is_that_of_finite_differences_of_the_gradient(kind: str, free_bias: bool) -> None:
    loss, W, b = case(kind, free_bias=free_bias)
    curvature = loss.visit(W, b, keep=1)[2]
    rng = np.random.default_rng(9)
    V, v = rng.normal(size=(K, C)), rng.normal(size=C) * free_bias
    step = 1e-6
    above, below = loss(W + step * V, b + step * v)[1], loss(W - step * V, b - step * v)[1]
    product = curvature.product(np.vstack([V[:, PRESENT], v[PRESENT]]))
    np.testing.assert_allclose(product[:-1], ((above[0] - below[0]) / (2 * step))[:, PRESENT], rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(product[-1], ((above[1] - below[1]) / (2 * step))[PRESENT], rtol=1e-5, atol=1e-8)
    if not free_bias:
        assert (loss(W, b)[1][1] == 0).all()
        assert (product[-1] == 0).all()


@pytest.mark.parametrize("kind", NAMED)
def test_single_precision_agrees_with_double(kind: str) -> None:
    wide, W, b = case(kind)
    narrow, _, _ = case(kind, dtype=np.float32)
    assert narrow(W, b)[0] == pytest.approx(wide(W, b)[0], rel=1e-5)
    np.testing.assert_allclose(narrow(W, b)[1][0], wide(W, b)[1][0], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("kind", NAMED)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scores_beyond_what_exp_can_take(kind: str, dtype: Any) -> None:
    loss, W, b = case(kind, dtype=dtype)
    W, b = 1e4 * W, 1e4 * b
    value, (grad_w, grad_b) = loss(W, b)
    assert np.isfinite(value)
    assert np.isfinite(grad_w).all()
    assert np.isfinite(grad_b).all()
    if kind == "labels":
        block = next(iter(loss.blocks))
        assert isinstance(block.labels, np.ndarray)
        alone = SoftmaxLoss([block], C, PRESENT)
        scores = block.Z.astype(np.float64) @ W + b
        far = (scores[:, PRESENT].max(axis=1) - scores[np.arange(M), block.labels]).mean()
        assert alone(W, b)[0] == pytest.approx(far, rel=1e-4)


@pytest.mark.parametrize("kind", NAMED)
def test_it_does_not_matter_how_many_samples_are_worked_on_at_once(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    loss, W, b = case(kind)
    value, (grad_w, grad_b) = loss(W, b)
    monkeypatch.setattr(objective, "AT_ONCE", 1)  # 64 samples, the least
    assert sum(1 for _ in loss._chunks(PRESENT.sum())) == 6
    assert loss(W, b)[0] == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(loss(W, b)[1][0], grad_w, rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(loss(W, b)[1][1], grad_b, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("kind", NAMED)
def test_a_thinner_set_is_every_so_many_th_sample(kind: str) -> None:
    loss, W, b = case(kind, every=3)
    assert loss.n_samples == 2 * 50
    assert loss(W, b)[0] == pytest.approx(naive(list(loss.blocks), W, b, loss), rel=1e-12)
    few = loss.visit(W, b, keep=4)[2]
    assert few.n_samples == 25  # of 100, the stride going on from block to block


def test_the_stride_of_the_curvature_goes_on_over_chunks_and_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objective, "AT_ONCE", 1)  # 64 samples, the least
    Z, labels = np.arange(8000.0)[:, None], np.arange(8000) % 2
    blocks = [Block(Z[:100], labels[:100]), Block(Z[100:], labels[100:])]
    for keep in (1, 3, 64, 1000, 10_000):
        kept = SoftmaxLoss(blocks, 2).visit(np.zeros((1, 2)), np.zeros(2), keep=keep)[2]
        assert kept.n_samples == -(-8000 // keep)
        np.testing.assert_array_equal(np.concatenate([part[0] for part in kept.parts]), Z[::keep])
        assert all(part[0].shape[0] == part[1].shape[1] for part in kept.parts)


def test_what_cannot_be_fitted_is_refused() -> None:
    W, b = np.zeros((K, C)), np.zeros(C)
    with pytest.raises(InputError, match="every block is empty"):
        SoftmaxLoss([], C)(W, b)
    with pytest.raises(InputError, match=r"labelled \[2\], of classes that take no part"):
        SoftmaxLoss([Block(np.zeros((2, K)), 2)], C, PRESENT)(W, b)
    with pytest.raises(InputError, match=r"labelled \[2\], of classes that take no part"):
        SoftmaxLoss([Block(np.zeros((2, K)), np.array([0, 2]))], C, PRESENT)(W, b)
    wrong: list[tuple[Any, int]] = [(-1, -1), (5, 5), (np.array([0, -1]), -1), (np.array([0, 7]), 7)]
    for labels, arrived in wrong:
        with pytest.raises(InputError, match=rf"labels must be from 0 to 4 \(5 classes\), but {arrived} arrived"):
            SoftmaxLoss([Block(np.zeros((2, K)), labels)], C)(W, b)
    with pytest.raises(InputError, match="neither labels nor a teacher"):
        SoftmaxLoss([Block(np.zeros((2, K)), teacher=np.zeros((2, C)))], C)(W, b)
