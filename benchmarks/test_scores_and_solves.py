"""Scores of Gaussian classifiers, the dual solve, and a few times without a bound.

Bounds on scores are against the form that the papers' code has, in torch: a class after the other, every sample a
system of its own (QDA), and log-densities broadcast to (samples, classes, dimensions) (naive Bayes). Tighter forms of
the same reference are timed along, without a bound: naive Bayes is at the speed of its two matrix products and QDA at
that of its triangular ones, so no kernel could beat those by as much.
"""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.linalg import eigh

import fedmoments as fm
from fedmoments.core.classifier.quadratic import DiagonalClassifier, QuadraticClassifier
from fedmoments.core.gaussian import ClassGaussians, FisherSubspace
from fedmoments.core.heads import ridge
from fedmoments.core.linalg import gcv_ridge

Compare = Callable[..., float]
Floats = NDArray[np.floating[Any]]

BATCH, CLASSES, DIM = 256, 100, 512
TYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])


@TYPES
def test_naive_bayes_scores_beat_the_broadcast_form(
    dtype: type[np.float32] | type[np.float64], compare: Compare
) -> None:
    rng = np.random.default_rng(0)
    X: Floats = rng.standard_normal((BATCH, DIM)).astype(dtype)
    means: Floats = rng.standard_normal((CLASSES, DIM)).astype(dtype)
    precisions: Floats = rng.uniform(0.5, 2.0, (CLASSES, DIM)).astype(dtype)
    bias: Floats = rng.standard_normal(CLASSES).astype(dtype)
    offset = means.mean(axis=0)
    ours = DiagonalClassifier(
        offset=offset.astype(np.float64),
        means=(means - offset).astype(np.float64),
        precisions=precisions.astype(np.float64),
        bias=bias.astype(np.float64),
        present=np.ones(CLASSES, bool),
    )

    torch_X, torch_means = torch.from_numpy(X), torch.from_numpy(means)
    torch_variances = torch.from_numpy(1 / precisions)

    def broadcast() -> Floats:
        squares = (torch_X[:, None, :] - torch_means).pow(2) / torch_variances
        return np.asarray(bias + (-0.5 * (squares + torch_variances.log())).sum(-1).numpy())

    def bare_numpy() -> Floats:
        return np.asarray(bias - 0.5 * ((X[:, None, :] - means) ** 2 * precisions).sum(axis=2))

    log_precision = 0.5 * np.log(precisions).sum(axis=1)
    np.testing.assert_allclose(ours.scores(X), bare_numpy(), rtol=1e-3)
    np.testing.assert_allclose(ours.scores(X) + log_precision, broadcast(), rtol=1e-3)
    compare(
        f"NB scores vs broadcast (B, C, d) in torch, {np.dtype(dtype)}",
        lambda: ours.scores(X),
        broadcast,
        at_least=50,
        rounds=10,
        vs_the_bare_form_in_numpy=bare_numpy,
    )


@TYPES
def test_qda_scores_beat_cholesky_solves_of_single_samples(
    dtype: type[np.float32] | type[np.float64], compare: Compare
) -> None:
    rng = np.random.default_rng(0)
    X: Floats = rng.standard_normal((BATCH, DIM)).astype(dtype)
    means: Floats = rng.standard_normal((CLASSES, DIM)).astype(dtype)
    bias = rng.standard_normal(CLASSES)
    lower = np.linalg.cholesky(np.stack([np.cov(rng.standard_normal((DIM, 2 * DIM))) for _ in range(CLASSES)]))
    offset = means.mean(axis=0)
    ours = QuadraticClassifier(
        offset=offset.astype(np.float64),
        means=(means - offset).astype(np.float64),
        whiteners=np.linalg.inv(lower).astype(np.float64),
        bias=bias,
        present=np.ones(CLASSES, bool),
    )
    torch_X, torch_means = torch.from_numpy(X), torch.from_numpy(means)
    factors = torch.from_numpy(lower.astype(dtype))
    timed = 2  # classes; the reference takes half a minute for all of them

    def solves(samples: int, classes: int, *, single: bool = False) -> Floats:
        """Score samples a class after the other: all samples of a class in one call, or one call each."""
        scores = np.empty((samples, classes))
        for label in range(classes):
            centred = torch_X[:samples] - torch_means[label]
            parts = torch.tensor_split(centred, samples) if single else (centred,)
            solved = torch.cat([torch.cholesky_solve(part[:, :, None], factors[label]) for part in parts])
            scores[:, label] = bias[label] - 0.5 * (centred * solved[:, :, 0]).sum(1).numpy()
        return scores

    np.testing.assert_allclose(ours.scores(X)[:, :timed], solves(BATCH, timed), rtol=1e-2)
    compare(
        f"QDA scores vs cholesky_solve a class (2 of 100 classes, scaled), {np.dtype(dtype)}",
        lambda: ours.scores(X),
        lambda: solves(BATCH, timed),
        at_least=100,
        scale=CLASSES / timed,
        rounds=3,
        vs_one_call_a_sample=lambda: solves(BATCH, timed, single=True),
    )


