"""Features made from heads and statistics alone: gradients, steps, weights, students."""

import tracemalloc
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from fedmoments.core.classifier import EnsembleClassifier, LinearClassifier
from fedmoments.errors import InputError
from fedmoments.study.baselines import Upload, make_baseline
from fedmoments.study.baselines.co_boosting import CoBoosting, boosted_shares
from fedmoments.study.baselines.dense import Dense
from fedmoments.study.baselines.head_mixture import HeadMixture
from fedmoments.study.baselines.sent_heads import ensemble_of, read_heads
from fedmoments.study.baselines.server_head import fit_server_head
from fedmoments.study.baselines.synthesis import Synthesis, pooled_statistics, upload_with_statistics

Array = npt.NDArray[Any]
C, D = 6, 4
HELD = [[0, 1, 2], [2, 3], [4], [0, 1, 2, 3, 4]]
SHARES = np.array([0.1, 0.4, 0.2, 0.3])
PRESENT = np.arange(C) < 5


def parts() -> list[tuple[Array, Array]]:
    rng = np.random.default_rng(0)
    centres = 3 * rng.normal(size=(C, D))
    made = []
    for held in HELD:
        y = np.array(held)[np.arange(40) % len(held)]
        made.append((5 + centres[y] + rng.normal(size=(40, D)) * [1, 2, 3, 0.1], y))
    return made


UPLOADS = [upload_with_statistics(X, y, C, 1e-2) for X, y in parts()]
OFFSET, SCALE = pooled_statistics(UPLOADS)
MIXTURE = HeadMixture(read_heads(UPLOADS), OFFSET, SCALE)
U = np.random.default_rng(1).normal(size=(30, D)).astype(np.float32)


