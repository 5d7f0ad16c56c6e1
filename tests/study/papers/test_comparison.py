"""Cells beside the paper's, gains on other data, and claims."""

import math
from dataclasses import replace
from typing import Any

import pytest

from fedmoments.core.observations import Observation
from fedmoments.study.papers import experiment
from fedmoments.study.papers.claims import compare_claims
from fedmoments.study.papers.comparison import Ours, compare_numbers, compare_settings, our_cells
from fedmoments.study.papers.experiment import Claim, Experiment, read_experiment

TEXT = """
title = "T"
source = "Table 1"
about = "A."
needs = "features"
engine = "simulation"
tolerance = 0.5
reference = "base"
rows = [{ name = "base", where = { head = "a" } }, { name = "better", where = { head = "b" } }]
columns = [{ name = "acc" }, { name = "MB", where = { quantity = "megabytes" } }]
[[paper]]
name = "one"
values = [[50.0, 1.0], [60.0, nan]]
[[paper]]
name = "two"
values = [[70.0, 1.0], [73.0, 2.0]]
spreads = [[0.1, nan], [0.2, nan]]
[[misprints]]
block = "two"
row = "base"
column = "MB"
printed = 1.0
right = 4.0
why = "formula"
"""


@pytest.fixture
def table() -> Experiment:
    return read_experiment("fedcof/t", TEXT)


def found(a: float | None, b: float | None) -> list[Observation]:
    return [
        Observation({"head": "a", "clients": 10}, (a,)),
        Observation({"head": "b", "clients": 10}, (b,)),
        Observation({"head": "a", "clients": 10}, (4.2,), "megabytes"),
    ]


def test_our_cells_are_percent_for_accuracies_and_as_they_are_for_others(table: Experiment) -> None:
    cells = our_cells(table, found(0.5, 0.6))
    assert [cell["mean"] for row in cells for cell in row] == [50.0, 4.2, 60.0, None]
    assert cells[1][1]["reason"] == "not measured on these data"


def test_spread_is_over_seeds(table: Experiment) -> None:
    cells = our_cells(table, [Observation({"head": "a"}, (0.5, 0.7, None))])
    assert cells[0][0]["mean"] == pytest.approx(60.0)
    assert cells[0][0]["spread"] == pytest.approx(100 * math.sqrt(0.02))
    assert cells[0][0]["values"] == [50.0, 70.0, None]


@pytest.mark.parametrize(
    ("ours", "verdict"), [(0.5, "agrees"), (0.505, "agrees"), (0.5051, "near"), (0.515, "near"), (0.5151, "differs")]
)
def test_numbers_agree_within_the_tolerance(table: Experiment, ours: float, verdict: str) -> None:
    cell = compare_numbers(table, table.paper[0], our_cells(table, found(ours, None)))[0][0]
    assert cell["verdict"] == verdict
    assert cell["difference"] == pytest.approx(100 * ours - 50.0)


def test_a_misprint_is_compared_with_what_is_right(table: Experiment) -> None:
    table = replace(table, needs="nothing")
    cells = our_cells(table, found(0.7, 0.7))
    cell = compare_numbers(table, table.block("two"), cells)[0][1]
    assert (cell["verdict"], cell["paper"]) == ("misprint", 1.0)
    assert cell["misprint"] is not None
    assert cell["misprint"]["right"] == 4.0
    cells[0][1]["mean"] = 1.0  # what is printed is not what counts
    assert compare_numbers(table, table.block("two"), cells)[0][1]["verdict"] == "differs"


def test_nothing_is_said_where_the_paper_or_we_have_no_number(table: Experiment) -> None:
    cells = compare_numbers(table, table.paper[0], our_cells(table, found(None, 0.6)))
    assert cells[0][0]["verdict"] == ""
    assert cells[0][0]["difference"] is None
    assert cells[1][1]["paper"] is None
    assert cells[1][1]["verdict"] == ""


@pytest.mark.parametrize(
    ("gain", "verdict"),
    [
        (0.03, "in range"),
        (0.1, "in range"),
        (0.105, "in range"),
        (0.11, "same sign"),
        (0.01, "same sign"),
        (0.004, "flat"),
        (-0.004, "flat"),
        (-0.01, "opposite"),
    ],
)
def test_on_other_data_gains_are_compared(table: Experiment, gain: float, verdict: str) -> None:
    cell = compare_settings(table, our_cells(table, found(0.5, 0.5 + gain)))[1][0]
    assert (cell["verdict"], cell["gains"]) == (verdict, [3.0, 10.0])
    assert cell["gain"] == pytest.approx(100 * gain)


