"""The catalogue's scatter sketches and coded means: rightly signed, but not as agreed, or such as no data have."""

import numpy as np
from tests.wire.wire_malformed import Made, kind
from tests.wire.wire_malformed_numbers import OURS, any_of, changed, taken
from tests.wire.wire_workshop import WORKSHOP as w

from fedmoments.core.statistics import SketchPlan
from fedmoments.wire import Reason

ROWS, SCALES, RESIDUAL, MEANS = "moment.scatter_sketch", "sketch_scales", "sketch_residual", "mean_scales"
BUDGET = w.agreement("scatter_sketch", dim=24)
HALVES = w.agreement("scatter_sketch", dim=24, sketch=SketchPlan(None, 3, "float16"))
SINGLES = w.agreement("scatter_sketch", sketch=SketchPlan(None, 3, "float32"), rows="int8")
EXACT = w.agreement("scatter_sketch", sketch=SketchPlan(None, 3, "float64"))
NORMS = w.agreement("scatter_sketch", "class_norms", dim=24)
GRAM = w.agreement("scatter_sketch", "gram", sketch=SketchPlan(None, 2, "int8"))
LABELLED = w.agreement("scatter_sketch", dim=24, sketch=SketchPlan("means*4", share=0.5, rows="class"))
AGREEMENTS = (BUDGET, HALVES, SINGLES, EXACT, NORMS, GRAM, LABELLED)
scaled = any_of(BUDGET, HALVES, SINGLES, NORMS, GRAM)
SIZES = "sketch_sizes"
NIBBLES = w.agreement("scatter_sketch", dim=23, sketch=SketchPlan(None, 3, "int4", share=1.0))


@kind(Reason.DTYPE, words=(OURS, "must be", "arrived"))
def sketch_in_another_code(rng: np.random.Generator) -> Made:
    agreement = any_of(*AGREEMENTS)(rng)
    tensors = taken(agreement, rng)
    others = [
        dtype for dtype in (np.int8, np.uint8, np.float16, np.float32, np.float64) if dtype != tensors[ROWS].dtype
    ]
    return changed(agreement, tensors | {ROWS: np.ones(tensors[ROWS].shape, others[rng.integers(4)])})


@kind(Reason.SHAPE, words=(OURS, "scatter sketch may have", "rows", "arrived"))
def rank_above_the_plan(rng: np.random.Generator) -> Made:
    agreement = scaled(rng)
    tensors = taken(agreement, rng)
    most = agreement.choice(int(tensors["class_counts"].sum()), len(tensors["classes"])).rank
    more = most + int(rng.integers(1, 2000))
    rows = np.zeros((more, agreement.dim), tensors[ROWS].dtype)
    return changed(agreement, tensors | {ROWS: rows, SCALES: np.zeros(more, np.float32)})


@kind(Reason.BODY, words=(OURS, "lacks", "scales"))
def scales_that_are_missing(rng: np.random.Generator) -> Made:
    agreement = scaled(rng)
    tensors = taken(agreement, rng)
    del tensors[rng.choice([name for name in (SCALES, MEANS) if name in tensors])]
    return changed(agreement, tensors)


@kind(Reason.BODY, words=(OURS, "adds", "scales"))
def scales_where_the_code_has_none(rng: np.random.Generator) -> Made:
    agreement, name = [(EXACT, SCALES), (HALVES, MEANS), (w.agreement("gram"), SCALES)][rng.integers(3)]
    return changed(agreement, taken(agreement, rng) | {name: np.ones((3, 2), np.float32)})


@kind(Reason.DTYPE, words=(OURS, "must be F", "arrived"))
def scales_of_another_type(rng: np.random.Generator) -> Made:
    agreement = scaled(rng)
    tensors = taken(agreement, rng)
    name = rng.choice([name for name in (SCALES, RESIDUAL, MEANS) if name in tensors])
    return changed(agreement, tensors | {name: tensors[name].astype([np.float16, np.int64, np.int8][rng.integers(3)])})


@kind(Reason.SHAPE, words=(OURS, "shape", "arrived"))
def scales_of_another_shape(rng: np.random.Generator) -> Made:
    agreement = any_of(BUDGET, SINGLES)(rng)
    tensors = taken(agreement, rng)
    name = rng.choice([name for name in (SCALES, RESIDUAL, MEANS) if name in tensors])
    array = tensors[name]
    shapes = [(len(array) + 1, *array.shape[1:]), (*array.shape, 1), (0,), (len(array), 5)]
    return changed(agreement, tensors | {name: np.zeros(shapes[rng.integers(4)], array.dtype)})


@kind(Reason.NOT_FINITE, words=(OURS, "NaN or infinity"))
def scales_not_finite(rng: np.random.Generator) -> Made:
    agreement = any_of(BUDGET, SINGLES)(rng)
    tensors = taken(agreement, rng)
    array = tensors[rng.choice([name for name in (SCALES, RESIDUAL, MEANS) if name in tensors])]
    array.flat[rng.integers(array.size)] = rng.choice([np.nan, np.inf, -np.inf])
    return changed(agreement, tensors)


@kind(Reason.INCONSISTENT, words=(OURS, "must be 0 or more", "arrived"))
def negative_scale_or_residual(rng: np.random.Generator) -> Made:
    agreement = any_of(BUDGET, SINGLES)(rng)
    tensors = taken(agreement, rng)
    array = tensors[rng.choice([name for name in (SCALES, RESIDUAL, MEANS) if name in tensors])]
    array.reshape(len(array), -1)[rng.integers(len(array)), -1] = -(10.0 ** float(rng.integers(-30, 30)))
    return changed(agreement, tensors)


