"""Releases under attack: what an attacker learns stays below the claim, and would not if noise were missing."""

import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import beta

from fedmoments.core.statistics import FixedPoint, Statistics, StatisticsSpec
from fedmoments.errors import InputError, NotEnoughDataError, PrivacyError
from fedmoments.privacy.dense import DenseLayout
from fedmoments.privacy.dp import Accountant, Stream, finish, noise_vector, plan, release, repair
from fedmoments.privacy.dp.discrete import discrete_gaussian
from fedmoments.privacy.protection import Agreed

pytest.importorskip("cryptography")
pytest.importorskip("dp_accounting")

FORM = FixedPoint(1.0, 10**5)
DELTA = 1e-5
TRIALS = 1500


def background(rng: Any, n: Any = 400, dim: Any = 2, classes: Any = 2) -> Any:
    """Return samples of norm up to 1."""
    X = rng.normal(size=(n, dim))
    return X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1.0), np.arange(n) % classes


def measured(X: Any, y: Any, *moments: Any, classes: Any = 2) -> Any:
    return Statistics.of(X, y, StatisticsSpec.of(*moments), n_classes=classes, fixed_point=FORM)


def neighbours() -> Any:
    """Return statistics without and with one sample more, of the norm that weighs most."""
    X, y = background(np.random.default_rng(0))
    with_one = np.concatenate([X, [[1.0, 0.0]]]), np.append(y, 0)
    return measured(X, y), measured(*with_one)


def least_epsilon(hits: Any, alarms: Any, trials: Any, confidence: Any) -> Any:
    """Return an ε that the attack proves with that confidence: ln((power − δ)/false alarms), Clopper–Pearson."""
    power = beta.ppf((1 - confidence) / 2, hits, trials - hits + 1) if hits else 0.0
    false = beta.ppf((1 + confidence) / 2, alarms + 1, trials - alarms) if alarms < trials else 1.0
    return math.log((power - DELTA) / false) if power > DELTA else -math.inf


def proven_epsilon(agreed: Any, releases: Any = 1) -> Any:
    """Attack thousands of releases by the best test there is, the likelihood ratio, and return the ε that it proves."""
    without, with_one = neighbours()
    weights = plan(DenseLayout(without.spec, 2, 2), FORM, agreed).weights
    scores, source = [], Stream(bytes([7]) * 32)  # the same noise in every run, which the attacker does not know
    for stats in (without, with_one):
        mine = np.zeros(TRIALS)
        for trial in range(TRIALS):
            account = Accountant(agreed.epsilon, DELTA)
            for _ in range(releases):
                out = release(stats, agreed, account, source).statistics
                mine[trial] += weights["counts"] ** 2 * out.counts[0] + weights["sums"] ** 2 * out.sums[0, 0]
        scores.append(mine)
    mean, spread = scores[0].mean(), scores[0].std()
    thresholds = [mean + step * spread for step in (0.0, 1.0, 2.0, 2.5)]
    # One chance in a thousand of a wrong answer, for all thresholds together.
    return max(
        least_epsilon((scores[1] > c).sum(), (scores[0] > c).sum(), TRIALS, 1 - 1e-3 / len(thresholds))
        for c in thresholds
    )


def quartered(scale: Any, source: Any = None) -> Any:
    """Noise that is four times too small."""
    return discrete_gaussian(np.asarray(scale) / 4, source)


def test_an_attack_on_neighbouring_data_proves_less_than_the_claim() -> None:
    assert proven_epsilon(Agreed(epsilon=2.0, delta=DELTA)) < 2.0


def test_the_same_attack_proves_more_than_the_claim_if_noise_is_too_small(monkeypatch: Any) -> None:
    monkeypatch.setattr("fedmoments.privacy.dp.releases.discrete_gaussian", quartered)
    assert proven_epsilon(Agreed(epsilon=2.0, delta=DELTA)) > 2.0


def test_two_planned_releases_together_prove_less_than_the_claim() -> None:
    assert proven_epsilon(Agreed(epsilon=2.0, delta=DELTA, releases=2), releases=2) < 2.0


