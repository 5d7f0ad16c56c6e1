"""How a client spends its bytes: never more than it has, rank first, digits later, and never its samples' span."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmoments.core.statistics import SketchPlan
from fedmoments.core.statistics.coding import factor_row_bytes, mean_row_bytes
from fedmoments.core.statistics.sketch_plan import REFINEMENTS, Budget, Choice
from fedmoments.errors import InputError

clients = st.tuples(st.integers(1, 40), st.integers(0, 500)).map(lambda pair: (pair[0], pair[0] + pair[1]))
dims = st.integers(16, 1300)
words = st.sampled_from(["means", "means/2", "means*1.5", "means*8", "gram", "gram/2", "gram*3"])


def naive(plan: SketchPlan, n: int, present: int, dim: int) -> Choice:
    """The best of all choices that fit: rank counts first, then how far both codes are refined."""
    allowed = Budget.parse(plan.budget or "", dim).bytes(present)
    most = min(int(plan.share * (n - present) + 1e-9), dim)
    ladder = [("int8", "int4"), *REFINEMENTS]
    fitting = [
        (rank, step, Choice(*ladder[step], rank))
        for rank in range(most + 1)
        for step in range(len(ladder))
        if Choice(*ladder[step], rank).bytes(present, dim) <= allowed and (step == 0 or rank == most)
    ]
    return max(fitting, key=lambda each: each[:2])[2] if fitting else Choice("int8", "int4", 0)


@given(words, clients, dims)
def test_a_budget_is_never_exceeded(word: str, client: tuple[int, int], dim: int) -> None:
    present, n = client
    assert SketchPlan(word).choose(n, present, dim).bytes(present, dim) <= Budget.parse(word, dim).bytes(present)


@given(words, clients, st.integers(16, 60))
def test_the_choice_is_the_best_of_all_that_fit(word: str, client: tuple[int, int], dim: int) -> None:
    present, n = client
    assert SketchPlan(word).choose(n, present, dim) == naive(SketchPlan(word), n, present, dim)


@given(words, clients, dims, st.floats(0.0, 1.0))
def test_the_rank_stays_below_the_share_of_the_span(word: str, client: tuple[int, int], dim: int, share: float) -> None:
    present, n = client
    assert SketchPlan(word, share=share).choose(n, present, dim).rank <= share * (n - present) + 1e-9


@given(clients, dims)
def test_at_fedcofs_bytes_there_are_almost_six_sketch_rows_a_class(client: tuple[int, int], dim: int) -> None:
    present, _ = client
    rank = SketchPlan("means").choose(10**6, present, dim).rank
    free = 4 * dim * present - present * mean_row_bytes("int8", dim) - 8
    assert rank == min(free // factor_row_bytes("int4", dim), dim)


@given(clients, dims, st.sampled_from(["means/8", "means/3", "3KB", "700B", "120/class"]))
def test_behind_the_projection_every_client_fits(client: tuple[int, int], dim: int, word: str) -> None:
    present, n = client
    plan = SketchPlan(word).at(dim)
    if Budget.parse(word, dim).bytes(40) < 40 * 24:
        with pytest.raises(InputError, match="not one dimension"):
            SketchPlan("30B").projection(40, dim)
        return
    width = plan.projection(40, dim)
    choice = plan.choose(n, present, width or dim)
    assert choice.bytes(present, width or dim) <= Budget.parse(word, dim).bytes(present)
    assert width is None or width < dim


def test_what_is_left_at_the_cap_refines_sketch_rows_first_then_means() -> None:
    dim, present, n = 64, 2, 10  # at most 2 rows
    found = [SketchPlan(f"{size}B").choose(n, present, dim) for size in (230, 300, 420, 800, 1100)]
    assert [(each.means, each.code) for each in found] == [
        ("int8", "int4"),
        ("int8", "int8"),
        ("int8", "float16"),
        ("float32", "float16"),
        ("float32", "float32"),
    ]
    assert {each.rank for each in found} == {2}


@given(words, clients, dims, st.integers(0, 60))
def test_a_tiny_client_sends_no_row_and_its_means_as_ever(
    word: str, client: tuple[int, int], dim: int, spare: int
) -> None:
    present, n = client
    strict, plain = (SketchPlan(word, spare=least).choose(n, present, dim) for least in (spare, 0))
    assert strict.rank == (0 if n - present < spare else plain.rank)
    assert (strict.means, strict.code) == (plain.means, plain.code)


def test_a_budget_in_bytes_stays_the_same_behind_a_projection() -> None:
    for word in ("means/8", "gram/3", "50KB", "90/class"):
        resolved = SketchPlan(word).at(512)
        assert Budget.parse(resolved.budget or "", 32).bytes(7) == Budget.parse(word, 512).bytes(7)
        assert resolved.at(99) == resolved


@pytest.mark.parametrize("text", ["", "mean", "means/0", "gram-2", "50 pounds", "-3", "0", "means//2", "1e3/klass"])
def test_a_word_that_is_no_budget_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="a budget is means, gram, a part of one"):
        SketchPlan(text)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"budget": None}, "either a budget or a rank"),
        ({"rank": 3}, "either a budget or a rank"),
        ({"budget": None, "rank": -1}, "whole number of 0 or more"),
        ({"code": "int2"}, "one of float64, float32, float16, int8, int4"),
        ({"share": 1.5}, "from 0 to 1"),
        ({"spare": -1}, "spare samples is a whole number"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(given: dict[str, object], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        SketchPlan(**given)  # type: ignore[arg-type]


def test_a_budget_that_holds_no_means_says_what_would_do() -> None:
    with pytest.raises(InputError, match=r"200 bytes cannot hold 4 means in 128 dimensions.*project features"):
        SketchPlan("200B").choose(50, 4, 128)
