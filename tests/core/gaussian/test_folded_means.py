"""Laws of client means that are folded as they are made: what is fitted is what is fitted from all of them."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedmoments as fm
from fedmoments.core.gaussian.folded import folded_spec, folded_statistics
from fedmoments.core.statistics.partition import ClientCells
from fedmoments.errors import ClientsPooledError, FitWarning, InputError


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(1, 400),
    clients=st.integers(1, 60),
    classes=st.integers(1, 5),
    nobody=st.booleans(),
    seed=st.integers(0, 2**20),
)
def test_the_folded_scatter_is_that_of_the_means(n: int, clients: int, classes: int, nobody: bool, seed: int) -> None:
    """Against the formula: Σ_c (N_c−1)/(K_c−1) Σ_k n_kc (μ_kc−μ_c)(μ_kc−μ_c)ᵀ, one client after the other."""
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(n, 4)) + 7.0, rng.integers(classes, size=n)
    holders = rng.integers(-1 if nobody else 0, clients, size=n)
    stats = folded_statistics(X, y, holders, fm.spec_for("fedcof", "fed3r"), n_classes=classes)
    expected, spread = np.zeros((4, 4)), 0.0
    for label in range(classes):
        mine = (y == label) & (holders >= 0)
        held = np.unique(holders[mine])
        assert stats.counts[label] == mine.sum()
        for client in held if len(held) > 1 else ():
            cell = X[mine & (holders == client)]
            away = cell.mean(axis=0) - X[mine].mean(axis=0)
            expected += (mine.sum() - 1) / (len(held) - 1) * len(cell) * np.outer(away, away)
            spread += len(cell) * float(away @ away)
    packed = stats.global_array("free_scatter")
    upper = expected.T[np.tril_indices(4)]
    np.testing.assert_allclose(packed[:-1], upper, atol=1e-9 * max(np.abs(expected).max(), 1e-3))
    assert packed[-1] == pytest.approx(spread, rel=1e-9, abs=1e-12)
    held_samples = X[holders >= 0]
    np.testing.assert_allclose(stats.gram, held_samples.T @ held_samples, rtol=1e-10, atol=1e-9)


@pytest.mark.parametrize("head", ["fedcof", "lda-free"])
@pytest.mark.parametrize("offset", [0.0, 1000.0])
def test_heads_of_a_thousand_clients_are_those_of_kept_means(head: str, offset: float) -> None:
    rng = np.random.default_rng(0)
    y, clients = rng.integers(20, size=5000), rng.integers(1000, size=5000)
    X = (rng.normal(size=(5000, 32)) + rng.normal(size=(20, 32))[y] + offset).astype(np.float32)
    kept = fm.fit(head, fm.Ledger.of(X, y, clients, fm.spec_for(head), n_classes=20))
    folded = fm.fit(head, folded_statistics(X, y, clients, fm.spec_for(head), n_classes=20))
    weights: Any = [getattr(each, "weights") for each in (kept, folded)]  # noqa: B009 - of linear classifiers
    assert np.abs(weights[0] - weights[1]).max() <= 1e-10 * np.abs(weights[0]).max()
    assert folded.temperature == pytest.approx(kept.temperature, rel=1e-9)
    assert np.array_equal(folded.predict(X), kept.predict(X))


def test_equal_samples_have_no_spread_when_folded_either() -> None:
    y = np.repeat([0, 1], 50)
    X = np.array([[1000.1, 3.3], [-5.7, 1e4]])[y]
    stats = folded_statistics(X, y, np.arange(100) % 7, fm.spec_for("fedcof"), n_classes=2)
    assert not stats.global_array("free_scatter").any()
    with pytest.warns(FitWarning, match="do not differ"):
        assert np.array_equal(fm.fit("fedcof", stats).predict(X), y)


def test_a_head_that_needs_every_mean_says_so() -> None:
    rng = np.random.default_rng(0)
    y = np.arange(90) % 3
    stats = folded_statistics(rng.normal(size=(90, 4)), y, np.arange(90) % 9, fm.spec_for("fedcof"), n_classes=3)
    assert stats.spec == folded_spec(fm.spec_for("fedcof"))
    with pytest.raises(ClientsPooledError, match="needs the client means of every class"):
        fm.fit("qda-free", stats)


def test_blocks_of_cells_are_the_sums_of_their_samples() -> None:
    rng = np.random.default_rng(0)
    X, y, clients = rng.integers(-8, 9, size=(700, 3)) / 4, rng.integers(6, size=700), rng.integers(-1, 90, size=700)
    cells = ClientCells(X, y, clients, n_classes=6)
    everything = cells[0 : len(cells)]
    assert np.array_equal(np.concatenate([cells[i : i + 13] for i in range(0, len(cells), 13)]), everything)
    assert cells.counts.sum() == (clients >= 0).sum()
    table = fm.Ledger.of(X, y, clients, fm.spec_for("fedcof"), n_classes=6).statistics().rows
    assert np.array_equal(table.stored_sums, everything)
    assert np.array_equal(table.labels, cells.labels)


def test_a_sample_that_is_no_number_is_named() -> None:
    X = np.ones((30, 2))
    X[17, 1] = np.nan
    with pytest.raises(InputError, match="sample 17 holds NaN"):
        folded_statistics(X, np.arange(30) % 2, np.arange(30) % 5, fm.spec_for("fedcof"), n_classes=2)
