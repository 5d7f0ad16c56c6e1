"""What is written is read back: every kind of field, and a refusal that names what is wrong."""

import json
import math
import types
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedmoments.core.observations import Observation, codec
from fedmoments.core.observations.codec import from_plain, to_plain
from fedmoments.errors import FileFormatError


@dataclass(frozen=True)
class Inner:
    name: str
    ratio: float | None = None


@dataclass(frozen=True, eq=False)
class Outer:
    inner: Inner
    table: NDArray[np.int64]
    several: tuple[Inner, ...] = ()
    by_name: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    hits: bytes = b""
    pair: tuple[int, str] = (0, "")
    flag: bool = False


scalars = st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.floats(allow_nan=False, allow_infinity=False)
numbers = st.none() | st.floats(-1e100, 1e100)


@given(
    where=st.dictionaries(st.text(), scalars | st.text()),
    values=st.lists(numbers).map(tuple),
    reason=st.none() | st.text(),
    seeds=st.lists(st.integers(0, 9)).map(tuple),
)
def test_an_observation_that_was_written_is_read_back(
    where: dict[str, object], values: tuple[float | None, ...], reason: str | None, seeds: tuple[int, ...]
) -> None:
    made = Observation(where, values, "bytes", reason, seeds, "B")  # type: ignore[arg-type]
    assert from_plain(Observation, json.loads(json.dumps(to_plain(made)))) == made
    assert Observation.from_dict(json.loads(json.dumps(made.to_dict()))) == made


def test_every_kind_of_field_is_read_back() -> None:
    made = Outer(Inner("a", 0.5), np.eye(2, dtype=np.int64), (Inner("b"),), {"x": (1, 2)}, b"\0\xff", (3, "c"), True)
    again = from_plain(Outer, json.loads(json.dumps(to_plain(made))))
    assert np.array_equal(again.table, made.table)
    assert again.table.dtype == np.int64
    assert (again.inner, again.several, again.by_name, again.hits, again.pair, again.flag) == (
        made.inner, made.several, made.by_name, made.hits, made.pair, made.flag,
    )  # fmt: skip


def test_what_is_not_finite_is_null() -> None:
    assert to_plain(Inner("a", math.nan)) == {"name": "a", "ratio": None}
    assert to_plain(np.array([1.0, math.inf])) == [1.0, None]
    assert from_plain(Inner, {"name": "a", "ratio": math.inf}).ratio is None


@pytest.mark.parametrize(
    ("plain", "message"),
    [
        ({"name": 3}, "holds 3 as Inner.name, where a value of type str belongs"),
        ({"ratio": 1.0}, "lacks 'name' of a Inner"),
        ({"name": "a", "colour": "red"}, "holds 'colour', which a Inner does not have"),
        ({"name": "a", "ratio": True}, "holds True as Inner.ratio"),
        ([], r"holds \[\] where a Inner belongs"),
    ],
)
def test_a_refusal_names_what_is_wrong(plain: object, message: str) -> None:
    with pytest.raises(FileFormatError, match=f"the file {message}"):
        from_plain(Inner, plain, "the file")


@pytest.mark.parametrize("text", ["a", "<b>", "\udcff"])
def test_bytes_that_are_no_base64_are_refused(text: str) -> None:
    plain = to_plain(Outer(Inner("a"), np.eye(2, dtype=np.int64), (), {}, b"", (3, "c"), True)) | {"hits": text}
    with pytest.raises(FileFormatError, match=r"Outer\.hits, where base64 text belongs"):
        from_plain(Outer, plain)


def test_aliases_of_types_are_read_as_what_they_stand_for() -> None:
    """From numpy 2.5 on, NDArray is declared by a ``type`` statement, which older Pythons cannot spell."""
    kind = TypeVar("kind")
    alias = SimpleNamespace(__value__=np.ndarray[Any, np.dtype[kind]])  # type: ignore[valid-type]
    read = codec._read(types.GenericAlias(alias, (np.float64,)), [1, None], "x", "a file")  # type: ignore[arg-type]
    assert read.dtype == np.float64
    assert np.array_equal(read, [1.0, np.nan], equal_nan=True)
    assert codec._read(SimpleNamespace(__value__=int), 3, "x", "a file") == 3
