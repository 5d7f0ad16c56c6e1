"""Budgets in simulations: bytes are kept, other heads do not notice, and more bytes buy more rows."""

import numpy as np
import pytest

import fedmoments as fm
from fedmoments.core.costs.sketches import plan_of, sketch_sizes
from fedmoments.core.gaussian import ClassGaussians
from fedmoments.core.statistics import SketchPlan
from fedmoments.core.statistics.sketch_plan import Budget
from fedmoments.errors import InputError
from fedmoments.samples.features import Features, Samples
from fedmoments.settings.study import StudySettings
from fedmoments.study.jobs.budget_curve import budget_curve
from fedmoments.study.simulation import Federation, Point, simulate
from fedmoments.study.simulation.points import federation_of, make_split

SPLIT = "dirichlet:0.3"
BUDGETS = ["means/8", "means/2", "means", "900B", "gram"]


@pytest.fixture(scope="module")
def features() -> Features:
    rng = np.random.default_rng(5)
    means, mixing = rng.normal(scale=0.6, size=(6, 96)), rng.normal(size=(96, 96)) / 10

    def draw(n: int) -> Samples:
        y = rng.integers(6, size=n)
        return Samples(means[y] + rng.normal(size=(n, 96)) @ mixing, y)

    return Features("toy", 6, draw(500), draw(400))


def test_no_client_sends_more_than_its_budget(features: Features) -> None:
    split = make_split(features, 12, SPLIT, seed=0)
    cells = split.cells(features.train.y, 6)
    for budget in BUDGETS:
        plan, width = plan_of(budget, n_classes=6, dim=96)
        for client in range(12):
            mine = cells[[client]]
            if not mine.nnz:
                continue
            allowed = Budget.parse(budget, 96).bytes(mine.nnz)
            assert sketch_sizes(plan, width or 96, mine).bytes <= allowed, (budget, client)


def test_bytes_in_the_table_are_those_of_the_sketches_that_were_measured(features: Features) -> None:
    result = simulate(features, ["sketch"], clients=[12], splits=[SPLIT], budgets=BUDGETS, seeds=1)
    for row in result.rows:
        setting = Point(12, SPLIT, budget=row.setting.budget)
        split = make_split(features, 12, SPLIT, seed=0)
        federation = federation_of(features, split, [fm.make_head("sketch")], setting, seed=0)
        stats = federation.merged
        plan = federation.plan
        senders = sum(len(mine) > 0 for mine in split)
        total = 0
        for owner, size in zip(stats.sketch_owners.tolist(), stats.sketch_sizes.tolist(), strict=True):
            rows = stats.row_owners == owner
            choice = plan.choose(int(stats.row_counts[rows].sum()), int(rows.sum()), federation.dim)
            assert size == choice.rank
            total += choice.bytes(int(rows.sum()), federation.dim)
        assert row.up_bytes_total == total
        assert row.up_bytes_per_client == total / senders


def test_other_heads_do_not_notice_a_sketch_beside_them(features: Features) -> None:
    heads = ["fedncm", "fedcof", "fed3r"]
    alone = simulate(features, heads, clients=[8], splits=[SPLIT], seeds=2)
    beside = simulate(features, [*heads, "sketch"], clients=[8], splits=[SPLIT], seeds=2, budgets=["means/2", "means"])
    plain = [row for row in beside.rows if row.setting.budget is None]
    assert [row.head for row in plain] == heads
    assert [row.accuracies for row in plain] == [row.accuracies for row in alone.rows]
    assert [row.up_bytes_total for row in plain] == [row.up_bytes_total for row in alone.rows]
    assert [row.setting.budget for row in beside.rows if row.head == "sketch"] == ["means/2", "means"]


def test_more_bytes_come_closer_to_the_oracle(features: Features) -> None:
    split = make_split(features, 4, SPLIT, seed=0)
    head = fm.make_head("sketch")
    oracle = fm.Statistics.of(features.train.X, features.train.y, fm.spec_for("fedcof-oracle"), n_classes=6)
    exact = ClassGaussians(oracle, "exact").pooled_covariance("none")

    def off(budget: str) -> float:
        federation = federation_of(features, split, [head], Point(4, SPLIT, budget=budget), seed=0)
        found = ClassGaussians(federation.received(head), "sketch").pooled_covariance("none")
        return float(np.linalg.norm(found - exact) / np.linalg.norm(exact))

    errors = [off(budget) for budget in ("means/2", "means", "means*4", "gram")]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.1 < errors[0]


