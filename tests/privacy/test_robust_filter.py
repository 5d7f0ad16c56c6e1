"""Laws of the filter: honest clients stay, attackers go, and nothing depends on units or on the order of clients."""

from collections.abc import Hashable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import fedmoments as fm
from fedmoments.core.statistics import FixedPoint, Statistics, StatisticsSpec
from fedmoments.errors import InputError, MissingMomentError, UnknownNameError
from fedmoments.privacy.robust import Suspicion, poison, suspect_rows, suspects, without_rows
from fedmoments.privacy.robust.centres import (
    LOUDEST,
    RATIOS,
    class_centres,
    excess,
    mad,
    margins,
    stack,
    weighted_median,
)
from fedmoments.privacy.robust.spread import measure_scatter, within_variance

C, D = 5, 12
FORM = FixedPoint(norm_bound=40.0, max_samples=10**6)
SPECS = [
    StatisticsSpec(),
    StatisticsSpec.of("client_means"),
    StatisticsSpec.of("client_means", means_per_client=2),
    StatisticsSpec.of("gram"),
    StatisticsSpec.of("gram", "client_means"),
    StatisticsSpec.of("class_norms"),
    StatisticsSpec.of("class_squares"),
    StatisticsSpec.of("class_grams", "client_means"),
    StatisticsSpec.of("class_squares", "class_thirds", "class_fourths"),
]
Parties = dict[Hashable, Statistics]


