"""Laws of federated evaluation: parts add up to the whole bit for bit, and bytes that no test gave are refused."""

import struct
from collections.abc import Callable
from functools import reduce
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from safetensors.numpy import load, save

from fedmoments.core.classifier import LinearClassifier
from fedmoments.errors import InputError, MergeError, RefusedError
from fedmoments.federation.evaluation import N_BINS, LocalEvaluation
from fedmoments.federation.evaluation.layout import DENSE, MOST_SAMPLES
from fedmoments.samples.features import Samples
from fedmoments.study.simulation import evaluate
from fedmoments.study.simulation.fit import calibrate
from fedmoments.wire import Reason

C = 4


def classifier_of(n_classes: int, absent: int | None = None) -> LinearClassifier:
    """A classifier whose probabilities are softmax(x / temperature)."""
    present = np.arange(n_classes) != (-1 if absent is None else absent)
    return LinearClassifier(weights=np.eye(n_classes), bias=np.zeros(n_classes), present=present)


def draw(n: int, seed: int, n_classes: int = C) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    rng = np.random.default_rng(seed)
    return rng.normal(scale=2.0, size=(n, n_classes)), rng.integers(0, n_classes, n)


def total_of(parts: list[LocalEvaluation]) -> LocalEvaluation:
    return reduce(LocalEvaluation.__add__, parts, LocalEvaluation.zero(C))


@given(st.integers(0, 2**32), st.integers(0, 80), st.integers(1, 9), st.floats(0.2, 9.0), st.randoms())
def test_parts_in_any_order_add_up_to_the_whole_bit_for_bit(
    seed: int, n: int, parties: int, temperature: float, random: Random
) -> None:
    X, y = draw(n, seed)
    made = classifier_of(C, absent=seed % (C + 1))
    whole = LocalEvaluation.of(made, X, y, temperature)
    owner = np.random.default_rng(seed + 1).integers(0, parties, n)
    parts = [LocalEvaluation.of(made, X[owner == k], y[owner == k], temperature) for k in range(parties)]
    random.shuffle(parts)
    assert total_of(parts) == whole
    assert total_of(parts).to_bytes() == whole.to_bytes()
    assert LocalEvaluation.from_bytes(whole.to_bytes(), C) == whole


@given(st.integers(0, 2**32), st.integers(1, 200), st.floats(0.2, 9.0))
def test_figures_are_those_of_a_naive_loop(seed: int, n: int, temperature: float) -> None:
    X, y = draw(n, seed)
    found = LocalEvaluation.of(classifier_of(C), X, y, temperature)
    hits = [int(x.argmax()) == label for x, label in zip(X, y, strict=True)]
    assert found.n_samples == n
    assert found.accuracy == pytest.approx(np.mean(hits))
    by_class = [np.mean([hit for hit, label in zip(hits, y, strict=True) if label == c]) for c in np.unique(y)]
    assert found.balanced_accuracy == pytest.approx(np.mean(by_class))
    confidence = [float((np.exp(x / temperature) / np.exp(x / temperature).sum()).max()) for x in X]
    assert float(found.confidences.sum() / 2**32) == pytest.approx(sum(confidence), abs=n * (2.0**-33 + 1e-14))
    assert found.hits.sum() == sum(hits)


def test_simulation_gives_the_same_figures() -> None:
    X, y = draw(500, 3)
    made = classifier_of(C)
    found, whole = LocalEvaluation.of(made, X, y, 2.0), evaluate(made, Samples(X, y))
    np.testing.assert_array_equal(found.confusion, whole.table)
    figures = found.evaluation(made.class_names).to_dict()
    assert {**figures, "macro_auc": None, "micro_auc": None} == whole.to_dict()  # which looks at answers alone
    assert found.calibration(2.0).reliability() == calibrate(made, X, y, temperature=2.0).reliability()


@given(st.lists(st.integers(0, C - 1), max_size=40), st.integers(1, 6))
def test_classes_with_too_few_samples_are_left_out_whole(labels: list[int], min_count: int) -> None:
    y = np.array(labels, np.int64)
    X = np.random.default_rng(0).normal(size=(len(y), C))
    found = LocalEvaluation.of(classifier_of(C), X, y, 1.0, min_count=min_count)
    counts = np.bincount(y, minlength=C)
    expected = np.where(counts >= min_count, counts, 0)
    np.testing.assert_array_equal(found.confusion.sum(axis=1), expected)
    keep = np.isin(y, np.flatnonzero(expected))
    assert found == LocalEvaluation.of(classifier_of(C), X[keep], y[keep], 1.0)


