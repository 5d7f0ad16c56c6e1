"""The rest of the catalogue: contributions that are well-formed and rightly signed, but whose numbers no data have."""

from typing import Any

import numpy as np
from tests.wire.wire_malformed import Made, kind
from tests.wire.wire_workshop import WORKSHOP as w

from fedmoments.wire import Agreement, Reason

OURS = "client 'clinic'"
MEANS = w.agreement("client_means", means=2)
HALVES = w.agreement("client_means", "gram", rows="float16")
BRAINS = w.agreement("client_means", rows="bfloat16")
SQUARES = w.agreement("gram", "class_squares")
GRAMS = w.agreement("class_grams")
POWERS = w.agreement("class_squares", "class_thirds", "class_fourths")
NORMS = w.agreement("class_norms", "gram")
SKETCH = w.agreement("scatter_sketch", dim=24)


def taken(agreement: Agreement, rng: np.random.Generator) -> dict[str, Any]:
    """Return the tensors of a sound contribution, free to be changed."""
    return w.tensors(w.sound(agreement, seed=int(rng.integers(8))))


def changed(agreement: Agreement, tensors: dict[str, Any], **dtypes: str) -> Made:
    """Return a contribution with these tensors, rightly signed."""
    if agreement.rows == "bfloat16" and tensors["moment.client_means"].dtype == np.uint16:
        dtypes = {"moment.client_means": "BF16", **dtypes}
    return agreement, w.signed(w.body(tensors, dtypes=dtypes), agreement)


def scale(agreement: Agreement, degree: int) -> float:
    return float(2.0 ** agreement.fixed_point.bits(degree))


def any_of(*agreements: Agreement) -> Any:
    return lambda rng: agreements[rng.integers(len(agreements))]


some_agreement = any_of(MEANS, HALVES, BRAINS, SQUARES, GRAMS, POWERS, NORMS, SKETCH)


# ---------------------------------------------------------------------------------------------------- types, shapes


@kind(Reason.FRACTIONAL_COUNT, words=(OURS, "must be whole numbers", "arrived"))
def fractional_counts(rng: np.random.Generator) -> Made:
    agreement = some_agreement(rng)
    tensors = taken(agreement, rng)
    floats = tensors["class_counts"].astype([np.float64, np.float32][rng.integers(2)])
    floats[0] += rng.choice([0.5, 0.0, np.nan])
    return changed(agreement, tensors | {"class_counts": floats})


@kind(Reason.DTYPE, words=(OURS, "must be int64", "arrived"))
def labels_of_another_type(rng: np.random.Generator) -> Made:
    agreement = some_agreement(rng)
    tensors = taken(agreement, rng)
    name, dtype = rng.choice(["classes", "class_counts"]), [np.int32, np.uint64][rng.integers(2)]
    return changed(agreement, tensors | {name: tensors[name].astype(dtype)})


@kind(Reason.DTYPE, words=(OURS, "is unknown"))
def type_that_nobody_knows(rng: np.random.Generator) -> Made:
    agreement = some_agreement(rng)
    tensors = taken(agreement, rng)
    return changed(agreement, tensors, classes=rng.choice(["O", "I128", "F4", "", "i64"]))


@kind(Reason.DTYPE, words=(OURS, "must be", "arrived"))
def moment_of_another_type(rng: np.random.Generator) -> Made:
    agreement = some_agreement(rng)
    tensors = taken(agreement, rng)
    name = f"moment.{rng.choice(agreement.spec.sent)}"
    dtype = [np.float64, np.float32, np.uint64, np.int32][rng.integers(4)]
    with np.errstate(invalid="ignore"):
        return changed(agreement, tensors | {name: tensors[name].astype(dtype)})


@kind(Reason.DTYPE, words=(OURS, "must be", "I64 arrived"))
def sums_where_halves_were_agreed(rng: np.random.Generator) -> Made:
    tensors = taken(MEANS, rng)
    means = w.agreement("client_means", means=2, rows=str(rng.choice(["float16", "bfloat16"])))
    return means, w.signed(w.body(tensors), means)


@kind(Reason.NOT_FINITE, words=(OURS, "NaN or infinity"))
def floats_not_finite(rng: np.random.Generator) -> Made:
    agreement = some_agreement(rng)
    tensors = taken(agreement, rng)
    name = f"moment.{rng.choice(agreement.spec.sent)}"
    floats = np.zeros(tensors[name].shape, [np.float64, np.float32, np.float16][rng.integers(3)])
    floats.flat[rng.integers(floats.size)] = rng.choice([np.nan, np.inf, -np.inf])
    return changed(agreement, tensors | {name: floats})


