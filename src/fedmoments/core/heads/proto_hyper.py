"""Proto-Hyper (GH-OFL): a low-rank linear residual over a Gaussian base, distilled from a Gaussian teacher.

In the Fisher subspace, student(z) = base(z) + V₂U₁z, the base being naive Bayes, LDA or QDA, is fitted to synthetic
samples z ~ N(μ_c, τ²Σ̃_c), the same number of every class:

    minimise mean of α·T²·KL(softmax(teacher/T) ‖ softmax(student/T)) + (1−α)·CE(softmax(student), c) + ½·decay·‖V₂U₁‖².

The teacher blends scores, w·LDA + (1−w)·QDA. Samples are narrower than their classes, by τ, so the fit is of scores
divided by τ², and the residual that it finds is multiplied by it. The residual has no bias, and no priors enter the
fit: base and teacher score balanced samples, and the classes' priors are added to what comes out. With r ≥ min(k, C)
the product V₂U₁ is any matrix and the problem convex: Newton's method solves it from V₂U₁ = 0, the base. Below,
quasi-Newton on the factors continues from the best approximation of rank r.

A linear term on a Gaussian score is a Gaussian score with another mean, so that a student is a classifier of its base's
kind.

The pooled covariance is the identity in the subspace. Without class covariances naive Bayes and QDA *are* LDA there:
the teacher is the base, and teaches nothing. That is said in a warning, and the LDA teacher is used.

``proto-hyper-scaled`` is fitted from the gram and class squares, as GH-OFL's tables price it, with the teacher
0.7·LDA + 0.3·NB. It does not help: PACS 87.3, CIFAR-10 70.6, BANKING77 90.1 per cent, which is LDA's (87.2, 70.6,
90.1); class grams bring 91.1 on BANKING77 and nothing on the others (three seeds, as in ``fishermix``).

What the linear residual cannot undo is a quadratic base that is wrong. On CIFAR-10/SqueezeNet QDA with classes' own
covariances is 1.3 points below LDA, and Proto-Hyper over it 0.6 below; so a quadratic base is pooled by half or more,
as QDA is, and then ends at LDA's accuracy or above. Over LDA, class covariances only draw and teach, and need less.
"""

import math
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.classifier import Classifier, DiagonalClassifier, LinearClassifier, QuadraticClassifier
from fedmoments.core.gaussian import (
    ClassGaussians,
    FisherClasses,
    GaussianSamples,
    Pooling,
    Shrinkage,
    covariance_source,
)
from fedmoments.core.gaussian.class_gaussians import check_priors
from fedmoments.core.gaussian.fisher import parse_directions
from fedmoments.core.gaussian.fisher_classes import check_spread, richest_classes
from fedmoments.core.gaussian.sources import RICHEST
from fedmoments.core.gaussian.synthesis import check_draw, parse_spread_factors, spread_text
from fedmoments.core.heads.head import Head
from fedmoments.core.heads.registry import Preset
from fedmoments.core.softmax import Block, SoftmaxLoss, fit_low_rank, fit_softmax
from fedmoments.core.statistics import Statistics, StatisticsSpec
from fedmoments.errors import FitWarning, InputError, NotEnoughDataError

__all__ = ["PRESETS", "ProtoHyper", "automatic_rank"]

Floats = NDArray[np.float64]

#: A first solution is sought on every so-many-th sample; the solver stops at this share of the sampling noise.
THIN, NOISE = 8, 0.1
#: Floating-point operations in a pass that are worth a warning: some ten minutes of a core.
MUCH = 1e13
#: Beyond it, a teacher says no more than "all classes alike".
MOST_SOFTNESS = 1e6


def automatic_rank(n_classes: int) -> int:
    """Return GH-OFL's rank: 16 up to 10 classes, 128 from 100 on, and in between as many times more as C is.

    Examples
    --------
    >>> automatic_rank(10), automatic_rank(77), automatic_rank(100), automatic_rank(1000)
    (16, 101, 128, 128)
    """
    return round(16.0 * math.pow(min(max(n_classes, 10), 100) / 10.0, math.log10(8.0)))


