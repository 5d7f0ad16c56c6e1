"""Laws of local tests, and of what personalisation brings every client of a simulated federation."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedmoments as fm
from fedmoments.core.heads import make_head
from fedmoments.core.statistics import Statistics
from fedmoments.errors import InputError
from fedmoments.samples import DROPPED, Split, parse_split
from fedmoments.samples.features import Features, Samples
from fedmoments.study.personal import PersonalResult, simulate_personal
from fedmoments.tuning.blending import blend
from fedmoments.tuning.local_tests import deal_tests, hold_out_tests
from fedmoments.tuning.personal import mask_to_labels, weigh_by_shares

C, D = 6, 5
SEEDS = st.integers(0, 2**32)


def toy(seed: int = 0, n: int = 300, apart: float = 0.0, clients: int = 5) -> tuple[Features, Split]:
    """Return features, and who holds them; clients may differ by a shift of their own."""
    rng = np.random.default_rng(seed)
    means = 1.5 * rng.normal(size=(C, D))
    y = rng.integers(C, size=2 * n)
    split = parse_split("dirichlet:0.3").apply(y[:n], n_clients=clients, seed=seed)
    X = means[y] + rng.normal(size=(2 * n, D))
    X[:n] += apart * rng.normal(size=(clients, D))[split.clients]
    return Features("toy", C, Samples(X[:n], y[:n]), Samples(X[n:], y[n:])), split


# ---------------------------------------------------------------------------------------------- local tests


@settings(max_examples=40, deadline=None)
@given(SEEDS, st.integers(1, 8), st.integers(0, 60))
def test_every_test_sample_of_a_held_class_is_dealt_once_in_proportion(seed: int, K: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    cells = rng.integers(0, 4, size=(K, C)) * rng.integers(0, 2, size=(K, C))
    y = rng.integers(C, size=n)
    dealt = deal_tests(y, cells, seed=seed)
    held = cells.sum(axis=0) > 0
    assert np.array_equal(dealt.clients == DROPPED, ~held[y])
    totals = np.bincount(y, minlength=C)
    found = dealt.cells(y, C).toarray()
    assert np.array_equal(found.sum(axis=0)[held], totals[held])
    exact = cells[:, held] / cells.sum(axis=0)[held] * totals[held]
    assert (np.abs(found[:, held] - exact) < 1 + 1e-9).all()
    assert not found[cells == 0].any()


def test_dealing_follows_from_the_seed_and_is_exact_on_average() -> None:
    cells, y = np.array([[7], [2], [1]]), np.zeros(5, np.int64)
    assert deal_tests(y, cells, seed=3) == deal_tests(y, cells, seed=3)
    found = np.array([deal_tests(y, cells, seed=seed).sizes for seed in range(2000)])
    assert len({tuple(each) for each in found}) > 1
    np.testing.assert_allclose(found.mean(axis=0), [3.5, 1.0, 0.5], atol=0.06)


@settings(max_examples=40, deadline=None)
@given(SEEDS, st.floats(0.1, 0.9))
def test_what_clients_hold_out_and_what_they_keep_are_all_their_samples(seed: int, share: float) -> None:
    features, split = toy(seed % 100, n=60)
    rest, mine, tests = hold_out_tests(features, split, share, seed=seed)
    assert np.array_equal(tests.sizes, (share * split.sizes).astype(int))
    for client in range(split.n_clients):
        both = np.concatenate([rest.train.X[mine.indices(client)], rest.test.X[tests.indices(client)]])
        expected = features.train.X[split.indices(client)]
        assert np.array_equal(np.sort(both, axis=0), np.sort(expected, axis=0))


def test_keys_of_training_samples_stay_with_them() -> None:
    features, split = toy(n=60)
    keyed = Features("toy", C, features.train, domains=split.clients.copy())
    rest, mine, _ = hold_out_tests(keyed, split, 0.5, seed=0)
    assert rest.domains is not None
    assert np.array_equal(rest.domains, mine.clients)


@pytest.mark.parametrize(("share", "sentence"), [(0.0, "above 0 and below 1"), (1.0, "not 1.0"), (0.01, "hold out")])
def test_shares_that_leave_nothing_are_refused(share: float, sentence: str) -> None:
    features, split = toy(n=60, clients=3)
    with pytest.raises(InputError, match=sentence):
        hold_out_tests(features, split, share, seed=0)


def test_test_labels_out_of_range_are_refused() -> None:
    with pytest.raises(InputError, match="from 0 to 1, but go from 0 to 2"):
        deal_tests([0, 2], np.ones((1, 2), np.int64), seed=0)


# ---------------------------------------------------------------------------------------------- the table


def accuracy(result: PersonalResult, head: str, variant: str) -> float:
    found = result.row(head, variant).accuracy
    assert found is not None
    return found


def referee(features: Features, split: Split, name: str, beta: Any, seed: int) -> dict[str, list[int]]:
    """Let every client do by hand what the simulation says that it does."""
    head = make_head(name)
    train, test = features.train, features.test
    parts = {k: (train.X[mine], train.y[mine]) for k, mine in enumerate(split) if len(mine)}
    stats = Statistics.merge(Statistics.of(*part, head.needs, n_classes=C) for part in parts.values())
    whole = fm.fit(head, stats)
    totals = stats.counts if name == "gh-lda" else None
    dealt = deal_tests(test.y, split.cells(train.y, C).toarray(), seed=seed)
    found: dict[str, list[int]] = {}
    for k, rows in enumerate(dealt):
        if not len(rows):
            continue
        X, y = parts[k]
        mixed = blend(stats, X, y, beta=beta).fit(head)
        made = {
            "global": whole,
            "labels": mask_to_labels(whole, y.tolist()),
            "shares": weigh_by_shares(whole, X, y, totals=totals),
            f"blend {beta}": mixed,
            f"blend {beta} + labels": mask_to_labels(mixed, y.tolist()),
            f"blend {beta} + shares": weigh_by_shares(mixed, X, y, totals=totals),
            "local": fm.fit(head, {"me": (X, y)}, n_classes=C),
        }
        for variant, classifier in made.items():
            right = classifier.predict(test.X[rows]) == test.y[rows]
            found.setdefault(variant, []).append(int(right.sum()))
    return found


@pytest.mark.parametrize("name", ["fedncm", "fed3r", "fedcof-oracle", "gh-lda"])
@pytest.mark.parametrize("beta", ["auto", 0.25])
def test_figures_are_those_of_every_client_by_hand(name: str, beta: Any) -> None:
    features, split = toy(1)
    found = simulate_personal(features, split, [name], betas=[beta], seed=4)
    expected = referee(features, split, name, beta, 4)
    assert [row.variant for row in found.rows] == list(expected)
    for row in found.rows:
        tested = row.tests > 0
        assert row.correct[tested].tolist() == expected[row.variant]
        assert row.accuracy == sum(expected[row.variant]) / row.tests.sum()
        shares = np.array(expected[row.variant]) / row.tests[tested]
        assert row.outcome(0).client_accuracy == pytest.approx(shares.mean())
        change = np.array(expected[row.variant]) - expected["global"]
        assert (row.outcome(0).gains, row.outcome(0).losses) == pytest.approx(
            ((change > 0).mean(), (change < 0).mean())
        )


@pytest.mark.parametrize("seed", range(3))
def test_nobody_loses_by_predicting_only_labels_that_it_is_tested_on(seed: int) -> None:
    features, split = toy(seed)
    found = simulate_personal(features, split, ["fedncm", "gh-lda"], seed=seed)
    for head in ("fedncm", "gh-lda"):
        assert found.row(head, "labels").outcome(0).losses == 0
        assert accuracy(found, head, "labels") >= accuracy(found, head, "global")
    assert found.rows[0].outcome(0).tests == len(features.test)


def test_a_client_that_holds_everything_gains_nothing_by_labels_and_means() -> None:
    features, _ = toy(2)
    split = Split(np.zeros(len(features.train), np.int64), n_clients=1, scheme="one client")
    rows = simulate_personal(features, split, ["fedncm", "fed3r"], betas=["auto", 1.0]).rows
    for head in ("fedncm", "fed3r"):
        same = {row.accuracy for row in rows if row.head == head and not row.variant.endswith("shares")}
        assert len(same) == 1


def test_blending_helps_clients_whose_features_are_shifted() -> None:
    features, split = toy(3, n=1200, apart=2.0)
    found = simulate_personal(features, split, ["fedncm", "gh-lda"], held_out=0.5)
    for head in ("fedncm", "gh-lda"):
        assert accuracy(found, head, "blend auto") > accuracy(found, head, "global") + 0.05


def test_features_that_are_scaled_leave_the_table_as_it_is() -> None:
    features, split = toy(4)
    train, test = features.train, features.test
    scaled = [
        Features("toy", C, Samples(scale * train.X, train.y), Samples(scale * test.X, test.y)) for scale in (1.0, 64.0)
    ]
    first, second = (simulate_personal(each, split, ["fedncm", "fed3r"]) for each in scaled)
    assert [row.outcome(0) for row in first.rows] == [row.outcome(0) for row in second.rows]


def test_variants_that_cannot_be_made_say_why() -> None:
    features, split = toy(5)
    hyper = {"fed3r-rf": {"n_features": 8}}
    found = simulate_personal(features, split, ["gh-nb", "fed3r-rf", "fedcof"], hyper=hyper)
    assert "hold class_squares" in str(found.row("gh-nb", "blend auto").reason)
    assert "feature map of its own" in str(found.row("fed3r-rf", "blend auto + labels").reason)
    assert "client 0" in str(found.row("fedcof", "local").reason)
    assert found.row("fedcof", "local").accuracy is None
    assert found.row("fedcof", "local").outcome(0).gains is None
    assert found.row("gh-nb", "labels").accuracy is not None
    assert found.row("fedcof", "blend auto").accuracy is not None


def test_a_head_that_cannot_be_fitted_at_all_says_so_in_every_row() -> None:
    features, split = toy(6)
    found = simulate_personal(features, split, ["fed3r"], memory_limit=10)
    assert {row.accuracy for row in found.rows} == {None}
    assert all("more than the limit" in str(row.reason) for row in found.rows)


def test_what_cannot_be_tested_is_refused() -> None:
    features, split = toy(7)
    with pytest.raises(InputError, match="no test sample"):
        simulate_personal(Features("toy", C, features.train), split, ["fedncm"])
    with pytest.raises(InputError, match="'auto'"):
        simulate_personal(features, split, ["fedncm"], betas=["sometimes"])
    with pytest.raises(InputError, match="no variant 'else'"):
        simulate_personal(features, split, ["fedncm"]).row("fedncm", "else")
