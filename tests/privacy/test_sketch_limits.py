"""Laws of a client's own limits: no more rows than asked or allowed, the trace exact, the same as measuring fewer."""

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmoments import Statistics, StatisticsSpec
from fedmoments.core.statistics import FixedPoint, SketchPlan
from fedmoments.errors import InputError, PolicyError, in_full
from fedmoments.federation.policy import ClientPolicy
from fedmoments.privacy.small_classes import allowed_rank, limit_sketch
from fedmoments.settings.policy import SHARE, SPARE
from fedmoments.wire import Agreement, IdentityKey, decode, encode

D = 12


def client(n: int, classes: int, plan: SketchPlan, seed: int = 0, **options: Any) -> Statistics:
    X = np.random.default_rng(seed).normal(size=(n, D)) * np.linspace(3.0, 0.2, D)
    spec = StatisticsSpec.of("scatter_sketch", sketch=plan)
    return Statistics.of(X, np.arange(n) % classes, spec, n_classes=classes, **options)


@given(
    n=st.integers(1, 80),
    classes=st.integers(1, 5),
    rank=st.integers(0, 12),
    share=st.floats(0, 1),
    least=st.integers(0, 40),
    code=st.sampled_from(["int8", "float16", "float64"]),
)
def test_law_the_trace_is_exact_and_the_rank_the_least_of_all(
    n: int, classes: int, rank: int, share: float, least: int, code: str
) -> None:
    stats = client(n, classes, SketchPlan(None, rank=rank, code=code, share=1.0))
    cut = limit_sketch(stats, share, least)
    spare = n - min(n, classes)
    most = 0 if spare < least else int(share * spare + 1e-9)
    assert cut.sketches.sizes.tolist() == [min(len(stats.sketches.rows), most)]
    np.testing.assert_allclose(cut.sketches.trace, stats.sketches.trace, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(cut.sketches.rows, stats.sketches.rows[: len(cut.sketches.rows)])
    assert (cut.sketch_residuals >= 0).all()
    assert limit_sketch(cut, share, least) == cut  # twice is once


def test_law_a_cut_sketch_is_the_one_that_a_smaller_share_measures() -> None:
    asked = client(60, 3, SketchPlan(None, rank=12, code="float64", share=1.0))
    cut = limit_sketch(asked, share=0.1, least=0)
    fewer = client(60, 3, SketchPlan(None, rank=12, code="float64", share=0.1))
    assert cut.sketches.sizes.tolist() == fewer.sketches.sizes.tolist() == [5]
    np.testing.assert_allclose(cut.sketches.rows, fewer.sketches.rows, atol=1e-10)
    np.testing.assert_allclose(cut.sketch_residuals, fewer.sketch_residuals, rtol=1e-10)


def test_nothing_but_the_sketch_changes_also_in_fixed_point() -> None:
    stats = client(60, 3, SketchPlan(None, rank=12), fixed_point=FixedPoint(norm_bound=64.0, max_samples=1000))
    cut = limit_sketch(stats, share=0.1)
    assert len(cut.sketches.rows) < len(stats.sketches.rows)
    assert cut.spec == stats.spec
    for name in set(stats.arrays) - {"scatter_sketch"}:
        assert cut.arrays[name] is stats.arrays[name]


def test_a_share_of_0_sends_the_trace_alone() -> None:
    stats = client(60, 3, SketchPlan("means"))
    cut = limit_sketch(stats, share=0)
    assert cut.sketches.rows.shape == (0, D)
    np.testing.assert_allclose(cut.sketch_residuals, [stats.sketches.trace])


def test_what_has_no_sketch_stays_as_it_is() -> None:
    plain = Statistics.of(np.eye(3), [0, 0, 0], StatisticsSpec.of("client_means"), n_classes=1)
    empty = Statistics.zero(StatisticsSpec.of("scatter_sketch"), n_classes=1, dim=3)
    assert limit_sketch(plain, 0.0) is plain
    assert limit_sketch(empty, 0.0) is empty


def test_merged_sketches_are_refused() -> None:
    one = client(30, 2, SketchPlan(None, rank=4))
    with pytest.raises(InputError, match="statistics of 2 contributions arrived: limit each before they are merged"):
        limit_sketch(one + one)


@pytest.mark.parametrize(
    ("share", "least", "words"),
    [
        (1.01, 20, "from 0 to 1, not 1.01"),
        ("0.5", 20, "not '0.5'"),
        (float("nan"), 20, "nan"),
        (True, 20, "True"),
        (0.5, -1, "0 or more, not -1"),
        (0.5, 2.0, "not 2.0"),
    ],
)
def test_limits_that_are_none_are_refused(share: Any, least: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        allowed_rank(10, share=share, least=least)
    with pytest.raises(InputError, match=f"sketch_share and sketch_spare of a client's policy: .*{words}"):
        ClientPolicy(sketch_share=share, sketch_spare=least)


# ---------------------------------------------------------------------------------------------- the policy


def test_a_policy_lowers_what_the_terms_ask_and_never_raises_it() -> None:
    wide, narrow = client(83, 3, SketchPlan(None, rank=12, share=1.0)), client(83, 3, SketchPlan(None, rank=2))
    policy = ClientPolicy(sketch_share=0.1)
    assert policy.limited(wide).sketches.sizes.tolist() == [8]
    assert policy.limited(narrow) is narrow
    assert (ClientPolicy().sketch_share, ClientPolicy().sketch_spare) == (SHARE, SPARE)


def test_the_rank_follows_from_what_is_left_after_small_classes_are_withheld() -> None:
    y = np.repeat([0, 1, 2, 3], [30, 4, 4, 4])
    X = np.random.default_rng(0).normal(size=(len(y), D))
    policy = ClientPolicy(sketch_share=0.5)
    mask, _ = policy.select(y)
    spec = StatisticsSpec.of("scatter_sketch", sketch=SketchPlan(None, rank=12, share=1.0))
    sent = policy.limited(Statistics.of(X[mask], y[mask], spec, n_classes=4))
    assert sent.n_samples == 30
    assert sent.sketches.sizes.tolist() == [min(12, (30 - 1) // 2)]
    strict = ClientPolicy(sketch_share=0.5, sketch_spare=30)  # all samples have 38 to spare, those that leave 29
    assert strict.limited(Statistics.of(X[mask], y[mask], spec, n_classes=4)).sketches.sizes.tolist() == [0]


def test_tiny_clients_send_the_trace_or_are_refused() -> None:
    tiny = client(SPARE + 1, 2, SketchPlan(None, rank=5))
    np.testing.assert_allclose(ClientPolicy().limited(tiny).sketch_residuals, [tiny.sketches.trace])
    refusing = ClientPolicy(small_sketches="refuse")
    with pytest.raises(PolicyError, match="of fewer than the 20 spare samples allowed") as caught:
        refusing.limited(tiny)
    assert not {"19", "21"} & set(re.findall(r"\d+", str(caught.value)))  # the text may reach a server
    assert "21 samples of 2 classes have 19 to spare" in in_full(caught.value)
    enough = client(SPARE + 2, 2, SketchPlan(None, rank=5))
    assert refusing.limited(enough).sketches.sizes.tolist() == [5]
    plain = Statistics.of(np.eye(3), [0, 0, 0], StatisticsSpec.of("client_means"), n_classes=1)
    assert refusing.limited(plain) is plain


def test_rules_are_read_from_a_table_and_written_to_one() -> None:
    table = {"sketch_share": 0.125, "sketch_spare": 40, "small_sketches": "refuse"}
    policy = ClientPolicy.from_dict(table)
    assert {name: policy.to_dict()[name] for name in table} == table
    assert repr(policy) != repr(ClientPolicy())  # another contribution is made by it
    with pytest.raises(InputError, match="small_sketches of a client's policy must be trace or refuse, not 'drop'"):
        ClientPolicy(small_sketches="drop")


@pytest.mark.parametrize("share", [0.0, 0.05, 0.25, 1.0])
def test_what_the_server_decodes_is_what_the_policy_let_out(share: float) -> None:
    stats = client(60, 4, SketchPlan("means*2"))
    form, key = FixedPoint(norm_bound=64.0, max_samples=1000), IdentityKey.from_bytes(bytes(32))
    agreement = Agreement("ab" * 32, "ab" * 32, "ab" * 32, 4, D, stats.spec, form)
    sent = ClientPolicy(sketch_share=share).limited(stats)
    data = encode(sent, agreement, client="clinic", version=1, key=key)
    found = decode(data, agreement, lambda _: key.public).statistics
    assert found.sketches.sizes.tolist() == [min(len(stats.sketches.rows), int(share * 56))]
    np.testing.assert_array_equal(found.sketches.rows, sent.sketches.rows)
    np.testing.assert_allclose(found.sketches.trace, stats.sketches.trace, rtol=1e-12)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.25])
def test_law_a_limit_holds_in_every_class_and_keeps_its_trace(share: float) -> None:
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], [50, 15, 2])
    plan = SketchPlan(None, rank=40, code="float64", share=1.0, rows="class")
    stats = Statistics.of(rng.normal(size=(67, 8)), y, StatisticsSpec.of("scatter_sketch", sketch=plan), n_classes=3)
    cut = limit_sketch(stats, share, least=10)
    assert (cut.sketches.sizes <= [int(share * 49), int(share * 14), 0]).all()
    np.testing.assert_allclose(cut.sketches.traces, stats.sketches.traces)
    for label in range(3):
        mine = np.array([label])
        kept = cut.sketches.select(mine).rows
        np.testing.assert_array_equal(kept, stats.sketches.select(mine).rows[: len(kept)])
    with pytest.raises(InputError, match="limit each before they are merged"):
        limit_sketch(stats + stats, share)