@dataclass(frozen=True)
class ProtoHyper(Head):
    """A Gaussian base with a linear residual that is distilled from a Gaussian teacher.

    Parameters
    ----------
    base
        ``lda``, ``nb`` or ``qda``, in the Fisher subspace.
    covariance
        ``richest``: that of class grams, for which this head asks; fitted from statistics without them it takes the
        best that these hold: the gram and class squares, the gram, client means, class squares. Or one of these by
        name: ``exact``, ``scaled`` (correlations of the gram, class variances), ``diagonal``, ``spherical``, ``free``
        (client means), ``sketch`` and ``sketch:SHARE`` (scatter sketches; with the spread ``pooled`` alone).
    spread
        ``class``: every class has its own covariance (``exact`` then needs class grams); ``pooled``: all have the
        pooled one, and the teacher teaches nothing; ``diagonal``: each has its own variances in the subspace alone.
    shrinkage
        Of the pooled and every class covariance; see :class:`fedmoments.Shrinkage`.
    directions
        Of the Fisher subspace: at most so many, ``all``, ``energy:SHARE``, or ``automatic`` (GH-OFL: 99.5 % of the
        energy, at most 256), which can cost accuracy: what tells similar classes apart carries little energy.
    pooling
        What a class covariance takes from the pooled one; see :class:`fedmoments.core.gaussian.Pooling`.
        ``automatic`` is that of QDA for the bases ``nb`` and ``qda``, and borrows k/4 degrees of freedom for ``lda``.
    rank
        Of the residual: ``automatic`` (:func:`automatic_rank`) or a number from 1; never more than min(k, C).
    teacher
        ``qda``, ``nb`` or ``lda``, blended with LDA.
    teacher_lda
        w, LDA's share in the teacher's scores.
    distill
        α, the teacher's share in the loss.
    softness
        T, the temperature of the teacher's part.
    tau
        Standard deviations are multiplied by it: one number, or a text with one a class (``"0.8,0.9,1"``).
    samples
        Synthetic samples a class, an even number.
    draw_seed
        Of the synthetic samples; the same seed gives the same head, bit for bit.
    decay
        Penalty on ½‖V₂U₁‖².
    priors
        ``data``: classes are as frequent as in the data; ``balanced``: all equally.
    most_bytes
        Samples with their scores that take more are not held but made again in every pass. No bit of the head changes.

    Examples
    --------
    >>> X, y = np.array([[0.0, 0.0], [2.0, 0.1], [0.1, 5.0], [2.0, 5.1]]), [0, 0, 1, 1]
    >>> stats = Statistics.of(X, y, StatisticsSpec.of("class_grams"), n_classes=2)
    >>> ProtoHyper(samples=100).fit(stats).predict([[1.0, 1.0], [1.0, 4.0]])
    array([0, 1])
    """

    slow = True

    base: str = "lda"
    covariance: str = RICHEST
    spread: str = "class"
    shrinkage: Shrinkage | str | float = "automatic"
    directions: str | int = 256
    pooling: Pooling | str | float = "automatic"
    rank: str | int = "automatic"
    teacher: str = "qda"
    teacher_lda: float = 0.7
    distill: float = 0.4
    softness: float = 4.0
    tau: str | float = 0.9
    samples: int = 4000
    draw_seed: int = 0
    decay: float = 5e-4
    priors: str = "data"
    most_bytes: int = 1 << 29

    def __post_init__(self) -> None:
        covariance_source(self.covariance)
        Shrinkage.parse(self.shrinkage)
        parse_directions(self.directions)
        Pooling.parse(self.pooling)
        object.__setattr__(self, "tau", spread_text(self.tau))
        parse_spread_factors(self.tau)
        check_spread(self.spread)
        check_draw(self.samples, self.draw_seed)
        check_priors(self.priors)
        for name, value in (("base", self.base), ("teacher", self.teacher)):
            if value not in ("lda", "nb", "qda"):
                raise InputError(f"{name} is one of lda, nb, qda; '{value}' arrived")
        if self.rank != "automatic" and not (str(self.rank).isdecimal() and int(self.rank) >= 1):
            raise InputError(f"rank is automatic or a whole number from 1; '{self.rank}' arrived")
        for name, share in (("teacher_lda", self.teacher_lda), ("distill", self.distill)):
            if not 0.0 <= share <= 1.0:
                raise InputError(f"{name} is a share from 0 to 1; {share} arrived")
        if not (0.0 < self.softness <= MOST_SOFTNESS and 0.0 <= self.decay < math.inf):
            raise InputError(
                f"softness is a positive number up to {MOST_SOFTNESS:g} and decay one from 0; {self.softness} and "
                f"{self.decay} arrived"
            )

    @property
    def needs(self) -> StatisticsSpec:
        source = covariance_source(self.covariance)
        return source.pooled_needs if self.spread == "pooled" else source.class_needs

    def suited(self, spec: StatisticsSpec) -> Head:
        covariance, spread = richest_classes(self.covariance, self.spread, spec)
        return replace(self, covariance=covariance, spread=spread)

    def solve(self, stats: Statistics) -> Classifier:
        gaussians = ClassGaussians(stats, self.covariance)
        least = self.base == "lda" and Pooling.parse(self.pooling).kind == "automatic"
        classes = FisherClasses.of(
            gaussians,
            spread=self.spread,
            shrinkage=self.shrinkage,
            directions=self.directions,
            pooling="quarter" if least else self.pooling,
        )
        fisher, present = classes.subspace, classes.present
        bias = gaussians.prior_scores(self.priors, self.shrinkage)
        if not fisher.dim:  # no class differs from another, and priors decide alone
            weights = np.zeros((stats.dim, stats.n_classes))
            return LinearClassifier(weights=weights, bias=bias, offset=fisher.offset, present=present)
        base = _rule(self.base, classes)
        flat = gaussians.least(self.shrinkage) > 0.0  # samples would be the class means, and all rules agree on them
        residual = np.zeros((fisher.dim, stats.n_classes)) if flat else self._residual(classes, base)
        if isinstance(base, LinearClassifier):
            weights, bias = fisher.basis @ (base.weights + residual), base.bias + bias
            return LinearClassifier(weights=weights, bias=bias, offset=fisher.offset, present=present)
        student = base.plus_linear(residual)
        return replace(student, offset=fisher.offset, basis=fisher.basis, bias=student.bias + bias)

    def _residual(self, classes: FisherClasses, base: "_Rule") -> Floats:
        """Return the weights (k, C) that are added to the base."""
        means = classes.subspace.means
        n_classes, dim = means.shape
        tau = parse_spread_factors(self.tau, n_classes)
        samples = GaussianSamples(
            means, classes.covariances, tau, classes.present, self.samples, self.draw_seed, self.most_bytes
        )
        teacher = self._teacher(classes)
        rules = {self.base: base} | {kind: _rule(kind, classes) for kind in ("lda", teacher) if kind != self.base}
        narrowed = float(np.mean(tau[classes.present] ** 2))
        taught = _Taught(samples, rules, self.base, teacher, self.teacher_lda, narrowed, self.most_bytes)
        work = 2.0 * samples.shape[0] * np.count_nonzero(classes.present) * dim**2
        if "qda" in rules and not taught.held and work > MUCH:
            warnings.warn(
                f"Proto-Hyper's QDA scores of {samples.shape[0]:,} samples take {work / 1e12:.3g} TFLOP in every pass, "
                f"because they do not fit into most_bytes={self.most_bytes}: use fewer samples (now {self.samples} a "
                "class), fewer directions, or fishermix",
                FitWarning,
                stacklevel=5,
            )
        loss = SoftmaxLoss(taught, n_classes, classes.present, self.decay, self.distill, self.softness, free_bias=False)
        fit = fit_softmax(loss, np.zeros((dim, n_classes)), np.zeros(n_classes), thin=THIN, noise=NOISE)
        n_present = int(np.count_nonzero(classes.present))
        rank = automatic_rank(n_present) if self.rank == "automatic" else int(self.rank)
        return narrowed * (fit if rank >= min(dim, n_present) else fit_low_rank(loss, fit, rank)).weights

    def _teacher(self, classes: FisherClasses) -> str:
        """Return what LDA is blended with to be the teacher: itself, where nothing else is to be had."""
        if self.teacher == "lda" or self.teacher_lda == 1.0 or self.distill == 0.0:
            return "lda"
        if classes.differ:
            return self.teacher
        why = "with spread='pooled'" if self.spread == "pooled" else "where no class has two samples (or rows)"
        warnings.warn(
            f"Proto-Hyper's teacher teaches nothing: {why} all classes have the pooled covariance, which is the "
            f"identity in the Fisher subspace, so that '{self.teacher}' is LDA there and a blend of the two is the "
            "base. The LDA teacher is used. For a teacher that knows more, measure class grams (or more rows of client "
            "means) and fit with spread='class'.",
            FitWarning,
            stacklevel=5,
        )
        return "lda"


