"""The ledger against a plain dictionary: join, leave, replace, pool, in any sequence."""

import gc
import tracemalloc
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fedmoments.core.statistics import FixedPoint, Ledger, Statistics, StatisticsSpec
from fedmoments.errors import ClientsPooledError, InputError, LedgerError, MergeError

Array = npt.NDArray[Any]

SPEC = StatisticsSpec.of("gram", "class_squares", "client_means", means_per_client=2)
FORM = FixedPoint(norm_bound=64.0, max_samples=5000)
C, D = 3, 2


def data(seed: int, n: int, *, grid: bool = False) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    X = rng.integers(-16, 17, size=(n, D)) / 8 if grid else rng.normal(size=(n, D))
    return X, rng.integers(0, C, n)


def stats_of(seed: int, n: int, spec: StatisticsSpec = SPEC, *, grid: bool = False) -> Statistics:
    return Statistics.of(*data(seed, n, grid=grid), spec, n_classes=C)


class LedgerMachine(RuleBasedStateMachine):
    """Any sequence of changes leaves the ledger with the statistics of the clients that are in, and no other trace."""

    @initialize(
        fixed=st.booleans(),
        fold=st.booleans(),
        names=st.sets(st.sampled_from(["gram", "class_squares", "class_grams", "client_means"])),
    )
    def start(self, fixed: bool, fold: bool, names: set[str]) -> None:
        self.spec = StatisticsSpec(frozenset(names), 2 if "client_means" in names else 1)
        self.form = FORM if fixed else None
        self.fold = fold
        self.ledger = Ledger(self.spec, n_classes=C, dim=D, fixed_point=self.form, fold=fold)
        self.model: dict[int, tuple[Array, Array]] = {}
        self.handed_out: list[tuple[Statistics, str]] = []

    def contribution(self, client: int) -> Statistics:
        X, y = self.model[client]
        return Statistics.of(X, y, self.spec, n_classes=C)

    @property
    def folds(self) -> bool:
        return self.fold and self.spec != StatisticsSpec.of("client_means", means_per_client=2)

    @rule(client=st.integers(0, 6), seed=st.integers(0, 99), n=st.integers(0, 9))
    def join(self, client: int, seed: int, n: int) -> None:
        X, y = data(seed, n, grid=True)
        part = Statistics.of(X, y, self.spec, n_classes=C)
        if client in self.model:
            with pytest.raises(LedgerError, match="is already in the ledger"):
                self.ledger.join(client, part)
        else:
            self.ledger.join(client, part)
            self.model[client] = X, y

    @rule(client=st.integers(0, 6))
    def leave(self, client: int) -> None:
        if client not in self.model:
            with pytest.raises(LedgerError, match="is not in the ledger"):
                self.ledger.leave(client)
            return
        if self.folds and self.form is None:
            with pytest.raises(LedgerError, match="cannot leave a folded ledger in float64"):
                self.ledger.leave(client, self.contribution(client))
            return
        if self.folds:
            with pytest.raises(LedgerError, match="give leave"):
                self.ledger.leave(client)
            wrong = self.contribution(client) + Statistics.of([[1.0, 1.0]], [0], self.spec, n_classes=C)
            with pytest.raises(LedgerError, match="another contribution"):
                self.ledger.leave(client, wrong)
            self.ledger.leave(client, self.contribution(client))
        else:
            self.ledger.leave(client)
        del self.model[client]

    @rule(client=st.integers(0, 6), seed=st.integers(100, 199), n=st.integers(0, 9))
    def replace(self, client: int, seed: int, n: int) -> None:
        X, y = data(seed, n, grid=True)
        part = Statistics.of(X, y, self.spec, n_classes=C)
        if client not in self.model:
            with pytest.raises(LedgerError, match="is not in the ledger"):
                self.ledger.replace(client, part)
            return
        if self.folds and self.form is None:
            with pytest.raises(LedgerError, match="float64"):
                self.ledger.replace(client, part, former=self.contribution(client))
            return
        self.ledger.replace(client, part, former=self.contribution(client))
        del self.model[client]  # a replaced client comes last
        self.model[client] = X, y

    @rule(client=st.sampled_from(["new", 0]), wrong=st.sampled_from(["spec", "dim", "n_classes"]))
    def refused(self, client: Any, wrong: str) -> None:
        if client in self.model:
            return
        fine = StatisticsSpec.of("class_thirds")
        contribution = {
            "spec": Statistics.of(np.ones((1, D)), [0], fine, n_classes=C),
            "dim": Statistics.of(np.ones((1, D + 1)), [0], self.spec, n_classes=C),
            "n_classes": Statistics.of(np.ones((1, D)), [0], self.spec, n_classes=C + 1),
        }[wrong]
        if self.spec <= contribution.spec and wrong == "spec":
            return
        with pytest.raises(MergeError, match=repr(client)):
            self.ledger.join(client, contribution)

    @rule()
    def hand_out(self) -> None:
        stats = self.ledger.statistics()
        self.handed_out.append((stats, stats.digest()))

    @precondition(lambda self: not self.folds and bool(self.model))
    @rule(pick=st.randoms(use_true_random=False))
    def read_one(self, pick: Any) -> None:
        client = pick.choice(sorted(self.model))
        expected = self.contribution(client)
        assert self.ledger.client(client) == (expected.quantized(self.form) if self.form else expected)

    @invariant()
    def agrees_with_the_model(self) -> None:
        zero = Statistics.zero(self.spec, n_classes=C, dim=D)
        merged = Statistics.merge([zero, *map(self.contribution, self.model)])  # exact: data on a grid of eighths
        expected = merged.quantized(self.form) if self.form else merged
        assert self.ledger.statistics().digest() == expected.digest()
        assert self.ledger.pool() == expected.restricted(self.spec.additive)
        assert self.ledger.clients == tuple(self.model)
        assert len(self.ledger) == len(self.model)
        held = {(int(k), int(c)): int(n) for k, c, n in zip(*self.ledger.cells(), strict=True)}
        counted = {
            (k, c): int((y == c).sum())
            for k, (_, y) in enumerate(self.model.values())
            for c in range(C)
            if (y == c).any()
        }
        assert held == counted

    @invariant()
    def what_was_handed_out_did_not_change(self) -> None:
        for stats, digest in self.handed_out:
            assert stats.digest() == digest