def test_more_samples_than_a_block_and_float32() -> None:
    X, y = draw(9000, 5)
    made = classifier_of(C)
    once = LocalEvaluation.of(made, X[:3000].astype(np.float32), y[:3000], 1.0)
    thrice = LocalEvaluation.of(made, np.tile(X[:3000], (3, 1)).astype(np.float32), np.tile(y[:3000], 3), 1.0)
    assert once + once + once == thrice


@pytest.mark.parametrize("temperature", [1e-300, 1e-3, 1.0, 1e300])
def test_any_temperature_gives_sound_bytes(temperature: float) -> None:
    X, y = draw(100, 6)
    found = LocalEvaluation.of(classifier_of(C, absent=2), 1e3 * X, y, temperature)
    assert LocalEvaluation.from_bytes(found.to_bytes(), C) == found
    assert found.n_samples == 100


def test_a_tie_is_counted_once_for_the_class_that_is_predicted() -> None:
    """Scores that differ but whose probabilities do not: hits and confusion table must tell the same story."""
    X, y = np.array([[0.0, 1e-17], [0.0, 1.0]]), np.array([1, 1])
    found = LocalEvaluation.of(classifier_of(2), X, y, 1e9)
    assert found.hits.sum() == np.trace(found.confusion) == 2


def test_nothing_tested_is_the_neutral_element() -> None:
    zero = LocalEvaluation.zero(C)
    assert (zero.n_samples, zero.accuracy, zero.balanced_accuracy, zero.expected_error) == (0, 0.0, 0.0, 0.0)
    X, y = draw(7, 0)
    found = LocalEvaluation.of(classifier_of(C), X, y, 1.0)
    assert zero + found == found == found + zero
    assert zero != found
    assert LocalEvaluation.from_bytes(zero.to_bytes(), C) == zero


def test_what_cannot_be_tested_or_added_says_so() -> None:
    X, y = draw(3, 0)
    nobody = LinearClassifier(weights=np.eye(C), bias=np.zeros(C), present=np.zeros(C, np.bool_))
    with pytest.raises(InputError, match="temperature must be positive, not 0"):
        LocalEvaluation.of(classifier_of(C), X, y, 0.0)
    with pytest.raises(InputError, match="knows no class"):
        LocalEvaluation.of(nobody, X, y, 1.0)
    with pytest.raises(InputError, match="labels must be from 0 to 3"):
        LocalEvaluation.of(classifier_of(C), X, [0, 1, 4], 1.0)
    with pytest.raises(InputError, match="n_bins from 1 to 1000, not 4 and 0"):
        LocalEvaluation.of(classifier_of(C), X, y, 1.0, 0)
    with pytest.raises(MergeError, match=r"\(4, 15\) and \(3, 15\)"):
        LocalEvaluation.zero(4) + LocalEvaluation.zero(3)
    with pytest.raises(MergeError, match=r"\(4, 15\) and \(4, 10\)"):
        LocalEvaluation.zero(4) + LocalEvaluation.zero(4, 10)
    many = LocalEvaluation.zero(1)
    many.counts[-1] = many.confusion[0, 0] = many.totals[0] = MOST_SAMPLES
    with pytest.raises(MergeError, match="more than 1073741824 samples"):
        many + many


def test_absent_pairs_cost_no_bytes() -> None:
    X, y = draw(20, 1, n_classes=300)
    found = LocalEvaluation.of(classifier_of(300), X, y, 1.0, drawn=True)
    assert len(found.to_bytes()) < 12_000 < 300 * 300


# ---------------------------------------------------------------------------------------------- refusals

Tensors = dict[str, NDArray[np.int64]]


def sound() -> Tensors:
    X, y = draw(60, 2)
    return {
        name: array.copy() for name, array in load(LocalEvaluation.of(classifier_of(C), X, y, 1.0).to_bytes()).items()
    }


def changed(name: str, place: int, by: int) -> Callable[[Tensors], None]:
    def change(tensors: Tensors) -> None:
        tensors[name][place] += by

    return change


