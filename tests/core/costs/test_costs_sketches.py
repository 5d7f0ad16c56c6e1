"""What scatter sketches cost: the formula is what contributions measure, and no more than the budget."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedmoments.core.costs import Cost, floats_of, one_shot_cost
from fedmoments.core.costs.sketches import evenly, sketch_size
from fedmoments.core.statistics import FixedPoint, SketchPlan, Statistics, StatisticsSpec
from fedmoments.core.statistics.sketch_plan import Budget
from fedmoments.errors import InputError
from fedmoments.wire import Agreement, IdentityKey, encode

KEY = IdentityKey.from_bytes(bytes(32))
PAID = ("moment.client_means", "mean_scales", "moment.scatter_sketch", "sketch_scales", "sketch_residual")
PLANS = ("means", "means/2", "means*2", "gram", "6KB")


def measured_bytes(plan: SketchPlan, dim: int, labels: list[int]) -> tuple[int, int]:
    """Return the bytes of what a budget pays for in a contribution: all of it, and the means alone."""
    spec = StatisticsSpec.of("scatter_sketch", sketch=plan)
    terms = Agreement("0a" * 32, "1b" * 32, "2c" * 32, 10, dim, spec, FixedPoint(100.0, 10**6))
    X = np.random.default_rng(len(labels)).normal(size=(len(labels), dim))
    data = encode(Statistics.of(X, labels, spec, n_classes=10), terms, client="a", version=1, key=KEY)
    length = int.from_bytes(data[296:304], "little")
    entries = json.loads(data[304 : 304 + length])
    sizes = {
        name: entries[name]["data_offsets"][1] - entries[name]["data_offsets"][0] for name in PAID if name in entries
    }
    return sum(sizes.values()), sizes["moment.client_means"]


@pytest.mark.parametrize("budget", PLANS)
def test_law_the_formula_is_what_contributions_measure(budget: str) -> None:
    clients = [[0] * 50 + [1] * 30, list(range(10)) * 4, [3, 3, 3, 4], [7], [2, 2]]
    plan = SketchPlan(budget)
    measured = sum(measured_bytes(plan, 32, labels)[0] for labels in clients)
    held = [len(set(labels)) for labels in clients]
    cost = one_shot_cost(
        "sketch", d=32, clients=5, present_classes=held, sketch=plan, samples=[len(labels) for labels in clients]
    )
    assert cost.up_bytes == measured
    assert cost.counts == sum(held)


@pytest.mark.parametrize("code", ["float64", "float32", "float16", "int8", "int4"])
def test_a_plan_by_rank_costs_its_rows_beside_means_of_the_usual_width(code: str) -> None:
    plan, labels = SketchPlan(None, 4, code), [0] * 30 + [1] * 30
    paid, means = measured_bytes(plan, 32, labels)
    cost = one_shot_cost(
        "lda-sketch",
        d=32,
        clients=1,
        present_classes=2,
        sketch=plan,
        samples=[60],
        means_per_client=1,
        bytes_per_number=8,
    )
    assert means == 8 * 2 * 32  # as int64
    assert cost.up_bytes == paid
    assert one_shot_cost("sketch", d=32, clients=1, present_classes=2, sketch=plan, means_per_client=3).counts == 6


@settings(deadline=None)
@given(
    budget=st.sampled_from(PLANS[:4]),
    d=st.integers(16, 600),
    present=st.lists(st.integers(0, 100), min_size=1, max_size=20),
)
def test_law_no_client_costs_more_than_its_budget(budget: str, d: int, present: list[int]) -> None:
    size = sketch_size(SketchPlan(budget), d, present)
    assert size.bytes <= sum(Budget.parse(budget, d).bytes(p) for p in present)
    naive = [SketchPlan(budget).choose(10**12, p, d) for p in present if p]
    assert size.rows == sum(choice.rank for choice in naive)
    assert size.bytes == sum(choice.bytes(p, d) for choice, p in zip(naive, filter(None, present), strict=True))


def test_a_sketch_with_the_budget_of_means_costs_no_more_than_fedcof() -> None:
    for d, present in ((512, 500), (384, 7700), (1280, 240), (16, 300)):
        ours, fedcof = (one_shot_cost(m, d=d, clients=100, present_classes=present) for m in ("sketch", "fedcof"))
        assert 0.85 * fedcof.up_bytes < ours.up_bytes <= fedcof.up_bytes
        assert ours.counts == fedcof.counts
        assert ours.up_bytes_with_counts == ours.up_bytes + 4 * ours.counts


def test_costs_of_sketches_add_up() -> None:
    ours = one_shot_cost("sketch", d=64, clients=10, present_classes=30)
    tuned = Cost("fedavg-lp", uploads=3, up_floats=90, down_floats=90)
    assert (ours + tuned).up_bytes == ours.up_bytes + tuned.up_bytes
    assert ours.up_floats == ours.coded > 0
    size = floats_of(["client_means", "scatter_sketch", "gram"], 64, [3] * 10, sketch=SketchPlan("means"))
    assert size.bytes(4) == ours.up_bytes + 10 * 4 * 64 * 65 // 2
    assert (size + size).bytes(4) == 2 * size.bytes(4)


def test_numbers_that_fit_no_federation_are_refused() -> None:
    with pytest.raises(InputError, match="samples must be one whole number for each of the 2 clients"):
        one_shot_cost("sketch", d=64, clients=2, present_classes=[3, 3], samples=[9])
    with pytest.raises(InputError, match="no less than its classes"):
        sketch_size(SketchPlan(), 64, [3, 3], [9, 2])
    with pytest.raises(InputError, match="which counts one mean a class, but is 2"):
        one_shot_cost("sketch", d=64, clients=2, present_classes=6, means_per_client=2)
    with pytest.raises(InputError, match="coded must be some of the 5 floats sent up, but is 6"):
        Cost("x", uploads=1, up_floats=5, down_floats=0, coded=6)


def test_classes_are_spread_evenly_where_only_their_sum_is_known() -> None:
    assert evenly(2870, 100).sum() == 2870
    assert np.ptp(evenly(2870, 100)) == 1
    assert evenly(0, 3).tolist() == [0, 0, 0]
