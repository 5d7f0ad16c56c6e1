"""The loss of a linear head under softmax, over blocks of samples, with its gradient and its curvature.

Scores are S = base + Z·W + b. A block has labels, a teacher's scores, or both:

    loss = mean of (1−α)·CE(softmax S, label) + α·T²·KL(softmax(teacher/T) ‖ softmax(S/T))  +  ½·decay·‖W‖²,

which is convex in W and b, and whose slope in a sample's scores is

    ∂/∂S = (1−α)(softmax S − one-hot) + α·T·(softmax(S/T) − softmax(teacher/T)).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.linalg import blocks as slices
from fedmoments.core.softmax.curvature import Curvature
from fedmoments.core.softmax.voices import Voice, label_voice, teacher_voice
from fedmoments.errors import InputError

__all__ = ["Block", "SoftmaxLoss"]

Floats = NDArray[np.floating[Any]]
Wide = NDArray[np.float64]
Gradient = tuple[Wide, Wide]

#: Scores that are worked on at once: few enough to stay in the cache of a core.
AT_ONCE = 1 << 17


@dataclass(frozen=True, eq=False)
class Block:
    """Some samples.

    Parameters
    ----------
    Z
        (m, k) features, float32 or float64; what is computed from them is computed in their type.
    labels
        (m,) labels, or one label for all of them, which is faster; None where only a teacher speaks.
    teacher
        (m, C) scores of a teacher, or None.
    base
        (m, C) scores that the linear part is added to, or None for 0.
    """

    Z: Floats
    labels: NDArray[np.int64] | int | None = None
    teacher: Floats | None = None
    base: Floats | None = None

    def rows(self, rows: slice) -> "Block":
        """Return some of the samples.

        Examples
        --------
        >>> Block(np.zeros((3, 2)), np.array([0, 1, 2])).rows(slice(None, None, 2)).labels
        array([0, 2])
        """
        labels = self.labels[rows] if isinstance(self.labels, np.ndarray) else self.labels
        teacher, base = (None if array is None else array[rows] for array in (self.teacher, self.base))
        return Block(self.Z[rows], labels, teacher, base)


@dataclass(frozen=True, eq=False)
class SoftmaxLoss:
    """Loss and gradient over blocks that can be passed over again and again.

    Parameters
    ----------
    blocks
        Every pass must yield the same samples.
    n_classes
        C.
    present
        (C,) classes that take part; others have probability 0 in the softmax. All by default.
    decay
        Penalty on ½‖W‖², per sample; the bias is free.
    distill
        α, the teacher's share of the loss.
    temperature
        T of the teacher's part.
    every
        Only every so-many-th sample of a block is visited: a thinner set, for a first guess.
    free_bias
        Whether the bias is fitted; if not, its gradient is 0.

    Examples
    --------
    >>> block = Block(np.array([[1.0], [-1.0]]), np.array([0, 1]))
    >>> loss, (weights, bias) = SoftmaxLoss([block], 2)(np.zeros((1, 2)), np.zeros(2))
    >>> round(loss, 4), weights, bias
    (0.6931, array([[-0.5,  0.5]]), array([0., 0.]))
    """

    blocks: Iterable[Block]
    n_classes: int
    present: NDArray[np.bool_] | None = None
    decay: float = 0.0
    distill: float = 0.0
    temperature: float = 1.0
    every: int = 1
    free_bias: bool = True

    @property
    def classes(self) -> NDArray[np.intp]:
        """Labels of the classes that take part."""
        return np.arange(self.n_classes) if self.present is None else np.flatnonzero(self.present)

    @cached_property
    def n_samples(self) -> int:
        """How many samples a pass visits."""
        return sum(len(block.Z[:: self.every]) for block in self.blocks)

    def __call__(self, weights: Wide, bias: Wide) -> tuple[float, Gradient]:
        """Return the mean loss and its gradient with respect to weights (k, C) and bias (C,)."""
        loss, gradient, _ = self.visit(weights, bias)
        return loss, gradient

    def visit(self, weights: Wide, bias: Wide, keep: int = 0) -> tuple[float, Gradient, Curvature]:
        """Return the loss, its gradient and its curvature, in one pass.

        Parameters
        ----------
        weights, bias
            (k, C) and (C,).
        keep
            Every so-many-th sample is kept for the curvature, which is over the classes that take part; none at 0.
        """
        classes = self.classes
        W, b = weights[:, classes], bias[classes]
        loss, n, skipped = 0.0, 0, 0
        grad_w, grad_b = np.zeros(W.T.shape), np.zeros(len(classes))
        curvature = Curvature(self.decay, free_bias=self.free_bias)
        for block in self._chunks(len(classes)):
            voices = self._voices(block, W, b)
            n += len(block.Z)
            if keep:
                kept = block.Z[skipped::keep]
                curvature.n_samples += len(kept)
                curvature.parts += [
                    (kept, voice.probabilities[:, skipped::keep].copy(), voice.share) for voice in voices if len(kept)
                ]
                skipped = (skipped - len(block.Z)) % keep  # the stride goes on where the last chunk ended
            slope = voices[0].slope()
            for voice in voices[1:]:
                slope += voice.slope()
            loss += sum(voice.loss for voice in voices)
            grad_w += slope @ block.Z
            if self.free_bias:
                grad_b += slope.sum(axis=1, dtype=np.float64)
        if n == 0:
            raise InputError("there is no sample to fit a softmax regression to: every block is empty")
        loss = loss / n + 0.5 * self.decay * float(np.einsum("kc,kc->", W, W))
        full_w, full_b = np.zeros_like(weights), np.zeros_like(bias)
        full_w[:, classes], full_b[classes] = grad_w.T / n + self.decay * W, grad_b / n
        return loss, (full_w, full_b), curvature

    def _chunks(self, n_classes: int) -> Iterator[Block]:
        """Yield blocks small enough to be worked on at once, their labels counted among classes that take part."""
        rank = np.full(self.n_classes, -1)
        rank[self.classes] = np.arange(n_classes)
        size = max(AT_ONCE // max(n_classes, 1), 64)
        for whole in self.blocks:
            block = whole if self.every == 1 else whole.rows(slice(None, None, self.every))
            if block.labels is not None:
                block = replace(block, labels=_ranked(block.labels, rank))
            for rows in slices(len(block.Z), size):
                yield block.rows(rows)

    def _voices(self, block: Block, W: Wide, b: Wide) -> list[Voice]:
        """Return what labels and teacher of a block say to the head."""
        label, teacher = block.labels, block.teacher if self.distill > 0 else None
        # Scores less those of the one label of a block: its own are 0, and nothing has to be subtracted later.
        relative = isinstance(label, int) and teacher is None and block.base is None
        if relative:
            W, b = W - W[:, label, None], b - b[label]
        scores = self._scores(block, W, b)
        if teacher is None:
            if label is None:
                raise InputError("a block has neither labels nor a teacher that has a share in the loss")
            return [label_voice(scores, label, 1.0, relative=relative)]
        voices = []
        if label is not None and self.distill < 1.0:
            voices.append(label_voice(scores.copy(), label, 1.0 - self.distill))
        share = 1.0 if label is None else self.distill
        voices.append(teacher_voice(scores, self._of_classes(teacher, scores.dtype), share, self.temperature))
        return voices

    def _scores(self, block: Block, W: Wide, b: Wide) -> Floats:
        """Return the scores (C, m) of a block, with those of the head that is refined."""
        scores: Floats = W.T.astype(block.Z.dtype) @ block.Z.T
        scores += b.astype(block.Z.dtype)[:, None]
        if block.base is not None:
            scores += self._of_classes(block.base, scores.dtype)
        return scores

    def _of_classes(self, scores: Floats, dtype: np.dtype[Any]) -> Floats:
        """Return a copy of scores (m, C) as (C, m), of the classes that take part."""
        columns = scores if self.present is None or self.present.all() else scores[:, self.present]
        return np.array(columns.T, dtype, order="C")


def _ranked(labels: NDArray[np.int64] | int, rank: NDArray[np.intp]) -> NDArray[np.int64] | int:
    """Return labels counted among classes that take part; rank (C,) is −1 for those that do not."""
    given, total = np.asarray(labels), len(rank)
    if given.size and not (given.min() >= 0 and given.max() < total):
        wrong = given[(given < 0) | (given >= total)].flat[0]
        raise InputError(f"labels must be from 0 to {total - 1} ({total} classes), but {wrong} arrived")
    ranked = rank[given]
    if np.any(ranked < 0):
        absent = given[ranked < 0]
        raise InputError(f"samples are labelled {np.unique(absent).tolist()}, of classes that take no part")
    return int(ranked) if ranked.ndim == 0 else ranked
