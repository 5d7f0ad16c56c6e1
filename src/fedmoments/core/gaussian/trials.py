"""Trial points: what a linear rule would get right of samples like those of clients held out.

A trial puts a random deviation on a class mean, and asks for its class. Deviations are mixtures Σ_j g_j δ_j/√m of m
held-out ones (``core.gaussian.held_out``) with independent standard normal g: a draw of the Gaussian whose
covariance is the held-out one. Two blends reduce what chance and the Gaussian do to the count:

- The mixture for a class c is made of the m_c deviations of that class with probability m_c/(m_c + κ), else of all:
  classes differ in their spread, but ten deviations say more about it than two.
- Half of the trials have deviations 1.5 times as long. Means are more like Gaussians than samples are, so that trials
  of the right length are too easy: where all rules would get all of them right, none could be chosen.

Classes are as frequent as in the data. Every rule is tried on the same points, so differences are paired.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.gaussian.candidates import Key
from fedmoments.core.gaussian.held_out import HeldOut
from fedmoments.core.gaussian.linear_rules import LinearRule
from fedmoments.core.linalg import blocks

__all__ = ["Tally", "Trials"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Trial points a fold.
N_TRIALS = 4096
#: κ, how many deviations of all classes count as much as those of a class's own.
BORROWED = 10.0
#: How much longer the deviations of every second trial are.
STRETCH = 1.5


@dataclass(frozen=True)
class Trials:
    """Points around the origin with the class whose mean they are put on.

    Parameters
    ----------
    labels
        (t,) class of every trial.
    points
        (t, d) deviation from the mean of that class, in feature units; every second one is stretched.
    weight
        How many held-out deviations they are made of.

    Examples
    --------
    >>> rule = LinearRule(weights=np.array([[-1.0, 1.0]]), bias=np.zeros(2), present=np.ones(2, bool))
    >>> trials = Trials(np.array([0, 0, 1]), np.array([[0.5], [3.0], [0.5]]), weight=3)
    >>> trials.right(rule, np.array([[-1.0], [1.0]]))
    array([ True, False,  True])
    """

    labels: Ints
    points: Floats
    weight: int

    @classmethod
    def of(cls, held: HeldOut, shares: Floats, size: int = N_TRIALS) -> "Trials":
        """Draw trials from a fold, the same ones every time.

        Parameters
        ----------
        held
            The fold.
        shares
            (C,) how frequent every class is; they sum to 1.
        size
            How many trials.

        Examples
        --------
        >>> from fedmoments.core.statistics import Statistics, StatisticsSpec
        >>> spec = StatisticsSpec.of("client_means")
        >>> clients = [Statistics.of([[x]] * 2, [0] * 2, spec, n_classes=1) for x in (1.0, 5.0)]
        >>> trials = Trials.of(HeldOut.of(Statistics.merge(clients), np.array([1])), np.ones(1))
        >>> [round(float(np.std(trials.points[first::2]))) for first in (0, 1)]
        [4, 6]
        """
        rng = np.random.default_rng(0)
        edges = np.cumsum(shares)
        labels = np.searchsorted(edges / edges[-1], (np.arange(size) + 0.5) / size).astype(np.int64)
        rng.shuffle(labels)
        own = np.bincount(held.labels, minlength=len(shares))[labels]
        by_class = rng.random(size) < own / (own + BORROWED)
        points = np.empty((size, held.deviations.shape[1]))
        for label in np.unique(labels[by_class]).tolist():
            mine = np.flatnonzero(by_class & (labels == label))
            points[mine] = _mixtures(held.deviations[held.labels == label], len(mine), rng)
        others = np.flatnonzero(~by_class)
        points[others] = _mixtures(held.deviations, len(others), rng)
        points[1::2] *= STRETCH
        return cls(labels, points, len(held.labels))

    def right(self, rule: LinearRule, means: Floats) -> NDArray[np.bool_]:
        """Return whether a rule gives every trial (t,) its class.

        Parameters
        ----------
        rule
            Of C classes.
        means
            (C, d) class means that the points are put on.
        """
        centres = rule.scores(means)
        answers = np.empty(len(self.labels), np.int64)
        for block in blocks(len(answers), 1024):
            scores = self.points[block] @ rule.weights
            scores += centres[self.labels[block]]
            answers[block] = scores.argmax(axis=1)
        return np.asarray(answers == self.labels)


def _mixtures(deviations: Floats, count: int, rng: np.random.Generator) -> Floats:
    """Return random mixtures (count, d) of deviations (m, d) with the same second moment."""
    mixtures = np.empty((count, deviations.shape[1]))
    for block in blocks(count, 1024):
        mixing = rng.normal(size=(len(mixtures[block]), len(deviations)))
        mixtures[block] = mixing @ deviations
    mixtures /= np.sqrt(len(deviations))
    return mixtures


@dataclass
class Tally:
    """What candidates got right, fold by fold.

    Parameters
    ----------
    weights
        Held-out deviations behind every fold.
    right, plain
        Key of a candidate -> share of trials that it got right in every fold: of all, and of those not stretched.

    Examples
    --------
    >>> tally = Tally()
    >>> trials = Trials(np.array([0, 0, 1, 1]), np.zeros((4, 1)), weight=3)
    >>> tally.add(trials, {("ncm", "", 1.0): np.array([True, False, True, True])})
    >>> tally.accuracy(("ncm", "", 1.0)), tally.estimate(("ncm", "", 1.0))
    (0.75, 1.0)
    """

    weights: list[int] = field(default_factory=list)
    right: dict[Key, list[float]] = field(default_factory=dict)
    plain: dict[Key, list[float]] = field(default_factory=dict)

    def add(self, trials: Trials, right: dict[Key, NDArray[np.bool_]]) -> None:
        """Add a fold: whether every candidate got every trial (t,) right. All folds try the same candidates."""
        self.weights.append(trials.weight)
        for key, added in right.items():
            self.right.setdefault(key, []).append(float(np.mean(added)))
            self.plain.setdefault(key, []).append(float(np.mean(added[::2])))

    def accuracy(self, key: Key) -> float:
        """Return the share of all trials that a candidate got right: what is maximised."""
        return float(np.average(self.right[key], weights=self.weights))

    def estimate(self, key: Key) -> float:
        """Return the share that it got right of trials with deviations of the right length."""
        return float(np.average(self.plain[key], weights=self.weights))

    def best(self, keys: list[Key], lead: float = 0.0, margin: float = 0.0) -> Key:
        """Return the candidate of these that got most right.

        Parameters
        ----------
        keys
            The first is the default, and is returned unless others are better.
        lead
            By how many standard errors over folds another must be better than the default.
        margin
            By which share of the trials besides.

        Examples
        --------
        >>> a, b = ("a", "", 1.0), ("b", "", 1.0)
        >>> tally = Tally([1, 1], {a: [0.8, 0.8], b: [0.9, 0.8]})
        >>> tally.best([a, b])[0], tally.best([a, b], lead=2.0)[0]
        ('b', 'a')
        """
        default, *others = keys
        gaps = {key: self.lead(key, default) for key in others}
        better = [key for key, (gap, error) in gaps.items() if gap > lead * error + margin]
        return max([default, *better], key=self.accuracy)

    def lead(self, key: Key, other: Key) -> tuple[float, float]:
        """Return by how much a candidate is better than another, and the standard error of that over folds.

        Examples
        --------
        >>> tally = Tally([1, 1], {("a", "", 1.0): [0.9, 0.8], ("b", "", 1.0): [0.8, 0.8]})
        >>> lead, error = tally.lead(("a", "", 1.0), ("b", "", 1.0))
        >>> round(lead, 6), round(error, 6)
        (0.05, 0.05)
        """
        difference = np.subtract(self.right[key], self.right[other])
        weights = np.asarray(self.weights, np.float64) / sum(self.weights)
        mean = float(weights @ difference)
        folds = len(weights)
        if folds < 2:
            return mean, float("inf")
        return mean, float(np.sqrt(np.sum(weights**2 * (difference - mean) ** 2) * folds / (folds - 1)))
