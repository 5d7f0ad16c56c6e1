"""Laws of FedCOF inside cohorts: rows are sums over cohorts, and no opened sum is of too few clients."""

from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.privacy.secure_workshop import run_cohorts

import fedmoments as fm
from fedmoments.core.statistics import FixedPoint, Statistics, StatisticsSpec
from fedmoments.errors import InputError, NotEnoughDataError, PrivacyError, RefusedError
from fedmoments.privacy.dense import DenseLayout
from fedmoments.privacy.modes.parties import Crowd
from fedmoments.privacy.protection import Agreed
from fedmoments.privacy.secure.cohort_draw import Roster
from fedmoments.privacy.secure.cohort_helper import CohortHelper
from fedmoments.privacy.secure.cohorts import CohortLeader, Opening, plan_openings, rows_of
from fedmoments.privacy.secure.context import Context
from fedmoments.privacy.secure.parties import SIMULATED, LocalParties
from fedmoments.privacy.secure.request import SumRequest
from fedmoments.privacy.secure.threshold import ThresholdHelper

C, D = 3, 2
FORM = FixedPoint(norm_bound=16.0, max_samples=10_000)
ROWS = StatisticsSpec.of("client_means")
LAYOUT = DenseLayout(StatisticsSpec(), C, D)


def federation(n_clients: int, seed: int, share: float = 0.5) -> dict[str, Statistics]:
    """Clients that hold each class with a probability."""
    rng = np.random.default_rng(seed)
    parts = {}
    for number in range(n_clients):
        y = np.repeat(np.arange(C), rng.integers(1, 4, C) * (rng.random(C) < share))
        X = rng.normal(size=(len(y), D))
        zero = Statistics.zero(ROWS, n_classes=C, dim=D, fixed_point=FORM)
        parts[f"site {number}"] = Statistics.of(X, y, ROWS, n_classes=C, fixed_point=FORM) if len(y) else zero
    return parts


class Recorder(CohortHelper):
    """A helper that notes what it opened."""

    def __init__(self, *args: Any, **rules: Any) -> None:
        super().__init__(*args, **rules)
        self.learned: list[SumRequest] = []
        self.opened: list[SumRequest] = []

    def learn(self, request: SumRequest, masked: NDArray[np.uint64]) -> NDArray[np.uint64]:
        self.learned.append(request)
        return super().learn(request, masked)

    def open(self, request: SumRequest) -> NDArray[np.uint64]:
        answer = super().open(request)
        self.opened.append(request)
        return answer


class Play:
    """Both servers and all clients, played; every step can be looked at."""

    def __init__(
        self,
        parts: dict[str, Statistics],
        *,
        size: int = 3,
        batch: int = 2,
        contributors: int = 2,
        dropped: frozenset[str] = frozenset(),
    ) -> None:
        self.parties = LocalParties(parts, batch)
        rules: dict[str, Any] = {"size": size, "batch": batch, "contributors": contributors}
        self.helper = Recorder(self.parties.helper, LAYOUT, **rules)
        self.ours = CohortLeader(Roster.of(self.parties.public), LAYOUT, FORM, **rules)
        self.cohorts = self.ours.deal(SIMULATED, self.helper)
        vectors = {name: LAYOUT.pack(part) for name, part in parts.items()}
        self.leader = self.parties.report(vectors, SIMULATED, dropped)
        self.client_of = {report: client for client, report in self.leader.present.items()}

    def run(self) -> tuple[Statistics, dict[str, Any]]:
        return self.ours.collect(self.leader, self.helper, self.cohorts)


