"""Laws of FedCOF in two phases of secure sums: it is clear FedCOF, over the same clients, or it is not done."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.privacy.secure_workshop import run_two_phase

import fedmoments as fm
from fedmoments.core.gaussian import ClassGaussians
from fedmoments.core.linalg import packed_size, unpack_symmetric
from fedmoments.core.statistics import (
    Accumulator,
    FixedPoint,
    Statistics,
    StatisticsSpec,
    load_statistics,
    save_statistics,
)
from fedmoments.errors import (
    ClientsPooledError,
    DeploymentError,
    FileFormatError,
    FixedPointOverflowError,
    InputError,
    MergeError,
    NotEnoughDataError,
    PrivacyError,
    RefusedError,
)
from fedmoments.privacy.dense import DenseLayout
from fedmoments.privacy.secure.broadcast import Broadcast
from fedmoments.privacy.secure.parties import SIMULATED, LocalParties
from fedmoments.privacy.secure.request import SumRequest
from fedmoments.privacy.secure.threshold import TwoPhaseHelper
from fedmoments.privacy.secure.two_phase import FirstPhase

C, D = 4, 3
FORM = FixedPoint(norm_bound=16.0, max_samples=1000)
ROWS = StatisticsSpec.of("client_means")
Clients = dict[str, tuple[Any, Any]]


@st.composite
def federations(draw: st.DrawFn) -> Clients:
    """Clients that hold some classes: of the last class, few."""
    n_clients = draw(st.integers(4, 8))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    clients: Clients = {}
    for number in range(n_clients):
        counts = rng.integers(0, 4, C) * (rng.random(C) < [1.0, 0.8, 0.6, 0.2])
        counts[0] += number < 3
        y = np.repeat(np.arange(C), counts)
        clients[f"site {number}"] = (rng.normal(size=(len(y), D)) + y[:, None], y)
    return clients


def measured(clients: Clients, spec: StatisticsSpec = ROWS) -> dict[str, Statistics]:
    return {
        name: Statistics.of(X, y, spec, n_classes=C, fixed_point=FORM) if len(y) else _empty(spec)
        for name, (X, y) in clients.items()
    }


def _empty(spec: StatisticsSpec) -> Statistics:
    return Statistics.zero(spec, n_classes=C, dim=D, fixed_point=FORM)


def without(clients: Clients, suppressed: tuple[int, ...]) -> Statistics:
    """Return clear statistics of the data without some classes."""
    kept = {name: ~np.isin(y, suppressed) for name, (_, y) in clients.items()}
    return Statistics.merge(measured({n: (X[kept[n]], y[kept[n]]) for n, (X, y) in clients.items()}).values())


def some_clients(n_clients: int = 5, seed: int = 0) -> Clients:
    rng = np.random.default_rng(seed)
    labels = np.array([0, 0, 1, 1, 1, 2])
    return {f"site {i}": (rng.normal(size=(6, D)) + labels[:, None], labels) for i in range(n_clients)}


# ---------------------------------------------------------------------------------------------------- equals clear


@settings(max_examples=40, deadline=None)
@given(federations(), st.integers(1, 3))
def test_two_phases_are_clear_fedcof_without_suppressed_classes(clients: Clients, contributors: int) -> None:
    stats, facts = run_two_phase(measured(clients), batch=2, contributors=contributors)
    holders = np.sum([np.bincount(y, minlength=C) > 0 for _, y in clients.values()], axis=0)
    assert facts["suppressed"] == tuple(np.flatnonzero((holders > 0) & (holders < contributors)))
    clear, whole = without(clients, facts["suppressed"]), Statistics.merge(measured(clients).values())
    opened = np.isin(np.arange(C), facts["suppressed"], invert=True)
    np.testing.assert_array_equal(stats.counts, whole.counts * opened)
    np.testing.assert_array_equal(stats.sums, whole.sums * opened[:, None])
    theirs, ours = ClassGaussians(clear, "free").scatter, ClassGaussians(stats, "free").scatter
    assert (ours.weight, ours.dof) == (theirs.weight, theirs.dof)
    found, expected = np.zeros((D, D), order="F"), np.zeros((D, D), order="F")
    ours.add_to(found, 1.0)
    theirs.add_to(expected, 1.0)
    rounding = 1e-12 * np.trace(expected)
    np.testing.assert_allclose(found, expected, atol=len(clients) * 2.0 ** -facts["bits"] + rounding, rtol=0)
    resolution = len(clients) * FORM.resolution(2) / max(ours.dof, 1.0)
    assert ours.trace == pytest.approx(theirs.trace, abs=resolution + 1e-12 * theirs.trace)


@settings(max_examples=20, deadline=None)
@given(federations())
def test_heads_on_the_pooled_covariance_give_the_clear_classifier(clients: Clients) -> None:
    stats, facts = run_two_phase(measured(clients), batch=2, contributors=2)
    clear = without(clients, facts["suppressed"])
    tried: list[tuple[str, dict[str, Any]]] = [
        ("fedcof", {}),
        ("fedcof", {"shrinkage": 0.1}),
        ("fedcof", {"shrinkage": "blend:0.3"}),
        ("lda-free", {}),
        ("lda-free", {"shrinkage": "relative:0.5", "priors": "data"}),
    ]
    for head, hyper in tried:
        ours, theirs = fm.fit(head, stats, **hyper), fm.fit(head, clear, **hyper)
        X = np.concatenate([X for X, _ in clients.values()])
        np.testing.assert_allclose(ours.scores(X), theirs.scores(X), rtol=1e-6, atol=1e-6)


def test_trained_heads_with_a_pooled_spread_give_the_clear_classifier() -> None:
    clients = some_clients(8)
    stats, _ = run_two_phase(measured(clients))
    hyper: dict[str, Any] = {"spread": "pooled", "samples": 200}
    ours = fm.fit("fishermix-free", stats, **hyper)
    theirs = fm.fit("fishermix-free", Statistics.merge(measured(clients).values()), **hyper)
    X = np.concatenate([X for X, _ in clients.values()])
    np.testing.assert_allclose(ours.scores(X), theirs.scores(X), rtol=1e-4, atol=1e-4)


def test_the_order_of_clients_changes_no_bit() -> None:
    parts = measured(some_clients(6))
    one, _ = run_two_phase(parts)
    other, _ = run_two_phase(dict(reversed(parts.items())))
    assert one.digest() == other.digest()


def test_clients_that_never_report_are_as_if_they_did_not_exist() -> None:
    parts = measured(some_clients(6))
    some, _ = run_two_phase(parts, dropped={"site 1", "site 4"})
    few, _ = run_two_phase({name: part for name, part in parts.items() if name not in ("site 1", "site 4")})
    assert some == few


def test_no_class_left_is_said() -> None:
    with pytest.raises(NotEnoughDataError, match="no class is held by 9 clients"):
        run_two_phase(measured(some_clients(5)), contributors=9)


# ---------------------------------------------------------------------------------------------------- or not done


def test_a_client_missing_in_the_second_phase_aborts() -> None:
    with pytest.raises(DeploymentError, match=r"1 of the first are missing in the second \(site 2\) and 0 are new"):
        run_two_phase(measured(some_clients()), dropped_later={"site 2"})


class Played:
    """The first phase, played; and what the second needs."""

    def __init__(self, clients: Clients, *, contributors: int = 3, late: tuple[str, ...] = ()) -> None:
        self.parts = measured(clients, StatisticsSpec())
        self.layout = DenseLayout(StatisticsSpec(), C, D)
        self.parties = LocalParties(self.parts, 3)
        vectors = {name: self.layout.pack(part) for name, part in self.parts.items()}
        leader = self.parties.report(vectors, SIMULATED, late)
        self.gate = TwoPhaseHelper(self.parties.helper, self.layout, contributors)
        self.first = FirstPhase.collect(leader, self.gate, self.layout, FORM, contributors)

    def second(self, told: Broadcast, names: set[str]) -> Any:
        vectors = {name: told.vector(self.parts[name]) for name in names}
        return self.parties.report(vectors, told.context(SIMULATED))


def test_a_new_client_in_the_second_phase_aborts() -> None:
    play = Played(some_clients(6), late=("site 5",))
    leader = play.second(play.first.broadcast, set(play.parts))
    with pytest.raises(PrivacyError, match=r"0 of the first .* and 1 are new \(site 5\)"):
        play.first.finish(leader, play.gate)


@pytest.mark.parametrize("missing", [set(), {"site 0"}])
def test_the_helper_itself_wants_the_same_clients(missing: set[str]) -> None:
    play = Played(some_clients(6))
    told = play.first.broadcast
    request = play.second(told, set(play.parts) - missing).request()
    if missing:
        with pytest.raises(PrivacyError, match="exactly the clients of the first"):
            play.gate.second(request, SIMULATED, told)
    else:
        assert play.gate.second(request, SIMULATED, told).shape == (told.size,)


def test_the_helper_adds_up_nothing_about_a_suppressed_class() -> None:
    """A broadcast with a weight for a class of one client would show that client's mean."""
    clients = some_clients(6)
    clients["site 0"] = (np.vstack([clients["site 0"][0], [[5.0, 6.0, 7.0]]]), np.append(clients["site 0"][1], 3))
    play = Played(clients)
    assert play.first.suppressed == (3,)
    honest = play.first.broadcast
    forged = Broadcast(C, np.array([3]), np.zeros((1, D)), np.ones(1), 20, FORM)
    request = play.second(forged, set(clients)).request()
    with pytest.raises(PrivacyError, match="the broadcast has class 3, which 1 clients hold, fewer than 3"):
        play.gate.second(request, SIMULATED, forged)
    with pytest.raises(PrivacyError, match="made for another broadcast"):
        play.gate.second(request, SIMULATED, honest)


