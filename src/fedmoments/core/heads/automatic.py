"""``auto``: which head on scatter sketches, decided in closed form from what was sent anyway.

No test data, no extra round, no search. Three questions, in this order:

1. Does any class have a spread? If not, the nearest mean.
2. Do clients differ in more than their labels? F (:mod:`fedmoments.core.gaussian.shift`) is 0.9 to 1.15 under label
   skew, however strong, and 1.8 to 140 where clients have cameras, styles or domains of their own: from 1.5 on, and
   three standard deviations above 1, the mixture of client modes.
3. Do sketch rows belong to one class each? Clients send them so from 20 classes on, by a public rule
   (:class:`fedmoments.SketchPlan`), and then QDA in the Fisher subspace with covariances half pooled, or more where a
   class has few samples; else LDA, and also where 95 % or more would be pooled.

Class means of few samples lie too far out: each is moved towards the mean of all by as much as noise has put it away
(:mod:`fedmoments.core.gaussian.class_means`).

The isotropic share of what was not sent and the shrinkage follow from counts alone (``core.gaussian.sketch_scatter``),
and features in hand tell whether the power map is applied (``core.maps.power``). Ridge and the nearest mean were
candidates of a search by clients held out: it took 15 s at 1280 dimensions for 0.03 points more than LDA on our sets,
lost 0.13 on others, and 3 points where it chose the nearest mean.
"""

from dataclasses import dataclass

from fedmoments.core.classifier import Classifier
from fedmoments.core.gaussian import ClassGaussians, Shrinkage
from fedmoments.core.gaussian.class_gaussians import check_priors
from fedmoments.core.gaussian.pooling import Pooling
from fedmoments.core.gaussian.shift import Shift
from fedmoments.core.heads.head import Head
from fedmoments.core.heads.registry import Preset, make_head
from fedmoments.core.statistics import Statistics, StatisticsSpec

__all__ = ["PRESETS", "Automatic"]

#: F from which on clients differ in more than their labels.
SHIFTED = 1.5
#: How many standard deviations F has to be above 1 besides: few clients in few dimensions reach 1.7 by chance.
CERTAIN = 3.0
#: Share of class covariances below which they are not worth one factorisation a class.
NEGLIGIBLE = 0.05
#: The head where no class has a spread.
PLAIN = "fedncm"
#: What is said where clients do not differ otherwise.
LABELS = "clients differ in their labels alone"


@dataclass(frozen=True)
class Automatic(Head):
    """The head on scatter sketches that statistics call for.

    The notes of the classifier (``info``) hold what was ``chosen``, the ``shift`` F and the ``criterion`` in words.

    Parameters
    ----------
    shrinkage
        See :class:`fedmoments.Shrinkage`.
    priors
        ``data``: classes are as frequent as in the data; ``balanced``: all equally.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> y = np.arange(400) % 4
    >>> X = rng.normal(size=(400, 5)) + 2.0 * rng.normal(size=(4, 5))[y]
    >>> for moved in (0.0, 9.0):
    ...     own = [slice(100 * k, 100 * k + 100) for k in range(4)]
    ...     parts = [Statistics.of(X[i] + moved * k, y[i], Automatic().needs, n_classes=4) for k, i in enumerate(own)]
    ...     print(Automatic().fit(Statistics.merge(parts)).info["chosen"])
    lda-sketch
    mixture-sketch
    """

    shrinkage: Shrinkage | str | float = "automatic"
    priors: str = "data"

    covariance = "sketch"
    map_rule = "auto"

    def __post_init__(self) -> None:
        Shrinkage.parse(self.shrinkage)
        check_priors(self.priors)

    @property
    def needs(self) -> StatisticsSpec:
        return StatisticsSpec.of("client_means", "scatter_sketch")

    def solve(self, stats: Statistics) -> Classifier:
        gaussians = ClassGaussians(stats, self.covariance)
        if gaussians.scatter.dof <= 0:
            return self._head(PLAIN).solve(stats).noting(chosen=PLAIN, criterion="no class has two samples")
        differing = Shift.of(stats, gaussians.means, gaussians.raw_covariance())
        shift = differing.ratio
        if shift > max(SHIFTED, 1.0 + CERTAIN * differing.chance) and not gaussians.flat:
            name, why = (
                "mixture-sketch",
                "clients differ in more than their labels, so each client's class means are kept apart",
            )
        elif stats.sketches.by_class and not gaussians.flat:
            if _share_of_classes(gaussians) > NEGLIGIBLE:
                name, why = "qda-sketch", f"{LABELS}, and each class has sketch rows of its own"
            else:
                name, why = "lda-sketch", f"{LABELS}, and classes have too few samples for a covariance of their own"
        else:
            name, why = "lda-sketch", f"{LABELS}, and all classes share their sketch rows"
        criterion = f"{why} (client means vary {shift:.3g} times as much as chance would make them)"
        chosen = self._head(name).solve(stats)
        return chosen.noting(chosen=name, shift=shift, criterion=criterion)

    def _head(self, name: str) -> Head:
        if name == PLAIN:
            return make_head(name)
        return make_head(name, shrinkage=self.shrinkage, priors=self.priors, means="shrunk")

    def temperature_of(self, classifier: Classifier, stats: Statistics) -> float:
        return self._head(classifier.info["chosen"]).temperature_of(classifier, stats)

    def score_degree(self, classifier: Classifier) -> int:
        return 1 if classifier.info["chosen"] == PLAIN else 0


def _share_of_classes(gaussians: ClassGaussians) -> float:
    """Return how much of the covariance that QDA takes is the class's own, of a mean sample's class."""
    directions = min(len(gaussians.stats.classes) - 1, gaussians.stats.dim)
    return 1.0 - float(gaussians.counts @ Pooling().shares(gaussians.class_dof, dim=max(directions, 1))) / max(
        gaussians.stats.n_samples, 1
    )


PRESETS = (
    Preset(
        "auto",
        Automatic,
        "LDA or QDA on scatter sketches, or a mixture of modes where clients differ in more than labels",
        "new here, after FedCOF",
    ),
)
