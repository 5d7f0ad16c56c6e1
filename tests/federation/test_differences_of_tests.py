"""Two tested heads that differ for one held-out sample alone: what the difference of their results tells of it."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedmoments.core.classifier import LinearClassifier
from fedmoments.core.classifier.ranks import OCTAVE
from fedmoments.federation.evaluation import LocalEvaluation
from fedmoments.federation.evaluation.layout import ONE, WARMTHS
from fedmoments.federation.evaluation.separation import FINE, N_ODDS

DIM, SLOPE, SHIFT = 8, 3.0, 4.0
Array = NDArray[Any]


class Trial:
    """Held-out samples, one of which lies outermost along a direction, which the server is told."""

    def __init__(self, n: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.X, self.y = rng.normal(size=(n, DIM)), np.arange(n) % 2
        self.along = np.full(DIM, DIM**-0.5)
        order = np.argsort(self.X @ self.along)
        self.target, self.top = self.X[order[-1]], float(self.X[order[-1]] @ self.along)
        self.y[order[-1]] = 0
        self.steep = 400.0 / (self.top - float(self.X[order[-2]] @ self.along))
        self.middle = self.top - 200.0 / self.steep

    def test(self, direction: Array, bias: float, *, singles_out: bool = False) -> LocalEvaluation:
        """Test a head of three classes, the third of which takes the outermost sample, or none."""
        weights, biases = np.zeros((DIM, 3)), np.array([0.0, bias, -1e4])
        weights[:, 1] = direction
        if singles_out:
            weights[:, 2], biases[2] = self.steep * self.along, -self.steep * self.middle
        head = LinearClassifier(weights=weights, bias=biases, present=np.ones(3, np.bool_))
        return LocalEvaluation.of(head, self.X, self.y, 1.0)

    def ranks(self, k: int, minimum: int) -> float:
        """Return coordinate k as the ranks of two heads tell it: where one of them begins to count a sample more."""
        direction = SLOPE * np.eye(DIM)[k]
        one, other = (self.test(direction, SHIFT, singles_out=way).coarse(minimum) for way in (False, True))
        more = (np.cumsum(one.ranks) - np.cumsum(other.ranks))[:-1]
        place = int(np.argmax([(more[start:] - 0.5).sum() for start in range(len(more))]))
        return float((np.log(2.0 ** ((place + 0.5) / OCTAVE) - 1.0) - SHIFT) / SLOPE)

    def odds(self, k: int, minimum: int) -> float:
        """Return coordinate k as two heads' histograms of the target's class tell it: one of them lacks the sample."""
        direction = SLOPE * np.eye(DIM)[k]
        one, other = (self.test(direction, 0.0, singles_out=way).coarse(minimum).odds[0, 0] for way in (False, True))
        fewer = (np.cumsum(other) - np.cumsum(one))[:-1]
        place = int(np.argmax([(fewer[:end] - 0.5).sum() for end in range(1, len(fewer) + 1)])) + 1
        return float(-np.sinh((place + 0.5 - N_ODDS // 2) / FINE) / SLOPE)

    def warmer(self, k: int, minimum: int) -> float:
        """Return coordinate k as sums of confidences tell it in which all other samples are sure at any temperature."""
        direction = self.steep * self.along + np.eye(DIM)[k]
        told = self.test(direction, 2.0 - self.steep * self.top).coarse(minimum).warmer / ONE - (len(self.X) - 1)
        values = np.linspace(0.0, 6.0, 601)
        sure = 1.0 / (1.0 + np.exp(-np.abs(values)[:, np.newaxis] / np.array(WARMTHS)))
        off = np.abs(sure - told).max(axis=1)
        return float(values[off <= max(off.min() + 1e-9, 0.13)].mean()) - 2.0


def typical(way: str, minimum: int, n: int) -> tuple[float, float]:
    """Return the median error of the coordinates of outermost samples, and that of what the server is told anyway."""
    trials = [Trial(n, seed) for seed in range(8)]
    errors = [abs(getattr(trial, way)(k, minimum) - trial.target[k]) for trial in trials for k in range(DIM)]
    return float(np.median(errors)), float(
        np.median([np.abs(trial.top * trial.along - trial.target) for trial in trials])
    )


@pytest.mark.parametrize("n", [300, 2000])
@pytest.mark.parametrize("way", ["ranks", "odds", "warmer"])
def test_two_heads_that_differ_for_one_sample_read_little_of_it(way: str, n: int) -> None:
    """Told exactly, ranks were off by a fiftieth of what a guess is; sums in quarters of an answer by a quarter."""
    error, guess = typical(way, 5, n)
    assert error > 0.4 * guess, f"error {error:.2f}, of a guess {guess:.2f}"


@pytest.mark.parametrize("way", ["ranks", "odds"])
def test_the_attack_reads_exact_results(way: str) -> None:
    error, guess = typical(way, 1, 2000)
    assert error < 0.2 * guess