@kind(Reason.OUT_OF_RANGE, words=(OURS, "-128"))
def the_number_that_int8_does_not_use(rng: np.random.Generator) -> Made:
    agreement = any_of(BUDGET, NORMS, GRAM)(rng)
    tensors = taken(agreement, rng)
    tensors[ROWS].flat[rng.integers(tensors[ROWS].size)] = -128
    return changed(agreement, tensors)


@kind(Reason.OUT_OF_RANGE, words=(OURS, "-8"))
def the_number_that_int4_does_not_use(rng: np.random.Generator) -> Made:
    tensors = taken(NIBBLES, rng)
    tensors[ROWS].flat[rng.integers(tensors[ROWS].size)] = [0x18, 0x81, 0x88][rng.integers(3)]
    return changed(NIBBLES, tensors)


@kind(Reason.OUT_OF_RANGE, words=(OURS, "half a byte", "must be 0"))
def half_a_byte_left_over_that_is_not_zero(rng: np.random.Generator) -> Made:
    tensors = taken(NIBBLES, rng)
    tensors[ROWS][rng.integers(len(tensors[ROWS])), -1] = int(rng.integers(1, 8)) << 4
    return changed(NIBBLES, tensors)


@kind(Reason.OUT_OF_RANGE, words=(OURS, "scatter sketch", "has the trace", "norm_bound"))
def more_energy_than_the_norm_bound_allows(rng: np.random.Generator) -> Made:
    agreement = any_of(*AGREEMENTS)(rng)
    tensors = taken(agreement, rng)
    most = 64.0 * tensors["class_counts"].sum()
    if rng.integers(2):
        tensors[RESIDUAL][:] = [most * 1.001, 1e300, np.finfo(float).max][rng.integers(3)]
    elif agreement is EXACT:
        tensors[ROWS][:] = [np.sqrt(most), 1e200, -np.finfo(float).max][rng.integers(3)]
    else:
        tensors[ROWS].flat[0], tensors[SCALES][0] = 1, [2 * np.sqrt(most), 1e30, 3e38][rng.integers(3)]
    return changed(agreement, tensors)


@kind(Reason.OUT_OF_RANGE, words=(OURS, "norm_bound", "allow"))
def means_of_a_huge_step_or_low(rng: np.random.Generator) -> Made:
    agreement = any_of(BUDGET, SINGLES)(rng)
    tensors = taken(agreement, rng)
    tensors[MEANS][rng.integers(len(tensors[MEANS])), rng.integers(2)] = [9.0, 1e20, 3e38][rng.integers(3)]
    tensors["moment.client_means"][:] = 255
    return changed(agreement, tensors)


@kind(Reason.INCONSISTENT, words=(OURS, "every class has one sample", "trace"))
def scatter_of_single_samples(rng: np.random.Generator) -> Made:
    lists = {"classes": np.arange(3), "class_counts": np.ones(3, np.int64)}
    lists |= {"row_labels": np.arange(3), "row_counts": np.ones(3, np.int64)}
    rows = {"moment.client_means": np.zeros((3, 4), np.int64), ROWS: np.zeros((0, 4))}
    trace = np.array([10.0 ** float(rng.integers(-30, 1))])
    return changed(EXACT, lists | rows | {RESIDUAL: trace})


@kind(Reason.INCONSISTENT, words=(OURS, "trace of its scatter sketch", "less its class sums leave"))
def trace_against_second_moments(rng: np.random.Generator) -> Made:
    agreement = any_of(NORMS, GRAM)(rng)
    tensors = taken(agreement, rng)
    tensors[RESIDUAL] += [20.0, -tensors[RESIDUAL][0]][rng.integers(2)] if agreement is GRAM else 40.0
    return changed(agreement, tensors)


@kind(Reason.INCONSISTENT, words=(OURS, "of its scatter sketch may have 0 to", "arrived"))
def more_rows_of_a_class_than_its_samples_allow(rng: np.random.Generator) -> Made:
    tensors = taken(LABELLED, rng)
    place = rng.integers(len(tensors[SIZES]))
    most = LABELLED.plan.class_ranks(tensors["class_counts"])[place]
    tensors[SIZES][place] = [most + 1, -1, 2**62, -(2**63)][rng.integers(4)]
    return changed(LABELLED, tensors)


@kind(Reason.INCONSISTENT, words=(OURS, "rows together, but", "arrived"))
def rows_that_belong_to_no_class(rng: np.random.Generator) -> Made:
    tensors = taken(LABELLED, rng)
    tensors[SIZES][int(np.argmax(tensors[SIZES]))] -= 1
    return changed(LABELLED, tensors)


@kind(Reason.SHAPE, words=(OURS, "shape", "arrived"))
def residual_traces_of_other_classes(rng: np.random.Generator) -> Made:
    tensors = taken(LABELLED, rng)
    name = [SIZES, RESIDUAL][rng.integers(2)]
    return changed(LABELLED, tensors | {name: np.append(tensors[name], tensors[name][:1])})


@kind(Reason.BODY, words=(OURS, "lacks", "sketch_sizes"))
def rows_without_their_classes(rng: np.random.Generator) -> Made:
    tensors = taken(LABELLED, rng)
    del tensors[SIZES]
    return changed(LABELLED, tensors)


@kind(Reason.OUT_OF_RANGE, words=(OURS, "in class", "norm_bound"))
def energy_of_one_class_that_only_all_classes_could_have(rng: np.random.Generator) -> Made:
    tensors = taken(LABELLED, rng)
    place = int(rng.integers(len(tensors[RESIDUAL])))
    tensors[RESIDUAL][place] = 64.0 * (tensors["class_counts"][place] + 1)
    return changed(LABELLED, tensors)
