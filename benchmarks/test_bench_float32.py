"""Products in float32 against float64, and against the plainest float32 of each formula in torch; one thread.

Beside every ratio stands the largest that can be had here: the same work, were its products bare ``ssyrk`` instead of
bare ``dsyrk``, with nothing else made faster. Sums, centring, solves and temperatures stay in float64.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.linalg import blas

import fedmoments as fm

Compare = Callable[..., float]
Note = Callable[[str, str, str], None]


def note_ceiling(note: Note, rows: NDArray[np.float32], ours: Callable[[], object]) -> None:
    """Note what bare products of these rows leave to be gained of ``ours``, which computes them in float64."""
    double, single = rows[:2048].astype(np.float64), rows[:2048]

    def best(run: Callable[[], object], rounds: int) -> float:
        times = []
        for _ in range(rounds + 1):
            start = time.process_time()
            run()
            times.append(time.process_time() - start)
        return min(times)

    share = len(rows) / len(single)
    wide, narrow = best(lambda: blas.dsyrk(1.0, double.T), 9), best(lambda: blas.ssyrk(1.0, single.T), 9)
    whole = best(ours, 3)
    ceiling = whole / max(whole - share * (wide - narrow), share * narrow)
    text = f"dsyrk/ssyrk {wide / narrow:.2f}, products {share * wide / whole:.0%} of float64: at most {ceiling:.2f}"
    print(f"\n  … {text}")
    note("  … bare products of the line above", text, "-")


def single(run: Callable[[], object]) -> Callable[[], object]:
    def quick() -> object:
        with fm.precision("float32"):
            return run()

    return quick


@pytest.mark.parametrize(("n", "dim", "classes", "least"), [(50_000, 512, 100, 1.4), (6_000, 1280, 200, 1.5)])
def test_fed3r_clients(n: int, dim: int, classes: int, least: float, compare: Compare, note: Note) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((n, dim), dtype=np.float32), rng.integers(classes, size=n)
    clients, spec = rng.integers(100, size=n), fm.spec_for("fed3r")
    Xt, yt, mine = torch.from_numpy(X), torch.from_numpy(y), [np.flatnonzero(clients == k) for k in range(100)]

    def ours() -> fm.Ledger:
        return fm.Ledger.of(X, y, clients, spec, n_classes=classes, fold=True, leaving=False)

    def plain() -> tuple[Any, Any]:
        """A = Σ x xᵀ and b = Xᵀ Y of every client, added up."""
        gram, sums = torch.zeros(dim, dim), torch.zeros(classes, dim)
        for rows in mine:
            Z = Xt[rows]
            gram += Z.T @ Z
            sums.index_add_(0, yt[rows], Z)
        return gram, sums

    compare(
        f"Fed3R clients, {n:,} x {dim}: float64 / float32",
        single(ours),
        ours,
        at_least=least,
        plain_torch_float32=plain,
    )
    note_ceiling(note, X, ours)


@pytest.mark.parametrize(
    ("classes", "dim", "clients", "rows", "least"),
    [(100, 512, 100, 2_809, 1.1), (200, 1280, 100, 2_416, 1.2), (1_203, 1280, 9_275, 54_555, 1.5)],
)
def test_fedcof_server(
    classes: int, dim: int, clients: int, rows: int, least: float, compare: Compare, note: Note
) -> None:
    rng = np.random.default_rng(0)
    cells = np.sort(rng.choice(clients * classes, rows, replace=False))
    owners, labels = np.divmod(cells, classes)
    X = rng.standard_normal((rows, dim), dtype=np.float32)
    X += rng.standard_normal((classes, dim), dtype=np.float32)[labels]
    ledger = fm.Ledger.of(X, labels, owners, fm.spec_for("fedcof"), n_classes=classes)
    means, at = torch.from_numpy(X), torch.from_numpy(labels)
    held = torch.bincount(at, minlength=classes)

    def ours() -> fm.Classifier:
        ledger._merged = None
        return fm.fit("fedcof", ledger)

    def plain() -> Any:
        """Σ_c (N_c − 1)·(Σ̂_c + γI) + N μ_g μ_gᵀ, class by class, and one solve; means are of one sample each."""
        total, sums = torch.zeros(dim, dim), torch.zeros(classes, dim)
        for label in range(classes):
            mine = means[at == label]
            sums[label] = mine.sum(dim=0)
            if len(mine) > 1:
                away = mine - mine.mean(dim=0)
                total += (len(mine) - 1) * (away.T @ away / (len(mine) - 1) + torch.eye(dim))
        mean = sums.sum(dim=0) / rows
        return torch.linalg.solve(total + rows * torch.outer(mean, mean), sums.T)

    assert int(held.sum()) == rows
    compare(
        f"FedCOF server, {rows:,} means, d = {dim}, C = {classes}: float64 / float32",
        single(ours), ours, at_least=least, rounds=3, plain_torch_float32=plain,
    )  # fmt: skip
    note_ceiling(note, X, ours)


def test_qda_fit_is_on_par_with_plain_float32(compare: Compare) -> None:
    classes, dim, n = 100, 512, 60_000
    rng = np.random.default_rng(0)
    y = np.arange(n) % classes
    X = rng.standard_normal((n, dim), dtype=np.float32) + 2 * rng.standard_normal((classes, dim), dtype=np.float32)[y]
    stats = fm.Statistics.of(X, y, fm.StatisticsSpec.of("class_grams"), n_classes=classes)
    grams = [torch.from_numpy(gram.astype(np.float32)) for _, gram in stats.class_grams]
    sums, counts = torch.from_numpy(stats.sums.astype(np.float32)), stats.counts.tolist()

    def ours() -> fm.Classifier:
        stats.__dict__.pop("_kept", None)  # as if for the first time
        return fm.fit("gh-qda", stats, pooling="none", shrinkage="blend:0.1")

    def plain() -> Any:
        """Σ_c = S_c/N_c − μ_c μ_cᵀ, blended with its trace; its inverse and log-determinant."""
        inverses, logarithms = [], []
        for label in range(classes):
            mean = sums[label] / counts[label]
            covariance = grams[label] / counts[label] - torch.outer(mean, mean)
            covariance = 0.9 * covariance + 0.1 * torch.trace(covariance) / dim * torch.eye(dim)
            lower = torch.linalg.cholesky(covariance)
            inverses.append(torch.cholesky_inverse(lower))
            logarithms.append(2 * torch.log(torch.diagonal(lower)).sum())
        return torch.stack(inverses), torch.stack(logarithms)

    compare(
        "QDA fit (GH-OFL), 100 classes, d = 512, vs plain torch in float32",
        single(ours), plain, at_least=0.8, rounds=3, ours_in_float64=ours,
    )  # fmt: skip