def labels_of(request: SumRequest) -> list[int]:
    inside = np.concatenate([np.arange(start, stop) for start, stop in request.blocks])
    return sorted({int(at - C) // (1 + D) for at in inside})


PLAYS = {
    "n_clients": st.integers(4, 14),
    "seed": st.integers(0, 2**32),
    "share": st.sampled_from([0.15, 0.5, 0.9]),
    "size": st.integers(2, 6),
    "contributors": st.integers(1, 4),
    "out": st.sets(st.integers(0, 13), max_size=5),
}


def play_of(
    n_clients: int, seed: int, share: float, size: int, contributors: int, out: set[int]
) -> tuple[Play, dict[str, Statistics]] | None:
    parts = federation(n_clients, seed, share)
    dropped = frozenset(f"site {i}" for i in out if i < n_clients)
    present = {name: part for name, part in parts.items() if name not in dropped}
    if len(present) < 2:
        return None
    return Play(parts, size=size, contributors=contributors, dropped=dropped), present


@settings(max_examples=40, deadline=None)
@given(**PLAYS)
def test_no_opened_cell_has_fewer_contributors_than_the_threshold(contributors: int, **rest: Any) -> None:
    made = play_of(contributors=contributors, **rest)
    if made is None:
        return
    play, present = made
    with suppress(NotEnoughDataError):
        play.run()
    seen: set[tuple[str, int]] = set()
    for request in play.helper.opened:
        clients = [play.client_of[report] for report in request.ids]
        assert len(clients) >= 2
        for label in labels_of(request):
            assert sum(present[client].counts[label] > 0 for client in clients) >= contributors
            cells = {(client, label) for client in clients}
            assert not cells & seen  # every cell once
            seen |= cells


@settings(max_examples=40, deadline=None)
@given(**PLAYS)
def test_rows_are_class_sums_over_cohorts_bit_for_bit(contributors: int, **rest: Any) -> None:
    made = play_of(contributors=contributors, **rest)
    if made is None:
        return
    play, present = made
    holders = np.sum([part.counts > 0 for part in present.values()], axis=0)
    suppressed = tuple(np.flatnonzero((holders > 0) & (holders < contributors)))
    if not (holders >= contributors).any():
        with pytest.raises(NotEnoughDataError, match="no class is held by enough clients"):
            play.run()
        return
    stats, facts = play.run()
    expected = []
    for request in play.helper.opened:
        together = Statistics.merge([present[play.client_of[report]] for report in request.ids])
        for label in labels_of(request):
            row = together.raw("sums")[np.searchsorted(together.classes, label)]
            expected.append((label, int(together.counts[label]), *row.tolist()))
    found = zip(stats.row_labels.tolist(), stats.row_counts.tolist(), stats.raw("client_means").tolist(), strict=True)
    assert sorted((label, n, *row) for label, n, row in found) == sorted(expected)
    # ... and together they are everybody's, but for suppressed classes
    whole = Statistics.merge(present.values())
    kept = ~np.isin(whole.classes, suppressed)
    np.testing.assert_array_equal(stats.classes, whole.classes[kept])
    np.testing.assert_array_equal(stats.class_counts, whole.class_counts[kept])
    np.testing.assert_array_equal(stats.raw("sums"), whole.raw("sums")[kept])
    assert facts["suppressed"] == suppressed


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 5), min_size=4, max_size=4), min_size=1, max_size=7), st.integers(1, 5)
)  # fmt: skip
def test_openings_cover_every_cell_once_or_suppress_the_class(held: list[list[int]], contributors: int) -> None:
    table = np.array(held)
    openings, suppressed = plan_openings(table, contributors)
    for label, column in enumerate(table.T):
        mine = [each.cohorts for each in openings if label in each.labels]
        assert all(column[list(cohorts)].sum() >= contributors for cohorts in mine)
        if label in suppressed or not column.any():
            assert not mine
            assert column.sum() < contributors
        else:
            assert sorted(j for cohorts in mine for j in cohorts) == np.flatnonzero(column).tolist()
            alone = set(np.flatnonzero(column >= contributors).tolist())
            assert len({cohorts for cohorts in mine if alone & set(cohorts)}) == len(alone)


def test_one_message_is_enough_and_has_the_size_that_is_said() -> None:
    _, facts = run_cohorts(federation(7, 1), size=3, contributors=1)
    assert facts["clients"] == 7
    cost = Agreed(secure="cohorts").mode.cost(Crowd.of(federation(7, 1)).asked, clear=0)
    assert (cost.up, cost.down) == (360 + 32 + 8 * LAYOUT.size, 0)


