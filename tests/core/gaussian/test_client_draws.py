"""Client means as draws of samples: their laws, and what they are worth to heads that know no covariance."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import fedmoments as fm
from fedmoments.core.gaussian.client_draws import IN_COMMON, ClientDraws
from fedmoments.core.statistics import Ledger, Statistics, StatisticsSpec

MEANS = StatisticsSpec.of("client_means")
PLAIN = ["fedncm", "fedcof-spherical", "fedcof-diagonal"]
C, D = 5, 40

Parties = dict[int, tuple[NDArray[Any], NDArray[Any]]]


def world(n: int, k: int, shift: float = 0.0, seed: int = 0) -> tuple[Parties, NDArray[Any], NDArray[Any]]:
    """Return samples of k clients whose classes are wide along a few directions, and all samples together.

    Each client is away from the others by ``shift`` in every class.
    """
    rng = np.random.default_rng(seed)
    mix = rng.normal(size=(4, D))
    y = rng.integers(0, C, n)
    own = np.minimum((rng.random(n) ** 2 * k).astype(int), k - 1)  # clients of many sizes
    X = rng.normal(size=(C, D))[y] + rng.normal(size=(n, 4)) @ mix + 0.3 * rng.normal(size=(n, D))
    X = X + shift * rng.normal(size=(k, D))[own] + 6.0
    return {site: (X[own == site], y[own == site]) for site in range(k)}, X, y


def merged(parties: Parties, spec: StatisticsSpec = MEANS) -> Statistics:
    return fm.measure(parties, spec, n_classes=C).statistics()


def test_law_one_sample_a_client_is_that_sample_around_its_class_mean() -> None:
    _, X, y = world(60, 1)
    alone = {place: (X[place : place + 1], y[place : place + 1]) for place in range(len(y))}
    draws = ClientDraws.of(merged(alone))
    assert draws is not None
    expected = []
    for c in range(C):
        own = X[y == c]
        expected.append(own.mean(axis=0) + (own - own.mean(axis=0)) / np.sqrt(1.0 - 1.0 / len(own)))
    found = np.concatenate([draws.points[draws.labels == c] for c in range(C)])
    want = np.concatenate(expected)
    np.testing.assert_allclose(found[np.lexsort(found.T)], want[np.lexsort(want.T)], rtol=1e-12)
    np.testing.assert_allclose(np.bincount(draws.labels, draws.weights, C), np.bincount(y, minlength=C) / len(y))


def test_draws_spread_as_samples_do_in_every_direction() -> None:
    parties, X, y = world(40_000, 2_000)
    draws = ClientDraws.of(merged(parties))
    assert draws is not None
    centres = np.array([X[y == c].mean(axis=0) for c in range(C)])
    away = draws.points - centres[draws.labels]
    inside = X - centres[y]
    spread = (away * draws.weights[:, None]).T @ away
    true = inside.T @ inside / len(y)
    assert np.linalg.norm(spread - true) < 0.1 * np.linalg.norm(true)


def test_draws_of_many_means_are_about_as_many_as_tell_something() -> None:
    parties, _, _ = world(60_000, 6_000)
    stats = merged(parties)
    draws = ClientDraws.of(stats)
    assert draws is not None
    assert len(stats.rows) > 15_000
    assert 2_000 < len(draws.labels) < 5_000
    assert set(draws.labels.tolist()) == set(range(C))


def test_clients_that_differ_are_seen_by_what_they_miss_in_common_or_by_a_trace() -> None:
    parties, X, y = world(4_000, 40, shift=1.0)
    stats = merged(parties)
    assert ClientDraws.of(stats) is None
    centres = np.array([X[y == c].mean(axis=0) for c in range(C)])
    trace = float(np.square(X - centres[y]).sum())
    draws = ClientDraws.of(stats, trace)
    assert draws is not None
    spread = float(draws.weights @ np.square(draws.points - centres[draws.labels]).sum(axis=1))
    assert 0.5 < spread / (trace / len(y)) < 1.5
    same = ClientDraws.of(merged(world(4_000, 40)[0]))
    assert same is not None, "clients that draw from one population have nothing in common"
    assert IN_COMMON < 0.05  # of real sets with one domain a client, least


@pytest.mark.parametrize("name", PLAIN)
def test_law_the_order_of_clients_changes_no_bit(name: str) -> None:
    parties, _, _ = world(3_000, 30)
    form = fm.FixedPoint(256.0, 2**16)
    one = fm.fit(name, parties, n_classes=C, fixed_point=form)
    turned = {site: parties[site] for site in reversed(parties)}
    assert fm.fit(name, turned, n_classes=C, fixed_point=form).digest() == one.digest()


@pytest.mark.parametrize("name", PLAIN)
def test_law_a_ledger_that_keeps_sums_is_as_good_as_data(name: str) -> None:
    parties, X, _ = world(3_000, 30)
    head, spec = fm.make_head(name), fm.spec_for(name)
    data, ledger = fm.fit(name, parties, n_classes=C), fm.measure(parties, spec, n_classes=C)
    pooled = head.fit(ledger.statistics())
    assert head.fit(ledger).temperature == pytest.approx(data.temperature, rel=1e-9)
    np.testing.assert_allclose(pooled.scores(X), data.scores(X), rtol=1e-9, atol=1e-9)
    assert pooled.temperature != pytest.approx(data.temperature, rel=1e-3)
    folded = fm.measure(parties, spec, n_classes=C, fold=True)
    assert head.fit(folded).temperature == pytest.approx(pooled.temperature, rel=1e-9)


def test_law_a_ledger_that_keeps_sums_has_the_client_means() -> None:
    parties, _, _ = world(300, 6)
    for spec in (StatisticsSpec(), StatisticsSpec.of("class_squares"), StatisticsSpec.of("gram")):
        for form in (None, fm.FixedPoint(256.0, 2**16)):
            ledger = fm.measure(parties, spec, n_classes=C, fixed_point=form)
            own = ledger.statistics(MEANS)
            direct = fm.measure(parties, spec | MEANS, n_classes=C, fixed_point=form).statistics()
            assert own.to_float().restricted(MEANS) == direct.to_float().restricted(MEANS)
    assert isinstance(ledger, Ledger)
    assert ledger.statistics(StatisticsSpec()) is ledger.statistics()


@pytest.mark.parametrize("shift", [0.0, 0.7])
@pytest.mark.parametrize("name", PLAIN)
def test_probabilities_are_better_believed_with_draws(name: str, shift: float) -> None:
    parties, X, y = world(6_000, 60, shift)
    train = {site: (a[::2], b[::2]) for site, (a, b) in parties.items()}
    test = [(a[1::2], b[1::2]) for a, b in parties.values()]
    X, y = (np.concatenate(part) for part in zip(*test, strict=True))
    drawn = fm.fit(name, train, n_classes=C)
    closed = fm.fit(name, fm.measure(train, fm.spec_for(name), n_classes=C).statistics())
    sure = [float(each.predict_proba(X).max(axis=1).mean()) for each in (drawn, closed)]
    gaps = np.abs(np.array(sure) - float((drawn.predict(X) == y).mean()))
    if name == "fedncm" and shift:
        assert drawn.temperature == pytest.approx(closed.temperature), "no trace tells how far clients differ"
    else:
        assert gaps[0] < 0.06
        assert gaps[0] < max(gaps[1], 0.02)
