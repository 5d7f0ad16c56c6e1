"""Scatter sketches and coded means on the wire: they arrive as they were measured, within their budget."""

import json
import struct
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fedmoments.core.statistics import FixedPoint, SketchPlan, Statistics, StatisticsSpec
from fedmoments.core.statistics.coding import CODES
from fedmoments.core.statistics.sketch_plan import Budget
from fedmoments.errors import InputError, RefusedError
from fedmoments.wire import Agreement, IdentityKey, Reason, decode, encode
from fedmoments.wire.checks import check_moments

Array = npt.NDArray[Any]
KEY = IdentityKey.from_bytes(bytes(32))
FORM = FixedPoint(norm_bound=64.0, max_samples=100_000)
#: Tensors that a budget pays for.
PAID = (
    "moment.client_means",
    "mean_scales",
    "moment.scatter_sketch",
    "sketch_scales",
    "sketch_residual",
    "sketch_sizes",
)
NUMBERS = {"I64": "q", "F64": "d", "F32": "f", "F16": "e", "I8": "b", "U8": "B"}


def agreement(sketch: SketchPlan, *more: str, dim: int = 24, n_classes: int = 6, **changes: Any) -> Agreement:
    spec = StatisticsSpec.of("scatter_sketch", *more, sketch=sketch, means_per_client=changes.pop("means", 1))
    return Agreement("0a" * 32, "1b" * 32, "2c" * 32, n_classes, dim, spec, FORM, **changes)


