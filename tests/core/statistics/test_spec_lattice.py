"""Specs form a join semi-lattice, and restricting statistics is measuring the coarser spec."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedmoments.core.statistics import MOMENTS, FixedPoint, Statistics, StatisticsSpec
from fedmoments.core.statistics.moments import moment
from fedmoments.errors import InputError, MissingMomentError, UnknownNameError


def make_spec(names: set[str], shares: int) -> StatisticsSpec:
    return StatisticsSpec(frozenset(names), shares if "client_means" in names else 1)


specs = st.builds(make_spec, st.sets(st.sampled_from(sorted(MOMENTS))), st.integers(1, 3))


@given(specs, specs, specs)
def test_join_is_idempotent_commutative_and_associative(
    a: StatisticsSpec, b: StatisticsSpec, c: StatisticsSpec
) -> None:
    assert a | a == a
    assert a | b == b | a
    assert (a | b) | c == a | (b | c)
    assert hash(a | b) == hash(b | a)


@given(specs, specs)
def test_order_is_absorption(a: StatisticsSpec, b: StatisticsSpec) -> None:
    assert (a <= b) == (a | b == b)
    assert (a >= b) == (b <= a)


@given(specs, specs, specs)
def test_order_is_a_partial_order(a: StatisticsSpec, b: StatisticsSpec, c: StatisticsSpec) -> None:
    assert a <= a
    if a <= b and b <= a:
        assert a == b
    if a <= b and b <= c:
        assert a <= c


@given(specs, specs, specs)
def test_join_is_the_least_upper_bound(a: StatisticsSpec, b: StatisticsSpec, c: StatisticsSpec) -> None:
    assert a <= a | b
    assert b <= a | b
    if a <= c and b <= c:
        assert a | b <= c


@given(specs)
def test_counts_and_sums_alone_are_the_least_spec(a: StatisticsSpec) -> None:
    assert StatisticsSpec() <= a
    assert StatisticsSpec() | a == a
    assert "sums" in a.moments


@given(specs)
def test_what_is_sent_generates_everything_and_nothing_sent_is_superfluous(a: StatisticsSpec) -> None:
    assert StatisticsSpec(frozenset(a.sent), a.means_per_client) == a
    for name in a.sent:
        rest = frozenset(a.sent) - {name}
        if name != "client_means":
            assert StatisticsSpec(rest | {"sums"}) != a or name == "sums"
            implied = {coarse for other in rest for coarse in moment(other).implies}
            assert name not in implied


@given(specs)
def test_the_additive_part_keeps_no_client_apart(a: StatisticsSpec) -> None:
    assert a.additive <= a
    assert not a.additive.keeps_clients_apart
    assert a.keeps_clients_apart == ("client_means" in a.moments)


def test_class_grams_imply_gram_squares_and_norms() -> None:
    spec = StatisticsSpec.of("class_grams")
    assert {"gram", "class_squares", "class_norms", "sums"} <= spec.moments
    assert spec.sent == ("sums", "class_grams")
    assert StatisticsSpec.of("class_norms") <= StatisticsSpec.of("class_squares") <= spec
    assert not StatisticsSpec.of("class_thirds") <= spec
    assert not spec <= StatisticsSpec.of("gram")
    assert not StatisticsSpec.of("client_means") <= spec


def test_client_means_imply_sums_so_that_these_do_not_travel_twice() -> None:
    assert StatisticsSpec.of("client_means").sent == ("client_means",)
    assert StatisticsSpec.of("client_means", "gram").sent == ("gram", "client_means")


def test_a_spec_reads_as_what_is_sent() -> None:
    assert str(StatisticsSpec.of("client_means", means_per_client=2)) == "counts + client_means × 2"
    assert str(StatisticsSpec.of("gram", "class_grams")) == "counts + sums + class_grams"


def test_wrong_specs_are_refused() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'client_means'"):
        StatisticsSpec.of("client_mean")
    with pytest.raises(InputError, match="1 or more, not 0"):
        StatisticsSpec.of("client_means", means_per_client=0)
    with pytest.raises(InputError, match="only with the moment 'client_means'"):
        StatisticsSpec.of("gram", means_per_client=2)


@settings(max_examples=60, deadline=None)
@given(specs, specs, st.booleans(), st.integers(0, 2**32))
def test_restricting_is_measuring_the_coarser_spec(
    coarse: StatisticsSpec, more: StatisticsSpec, fixed: bool, seed: int
) -> None:
    fine = StatisticsSpec((coarse | more).moments, coarse.means_per_client)  # the same shares
    form = FixedPoint(norm_bound=64.0, max_samples=1024) if fixed else None
    rng = np.random.default_rng(seed)
    X, y = rng.integers(-16, 17, size=(20, 3)) / 8, rng.integers(0, 3, 20)
    measured = Statistics.of(X, y, fine, n_classes=4, fixed_point=form)
    direct = Statistics.of(X, y, coarse, n_classes=4, fixed_point=form)
    if coarse.keeps_clients_apart or not fine.keeps_clients_apart or coarse.means_per_client == 1:
        assert measured.restricted(coarse) == direct


def test_restricting_to_fewer_shares_says_so_and_keeps_the_rows() -> None:
    spec = StatisticsSpec.of("client_means", means_per_client=2)
    stats = Statistics.of(np.arange(8.0)[:, None], np.zeros(8, int), spec, n_classes=1)
    whole = StatisticsSpec.of("client_means")
    assert stats.restricted(whole).spec == whole
    assert len(stats.restricted(whole).rows) == 2
    assert stats.restricted(spec) is stats


def test_restricting_to_what_was_not_measured_is_refused() -> None:
    stats = Statistics.of([[1.0]], [0], StatisticsSpec.of("gram"), n_classes=1)
    with pytest.raises(MissingMomentError, match=r"class_grams.*hold counts \+ sums \+ gram"):
        stats.restricted(StatisticsSpec.of("class_grams"))
