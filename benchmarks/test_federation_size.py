"""Measuring and solving for a federation of the size of iNaturalist-Users-120K."""

import tracemalloc
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.linalg import blas, lapack

import fedmoments as fm

Compare = Callable[..., float]
Floats = NDArray[np.float64]


@pytest.fixture(scope="module")
def ledger(federation: Any) -> fm.Ledger:
    X, y, clients, _, n_classes = federation
    made = fm.Ledger.of(X, y, clients, fm.spec_for("fedcof"), n_classes=n_classes)
    assert len(made.statistics().rows) == 54_555
    return made


def fresh_fit(ledger: fm.Ledger) -> fm.Classifier:
    """Fit as if for the first time: what the ledger merged for an earlier fit is forgotten."""
    ledger._merged = None
    return fm.fit("fedcof", ledger)


def resident_growth(run: Callable[[], object]) -> float | None:
    """Return by how many MB the resident set grew at its peak during ``run``; None where Linux does not tell."""
    try:
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
    except OSError:
        return None
    before = resident("VmRSS")
    run()
    return resident("VmHWM") - before


def resident(field: str) -> float:
    """Return a field of this process's status, in MB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise LookupError(field)


def test_fedcof_fit_is_hardly_more_than_a_syrk_and_a_posv(ledger: fm.Ledger, compare: Compare) -> None:
    stats = ledger.statistics()
    rows, sums = stats.rows.stored_sums, stats.sums

    def syrk_and_posv() -> Floats:
        gram = blas.dsyrk(1.0, rows.T, lower=0)
        gram[np.diag_indices_from(gram)] += 1e3
        _, weights, info = lapack.dposv(gram, np.asfortranarray(sums.T), lower=0, overwrite_a=1, overwrite_b=1)
        assert info == 0
        return np.asarray(weights)

    compare("FedCOF fit vs one syrk + one posv", lambda: fresh_fit(ledger), syrk_and_posv, at_most=1.6, rounds=3)


def test_fedcof_fit_needs_little_memory_beyond_the_ledger(ledger: fm.Ledger, note: Callable[..., None]) -> None:
    tracemalloc.start()
    fresh_fit(ledger)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    traced = peak / 1e6
    note("FedCOF fit, peak memory (tracemalloc)", f"{traced:.1f} MB", "<= 100 MB")
    grown = resident_growth(lambda: fresh_fit(ledger))
    if grown is not None:
        note("FedCOF fit, peak memory (resident set)", f"{grown:.1f} MB", "-")
    assert traced <= 100


def test_measuring_all_clients_for_fedcof_beats_a_loop(federation: Any, compare: Compare) -> None:
    X, y, clients, n_clients, n_classes = federation
    spec = fm.spec_for("fedcof")

    def means_of(X_k: NDArray[np.float32], y_k: NDArray[np.int64], rows: list[tuple[int, int, Floats]]) -> None:
        for label in np.unique(y_k):
            mask = y_k == label
            rows.append((int(label), int(mask.sum()), X_k[mask].mean(axis=0, dtype=np.float64)))

    def collected(rows: list[tuple[int, int, Floats]]) -> tuple[Floats, NDArray[np.int64], NDArray[np.int64]]:
        labels, counts, means = zip(*rows, strict=True)
        return np.stack(means), np.array(labels), np.array(counts)

    def loop() -> tuple[Floats, NDArray[np.int64], NDArray[np.int64]]:
        """The fair loop: one sort hands every client its samples, then a mask a class."""
        rows: list[tuple[int, int, Floats]] = []
        order = np.argsort(clients, kind="stable")
        bounds = np.searchsorted(clients[order], np.arange(n_clients + 1))
        for start, stop in pairwise(bounds):
            means_of(X[order[start:stop]], y[order[start:stop]], rows)
        return collected(rows)

    def ours() -> fm.Ledger:
        return fm.Ledger.of(X, y, clients, spec, n_classes=n_classes)

    means, labels, counts = loop()
    rows = ours().statistics().rows
    assert np.array_equal(rows.labels, labels)
    assert np.array_equal(rows.counts, counts)
    np.testing.assert_allclose(rows.block_means(), means, atol=1e-12)
    del means, rows
    compare("FedCOF measure, 9,275 clients vs loop", ours, loop, at_least=4, rounds=7)


def test_measuring_all_clients_for_fed3r_is_at_most_two_syrks(federation: Any, compare: Compare) -> None:
    X, y, clients, _, n_classes = federation
    wide, spec = X.astype(np.float64), fm.spec_for("fed3r")
    compare(
        "Fed3R measure, 9,275 clients vs one syrk",
        lambda: fm.Ledger.of(X, y, clients, spec, n_classes=n_classes, fold=True),
        lambda: blas.dsyrk(1.0, wide.T, lower=0),
        at_most=2,
        rounds=2,
    )
