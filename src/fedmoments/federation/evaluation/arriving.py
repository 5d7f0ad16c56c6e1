"""Bytes of a test's results as they arrive: nothing of them is believed before it was checked."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.federation.evaluation.layout import DENSE, MOST_SAMPLES, ONE, STEP, shapes
from fedmoments.wire import Reason

if TYPE_CHECKING:
    from fedmoments.federation.evaluation.local import LocalEvaluation

__all__ = ["Flaw", "check_totals", "read_tensors"]

Ints = NDArray[np.int64]

#: What the header of the bytes may take.
_HEADER_BYTES = 4096
#: Arrays of counts that are neither negative nor larger than any test.
COUNTS = ("cell_counts", "tested", "found", "counts", "hits", "ranks", "wrongly", "alone", "rounded")


class Flaw(Exception):  # noqa: N818 - never leaves this package
    """What is wrong with bytes that arrived."""

    def __init__(self, reason: Reason, text: str) -> None:
        super().__init__(text)
        self.reason = reason


def read_tensors(data: bytes, n_classes: int, n_bins: int) -> dict[str, Ints]:
    """Return the arrays of an evaluation by name, each of the agreed type and shape, with sound places and counts."""
    expected = shapes(n_classes, n_bins)
    n_odds = int(np.prod(expected["odds"]))
    tensors = _tensors(data, expected, n_cells := n_classes * (n_classes + 1) + n_odds)
    _check_counts(tensors, n_cells)
    table = np.zeros(n_cells, np.int64)
    table[tensors["cells"]] = tensors["cell_counts"]
    rows, odds = table[:-n_odds].reshape(n_classes, n_classes + 1), table[-n_odds:].reshape(expected["odds"])
    dense = {name: tensors[name].copy() for name in DENSE}
    return {"confusion": rows[:, :-1].copy(), "others": rows[:, -1].copy(), "odds": odds.copy(), **dense}


def _check_counts(tensors: dict[str, Ints], n_cells: int) -> None:
    """Refuse places and counts that no table has; the last cell of a row: samples taken for classes not told."""
    cells = tensors["cells"]
    if len(cells) and (cells[0] < 0 or cells[-1] >= n_cells or (cells[1:] <= cells[:-1]).any()):
        raise Flaw(Reason.LABELS, f"holds cells that do not ascend from 0 to {n_cells - 1}")
    if (tensors["cell_counts"] < 1).any():
        raise Flaw(Reason.NEGATIVE_COUNT, "holds a cell of its tables with a count below 1")
    for name in COUNTS:
        if (tensors[name] < 0).any() or (tensors[name] > MOST_SAMPLES).any():
            raise Flaw(Reason.NEGATIVE_COUNT, f"holds {name} that are not from 0 to {MOST_SAMPLES}")


def _tensors(data: bytes, expected: dict[str, tuple[int, ...]], n_cells: int) -> dict[str, Ints]:
    """Return the named arrays, of the agreed type and shape."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    named = {name: expected[name] for name in DENSE}
    allowed = 16 * n_cells + 8 * sum(sum(shape) for shape in named.values()) + _HEADER_BYTES
    if len(data) > allowed:
        raise Flaw(Reason.OVERSIZED, f"has {len(data)} bytes, more than the {allowed} that its classes need")
    try:
        tensors: dict[str, NDArray[Any]] = load(bytes(data))
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise Flaw(Reason.BODY, f"is not a safetensors file ({error})") from error
    wanted = {"cells", "cell_counts", *named}
    if set(tensors) != wanted:
        raise Flaw(Reason.BODY, f"holds {sorted(tensors)} where {sorted(wanted)} were expected")
    length = tensors["cells"].shape[:1] or (0,)
    for name, shape in {"cells": length, "cell_counts": length, **named}.items():
        array = tensors[name]
        if array.dtype != np.int64:
            raise Flaw(Reason.DTYPE, f"holds {name} of type {array.dtype}, not int64")
        if array.shape != shape:
            raise Flaw(Reason.SHAPE, f"holds {name} of shape {array.shape}, not {shape}")
    return tensors