TestLedgerMachine = LedgerMachine.TestCase
TestLedgerMachine.settings = settings(
    max_examples=150, stateful_step_count=15, deadline=None, suppress_health_check=list(HealthCheck)
)


# -------------------------------------------------------------------------------------------------- laws by name


@pytest.mark.parametrize("fold", [False, True])
def test_leaving_is_never_having_joined_bit_for_bit(fold: bool) -> None:
    parts = {f"client {k}": stats_of(k, 20) for k in range(12)}
    ledger = Ledger(SPEC, n_classes=C, dim=D, fixed_point=FORM, fold=fold)
    for client, part in parts.items():
        ledger.join(client, part)
    everybody = ledger.statistics().digest()
    gone = ["client 3", "client 0", "client 11"]
    for client in gone:
        ledger.leave(client, parts[client])
    never = Ledger(SPEC, n_classes=C, dim=D, fixed_point=FORM, fold=fold)
    for client, part in parts.items():
        if client not in gone:
            never.join(client, part)
    assert ledger.statistics().digest() == never.statistics().digest()
    assert ledger.statistics().digest() != everybody
    assert ledger.clients == never.clients
    for client in gone:
        ledger.join(client, parts[client])
    assert ledger.statistics().digest() == everybody  # back again, in another order


def test_the_order_of_joining_leaves_no_trace_in_fixed_point() -> None:
    parts = [stats_of(k, 15) for k in range(10)]
    rng = np.random.default_rng(0)
    digests = set()
    for fold in (False, True):
        for _ in range(6):
            ledger = Ledger(SPEC, n_classes=C, dim=D, fixed_point=FORM, fold=fold)
            for k in rng.permutation(len(parts)):
                ledger.join(int(k), parts[k])
            digests.add(ledger.statistics().digest())
    assert len(digests) == 1


def test_folded_or_not_the_statistics_are_the_same() -> None:
    ledgers = [Ledger(SPEC, n_classes=C, dim=D, fold=fold) for fold in (False, True)]
    for ledger in ledgers:
        for k in range(5):
            ledger.join(k, stats_of(k, 10, grid=True))
    assert ledgers[0].statistics() == ledgers[1].statistics()


def test_a_finer_contribution_is_restricted() -> None:
    ledger = Ledger(StatisticsSpec.of("gram"), n_classes=C, dim=D)
    ledger.join("fine", stats_of(0, 10, StatisticsSpec.of("class_grams", "class_fourths", "client_means"), grid=True))
    assert ledger.statistics() == stats_of(0, 10, StatisticsSpec.of("gram"), grid=True)


def test_a_contribution_in_fixed_point_joins_a_float64_ledger_and_not_one_of_another_form() -> None:
    part = stats_of(0, 10).quantized(FORM)
    ledger = Ledger(SPEC, n_classes=C, dim=D)
    ledger.join("a", part)
    assert ledger.statistics() == part.to_float()
    other = Ledger(SPEC, n_classes=C, dim=D, fixed_point=FixedPoint(norm_bound=2.0, max_samples=100))
    with pytest.raises(MergeError, match="rounding them again"):
        other.join("a", part)
    assert len(other) == 0


def test_a_folded_ledger_did_not_keep_its_clients_and_says_so() -> None:
    ledger = Ledger(StatisticsSpec.of("gram"), n_classes=C, dim=D, fold=True)
    ledger.join("a", stats_of(0, 5, StatisticsSpec.of("gram")))
    with pytest.raises(LedgerError, match="did not keep that of client 'a'"):
        ledger.client("a")
    with pytest.raises(LedgerError, match="'b' is not in the ledger, which holds 1 clients"):
        ledger.client("b")


