"""Sketches by class, in every code and beside every second moment: changed at random, they are refused or possible."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tests.wire.wire_workshop import WORKSHOP as w

from fedmoments.core.linalg import unpack_symmetric
from fedmoments.core.statistics import SketchPlan, Statistics
from fedmoments.errors import RefusedError
from fedmoments.wire import Agreement, Withheld, decode, encode

Array = npt.NDArray[Any]
Rng = np.random.Generator
BOUND, DIM = 8.0, 6
ROWS, RESIDUAL, SIZES = "moment.scatter_sketch", "sketch_residual", "sketch_sizes"
HALF_STEPS = {"float64": 0.0, "float16": 2.0**-11, "int8": 0.5 / 127, "int4": 0.5 / 7 / 0.25}
COUNTS = (1, 2, 3, 9, 14)


def labelled(code: str, *more: str, means: int = 1, dim: int = DIM) -> Agreement:
    plan = SketchPlan(None, 9, code, share=1.0, rows="class")
    return w.agreement("scatter_sketch", *more, sketch=plan, means=means, dim=dim)


AGREEMENTS = {
    "int4": labelled("int4"),
    "int4, odd": labelled("int4", dim=5),
    "budget": w.agreement("scatter_sketch", dim=24, sketch=SketchPlan("means*3", share=1.0, rows="class")),
    "several means": labelled("int8", means=2),
    "exact": labelled("float64"),
    "norms": labelled("int4", "class_norms"),
    "squares": labelled("int4", "class_squares"),
    "grams": labelled("float16", "class_grams"),
    "exact norms": labelled("float64", "class_norms", means=2),
    "second exchange": w.agreement("class_grams", dim=2),
    "second exchange, one direction": w.agreement("class_grams", dim=1),
}


def sound(agreement: Agreement, seed: int) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(len(COUNTS)), COUNTS)
    X = rng.normal(size=(len(y), agreement.dim)) + rng.normal(size=(len(COUNTS), agreement.dim))[y]
    X *= np.minimum(1.0, BOUND / np.linalg.norm(X, axis=1, keepdims=True))
    stats = Statistics.of(X, y, agreement.spec, n_classes=agreement.n_classes)
    return w.tensors(encode(stats, agreement, client=w.client, version=1, key=w.key, withheld=Withheld(1, 3)))


# ------------------------------------------------------------------------------------------------- what is changed


def extreme(t: dict[str, Array], name: str, rng: Rng) -> None:
    array = t[name]
    if array.dtype.kind == "f":
        top = float(np.finfo(array.dtype).max)
        values = [-1.0, -1e-300, 0.0, 5e-324, 1.0, 1e5, top, np.nan, np.inf, -np.inf]
    else:
        info = np.iinfo(array.dtype)
        values = [int(info.min), int(info.max), 0, 1, 2, 7]
    with np.errstate(all="ignore"):
        array.flat[rng.integers(array.size)] = np.array(values[rng.integers(len(values))]).astype(array.dtype)


def scaled(t: dict[str, Array], name: str, rng: Rng) -> None:
    factor = rng.choice([-1.0, 0.5, 0.9, 1.001, 1.1, 2.0])
    with np.errstate(all="ignore"):
        at = rng.integers(len(t[name]))
        t[name][at] = (t[name][at] * factor).astype(t[name].dtype)


def swapped(t: dict[str, Array], name: str, rng: Rng) -> None:
    """Give one class what another one has: all sums over classes stay."""
    one, other = rng.integers(len(t[name]), size=2)
    t[name][[one, other]] = t[name][[other, one]]


def moved(t: dict[str, Array], name: str, rng: Rng) -> None:
    """Move a part of a number from one class to another."""
    one, other = rng.integers(len(t[name]), size=2)
    with np.errstate(all="ignore"):
        part = (t[name][one] * rng.uniform()).astype(t[name].dtype)
        t[name][one] -= part
        t[name][other] += part


CHANGES: tuple[Callable[[dict[str, Array], str, Rng], None], ...] = (extreme, scaled, swapped, moved)


def changed(agreement: Agreement, rng: Rng) -> bytes:
    tensors = sound(agreement, int(rng.integers(6)))
    for _ in range(rng.integers(1, 3)):
        names = [name for name in sorted(tensors) if tensors[name].size]
        name = names[rng.integers(len(names))]
        if rng.integers(2) and ROWS in tensors:
            name = (ROWS, RESIDUAL, SIZES)[rng.integers(3)]
        CHANGES[rng.integers(len(CHANGES))](tensors, name, rng)
    body = bytearray(w.body(tensors))
    if rng.integers(8) == 0:
        body[rng.integers(len(body))] ^= 1 << int(rng.integers(8))
    return w.signed(bytes(body), agreement)


# ------------------------------------------------------------------------------------------------- what data can have


def require_possible(stats: Statistics, agreement: Agreement) -> None:
    """Say it naively, class by class: whether there are samples with this count, sum, sketch and second moments."""
    form = agreement.fixed_point
    name = "sums" if "sums" in stats.arrays else "client_means"
    owners = stats.classes if name == "sums" else stats.row_labels
    sizes = stats.class_counts if name == "sums" else stats.row_counts
    sums = form.dequantize(stats.arrays[name], 1)
    sketches: dict[int, Any] = {}
    if stats.spec.has_sketch:
        sketches = dict(zip(stats.sketches.labels.tolist(), stats.sketches.blocks(), strict=True))
    for at, (label, n) in enumerate(zip(stats.classes.tolist(), stats.class_counts.tolist(), strict=True)):
        own, of = sums[owners == label], sizes[owners == label]
        mean = own.sum(axis=0) / n
        near = 1e-5 * n * BOUND**2
        if "class_grams" in stats.arrays:
            gram = unpack_symmetric(form.dequantize(stats.arrays["class_grams"][at], 2))
            scatter = gram - n * np.outer(mean, mean)
            eigenvalues = np.linalg.eigvalsh(scatter)
            assert eigenvalues[0] >= -near
            assert (eigenvalues > near).sum() <= n - 1
            assert np.trace(gram) <= n * BOUND**2 + near
        if label not in sketches:
            continue
        V, left, _ = sketches[label]
        code = agreement.choice(stats.n_samples, len(stats.classes)).code
        trace, between = float(np.square(V).sum() + left), float((np.square(own).sum(axis=1) / of).sum())
        off = HALF_STEPS[code] * np.sqrt(stats.dim) * float(np.linalg.norm(np.abs(V).max(axis=1, initial=0.0)))
        coded = (2 * np.linalg.norm(V) + off) * off + near
        assert np.isfinite(V).all()
        assert 0 <= left < np.inf
        assert len(V) <= n - 1
        assert n > 1 or trace == 0
        assert between - n * mean @ mean - near <= trace <= n * BOUND**2 - n * mean @ mean + near
        assert len(V) < min(n - 1, stats.dim) or left <= 8 * coded
        if "class_norms" in stats.arrays:
            assert abs(form.dequantize(stats.arrays["class_norms"][at], 2).sum() - n * mean @ mean - trace) <= near
        if "class_squares" in stats.arrays:
            squares = form.dequantize(stats.arrays["class_squares"][at], 2) - n * mean**2
            assert abs(squares.sum() - trace) <= near
            assert (np.square(V).sum(axis=0) <= squares + coded).all()
        if "class_grams" in stats.arrays:
            assert abs(np.trace(scatter) - trace) <= near
            assert np.linalg.eigvalsh(scatter - V.T @ V)[0] >= -coded


@pytest.mark.parametrize("name", AGREEMENTS)
def test_what_is_changed_is_refused_or_what_data_can_have(name: str) -> None:
    agreement, refused = AGREEMENTS[name], 0
    for seed in range(6):
        data = w.signed(w.body(sound(agreement, seed)), agreement)
        require_possible(decode(data, agreement, w.key_of).statistics, agreement)
    for seed in range(250):
        data = changed(agreement, np.random.default_rng([seed, 11]))
        try:
            arrived = decode(data, agreement, w.key_of).statistics
        except RefusedError:
            refused += 1
            continue
        require_possible(arrived, agreement)
    assert 50 < refused < 250  # what is harmless is taken in


@pytest.mark.parametrize("name", ["norms", "exact norms", "squares", "grams"])
def test_the_scatter_of_one_class_is_not_that_of_another(name: str) -> None:
    """The trace of all classes together stays."""
    agreement = AGREEMENTS[name]
    tensors = sound(agreement, 0)
    part = 0.5 * tensors[RESIDUAL][3]
    assert part > 1e-3
    tensors[RESIDUAL][3:5] += [-part, part]
    with pytest.raises(RefusedError, match=r"in class 3.*less its class sums leave"):
        decode(w.signed(w.body(tensors), agreement), agreement, w.key_of)


@pytest.mark.parametrize("code", ["int4", "int8", "float16", "float64"])
def test_rows_that_span_a_class_leave_only_what_their_code_costs(code: str) -> None:
    agreement = labelled(code)
    tensors = sound(agreement, 0)
    spanned = [at for at, n in enumerate(COUNTS) if n > 1 and tensors[SIZES][at] >= min(n - 1, DIM)]
    tensors[RESIDUAL][spanned[0]] += 30.0
    with pytest.raises(RefusedError, match="and yet a residual trace of"):
        decode(w.signed(w.body(tensors), agreement), agreement, w.key_of)