def test_a_first_phase_has_one_broadcast() -> None:
    """Attack: with the weight of one class alone in a second broadcast, two clients' means lie on one line."""
    play = Played(some_clients(6))
    told = play.first.broadcast
    alone = Broadcast(C, told.classes[:1], told.means[:1], told.weights[:1], told.bits, FORM)
    first, other = (play.second(each, set(play.parts)).request() for each in (told, alone))
    answer = play.gate.second(first, SIMULATED, told)
    with pytest.raises(PrivacyError, match="another broadcast of this first phase was added up before"):
        play.gate.second(other, SIMULATED, alone)
    np.testing.assert_array_equal(play.gate.second(first, SIMULATED, told), answer)


def test_a_broadcast_of_other_classes_than_agreed_is_refused_by_the_helper() -> None:
    play = Played(some_clients(6))
    other = Broadcast(C + 5, np.array([C + 4]), np.zeros((1, D)), np.ones(1), 20, FORM)
    vectors = {name: np.zeros(other.size, np.uint64) for name in play.parts}
    request = play.parties.report(vectors, other.context(SIMULATED)).request()
    with pytest.raises(PrivacyError, match=f"{C} classes in {D} dimensions were agreed on"):
        play.gate.second(request, SIMULATED, other)


def test_reports_for_different_broadcasts_are_never_added_up() -> None:
    play = Played(some_clients(6))
    told = play.first.broadcast
    other = Broadcast(C, told.classes, told.means * 0.5, told.weights, told.bits, FORM)
    names = sorted(play.parts)
    one, two = play.second(told, set(names[:3])).request(), play.second(other, set(names[3:])).request()
    mixed = SumRequest(one.context, [*one.reports, *two.reports], one.blocks)
    with pytest.raises(RefusedError, match="fingerprint"):
        play.parties.helper.sum(mixed)