def world(seed: int, clients: int = 40, per: int = 30, alpha: float | None = 0.5, shift: float = 0.0) -> Any:
    """Return (X, y) of every client, and of a test: Gaussian classes, Dirichlet label shares, domain shifts."""
    rng = np.random.default_rng(seed)
    means = rng.normal(size=(C, D)) * 2
    root = rng.normal(size=(D, D)) / np.sqrt(D)

    def draw(labels: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.asarray(means[labels] + rng.normal(size=(len(labels), D)) @ root)

    data = {}
    for k in range(clients):
        shares = np.full(C, 1 / C) if alpha is None else rng.dirichlet(np.full(C, alpha))
        labels = rng.choice(C, per, p=shares)
        data[f"c{k}"] = (draw(labels) + shift * rng.normal(size=D), labels)
    test = rng.integers(0, C, 400)
    return data, (draw(test), test)


def measured(data: Mapping[str, Any], spec: StatisticsSpec, form: FixedPoint | None = None) -> Parties:
    return {k: Statistics.of(X, y, spec, n_classes=C, fixed_point=form) for k, (X, y) in data.items()}


# ---------------------------------------------------------------------------------------------- honest clients


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_law_honest_clients_of_equal_data_stay(spec: StatisticsSpec) -> None:
    for seed in range(6):
        data, _ = world(seed, alpha=None)
        assert suspects(measured(data, spec)).dropped == {}


@pytest.mark.parametrize("shift", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("alpha", [0.1, 0.5])
def test_law_honest_clients_stay_under_heterogeneity(alpha: float, shift: float) -> None:
    dropped = total = 0
    for seed in range(10):
        data, _ = world(seed, alpha=alpha, shift=shift)
        found = suspects(measured(data, StatisticsSpec.of("gram")))
        dropped, total = dropped + len(found.dropped), total + len(data)
    assert dropped <= 0.005 * total


def test_law_honest_clients_of_very_different_size_stay() -> None:
    rng = np.random.default_rng(3)
    data, _ = world(0, clients=60, per=400, alpha=None)
    sizes = np.clip(np.exp(rng.normal(3, 1, 60)).astype(int), 1, 400)
    unequal = {k: (X[:n], y[:n]) for (k, (X, y)), n in zip(data.items(), sizes, strict=True)}
    assert suspects(measured(unequal, StatisticsSpec.of("gram"))).dropped == {}


def test_clients_without_samples_and_single_clients_are_no_problem() -> None:
    data, _ = world(0, clients=12)
    spec = StatisticsSpec.of("gram")
    parties = measured(data, spec)
    parties["empty"] = Statistics.zero(spec, n_classes=C, dim=D)
    assert suspects(parties).dropped == {}
    for few in (1, 2, 3):
        assert suspects(dict(list(parties.items())[:few])).dropped == {}
    assert suspects({"empty": parties["empty"]}).dropped == {}


def test_classes_of_two_holders_are_counted_as_untested() -> None:
    X, y = np.random.default_rng(0).normal(size=(8, 3)), [0] * 8
    parts = {k: Statistics.of(X + k, y, StatisticsSpec(), n_classes=2) for k in range(2)}
    assert suspects(parts).untested == 2


# ---------------------------------------------------------------------------------------------- invariances


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_law_the_unit_of_the_features_changes_nothing(spec: StatisticsSpec) -> None:
    data, _ = world(1)
    sent, _ = poison(measured(data, StatisticsSpec()), "flip:0.2")
    flips = {k: (X, (y + 1) % C if not np.array_equal(sent[k].counts, np.bincount(y, minlength=C)) else y)
             for k, (X, y) in data.items()}  # fmt: skip
    found = suspects(measured(flips, spec))
    for factor in (2.0**-20, 2.0**20, 1000.0):
        scaled = suspects(measured({k: (X * factor, y) for k, (X, y) in flips.items()}, spec))
        assert list(scaled.dropped) == list(found.dropped)
        assert list(scaled.scores.values()) == pytest.approx(list(found.scores.values()), rel=1e-5, abs=1e-6)
    assert len(found.dropped) == 8


def test_law_the_order_of_clients_changes_nothing() -> None:
    data, _ = world(2)
    sent, _ = poison(measured(data, StatisticsSpec.of("gram")), "flip:0.1:100+junk:0.05:random")
    found = suspects(sent)
    names = list(sent)
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(len(names))
        again = suspects({names[i]: sent[names[i]] for i in order})
        assert again.dropped.keys() == found.dropped.keys()
        for client, score in found.scores.items():
            assert again.scores[client] == pytest.approx(score, rel=1e-6)


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_law_fixed_point_and_float_find_the_same(spec: StatisticsSpec) -> None:
    data, _ = world(4)
    sent, attackers = poison(measured(data, spec, FORM), "flip:0.1:20")
    floats, same = poison(measured(data, spec), "flip:0.1:20")
    assert attackers == same
    assert suspects(sent).dropped.keys() == suspects(floats).dropped.keys() == attackers


# ---------------------------------------------------------------------------------------------- attackers


@pytest.mark.parametrize("attack", ["flip:0.1:100", "flip:0.1", "target:0.1:2", "target:0.025:2:10", "shift:0.1:3"])
@pytest.mark.parametrize("spec", SPECS[:8], ids=str)
def test_law_attackers_are_found_and_nobody_else(spec: StatisticsSpec, attack: str) -> None:
    for seed in range(3):
        data, _ = world(seed, per=60, alpha=None)  # with skewed labels an attacker may hold little but the target
        sent, attackers = poison(measured(data, spec), attack, seed)
        assert set(suspects(sent).dropped) == attackers, attack


@pytest.mark.parametrize("kind", ["huge", "random", "empty"])
@pytest.mark.parametrize("spec", [s for s in SPECS[:8] if "class_norms" in s.moments or "gram" in s.moments], ids=str)
def test_law_junk_second_moments_are_found(spec: StatisticsSpec, kind: str) -> None:
    for seed in range(3):
        data, _ = world(seed, per=60)
        sent, attackers = poison(measured(data, spec), f"junk:0.05:{kind}", seed)
        assert set(suspects(sent).dropped) == attackers


def test_law_every_head_is_within_a_point_of_clean() -> None:
    spec = StatisticsSpec.of("class_grams", "client_means", "scatter_sketch")
    for seed in range(2):
        data, (X, y) = world(seed, clients=50, per=60)
        clean = measured(data, spec)
        sent, _ = poison(clean, "flip:0.1:100+junk:0.04:random+junk:0.04:huge", seed)
        merged = [Statistics.merge(part.values()) for part in (clean, suspects(sent).keep(sent), sent)]
        for name in fm.head_names():
            head = fm.make_head(name)
            if head.has_own_map or "proto" in name:
                continue
            before, after = ((head.fit(stats).predict(X) == y).mean() for stats in merged[:2])
            assert after >= before - 0.01, name
    ncm = fm.make_head("fedncm")
    assert (ncm.fit(merged[2]).predict(X) == y).mean() < 0.5  # the attack does harm


def test_inflated_counts_with_sound_means_are_found_by_their_size() -> None:
    data, _ = world(5)
    parties = measured(data, StatisticsSpec())
    sent = {**parties, "c0": poison({"c0": parties["c0"]}, "lure:1:0:1000")[0]["c0"]}
    assert list(suspects(sent).dropped) == ["c0"]
    assert sent["c0"].n_samples == 1000 * parties["c0"].n_samples


def test_strictness_finds_more() -> None:
    data, _ = world(6)
    sent, _ = poison(measured(data, StatisticsSpec()), "shift:0.1:0.7")
    numbers = [len(suspects(sent, strictness=s).dropped) for s in (0.25, 1.0, 4.0)]
    assert numbers[0] <= numbers[1] <= numbers[2]
    assert numbers[0] < numbers[2]


def test_what_is_not_found_small_shifts_of_normal_clients() -> None:
    """The filter does not find what lies within the scatter of honest means: this is known, and told."""
    data, _ = world(7)
    sent, attackers = poison(measured(data, StatisticsSpec()), "shift:0.1:0.1")
    assert not attackers & suspects(sent).dropped.keys()


def test_wrong_settings_are_refused() -> None:
    data, _ = world(0, clients=3)
    parties = measured(data, StatisticsSpec())
    with pytest.raises(UnknownNameError, match="robust filter"):
        suspects(parties, filter="krum")
    for wrong in (0, -1.0, float("nan")):
        with pytest.raises(InputError, match="strictness"):
            suspects(parties, strictness=wrong)
    with pytest.raises(InputError, match="no client"):
        suspects({})


def test_a_suspicion_keeps_the_others_and_is_plain_for_json() -> None:
    found = Suspicion({1: "samples: many"}, {1: 2.0, 2: 0.5})
    parts: Any = {1: "a", 2: "b"}
    assert found.keep(parts) == {2: "b"}
    assert found.to_dict() == {"dropped": {"1": "samples: many"}, "scores": {"1": 2.0, "2": 0.5}, "untested": 0}


# ---------------------------------------------------------------------------------------------- cohorts


def cohort_rows(parties: Parties, size: int) -> Statistics:
    names = list(parties)
    cohorts = [Statistics.merge([parties[n] for n in names[i : i + size]]) for i in range(0, len(names), size)]
    rows = [replace(s.restricted(StatisticsSpec())) for s in cohorts]
    spec = StatisticsSpec.of("client_means")
    as_rows = [
        Statistics(spec, C, D, s.classes, s.class_counts, {"client_means": s.raw("sums")}, s.classes, s.class_counts)
        for s in rows
    ]
    return Statistics.merge(as_rows)


def test_law_few_attackers_are_found_in_rows_of_cohorts_but_many_are_not() -> None:
    data, (X, y) = world(8, clients=300, per=20)
    parties = measured(data, StatisticsSpec())
    head = fm.make_head("fedncm")
    clean = float((head.fit(cohort_rows(parties, 10)).predict(X) == y).mean())
    accuracy = {}
    for share in (0.02, 0.3):
        rows = cohort_rows(poison(parties, f"flip:{share}:100")[0], 10)
        found = suspect_rows(rows)
        accuracy[share] = float((head.fit(without_rows(rows, found)).predict(X) == y).mean())
    assert accuracy[0.02] > clean - 0.02
    assert accuracy[0.3] < clean - 0.3


def test_law_rows_of_the_secure_protocol_can_be_filtered() -> None:
    pytest.importorskip("cryptography")
    from tests.privacy.secure_workshop import run_cohorts

    data, (X, y) = world(15, clients=60, per=30, alpha=None)
    parties = measured(data, StatisticsSpec.of("client_means"), FORM)
    head = fm.make_head("fedncm")
    sent, _ = poison(parties, "flip:0.03:50")
    clean, rows = (run_cohorts(part, size=5, seed=4)[0] for part in (parties, sent))
    assert suspect_rows(clean) == {}
    found = suspect_rows(rows)
    accuracy = [(head.fit(s).predict(X) == y).mean() for s in (clean, rows, without_rows(rows, found))]
    assert accuracy[1] < accuracy[0] - 0.1
    assert accuracy[2] > accuracy[0] - 0.02


def test_rows_of_known_cohorts_are_left_out_together() -> None:
    data, _ = world(9, clients=100)
    rows = cohort_rows(poison(measured(data, StatisticsSpec()), "flip:0.01:100")[0], 10)
    cohorts = np.repeat(np.arange(10), C)[: len(rows.row_labels)]
    found = suspect_rows(rows, cohorts)
    assert len(found) == C
    assert len({int(cohorts[row]) for row in found}) == 1


def test_rows_of_a_frequent_class_are_not_left_out_for_their_counts() -> None:
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(C), [2, 3, 2, 3, 600])
    parts = [
        Statistics.of(rng.normal(size=(len(y), D)), y, StatisticsSpec.of("client_means"), n_classes=C)
        for _ in range(20)
    ]
    assert suspect_rows(Statistics.merge(parts)) == {}
    inflated = poison({0: parts[0]}, "lure:1:0:100")[0][0]
    found = suspect_rows(Statistics.merge([inflated, *parts[1:]]))
    assert {0, 1, 2, 3, 4} == set(found)


def test_without_rows_is_the_merge_of_the_others() -> None:
    data, _ = world(10, clients=6)
    parties = measured(data, StatisticsSpec.of("client_means"), FORM)
    merged = Statistics.merge(parties.values())
    first = len(parties["c0"].row_labels)
    rest = Statistics.merge(list(parties.values())[1:])
    assert without_rows(merged, dict.fromkeys(range(first), "")) == rest
    with pytest.raises(MissingMomentError, match="kept apart"):
        suspect_rows(measured(data, StatisticsSpec())["c0"])
    with pytest.raises(MissingMomentError, match="added up"):
        without_rows(measured(data, StatisticsSpec.of("gram", "client_means"))["c0"], {})


# ---------------------------------------------------------------------------------------------- naive referees


def test_the_weighted_median_is_the_naive_one() -> None:
    rng = np.random.default_rng(0)
    for m in (1, 2, 5, 30):
        values, weights = rng.normal(size=(m, 130)), rng.uniform(0.5, 3, m)
        for column, found in zip(values.T, weighted_median(values, weights), strict=True):
            order = np.argsort(column)
            total = 0.0
            for i in order:
                total += weights[i]
                if total >= weights.sum() / 2:
                    break
            assert found == column[i]


def test_centres_and_margins_are_the_naive_ones() -> None:
    data, _ = world(11)
    cells = stack(measured(data, StatisticsSpec()))
    use = np.random.default_rng(0).random(len(cells.labels)) < 0.8
    centres, variances, voices = class_centres(cells, use)
    for label in range(C):
        mine = use & (cells.labels == label)
        roots = np.sqrt(cells.counts[mine])
        weights = np.minimum(roots, LOUDEST * np.median(roots))
        assert voices[label] == mine.sum()
        assert np.array_equal(centres[label], weighted_median(cells.means[mine], weights))
        assert 0 < variances[label] < np.pi / 2
    got = margins(cells.means, cells.labels, centres, np.arange(C))
    for mean, label, found in zip(cells.means, cells.labels, got, strict=True):
        far = np.square(mean - centres).sum(axis=1)
        other = min((c for c in range(C) if c != label), key=lambda c: far[c])
        wanted = (far[other] - far[label]) / np.square(centres[other] - centres[label]).sum()
        assert found == pytest.approx(wanted, abs=1e-9)


def test_the_variance_of_a_centre_is_what_it_scatters_by() -> None:
    rng = np.random.default_rng(1)
    counts = rng.integers(1, 6, 60)
    drawn = rng.normal(size=(60, 4000)) / np.sqrt(counts)[:, None]
    parts = {
        k: Statistics(
            StatisticsSpec(), 1, 4000, np.array([0]), counts[k : k + 1].copy(), {"sums": (row * counts[k])[None]}
        )
        for k, row in enumerate(drawn)
    }
    centres, variances, _ = class_centres(stack(parts), np.ones(60, bool))
    assert centres.var() == pytest.approx(variances[0], rel=0.1)


def test_excess_finds_the_ratio_and_the_scale() -> None:
    rng = np.random.default_rng(2)
    counts = rng.integers(1, 200, 5000)
    for ratio in (0.0, RATIOS[6], RATIOS[10]):
        squares = 7.0 * (ratio + 1 / counts) * rng.chisquare(50, 5000) / 50
        logs = excess(squares, 1 / counts)
        assert mad(logs)[1] < 0.25
        assert abs(np.corrcoef(logs, np.log(counts))[0, 1]) < 0.3
    assert excess(np.zeros(0), np.zeros(0)).shape == (0,)


@pytest.mark.parametrize("moment", ["gram", "class_squares", "class_norms", "class_grams"])
def test_numbers_of_the_scatter_are_those_of_the_centred_samples(moment: str) -> None:
    data, _ = world(12, clients=9)
    parts = list(measured(data, StatisticsSpec.of(moment)).values())
    found = measure_scatter(parts, np.ones(9, bool))
    assert found is not None
    total, freedom = 0.0, 0
    for k, (X, y) in enumerate(data.values()):
        centred = X - np.stack([X[y == label].mean(axis=0) for label in y])
        assert found.freedom[k] == len(X) - len(set(y))
        assert found.numbers["size"][k] == pytest.approx(np.square(centred).sum() / found.freedom[k])
        total, freedom = total + np.square(centred).sum(), freedom + int(found.freedom[k])
    assert within_variance(parts, stack(dict(enumerate(parts)))) == pytest.approx(total / freedom)


def test_weights_of_the_scatter_are_the_naive_ones() -> None:
    from fedmoments.privacy.robust.spread import FLOOR

    data, _ = world(13, clients=20)
    parts = list(measured(data, StatisticsSpec.of("gram")).values())
    scatters = []
    for X, y in data.values():
        centred = X - np.stack([X[y == label].mean(axis=0) for label in y])
        scatters.append(centred.T @ centred)
    sizes = np.array([np.trace(s) / (len(y) - len(set(y))) for s, (_, y) in zip(scatters, data.values(), strict=True)])
    groups = [np.zeros((D, D)) for _ in range(15)]
    for place, k in enumerate(np.argsort(sizes)):
        groups[place % 15] += scatters[k]
    usual = np.median([g / np.trace(g) for g in groups], axis=0)
    usual /= np.trace(usual)
    values, vectors = np.linalg.eigh(usual)
    inverse = vectors @ np.diag(1 / np.maximum(values, FLOOR / D)) @ vectors.T
    found = measure_scatter(parts, np.ones(20, bool))
    assert found is not None
    assert found.shape is not None
    for k, scatter in enumerate(scatters):
        own = scatter / np.trace(scatter)
        assert found.shape[k] == pytest.approx(np.square(own - usual).sum())
        assert found.numbers["narrow"][k] == pytest.approx((own * inverse).sum())


def test_the_free_within_variance_needs_no_second_moment() -> None:
    data, _ = world(14, clients=200)
    parties = measured(data, StatisticsSpec())
    exact = within_variance(list(measured(data, StatisticsSpec.of("gram")).values()), stack(parties))
    assert within_variance(list(parties.values()), stack(parties)) == pytest.approx(exact, rel=0.15)
