"""Simulated attackers do what their word says, to whom it says, and leave moments that fit together."""

from collections.abc import Hashable
from typing import Any

import numpy as np
import pytest

from fedmoments.core.statistics import FixedPoint, Statistics, StatisticsSpec
from fedmoments.errors import InputError, UnknownNameError
from fedmoments.privacy.robust import inconsistencies, parse_attack, poison
from fedmoments.privacy.robust.moving import relabelled, rescattered, translated

C, D = 4, 5
FORM = FixedPoint(norm_bound=100.0, max_samples=5_000)
SPECS = [
    StatisticsSpec(),
    StatisticsSpec.of("gram", "client_means"),
    StatisticsSpec.of("class_squares", "class_norms"),
    StatisticsSpec.of("class_grams", "client_means", means_per_client=2),
    StatisticsSpec.of("gram", "class_norms"),
    StatisticsSpec.of("gram", "class_squares"),
]


def data(seed: int, n: int = 30) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, D)) + 1, rng.integers(0, C, n)


def parties(spec: StatisticsSpec, form: FixedPoint | None = None, number: int = 20) -> dict[Hashable, Statistics]:
    return {k: Statistics.of(*data(k), spec, n_classes=C, fixed_point=form) for k in range(number)}


def same(a: Statistics, b: Statistics) -> bool:
    if a.classes.tolist() != b.classes.tolist() or a.class_counts.tolist() != b.class_counts.tolist():
        return False
    return all(np.allclose(np.sort(a.arrays[n], axis=0), np.sort(b.arrays[n], axis=0)) for n in a.arrays)


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_law_a_flip_is_what_relabelled_samples_give(spec: StatisticsSpec) -> None:
    honest = parties(spec)
    sent, attackers = poison(honest, "flip:0.1")
    assert len(attackers) == 2
    for k, stats in honest.items():
        X, y = data(int(str(k)))
        wanted = Statistics.of(X, (y + 1) % C, spec, n_classes=C) if k in attackers else stats
        if spec.means_per_client == 1:
            assert same(sent[k], wanted)
        assert np.array_equal(sent[k].counts, wanted.counts)
        assert np.allclose(sent[k].sums, wanted.sums)


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_law_a_factor_is_what_repeated_samples_give(spec: StatisticsSpec) -> None:
    X, y = data(0)
    stats = Statistics.of(X, y, spec, n_classes=C)
    many = relabelled(stats, np.arange(C), 3)
    wanted = Statistics.of(np.tile(X, (3, 1)), np.tile(y, 3), spec, n_classes=C)
    assert np.array_equal(many.counts, wanted.counts)
    for name in stats.arrays:
        if name != "client_means":
            assert np.allclose(many.arrays[name], wanted.arrays[name])
    assert np.array_equal(many.row_counts, 3 * stats.row_counts)


@pytest.mark.parametrize("spec", SPECS[:3], ids=str)
def test_law_a_target_sends_everything_as_one_class(spec: StatisticsSpec) -> None:
    honest = parties(spec)
    sent, attackers = poison(honest, "target:0.05:2")
    (k,) = attackers
    X, y = data(int(str(k)))
    assert same(sent[k], Statistics.of(X, np.full(len(y), 2), spec, n_classes=C))
    assert sent[k].row_labels.tolist() in ([], [2])


@pytest.mark.parametrize("spec", SPECS[:3], ids=str)
def test_law_translated_statistics_are_those_of_translated_samples(spec: StatisticsSpec) -> None:
    X, y = data(1)
    steps = np.random.default_rng(0).normal(size=(C, D))
    moved = translated(Statistics.of(X, y, spec, n_classes=C), steps)
    assert same(moved, Statistics.of(X + steps[y], y, spec, n_classes=C))
    exact = translated(Statistics.of(X, y, spec, n_classes=C, fixed_point=FORM), steps)
    assert exact.fixed_point == FORM
    assert same(exact.to_float(), moved)


def test_third_moments_cannot_be_moved() -> None:
    stats = Statistics.of(*data(0), StatisticsSpec.of("class_thirds"), n_classes=C)
    with pytest.raises(InputError, match="class_thirds"):
        translated(stats, np.ones((C, D)))


@pytest.mark.parametrize("spec", SPECS, ids=str)
@pytest.mark.parametrize("form", [None, FORM], ids=["float", "fixed"])
@pytest.mark.parametrize("word", ["flip:0.5:7", "target:0.5:1:3", "shift:0.5:0.5", "lure:0.5:0.3:2"])
def test_law_attacks_with_moved_samples_violate_no_inequality(
    spec: StatisticsSpec, form: FixedPoint | None, word: str
) -> None:
    sent, attackers = poison(parties(spec, form), word)
    assert len(attackers) == 10
    assert inconsistencies(sent) == {}