def difference_attack(released: Any, truth_label: Any, truth: Any) -> Any:
    """Guess the label and the vector of the one sample by which two releases differ."""
    before, after = released
    gap = after.counts - before.counts
    label = int(np.argmax(gap))
    return label == truth_label, float(np.linalg.norm((after.sums - before.sums)[label] - truth))


def test_the_difference_of_two_releases_gives_a_sample_away_in_the_clear_and_hides_in_noise() -> None:
    rng = np.random.default_rng(1)
    X, y = background(rng, n=2000, dim=8, classes=10)
    agreed, found, misses = Agreed(epsilon=1.0, releases=2), 0, []
    for trial in range(60):
        x, label = background(rng, n=1, dim=8)[0][0], trial % 10
        before = measured(X, y, classes=10)
        after = measured(np.vstack([X, x]), np.append(y, label), classes=10)
        hit, miss = difference_attack((before, after), label, x)
        assert hit
        assert miss < 1e-9
        account = Accountant(1.0, DELTA)
        hit, miss = difference_attack(
            [release(stats, agreed, account).statistics for stats in (before, after)], label, x
        )
        found += hit
        misses.append(miss)
        with pytest.raises(PrivacyError, match="publish what was released before"):
            release(after, agreed, account)
    assert found < 20  # chance is 6 of 60; 20 or more would be a chance of 1e-6
    assert np.median(misses) > 5.0  # the sample has a norm of 1


def test_a_refused_release_draws_no_noise_and_charges_nothing() -> None:
    without, _ = neighbours()
    account = Accountant(1.0, DELTA)
    release(without, Agreed(epsilon=1.0), account)
    spent = account.to_dict()

    class NoMore(Stream):
        def words(self, n: Any) -> Any:
            raise AssertionError("bits were drawn for a release that was refused")

    with pytest.raises(PrivacyError):
        release(without, Agreed(epsilon=1.0), account, NoMore())
    assert account.to_dict() == spent


def test_seeding_numpy_does_not_fix_the_noise() -> None:
    without, _ = neighbours()
    sums = []
    for _ in range(2):
        np.random.seed(0)  # noqa: NPY002 - whoever seeds it must not fix the noise
        sums.append(release(without, Agreed(epsilon=1.0), Accountant(1.0, DELTA)).statistics.sums)
    assert (sums[0] != sums[1]).all()


def test_noise_has_the_planned_spread_at_every_place_of_the_vector() -> None:
    layout, agreed = DenseLayout(StatisticsSpec.of("gram", "class_squares"), 3, 4), Agreed(epsilon=2.0)
    made, source = plan(layout, FORM, agreed), Stream(bytes(32))
    draws = np.stack([noise_vector(layout, FORM, agreed, source) for _ in range(2000)])[:, layout.n_classes :]
    scales = made.grid_scales()[layout.n_classes :]
    assert np.abs(draws.std(axis=0) / scales - 1).max() < 0.08
    assert np.abs(draws.mean(axis=0) / scales).max() < 0.09
    table = scales[: 3 * layout.class_width].reshape(3, -1)
    assert np.allclose(table[:, 0], made.sigmas["counts"])
    assert np.allclose(table[:, 1:5], made.sigmas["sums"] / FORM.resolution(1))
    gram = scales[-10:] * FORM.resolution(2) / made.sigmas["gram"]
    root = math.sqrt(0.5)
    assert np.allclose(gram, [1, root, 1, root, root, 1, root, root, root, 1])


def test_how_many_clients_hold_a_class_drowns_in_uniform_bits() -> None:
    layout, agreed = DenseLayout(StatisticsSpec(), 4, 2), Agreed(epsilon=8.0)
    draws = np.stack([noise_vector(layout, FORM, agreed) for _ in range(500)])[:, layout.contributor_block]
    assert len(np.unique(draws)) == draws.size
    share = (np.abs(draws.astype(float)) > 2.0**62).mean()
    assert 0.4 < share < 0.6  # uniform on 64 bits: half are beyond half of the range


