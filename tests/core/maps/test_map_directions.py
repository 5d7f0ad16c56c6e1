"""Directions that a server broadcasts: orthonormal, few, the same on every machine; all else is refused."""

import base64
from typing import Any

import numpy as np
import pytest

from fedmoments.core.maps import Directions, from_description
from fedmoments.errors import InputError


def coded(matrix: Any) -> str:
    return base64.b64encode(np.asarray(matrix, "<f4").tobytes()).decode()


def test_a_basis_becomes_orthonormal_and_keeps_its_spans() -> None:
    basis = np.random.default_rng(0).normal(size=(20, 4)) * [1e6, 1.0, 1e-6, 3.0]
    made = Directions.of(basis)
    np.testing.assert_allclose(made.matrix.T @ made.matrix, np.eye(4), atol=1e-5)
    for k in range(1, 5):
        outside = basis[:, :k] - made.matrix[:, :k] @ (made.matrix[:, :k].T @ basis[:, :k])
        assert (np.linalg.norm(outside, axis=0) < 1e-5 * np.linalg.norm(basis[:, :k], axis=0)).all()
    again = from_description(made.describe())
    assert again == made
    assert again.content_hash() == made.content_hash()
    X = np.random.default_rng(1).normal(size=(9, 20))
    assert (np.linalg.norm(made(X), axis=1) <= np.linalg.norm(X, axis=1) * (1 + 1e-5)).all()  # nothing is stretched


@pytest.mark.parametrize(
    ("sizes", "columns", "words"),
    [
        ((3, 2), coded(2 * np.eye(3, 2)), "orthonormal"),
        ((3, 2), coded(np.ones((3, 2))), "orthonormal"),
        ((3, 1), coded([[np.nan], [0], [1]]), "orthonormal"),
        ((3, 1), coded([[np.inf], [0], [1]]), "orthonormal"),
        ((3, 2), coded(np.eye(3)), "bytes"),
        ((3, 2), "not base64!", "base64"),
        ((2, 3), coded(np.eye(3)), "no more than the 2 that go in"),
        ((300, 257), coded(np.eye(300, 257)), "at most 256"),
        ((3, 0), "", "at least 1"),
        ((True, 1), coded([[1.0]]), "whole number"),
    ],
)
def test_what_a_hostile_server_could_broadcast_is_refused(sizes: tuple[int, int], columns: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        from_description({"kind": "directions", "input_dim": sizes[0], "n_components": sizes[1], "columns": columns})


def test_dependent_columns_are_no_basis() -> None:
    with pytest.raises(InputError, match="must not depend"):
        Directions.of(np.ones((5, 2)))
