"""``auto-free``, ``auto-exact``: head and shrinkage chosen by clients held out, from statistics that were sent anyway.

No test data, and no extra round. The clients are dealt to folds; every candidate (head × amount of shrinkage,
``core.gaussian.candidates``) is fitted from the other folds' statistics and tried on deviations of the fold's
client means, put on the class means (:mod:`fedmoments.core.gaussian.trials`). The candidate that gets most trials right
over all folds is fitted from all clients.

- A class that the other folds do not hold has the mean of all clients: only its covariance is at stake.
- Class shares are those of all clients.
- Every head has a default, the automatic amount (of an exact covariance: the shrinkage of the evidence, which is not
  chosen by clients held out). Another amount is chosen if it is better by two standard errors of the difference over
  folds: in few folds it would win by chance too often.
- The first of the heads is the default. Another is chosen if it is better by two standard errors and two points.
  Trials are Gaussian with one covariance, as LDA believes: they prefer it to ridge by up to two points where the
  covariance is poor, and samples do not.

With a single client, or with no class at two clients, nothing can be tried; nor with two clients' means alone, because
the one that is left has no covariance. Then the default is taken, or the nearest mean where there is no covariance at
all; the notes say so. Heads on scatter sketches need no such search (``heads.automatic``).

The estimated accuracy that the notes hold is that of the trials with deviations of the right length. It is too high as
a rule: see :mod:`fedmoments.core.gaussian.trials`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedmoments.core.classifier import Classifier, LinearClassifier
from fedmoments.core.gaussian import ClassGaussians, Scatter, covariance_source
from fedmoments.core.gaussian.candidates import (
    BY_EVIDENCE,
    FACTORS,
    Candidate,
    Key,
    exact_training_scatter,
    nearest_rules,
    shrunk_rules,
    total_rules,
)
from fedmoments.core.gaussian.class_gaussians import check_priors, require_classes
from fedmoments.core.gaussian.held_out import held_out_folds
from fedmoments.core.gaussian.linear_rules import Centres, LinearRule, lda_rule
from fedmoments.core.gaussian.trials import Tally, Trials
from fedmoments.core.heads.head import Head
from fedmoments.core.heads.registry import Preset
from fedmoments.core.statistics import Statistics, StatisticsSpec
from fedmoments.errors import InputError, NotEnoughDataError

__all__ = ["PRESETS", "Choose"]

#: Standard errors by which another amount, or another head, must be better than the default.
LEAD = 2.0
#: Share of the trials by which another head must be better besides.
MARGIN = 0.02
#: Scores of columns of unit length read as log-probabilities when they are this many times as large.
UNIT_SHARPNESS = 10.0
#: Why a default was taken.
FLAT = "samples of a class do not differ, where LDA is the nearest class mean"
NOT_TRIED = "the default, because no client can be held out with enough others left to learn a covariance from"


@dataclass(frozen=True)
class Choose(Head):
    """The head and the amount of shrinkage that get most right of clients held out.

    The notes of the classifier (``info``) hold what was ``chosen``, its amount as ``shrinkage`` or ``ridge``, the
    ``estimated_accuracy`` and the ``criterion`` in words.

    Parameters
    ----------
    covariance
        ``free`` (client means alone) or ``exact`` (client means and the gram).
    heads
        Which heads to choose from, with commas: ``lda``, ``ridge``, ``ncm``, and ``total`` (Fed3R's ridge, only of
        ``exact``). The first is the default, and one alone has its shrinkage chosen.
    folds
        How many folds clients are dealt to; fewer where there are fewer clients.
    priors
        Of LDA: ``data`` or ``balanced``.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> y = np.arange(400) % 4
    >>> X = rng.normal(size=(400, 5)) + 2.0 * rng.normal(size=(4, 5))[y]
    >>> spec = StatisticsSpec.of("client_means")
    >>> parts = [Statistics.of(X[k::20], y[k::20], spec, n_classes=4) for k in range(20)]
    >>> classifier = Choose(covariance="free", heads="lda").fit(Statistics.merge(parts))
    >>> classifier.info["chosen"], classifier.info["shrinkage"] > 0
    ('lda', True)
    """

    slow = True

    covariance: str = "free"
    heads: str = "ridge,lda,ncm"
    folds: int = 5
    priors: str = "data"

    #: Covariances that clients can be held out of.
    SOURCES: ClassVar[tuple[str, ...]] = ("free", "exact")
    #: Heads that can be chosen.
    HEADS: ClassVar[tuple[str, ...]] = ("lda", "ridge", "total", "ncm")

    def __post_init__(self) -> None:
        check_priors(self.priors)
        if self.covariance not in self.SOURCES:
            raise InputError(f"covariance is free or exact for a choice; '{self.covariance}' arrived")
        wrong = [name for name in self._heads if name not in self.HEADS]
        if wrong or not self.heads:
            raise InputError(
                f"heads to choose from are {', '.join(self.HEADS)}, one or more with commas; '{self.heads}' arrived"
            )
        if "total" in self._heads and self.covariance != "exact":
            raise InputError(
                f"total (ridge on the total scatter) is chosen from exact covariances alone, not from '"
                f"{self.covariance}': take it off the heads"
            )
        if self.folds < 2:
            raise InputError(f"clients are held out in 2 folds or more; folds={self.folds} arrived")

    @property
    def _heads(self) -> tuple[str, ...]:
        return tuple(self.heads.split(","))

    @property
    def needs(self) -> StatisticsSpec:
        return covariance_source(self.covariance).pooled_needs | StatisticsSpec.of("client_means")

    def solve(self, stats: Statistics) -> Classifier:
        require_classes(stats, self.needs, type(self).__name__)
        gaussians = ClassGaussians(stats, self.covariance)
        centres = Centres(gaussians.means, gaussians.counts / stats.n_samples)
        if self.covariance == "exact" and gaussians.scatter.dof > 0:
            gaussians.pooled_covariance()  # warns where rounding has taken its digits
        if gaussians.flat and gaussians.least() > 0.0 and "lda" in self._heads:
            rule = lda_rule(centres, centres.columns / gaussians.least(), "balanced")
            return _classifier(rule).noting(chosen="lda", criterion=FLAT)
        tally = self._try(stats, centres)
        key, criterion = self._choose(tally) if tally.weights else (None, NOT_TRIED)
        candidate, rule = self._fitted(stats, centres, key)
        estimate = {"estimated_accuracy": tally.estimate(key)} if key else {}
        amount = {candidate.kind: candidate.amount} if candidate.kind else {}
        return _classifier(rule, 1.0 if candidate.head == "lda" else UNIT_SHARPNESS).noting(
            chosen=candidate.head,
            **amount,
            **estimate,
            criterion="; ".join(filter(None, (candidate.setting, criterion))),
        )

    def score_degree(self, classifier: Classifier) -> int:
        return 0 if classifier.info["chosen"] == "lda" else 1

    def _try(self, stats: Statistics, centres: Centres) -> Tally:
        """Try all candidates in all folds."""
        tally = Tally()
        for held in held_out_folds(stats, self.folds):
            counts = held.training.counts
            means = held.training.sums / np.maximum(counts, 1)[:, None]
            trained = Centres(np.where((counts > 0)[:, None], means, centres.means), centres.shares)
            trials = Trials.of(held, centres.shares)
            rules = self._rules(stats, held.training, trained)
            right = {candidate.key: trials.right(rule, trained.means) for candidate, rule in rules}
            if {head for head, *_ in right} == set(self._heads):  # a fold without a covariance tells nothing
                tally.add(trials, right)
        return tally

    def _choose(self, tally: Tally) -> tuple[Key, str]:
        """Return the best candidate, and why it is."""
        amounts = [tally.best([key for key in tally.right if key[0] == head], LEAD) for head in self._heads]
        best = tally.best(amounts, LEAD, MARGIN)
        others = [key for key in amounts if key != best]
        told = [f"{_name(key)} {100 * (tally.accuracy(key) - tally.accuracy(best)):+.1f} points" for key in others]
        kept = ", which is not enough to leave the default" if any("+" in each for each in told) else ""
        return best, (
            f"against it {', '.join(told) or 'nothing else was tried'}{kept}; judged by trials around "
            f"{sum(tally.weights)} means of clients held out in {len(tally.weights)} folds: no test accuracies"
        )

    def _fitted(self, stats: Statistics, centres: Centres, key: Key | None) -> tuple[Candidate, LinearRule]:
        """Return a candidate, or without a key the default one, fitted from all clients."""
        if key is None:
            rules = self._rules(stats, stats, centres, self._heads, (None,))
        else:
            rules = self._rules(stats, stats, centres, (key[0],), (key[2],))
        for fitted in rules:
            return fitted
        raise NotEnoughDataError(
            f"no class has two samples (or two rows of client means) to measure a covariance from, which {self.heads} "
            "need: add ncm to the heads to choose from, or send more means per client"
        )

    def _rules(
        self,
        stats: Statistics,
        training: Statistics,
        centres: Centres,
        heads: tuple[str, ...] = (),
        factors: tuple[float | None, ...] = (),
    ) -> Iterator[tuple[Candidate, LinearRule]]:
        """Yield candidates from some contributions: all, or some heads with some factors (None: automatic)."""
        heads = heads or self._heads
        if heads != ("ncm",):
            if self.covariance == "exact":
                scatter: Scatter = exact_training_scatter(stats, training)
                n_samples: float = scatter.weight + len(training.classes)
            else:
                scatter, n_samples = _free(training), training.n_samples
            every, default = (FACTORS, 1.0) if self.covariance == "free" else ((BY_EVIDENCE,), BY_EVIDENCE)
            times = tuple(default if factor is None else factor for factor in factors) or every
            yield from shrunk_rules(scatter, centres, n_samples, heads=heads, priors=self.priors, factors=times)
            if "total" in heads:
                yield from total_rules(scatter, centres, n_samples)
        if "ncm" in heads:
            yield from nearest_rules(centres)


def _classifier(rule: LinearRule, sharpness: float = 1.0) -> LinearClassifier:
    weights = np.ascontiguousarray(sharpness * rule.weights)
    return LinearClassifier(weights=weights, bias=sharpness * rule.bias, offset=rule.offset, present=rule.present)


def _free(training: Statistics) -> Scatter:
    return ClassGaussians(training, "free").scatter


def _name(key: Key) -> str:
    head, kind, factor = key
    if factor == BY_EVIDENCE:
        return head
    return f"{head} ({factor:g} × automatic)" if kind == "shrinkage" else head


_NEW = "new here, after FedCOF"

PRESETS = (
    Preset(
        "auto-free",
        Choose,
        "ridge (FedCOF), LDA or nearest mean on client means alone, chosen by clients held out",
        _NEW,
    ),
    Preset(
        "auto-exact",
        Choose,
        "LDA, ridge (within or total) or nearest mean on the gram, chosen by clients held out",
        _NEW,
        {"covariance": "exact", "heads": "lda,ridge,total,ncm"},
    ),
)