def test_the_reference_and_bytes_have_no_gain(table: Experiment) -> None:
    cells = compare_settings(table, our_cells(table, found(0.5, 0.6)))
    assert cells[0][0]["verdict"] == cells[0][1]["verdict"] == cells[1][1]["verdict"] == ""


def claim(**values: Any) -> Claim:
    return Claim(**{"id": "c", "text": "c", "left": {"head": "b"}, "right": {"head": "a"}, **values})


def sides(left: list[float], right: list[float]) -> list[Observation]:
    seeds = tuple(range(len(left)))
    return [
        Observation({"head": "b", "clients": 10}, tuple(left), seeds=seeds),
        Observation({"head": "a", "clients": 10}, tuple(right), seeds=seeds),
        Observation({"head": "a", "clients": 99}, (0.0,), seeds=(0,)),
    ]


@pytest.mark.parametrize(
    ("relation", "margin", "difference", "holds"),
    [
        ("above", 0.0, 0.01, True),
        ("above", 0.0, 0.0, False),
        ("above", 0.05, 0.04, False),
        ("below", 0.0, -0.01, True),
        ("below", 0.0, 0.01, False),
        ("at least", 0.01, -0.01 + 1e-12, True),
        ("at least", 0.01, -0.02, False),
        ("at most", 0.01, 0.005, True),
        ("at most", 0.01, 0.02, False),
        ("equal", 0.01, -0.005, True),
        ("equal", 0.01, 0.02, False),
    ],
)
def test_relations(relation: str, margin: float, difference: float, holds: bool) -> None:
    told = compare_claims([claim(relation=relation, margin=margin)], sides([0.5 + difference], [0.5]))[0]
    assert told["verdict"] == ("holds" if holds else "fails")
    assert len(told["pairs"]) == 1, "only what has the same number of clients is compared"


def test_seeds_are_compared_with_one_another() -> None:
    """The difference is the same on every seed, so that it is certain although seeds vary widely."""
    pair = compare_claims([claim()], sides([0.2, 0.5, 0.8], [0.19, 0.49, 0.79]))[0]["pairs"][0]
    assert pair["difference"] == pytest.approx(0.01)
    assert pair["error"] == pytest.approx(0.0, abs=1e-12)
    assert pair["clear"]
    loose = compare_claims([claim()], sides([0.2, 0.5, 0.8], [0.5, 0.8, 0.1]))[0]["pairs"][0]
    assert not loose["clear"]


@pytest.mark.parametrize(
    ("left", "right", "samples", "verdict"),
    [
        ([0.53, 0.55, 0.54], [0.5, 0.5, 0.5], None, "holds"),
        ([0.5, 0.56, 0.49], [0.5, 0.5, 0.5], None, "unclear"),  # 1.7 points, with a standard error of 2.2
        ([0.5, 0.44, 0.51], [0.5, 0.5, 0.5], None, "unclear"),
        ([0.47, 0.45, 0.46], [0.5, 0.5, 0.5], None, "fails"),
        ([0.504] * 3, [0.5] * 3, 1000, "unclear"),  # four samples: their standard error is two
        ([0.505] * 3, [0.5] * 3, 1000, "holds"),
        ([0.496] * 3, [0.5] * 3, 1000, "unclear"),
        ([0.495] * 3, [0.5] * 3, 1000, "fails"),
        ([0.54], [0.5], 1000, "unclear"),  # of one seed: two standard errors are 4.5 points
        ([0.55], [0.5], 1000, "holds"),
        ([0.51, 0.53], [0.5, 0.5], 1000, "unclear"),  # of two seeds: the interval reaches 12.7 standard errors
        ([0.5] * 3, [0.5] * 3, 1000, "unclear"),  # none is above the other, and nothing says that none would be
        ([0.1 + 0.2], [0.3], None, "fails"),  # 4e-17 is of rounding
    ],
)
def test_a_difference_within_chance_is_unclear(
    left: list[float], right: list[float], samples: int | None, verdict: str
) -> None:
    assert compare_claims([claim()], sides(left, right), samples)[0]["verdict"] == verdict