def test_an_empty_ledger_has_the_statistics_of_no_data() -> None:
    for fold in (False, True):
        ledger = Ledger(SPEC, n_classes=C, dim=D, fold=fold)
        assert ledger.statistics() == Statistics.zero(SPEC, n_classes=C, dim=D)
        assert len(ledger) == 0
        assert ledger.clients == ()


def test_pooling_keeps_additive_moments_and_refuses_client_means() -> None:
    ledger = Ledger(SPEC, n_classes=C, dim=D)
    for k in range(3):
        ledger.join(k, stats_of(k, 10, grid=True))
    pooled = ledger.pool()
    assert pooled.spec == SPEC.additive
    assert not pooled.spec.keeps_clients_apart
    X, y = (np.concatenate(arrays) for arrays in zip(*(data(k, 10, grid=True) for k in range(3)), strict=True))
    assert pooled == Statistics.of(X, y, SPEC.additive, n_classes=C)
    assert ledger.pool(StatisticsSpec.of("gram")) == Statistics.of(X, y, StatisticsSpec.of("gram"), n_classes=C)
    with pytest.raises(ClientsPooledError, match=r"kept apart.*zero covariance.*Fit from the ledger"):
        ledger.pool(SPEC)


def test_statistics_that_were_handed_out_do_not_change_with_the_ledger() -> None:
    for fold in (False, True):
        ledger = Ledger(SPEC, n_classes=C, dim=D, fixed_point=FORM, fold=fold)
        parts = [stats_of(k, 10) for k in range(8)]
        seen = []
        for k, part in enumerate(parts):
            ledger.join(k, part)
            seen.append((ledger.statistics(), ledger.statistics().digest(), ledger.pool(), ledger.pool().digest()))
        for k in (2, 5, 0):
            ledger.leave(k, parts[k])
            seen.append((ledger.statistics(), ledger.statistics().digest(), ledger.pool(), ledger.pool().digest()))
        ledger.replace(1, parts[0], former=parts[1])
        for stats, digest, pooled, pooled_digest in seen:
            assert stats.digest() == digest
            assert pooled.digest() == pooled_digest
        assert len({digest for _, digest, _, _ in seen}) == len(seen)


# -------------------------------------------------------------------------------------------------- columnar


def test_ten_thousand_clients_with_55_000_rows_are_one_matrix_and_not_ten_thousand_objects() -> None:
    rng = np.random.default_rng(0)
    n_clients, per_client, dim, n_classes = 10_000, 5.5, 8, 100
    n = int(n_clients * per_client)
    holders = np.arange(n) % n_clients
    y = (np.arange(n) // n_clients * 17 + holders) % n_classes  # every sample of a client has a class of its own
    X = rng.normal(size=(n, dim))
    spec = StatisticsSpec.of("client_means")
    ledger = Ledger.of(X, y, holders, spec, n_classes=n_classes)
    rows = ledger.statistics().rows
    assert len(ledger) == n_clients
    assert rows.stored_sums.shape == (n, dim)
    assert ledger.statistics() is ledger.statistics()
    assert rows.stored_sums.base is not None  # a view of the ledger's own matrix …
    assert np.shares_memory(rows.stored_sums, ledger.statistics().arrays["client_means"])
    assert not rows.stored_sums.flags.writeable
    first = rows.stored_sums
    ledger._merged = None
    assert np.shares_memory(first, ledger.statistics().rows.stored_sums)  # … and not a copy of it

    parts = [Statistics.of(X[k::n_clients], y[k::n_clients], spec, n_classes=n_classes) for k in range(2000)]
    gc.collect()
    objects = len(gc.get_objects())
    tracemalloc.start()
    try:
        joined = Ledger(spec, n_classes=n_classes, dim=dim)
        for k, part in enumerate(parts):
            joined.join(k, part)
        gc.collect()
        traced = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    n_rows = sum(len(part.row_labels) for part in parts)
    payload = n_rows * 8 * (dim + 3 + 3)  # rows (client, label, count, d numbers) and cells (client, label, count)
    assert len(gc.get_objects()) - objects < 500
    assert traced < 2 * payload + 2000 * 200  # buffers that double, and an id a client
    again = joined.statistics().rows.stored_sums
    joined.join("one more", Statistics.of(X[:1], y[:1], spec, n_classes=n_classes))
    assert np.shares_memory(again, joined.statistics().rows.stored_sums)  # room was left: joining did not copy


def test_a_folded_ledger_does_not_grow_with_its_clients() -> None:
    spec = StatisticsSpec.of("class_grams")
    part = stats_of(0, 10, spec)
    ledger = Ledger(spec, n_classes=C, dim=D, fold=True)
    sizes = {name: total.nbytes for name, total in ledger._total.items()}
    for k in range(50):
        ledger.join(k, part)
    assert {name: total.nbytes for name, total in ledger._total.items()} == sizes
    assert ledger._globals == {}


def test_ledgers_of_nothing_are_refused() -> None:
    with pytest.raises(InputError, match="must be a whole number of at least 1, not 0"):
        Ledger(SPEC, n_classes=3, dim=0)