def check_totals(evaluation: "LocalEvaluation", *, noised: bool) -> None:
    """Refuse numbers that no test gives together, coarse or not; of a noised one, all but two numbers."""
    if (np.abs(evaluation.totals) > MOST_SAMPLES).any():
        raise Flaw(Reason.INCONSISTENT, f"is of more than {MOST_SAMPLES} samples")
    if not noised:
        _check_sums(evaluation)
    elif any(array.any() for name, array in vars(evaluation).items() if name != "totals"):
        raise Flaw(Reason.INCONSISTENT, "contains more than the two noised numbers that were requested")


def _check_sums(evaluation: "LocalEvaluation") -> None:
    samples, correct = evaluation.totals.tolist()
    rows, right = int(evaluation.confusion.sum() + evaluation.others.sum()), int(np.trace(evaluation.confusion))
    answers, hits = int(evaluation.counts.sum()), int(evaluation.hits.sum())
    if not (0 <= correct <= samples and max(rows, answers) <= samples and right <= correct):
        raise Flaw(
            Reason.INCONSISTENT,
            f"tells of {samples} samples, {correct} of them right, but of {rows} and {right} class by class and of "
            f"{answers} answers",
        )
    if correct - right > samples - rows or (evaluation.hits > evaluation.counts).any() or hits > samples:
        raise Flaw(Reason.INCONSISTENT, "holds hits that do not agree with its answers and its confusion table")
    if evaluation.ranks.sum() not in (0, samples):
        raise Flaw(Reason.INCONSISTENT, f"ranks {int(evaluation.ranks.sum())} of {samples} samples")
    _check_warmer(evaluation.warmer, samples)
    if int(evaluation.rounded[0]) > samples**2:
        # Else a node of a few samples makes all figures of all others too uncertain to be told.
        raise Flaw(Reason.INCONSISTENT, f"is rounded to more than the {samples} samples that it is of")
    _check_bins(evaluation)
    _check_odds(evaluation, samples)


def _check_warmer(sums: Ints, samples: int) -> None:
    """Refuse sums of confidences, one for each temperature, ascending, that no samples have."""
    if ((sums < 0) | (sums > samples * ONE + STEP)).any():
        raise Flaw(Reason.OUT_OF_RANGE, f"has sums of confidences that {samples} samples cannot have")
    if (np.diff(sums) > STEP).any():
        raise Flaw(Reason.INCONSISTENT, "is more confident at higher temperatures, as no answers are")


def _check_bins(evaluation: "LocalEvaluation") -> None:
    """Refuse sums of confidences that the answers of a bin cannot have."""
    n_bins = len(evaluation.counts)
    least = [-(-place * ONE // n_bins) for place in range(n_bins + 1)]  # that falls into a bin
    for place, (count, sure) in enumerate(
        zip(evaluation.counts.tolist(), evaluation.confidences.tolist(), strict=True)
    ):
        most = ONE if place == n_bins - 1 else least[place + 1] - 1
        if not count * least[place] - STEP <= sure <= count * most + STEP or (sure and not count):
            raise Flaw(Reason.OUT_OF_RANGE, f"has {count} answers in bin {place} with confidences of another bin")


def _check_odds(evaluation: "LocalEvaluation", samples: int) -> None:
    """Refuse answers by class, and comparisons, of more samples than were tested; rounded, at most twice as many."""
    tried, right = evaluation.alone.tolist()
    own, other = np.maximum(evaluation.odds[:, :-1].sum(axis=(1, 2)), evaluation.odds[:, -1].sum(axis=1)).tolist()
    tested, found = evaluation.tested, evaluation.found
    if tested.sum() > samples or (found > tested).any():
        raise Flaw(Reason.INCONSISTENT, f"has more right answers of a class than samples, or of {samples} in all")
    possible = own <= 2 * samples and other <= 2 * samples * max(len(evaluation.confusion) - 1, 1)
    if (evaluation.wrongly > samples).any() or not possible or not right <= tried <= samples:
        raise Flaw(Reason.INCONSISTENT, f"compares more answers than {samples} samples have")