def put(name: str, array: Callable[[NDArray[np.int64]], NDArray[np.generic]]) -> Callable[[Tensors], None]:
    def change(tensors: Tensors) -> None:
        tensors[name] = array(tensors[name])  # type: ignore[assignment]

    return change


def wrapping_cells(tensors: Tensors) -> None:
    """Differences of neighbours are all positive in 64 bits, but the cells do not ascend."""
    tensors["cells"] = np.array([0, 2**62, -(2**63) + 100, 5])
    tensors["cell_counts"] = np.full(4, 15)


def swapped(tensors: Tensors) -> None:
    tensors["cells"][:2] = tensors["cells"][1::-1]


def moved_to_the_diagonal(tensors: Tensors) -> None:
    """As many samples as before, but more right ones than there are hits."""
    wrong = int(np.argmax(tensors["cells"] % (C + 2) != 0))
    right = int(np.argmax(tensors["cells"] % (C + 2) == 0))
    tensors["cell_counts"][wrong] -= 1
    tensors["cell_counts"][right] += 1


def more_hits_than_answers(tensors: Tensors) -> None:
    tensors["hits"][int(np.argmax(tensors["hits"]))] -= 1
    tensors["hits"][int(np.argmin(tensors["counts"]))] += 1


def full(tensors: Tensors) -> None:
    """Sound but for its size: each count is allowed, their sum is not."""
    right = np.arange(C) * (C + 2)
    tensors["cells"], tensors["cell_counts"] = right, np.full(C, MOST_SAMPLES)
    for name in ("tested", "found", "wrongly", "counts", "hits", "confidences"):
        tensors[name][:] = 0
    tensors["counts"][-4:] = tensors["hits"][-4:] = MOST_SAMPLES
    tensors["confidences"][-4:] = (np.arange(11, 15) * 2 + 1) * (MOST_SAMPLES * 2**31 // 15)


REFUSED: list[tuple[Reason, Callable[[Tensors], object]]] = [
    (Reason.BODY, lambda tensors: tensors.pop("hits")),
    (Reason.BODY, lambda tensors: tensors.update(names=np.zeros(1, np.int64))),
    (Reason.DTYPE, put("counts", lambda array: array.astype(np.float64))),
    (Reason.DTYPE, put("cells", lambda array: array.astype(np.int32))),
    (Reason.DTYPE, put("hits", lambda array: array.astype(np.uint64))),
    (Reason.SHAPE, put("counts", lambda array: np.append(array, 0))),
    (Reason.SHAPE, put("hits", lambda array: array[:, None])),
    (Reason.SHAPE, put("cells", lambda array: np.array(3))),
    (Reason.SHAPE, put("cell_counts", lambda array: array[1:])),
    (Reason.LABELS, changed("cells", -1, C * (C + 1))),
    (Reason.LABELS, changed("cells", 0, -1)),
    (Reason.LABELS, swapped),
    (Reason.LABELS, wrapping_cells),
    (Reason.NEGATIVE_COUNT, changed("cell_counts", 0, -60)),
    (Reason.NEGATIVE_COUNT, changed("cell_counts", 0, 2**62)),
    (Reason.NEGATIVE_COUNT, changed("counts", 0, -1)),
    (Reason.NEGATIVE_COUNT, changed("hits", 0, -1)),
    (Reason.INCONSISTENT, changed("cell_counts", 0, 1)),
    (Reason.INCONSISTENT, changed("counts", -1, 1)),
    (Reason.INCONSISTENT, changed("totals", 0, -1)),
    (Reason.INCONSISTENT, changed("totals", 1, 1)),
    (Reason.INCONSISTENT, changed("totals", 0, 2**62)),
    (Reason.INCONSISTENT, moved_to_the_diagonal),
    (Reason.INCONSISTENT, more_hits_than_answers),
    (Reason.INCONSISTENT, full),
    (Reason.INCONSISTENT, changed("wrongly", 0, 61)),
    (Reason.INCONSISTENT, changed("found", 0, 60)),
    (Reason.INCONSISTENT, changed("tested", 0, 1)),
    (Reason.INCONSISTENT, changed("alone", 0, 61)),
    (Reason.INCONSISTENT, changed("alone", 1, 1)),
    (Reason.INCONSISTENT, changed("cell_counts", -1, 500)),
    (Reason.NEGATIVE_COUNT, changed("wrongly", 0, -61)),
    (Reason.NEGATIVE_COUNT, changed("rounded", 0, -1)),
    (Reason.NEGATIVE_COUNT, changed("rounded", 0, 2**31)),
    (Reason.INCONSISTENT, changed("rounded", 0, 60**2 + 1)),
    (Reason.INCONSISTENT, put("warmer", lambda array: array[::-1].copy())),
    (Reason.OUT_OF_RANGE, changed("confidences", -1, 2**40)),
    (Reason.OUT_OF_RANGE, changed("confidences", -1, -(2**62))),
    (Reason.OUT_OF_RANGE, changed("confidences", 0, 1)),
]


@pytest.mark.parametrize(("reason", "change"), REFUSED)
def test_numbers_that_no_test_gives_are_refused(reason: Reason, change: Callable[[Tensors], object]) -> None:
    tensors = sound()
    assert LocalEvaluation.from_bytes(save(tensors), C).n_samples == 60
    change(tensors)
    with pytest.raises(RefusedError, match="the evaluation of client 'clinic'") as refused:
        LocalEvaluation.from_bytes(save(tensors), C, client="clinic")
    assert (refused.value.reason, refused.value.client) == (reason, "clinic")


@pytest.mark.parametrize("place", [0, 5, N_BINS - 1])
def test_confidences_lie_in_their_bin_to_a_quarter_of_an_answer(place: int) -> None:
    """Three answers in one bin, all with the least or the most confidence that falls into it, or rounded from there."""
    units = np.arange(N_BINS + 1) * 2**32
    least, most = -(-units[place] // N_BINS), -(-units[place + 1] // N_BINS) - (place < N_BINS - 1)
    for sure, by in ((least, -(2**30) - 1), (most, 2**30 + 1)):
        found = LocalEvaluation.zero(C)
        found.confusion[0, 1] = found.counts[place] = found.totals[0] = 3
        found.confidences[place] = 3 * sure
        assert LocalEvaluation.from_bytes(found.to_bytes(), C) == found
        found.confidences[place] += by
        with pytest.raises(RefusedError, match=f"3 answers in bin {place} with confidences of another bin"):
            LocalEvaluation.from_bytes(found.to_bytes(), C)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", Reason.BODY),
        (b"\x80\x04K\x01.", Reason.BODY),
        (struct.pack("<Q", 2**63) + b"{}", Reason.BODY),
        (save({"cells": np.zeros(3, np.int64)}), Reason.BODY),
        (bytes(16 * (C * (C + 49) + 48) + 24 * N_BINS + 8 * (3 * C + 70) + 4096 + 1), Reason.OVERSIZED),
    ],
)
def test_bytes_that_are_no_evaluation_are_refused(data: bytes, reason: Reason) -> None:
    with pytest.raises(RefusedError) as refused:
        LocalEvaluation.from_bytes(data, C)
    assert refused.value.reason == reason