@kind(Reason.NOT_FINITE, words=(OURS, "NaN or infinity"))
def half_not_finite(rng: np.random.Generator) -> Made:
    agreement = any_of(HALVES, BRAINS)(rng)
    tensors = taken(agreement, rng)
    bits = tensors["moment.client_means"].view(np.uint16)
    wrong = [0x7E00, 0x7C00, 0xFC00] if agreement is HALVES else [0x7FC0, 0x7F80, 0xFF80]
    bits.flat[rng.integers(bits.size)] = rng.choice(wrong)
    return changed(agreement, tensors)


@kind(Reason.SHAPE, words=(OURS, "shape", "arrived"))
def another_shape(rng: np.random.Generator) -> Made:
    agreement = some_agreement(rng)
    tensors = taken(agreement, rng)
    name = f"moment.{rng.choice(agreement.spec.sent)}"
    array = tensors[name]
    shapes = [(*array.shape, 1), (1, *array.shape), (array.size + 1,), (*array.shape[:-1], array.shape[-1] + 1), (0,)]
    return changed(agreement, tensors | {name: np.zeros(shapes[rng.integers(5)], array.dtype)})


@kind(Reason.SHAPE, words=(OURS,))
def labels_and_counts_of_other_lengths(rng: np.random.Generator) -> Made:
    agreement = some_agreement(rng)
    tensors = taken(agreement, rng)
    counts = tensors["class_counts"]
    wrong = [counts[:-1], counts[:, None], np.append(counts, 1), counts[:0]][rng.integers(4)]
    return changed(agreement, tensors | {"class_counts": wrong})