def test_statistics_pool_to_those_of_all_features() -> None:
    everything = np.concatenate([X for X, _ in parts()])
    np.testing.assert_allclose(OFFSET, everything.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(SCALE, everything.std(axis=0), rtol=1e-12)


def test_the_mixture_says_what_the_ensemble_says() -> None:
    ensemble = ensemble_of(UPLOADS, SHARES)
    mixed = MIXTURE.mix(U, SHARES)
    features = OFFSET + SCALE * U
    np.testing.assert_allclose(
        mixed.probabilities[:, PRESENT], np.exp(ensemble.scores(features)[:, PRESENT]), rtol=1e-3, atol=1e-6
    )
    np.testing.assert_allclose(mixed.probabilities.sum(axis=1), 1.0, rtol=1e-5)


def test_an_ensemble_takes_no_more_columns_than_clients_hold_classes_and_says_what_whole_heads_say() -> None:
    ensemble = ensemble_of(UPLOADS, SHARES)
    assert ensemble.weights.shape == (D, sum(len(held) + 1 for held in HELD))
    X = parts()[3][0]
    mixed = np.zeros((len(X), C))
    for share, head in zip(SHARES, read_heads(UPLOADS), strict=True):
        weights, bias = head.expand()
        mixed += share * LinearClassifier(weights=weights, bias=bias, present=np.ones(C, bool)).predict_proba(X)
    np.testing.assert_allclose(np.exp(ensemble.scores(X)[:, PRESENT]), mixed[:, PRESENT], rtol=1e-10)


def test_a_teacher_needs_the_mixed_probabilities_alone() -> None:
    np.testing.assert_array_equal(MIXTURE.probabilities(U, SHARES), MIXTURE.mix(U, SHARES).probabilities)
    head, n = read_heads(UPLOADS)[3], 5_000
    many = Synthesis(HeadMixture([head] * 40, OFFSET, SCALE), PRESENT, 1.0, 1.0)
    features = np.resize(U, (n, D))
    tracemalloc.start()
    many.distil(features, np.full(40, 1 / 40), None, decay=1e-2, temperature=1.0, passes=2)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40 * n * len(head.labels) * 4  # what all clients' own probabilities take


def test_what_each_client_gives_a_label_mixes_to_the_probability() -> None:
    mixed = MIXTURE.mix(U, SHARES)
    for label in range(C):
        given = MIXTURE.of_label(mixed, np.full(len(U), label))
        np.testing.assert_allclose(SHARES @ given, mixed.probabilities[:, label], rtol=1e-3, atol=1e-7)


def test_pull_is_the_gradient_of_any_function_of_the_probabilities() -> None:
    G = np.random.default_rng(2).normal(size=(len(U), C)).astype(np.float32)
    found = MIXTURE.pull(MIXTURE.mix(U, SHARES), G, SHARES)

    def value(at: Array) -> Array:
        exact = replace(ensemble_of(UPLOADS, SHARES), present=np.ones(C, bool)).predict_proba(OFFSET + SCALE * at)
        return np.asarray((G * exact).sum(axis=1))

    for j in range(D):
        step = 1e-4 * np.eye(D)[j]
        wide = U.astype(np.float64)
        slope = (value(wide + step) - value(wide - step)) / 2e-4
        np.testing.assert_allclose(found[:, j], slope, rtol=2e-3, atol=2e-5)


def loss_of(workshop: Synthesis, at: Array, labels: Array, student: LinearClassifier, weights: Array) -> float:
    """Return the summed loss of the docstring, one sample at a time, with DENSE's or Co-Boosting's fixed weights."""
    total = 0.0
    P = workshop.mixture.mix(at.astype(np.float32), SHARES).probabilities.astype(np.float64)
    Q = student.predict_proba(at.astype(np.float64))
    for p, q, label, (for_label, for_gap) in zip(P, Q, labels, weights, strict=True):
        held = q > 0
        gap = float(np.sum(p[held] * (np.log(p[held]) - np.log(q[held]))))
        total += -for_label * float(np.log(p[label])) - workshop.disagreement * for_gap * gap
    mean, variance = at.mean(axis=0), at.var(axis=0)
    return total + len(at) * workshop.statistics * float(np.mean(mean**2) + np.mean((variance - 1) ** 2))


@pytest.mark.parametrize("hard", [False, True])
def test_the_slope_of_a_step_is_the_gradient_of_the_loss(hard: bool) -> None:
    workshop = Synthesis(MIXTURE, np.ones(C, bool), 1.5, 0.7, hard)
    labels = np.arange(len(U)) % 5
    student = workshop.distil(U, SHARES[::-1].copy(), None, decay=1e-2, temperature=1.0, passes=20)
    mixed = MIXTURE.mix(U, SHARES)
    P, Q = mixed.probabilities, student.predict_proba(U)
    chosen = P[np.arange(len(U)), labels]
    differ = np.ones(len(U)) if hard else (P.argmax(axis=1) != Q.argmax(axis=1)).astype(float)
    assert hard or 0 < differ.sum() < len(U)
    weights = np.column_stack([1 - chosen if hard else np.ones(len(U)), differ])
    slope = workshop._slope(U, labels, mixed, SHARES, student)
    rng = np.random.default_rng(3)
    for _ in range(5):
        way = rng.normal(size=U.shape)
        ahead, back = (loss_of(workshop, U + sign * 1e-2 * way, labels, student, weights) for sign in (1, -1))
        assert np.isclose((ahead - back) / 2e-2, np.sum(slope * way), rtol=0.02, atol=0.02)


@pytest.mark.parametrize("hard", [False, True])
def test_steps_make_the_ensemble_sure_of_the_intended_label(hard: bool) -> None:
    workshop = Synthesis.of(UPLOADS, statistics=1.0, disagreement=0.5, hard=hard)
    fresh, labels = workshop.draw(200, np.random.default_rng(0))
    moved = workshop.improve(fresh, labels, SHARES, None, steps=10, step=0.2)
    before, after = (MIXTURE.mix(at, SHARES).probabilities[np.arange(200), labels].mean() for at in (fresh, moved))
    assert after > before + 0.2


def test_statistics_hold_features_back() -> None:
    free, held = (Synthesis.of(UPLOADS, statistics=weight, disagreement=0.0) for weight in (0.0, 100.0))
    fresh, labels = free.draw(300, np.random.default_rng(0))
    away = [w.improve(fresh, labels, SHARES, None, steps=20, step=0.2) for w in (free, held)]
    gaps = [float(np.mean(at.mean(axis=0) ** 2) + np.mean((at.var(axis=0) - 1) ** 2)) for at in away]
    assert gaps[1] < 0.3 * gaps[0]


def test_hard_samples_cost_the_ensemble_more() -> None:
    workshop = Synthesis.of(UPLOADS, statistics=1.0, disagreement=1.0, hard=True)
    fresh, labels = workshop.draw(200, np.random.default_rng(0))
    harder = workshop.harden(fresh, labels, SHARES, length=0.2)
    np.testing.assert_allclose(np.linalg.norm(harder - fresh, axis=1), 0.2, rtol=1e-3)
    before, after = (
        -np.log(MIXTURE.mix(at, SHARES).probabilities[np.arange(200), labels]).mean() for at in (fresh, harder)
    )
    assert after > before + 0.05


def test_labels_are_balanced_over_the_classes_that_clients_hold() -> None:
    workshop = Synthesis.of(UPLOADS, statistics=1.0, disagreement=1.0)
    _, labels = workshop.draw(503, np.random.default_rng(0))
    assert set(np.bincount(labels, minlength=C)) == {0, 100, 101}
    few = np.concatenate([workshop.draw(2, np.random.default_rng(seed))[1] for seed in range(40)])
    assert set(few) == set(range(5))  # fewer features than classes: other classes every time


def test_a_student_matches_a_teacher_that_is_linear() -> None:
    alone = [UPLOADS[3]]
    workshop = Synthesis.of(alone, statistics=1.0, disagreement=1.0)
    shares = np.ones(1)
    student = workshop.distil(
        np.random.default_rng(0).normal(size=(500, D)).astype(np.float32),
        shares,
        None,
        decay=1e-9,
        temperature=1.0,
        passes=300,
    )
    teacher = ensemble_of(alone, shares)
    points = parts()[3][0]
    np.testing.assert_allclose(
        workshop.in_features(student).predict_proba(points), teacher.predict_proba(points), atol=0.02
    )


def test_a_student_moves_to_features_with_its_scores() -> None:
    workshop = Synthesis.of(UPLOADS, statistics=1.0, disagreement=1.0)
    student = workshop.distil(U, SHARES, None, decay=1e-3, temperature=2.0, passes=50)
    there = workshop.in_features(student)
    np.testing.assert_allclose(there.scores(OFFSET + SCALE * U), student.scores(U.astype(float)), atol=1e-5)


# --------------------------------------------------------------------------------------------------- server's head


def test_the_origin_of_features_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = parts()[3]
    origin = np.array([1.0, -2.0, 3.0, 50.0])
    plain, moved = (
        fit_server_head(X, labels=y, present=PRESENT),
        fit_server_head(X - origin, origin=origin, labels=y, present=PRESENT),
    )
    np.testing.assert_allclose(plain.scores(X)[:, PRESENT], moved.scores(X)[:, PRESENT], atol=1e-4)
    start = LinearClassifier(weights=np.ones((D, C)), bias=np.arange(6.0), offset=np.full(D, 2.0), present=PRESENT)
    monkeypatch.setattr(
        "fedmoments.study.baselines.server_head._minimise", lambda _, weights, bias, __: (weights, bias)
    )
    kept = fit_server_head(X - origin, origin=origin, labels=y, present=PRESENT, start=start)
    np.testing.assert_allclose(kept.scores(X)[:, PRESENT], start.scores(X)[:, PRESENT], rtol=1e-9)


# ------------------------------------------------------------------------------------------------------ boosting


def test_law_a_boosting_step_lowers_the_loss_along_the_simplex() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        shares, given = rng.dirichlet(np.ones(5)), rng.uniform(0.01, 1, size=(5, 40))
        moved = boosted_shares(shares, given, 1e-4)
        assert np.isclose(moved.sum(), 1.0)
        assert (moved >= 0).all()
        loss = [-np.log(pi @ given).mean() for pi in (shares, moved)]
        assert loss[1] < loss[0]


def test_boosting_leaves_equal_clients_equal() -> None:
    given = np.tile(np.random.default_rng(0).uniform(size=30), (4, 1))
    assert np.array_equal(boosted_shares(np.full(4, 0.25), given, 0.1), np.full(4, 0.25))


def test_boosting_can_silence_a_client_but_never_all() -> None:
    shares, given = np.array([0.5, 0.5]), np.array([[0.9] * 5, [0.1] * 5])
    for _ in range(50):
        shares = boosted_shares(shares, given, 0.1)
    np.testing.assert_allclose(shares, [1.0, 0.0])


@pytest.mark.parametrize("step", [0.1, 1.0, 50.0])
def test_boosting_with_any_step_leaves_weights_that_sum_to_1(step: float) -> None:
    rng = np.random.default_rng(0)
    shares = np.full(3, 1 / 3)
    np.testing.assert_allclose(boosted_shares(shares, np.zeros((3, 5)), step), shares)  # nobody gives anything
    for _ in range(200):
        shares = rng.dirichlet(np.full(6, 0.3))
        given = (rng.uniform(size=(6, 4)) * (rng.uniform(size=(6, 4)) < 0.3)).astype(np.float32)
        moved = boosted_shares(shares, given, step)
        assert (moved >= 0).all()
        assert np.isclose(moved.sum(), 1.0)


def test_the_boosted_ensemble_is_the_plain_one_when_weights_do_not_move() -> None:
    plain = ensemble_of(UPLOADS, np.full(4, 0.25))
    still = CoBoosting(samples=90, rounds=2, returns="ensemble", weight_step=0.0).combine(UPLOADS, dim=D, seed=0)
    assert still.digest() == plain.digest()
    moved = CoBoosting(samples=90, rounds=2, returns="ensemble").combine(UPLOADS, dim=D, seed=0)
    assert isinstance(moved, EnsembleClassifier)
    assert np.ptp(moved.mixing) > 0.01
    assert np.abs(moved.mixing - 0.25).max() < 0.25 * 0.3  # two steps of 0.1/K, and a division by their sum


@pytest.mark.parametrize("method", [Dense(samples=90, rounds=2), CoBoosting(samples=90, rounds=2)])
def test_head_and_statistics_travel(method: Dense | CoBoosting) -> None:
    X, y = parts()[0]
    sent: Upload = method.local(X, y, n_classes=C, seed=0)
    assert sent.n_floats == 3 * (D + 1) + 2 * D
    assert sent.n_counts == 3


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Dense(samples=0), "samples must be a whole number more than 0"),
        (lambda: Dense(steps=-1), "steps must be a whole number 0 or more, not -1"),
        (lambda: Dense(statistics=-0.1), "statistics must be 0 or more, not -0.1"),
        (lambda: Dense(weighting="loud"), "weighting must be one of uniform, samples, not 'loud'"),
        (lambda: CoBoosting(returns="both"), "returns must be one of student, ensemble"),
        (lambda: CoBoosting(temperature=0.0), "temperature must be more than 0"),
        (lambda: make_baseline("co-boosting", rounds=2.5), "rounds must be a whole number more than 0, not 2.5"),
        (lambda: make_baseline("dense", step="far"), "step must be more than 0, not far"),
    ],
)
def test_wrong_hyper_parameters_are_refused(make: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()