def test_bins_and_classes_are_those_that_were_agreed_on() -> None:
    data = LocalEvaluation.zero(C, 10).to_bytes()
    assert LocalEvaluation.from_bytes(data, C, 10).n_samples == 0
    with pytest.raises(RefusedError, match=r"counts of shape \(10,\), not \(15,\)"):
        LocalEvaluation.from_bytes(data, C)


def test_mutated_bytes_are_refused_or_are_sound() -> None:
    """Flip, cut, repeat or insert bytes of a sound evaluation: a reason each time, or counts that agree."""
    rng = np.random.default_rng(0)
    data = save(sound())
    refused, reasons = 0, set[str]()
    for _ in range(2000):
        mutant = bytearray(data)
        for _ in range(rng.integers(1, 4)):
            place, kind = int(rng.integers(0, len(mutant))), int(rng.integers(0, 4))
            if kind == 0:
                mutant[place] ^= 1 << int(rng.integers(0, 8))
            elif kind == 1:
                del mutant[place:]
            elif kind == 2:
                mutant[place:place] = bytes(rng.integers(0, 256, 3, dtype=np.uint8))
            else:
                mutant += mutant[place:]
            if not mutant:
                break
        try:
            found = LocalEvaluation.from_bytes(bytes(mutant), C)
        except RefusedError as error:
            refused += 1
            reasons.add(error.reason)
        else:
            assert found.confusion.sum() + found.others.sum() <= found.totals[0]
            assert np.trace(found.confusion) <= found.totals[1] <= found.totals[0]
            assert (found.hits <= found.counts).all()
    assert refused > 1900
    assert {Reason.BODY, Reason.INCONSISTENT} < reasons <= set(Reason)


