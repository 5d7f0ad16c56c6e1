"""The catalogue's other encodings: contributions that stand for sound statistics, but are written in another way."""

from typing import Any

import numpy as np
from tests.wire.wire_malformed import Made, kind
from tests.wire.wire_malformed_numbers import changed, taken
from tests.wire.wire_workshop import WORKSHOP as w

from fedmoments.core.statistics import SketchPlan, Statistics
from fedmoments.wire import Agreement, Reason, encode

WORDS = ("client 'clinic'", "another encoding")
MEANS, SKETCH = "moment.client_means", "moment.scatter_sketch"
SINGLE = w.agreement("client_means", rows="float32")
HALF = w.agreement("client_means", rows="float16")
BRAIN = w.agreement("client_means", rows="bfloat16")
BYTES = w.agreement("client_means", rows="int8")
EXACT = w.agreement("scatter_sketch", sketch=SketchPlan(None, 3, "float64"))
HALVES = w.agreement("scatter_sketch", sketch=SketchPlan(None, 3, "float16"))
SMALL = w.agreement("scatter_sketch", sketch=SketchPlan(None, 3, "int8"))


def with_zeros(agreement: Agreement) -> dict[str, Any]:
    """Return tensors of samples whose last coordinate is 0."""
    X, y = np.random.default_rng(1).normal(size=(24, 4)), np.arange(24) % 3
    X[:, 3] = 0.0
    stats = Statistics.of(X, y, agreement.spec, n_classes=5)
    return w.tensors(encode(stats, agreement, client=w.client, version=1, key=w.key))


@kind(Reason.BODY, words=WORDS)
def negative_zero_among_means(rng: np.random.Generator) -> Made:
    agreement = (SINGLE, HALF, BRAIN)[rng.integers(3)]
    tensors = with_zeros(agreement)
    bits = tensors[MEANS].view(np.uint32 if agreement is SINGLE else np.uint16)
    assert not bits[:, 3].any()
    bits[rng.integers(3), 3] = 1 << (31 if agreement is SINGLE else 15)
    return changed(agreement, tensors)


@kind(Reason.BODY, words=WORDS)
def negative_zero_in_a_sketch(rng: np.random.Generator) -> Made:
    agreement = (EXACT, HALVES)[rng.integers(2)]
    tensors = with_zeros(agreement)
    assert not tensors[SKETCH][:, 3].any()
    tensors[SKETCH][rng.integers(3), 3] = -0.0
    return changed(agreement, tensors)


@kind(Reason.BODY, words=WORDS)
def digits_that_the_fixed_point_does_not_keep(rng: np.random.Generator) -> Made:
    tensors = taken(SINGLE, rng)
    bits = tensors[MEANS].view(np.uint32)
    smallest = np.unravel_index(np.abs(tensors[MEANS]).argmin(), tensors[MEANS].shape)
    tensors[MEANS][smallest] = 2.0**-70  # read as 0, which is written as 0
    assert bits[smallest]
    return changed(SINGLE, tensors)


@kind(Reason.BODY, words=WORDS)
def bytes_with_half_of_their_steps(rng: np.random.Generator) -> Made:
    tensors = taken(BYTES, rng)
    row = rng.integers(len(tensors[MEANS]))
    tensors[MEANS][row] //= 2
    tensors["mean_scales"][row, 1] *= 2
    return changed(BYTES, tensors)


@kind(Reason.BODY, words=WORDS)
def bytes_with_a_lower_low(rng: np.random.Generator) -> Made:
    tensors = taken(BYTES, rng)
    row = rng.integers(len(tensors[MEANS]))
    tensors[MEANS][row] = np.minimum(tensors[MEANS][row], 250) + 5
    tensors["mean_scales"][row, 0] -= 5 * tensors["mean_scales"][row, 1]
    return changed(BYTES, tensors)


@kind(Reason.BODY, words=WORDS)
def constant_bytes_with_a_step(rng: np.random.Generator) -> Made:
    tensors = taken(BYTES, rng)
    row = rng.integers(len(tensors[MEANS]))
    tensors[MEANS][row], tensors["mean_scales"][row] = 0, [0.5, rng.uniform(0.1, 1.0)]
    return changed(BYTES, tensors)


@kind(Reason.BODY, words=WORDS)
def sketch_rows_with_another_scale(rng: np.random.Generator) -> Made:
    agreement = (HALVES, SMALL)[rng.integers(2)]
    tensors = taken(agreement, rng)
    row = rng.integers(len(tensors[SKETCH]))
    half = 0.5 if agreement is HALVES else 1
    tensors[SKETCH][row] = tensors[SKETCH][row] * half if agreement is HALVES else tensors[SKETCH][row] // 2
    tensors["sketch_scales"][row] *= 2.0 if agreement is HALVES else 1.5
    return changed(agreement, tensors)


@kind(Reason.BODY, words=WORDS)
def rows_of_nothing_with_a_scale(rng: np.random.Generator) -> Made:
    agreement = (HALVES, SMALL)[rng.integers(2)]
    tensors = taken(agreement, rng)
    row = int(rng.integers(len(tensors[SKETCH])))
    values = tensors[SKETCH][row].astype(float) * tensors["sketch_scales"][row]
    tensors["sketch_residual"] += float(np.square(values).sum())
    tensors[SKETCH][row] = 0
    tensors["sketch_scales"][row] = rng.uniform(1.0, 2.0)
    return changed(agreement, tensors)


@kind(Reason.BODY, words=WORDS)
def negative_zero_as_a_residual_or_a_scale(rng: np.random.Generator) -> Made:
    X = np.repeat(np.random.default_rng(2).normal(size=(3, 4)), 8, axis=0)  # no scatter at all
    agreement = (HALVES, SMALL)[rng.integers(2)]
    stats = Statistics.of(X, np.repeat([0, 1, 2], 8), agreement.spec, n_classes=5)
    tensors = w.tensors(encode(stats, agreement, client=w.client, version=1, key=w.key))
    assert float(tensors["sketch_residual"][0]) == 0.0
    tensors["sketch_residual"][0] = -0.0
    return changed(agreement, tensors)
