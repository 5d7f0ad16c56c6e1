"""Federated evaluation: whole numbers that add up, and nothing else.

A party tests a classifier on its own held-out samples and tells only whole numbers that add up: how many samples were
tested and how many answers were right, how many samples of a class were taken for which (the confusion table), and by
confidence how many answers there were, how many were right, and the sum of their confidences in fixed point; further
a histogram of how probable true classes were (for prediction sets), and sums of confidences at other temperatures (to
choose one). Sums of whole numbers do not depend on their order. What leaves is coarse
(:mod:`fedmoments.federation.evaluation.coarse`).
"""

from dataclasses import dataclass
from random import SystemRandom
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmoments.core.classifier import Classifier
from fedmoments.core.classifier.ranks import N_RANKS, rank_counts
from fedmoments.core.linalg import blocks
from fedmoments.core.statistics.checks import check_labels, check_shape
from fedmoments.errors import InputError, MergeError, RefusedError
from fedmoments.federation.evaluation.coarse import coarse_bins, coarse_ranks, coarse_rows, rounded_part
from fedmoments.federation.evaluation.figures import Calibration, Evaluation
from fedmoments.federation.policy import ClientPolicy
from fedmoments.wire import Reason

__all__ = ["N_BINS", "LocalEvaluation"]

Ints = NDArray[np.int64]

N_BINS = 15
MOST_BINS = 1000
#: A confidence of 1 in fixed point.
ONE = 2**32
#: So many samples at most, in all: the sum of their confidences stays within ±2⁶².
MOST_SAMPLES = 2**30
#: Coarse sums of confidences are whole numbers of these: a quarter of an answer.
STEP = ONE // 4
#: Temperatures at which confidences are summed up besides, in those of the test: 1/16 to 16.
WARMTHS = tuple(2.0 ** (power / 2) for power in range(-8, 9))
_TENSORS = ("cells", "cell_counts", "counts", "hits", "confidences", "totals", "ranks", "warmer")
#: What the header of the bytes may take.
_HEADER_BYTES = 4096