# -------------------------------------------------------------------------------------------------- coarse


@given(st.integers(0, 2**32), st.integers(0, 200), st.integers(2, 9), st.integers(1, 6))
def test_no_count_of_few_samples_is_told_or_left_over(seed: int, n: int, minimum: int, n_classes: int) -> None:
    X, y = draw(n, seed, n_classes)
    exact = LocalEvaluation.of(classifier_of(n_classes), X, y, 1.0)
    told = exact.coarse(minimum)
    rows, right = told.confusion.sum(axis=1) + told.others, np.diagonal(told.confusion)
    left = [told.totals[0] - told.counts.sum()]
    if n >= minimum:  # all samples together are what nobody hides
        left += [told.totals[0] - rows.sum()] if (exact.evaluation().class_counts >= minimum).all() else []
    left += [told.totals[0] - told.tested.sum()] if n >= minimum else []
    parts = [
        told.tested,
        told.found,
        told.tested - told.found,
        told.confusion,
        told.counts,
        told.others,
        rows - right,
        told.hits,
        told.counts - told.hits,
        np.array(left),
    ]
    for numbers in parts:
        assert ((numbers == 0) | (numbers >= minimum) | (numbers == n)).all()
    for part in (told.totals[1], told.totals[0] - told.totals[1]):
        assert part == 0 or part >= min(minimum, n)
    diagonal = np.eye(n_classes, dtype=bool)
    assert ((told.confusion == 0) | (told.confusion == exact.confusion))[diagonal].all()
    assert (told.confusion <= exact.confusion).all()
    assert not (told.confusion[~diagonal] % minimum).any()
    assert LocalEvaluation.from_bytes(told.to_bytes(), n_classes) == told
    masked = LocalEvaluation.from_vector(told.to_vector(), n_classes)
    assert all(np.array_equal(getattr(masked, name), getattr(told, name)) for name in (*DENSE, "odds"))


def test_coarse_results_are_right_on_average() -> None:
    X, y = draw(90, 11)
    exact = LocalEvaluation.of(classifier_of(C), X, y, 1.0)
    parts = [LocalEvaluation.of(classifier_of(C), X[k::12], y[k::12], 1.0) for k in range(12)]  # 7 or 8 samples each
    drawn = [sum(int(part.coarse(5).totals[1]) for part in parts) for _ in range(400)]
    assert abs(np.mean(drawn) - exact.totals[1]) < 4 * np.std(drawn) / 20 + 1e-9
    assert np.std(drawn) > 0


def test_a_small_party_cannot_make_the_figures_of_all_too_uncertain_to_be_told() -> None:
    """A party of 60 of 2,060 samples that said to be rounded to 2¹⁵ left no AUC and no closed-form temperature."""
    X, y = draw(2000, 3)
    others = LocalEvaluation.of(classifier_of(C), X, y, 1.0, drawn=True).coarse(5)
    own = LocalEvaluation.of(classifier_of(C), *draw(60, 4), 1.0, drawn=True)
    assert 0 < others.rounded[0] <= 60**2
    for claimed in (60, 2**15):  # samples: more are scaled to what it contributed
        tensors = {name: array.copy() for name, array in load(own.to_bytes()).items()}
        tensors["totals"][0] = claimed
        tensors["ranks"][-1] += claimed - 60
        tensors["rounded"][:] = min(claimed**2, MOST_SAMPLES)
        spoiling = LocalEvaluation.from_bytes(save(tensors), C).bounded(60)
        assert int(spoiling.rounded[0]) <= 60**2
        assert not np.isnan((others + spoiling).evaluation().micro_area)
    assert LocalEvaluation.zero(C).coarse(5).rounded[0] == 0


def test_a_claim_counts_for_no_more_than_was_contributed() -> None:
    X, y = draw(60, 3)
    found = LocalEvaluation.of(classifier_of(C), X, y, 1.0)
    assert found.bounded(60) == found
    half = found.bounded(30)
    assert (half.n_samples, half.totals[1]) == (30, found.totals[1] // 2)
    assert abs(half.accuracy - found.accuracy) < 0.04