@pytest.mark.parametrize("spec", SPECS[1:], ids=str)
@pytest.mark.parametrize("form", [None, FORM], ids=["float", "fixed"])
def test_law_huge_junk_violates_one_and_fitting_junk_none(spec: StatisticsSpec, form: FixedPoint | None) -> None:
    honest = parties(spec, form)
    if "gram" in spec.moments:
        assert inconsistencies(poison(honest, "junk:0.2:huge")[0]).keys() == poison(honest, "junk:0.2:huge")[1]
    for kind in ("random", "empty"):
        sent, attackers = poison(honest, f"junk:0.2:{kind}")
        assert len(attackers) == 4
        if not {"gram", "class_norms"} <= set(spec.sent) and not {"gram", "class_squares"} <= set(spec.sent):
            assert inconsistencies(sent) == {}
        assert all(sent[k] != honest[k] for k in attackers)
        assert all(np.array_equal(sent[k].sums, honest[k].sums) for k in attackers)


def test_junk_keeps_the_trace_in_one_direction() -> None:
    stats = Statistics.of(*data(0), StatisticsSpec.of("gram"), n_classes=C)
    junk = rescattered(stats, "random", np.random.default_rng(0))
    assert np.trace(junk.gram) == pytest.approx(np.trace(stats.gram))
    roots = stats.sums / np.sqrt(np.maximum(stats.counts, 1))[:, None]
    values = np.linalg.eigvalsh(junk.gram - roots.T @ roots)
    assert values[-1] > 1
    assert np.abs(values[:-1]).max() < 1e-9


def test_without_second_moments_nobody_sends_junk() -> None:
    honest = parties(StatisticsSpec.of("client_means"))
    sent, attackers = poison(honest, "junk:0.5")
    assert not attackers
    assert sent == honest


def test_law_the_seed_alone_decides_and_parts_are_joined() -> None:
    honest = parties(SPECS[1])
    first, who = poison(honest, "flip:0.1:100+junk:0.05:random", seed=3)
    again, them = poison(honest, "flip:0.1:100+junk:0.05:random", seed=3)
    assert who == them
    assert 2 <= len(who) <= 3
    assert all(first[k] == again[k] for k in honest)
    assert len({poison(honest, "flip:0.1", seed)[1] for seed in range(9)}) > 3
    assert len(poison(honest, "flip:0.0001")[1]) == 1


def test_clients_without_samples_do_not_attack() -> None:
    honest = parties(SPECS[0], number=2)
    honest["empty"] = Statistics.zero(SPECS[0], n_classes=C, dim=D)
    assert poison(honest, "flip:1")[1] == {0, 1}


def test_a_factor_in_fixed_point_stays_within_the_agreed_samples() -> None:
    stats = Statistics.of(*data(0), StatisticsSpec(), n_classes=C, fixed_point=FORM)
    assert relabelled(stats, np.arange(C), 10**6).n_samples <= FORM.max_samples


def test_words_are_read() -> None:
    (flip,) = parse_attack("flip:0.1:100")
    assert (flip.name, flip.share, dict(flip.settings)) == ("flip", 0.1, {"factor": 100})
    assert dict(parse_attack("target:0.01:7")[0].settings) == {"class": 7, "factor": 1}
    assert dict(parse_attack("junk:0.01")[0].settings) == {"kind": "huge"}
    assert [a.name for a in parse_attack("lure:0.1:0.2+shift:0.1:1:9")] == ["lure", "shift"]


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("flipp:0.1", "did you mean 'flip'"),
        ("flip", "is written flip:SHARE:FACTOR"),
        ("flip:0.1:2:3", "is written"),
        ("target:0.1", "is written target:SHARE:CLASS:FACTOR"),
        ("flip:0", "above 0 and up to 1"),
        ("flip:much", "must be a number"),
        ("flip:0.1:0", "whole number of 1 or more"),
        ("flip:0.1:2.5", "whole number"),
        ("target:0.1:-1", "whole number of 0 or more"),
        ("junk:0.1:odd", "kind of junk"),
        ("shift:0.1:nan", "must be a number"),
        ("", "unknown attack"),
    ],
)
def test_wrong_words_are_refused_with_what_is_right(word: str, says: str) -> None:
    with pytest.raises((InputError, UnknownNameError), match=says):
        parse_attack(word)


def test_a_class_that_is_not_there_is_refused() -> None:
    with pytest.raises(InputError, match="0 to 3"):
        poison(parties(SPECS[0]), "target:0.1:4")
