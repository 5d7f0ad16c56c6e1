"""Federated evaluation: whole numbers that add up, and nothing else.

A party tests a classifier on its own held-out samples and tells only whole numbers that add up: how many samples were
tested and how many answers were right, how many samples of a class were taken for which (the confusion table), and by
confidence how many answers there were, how many were right, and the sum of their confidences in fixed point; further
a histogram of how probable true classes were (for prediction sets), sums of confidences at other temperatures (to
choose one), histograms that tell how well each class is told from others, and how many answers of a head were right
that was fitted from the party's own samples alone. Sums of whole numbers do not depend on their order. What leaves
is coarse (:mod:`fedmoments.federation.evaluation.coarse`).
"""

from dataclasses import dataclass
from random import SystemRandom
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmoments.core.classifier import Classifier
from fedmoments.core.classifier.ranks import rank_counts
from fedmoments.core.linalg import blocks
from fedmoments.core.statistics.checks import check_labels, check_shape
from fedmoments.errors import InputError, MergeError, RefusedError
from fedmoments.federation.evaluation.arriving import Flaw, check_totals, read_tensors
from fedmoments.federation.evaluation.coarse import (
    coarse_bins,
    coarse_classes,
    coarse_odds,
    coarse_ranks,
    coarse_rows,
    coarse_wrongly,
    rounded_part,
)
from fedmoments.federation.evaluation.figures import Calibration, Evaluation
from fedmoments.federation.evaluation.layout import DENSE, MOST_SAMPLES, N_BINS, ONE, WARMTHS, shapes
from fedmoments.federation.evaluation.separation import odds_counts
from fedmoments.federation.policy import ClientPolicy

__all__ = ["LocalEvaluation"]

Ints = NDArray[np.int64]