def square_of(agreement: Agreement, tensors: dict[str, Any]) -> tuple[str, Any]:
    name = "moment.class_grams" if agreement is GRAMS else "moment.gram"
    packed, d = tensors[name], agreement.dim
    full = np.zeros((*packed.shape[:-1], d, d), np.int64)
    for j in range(d):
        for i in range(j + 1):
            full[..., i, j] = full[..., j, i] = packed[..., j * (j + 1) // 2 + i]
    return name, full


@kind(Reason.SHAPE, words=(OURS, "(4, 4) arrived"))
def square_matrix(rng: np.random.Generator) -> Made:
    tensors = taken(SQUARES, rng)
    return changed(SQUARES, tensors | dict([square_of(SQUARES, tensors)]))


@kind(Reason.ASYMMETRIC, words=(OURS, "not symmetric"))
def asymmetric_matrix(rng: np.random.Generator) -> Made:
    agreement = any_of(SQUARES, GRAMS, NORMS)(rng)
    tensors = taken(agreement, rng)
    name, full = square_of(agreement, tensors)
    i, j = rng.choice(4, size=2, replace=False)
    full[..., i, j] += int(rng.integers(1, 1000))
    return changed(agreement, tensors | {name: full})


# ---------------------------------------------------------------------------------------------------- labels, counts


@kind(Reason.LABELS, words=(OURS, "must ascend from 0 to 4", "arrived"))
def bad_labels(rng: np.random.Generator) -> Made:
    agreement = some_agreement(rng)
    tensors = taken(agreement, rng)
    wrong = [[0, 0, 2], [3, 2, 0], [0, 2, 5], [-1, 0, 2], [0, 2, 2**62], [-(2**63), 0, 2**63 - 1]][rng.integers(6)]
    return changed(agreement, tensors | {"classes": np.array(wrong, np.int64)})


@kind(Reason.LABELS, words=(OURS, "must ascend from 0 to 4", "arrived"))
def more_labels_than_classes(rng: np.random.Generator) -> Made:
    agreement = some_agreement(rng)
    many = int(rng.integers(6, 3000))
    lists = {"classes": np.arange(many), "class_counts": np.ones(many, np.int64)}
    return changed(agreement, taken(agreement, rng) | lists)


@kind(Reason.LABELS, words=(OURS, "a class may have 2 rows", "arrived"))
def more_rows_than_classes_can_have(rng: np.random.Generator) -> Made:
    many = int(rng.integers(7, 3000))
    rows = {"row_labels": np.full(many, 2), "row_counts": np.ones(many, np.int64)}
    return changed(MEANS, taken(MEANS, rng) | rows)


@kind(Reason.LABELS, words=(OURS, "rows", "arrived"))
def bad_rows(rng: np.random.Generator) -> Made:
    tensors = taken(MEANS, rng)
    rows = tensors["row_labels"]
    wrong = [rows[::-1], rows + 1, np.full_like(rows, 4), np.zeros_like(rows), rows - 2**62][rng.integers(5)]
    return changed(MEANS, tensors | {"row_labels": np.ascontiguousarray(wrong)})


@kind(Reason.LABELS, words=(OURS, "a class may have", "arrived"))
def too_many_rows(rng: np.random.Generator) -> Made:
    tensors, single = taken(MEANS, rng), w.agreement("client_means")
    if rng.integers(2):
        return single, w.signed(w.body(tensors), single)
    return changed(MEANS, tensors | {"row_labels": np.array([0, 0, 0, 2, 3, 3])})


@kind(Reason.NEGATIVE_COUNT, words=(OURS, "arrived"))
def bad_counts(rng: np.random.Generator) -> Made:
    agreement = some_agreement(rng)
    tensors = taken(agreement, rng)
    name = rng.choice([name for name in tensors if name.endswith("_counts")])
    tensors[name][rng.integers(len(tensors[name]))] = rng.choice([0, -1, -(2**63), 100_001, 2**63 - 1])
    return changed(agreement, tensors)


@kind(Reason.NEGATIVE_COUNT, words=(OURS, "150000 samples", "max_samples=100000"))
def more_samples_than_agreed(rng: np.random.Generator) -> Made:
    tensors = taken(SQUARES, rng)
    return changed(SQUARES, tensors | {"class_counts": np.full(3, 50_000)})


@kind(Reason.INCONSISTENT, words=(OURS, "must add up", "arrived"))
def rows_that_do_not_add_up(rng: np.random.Generator) -> Made:
    agreement = any_of(MEANS, HALVES, BRAINS)(rng)
    tensors = taken(agreement, rng)
    tensors["row_counts"][rng.integers(len(tensors["row_counts"]))] += int(rng.integers(1, 9))
    return changed(agreement, tensors)


# ---------------------------------------------------------------------------------------------------- moments


@kind(Reason.OUT_OF_RANGE, words=(OURS, "norm_bound", "allows"))
def extreme_entry(rng: np.random.Generator) -> Made:
    agreement = any_of(MEANS, SQUARES, GRAMS, POWERS, NORMS)(rng)
    tensors = taken(agreement, rng)
    array = tensors[f"moment.{rng.choice(agreement.spec.sent)}"]
    array.flat[rng.integers(array.size)] = rng.choice([2**63 - 1, -(2**63), 2**62 + 1, -(2**62) - 1])
    return changed(agreement, tensors)


@kind(Reason.OUT_OF_RANGE, words=(OURS, "norm", "allows"))
def sums_beyond_the_norm_bound(rng: np.random.Generator) -> Made:
    agreement = any_of(MEANS, POWERS, GRAMS)(rng)
    tensors = taken(agreement, rng)
    name, counts = ("client_means", "row_counts") if agreement is MEANS else ("sums", "class_counts")
    row = rng.integers(len(tensors[counts]))
    most = tensors[counts][row] * 8.0 * scale(agreement, 1)  # every entry within the bound, their norm beyond it
    tensors[f"moment.{name}"][row] = np.rint(most * rng.uniform(0.501, 0.99, 4) * rng.choice([-1, 1], 4))
    return changed(agreement, tensors)


@kind(Reason.OUT_OF_RANGE, words=(OURS, "norm", "allows"))
def halves_beyond_the_norm_bound(rng: np.random.Generator) -> Made:
    agreement = any_of(HALVES, BRAINS)(rng)
    tensors = taken(agreement, rng)
    rows = tensors["moment.client_means"]
    rows[rng.integers(len(rows))] = rng.choice([5.0, 60000.0]) if agreement is HALVES else rng.choice([0x40A0, 0x7F00])
    return changed(agreement, tensors)


@kind(Reason.OUT_OF_RANGE, words=(OURS, "norm_bound", "allow"))
def traces_beyond_the_norm_bound(rng: np.random.Generator) -> Made:
    agreement = any_of(SQUARES, GRAMS, POWERS)(rng)
    tensors = taken(agreement, rng)
    name, degree = {SQUARES: ("gram", 2), GRAMS: ("class_grams", 2), POWERS: ("class_fourths", 4)}[agreement]
    n = tensors["class_counts"].sum() if name == "gram" else tensors["class_counts"][:, None]
    diagonal = slice(None) if name == "class_fourths" else [0, 2, 5, 9]
    tensors[f"moment.{name}"][..., diagonal] = np.floor(
        n * 8.0**degree * scale(agreement, degree) * rng.uniform(0.26, 0.9)
    )
    return changed(agreement, tensors)


@kind(Reason.INDEFINITE, words=(OURS, "negative eigenvalue"))
def indefinite_matrix(rng: np.random.Generator) -> Made:
    agreement = any_of(SQUARES, GRAMS, NORMS)(rng)
    tensors = taken(agreement, rng)
    packed = tensors["moment.class_grams"][rng.integers(3)] if agreement is GRAMS else tensors["moment.gram"]
    packed[1] = np.sqrt(float(packed[0]) * packed[2]) * rng.uniform(1.0001, 1.5)  # M01² > M00·M11
    return changed(agreement, tensors)


@kind(Reason.INDEFINITE, words=(OURS, "less what its class sums explain has a negative eigenvalue"))
def second_moment_too_small_for_the_sums(rng: np.random.Generator) -> Made:
    agreement = w.agreement(*(("gram",), ("class_grams",))[rng.integers(2)])
    tensors = taken(agreement, rng)
    name = f"moment.{agreement.spec.sent[-1]}"
    sums, counts = tensors["moment.sums"] / scale(agreement, 1), tensors["class_counts"][:, None]
    explained = np.stack([np.outer(s, s)[np.tril_indices(4)] for s in sums / np.sqrt(counts)])
    whole = explained.sum(axis=0) if name == "moment.gram" else explained
    smaller = np.rint(whole * rng.uniform(0.5, 0.999) * scale(agreement, 2)).astype(np.int64)
    return changed(agreement, tensors | {name: smaller})


@kind(Reason.INCONSISTENT, words=(OURS, "must be 0 or more", "holds -"))
def negative_squares(rng: np.random.Generator) -> Made:
    agreement, name = [(SQUARES, "class_squares"), (POWERS, "class_fourths"), (NORMS, "class_norms")][rng.integers(3)]
    tensors = taken(agreement, rng)
    array = tensors[f"moment.{name}"]
    array.flat[rng.integers(array.size)] = -int(rng.integers(1, 1000))
    return changed(agreement, tensors)


@kind(Reason.INCONSISTENT, words=(OURS, "sums of powers", "no data have"))
def powers_that_exclude_each_other(rng: np.random.Generator) -> Made:
    tensors = taken(POWERS, rng)
    at = (rng.integers(3), rng.integers(4))
    n, second = int(tensors["class_counts"][at[0]]), tensors["moment.class_squares"][at] / scale(POWERS, 2)
    fourth = tensors["moment.class_fourths"][at] / scale(POWERS, 4)
    first = tensors["moment.sums"][at] / scale(POWERS, 1)
    name, degree, number = [
        ("class_squares", 2, first**2 / n * 0.99),  # n·Σx² < (Σx)²
        ("class_fourths", 4, second**2 / n * 0.99),  # n·Σx⁴ < (Σx²)²
        ("class_thirds", 3, np.sqrt(second * fourth) * 1.01),  # (Σx³)² > Σx²·Σx⁴
        ("class_thirds", 3, -np.sqrt(second * fourth) * 1.01),
    ][rng.integers(4)]
    tensors[f"moment.{name}"][at] = (
        np.floor(number * scale(POWERS, degree)) if degree != 3 else np.rint(number * scale(POWERS, 3))
    )
    return changed(POWERS, tensors)


@kind(Reason.INCONSISTENT, words=(OURS, "'class_norms'"))
def norms_too_small_for_the_sums(rng: np.random.Generator) -> Made:
    agreement = w.agreement("class_norms")
    tensors = taken(agreement, rng)
    sums = tensors["moment.sums"] / scale(agreement, 1)
    least = (sums**2).sum(axis=1) / tensors["class_counts"] * scale(agreement, 2)
    tensors["moment.class_norms"][:, 0] = least * rng.uniform(0.5, 0.999)
    return changed(agreement, tensors)


@kind(Reason.INCONSISTENT, words=(OURS, "diagonal of its 'gram'"))
def gram_of_other_squares(rng: np.random.Generator) -> Made:
    agreement, name = [(SQUARES, "class_squares"), (NORMS, "class_norms")][rng.integers(2)]
    tensors = taken(agreement, rng)
    tensors[f"moment.{name}"] += np.abs(tensors[f"moment.{name}"]) // int(rng.integers(20, 10_000))
    return changed(agreement, tensors)