def test_dual_solve_beats_the_primal(compare: Compare, monkeypatch: pytest.MonkeyPatch) -> None:
    n_rows, n_classes, dim = 300, 100, 1280
    X = np.random.default_rng(0).standard_normal((n_rows, dim))
    y, clients = np.arange(n_rows) % n_classes, np.arange(n_rows) // n_classes
    stats = fm.Ledger.of(X, y, clients, fm.spec_for("fedcof"), n_classes=n_classes).statistics()

    def solve(dual_share: float) -> fm.Classifier:
        monkeypatch.setattr(ridge, "DUAL_SHARE", dual_share)
        return fm.fit("fedcof", stats)

    np.testing.assert_allclose(solve(0.75).scores(X), solve(0.0).scores(X), atol=1e-8)
    compare("Dual vs primal solve, 300 rows, d = 1280", lambda: solve(0.75), lambda: solve(0.0), at_least=3, rounds=10)


def test_gcv_against_a_full_eigendecomposition(compare: Compare) -> None:
    rng = np.random.default_rng(0)
    n, dim, n_classes = 4000, 1280, 100
    X, Y = rng.standard_normal((n, dim)), np.eye(n_classes)[rng.integers(0, n_classes, n)]
    gram, right = X.T @ X, X.T @ Y

    def by_eigh() -> float:
        values, vectors = eigh(gram)
        energies = ((vectors.T @ right) ** 2).sum(axis=1)
        ridges = np.trace(gram) / dim * 10.0 ** np.arange(-8.0, 3.0)
        shifted = values + ridges[:, None]
        rss = n - (energies * (values + 2 * ridges[:, None]) / shifted**2).sum(axis=1)
        return float(ridges[np.argmin(rss / n / (1 - (values / shifted).sum(axis=1) / n) ** 2)])

    compare(
        "GCV ridge vs full eigh, d = 1280", lambda: gcv_ridge(gram, right, energy=n, n_samples=n), by_eigh, rounds=2
    )


@pytest.mark.parametrize(("n_classes", "dim"), [(10, 512), (100, 512), (100, 1280)])
def test_fisher_subspace_beats_the_generalised_eigenproblem(n_classes: int, dim: int, compare: Compare) -> None:
    rng = np.random.default_rng(0)
    y = np.arange(4000) % n_classes
    X = rng.standard_normal((n_classes, dim))[y] + rng.standard_normal((4000, dim))
    gaussians = ClassGaussians(fm.Statistics.of(X, y, fm.StatisticsSpec.of("gram"), n_classes=n_classes))
    within = gaussians.pooled_covariance()
    centred = gaussians.means - gaussians.global_mean

    def ours() -> Floats:
        return FisherSubspace.of(gaussians, directions="all").basis

    def full() -> Floats:
        between = (centred / n_classes).T @ centred
        return np.asarray(eigh(between, within)[1][:, :-n_classes:-1])

    def unsymmetric() -> Floats:
        between = (centred / n_classes).T @ centred
        return np.asarray(torch.linalg.eig(torch.from_numpy(np.linalg.inv(within) @ between))[1].real.numpy())

    assert ours().shape == full().shape
    compare(
        f"Fisher subspace, C = {n_classes}, d = {dim}, vs eigh in d",
        ours,
        full,
        at_least=2,
        rounds=3,
        vs_eig_of_a_product=unsymmetric,
    )


def test_accumulating_a_tiny_client(compare: Compare) -> None:
    X, y = np.random.default_rng(0).standard_normal((13, 1280)), np.arange(13) % 5
    accumulator = fm.Accumulator(fm.StatisticsSpec.of("gram"), n_classes=5, dim=1280)
    total = np.zeros((1280, 1280))

    def plain() -> None:
        nonlocal total
        total += X.T @ X

    compare("Gram of 13 samples in place vs += X.T @ X", lambda: accumulator.update(X, y), plain, rounds=30)


def test_import_time(note: Callable[[str, str, str], None]) -> None:
    def seconds(statement: str) -> float:
        code = f"import time; {statement}; print(time.process_time())"
        done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
        return float(done.stdout)

    for statement in ("import fedmoments", "import numpy", "pass"):
        note(f"Python start with '{statement}'", f"{min(seconds(statement) for _ in range(5)) * 1e3:.0f} ms", "-")