MOST_BINS = 1000


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
    tested, found
        (C,) samples of every class, and right answers: right on average where the table leaves out what would tell of
        few samples.
    ranks
        (48,) samples by the probability of their class (:mod:`fedmoments.core.classifier.ranks`).
    warmer
        (17,) sums of confidences at the temperatures `WARMTHS`, in units of 2⁻³².
    wrongly
        (C,) wrong answers by the class that was answered, of these samples.
    odds
        (2, C + 1, 24) samples of a class, and others, by its probability, last of all (see :func:`odds_counts`).
    alone
        (2,) samples tested, and right answers, of a head that was fitted from the party's own samples alone.
    rounded
        (1,) sum over coarse results of their squared unit: how much chance lies in what was added up.

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
    tested: Ints
    found: Ints
    ranks: Ints
    warmer: Ints
    wrongly: Ints
    odds: Ints
    alone: Ints
    rounded: Ints

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
        alone: Classifier | None = None,
        drawn: bool = False,
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
        alone
            A head that was fitted from this party's own samples alone, which is tested beside.
        drawn
            Whether one other class of each sample is counted in `odds`, as in what leaves a party, or all are.
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
            evaluation.odds[:] += odds_counts(_shares(scores, temperature), labels[rows], rows, drawn=drawn)
            if alone is not None:
                right = int((alone.predict(features[rows]) == labels[rows]).sum())
                evaluation.alone[:] += len(rows), right
        evaluation.totals[:] = len(chosen), np.trace(evaluation.confusion)
        evaluation.tested[:], evaluation.found[:] = evaluation.confusion.sum(axis=1), np.diagonal(evaluation.confusion)
        evaluation.wrongly[:] = evaluation.confusion.sum(axis=0) - evaluation.found
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
        return LocalEvaluation(**{name: np.zeros(shape, np.int64) for name, shape in shapes(n_classes, n_bins).items()})

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
        tested, found = coarse_classes(self.confusion, minimum, draw)
        wrongly = coarse_wrongly(self.confusion, tested > 0, minimum, draw)
        odds, tried = coarse_odds(self.odds, minimum, draw), int(self.alone[0])
        own = np.array([tried, rounded_part(int(self.alone[1]), tried, minimum, draw())], np.int64)
        totals, unit = np.array([samples, right], np.int64), np.array([min(minimum, samples) ** 2], np.int64)
        by_class = (tested, found, ranks, warmer, wrongly, odds)
        return LocalEvaluation(cells, *bins, others, totals, *by_class, own * enough, unit)

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
        lighter.rounded[:] = (
            int(self.rounded[0]) * most**2 // claimed**2
        )  # a squared unit, which shrinks with the counts
        if self.ranks.any():  # what rounding took counts as improbable
            lighter.ranks[-1] += most - lighter.ranks.sum()
        return lighter

    def __add__(self, other: "LocalEvaluation") -> "LocalEvaluation":
        if not isinstance(other, LocalEvaluation):
            return NotImplemented
        sizes = [(len(evaluation.confusion), len(evaluation.counts)) for evaluation in (self, other)]
        if sizes[0] != sizes[1]:
            raise MergeError(f"evaluations of (classes, bins) {sizes[0]} and {sizes[1]} cannot be added up")
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
    def accuracy_alone(self) -> float | None:
        """Share of right answers of heads that parties fitted from their own samples alone; None where none told."""
        samples, right = self.alone.tolist()
        return right / samples if samples > 0 else None

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
        totals = (self.n_samples, max(int(self.totals[1]), 0))
        by_class = (self.tested, self.found, totals, self.wrongly, self.odds)
        return Evaluation(names, self.confusion, *by_class, int(self.rounded[0]))

    def calibration(self, temperature: float) -> Calibration:
        """Return the reliability diagram; ``temperature`` is that of the test, and is only noted."""
        sure = np.ldexp(self.confidences.astype(np.float64), -32)
        return Calibration(self.counts, sure, self.hits, temperature, int(self.rounded[0]))

    # ---------------------------------------------------------------------------------------------- as bytes

    def to_bytes(self) -> bytes:
        """Return a safetensors file; pairs of classes without a sample are not in it."""
        from safetensors.numpy import save

        table = np.concatenate([np.column_stack([self.confusion, self.others]).reshape(-1), self.odds.reshape(-1)])
        cells = np.flatnonzero(table).astype(np.int64)
        named = {"cells": cells, "cell_counts": table[cells], **{name: getattr(self, name) for name in DENSE}}
        return bytes(save({name: np.ascontiguousarray(array, "<i8") for name, array in named.items()}))

    def to_vector(self) -> NDArray[np.uint64]:
        """Return what is masked, (51C + 3·bins + 118,) uint64: of the table, samples and right answers of a class."""
        parts = (self.odds.reshape(-1), *(getattr(self, name) for name in DENSE))
        return np.concatenate(parts).astype(np.int64).view(np.uint64)

    @staticmethod
    def from_vector(vector: NDArray[np.uint64], n_classes: int, n_bins: int = N_BINS) -> "LocalEvaluation":
        """Read a sum of what :meth:`to_vector` gave."""
        evaluation = LocalEvaluation.zero(n_classes, n_bins)
        places = (evaluation.odds, *(getattr(evaluation, name) for name in DENSE))
        ends = np.cumsum([place.size for place in places])[:-1]
        for place, part in zip(places, np.split(vector.view(np.int64), ends), strict=True):
            place[:] = part.reshape(place.shape)
        np.fill_diagonal(evaluation.confusion, evaluation.found)
        evaluation.others[:] = evaluation.tested - evaluation.found
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
            evaluation = LocalEvaluation(**read_tensors(data, n_classes, n_bins))
            check_totals(evaluation, noised=noised)
            return evaluation
        except Flaw as flaw:
            whose = f"the evaluation of {f'client {client!r}' if client else 'an unnamed client'}"
            raise RefusedError(flaw.reason, f"{whose} {flaw}; nothing of it was counted", client) from flaw


def _shares(scores: NDArray[np.floating[Any]], temperature: float) -> NDArray[np.float64]:
    """Return softmax(scores / temperature), (n, C), in float64."""
    with np.errstate(over="ignore", under="ignore"):
        shares = np.exp((scores - scores.max(axis=1, keepdims=True)).astype(np.float64) / temperature)
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))


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