def test_both_servers_noise_adds_up_and_repair_knows() -> None:
    without, _ = neighbours()
    layout, agreed = DenseLayout(without.spec, 2, 2), Agreed(epsilon=2.0, secure="sums")
    source, gaps = Stream(bytes(32)), []
    for _ in range(400):
        leader, helper = (noise_vector(layout, FORM, agreed, source).view(np.uint64) for _ in range(2))
        out = finish(layout.pack(without) + leader + helper, layout, FORM, agreed, servers=2)
        gaps.append(out.statistics.sums - without.sums)
    sigma = plan(layout, FORM, agreed).sigmas["sums"]
    assert math.isclose(out.noise["sums"], math.sqrt(2) * sigma)
    assert out.describe()["servers"] == 2
    assert abs(np.std(gaps) / out.noise["sums"] - 1) < 0.08
    assert math.isclose(out.epsilon, 2.0, abs_tol=1e-4)


def test_repair_of_two_servers_adds_the_ridge_of_both() -> None:
    X, y = background(np.random.default_rng(2), n=600)
    stats = measured(X, y, "gram")
    layout, agreed = DenseLayout(stats.spec, 2, 2), Agreed(epsilon=4.0)
    grams = [repair(layout.pack(stats), layout, FORM, agreed, servers=n).gram for n in (1, 2)]
    sigma = plan(layout, FORM, agreed).sigmas
    lost = (sigma["sums"] ** 2 / stats.counts).sum()
    for servers, gram in enumerate(grams, start=1):
        added = gram - stats.gram
        ridge = math.sqrt(servers) * sigma["gram"] * math.sqrt(2 * 2) + servers * lost
        assert np.allclose(added, ridge * np.eye(2), atol=1e-6)
    with pytest.raises(InputError, match="not by 0"):
        repair(layout.pack(stats), layout, FORM, agreed, servers=0)


def test_samples_beyond_the_clip_norm_are_refused() -> None:
    X, y = background(np.random.default_rng(3))
    loose = FixedPoint(10.0, 10**5)
    spec = StatisticsSpec.of("gram")
    wide = Statistics.of(2.0 * np.ones_like(X), y, spec, n_classes=2, fixed_point=loose)
    with pytest.raises(PrivacyError, match="public clip norm of 1"):
        release(wide, Agreed(epsilon=1.0), Accountant(1.0, DELTA))
    opposite = Statistics.of(
        np.repeat([[2.0, 0.0], [-2.0, 0.0]], 50, axis=0), [0] * 100, spec, n_classes=2, fixed_point=loose
    )
    with pytest.raises(PrivacyError, match="mean squared norm of 4"):
        release(opposite, Agreed(epsilon=1.0), Accountant(1.0, DELTA))
    release(wide, Agreed(epsilon=1.0, clip=3.0), Accountant(1.0, DELTA))


def test_client_means_and_floats_are_refused() -> None:
    X, y = background(np.random.default_rng(4))
    with pytest.raises(PrivacyError, match="client_means cannot be released"):
        release(measured(X, y, "client_means"), Agreed(epsilon=1.0), Accountant(1.0, DELTA))
    floats = Statistics.of(X, y, StatisticsSpec(), n_classes=2)
    with pytest.raises(InputError, match="quantize them first"):
        release(floats, Agreed(epsilon=1.0), Accountant(1.0, DELTA))


def test_no_data_at_all_is_an_error_and_not_a_classifier() -> None:
    layout, agreed = DenseLayout(StatisticsSpec(), 2, 2), Agreed(epsilon=1.0)
    with pytest.raises(NotEnoughDataError, match="stands out of the noise"):
        repair(np.zeros(layout.size, np.uint64), layout, FORM, agreed)


def test_a_grid_too_fine_for_the_noise_is_refused() -> None:
    tiny = FixedPoint(1.0, 10)
    stats = Statistics.of([[1.0, 0.0]], [0], StatisticsSpec(), n_classes=2, fixed_point=tiny)
    account = Accountant(0.01, DELTA)
    with pytest.raises(InputError, match="agree on more max_samples than 10"):
        release(stats, Agreed(epsilon=0.01), account)
    assert account.spent == 0.0