def samples(n: int, dim: int, n_classes: int, seed: int, scale: float = 1.0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    X = scale * (rng.normal(size=(n, dim)) * np.geomspace(1, 0.05, dim) + rng.normal(size=dim))
    return X * np.minimum(1.0, 63.0 / np.linalg.norm(X, axis=1, keepdims=True)), rng.integers(0, n_classes, n)


def measured(terms: Agreement, n: int, seed: int, scale: float = 1.0) -> Statistics:
    X, y = samples(n, terms.dim, terms.n_classes, seed, scale)
    return Statistics.of(X, y, terms.spec, n_classes=terms.n_classes)


def sent(stats: Statistics, terms: Agreement) -> bytes:
    return encode(stats, terms, client="clinic", version=1, key=KEY)


def arrived(data: bytes, terms: Agreement) -> Statistics:
    return decode(data, terms, lambda client: KEY.public).statistics


def sizes(data: bytes) -> dict[str, int]:
    """Return the bytes of every tensor, read without the library that is tested."""
    length = int.from_bytes(data[296:304], "little")
    entries = json.loads(data[304 : 304 + length])
    return {name: e["data_offsets"][1] - e["data_offsets"][0] for name, e in entries.items() if name != "__metadata__"}


def plans() -> st.SearchStrategy[SketchPlan]:
    budgets = st.sampled_from(["means", "means/2", "means*3", "gram", "5KB", "400/class"])
    by_rank = st.builds(SketchPlan, st.none(), st.integers(0, 8), st.sampled_from(CODES), st.sampled_from([0.2, 1.0]))
    rows = st.sampled_from(["pooled", "class"])
    return st.builds(replace, st.one_of(st.builds(SketchPlan, budgets), by_rank), rows=rows)


@settings(deadline=None, max_examples=120)
@given(plan=plans(), n=st.integers(0, 90), seed=st.integers(0, 2**32), scale=st.sampled_from([1e-6, 1.0, 30.0]))
def test_law_what_was_measured_by_the_plan_arrives_as_the_server_is_said_to_hold_it(
    plan: SketchPlan, n: int, seed: int, scale: float
) -> None:
    terms = agreement(plan)
    stats = measured(terms, n, seed, scale)
    found = arrived(sent(stats, terms), terms)
    assert found.sketches.rows.dtype == np.float64
    assert np.array_equal(found.sketches.rows, stats.sketches.rows)
    assert np.array_equal(found.sketches.residuals, stats.sketches.residuals)
    assert found.sketches.labels.tolist() == (stats.classes.tolist() if plan.by_class else [-1] * min(n, 1))
    assert found == stats.quantized(FORM).as_sent()


@pytest.mark.parametrize("code", CODES)
def test_the_bytes_are_what_a_naive_referee_decodes(code: str) -> None:
    terms = agreement(SketchPlan(None, 3, code), dim=5, rows="int8")
    stats = measured(terms, 40, 3)
    data = sent(stats, terms)
    length = int.from_bytes(data[296:304], "little")
    tensors: dict[str, tuple[float, ...]] = {}
    for name, entry in json.loads(data[304 : 304 + length]).items():
        if name != "__metadata__":
            start, stop = (304 + length + offset for offset in entry["data_offsets"])
            tensors[name] = tuple(
                each[0] for each in struct.iter_unpack("<" + NUMBERS[entry["dtype"]], data[start:stop])
            )
    numbers, scales = tensors["moment.scatter_sketch"], tensors.get("sketch_scales", (1.0,) * 3)
    rows = [[numbers[5 * i + j] * scales[i] for j in range(5)] for i in range(3)]
    assert arrived(data, terms).sketches.rows.tolist() == rows
    assert rows == stats.sketches.rows.tolist()
    steps, means = tensors["mean_scales"], tensors["moment.client_means"]
    for i, (count, total) in enumerate(zip(stats.row_counts, stats.rows.block_sums(), strict=True)):
        low, step = steps[2 * i], steps[2 * i + 1]
        assert [low + step * means[5 * i + j] for j in range(5)] == pytest.approx(total / count, abs=0.51 * step)
        decoded = [round((low + step * means[5 * i + j]) * int(count) * 2 ** FORM.bits(1)) for j in range(5)]
        assert arrived(data, terms).raw("client_means")[i].tolist() == decoded


@settings(deadline=None, max_examples=60)
@given(
    budget=st.sampled_from(["means", "means/2", "means*1.5", "gram", "gram/8", "6KB", "150/class"]),
    dim=st.integers(16, 70),
    n=st.integers(1, 120),
    n_classes=st.integers(1, 8),
    seed=st.integers(0, 2**32),
)
def test_law_no_contribution_is_larger_than_its_budget(
    budget: str, dim: int, n: int, n_classes: int, seed: int
) -> None:
    allowed = Budget.parse(budget, dim)
    means = {present: present * (dim + 8) for present in range(1, n_classes + 1)}
    assume(all(size <= allowed.bytes(present) for present, size in means.items()))
    terms = agreement(SketchPlan(budget), dim=dim, n_classes=n_classes)
    stats = measured(terms, n, seed)
    found = sizes(sent(stats, terms))
    paid, present = sum(found.get(name, 0) for name in PAID), len(stats.classes)
    assert paid <= max(allowed.bytes(present), means[present] + 8)  # the residual trace is sent in any case
    if budget.startswith("means"):
        assert paid <= allowed.bytes(present)


@settings(deadline=None, max_examples=60)
@given(dim=st.integers(16, 70), n=st.integers(1, 120), n_classes=st.integers(1, 8), seed=st.integers(0, 2**32))
def test_law_fedcof_in_float32_is_never_smaller_than_a_sketch_with_the_budget_of_means(
    dim: int, n: int, n_classes: int, seed: int
) -> None:
    terms = agreement(SketchPlan("means"), dim=dim, n_classes=n_classes)
    fedcof = replace(terms, spec=StatisticsSpec.of("client_means"), rows="float32")
    ours, theirs = sizes(sent(measured(terms, n, seed), terms)), sizes(sent(measured(fedcof, n, seed), fedcof))
    assert sum(ours.get(name, 0) for name in PAID) <= theirs["moment.client_means"]
    assert all(size == theirs[name] for name, size in ours.items() if name not in PAID)


def test_a_whole_message_in_512_dimensions() -> None:
    X, _ = samples(200, 512, 5, 0)
    y = np.arange(200) % 5
    found = {}
    for rows, spec in [("float32", StatisticsSpec.of("client_means")), ("budget", StatisticsSpec.of("scatter_sketch"))]:
        terms = Agreement("0a" * 32, "1b" * 32, "2c" * 32, 10, 512, spec, FORM, rows)
        found[rows] = len(sent(Statistics.of(X, y, spec, n_classes=10), terms))
    assert found["float32"] == 11112
    assert found["budget"] <= found["float32"]


# ---------------------------------------------------------------------------------------------- brought to the form


def test_law_the_trace_is_kept_when_rows_are_brought_to_the_agreed_form() -> None:
    fine = agreement(SketchPlan(None, 9, "float64", share=1.0))
    stats = measured(fine, 60, 5)
    for plan in (SketchPlan(None, 4, "int8", share=1.0), SketchPlan(None, 9, "float16"), SketchPlan("means")):
        terms = agreement(plan)
        found = arrived(sent(replace(stats, spec=terms.spec), terms), terms)
        choice = terms.choice(60, len(stats.classes))
        assert found.sketches.sizes.tolist() == [min(9, choice.rank)]
        assert found.sketches.trace == pytest.approx(stats.sketches.trace, rel=1e-14)
        assert np.abs(found.sketches.rows - stats.sketches.rows[: choice.rank]).max() < 0.03
        assert found.sketches.residuals[0] >= 0


def test_a_client_may_send_fewer_rows_than_the_plan_allows_and_never_more() -> None:
    terms = agreement(SketchPlan(None, 4, "float64"))
    stats = measured(terms, 60, 6)
    for rows in range(5):
        left = stats.sketches.trace - float(np.square(stats.sketches.rows[:rows]).sum())
        fewer = replace(
            stats,
            arrays={**stats.arrays, "scatter_sketch": stats.sketches.rows[:rows].copy()},
            sketch_sizes=np.array([rows]),
            sketch_residuals=np.array([left]),
        )
        assert arrived(sent(fewer, terms), terms).sketches.sizes.tolist() == [rows]
    narrow = agreement(SketchPlan(None, 3, "float64"))
    with pytest.raises(
        RefusedError, match="may have 3 rows, by the agreed plan and its counts, but 4 arrived"
    ) as caught:
        decode(sent(stats, terms), narrow, lambda client: KEY.public)
    assert (caught.value.reason, caught.value.client) == (Reason.SHAPE, "clinic")


def test_the_sketches_of_several_clients_are_no_contribution() -> None:
    terms = agreement(SketchPlan("means"))
    with pytest.raises(InputError, match="the scatter sketch of one client, but these statistics hold 2"):
        sent(measured(terms, 20, 1) + measured(terms, 20, 2), terms)


def test_classes_of_one_sample_have_no_scatter() -> None:
    terms = agreement(SketchPlan(None, 4, "float64", share=1.0))
    X, _ = samples(3, 24, 6, 0)
    stats = Statistics.of(X, [0, 2, 5], terms.spec, n_classes=6)
    found = arrived(sent(stats, terms), terms)
    assert (found.sketches.sizes.tolist(), found.sketches.residuals.tolist()) == ([0], [0.0])
    with pytest.raises(RefusedError, match="every class has one sample, so that there is no scatter"):
        sent(replace(stats, sketch_residuals=np.array([1e-300])), terms)


def test_more_than_the_norm_bound_leaves_is_refused_from_where_on_it_is_more() -> None:
    terms = agreement(SketchPlan(None, 0, "float64"), dim=2, n_classes=2)
    stats = Statistics.of([[64.0, 0.0], [-64.0, 0.0], [0.0, 64.0]], [0, 0, 1], terms.spec, n_classes=2)
    assert stats.sketches.trace == pytest.approx(2 * 64.0**2)
    sent(stats, terms)
    sent(replace(stats, sketch_residuals=stats.sketch_residuals * (1 + 1e-5)), terms)
    with pytest.raises(RefusedError, match=r"has the trace 8192.82, but its counts, its means and norm_bound=64"):
        sent(replace(stats, sketch_residuals=stats.sketch_residuals * (1 + 1e-4)), terms)


@pytest.mark.parametrize("other", ["class_norms", "class_squares", "gram", "class_grams"])
def test_a_trace_that_second_moments_contradict_is_refused(other: str) -> None:
    terms = agreement(SketchPlan(None, 3, "int8"), other)
    stats = measured(terms, 50, 8)
    sent(stats, terms)
    for factor in (0.999, 1.001):
        wrong = replace(stats, sketch_residuals=stats.sketch_residuals * factor)
        with pytest.raises(RefusedError, match=f"is not what its '{other}' less its class sums leave"):
            sent(wrong, terms)


@pytest.mark.parametrize(
    ("residual", "reason"), [(-1.0, Reason.INCONSISTENT), (np.nan, Reason.OUT_OF_RANGE), (np.inf, Reason.OUT_OF_RANGE)]
)
def test_numbers_that_never_travelled_are_checked_alike(residual: float, reason: Reason) -> None:
    terms = agreement(SketchPlan("means"))
    stats = measured(terms, 50, 8).quantized(FORM)

    def refuse(reason: Reason, sentence: str) -> NoReturn:
        raise RefusedError(reason, sentence)

    check_moments(stats, terms, refuse)
    with pytest.raises(RefusedError, match="scatter sketch") as caught:
        check_moments(replace(stats, sketch_residuals=np.array([residual])), terms, refuse)
    assert caught.value.reason == reason


# ---------------------------------------------------------------------------------------------- what can be agreed on


def test_int64_the_default_becomes_the_budget_and_other_types_are_refused() -> None:
    assert agreement(SketchPlan("means")).rows == "budget"
    assert agreement(SketchPlan("means"), rows="budget") == agreement(SketchPlan("means"))
    assert agreement(SketchPlan(None, 3)).rows == "int64"
    for rows in ("float32", "float16", "bfloat16", "int8"):
        assert agreement(SketchPlan(None, 3), rows=rows).rows == rows
        with pytest.raises(InputError, match=f"in the code that it leaves them, but '{rows}' was requested"):
            agreement(SketchPlan("means"), rows=rows)
    for spec in (StatisticsSpec.of("client_means"), StatisticsSpec.of("scatter_sketch", sketch=SketchPlan(None, 3))):
        with pytest.raises(InputError, match="'budget' only beside scatter sketches that have one"):
            Agreement("0a" * 32, "1b" * 32, "2c" * 32, 6, 24, spec, FORM, "budget")
    with pytest.raises(InputError, match="rows must travel as one of int64, float32"):
        agreement(SketchPlan(None, 3), rows="float8")


def test_a_budget_counts_one_mean_a_class() -> None:
    with pytest.raises(InputError, match=r"counts one mean a class, but means_per_client=2 was asked for"):
        agreement(SketchPlan("gram"), means=2)
    terms = agreement(SketchPlan(None, 3), means=2)
    stats = measured(terms, 60, 1)
    assert arrived(sent(stats, terms), terms) == stats.quantized(FORM)


def test_a_budget_that_cannot_hold_the_means_of_some_client_is_refused_before_anybody_sends() -> None:
    agreement(SketchPlan("200"), n_classes=6)
    with pytest.raises(InputError, match=r"a budget of 200 bytes cannot hold 7 means in 24 dimensions"):
        agreement(SketchPlan("200"), n_classes=7)
    with pytest.raises(InputError, match="cannot hold 1 means"):
        agreement(SketchPlan("means/8"))


def test_a_plan_that_is_not_given_is_the_default_one() -> None:
    spec = StatisticsSpec.of("scatter_sketch")
    terms = Agreement("0a" * 32, "1b" * 32, "2c" * 32, 6, 24, spec, FORM)
    assert terms.spec.sketch == SketchPlan(rows="pooled")
    assert replace(terms, spec=spec, n_classes=77).spec.sketch == SketchPlan(rows="class")
    assert arrived(sent(measured(terms, 20, 1), terms), terms).spec == terms.spec


@pytest.mark.parametrize(("n_classes", "dim"), [(2, 512), (2, 1280), (10, 16), (10, 64), (77, 8), (77, 384)])
def test_a_message_at_the_budget_of_means_is_smaller_than_one_of_means_in_float32(n_classes: int, dim: int) -> None:
    terms = agreement(SketchPlan("means").settled(n_classes), dim=dim, n_classes=n_classes)
    plain = replace(terms, spec=StatisticsSpec.of("client_means"), rows="float32")
    X, y = samples(40 * n_classes, dim, n_classes, 0)
    y = np.arange(len(X)) % n_classes
    ours, theirs = (sent(Statistics.of(X, y, each.spec, n_classes=n_classes), each) for each in (terms, plain))
    assert len(ours) <= len(theirs)


def test_within_a_budget_means_are_those_of_the_classes_and_nothing_else_is_sent() -> None:
    terms = agreement(SketchPlan("means"), dim=64)
    stats = measured(terms, 300, 0)
    data = sent(stats, terms)
    assert not {"row_labels", "row_counts"} & set(sizes(data))
    found = arrived(data, terms)
    np.testing.assert_array_equal(found.row_labels, found.classes)
    np.testing.assert_array_equal(found.row_counts, found.class_counts)
    two = replace(stats, row_labels=stats.row_labels[::-1].copy())
    with pytest.raises(InputError, match="means travel one a class, in the order of classes"):
        sent(two, terms)