def test_a_budget_without_a_head_that_spends_it_is_refused(features: Features) -> None:
    with pytest.raises(InputError, match=r"heads on scatter sketches .* but these heads need counts \+ client_means"):
        simulate(features, ["fedcof"], clients=[4], splits=[SPLIT], budgets=["means"])


def test_a_budget_too_small_for_one_dimension_is_refused_before_anything_runs(features: Features) -> None:
    with pytest.raises(InputError, match="not one dimension"):
        simulate(features, ["sketch"], clients=[4], splits=[SPLIT], budgets=["40B"])


def test_the_curve_runs_from_an_eighth_of_the_means_to_the_gram(features: Features) -> None:
    config = StudySettings(heads=("fedncm", "fedcof", "fed3r", "sketch"), seeds=2)
    curve = budget_curve(features, config, Point(8, SPLIT))
    found = {each.head: each.points for each in curve.curves}
    assert [each.kind for each in curve.curves] == ["projected"] * 3 + ["sketch"]
    ours = found["sketch"]
    assert (ours[0].budget, ours[-1].budget) == ("means/8", "gram")
    assert ours[0].dimensions is not None
    assert ours[-1].dimensions is None
    assert curve.means is not None
    assert ours[0].bytes <= curve.means / 8
    for each in curve.curves:
        sizes = [point.bytes for point in each.points]
        assert sizes == sorted(sizes)
        if each.kind == "projected":
            assert [point.own for point in each.points] == [False] * (len(sizes) - 1) + [True]
    assert found["fedncm"][-1].bytes == pytest.approx(curve.means, rel=0.05)
    assert found["fed3r"][-1].bytes == pytest.approx(curve.gram, rel=0.05)
    own = simulate(features, ["fedcof"], clients=[8], splits=[SPLIT], seeds=2).rows[0]
    assert found["fedcof"][-1].accuracy == own.accuracy
    single = simulate(features, ["sketch"], clients=[8], splits=[SPLIT], seeds=2, budgets=["means"]).rows[0]
    assert next(point.accuracy for point in ours if point.budget == "means") == single.accuracy


def test_the_default_plan_is_fedcofs_bytes(features: Features) -> None:
    split = make_split(features, 8, SPLIT, seed=0)
    assert federation_of(features, split, [], Point(8, SPLIT), seed=0).plan == SketchPlan("means", rows="pooled")
    rows = {
        row.head: row for row in simulate(features, ["fedcof", "sketch"], clients=[8], splits=[SPLIT], seeds=1).rows
    }
    assert rows["sketch"].up_bytes_total <= rows["fedcof"].up_bytes_total


def test_a_sketch_does_not_notice_how_many_means_the_heads_beside_it_send(features: Features) -> None:
    split, head = make_split(features, 8, SPLIT, seed=0), fm.make_head("sketch")
    X = features.test.X[:50]
    alone = federation_of(features, split, [head], Point(8, SPLIT), seed=0)
    beside = federation_of(features, split, [head, fm.make_head("fedcof")], Point(8, SPLIT, 2), seed=0)
    assert beside.spec.means_per_client == 2
    assert np.allclose(beside.fitted(head).scores(X), alone.fitted(head).scores(X), rtol=1e-6, atol=1e-6)
    assert np.array_equal(beside.received(head).row_counts, alone.received(head).row_counts)


def test_numbers_of_a_federation_are_those_that_its_heads_send(features: Features) -> None:
    split, head = make_split(features, 8, SPLIT, seed=0), fm.make_head("sketch")
    for plan in (SketchPlan("means"), SketchPlan(None, rank=2)):
        federation = Federation(features, split, [head], plan=plan)
        stats = federation.merged
        sent = stats.arrays["client_means"].size + stats.arrays["scatter_sketch"].size + len(stats.sketches)
        assert federation.numbers == federation.outcome(head).up_floats == sent


def test_a_budget_for_what_was_measured_already_is_refused(features: Features) -> None:
    spec = fm.spec_for("sketch", budget="means/2")
    stats = fm.Statistics.of(features.train.X, features.train.y, spec, n_classes=6)
    assert fm.fit("sketch", stats).n_classes == 6
    with pytest.raises(InputError, match="is spent when a client measures, but what was measured already arrived"):
        fm.fit("sketch", stats, budget="means")
