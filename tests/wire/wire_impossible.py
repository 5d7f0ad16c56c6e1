"""The catalogue's impossible moments: every number is well-formed and in range, but no data have all of them together.

A kind starts from real samples, and changes what was measured of them. :data:`IMPOSSIBLE` lists the kinds of this file.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from tests.wire.wire_malformed import KINDS, Made, kind
from tests.wire.wire_workshop import WORKSHOP as w

from fedmoments.core.statistics import SketchPlan, Statistics
from fedmoments.wire import Agreement, Reason, Withheld, encode

Array = npt.NDArray[Any]
R, D = 8.0, 4
REASONS = (Reason.INCONSISTENT, Reason.INDEFINITE, Reason.OUT_OF_RANGE)
IMPOSSIBLE: list[str] = []
#: Changes float moments by name in place; may return others.
Change = Callable[[dict[str, Array], np.random.Generator], None]


def impossible(*moments: str, counts: tuple[int, ...], **agreed: Any) -> Callable[[Change], Change]:
    """Register a kind: moments of ``counts`` samples a class, in units of the features, as changed by the function."""
    agreement = w.agreement(*moments, **agreed)

    def add(change: Change) -> Change:
        def make(rng: np.random.Generator) -> Made:
            return agreement, forged(agreement, counts, change, rng)

        make.__name__ = change.__name__
        kind(*REASONS, words=("client 'clinic'",))(make)
        IMPOSSIBLE.append(change.__name__)
        return change

    return add


def forged(agreement: Agreement, counts: tuple[int, ...], change: Change, rng: np.random.Generator) -> bytes:
    """Return a contribution that is sound but for the change, rightly signed."""
    y = np.repeat(np.arange(len(counts)), counts)
    X = rng.normal(size=(len(y), agreement.dim)) + rng.choice([-1.0, 1.0], size=agreement.dim)
    stats = Statistics.of(X, y, agreement.spec, n_classes=agreement.n_classes)
    sound = encode(stats, agreement, client=w.client, version=1, key=w.key, withheld=Withheld(1, 3))
    tensors = w.tensors(sound)
    scales = {name: scale_of(name, agreement) for name in tensors}
    numbers = {name: array / scales[name] if scales[name] else array for name, array in tensors.items()}
    change(numbers, rng)
    for name, scale in scales.items():
        if scale:
            numbers[name] = np.rint(numbers[name] * scale).astype(np.int64)
    return w.signed(w.body(numbers), agreement)


def scale_of(name: str, agreement: Agreement) -> float:
    degrees = {"sums": 1, "client_means": 1, "class_thirds": 3, "class_fourths": 4, "scatter_sketch": 0}
    moment = name.removeprefix("moment.")
    degree = degrees.get(moment, 2) if moment != name else 0
    return float(2.0 ** agreement.fixed_point.bits(degree)) if degree else 0.0


def packed(matrix: Array) -> Array:
    return np.asarray(matrix)[np.tril_indices(D)]


def direction(rng: np.random.Generator, weight: float) -> Array:
    vector = rng.normal(size=D)
    return packed(weight * np.outer(vector, vector) / (vector @ vector))


def cell(t: dict[str, Array], rng: np.random.Generator) -> tuple[tuple[int, int], float, float, float]:
    """Return a place (class, coordinate), its count, its sum and its second moment, if there is one."""
    at = (int(rng.integers(len(t["class_counts"]))), int(rng.integers(D)))
    second = float(t["moment.class_squares"][at]) if "moment.class_squares" in t else np.nan
    return at, float(t["class_counts"][at[0]]), float(t["moment.sums"][at]), second


SQUARES, NORMS, THIRDS, FOURTHS = (f"moment.class_{name}" for name in ("squares", "norms", "thirds", "fourths"))
GRAM, GRAMS, MEANS, SKETCH = "moment.gram", "moment.class_grams", "moment.client_means", "moment.scatter_sketch"
POWERS = ("class_squares", "class_thirds", "class_fourths")

# ------------------------------------------------------------------------------------------ one sample has no scatter


@impossible("class_squares", counts=(1, 5))
def one_sample_with_other_squares(t: dict[str, Array], rng: np.random.Generator) -> None:
    t[SQUARES][0, rng.integers(D)] *= rng.uniform(1.001, 2.0)


@impossible("class_norms", counts=(1, 5))
def one_sample_with_another_norm(t: dict[str, Array], rng: np.random.Generator) -> None:
    t[NORMS][0] *= rng.uniform(1.001, 2.0)


@impossible("class_grams", counts=(1, 5))
def one_sample_with_a_scatter(t: dict[str, Array], rng: np.random.Generator) -> None:
    t[GRAMS][0] += direction(rng, 0.01)


@impossible("class_squares", "class_thirds", counts=(1, 5))
def one_sample_with_another_third(t: dict[str, Array], rng: np.random.Generator) -> None:
    t[THIRDS][0, rng.integers(D)] *= rng.uniform(0.1, 0.999)


@impossible("class_thirds", counts=(1, 5))
def one_sample_with_a_third_alone(t: dict[str, Array], rng: np.random.Generator) -> None:
    t[THIRDS][0, rng.integers(D)] *= rng.choice([0.99, 1.01])


@impossible("class_fourths", counts=(1, 5))
def one_sample_with_a_fourth_alone(t: dict[str, Array], rng: np.random.Generator) -> None:
    t[FOURTHS][0, rng.integers(D)] *= rng.uniform(1.01, 2.0)


@impossible("gram", counts=(1, 1, 1))
def single_samples_with_a_scatter(t: dict[str, Array], rng: np.random.Generator) -> None:
    t[GRAM] += direction(rng, 0.01)


def apart(t: dict[str, Array], rng: np.random.Generator) -> Array:
    """Make two rows of one sample each of every class, and return these samples, (classes, 2, D)."""
    step = rng.normal(size=(len(t["classes"]), 1, D))
    samples = t[MEANS][:, None] / 2 + step * np.array([1.0, -1.0])[:, None]
    t["row_labels"], t["row_counts"] = np.repeat(t["classes"], 2), np.ones(2 * len(t["classes"]), np.int64)
    t[MEANS] = samples.reshape(-1, D)
    return np.asarray(samples)


@impossible("client_means", "class_squares", counts=(2, 2), means=2)
def two_single_rows_with_other_squares(t: dict[str, Array], rng: np.random.Generator) -> None:
    t[SQUARES] = np.square(apart(t, rng)).sum(axis=1)
    t[SQUARES][0, rng.integers(D)] *= rng.uniform(1.001, 2.0)


@impossible("client_means", "class_norms", counts=(2, 2), means=2)
def two_single_rows_with_another_norm(t: dict[str, Array], rng: np.random.Generator) -> None:
    t[NORMS] = np.square(apart(t, rng)).sum(axis=(1, 2))[:, None] * rng.uniform(1.001, 2.0)


@impossible("client_means", "class_thirds", counts=(2, 2), means=2)
def two_single_rows_with_other_thirds(t: dict[str, Array], rng: np.random.Generator) -> None:
    t[THIRDS] = (apart(t, rng) ** 3).sum(axis=1) + 0.1


@impossible("client_means", "class_grams", counts=(2, 2), means=2)
def two_single_rows_with_a_scatter(t: dict[str, Array], rng: np.random.Generator) -> None:
    samples = apart(t, rng)
    t[GRAMS] = np.stack([packed(own.T @ own) + direction(rng, 0.01) for own in samples])


@impossible("scatter_sketch", counts=(2, 2), means=2, sketch=SketchPlan(None, 3, "float64"))
def sketch_beyond_single_rows(t: dict[str, Array], rng: np.random.Generator) -> None:
    samples = apart(t, rng)
    t[SKETCH] = t[SKETCH][:0]
    t["sketch_residual"][:] = np.square(samples - samples.mean(axis=1, keepdims=True)).sum() * 1.01


# ------------------------------------------------------------------------------------------ rank


@impossible("gram", counts=(2, 2))
def gram_of_more_directions_than_samples(t: dict[str, Array], rng: np.random.Generator) -> None:
    t[GRAM] += direction(rng, 0.01)


@impossible("gram", counts=(3, 2))
def gram_of_few_samples_with_a_ridge(t: dict[str, Array], rng: np.random.Generator) -> None:
    t[GRAM] += packed(rng.uniform(1e-6, 1e-2) * np.eye(D))


@impossible("class_grams", counts=(3, 9))
def class_gram_of_more_directions_than_samples(t: dict[str, Array], rng: np.random.Generator) -> None:
    t[GRAMS][0] += direction(rng, 0.01)


@impossible("client_means", "gram", counts=(4, 2), means=2)
def gram_of_more_directions_than_rows_leave(t: dict[str, Array], rng: np.random.Generator) -> None:
    t[GRAM] += direction(rng, 0.01)


@impossible("gram", counts=(12, 12))
def gram_with_counts_that_are_too_small(t: dict[str, Array], rng: np.random.Generator) -> None:
    t["class_counts"][:] = rng.integers(1, 2, size=2)
    t["moment.sums"] /= 12


# ------------------------------------------------------------------------------------------ rows that spread too far


def spread(t: dict[str, Array], rng: np.random.Generator, by: float = 1.0) -> None:
    """Move two rows of a class apart; their sum stays."""
    step = by * rng.choice([-1.0, 1.0], size=D)
    step *= np.where(t[MEANS][0] * step >= t[MEANS][1] * step, 1.0, -1.0)
    t[MEANS][0] += step
    t[MEANS][1] -= step


@impossible("client_means", "gram", counts=(6, 6), means=2)
def rows_beyond_the_gram(t: dict[str, Array], rng: np.random.Generator) -> None:
    spread(t, rng, 14.0)


@impossible("client_means", "class_grams", counts=(6, 6), means=2)
def rows_beyond_class_grams(t: dict[str, Array], rng: np.random.Generator) -> None:
    spread(t, rng, 9.0)


@impossible("client_means", "class_squares", counts=(6, 6), means=2)
def rows_beyond_the_squares(t: dict[str, Array], rng: np.random.Generator) -> None:
    spread(t, rng, 9.0)


@impossible("client_means", "class_norms", counts=(6, 6), means=2)
def rows_beyond_the_norms(t: dict[str, Array], rng: np.random.Generator) -> None:
    spread(t, rng, 10.0)


@impossible("client_means", "class_fourths", counts=(4, 6), means=2)
def rows_beyond_the_fourths(t: dict[str, Array], rng: np.random.Generator) -> None:
    spread(t, rng, 7.0)


@impossible("scatter_sketch", counts=(6, 6), means=2, sketch=SketchPlan(None, 3, "float64"))
def rows_beyond_the_trace_of_the_sketch(t: dict[str, Array], rng: np.random.Generator) -> None:
    spread(t, rng, 10.0)


# ------------------------------------------------------------------------------------------ powers of one coordinate


@impossible(*POWERS, counts=(9, 20))
def third_above_the_bound_times_squares(t: dict[str, Array], rng: np.random.Generator) -> None:
    at, n, _, _ = cell(t, rng)
    t["moment.sums"][at], t[SQUARES][at], t[THIRDS][at], t[FOURTHS][at] = 0.0, n, 1.001 * R * n, R**3 * n


@impossible(*POWERS, counts=(9, 20))
def third_below_the_bound_times_squares(t: dict[str, Array], rng: np.random.Generator) -> None:
    at, n, _, _ = cell(t, rng)
    t["moment.sums"][at], t[SQUARES][at], t[THIRDS][at], t[FOURTHS][at] = 0.0, n, -1.001 * R * n, R**3 * n


@impossible("class_squares", "class_thirds", counts=(9, 20))
def third_above_the_bound_without_fourths(t: dict[str, Array], rng: np.random.Generator) -> None:
    at, n, _, _ = cell(t, rng)
    t["moment.sums"][at], t[SQUARES][at], t[THIRDS][at] = 0.0, n, 1.001 * R * n * rng.choice([-1, 1])


@impossible("class_squares", "class_fourths", counts=(100, 90))
def fourth_above_the_bound_times_squares(t: dict[str, Array], rng: np.random.Generator) -> None:
    at, _, _, second = cell(t, rng)
    t[FOURTHS][at] = rng.uniform(1.001, 1.2) * R**2 * second


@impossible(*POWERS, counts=(9, 20))
def hankel_determinant_negative(t: dict[str, Array], rng: np.random.Generator) -> None:
    at, n, first, second = cell(t, rng)
    fourth = float(t[FOURTHS][at])
    radius = np.sqrt((second - first**2 / n) * (fourth - second**2 / n))
    t[THIRDS][at] = first * second / n + rng.choice([-1, 1]) * radius * rng.uniform(1.001, 1.01)


@impossible(*POWERS, counts=(9, 20))
def hankel_determinant_negative_by_the_fourth(t: dict[str, Array], rng: np.random.Generator) -> None:
    at, n, first, second = cell(t, rng)
    left = (float(t[THIRDS][at]) - first * second / n) ** 2 / (second - first**2 / n)
    t[FOURTHS][at] = second**2 / n + left * rng.uniform(0.5, 0.99)


@impossible(*POWERS, counts=(9, 20))
def fourth_below_the_centred_squares(t: dict[str, Array], rng: np.random.Generator) -> None:
    at, n, first, second = cell(t, rng)
    t["moment.sums"][at], t[SQUARES][at] = 2 * n, 5 * n  # mean 2, variance 1
    t[THIRDS][at], t[FOURTHS][at] = 14 * n, 40.9 * n  # centred: third 0, fourth 0.9 instead of 1 or more
    assert 40.9 * n * n > (5 * n) ** 2
    del first, second


@impossible(*POWERS, counts=(40, 60))
def numbers_that_leave_the_bound(t: dict[str, Array], rng: np.random.Generator) -> None:
    at, n, _, _ = cell(t, rng)
    low, high, share = -1.0, 8.5, 0.1  # two atoms, one beyond R = 8: every Hankel condition holds
    weights, atoms = np.array([1 - share, share]) * n, np.array([low, high])
    for name, power in (("moment.sums", 1), (SQUARES, 2), (THIRDS, 3), (FOURTHS, 4)):
        t[name][at] = float(weights @ atoms**power)
    del rng


@impossible("class_squares", "class_thirds", counts=(40, 60))
def numbers_that_leave_the_bound_by_thirds(t: dict[str, Array], rng: np.random.Generator) -> None:
    at, n, _, _ = cell(t, rng)
    weights, atoms = np.array([0.9, 0.1]) * n, np.array([-1.0, 8.5])
    for name, power in (("moment.sums", 1), (SQUARES, 2), (THIRDS, 3)):
        t[name][at] = float(weights @ atoms**power)
    t[THIRDS][at] *= 1.02


@impossible("class_squares", "class_fourths", counts=(40, 60))
def sums_squares_and_fourths_without_a_third(t: dict[str, Array], rng: np.random.Generator) -> None:
    at, n, _, _ = cell(t, rng)  # mean near R forces the fourth close to R²·squares
    t["moment.sums"][at], t[SQUARES][at], t[FOURTHS][at] = 7 * n, 49.5 * n, 49.6**2 * n * rng.uniform(1.2, 1.25)


@impossible("class_fourths", counts=(9, 20))
def fourth_below_what_the_sum_allows(t: dict[str, Array], rng: np.random.Generator) -> None:
    at, n, first, _ = cell(t, rng)
    t["moment.sums"][at] = 2 * n
    t[FOURTHS][at] = 16 * n * rng.uniform(0.5, 0.999)
    del first


@impossible(*POWERS, counts=(2, 9))
def two_samples_with_a_skewness(t: dict[str, Array], rng: np.random.Generator) -> None:
    j = rng.integers(D)
    t[THIRDS][0, j] += 1e-3 * rng.choice([-1, 1])


@impossible("class_squares", "class_fourths", counts=(2, 9))
def two_samples_with_another_fourth(t: dict[str, Array], rng: np.random.Generator) -> None:
    t[FOURTHS][0, rng.integers(D)] *= rng.choice([0.99, 1.01])


@impossible(*POWERS, counts=(3, 9))
def three_samples_with_another_fourth(t: dict[str, Array], rng: np.random.Generator) -> None:
    t[FOURTHS][0, rng.integers(D)] *= rng.choice([0.99, 1.01])


@impossible("class_squares", "class_fourths", counts=(9, 9))
def kurtosis_that_n_numbers_cannot_have(t: dict[str, Array], rng: np.random.Generator) -> None:
    at, _, _, _ = cell(t, rng)
    t["moment.sums"][at], t[SQUARES][at], t[FOURTHS][at] = 0.0, 1.0, rng.uniform(1.01, 60.0)


@impossible("class_squares", "class_thirds", counts=(9, 9))
def skewness_that_n_numbers_cannot_have(t: dict[str, Array], rng: np.random.Generator) -> None:
    at, _, _, _ = cell(t, rng)
    t["moment.sums"][at], t[SQUARES][at], t[THIRDS][at] = 0.0, 1.0, rng.uniform(1.01, 7.9)


@impossible("class_squares", counts=(9, 20))
def squares_below_what_the_sum_allows(t: dict[str, Array], rng: np.random.Generator) -> None:
    at, n, first, _ = cell(t, rng)
    t[SQUARES][at] = first**2 / n * rng.uniform(0.5, 0.999)


# ------------------------------------------------------------------------------------------ powers of all coordinates


@impossible("class_norms", "class_thirds", counts=(9, 20))
def thirds_above_the_norms(t: dict[str, Array], rng: np.random.Generator) -> None:
    t["moment.sums"][1], t[NORMS][1], t[THIRDS][1] = 0.0, 20.0, 20.0 * R * rng.uniform(0.26, 0.9)


@impossible("class_norms", "class_fourths", counts=(9, 20))
def fourths_above_the_norms(t: dict[str, Array], rng: np.random.Generator) -> None:
    t["moment.sums"][1], t[NORMS][1], t[FOURTHS][1] = 0.0, 90.0, 90.0 * R**2 * rng.uniform(0.26, 0.9)


@impossible("class_norms", "class_fourths", counts=(9, 20))
def fourths_below_the_norms(t: dict[str, Array], rng: np.random.Generator) -> None:
    norms = float(t[NORMS][1, 0])
    t["moment.sums"][1], t[FOURTHS][1] = 0.0, norms**2 / (20 * D * D) * rng.uniform(0.5, 0.99)


@impossible("gram", "class_thirds", counts=(9, 20))
def thirds_above_the_gram(t: dict[str, Array], rng: np.random.Generator) -> None:
    t["moment.sums"][:], t[GRAM][:] = 0.0, packed(0.5 * np.eye(D))
    t[THIRDS][:] = 0.0
    t[THIRDS][:, rng.integers(D)] = rng.uniform(2.01, 3.9)


@impossible("gram", "class_fourths", counts=(9, 20))
def fourths_above_the_gram(t: dict[str, Array], rng: np.random.Generator) -> None:
    diagonal = t[GRAM][[0, 2, 5, 9]]
    j = rng.integers(D)
    t[FOURTHS][:, j] = R**2 * diagonal[j] * rng.uniform(0.51, 0.9)


@impossible("gram", "class_thirds", "class_fourths", counts=(9, 20))
def hankel_determinant_with_the_gram_negative(t: dict[str, Array], rng: np.random.Generator) -> None:
    j = int(rng.integers(D))
    n, first, second = 29.0, float(t["moment.sums"][:, j].sum()), float(t[GRAM][[0, 2, 5, 9]][j])
    fourth = float(t[FOURTHS][:, j].sum())
    radius = np.sqrt((second - first**2 / n) * (fourth - second**2 / n))
    t[THIRDS][1, j] = first * second / n + 1.05 * radius - t[THIRDS][0, j]


@impossible("gram", "class_squares", counts=(9, 20))
def squares_of_another_gram(t: dict[str, Array], rng: np.random.Generator) -> None:
    t[SQUARES][:, rng.integers(D)] *= rng.uniform(1.001, 1.2)


@impossible("gram", counts=(9, 20))
def gram_below_what_the_sums_explain(t: dict[str, Array], rng: np.random.Generator) -> None:
    t["moment.sums"] += 60.0 * rng.choice([-1.0, 1.0], size=D) * np.array([[0.0], [1.0]])


# ------------------------------------------------------------------------------------------ sketches

BY_RANK: dict[str, Any] = {"sketch": SketchPlan(None, 3, "float64"), "counts": (12, 12)}


def turn(t: dict[str, Array], vector: Array) -> None:
    """Put the energy of all rows and the residual into one direction; the trace stays."""
    trace = float(np.square(t[SKETCH]).sum() + t["sketch_residual"][0])
    t[SKETCH][:] = 0.0
    t[SKETCH][0] = np.sqrt(trace) * vector / np.linalg.norm(vector)
    t["sketch_residual"][:] = max(trace - float(np.square(t[SKETCH]).sum()), 0.0)


@impossible("scatter_sketch", "class_squares", **BY_RANK)
def sketch_with_more_energy_than_a_coordinate(t: dict[str, Array], rng: np.random.Generator) -> None:
    turn(t, np.eye(D)[rng.integers(D)])


@impossible("scatter_sketch", "gram", **BY_RANK)
def sketch_with_more_energy_than_a_direction_of_the_gram(t: dict[str, Array], rng: np.random.Generator) -> None:
    turn(t, rng.choice([-1.0, 1.0], size=D))


@impossible("scatter_sketch", "class_grams", **BY_RANK)
def sketch_with_more_energy_than_a_direction_of_class_grams(t: dict[str, Array], rng: np.random.Generator) -> None:
    turn(t, rng.choice([-1.0, 1.0], size=D))


@impossible("scatter_sketch", counts=(3, 2), sketch=SketchPlan(None, 4, "float64", share=1.0))
def rows_that_span_everything_and_a_residual(t: dict[str, Array], rng: np.random.Generator) -> None:
    t["sketch_residual"] += rng.uniform(0.01, 1.0)


@impossible("scatter_sketch", counts=(1, 1), sketch=SketchPlan(None, 4, "float64"))
def sketch_of_single_samples(t: dict[str, Array], rng: np.random.Generator) -> None:
    t["sketch_residual"][:] = rng.uniform(0.01, 1.0)


@impossible("scatter_sketch", "class_norms", **BY_RANK)
def sketch_with_another_trace_than_the_norms(t: dict[str, Array], rng: np.random.Generator) -> None:
    t["sketch_residual"] += rng.uniform(0.01, 1.0)


assert set(IMPOSSIBLE) <= set(KINDS)