def test_the_same_randomness_deals_the_same_cohorts() -> None:
    parts = federation(12, 2)
    one, two, other = (run_cohorts(parts, size=3, contributors=2, seed=seed)[0] for seed in (1, 1, 2))
    assert one == two
    assert one != other


def test_heads_are_fitted_from_cohort_rows() -> None:
    rng = np.random.default_rng(5)
    y = np.repeat(np.arange(C), 200)
    centres = np.array([[6.0, 0.0], [0.0, 6.0], [-6.0, -6.0]])
    X, site = rng.normal(size=(600, D)) + centres[y], rng.integers(0, 30, 600)
    parts = {str(i): Statistics.of(X[site == i], y[site == i], ROWS, n_classes=C, fixed_point=FORM) for i in range(30)}
    stats, _ = run_cohorts(parts, size=4)
    for head in ("fedcof", "lda-free", "qda-free", "nb-free"):
        assert (fm.fit(head, stats).predict(X) == y).mean() > 0.97


# ---------------------------------------------------------------------------------------------------- the helper's gate


class Group:
    """One group of reports, of which class 0 is held by all, class 1 by one, class 2 by nobody."""

    def __init__(self, contributors: int = 3) -> None:
        parts = {}
        for number in range(5):
            y = [0, 1] if number == 0 else [0]
            parts[f"site {number}"] = Statistics.of(
                np.full((len(y), D), 2.0), y, StatisticsSpec(), n_classes=C, fixed_point=FORM
            )
        parties = LocalParties(parts, 3)
        self.parts = parts
        self.leader = parties.report({name: LAYOUT.pack(part) for name, part in parts.items()}, SIMULATED)
        self.gate = ThresholdHelper(parties.helper, LAYOUT, contributors)
        self.ask = self.leader.request(None, [(0, C)])
        self.masked = self.leader.finish(self.ask, np.zeros(C, np.uint64))

    def block(self, label: int) -> tuple[int, int]:
        block = LAYOUT.class_block(label)
        return block.start, block.stop


def test_the_helper_opens_no_class_of_too_few() -> None:
    group = Group()
    held = group.leader.finish(group.ask, group.gate.learn(group.ask, group.masked))
    assert held.tolist() == [5, 1, 0]
    for label in (1, 2):
        few = group.leader.request(None, [group.block(label)])
        with pytest.raises(PrivacyError, match=f"{held[label]} of these 5 clients hold class {label}"):
            group.gate.open(few)
    both = group.leader.request(None, [group.block(0), group.block(1)])
    with pytest.raises(PrivacyError, match="hold class 1"):
        group.gate.open(both)
    enough = group.leader.request(None, [group.block(0)])
    assert group.leader.finish(enough, group.gate.open(enough))[0] == 5


def test_the_helper_opens_nothing_of_a_group_that_it_did_not_learn() -> None:
    group = Group()
    with pytest.raises(PrivacyError, match="learn the contributors of the group first"):
        group.gate.open(group.leader.request(None, [group.block(0)]))


def test_the_helper_opens_no_part_of_a_group() -> None:
    group = Group()
    group.gate.learn(group.ask, group.masked)
    part = group.leader.request(group.ask.ids[:4], [group.block(0)])
    with pytest.raises(PrivacyError, match="1 of 5 reports of a group are missing"):
        group.gate.open(part)


def test_the_helper_opens_whole_classes_only() -> None:
    group = Group()
    group.gate.learn(group.ask, group.masked)
    start, stop = group.block(0)
    for blocks in ([(start, stop - 1)], [(start + 1, stop)], [(0, stop)]):
        with pytest.raises(PrivacyError, match="classes are opened whole"):
            group.gate.open(group.leader.request(None, blocks))


def test_the_helper_believes_one_story_about_a_group() -> None:
    group = Group()
    group.gate.learn(group.ask, group.masked)
    np.testing.assert_array_equal(group.gate.learn(group.ask, group.masked), group.gate.learn(group.ask, group.masked))
    with pytest.raises(PrivacyError, match="a group one story"):
        group.gate.learn(group.ask, group.masked + np.uint64(2))


