"""Canonical JSON."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmoments.core.maps.canonical import canonical_json
from fedmoments.errors import InputError

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(JSON)
def test_canonical_json_reads_back_as_the_same_value_and_text(value: object) -> None:
    text = canonical_json(value)
    assert json.loads(text) == value
    assert canonical_json(json.loads(text)) == text
    assert text.isascii()


@pytest.mark.parametrize("value", [float("nan"), [float("inf")], np.zeros(2), {1: 2}, [{(1,): 2}], {"a": {None: 1}}])
def test_values_that_are_not_json_are_refused(value: object) -> None:
    with pytest.raises(InputError, match="description"):
        canonical_json(value)