def test_seeds_that_one_side_lacks_are_left_out() -> None:
    found = [
        Observation({"head": "b", "clients": 10}, (0.8,), seeds=(0,)),
        Observation({"head": "a", "clients": 10}, (0.7, 0.9, float("nan")), seeds=(0, 1, 2)),
    ]
    pair = compare_claims([claim()], found, 100)[0]["pairs"][0]
    assert pair["difference"] == pytest.approx(0.1)
    assert pair["error"] == pytest.approx(math.sqrt((0.8 * 0.2 + 0.8 * 0.2) / 100))
    assert not pair["clear"]


def test_numbers_of_other_units_have_no_verdict_where_data_are_needed() -> None:
    """A tolerance of one point says nothing of megabytes; and numbers of changed settings are not the paper's."""
    told = experiment("fedcof/table6")
    one: Ours = {"mean": 1.0, "spread": None, "values": [1.0], "reason": None, "several": False}
    cells = [[one for _ in told.columns] for _ in told.rows]
    made = compare_numbers(told, told.paper[0], cells)
    quantities = [column.where.get("quantity", "accuracy") for column in told.columns]
    assert quantities == ["accuracy", "megabytes whole"]
    assert {line[1]["verdict"] for line in made} == {""}
    assert "differs" in {line[0]["verdict"] for line in made}
    assert {cell["verdict"] for line in compare_numbers(told, told.paper[0], cells, judged=False) for cell in line} == {
        ""
    }


def test_a_claim_of_equality_or_of_bytes_has_no_least_number_of_samples() -> None:
    assert compare_claims([claim(relation="equal")], sides([0.5], [0.5]), 10)[0]["verdict"] == "holds"
    bytes_sent = [
        Observation({"head": head, "clients": 10}, (value,), "megabytes") for head, value in [("a", 1), ("b", 1.1)]
    ]
    asked = claim(left={"head": "b", "quantity": "megabytes"}, right={"head": "a", "quantity": "megabytes"})
    assert compare_claims([asked], bytes_sent, 10)[0]["verdict"] == "holds"


def test_a_claim_that_is_clear_in_one_setting_and_keeps_its_sign_in_the_other_holds() -> None:
    found = [
        Observation({"head": head, "clients": clients}, values, seeds=(0, 1, 2))
        for head, clients, values in [
            ("a", 10, (0.5, 0.5, 0.5)),
            ("b", 10, (0.6, 0.61, 0.6)),
            ("a", 50, (0.5, 0.5, 0.5)),
            ("b", 50, (0.56, 0.5, 0.49)),
        ]
    ]
    told = compare_claims([claim()], found)[0]
    assert told["verdict"] == "holds"
    assert [pair["clear"] for pair in told["pairs"]] == [True, False]


def test_a_claim_that_holds_in_some_settings_holds_in_part() -> None:
    found = [
        Observation({"head": head, "clients": clients}, (value,))
        for head, clients, value in [("a", 10, 0.5), ("b", 10, 0.6), ("a", 50, 0.5), ("b", 50, 0.4)]
    ]
    told = compare_claims([claim()], found)[0]
    assert told["verdict"] == "in part"
    assert [(pair["where"]["clients"], pair["holds"]) for pair in told["pairs"]] == [(10, True), (50, False)]


def test_a_claim_across_a_key_pairs_by_what_is_left() -> None:
    found = [
        Observation({"head": "fedcof", "clients": clients, "split": split}, (value,))
        for clients, split, value in [(10, "iid", 0.5), (100, "iid", 0.6), (10, "skew", 0.4), (100, "skew", 0.7)]
    ]
    told = compare_claims([claim(left={"clients": 100}, right={"clients": 10})], found)[0]
    assert [pair["difference"] for pair in told["pairs"]] == pytest.approx([0.1, 0.3])


def test_a_claim_of_what_was_not_measured_is_not_tested() -> None:
    assert compare_claims([claim()], [])[0]["verdict"] == "not tested"
    missing = [Observation({"head": "a"}, (None,), reason="no"), Observation({"head": "b"}, (0.5,))]
    assert compare_claims([claim()], missing)[0]["verdict"] == "not tested"


def test_a_claim_may_compare_with_a_value() -> None:
    told = compare_claims([claim(right={}, value=0.55)], sides([0.6], [0.5]))[0]
    assert told["verdict"] == "holds"
    assert told["pairs"][0]["right"] == 0.55