@pytest.mark.parametrize("head", ["qda-free", "nb-free", "fishermix-free", "proto-hyper-free"])
def test_heads_with_a_covariance_a_class_are_refused(head: str) -> None:
    stats, _ = run_two_phase(measured(some_clients()))
    with pytest.raises(ClientsPooledError, match="pooled over all classes"):
        fm.fit(head, stats)


def test_what_is_not_one_fixed_point_mean_a_class_is_refused() -> None:
    X, y = some_clients()["site 0"]
    with pytest.raises(InputError, match="float64"):
        run_two_phase({"a": Statistics.of(X, y, ROWS, n_classes=C)})
    shares = StatisticsSpec.of("client_means", means_per_client=2)
    with pytest.raises(InputError, match="one mean a class"):
        run_two_phase({"a": Statistics.of(X, y, shares, n_classes=C, fixed_point=FORM)})
    other = FixedPoint(norm_bound=32.0, max_samples=1000)
    mixed = {"a": measured(some_clients())["site 0"], "b": Statistics.of(X, y, ROWS, n_classes=C, fixed_point=other)}
    with pytest.raises(InputError, match="agree on one form"):
        run_two_phase(mixed)


# ---------------------------------------------------------------------------------------------------- the broadcast


def naive_vector(told: Broadcast, part: Statistics) -> list[int]:
    """Add up outer products one by one."""
    matrix, spread = np.zeros((D, D)), 0.0
    for label, mean, weight in zip(told.classes, told.means, told.weights, strict=True):
        n = part.counts[label]
        if n:
            off = part.sums[label] / n - mean
            matrix += weight * n * np.outer(off, off)
            spread += n * off @ off
    packed = [matrix[i, j] for j in range(D) for i in range(j + 1)]
    return [round(float(v) * 2**told.bits) for v in packed] + [round(float(spread) * 2 ** FORM.bits(2))]


@settings(max_examples=20, deadline=None)
@given(federations())
def test_what_a_client_adds_is_the_sum_of_outer_products(clients: Clients) -> None:
    parts = measured(clients, StatisticsSpec())
    total = Statistics.merge(parts.values())
    told = Broadcast.of(total, np.sum([part.counts > 0 for part in parts.values()], axis=0))
    for part in parts.values():
        found = told.vector(part).view(np.int64)
        expected = naive_vector(told, part)
        assert np.abs(found - np.array(expected)).max() <= 1 + 1e-13 * np.abs(found).max()


