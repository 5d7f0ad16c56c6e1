"""Rows in few bytes: each code against a loop over entries, idempotence, energy that never grows, refusals."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fedmoments.core.statistics.coding import (
    CODES,
    FACTOR_CODES,
    CodedRows,
    code_factors,
    code_means,
    coded_factor,
    factor_row_bytes,
    mean_row_bytes,
    pack_nibbles,
    round_factors,
    round_means,
    unpack_nibbles,
)
from fedmoments.errors import InputError, UnknownNameError

Array = npt.NDArray[Any]

FLOAT32_MAX = float(np.finfo(np.float32).max)
#: Numbers at the borders of the codes: zeros, subnormals of all widths, neighbours of 1, ends of float16 and float32.
BORDERS = [
    *(0.0, -0.0, 5e-324, 1e-310, 1e-45, -1e-40, 2.0**-126, -(2.0**-125), 6e-8, 6.1e-5),
    *(1.0, 1.0 + 2.0**-24, 1.0 - 2.0**-25, 1.0 + 2.0**-52, -1.0, 1000.0, 1000.0 + 2.0**-14),
    *(32767.9, 65504.0, -65504.0, 65519.0, 65520.0, 1e30, FLOAT32_MAX, -FLOAT32_MAX),
]
NUMBER = st.one_of(
    st.sampled_from(BORDERS),
    st.floats(-1.0, 1.0),
    st.floats(-65504.0, 65504.0),
    st.floats(999.9, 1000.1),
    st.floats(-FLOAT32_MAX, FLOAT32_MAX),
)
ROWS = st.integers(1, 5).flatmap(
    lambda dim: st.lists(st.lists(NUMBER, min_size=dim, max_size=dim), max_size=3).map(
        lambda rows: np.array(rows, np.float64).reshape(len(rows), dim)
    )
)


def same(one: CodedRows, other: CodedRows) -> bool:
    """Return whether two codings are the same bit for bit."""
    pairs = [(one.numbers, other.numbers), (one.scales, other.scales), (one.lows, other.lows)]
    bits = [(None if a is None else a.tobytes(), None if b is None else b.tobytes()) for a, b in pairs]
    return one.code == other.code and all(a == b for a, b in bits)


def naive_int8_means(row: Array) -> list[float]:
    """Return a row of means as int8 gives it, an entry at a time."""
    low, step = float(np.float32(min(row))), float(np.float32((max(row) - min(row)) / 255))
    return [low + round((x - min(row)) / step) * step for x in row]


def naive_int8_factor(row: Array) -> list[float]:
    """Return a factor row as int8 gives it, an entry at a time."""
    scale = float(np.float32(max(abs(row)) / 127))
    return [round(x / scale) * scale for x in row]


def naive_int4_factor(row: Array) -> list[float]:
    """Return a factor row as int4 gives it: of nine steps the one with the least squared error."""
    tried = []
    for j in range(9):
        scale = float(np.float32(max(abs(row)) * 2.0 ** (-j / 4) / 7))
        tried.append([min(max(round(x / scale), -7), 7) * scale for x in row])
    return min(tried, key=lambda decoded: sum((a - b) ** 2 for a, b in zip(decoded, row, strict=True)))


# ------------------------------------------------------------------------------------------------------ against loops


@pytest.mark.parametrize("offset", [0.0, 3.0, -1000.0])
def test_int8_equals_the_loop_over_entries(offset: float) -> None:
    rows = np.random.default_rng(0).normal(size=(20, 50)) + offset
    assert round_means(rows, "int8").tolist() == [naive_int8_means(row) for row in rows]
    assert round_factors(rows, "int8").tolist() == [naive_int8_factor(row) for row in rows]
    assert round_factors(rows, "int4").tolist() == [naive_int4_factor(row) for row in rows]


@pytest.mark.parametrize("size", [1e-8, 1e-3, 1.0, 300.0])
def test_means_in_half_precision_are_rounded_to_nearest(size: float) -> None:
    rows = np.random.default_rng(0).normal(size=(20, 50)) * size
    ours = round_means(rows, "float16")
    near = ours.astype(np.float16)
    for other in (np.nextafter(near, np.float16(np.inf)), np.nextafter(near, np.float16(-np.inf))):
        assert (np.abs(rows - ours) <= np.abs(rows - other.astype(np.float64))).all()
    assert np.array_equal(round_means(rows, "float32"), rows.astype(np.float32).astype(np.float64))
    assert np.array_equal(round_means(rows, "float64"), rows)


@pytest.mark.parametrize(("code", "error"), [("float16", 2.0**-11), ("float32", 2.0**-24), ("float64", 0.0)])
@pytest.mark.parametrize("size", [1e-30, 1e-6, 1.0, 1e6, 1e30])
def test_factors_of_any_size_keep_the_digits_of_their_code(code: str, error: float, size: float) -> None:
    rows = np.random.default_rng(0).normal(size=(20, 50)) * size
    assert (np.abs(round_factors(rows, code) - rows) <= error * np.abs(rows)).all()


@given(ROWS)
def test_int8_errs_by_half_a_step_at_most(rows: Array) -> None:
    coded = code_means(rows, "int8")
    assert coded.scales is not None
    steps = np.maximum(coded.scales.astype(np.float64), 2.0**-126)[:, None]
    slack = 2.0**-22 * np.abs(rows).max(axis=1, initial=0.0)[:, None] + 2.0**-149
    assert (np.abs(coded.values() - rows) <= steps / 2 + slack).all()
    factor = code_factors(rows, "int8")
    assert factor.scales is not None
    scales = np.maximum(factor.scales.astype(np.float64), 2.0**-126)[:, None]
    assert (np.abs(factor.values() - rows) <= scales / 2 * (1 + 2.0**-20)).all()


@given(st.floats(-FLOAT32_MAX, FLOAT32_MAX), st.integers(1, 5))
def test_a_constant_row_is_exact_to_float32(value: float, dim: int) -> None:
    rows = np.full((1, dim), value)
    assert np.array_equal(round_means(rows, "int8"), rows.astype(np.float32).astype(np.float64))


def test_zeros_stay_zeros_in_every_code() -> None:
    rows = np.array([[0.0, 0.0, 0.0], [0.0, 3.0, 1.0]])
    for code in CODES:
        assert (round_means(rows, code)[rows == 0] == 0).all()
        assert (round_factors(rows, code)[rows == 0] == 0).all()


# ------------------------------------------------------------------------------------------------------------ the laws


@settings(max_examples=400, deadline=None)
@given(ROWS, st.sampled_from(CODES))
@example(np.array([[1.0, 1.0 + 2.0**-24 * 255]]), "int8")
@example(np.array([[1000.0, 1000.0 + 1e-4, 1000.00005]]), "int8")
@example(np.array([[0.0, 1.4 * 255 * 2.0**-149, 1e-44]]), "int8")
@example(np.array([[9.99999928e-31, 9.99999899e-31, 9.99999960e-31]]), "int8")  # a step below the least normal float32
def test_law_coding_what_was_decoded_gives_the_same_means(rows: Array, code: str) -> None:
    if code == "float16" and (np.abs(rows) >= 65520).any():
        with pytest.raises(InputError, match="choose float32 or int8"):
            code_means(rows, code)
        return
    once = code_means(rows, code)
    assert same(code_means(once.values(), code), once)


@settings(max_examples=400, deadline=None)
@given(ROWS, st.sampled_from(FACTOR_CODES), st.sampled_from([2.0**-140, 1e-30, 1.0]))
@example(np.array([[1.0 - 2.0**-13, 2.0**-40]]), "float16", 1.0)  # rounding lifts the largest entry to a power of two
@example(np.array([[1.0 - 2.0**-26, 2.0**-140]]), "float32", 1.0)
def test_law_coding_what_was_decoded_gives_the_same_factors(rows: Array, code: str, size: float) -> None:
    once = code_factors(rows * size / 4, code)
    assert same(code_factors(once.values(), code), once)


#: What a shortened factor may lose of its trace: one entry of float16 has neighbours 2⁻¹⁰ apart.
LOSS = {"float64": 2.0**-40, "float32": 2.0**-18, "float16": 2.0**-7, "int8": 2.0**-18, "int4": 2.0**-18}


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(FACTOR_CODES), st.sampled_from([1.0, 1 - 1e-15, 1 - 1e-6, 0.5, 1.5, 0.0]))
def test_law_a_coded_factor_never_gains_energy(seed: int, code: str, part: float) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(rng.integers(0, 4), rng.integers(1, 6))) * 10.0 ** rng.integers(-6, 7)
    energy = float(np.square(rows).sum())
    trace = energy * part
    coded, residual = coded_factor(rows, trace, code)
    kept = float(np.square(coded.values()).sum())
    assert kept <= trace
    assert residual == trace - kept
    if float(np.square(round_factors(rows, code)).sum()) > trace:
        assert kept >= trace * (1 - LOSS[code])  # shortened, but by little
    else:
        assert same(coded, code_factors(rows, code))
    again, rest = coded_factor(coded.values(), trace, code)
    assert same(again, coded)
    assert rest == residual
    assert same(code_factors(coded.values(), code), coded)


def test_shortening_leaves_directions_as_they_were() -> None:
    rows = np.random.default_rng(0).normal(size=(5, 40))
    free, coded = code_factors(rows, "int8"), coded_factor(rows, 0.25 * float(np.square(rows).sum()), "int8")[0]
    assert np.array_equal(coded.numbers, free.numbers)


def test_the_bytes_of_a_row_are_those_of_its_arrays() -> None:
    rows = np.random.default_rng(0).normal(size=(3, 17))
    for code in CODES:
        assert code_means(rows, code).nbytes == 3 * mean_row_bytes(code, 17)
    for code in FACTOR_CODES:
        assert code_factors(rows, code).nbytes == 3 * factor_row_bytes(code, 17)


# ------------------------------------------------------------------------------------------------------------ refusals


@pytest.mark.parametrize("code_rows", [code_means, code_factors])
def test_rows_that_are_no_finite_table_are_refused(code_rows: Callable[[Array, str], CodedRows]) -> None:
    for code in CODES:
        with pytest.raises(InputError, match="finite numbers, but 1 entries are not"):
            code_rows(np.array([[1.0, np.nan]]), code)
        with pytest.raises(InputError, match=r"an array of shape \(3,\) arrived"):
            code_rows(np.ones(3), code)
        assert code_rows(np.zeros((0, 3)), code).values().shape == (0, 3)
    with pytest.raises(UnknownNameError, match="unknown code of rows 'int2'"):
        code_rows(np.ones((1, 2)), "int2")


def test_means_do_not_travel_in_four_bits() -> None:
    with pytest.raises(UnknownNameError, match="unknown code of rows 'int4'"):
        code_means(np.ones((1, 2)), "int4")


def test_numbers_beyond_a_code_are_refused_with_the_codes_that_can_hold_them() -> None:
    for code in ("float32", "int8"):
        with pytest.raises(InputError, match=r"1e\+300.*choose float64"):
            code_means(np.array([[-1e300, 0.0]]), code)
    with pytest.raises(InputError, match=r"1e\+300.*choose float64"):
        code_means(np.array([[1e300]]), "float16")
    for code in ("float32", "float16", "int8"):
        with pytest.raises(InputError, match=r"1e\+300.*choose float64"):
            code_factors(np.array([[1e300, 0.0]]), code)
    assert round_means(np.array([[-1e308, 1e308]]), "float64").tolist() == [[-1e308, 1e308]]


def test_a_trace_that_is_none_is_refused() -> None:
    for trace in (-1.0, np.nan, np.inf):
        with pytest.raises(InputError, match="finite number of 0 or more"):
            coded_factor(np.ones((1, 2)), trace, "int8")
    with pytest.raises(InputError, match="overflow"):
        coded_factor(np.full((1, 2), 1e200), 1.0, "float64")


ONE = np.ones(1, np.float32)


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        (("int8", np.ones((1, 2)), ONE), "are a table"),
        (("int8", np.ones((1, 2), np.uint8), ONE), "are a table"),
        (("int8", np.ones((1, 2), np.int8), ONE, ONE), "are a table"),
        (("float16", np.ones(2, np.float16)), "are a table"),
        (("float32", np.full((1, 2), np.inf, np.float32)), "numbers of coded rows are finite"),
        (("int8", np.full((1, 2), -128, np.int8), ONE), "-127 to 127"),
        (("int8", np.ones((1, 2), np.int8)), "have a float32 scale each"),
        (("int8", np.ones((1, 2), np.int8), np.ones(1)), "one float32 a row as scales"),
        (("int8", np.ones((1, 2), np.int8), np.ones(2, np.float32)), "one float32 a row as scales"),
        (("int8", np.ones((1, 2), np.int8), -ONE), "scales of coded rows are finite numbers of 0 or more"),
        (("int8", np.ones((1, 2), np.uint8), ONE, ONE * np.nan), "lows of coded rows are finite"),
    ],
)
def test_coded_rows_that_nobody_coded_are_refused(parts: tuple[Any, ...], words: str) -> None:
    with pytest.raises(InputError, match=words):
        CodedRows(*parts)


@given(st.integers(0, 2**32), st.integers(0, 4), st.integers(1, 9))
def test_law_nibbles_come_back(seed: int, rows: int, dim: int) -> None:
    numbers = np.random.default_rng(seed).integers(-8, 8, (rows, dim)).astype(np.int8)
    packed = pack_nibbles(numbers)
    assert packed.shape == (rows, (dim + 1) // 2)
    assert np.array_equal(unpack_nibbles(packed)[:, :dim], numbers)
    assert not unpack_nibbles(packed)[:, dim:].any()


@pytest.mark.parametrize(("kind", "most"), [("normal", 0.013), ("laplace", 0.029)])
def test_four_bits_lose_less_than_steps_up_to_the_largest_entry(kind: str, most: float) -> None:
    rows = getattr(np.random.default_rng(0), kind)(size=(20, 512))
    energy = float(np.square(rows).sum())
    lost = float(np.square(round_factors(rows, "int4") - rows).sum()) / energy
    steps = np.abs(rows).max(axis=1, keepdims=True) / 7
    plain = float(np.square(np.rint(rows / steps) * steps - rows).sum()) / energy
    assert lost < most < 0.8 * plain
