"""auto-free, auto-exact: the head and its shrinkage are chosen by clients held out, and nothing else."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.datasets import load_digits

import fedmoments as fm
from fedmoments.core.gaussian import ClassGaussians
from fedmoments.core.gaussian.held_out import held_out_folds
from fedmoments.core.gaussian.linear_rules import Centres
from fedmoments.core.gaussian.trials import Trials
from fedmoments.core.heads import Head
from fedmoments.core.heads.choose import LEAD, MARGIN, Choose
from fedmoments.core.heads.lda import Lda
from fedmoments.core.heads.nearest_mean import NearestMean
from fedmoments.core.heads.ridge import Ridge
from fedmoments.core.statistics import FixedPoint, Statistics, StatisticsSpec
from fedmoments.errors import ClientsPooledError, InputError, NotEnoughDataError
from fedmoments.samples import parse_split

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MOMENTS = {"free": ("client_means",), "exact": ("gram", "client_means")}
SOURCES = tuple(MOMENTS)
C, D = 4, 12


def draw(seed: int = 0, n: int = 600) -> tuple[Floats, Ints]:
    """Return classes that overlap, with a covariance far from the identity, away from the origin."""
    rng = np.random.default_rng(seed)
    y = rng.integers(C, size=n)
    spread = np.exp(np.random.default_rng(99).normal(size=D))
    means = np.random.default_rng(98).normal(size=(C, D))
    return 1.0 + means[y] + rng.normal(size=(n, D)) * spread, y


def clients(source: str, X: Floats, y: Ints, holders: Ints, n_classes: int = C) -> list[Statistics]:
    spec = StatisticsSpec.of(*MOMENTS[source])
    return [Statistics.of(X[holders == k], y[holders == k], spec, n_classes=n_classes) for k in np.unique(holders)]


def merged(parts: list[Statistics]) -> Statistics:
    """Return merged statistics as a server holds them."""
    return Statistics.merge(parts)


def federation(source: str, n_clients: int = 15) -> list[Statistics]:
    X, y = draw()
    holders = parse_split("dirichlet:0.5").apply(y, n_clients=n_clients, seed=1).clients
    return clients(source, X, y, np.asarray(holders))


def make(source: str, **options: Any) -> Choose:
    head = fm.make_head(f"auto-{source}", **options)
    assert isinstance(head, Choose)
    return head


def head_of(source: str, key: tuple[str, str, float], stats: Statistics) -> Head:
    """Return the head that a candidate is, by its own file."""
    head, kind, factor = key
    if head == "ncm":
        return NearestMean()
    if head == "total":
        return Ridge()
    shrinkage: str | float = "automatic"
    if kind == "shrinkage" and source == "free":
        scatter = ClassGaussians(stats, "free").scatter
        shrinkage = factor * 0.5 * scatter.trace / scatter.dof
    if head == "lda":
        return Lda(source, shrinkage)
    return Ridge("within", source, shrinkage)


# ---------------------------------------------------------------------------------------------- the choice


def naive_tally(source: str, stats: Statistics, head: Choose) -> dict[tuple[str, str, float], list[float]]:
    """Fit every candidate by its own head in every fold, and count what it predicts."""
    gaussians = ClassGaussians(stats, source)
    keys = list(head._try(stats, Centres(gaussians.means, gaussians.counts / stats.n_samples)).right)
    tally: dict[tuple[str, str, float], list[float]] = {key: [] for key in keys}
    for held in held_out_folds(stats, head.folds):
        training = held.training
        assert (training.counts > 0).all(), "this referee does not know the means of other clients"
        trials = Trials.of(held, stats.counts / stats.n_samples)
        X = training.sums[trials.labels] / training.counts[trials.labels, None] + trials.points
        for key in keys:
            predicted = head_of(source, key, training).fit(training).predict(X)
            tally[key].append(float((predicted == trials.labels).mean()))
    return tally


@pytest.mark.parametrize("source", ["free"])
def test_the_chosen_candidate_is_the_best_of_a_naive_referee(source: str) -> None:
    X, y = draw()
    holders = np.arange(len(y)) % 15
    stats = merged(clients(source, X, y, holders))
    balanced = merged(clients(source, X[np.argsort(y, kind="stable")], np.sort(y), holders))
    for each in (stats, balanced):
        for heads in ("lda,ridge,ncm", "ridge,lda"):
            _check_choice(source, each, heads)


def _check_choice(source: str, stats: Statistics, heads: str) -> None:
    head = make(source, heads=heads)
    tally = naive_tally(source, stats, head)
    weights = np.array([len(fold.labels) for fold in held_out_folds(stats, head.folds)])

    def accuracy(key: tuple[str, str, float]) -> float:
        return float(weights @ tally[key] / weights.sum())

    def leads(key: tuple[str, str, float], other: tuple[str, str, float], margin: float) -> bool:
        gap, w = np.subtract(tally[key], tally[other]), weights / weights.sum()
        lead = w @ gap
        return bool(lead > LEAD * np.sqrt((w**2 * (gap - lead) ** 2).sum() * len(w) / (len(w) - 1)) + margin)

    amounts = []
    for name in heads.split(","):
        default, *others = (key for key in tally if key[0] == name)
        amounts.append(max([default, *(key for key in others if leads(key, default, 0.0))], key=accuracy))
    best = max([amounts[0], *(key for key in amounts[1:] if leads(key, amounts[0], MARGIN))], key=accuracy)
    chosen = head.fit(stats)
    assert chosen.info["chosen"] == best[0]
    expected = head_of(source, best, stats).fit(stats)
    X, _ = draw(7)
    assert (chosen.predict(X) == expected.predict(X)).mean() > 0.998
    assert chosen.info["estimated_accuracy"] > accuracy(best), "half of the trials are stretched, and harder"


@pytest.mark.parametrize(
    ("source", "name"),
    [*((source, name) for source in SOURCES for name in ("lda", "ridge", "ncm")), ("exact", "total")],
)
def test_what_is_chosen_is_the_head_of_that_name(source: str, name: str) -> None:
    stats = merged(federation(source))
    classifier = make(source, heads=name).fit(stats)
    assert classifier.info["chosen"] == name
    info = classifier.info
    heads: dict[str, Callable[[], Head]] = {
        "lda": lambda: Lda(*_arguments(source, info)),
        "ridge": lambda: Ridge("within", *_arguments(source, info)),
        "total": lambda: Ridge(ridge=info["ridge"]),
        "ncm": NearestMean,
    }
    X, _ = draw(3)
    named = heads[name]().fit(stats).scores(X)
    ours = classifier.scores(X) / (1.0 if name == "lda" else 10.0)  # read as log-probabilities by themselves
    gaps = (ours - ours[:, :1]) - (named - named[:, :1])
    np.testing.assert_allclose(gaps, 0.0, atol=1e-8 * np.abs(named).max())


def _arguments(source: str, info: Any) -> tuple[str, str | float]:
    return source, info["shrinkage"]


@pytest.mark.parametrize("factor", [0.1, 10.0, 2.0**10])
@pytest.mark.parametrize("source", SOURCES)
def test_scaled_features_change_no_choice_and_no_prediction(source: str, factor: float) -> None:
    X, y = draw()
    holders = np.asarray(parse_split("dirichlet:0.5").apply(y, n_clients=15, seed=1).clients)
    X_test, _ = draw(5)
    one, other = (make(source).fit(merged(clients(source, s * X, y, holders))) for s in (1.0, factor))
    assert one.info["chosen"] == other.info["chosen"]
    assert one.info["estimated_accuracy"] == pytest.approx(other.info["estimated_accuracy"], abs=1e-3)
    assert np.array_equal(one.predict(X_test), other.predict(factor * X_test))


@pytest.mark.parametrize("source", SOURCES)
def test_the_order_of_clients_changes_nothing(source: str) -> None:
    parts = federation(source)
    X, _ = draw(5)
    one = make(source).fit(Statistics.merge(parts))
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(len(parts))
        half = Statistics.merge([parts[k] for k in order[:6]]) + Statistics.merge([parts[k] for k in order[6:]])
        other = make(source).fit(half)
        assert one.info["chosen"] == other.info["chosen"]
        assert one.info["estimated_accuracy"] == pytest.approx(other.info["estimated_accuracy"], abs=1e-12)
        np.testing.assert_allclose(one.scores(X), other.scores(X), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("source", SOURCES)
def test_the_same_statistics_give_the_same_classifier(source: str) -> None:
    stats = merged(federation(source))
    assert make(source).fit(stats).digest() == make(source).fit(stats).digest()


def test_fixed_point_statistics_are_chosen_from_alike() -> None:
    stats = merged(federation("free"))
    fixed = stats.quantized(FixedPoint(norm_bound=64.0, max_samples=10_000))
    X, _ = draw(5)
    one, other = make("free").fit(stats), make("free").fit(fixed)
    assert one.info["chosen"] == other.info["chosen"]
    assert (one.predict(X) == other.predict(X)).mean() > 0.99


def test_more_shrinkage_is_chosen_from_fewer_clients() -> None:
    """A covariance of 400 samples in 12 dimensions needs less than one of 8 rows a class in 60."""
    rng = np.random.default_rng(0)
    spread = np.exp(1.5 * rng.normal(size=60))
    y = np.arange(4000) % 2
    X = rng.normal(size=(4000, 60)) * spread + 0.3 * spread * rng.normal(size=(2, 60))[y]
    amounts = []
    for n_clients in (10, 400):
        classifier = make("free", heads="lda").fit(merged(clients("free", X, y, np.arange(4000) // 2 % n_clients, 2)))
        amounts.append(classifier.info["shrinkage"])
    assert amounts[0] > 10 * amounts[1]


def test_little_is_lost_where_there_is_nothing_to_learn_but_the_means() -> None:
    """Three rows a class in 40 dimensions, and an isotropic spread: all that a covariance can do is to mislead."""
    rng = np.random.default_rng(0)
    y = np.arange(60) % 20
    X = rng.normal(size=(60, 40)) + 4.0 * np.eye(20, 40)[y]
    classifier = make("free").fit(merged(clients("free", X, y, np.arange(60) // 20, 20)))
    trial, labels = rng.normal(size=(2000, 40)) + 4.0 * np.eye(20, 40)[np.arange(2000) % 20], np.arange(2000) % 20
    nearest = NearestMean().fit(merged(clients("free", X, y, np.arange(60) // 20, 20)))
    assert (classifier.predict(trial) == labels).mean() > (nearest.predict(trial) == labels).mean() - 0.05


# ---------------------------------------------------------------------------------------------- little to choose from


@pytest.mark.parametrize(("source", "chosen"), [("free", "ncm"), ("exact", "lda")])
def test_a_single_client_has_the_default_and_the_notes_say_so(source: str, chosen: str) -> None:
    X, y = draw()
    info = make(source).fit(merged(clients(source, X, y, np.zeros(len(y), int)))).info
    assert info["chosen"] == chosen
    assert "the default, because no client can be held out" in info["criterion"]
    assert "estimated_accuracy" not in info


@pytest.mark.parametrize("source", SOURCES)
def test_classes_that_one_client_holds_alone(source: str) -> None:
    X, y = draw()
    apart = make(source).fit(merged(clients(source, X, y, y)))
    assert "the default" in apart.info["criterion"]
    mixed = np.where(y == 3, 7, np.arange(len(y)) % 7)
    some = make(source).fit(merged(clients(source, X, y, mixed)))
    assert "held out in 5 folds" in some.info["criterion"]
    assert set(some.predict(X)) == {0, 1, 2, 3}


@pytest.mark.parametrize("n_clients", [2, 3, 4, 5])
@pytest.mark.parametrize("source", SOURCES)
def test_a_few_clients(source: str, n_clients: int) -> None:
    X, y = draw()
    stats = merged(clients(source, X, y, np.arange(len(y)) % n_clients))
    classifier = make(source).fit(stats)
    expected = "the default" if source == "free" and n_clients == 2 else f"held out in {n_clients} folds"
    assert expected in classifier.info["criterion"]
    X_test, y_test = draw(1)
    accuracy = float((classifier.predict(X_test) == y_test).mean())
    assert accuracy > float((NearestMean().fit(stats).predict(X_test) == y_test).mean()) + 0.05
    assert accuracy > {"exact": 0.95, "free": 0.6}[source]


@pytest.mark.parametrize("source", SOURCES)
def test_one_sample_a_client(source: str) -> None:
    X, y = draw(n=200)
    classifier = make(source).fit(merged(clients(source, X, y, np.arange(len(y)))))
    X_test, y_test = draw(1)
    assert float((classifier.predict(X_test) == y_test).mean()) > 0.5
    assert "200 means of clients held out" in classifier.info["criterion"]


def test_a_head_without_a_covariance_is_refused_in_words() -> None:
    X, _ = draw(n=8)
    stats = merged(clients("free", X, np.arange(8) % C, np.zeros(8, int)))
    with pytest.raises(NotEnoughDataError, match="add ncm to the heads"):
        make("free", heads="lda,ridge").fit(stats)


def test_pooled_clients_are_refused() -> None:
    X, y = draw()
    with pytest.raises(ClientsPooledError, match="client means"):
        fm.make_head("auto-free").fit(Statistics.of(X, y, StatisticsSpec.of("gram"), n_classes=C))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"covariance": "diagonal"}, "covariance is free or exact for a choice; 'diagonal' arrived"),
        ({"heads": "lda,qda"}, "heads to choose from are lda, ridge, total, ncm, one or more with commas; 'lda,qda'"),
        ({"heads": ""}, "heads to choose from"),
        ({"heads": "total"}, "chosen from exact covariances alone"),
        ({"folds": 1}, "2 folds or more; folds=1 arrived"),
        ({"priors": "none"}, "priors is data or balanced"),
    ],
)
def test_what_cannot_be_chosen_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Choose(**options)


# ---------------------------------------------------------------------------------------------- on real data


@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.5])
@pytest.mark.parametrize(
    ("preset", "heads", "least"),
    [
        ("auto-free", "ridge", 0.015),
        ("auto-free", "lda", 0.015),
        ("auto-free", "ridge,lda,ncm", 0.025),  # of client means alone, the head is told less surely than its amount
        ("auto-exact", "lda,ridge,total,ncm", 0.015),
    ],
)
def test_digits_are_close_to_the_choice_made_on_test_data(preset: str, heads: str, least: float, alpha: float) -> None:
    digits = load_digits()
    X, y = digits.data / 16.0, digits.target
    test = np.arange(len(y)) % 10 < 3
    head = make(preset.partition("-")[2], heads=heads)
    holders = np.asarray(parse_split(f"dirichlet:{alpha}").apply(y[~test], n_clients=50, seed=0).clients)
    stats = merged(clients(head.covariance, X[~test], y[~test], holders, 10))
    gaussians = ClassGaussians(stats, head.covariance)
    centres = Centres(gaussians.means, gaussians.counts / stats.n_samples)
    accuracies = [
        float((rule.scores(X[test]).argmax(axis=1) == y[test]).mean()) for _, rule in head._rules(stats, stats, centres)
    ]
    classifier = head.fit(stats)
    chosen = float((classifier.predict(X[test]) == y[test]).mean())
    assert chosen >= max(accuracies) - least
    assert classifier.info["estimated_accuracy"] > chosen - 0.05