_Rule = LinearClassifier | DiagonalClassifier | QuadraticClassifier


def _rule(kind: str, classes: FisherClasses) -> _Rule:
    """Return a Gaussian rule in the subspace, for classes that are equally frequent."""
    means, covariances, present = classes.subspace.means, classes.covariances, classes.present
    offset = np.zeros(means.shape[1])
    if kind == "lda":
        bias = -0.5 * np.einsum("ck,ck->c", means, means)
        return LinearClassifier(weights=means.T, bias=bias, present=present)
    if kind == "nb":
        variances = np.einsum("ckk->ck", covariances)
        bias = -0.5 * np.log(variances).sum(axis=1)
        return DiagonalClassifier(offset=offset, means=means, precisions=1.0 / variances, bias=bias, present=present)
    try:
        whiteners = np.linalg.inv(np.linalg.cholesky(covariances))
    except np.linalg.LinAlgError:
        raise NotEnoughDataError(
            "the covariance of a class is singular in the Fisher subspace: use more pooling or more shrinkage"
        ) from None
    whiteners = np.tril(whiteners)
    bias = np.log(np.einsum("ckk->ck", whiteners)).sum(axis=1)
    return QuadraticClassifier(offset=offset, means=means, whiteners=whiteners, bias=bias, present=present)


