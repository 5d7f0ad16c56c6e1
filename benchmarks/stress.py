"""Classes that real features resemble in one respect each, drawn so that it decides, as features files.

    python benchmarks/stress.py FOLDER
    python benchmarks/accuracy.py FOLDER/*.npz --clients 100 --alpha 0.1 --seeds 2 --no-ceiling

=========  ===================================================================================================
tail       50 classes, whose sizes fall as 1/rank^1.5: the smallest have 2 samples
many       371 classes of 1 or 2 samples
outliers   10 classes; 2 % of the samples are 15 times as long
units      8 classes; the widest column spreads 34 times as much as the median one
=========  ===================================================================================================

The constants of heads and maps were not chosen on ``tail`` and ``many``; that of columns' units was set in view of
``units``, and the estimate of how lengths vary was mended in view of ``outliers``.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Split = tuple[Floats, Ints, Floats, Ints]
Noise = Callable[[np.random.Generator, tuple[int, int]], Floats]

SEED, TESTS = 7, 3000


def classes(
    rng: np.random.Generator,
    variances: Floats,
    apart: float,
    n_samples: int,
    sizes: Floats,
    noise: Noise = lambda rng, shape: rng.normal(size=shape),
) -> Split:
    """Draw classes that share a covariance, every class at least once, and test samples.

    Parameters
    ----------
    rng
        Of all draws.
    variances
        (d,) of samples inside classes, in directions of their own.
    apart
        Deviation of class means, in those of samples.
    n_samples
        To train with.
    sizes
        (C,) how frequent classes are.
    noise
        Draws samples (n, d) of variance 1 around 0.
    """
    n_classes, dim, deviations = len(sizes), len(variances), np.sqrt(variances)
    centres = rng.normal(size=(n_classes, dim)) * apart * deviations
    turned = np.linalg.qr(rng.normal(size=(dim, dim)))[0]

    def draw(y: Ints) -> Floats:
        return np.asarray((centres[y] + noise(rng, (len(y), dim)) * deviations) @ turned)

    shares = sizes / sizes.sum()
    y = np.concatenate([np.arange(n_classes), rng.choice(n_classes, n_samples - n_classes, p=shares)])
    y_test = rng.choice(n_classes, TESTS, p=shares)
    return draw(y), y, draw(y_test), y_test


def falling(dim: int, power: float) -> Floats:
    return np.arange(1.0, dim + 1.0) ** -power


def tail(rng: np.random.Generator) -> Split:
    return classes(rng, falling(96, 1.0), 0.5, 3000, falling(50, 1.5))


def many(rng: np.random.Generator) -> Split:
    return classes(rng, falling(128, 1.0), 1.0, 420, np.ones(371))


def outliers(rng: np.random.Generator) -> Split:
    def long(rng: np.random.Generator, shape: tuple[int, int]) -> Floats:
        return np.asarray(rng.normal(size=shape) * np.where(rng.random((shape[0], 1)) < 0.02, 15.0, 1.0))

    return classes(rng, falling(64, 0.5), 0.4, 3000, np.ones(10), long)


def units(rng: np.random.Generator) -> Split:
    X, y, X_test, y_test = classes(rng, np.ones(40), 0.5, 2000, np.ones(8))
    scales = 1000.0 ** rng.uniform(-0.5, 0.5, 40)
    return X * scales, y, X_test * scales, y_test


WORLDS: dict[str, Callable[[np.random.Generator], Split]] = {
    "tail": tail,
    "many": many,
    "outliers": outliers,
    "units": units,
}


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, world in WORLDS.items():
        X, y, X_test, y_test = world(np.random.default_rng(SEED))
        np.savez(folder / f"{name}.npz", x_train=X, y_train=y, x_test=X_test, y_test=y_test)


if __name__ == "__main__":
    main()