def test_an_impossible_number_of_contributors_is_refused_for_ever() -> None:
    group = Group()
    with pytest.raises(RefusedError, match="gives from 4 to 9"):
        group.gate.learn(group.ask, group.masked + np.uint64(4))
    with pytest.raises(PrivacyError, match="a group one story"):
        group.gate.learn(group.ask, group.masked)
    with pytest.raises(PrivacyError, match="0 of these 5 clients hold class 0"):
        group.gate.open(group.leader.request(None, [group.block(0)]))


def test_not_promised_a_leader_that_lies_about_contributors_within_bounds_is_believed() -> None:
    """What the helper cannot check: the documentation says so."""
    group = Group()
    lie = group.masked.copy()
    lie[1] += np.uint64(3)
    group.gate.learn(group.ask, lie)
    opened = group.leader.request(None, [group.block(1)])
    assert group.leader.finish(opened, group.gate.open(opened))[0] == 1


class Rounds:
    """Ten clients that all hold class 0; class 1 is held by four, of which one is among the last three."""

    def __init__(self) -> None:
        self.parts = {}
        for number in range(10):
            y = [0, 1] if number in (0, 1, 2, 9) else [0]
            X = np.full((len(y), D), 1.0 + number / 16)
            self.parts[f"site {number}"] = Statistics.of(X, y, StatisticsSpec(), n_classes=C, fixed_point=FORM)
        self.parties = LocalParties(self.parts, 3)
        self.gate = ThresholdHelper(self.parties.helper, LAYOUT, 3)

    def opened(self, number: int, dropped: tuple[str, ...] = ()) -> Any:
        context = Context(SIMULATED.federation, number, SIMULATED.fingerprint)
        vectors = {name: LAYOUT.pack(part) for name, part in self.parts.items()}
        leader = self.parties.report(vectors, context, dropped)
        ask = leader.request(None, [(0, C)])
        self.gate.learn(ask, leader.finish(ask, np.zeros(C, np.uint64)))
        block = LAYOUT.class_block(1)
        request = leader.request(None, [(block.start, block.stop)])
        return leader.finish(request, self.gate.open(request))


def test_the_difference_of_a_class_in_two_rounds_is_never_one_clients() -> None:
    """Four hold it, then three: enough each time, and three clients leave together; but one of them holds the class."""
    rounds = Rounds()
    first = rounds.opened(0)
    with pytest.raises(PrivacyError, match="class 1 was opened in another round over some of these 7 clients"):
        rounds.opened(1, ("site 7", "site 8", "site 9"))
    np.testing.assert_array_equal(rounds.opened(2), first)  # the same clients: nothing to subtract


def test_learning_asks_for_contributors_only() -> None:
    group = Group()
    request = group.leader.request(None, [(0, C + 1)])
    with pytest.raises(InputError, match="contributors stand at 0 to 3"):
        group.gate.learn(request, group.masked)
    with pytest.raises(InputError, match="a threshold is 1 client or more, but contributors=0"):
        ThresholdHelper(group.gate.helper, LAYOUT, 0)


def test_the_memory_of_thresholds_survives_a_restart(tmp_path: Any) -> None:
    group = Group()
    before = ThresholdHelper(group.gate.helper, LAYOUT, 3, tmp_path / "gate.db")
    before.learn(group.ask, group.masked)
    before.close()
    after = ThresholdHelper(group.gate.helper, LAYOUT, 3, tmp_path / "gate.db")
    with pytest.raises(PrivacyError, match="a group one story"):
        after.learn(group.ask, group.masked + np.uint64(1))
    assert after.open(group.leader.request(None, [group.block(0)])).shape == (1 + D,)
    after.close()


def test_counts_that_no_data_have_are_refused() -> None:
    part = np.array([2**63, 0, 0], np.uint64)
    with pytest.raises(InputError, match="opened counts must be 1 or more"):
        rows_of([Opening((0,), (1,))], [part], LAYOUT, FORM)