@dataclass(frozen=True, eq=False)
class LocalEvaluation:
    """What one party, or several together, tell about a classifier; see the module.

    Build one with :meth:`of`, :meth:`zero`, :meth:`from_bytes` or ``+``.

    Parameters
    ----------
    confusion
        (C, C) samples by true (row) and predicted (column) class.
    counts, hits
        (bins,) answers by confidence in equal bins from 0 to 1, and how many of them were right.
    confidences
        (bins,) sums of confidences, in units of 2⁻³².
    others
        (C,) samples of a class that were taken for classes which are not told; of a class that is told.
    totals
        (2,) samples tested, and right answers, of classes that are told or not.
    ranks
        (48,) samples by the probability of their class (:mod:`fedmoments.core.classifier.ranks`).
    warmer
        (17,) sums of confidences at the temperatures `WARMTHS`, in units of 2⁻³².

    Examples
    --------
    >>> from fedmoments.core.classifier import LinearClassifier
    >>> classifier = LinearClassifier(weights=np.eye(2), bias=np.zeros(2), present=np.array([True, True]))
    >>> here = LocalEvaluation.of(classifier, [[9.0, 0.0]], [0], temperature=1.0)
    >>> there = LocalEvaluation.of(classifier, [[9.0, 0.0], [0.0, 9.0]], [1, 1], temperature=1.0)
    >>> both = here + there
    >>> both.n_samples, round(both.accuracy, 3), both.balanced_accuracy
    (3, 0.667, 0.75)
    >>> both == LocalEvaluation.from_bytes(both.to_bytes(), n_classes=2)
    True
    """

    confusion: Ints
    counts: Ints
    hits: Ints
    confidences: Ints
    others: Ints
    totals: Ints
    ranks: Ints
    warmer: Ints

    # ---------------------------------------------------------------------------------------------- making one

    @staticmethod
    def of(
        classifier: Classifier,
        X: ArrayLike,
        y: ArrayLike,
        temperature: float,
        n_bins: int = N_BINS,
        *,
        min_count: int = 1,
    ) -> "LocalEvaluation":
        """Test a classifier on features X (n, d) with labels y (n,), a block of samples at a time.

        Parameters
        ----------
        classifier
            What is tested.
        X, y
            (n, d) features before the classifier's map, and (n,) labels from 0 to C − 1.
        temperature
            Scores are divided by it before the softmax.
        n_bins
            Into how many bins confidences fall.
        min_count
            Samples of a class with fewer are left out, as if they were not there.
        """
        if not temperature > 0:
            raise InputError(f"temperature must be positive, not {temperature}")
        if not classifier.present.any():
            raise InputError("a classifier that knows no class cannot be tested: fit it on at least one sample")
        features = check_shape(X)
        labels = check_labels(y, len(features), classifier.n_classes)
        chosen = np.flatnonzero(ClientPolicy(min_count=min_count).select(labels)[0])
        evaluation = LocalEvaluation.zero(classifier.n_classes, n_bins)
        table = evaluation.confusion.reshape(-1)
        for block in blocks(len(chosen)):
            rows = chosen[block]
            scores = classifier.scores(features[rows])
            answers = scores.argmax(axis=1)
            np.add.at(table, labels[rows] * classifier.n_classes + answers, 1)
            sure = np.rint(ONE * _confidences(scores, temperature)).astype(np.int64)
            place = np.minimum(sure * n_bins // ONE, n_bins - 1)
            np.add.at(evaluation.counts, place, 1)
            np.add.at(evaluation.hits, place[answers == labels[rows]], 1)
            np.add.at(evaluation.confidences, place, sure)
            evaluation.ranks[:] += rank_counts(_shares_of(scores, labels[rows], temperature))
            evaluation.warmer[:] += [
                int(np.rint(ONE * _confidences(scores, temperature * warmth)).sum()) for warmth in WARMTHS
            ]
        evaluation.totals[:] = len(chosen), np.trace(evaluation.confusion)
        return evaluation

    @staticmethod
    def zero(n_classes: int, n_bins: int = N_BINS) -> "LocalEvaluation":
        """Return the evaluation on no sample: the neutral element of ``+``.

        Examples
        --------
        >>> LocalEvaluation.zero(3).n_samples
        0
        """
        if n_classes < 1 or not 1 <= n_bins <= MOST_BINS:
            raise InputError(
                f"n_classes must be 1 or more and n_bins from 1 to {MOST_BINS}, not {n_classes} and {n_bins}"
            )
        shapes = ((n_classes, n_classes), n_bins, n_bins, n_bins, n_classes, 2, N_RANKS, len(WARMTHS))
        return LocalEvaluation(*(np.zeros(shape, np.int64) for shape in shapes))

    def coarse(self, minimum: int) -> "LocalEvaluation":
        """Return what may leave of one party's results: no count below ``minimum``, told or left over.

        Examples
        --------
        >>> from fedmoments.core.classifier import LinearClassifier
        >>> both = LinearClassifier(weights=np.eye(2), bias=np.zeros(2), present=np.array([True, True]))
        >>> exact = LocalEvaluation.of(both, [[9.0, 0.0]] * 19 + [[0.0, 9.0]], [0] * 20, temperature=1.0)
        >>> exact.totals.tolist(), exact.coarse(5).totals.tolist() in ([20, 20], [20, 15])  # by chance, 4 to 1
        ([20, 19], True)
        """
        if minimum <= 1:
            return self
        draw = SystemRandom().random
        cells, others = coarse_rows(self.confusion, minimum, draw)
        samples, correct = self.totals.tolist()
        told, right = int(cells.sum() + others.sum()), int(np.trace(cells))
        right += rounded_part(correct - right, samples - told, minimum, draw())
        bins = coarse_bins(self.counts, self.hits, self.confidences, minimum=minimum, one=ONE, draw=draw)
        ranks, enough = coarse_ranks(self.ranks, minimum, draw), samples >= minimum
        warmer = (self.warmer + int(draw() * ONE)) // ONE * ONE * enough
        return LocalEvaluation(cells, *bins, others, np.array([samples, right], np.int64), ranks, warmer)

    def noised(self, scale: float) -> "LocalEvaluation":
        """Return how many samples were tested and how many answers were right, with discrete Gaussian noise."""
        from fedmoments.privacy.dp.discrete import discrete_gaussian

        nothing = LocalEvaluation.zero(len(self.confusion), len(self.counts))
        nothing.totals[:] = self.totals + discrete_gaussian(np.full(2, scale))
        return nothing

    def bounded(self, most: int) -> "LocalEvaluation":
        """Return the results with the weight of ``most`` samples, where they claim to be of more."""
        claimed = int(self.totals[0])
        if claimed <= most:
            return self
        lighter = LocalEvaluation(*(array * most // claimed for array in vars(self).values()))
        if self.ranks.any():  # what rounding took counts as improbable
            lighter.ranks[-1] += most - lighter.ranks.sum()
        return lighter

    def __add__(self, other: "LocalEvaluation") -> "LocalEvaluation":
        if not isinstance(other, LocalEvaluation):
            return NotImplemented
        shapes = [(len(evaluation.confusion), len(evaluation.counts)) for evaluation in (self, other)]
        if shapes[0] != shapes[1]:
            raise MergeError(f"evaluations of (classes, bins) {shapes[0]} and {shapes[1]} cannot be added up")
        if max(int(self.counts.sum() + other.counts.sum()), self.n_samples + other.n_samples) > MOST_SAMPLES:
            raise MergeError(f"evaluations of more than {MOST_SAMPLES} samples in all cannot be added up")
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return LocalEvaluation(*(mine + theirs for mine, theirs in pairs))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LocalEvaluation):
            return NotImplemented
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return all(np.array_equal(mine, theirs) for mine, theirs in pairs)

    __hash__ = None  # type: ignore[assignment]

    # ---------------------------------------------------------------------------------------------- figures

    @property
    def n_samples(self) -> int:
        """How many samples were tested."""
        return max(int(self.totals[0]), 0)

    @property
    def accuracy(self) -> float:
        """Share of samples whose class was found."""
        return self.evaluation().accuracy

    @property
    def balanced_accuracy(self) -> float:
        """Mean accuracy over the classes that were tested."""
        return self.evaluation().balanced_accuracy

    @property
    def expected_error(self) -> float:
        """Expected calibration error: |confidence − accuracy|, averaged over answers."""
        return self.calibration(1.0).expected_error

    def evaluation(self, class_names: tuple[str, ...] = ()) -> Evaluation:
        """Return the confusion table with class names; the label numbers as text by default."""
        names = class_names or tuple(map(str, range(len(self.confusion))))
        return Evaluation(names, self.confusion, self.others, (self.n_samples, max(int(self.totals[1]), 0)))

    def calibration(self, temperature: float) -> Calibration:
        """Return the reliability diagram; ``temperature`` is that of the test, and is only noted."""
        return Calibration(self.counts, np.ldexp(self.confidences.astype(np.float64), -32), self.hits, temperature)

    # ---------------------------------------------------------------------------------------------- as bytes

    def to_bytes(self) -> bytes:
        """Return a safetensors file; pairs of classes without a sample are not in it."""
        from safetensors.numpy import save

        table = np.column_stack([self.confusion, self.others]).reshape(-1)
        cells = np.flatnonzero(table).astype(np.int64)
        bins = (self.counts, self.hits, self.confidences)
        arrays = (cells, table[cells], *bins, self.totals, self.ranks, self.warmer)
        named = dict(zip(_TENSORS, arrays, strict=True))
        return bytes(save({name: np.ascontiguousarray(array, "<i8") for name, array in named.items()}))

    def to_vector(self) -> NDArray[np.uint64]:
        """Return what is masked, (2 + 2C + 3·bins + 65,) uint64: of the table, samples and right answers of a class."""
        right = np.diagonal(self.confusion)
        told = self.confusion.sum(axis=1) + self.others
        parts = (self.totals, told, right, self.counts, self.hits, self.confidences, self.ranks, self.warmer)
        return np.concatenate(parts).astype(np.int64).view(np.uint64)

    @staticmethod
    def from_vector(vector: NDArray[np.uint64], n_classes: int, n_bins: int = N_BINS) -> "LocalEvaluation":
        """Read a sum of what :meth:`to_vector` gave."""
        evaluation = LocalEvaluation.zero(n_classes, n_bins)
        sizes = [2, n_classes, n_classes, n_bins, n_bins, n_bins, N_RANKS]
        parts = np.split(vector.view(np.int64), np.cumsum(sizes))
        np.fill_diagonal(evaluation.confusion, parts[2])
        evaluation.others[:] = parts[1] - parts[2]
        bins = (evaluation.counts, evaluation.hits, evaluation.confidences)
        places = (evaluation.totals, *bins, evaluation.ranks, evaluation.warmer)
        for place, part in zip(places, (parts[0], *parts[3:]), strict=True):
            place[:] = part
        return evaluation

    @staticmethod
    def from_bytes(
        data: bytes, n_classes: int, n_bins: int = N_BINS, *, client: str | None = None, noised: bool = False
    ) -> "LocalEvaluation":
        """Read what :meth:`to_bytes` wrote, believing nothing of it.

        Parameters
        ----------
        data
            The bytes that arrived.
        n_classes, n_bins
            C and the number of bins that were agreed on.
        client
            Who sent them, for the message.
        noised
            Whether noise lies on the totals, which are then all there is.

        Raises
        ------
        RefusedError
            With the reason's code, when these are not counts that a test can have given.

        Examples
        --------
        >>> LocalEvaluation.from_bytes(b"?" * 9999, n_classes=2)
        Traceback (most recent call last):
        fedmoments.errors.RefusedError: oversized: the evaluation of an unnamed client has 9999 bytes, ...
        """
        try:
            return _read(data, LocalEvaluation.zero(n_classes, n_bins), noised=noised)
        except _Flaw as flaw:
            whose = f"the evaluation of {f'client {client!r}' if client else 'an unnamed client'}"
            raise RefusedError(flaw.reason, f"{whose} {flaw}; nothing of it was counted", client) from flaw


class _Flaw(Exception):  # noqa: N818 - never leaves this module
    """What is wrong with bytes that arrived."""

    def __init__(self, reason: Reason, text: str) -> None:
        super().__init__(text)
        self.reason = reason


def _confidences(scores: NDArray[np.floating[Any]], temperature: float) -> NDArray[np.float64]:
    """Return the largest softmax(scores / temperature) of every row, (n,); float64 from 1 / C to 1."""
    with np.errstate(over="ignore"):  # a score far below the best counts nothing
        below = (scores - scores.max(axis=1, keepdims=True)) / temperature
    return np.asarray(1.0 / np.exp(below).sum(axis=1, dtype=np.float64))


def _shares_of(scores: NDArray[np.floating[Any]], labels: Ints, temperature: float) -> NDArray[np.float64]:
    """Return softmax(scores / temperature) of the class (n,) that is requested each row."""
    own = scores[np.arange(len(labels)), labels].astype(np.float64) - scores.max(axis=1)
    with np.errstate(under="ignore"):
        return np.asarray(np.exp(own / temperature) * _confidences(scores, temperature))


def _read(data: bytes, evaluation: LocalEvaluation, *, noised: bool) -> LocalEvaluation:
    """Fill an evaluation on no sample with the bytes' numbers, once they are known to be sound."""
    n_classes, n_bins = len(evaluation.confusion), len(evaluation.counts)
    tensors = _tensors(data, n_classes, n_bins)
    _check_counts(tensors, n_classes * (n_classes + 1))
    table = np.zeros((n_classes, n_classes + 1), np.int64)
    table.reshape(-1)[tensors["cells"]] = tensors["cell_counts"]
    evaluation.confusion[:], evaluation.others[:] = table[:, :-1], table[:, -1]
    for name in ("counts", "hits", "confidences", "totals", "ranks", "warmer"):
        getattr(evaluation, name)[:] = tensors[name]
    if (np.abs(evaluation.totals) > MOST_SAMPLES).any():
        raise _Flaw(Reason.INCONSISTENT, f"is of more than {MOST_SAMPLES} samples")
    if not noised:
        _check_totals(evaluation)
    elif any(array.any() for name, array in vars(evaluation).items() if name != "totals"):
        raise _Flaw(Reason.INCONSISTENT, "tells more than two noised numbers, which is all that was requested")
    return evaluation


def _check_counts(tensors: dict[str, Ints], n_cells: int) -> None:
    """Refuse places and counts that no table has; the last cell of a row: samples taken for classes not told."""
    cells = tensors["cells"]
    if len(cells) and (cells[0] < 0 or cells[-1] >= n_cells or (cells[1:] <= cells[:-1]).any()):
        raise _Flaw(Reason.LABELS, f"holds cells that do not ascend from 0 to {n_cells - 1}")
    if (tensors["cell_counts"] < 1).any():
        raise _Flaw(Reason.NEGATIVE_COUNT, "holds a cell of the confusion table with a count below 1")
    for name in ("cell_counts", "counts", "hits", "ranks"):
        if (tensors[name] < 0).any() or (tensors[name] > MOST_SAMPLES).any():
            raise _Flaw(Reason.NEGATIVE_COUNT, f"holds {name} that are not from 0 to {MOST_SAMPLES}")


def _tensors(data: bytes, n_classes: int, n_bins: int) -> dict[str, Ints]:
    """Return the named arrays, of the agreed type and shape."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    allowed = 16 * n_classes * (n_classes + 1) + 24 * n_bins + 8 * (N_RANKS + len(WARMTHS)) + _HEADER_BYTES
    if len(data) > allowed:
        raise _Flaw(Reason.OVERSIZED, f"has {len(data)} bytes, more than the {allowed} that {n_classes} classes need")
    try:
        tensors: dict[str, NDArray[Any]] = load(bytes(data))
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise _Flaw(Reason.BODY, f"is not a safetensors file ({error})") from error
    if set(tensors) != set(_TENSORS):
        raise _Flaw(Reason.BODY, f"holds {sorted(tensors)} where {sorted(_TENSORS)} were expected")
    length = tensors["cells"].shape[:1] or (0,)
    shapes = [length, length, (n_bins,), (n_bins,), (n_bins,), (2,), (N_RANKS,), (len(WARMTHS),)]
    for name, shape in zip(_TENSORS, shapes, strict=True):
        array = tensors[name]
        if array.dtype != np.int64:
            raise _Flaw(Reason.DTYPE, f"holds {name} of type {array.dtype}, not int64")
        if array.shape != shape:
            raise _Flaw(Reason.SHAPE, f"holds {name} of shape {array.shape}, not {shape}")
    return tensors


def _check_totals(evaluation: LocalEvaluation) -> None:
    """Refuse numbers that no test gives together, coarse or not."""
    samples, correct = evaluation.totals.tolist()
    rows, right = int(evaluation.confusion.sum() + evaluation.others.sum()), int(np.trace(evaluation.confusion))
    answers, hits = int(evaluation.counts.sum()), int(evaluation.hits.sum())
    if not (0 <= correct <= samples and max(rows, answers) <= samples and right <= correct):
        raise _Flaw(
            Reason.INCONSISTENT,
            f"tells of {samples} samples, {correct} of them right, but of {rows} and {right} class by class and of "
            f"{answers} answers",
        )
    if correct - right > samples - rows or (evaluation.hits > evaluation.counts).any() or hits > samples:
        raise _Flaw(Reason.INCONSISTENT, "holds hits that do not agree with its answers and its confusion table")
    if evaluation.ranks.sum() not in (0, samples):
        raise _Flaw(Reason.INCONSISTENT, f"ranks {int(evaluation.ranks.sum())} of {samples} samples")
    if ((evaluation.warmer < 0) | (evaluation.warmer > samples * ONE + STEP)).any():
        raise _Flaw(Reason.OUT_OF_RANGE, f"has sums of confidences that {samples} samples cannot have")
    _check_bins(evaluation)


def _check_bins(evaluation: LocalEvaluation) -> None:
    """Refuse sums of confidences that the answers of a bin cannot have."""
    n_bins = len(evaluation.counts)
    least = [-(-place * ONE // n_bins) for place in range(n_bins + 1)]  # that falls into a bin
    for place, (count, sure) in enumerate(
        zip(evaluation.counts.tolist(), evaluation.confidences.tolist(), strict=True)
    ):
        most = ONE if place == n_bins - 1 else least[place + 1] - 1
        if not count * least[place] - STEP <= sure <= count * most + STEP or (sure and not count):
            raise _Flaw(Reason.OUT_OF_RANGE, f"has {count} answers in bin {place} with confidences of another bin")
