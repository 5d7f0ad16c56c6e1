"""No honest data are refused: few samples, equal samples, tiny and huge features, offsets, coarse codes."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.wire.test_wire_soundness import KEY, PLANS, ROWS, agreement, spec_of

from fedmoments.core.statistics import MOMENTS, Statistics
from fedmoments.wire import decode, encode

SHAPES = ("normal", "equal", "two values", "grid", "sparse", "one direction", "at the bound")


def features(shape: str, n: int, dim: int, rng: np.random.Generator) -> Any:
    X = rng.normal(size=(n, dim))
    if shape == "equal":
        X[:] = X[:1]
    elif shape == "two values":
        X = X[rng.integers(0, min(2, n), n)]
    elif shape == "grid":
        X = np.rint(2 * X)
    elif shape == "sparse":
        X *= rng.random(X.shape) < 0.2
    elif shape == "one direction":
        X = X[:, :1] * rng.normal(size=(1, dim))
    elif shape == "at the bound":
        X /= np.linalg.norm(X, axis=1, keepdims=True)
    return X


@settings(deadline=None, max_examples=400)
@given(
    names=st.sets(st.sampled_from(sorted(MOMENTS))),
    means=st.integers(1, 3),
    plan=st.sampled_from(PLANS),
    shape=st.sampled_from(SHAPES),
    counts=st.lists(st.integers(0, 6), min_size=1, max_size=4),
    dim=st.integers(1, 8),
    scale=st.sampled_from([1e-9, 1e-4, 1.0, 1e3, 3e4]),
    offset=st.sampled_from([0.0, 0.0, 1.0, -30.0, 1e4, 1e7]),
    room=st.sampled_from([1.0, 1.0, 1.5, 1e4]),
    most=st.sampled_from([0, 2**20, 2**40]),
    rows=st.sampled_from(ROWS),
    seed=st.integers(0, 2**32),
)
def test_law_honest_data_are_never_refused(
    names: set[str], means: int, plan: Any, shape: str, counts: list[int], dim: int, scale: float, offset: float,
    room: float, most: int, rows: str, seed: int,
) -> None:  # fmt: skip
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.repeat(np.arange(len(counts)), counts))
    X = scale * (features(shape, len(y), dim, rng) + offset * rng.choice([-1.0, 0.0, 1.0], size=dim))
    bound = min(max(float(np.linalg.norm(X, axis=1).max(initial=1e-10)) * room, 1e-12), 1e12)
    spec = spec_of(names, means, plan)
    narrow = rows == "float16" and bound > 60_000  # means that float16 cannot hold are refused, with a remedy
    terms = agreement(spec, dim, len(counts), bound, most=most or max(len(y), 1), rows="int64" if narrow else rows)
    stats = Statistics.of(X, y, spec, n_classes=len(counts))
    data = encode(stats, terms, client="c", version=1, key=KEY)
    decode(data, terms, lambda client: KEY.public)


@pytest.mark.parametrize("rows", ROWS)
def test_law_one_content_has_one_encoding(rows: str) -> None:
    """What was decoded is encoded to the same bytes, however coarse the fixed point is against the code."""
    rng = np.random.default_rng(3)
    spec = spec_of(("client_means", "scatter_sketch"), 2, PLANS[-1])
    for most in (50, 2**24, 2**40):
        for scale in (1e-9, 1e-3, 1.0, 1e4):
            X = scale * rng.normal(size=(50, 7))
            terms = agreement(spec, 7, 3, float(np.linalg.norm(X, axis=1).max()) * 1.01, most=most, rows=rows)
            data = encode(Statistics.of(X, np.arange(50) % 3, spec, n_classes=3), terms, client="c", version=1, key=KEY)
            arrived = decode(data, terms, lambda client: KEY.public).statistics
            assert encode(arrived, terms, client="c", version=1, key=KEY) == data
