"""Laws of partial participation: who is drawn, what a round sees, and where the curve ends."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedmoments as fm
from fedmoments.core.heads import make_head
from fedmoments.core.observations.codec import to_plain
from fedmoments.errors import InputError
from fedmoments.samples import parse_split
from fedmoments.samples.features import Features, Samples
from fedmoments.study.simulation import Federation
from fedmoments.study.simulation.rounds import Participation, participants, simulate_rounds

SEEDS = st.integers(0, 2**32)


def rounds(n: int, kappa: int, seed: int, *, replacement: bool) -> list[list[int]]:
    return [drawn.tolist() for drawn in participants(n, Participation(kappa, replacement=replacement), seed)]


@given(st.integers(1, 60), st.integers(1, 80), SEEDS)
def test_without_replacement_everybody_is_drawn_once(n: int, kappa: int, seed: int) -> None:
    drawn = rounds(n, kappa, seed, replacement=False)
    assert sorted(client for chosen in drawn for client in chosen) == list(range(n))
    assert [len(chosen) for chosen in drawn[:-1]] == [kappa] * (len(drawn) - 1)
    assert len(drawn) == -(-n // min(kappa, n))


@given(st.integers(1, 25), st.integers(1, 30), SEEDS)
def test_with_replacement_clients_of_a_round_differ_and_the_last_round_is_the_first_that_saw_all(
    n: int, kappa: int, seed: int
) -> None:
    drawn = rounds(n, kappa, seed, replacement=True)
    for chosen in drawn:
        assert len(set(chosen)) == len(chosen) == min(kappa, n)
        assert set(chosen) <= set(range(n))
    before = {client for chosen in drawn[:-1] for client in chosen}
    assert len(before) < n
    assert before | set(drawn[-1]) == set(range(n))


@pytest.mark.parametrize("replacement", [False, True])
def test_draws_follow_from_the_seed(replacement: bool) -> None:
    first, again, other = (rounds(30, 4, seed, replacement=replacement) for seed in (0, 0, 1))
    assert first == again != other


def test_every_client_is_as_likely_as_any_other_in_the_first_round() -> None:
    counts = np.zeros(10, int)
    for seed in range(3000):
        counts[next(participants(10, Participation(3, replacement=True), seed))] += 1
    expected = 3000 * 3 / 10
    assert np.abs(counts - expected).max() < 5 * np.sqrt(expected * 0.7)


@given(st.integers(1, 10**6), st.booleans())
def test_participation_is_read_as_it_is_written(kappa: int, replacement: bool) -> None:
    participation = Participation(kappa, replacement=replacement)
    assert Participation.parse(str(participation)) == participation


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5", "x", "3:", "3:no", "3:replacement:2", ":replacement", "²"])
def test_other_words_for_participation_are_refused(text: str) -> None:
    with pytest.raises(InputError):
        Participation.parse(text)


@pytest.fixture(scope="module")
def features() -> Features:
    rng = np.random.default_rng(8)
    means = rng.normal(scale=1.2, size=(5, 7))

    def draw(n: int) -> Samples:
        y = rng.integers(5, size=n)
        return Samples(means[y] + rng.normal(size=(n, 7)), y)

    return Features("toy", 5, draw(300), draw(250))


SPLITS = ["iid", "dirichlet:0.1", "classes:2"]
HEADS = ("fedncm", "fedcof", "fedcof-spherical", "fed3r", "gh-lda", "gh-qda", "gh-nb", "lda-free", "nb-free")


@pytest.mark.parametrize("means", [1, 2])
@pytest.mark.parametrize("how", ["3", "3:replacement"])
@pytest.mark.parametrize("scheme", SPLITS)
def test_the_last_point_is_one_shot(features: Features, scheme: str, how: str, means: int) -> None:
    split = parse_split(scheme).apply(features.train.y, n_clients=20, seed=2)
    heads = {name: make_head(name) for name in HEADS}
    federation = Federation(features, split, list(heads.values()), means_per_client=means, seed=2)
    in_rounds = Federation(features, split, list(heads.values()), means_per_client=means, seed=2)
    curves = simulate_rounds(in_rounds, heads, Participation.parse(how))
    assert [curve.head for curve in curves] == list(HEADS)
    for curve in curves:
        last = curve.points[-1]
        assert last.seen == federation.n_senders
        assert last.accuracy == pytest.approx(federation.outcome(heads[curve.head]).accuracy)


@pytest.mark.parametrize("head", ["fedncm", "gh-lda", "fedcof"])
@pytest.mark.parametrize("replacement", [False, True])
def test_every_point_is_a_fit_on_the_clients_seen_so_far(features: Features, head: str, replacement: bool) -> None:
    split = parse_split("dirichlet:0.5").apply(features.train.y, n_clients=12, seed=0)
    participation = Participation(3, replacement=replacement)
    heads = {head: make_head(head)}
    (curve,) = simulate_rounds(Federation(features, split, list(heads.values()), seed=5), heads, participation)
    holders = np.flatnonzero(split.sizes > 0)
    drawn = list(participants(len(holders), participation, 5))
    for point in curve.points:
        seen = sorted({int(client) for chosen in drawn[: point.round] for client in holders[chosen]})
        assert point.seen == len(seen)
        parties: dict[Any, Any] = {
            k: (features.train.X[split.indices(k)], features.train.y[split.indices(k)]) for k in seen
        }
        direct = fm.fit(head, parties, n_classes=5)
        assert point.accuracy == pytest.approx((direct.predict(features.test.X) == features.test.y).mean())


def test_a_round_that_is_too_early_for_a_head_has_no_accuracy(features: Features) -> None:
    split = parse_split("iid").apply(features.train.y, n_clients=4, seed=0)
    heads = {name: make_head(name) for name in ("fedncm", "fedcof")}
    fedncm, fedcof = simulate_rounds(Federation(features, split, list(heads.values())), heads, Participation(1))
    assert fedncm.points[0].accuracy is not None
    assert fedcof.points[0].accuracy is None
    assert fedcof.points[-1].accuracy is not None


@pytest.mark.parametrize("replacement", [False, True])
@pytest.mark.parametrize("most", [2, 7, 50])
def test_points_are_few_and_spread_over_clients(features: Features, most: int, replacement: bool) -> None:
    split = parse_split("iid").apply(features.train.y, n_clients=120, seed=0)
    participation = Participation(2, replacement=replacement, most_points=most)
    seen: list[tuple[int, int]] = []
    head = make_head("fedncm")
    federation = Federation(features, split, [head])
    (curve,) = simulate_rounds(federation, {"fedncm": head}, participation, progress=lambda *step: seen.append(step))
    assert len(curve.points) <= most
    counts = [point.seen for point in curve.points]
    assert counts == sorted(set(counts))
    assert seen == [(count, 120) for count in counts]
    assert [point.round for point in curve.points] == sorted({point.round for point in curve.points})


def test_heads_with_a_map_of_their_own_are_left_out(features: Features) -> None:
    split = parse_split("iid").apply(features.train.y, n_clients=4, seed=0)
    heads = {name: make_head(name) for name in ("fed3r-rf", "fedncm")}
    federation = Federation(features, split, list(heads.values()))
    assert [curve.head for curve in simulate_rounds(federation, heads, Participation(2))] == ["fedncm"]


def test_a_curve_is_json(features: Features) -> None:
    split = parse_split("iid").apply(features.train.y, n_clients=4, seed=0)
    head = make_head("fedncm")
    (curve,) = simulate_rounds(Federation(features, split, [head], seed=3), {"fedncm": head}, Participation(4))
    assert to_plain(curve) == {
        "head": "fedncm",
        "per_round": 4,
        "replacement": False,
        "seed": 3,
        "points": [{"round": 1, "seen": 4, "accuracy": curve.points[0].accuracy}],
        "split": "iid",
        "clients": 4,
    }


@pytest.mark.parametrize("fixed_point", [fm.FixedPoint(), None])
@pytest.mark.parametrize("names", [("fedcof", "gh-qda", "fed3r"), ("sketch",)])
def test_a_federation_that_was_looked_at_in_rounds_is_measured(
    features: Features, names: tuple[str, ...], fixed_point: fm.FixedPoint | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What rounds have measured is what one shot measures: bit for bit in fixed point, and not measured again."""
    split = parse_split("dirichlet:0.5").apply(features.train.y, n_clients=15, seed=2)
    heads = {name: make_head(name) for name in names}

    def federation() -> Federation:
        return Federation(features, split, list(heads.values()), means_per_client=2, seed=2, fixed_point=fixed_point)

    whole, in_rounds = federation(), federation()
    simulate_rounds(in_rounds, heads, Participation(4, replacement=True))
    monkeypatch.setattr(fm.Ledger, "of", lambda *_, **__: pytest.fail("it was measured already"))
    left = in_rounds.merged
    monkeypatch.undo()
    if fixed_point:
        assert left.digest() == whole.merged.digest()
    for name, head in heads.items():
        ours, one_shot = in_rounds.fitted(head), whole.fitted(head)
        if fixed_point:
            assert ours.digest() == one_shot.digest(), name
        assert np.allclose(ours.scores(features.test.X), one_shot.scores(features.test.X), rtol=1e-6, atol=1e-6)
    if left.spec.keeps_clients_apart:
        assert np.array_equal(left.row_owners, whole.merged.row_owners)