@dataclass(frozen=True, eq=False)
class _Taught:
    """Synthetic samples as blocks with a label and scores of base and teacher, as sharp as the samples are narrow."""

    samples: GaussianSamples
    rules: dict[str, _Rule]
    base: str
    teacher: str
    teacher_lda: float
    narrowed: float
    most_bytes: int

    def __iter__(self) -> Iterator[Block]:
        return iter(self._blocks if self.held else self._made())

    @property
    def held(self) -> bool:
        """Whether samples and scores are made once and held in memory."""
        rows, dim = self.samples.shape
        numbers = rows * (dim + 2 * len(self.samples.present))
        return numbers * self.samples.dtype.itemsize <= self.most_bytes

    @cached_property
    def _blocks(self) -> list[Block]:
        return list(self._made())

    def _made(self) -> Iterable[Block]:
        for label, rows in self.samples:
            said = {kind: rule.scores(rows) for kind, rule in self.rules.items()}
            teacher = said["lda"]
            if self.teacher != "lda":
                teacher = self.teacher_lda * teacher + (1.0 - self.teacher_lda) * said[self.teacher]
            base = said[self.base] / self.narrowed
            yield Block(rows, label, np.asfortranarray(teacher / self.narrowed), np.asfortranarray(base))


PRESETS = (
    Preset(
        "proto-hyper", ProtoHyper, "LDA with a residual distilled on synthetic samples, class covariances", "GH-OFL"
    ),
    Preset(
        "proto-hyper-scaled",
        ProtoHyper,
        "LDA with a residual distilled on synthetic samples, pooled correlations and class variances",
        "GH-OFL",
        {"covariance": "scaled", "teacher": "nb"},
    ),
    Preset(
        "proto-hyper-free",
        ProtoHyper,
        "LDA with a residual distilled on synthetic samples, free covariances of client means",
        "new here, after GH-OFL and FedCOF",
        {"covariance": "free", "priors": "balanced"},
    ),
)