@pytest.mark.parametrize("n", [1, 7, 400])
def test_no_sum_overflows_even_in_the_worst_case(n: int) -> None:
    """Two clients at opposite ends of the ball: weights, counts and distances are as large as they can be."""
    end = np.zeros((n, D))
    end[:, 0] = FORM.norm_bound
    parts = [
        Statistics.of(sign * end, np.zeros(n, int), StatisticsSpec(), n_classes=C, fixed_point=FORM) for sign in (1, -1)
    ]
    told = Broadcast.of(parts[0] + parts[1], np.array([2, 0, 0, 0]))
    exact = sum(int(told.vector(part).view(np.int64)[0]) for part in parts)
    assert 2**61 <= exact <= 2**62
    total = told.vector(parts[0]) + told.vector(parts[1])
    assert told.read(total)[0] == pytest.approx((2 * n - 1) * 2 * n * FORM.norm_bound**2)


def test_a_scale_that_is_too_fine_is_refused_by_the_client() -> None:
    parts = measured(some_clients(), StatisticsSpec())
    told = Broadcast.of(Statistics.merge(parts.values()), np.array([5, 5, 5, 0]))
    finer = Broadcast(C, told.classes, told.means, told.weights * 50, 62, FORM)
    with pytest.raises(FixedPointOverflowError, match="does not fit 64 bits"):
        finer.vector(parts["site 0"])


def test_a_sum_that_is_no_scatter_is_refused() -> None:
    parts = measured(some_clients(), StatisticsSpec())
    told = Broadcast.of(Statistics.merge(parts.values()), np.array([5, 5, 5, 0]))
    junk = np.full(told.size, 2**63 + 5, np.uint64)
    with pytest.raises(InputError, match="not a scatter"):
        told.read(junk)
    with pytest.raises(InputError, match=f"has {packed_size(D) + 1} numbers"):
        told.read(junk[1:])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weights": np.array([-1.0])}, "weights must be from 0"),
        ({"weights": np.array([np.nan])}, "weights must be from 0"),
        ({"means": np.array([[99.0, 0.0, 0.0]])}, "longer than the agreed norm_bound"),
        ({"means": np.array([[np.nan, 0.0, 0.0]])}, "longer than the agreed norm_bound"),
        ({"means": np.zeros((2, D))}, "of 1 classes were expected"),
        ({"classes": np.array([C])}, "labels must ascend"),
        ({"bits": 63}, "bits must be"),
    ],
)
def test_a_broadcast_that_no_first_phase_gives_is_refused(changes: dict[str, Any], message: str) -> None:
    sound: dict[str, Any] = {"classes": np.array([1]), "means": np.zeros((1, D)), "weights": np.ones(1), "bits": 30}
    assert Broadcast.from_bytes(Broadcast(n_classes=C, form=FORM, **sound).to_bytes()).bits == 30
    with pytest.raises(FileFormatError, match=message):
        Broadcast.from_bytes(Broadcast(n_classes=C, form=FORM, **(sound | changes)).to_bytes())


def test_a_damaged_broadcast_is_refused() -> None:
    data = bytearray(Broadcast(C, np.array([1]), np.zeros((1, D)), np.ones(1), 30, FORM).to_bytes())
    data[-1] ^= 1
    with pytest.raises(FileFormatError, match="checksum"):
        Broadcast.from_bytes(bytes(data))


# ---------------------------------------------------------------------------------------------------- the statistics


def test_statistics_of_two_phases_survive_a_file_and_are_not_merged(tmp_path: Any) -> None:
    stats, _ = run_two_phase(measured(some_clients()))
    save_statistics(tmp_path / "free.stats", stats)
    again, _ = load_statistics(tmp_path / "free.stats")
    assert again == stats
    assert str(again.spec) == "counts + sums + contributors + free_scatter"
    with pytest.raises(MergeError, match="class means of all their clients together"):
        stats + again
    with pytest.raises(MergeError, match="class means of all their clients together"):
        stats - again
    with pytest.raises(MergeError, match="class means of all their clients together"):
        Statistics.merge([stats, again])


def test_no_client_measures_a_derived_moment() -> None:
    with pytest.raises(InputError, match="several parties compute it together"):
        Accumulator(StatisticsSpec.of("free_scatter"), n_classes=2, dim=2).update([[1.0, 2.0]], [0])


def test_the_free_scatter_is_that_of_the_definition() -> None:
    clients = some_clients(5, seed=3)
    stats, _ = run_two_phase(measured(clients))
    expected = np.zeros((D, D))
    for label in range(3):
        own = [X[y == label] for X, y in clients.values()]
        n = np.array([len(X) for X in own])
        means = np.array([X.mean(axis=0) for X in own])
        off = means - n @ means / n.sum()
        expected += (n.sum() - 1) / (len(own) - 1) * (off.T * n) @ off
    np.testing.assert_allclose(unpack_symmetric(stats.global_array("free_scatter")[:-1]), expected, rtol=1e-9)
