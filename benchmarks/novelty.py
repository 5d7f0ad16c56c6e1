"""Whether classifiers know what they do not know: familiar test samples against others, on sets of features.

    python benchmarks/novelty.py office.npz:digits.npz banking77.npz

A set is an ``.npz`` file with ``x_train``, ``y_train``, ``x_test`` and ``y_test``. After a colon stands the set whose
``x_test`` is foreign; without one, the last fifth of the classes is held out of the fit and tested as foreign.
"""

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import fedmoments as fm
from fedmoments.core.classifier.familiar import Distance
from fedmoments.samples.splits.dirichlet import dirichlet_per_class


def area(known: NDArray[Any], foreign: NDArray[Any]) -> float:
    """Return how often a foreign sample is newer than a familiar one."""
    below = np.searchsorted(np.sort(known), foreign, "left") + np.searchsorted(np.sort(known), foreign, "right")
    return float(below.mean() / (2 * len(known)))


def read(path: str) -> dict[str, NDArray[Any]]:
    """Return the arrays of a set; labels are whole numbers."""
    with np.load(path) as arrays:
        names = [name for name in ("x_train", "y_train", "x_test", "y_test") if name in arrays]
        return {name: arrays[name].astype(np.float64 if name[0] == "x" else np.int64) for name in names}


def trial(pair: str, head: str) -> str:
    """Return one row of the table."""
    known_path, _, foreign_path = pair.partition(":")
    data = read(known_path)
    X, y, familiar = data["x_train"][:15000], data["y_train"][:15000], data["x_test"]
    if foreign_path:
        foreign, name = read(foreign_path)["x_test"], f"{Path(known_path).stem} / {Path(foreign_path).stem}"
    else:
        first = int(np.ceil(0.8 * (y.max() + 1)))
        inside = data["y_test"] < first
        X, y, foreign, familiar = X[y < first], y[y < first], familiar[~inside], familiar[inside]
        name = f"{Path(known_path).stem} / its classes from {first} on"
    split = dirichlet_per_class(y, 100, 0.1, 0)
    classifier = fm.fit(head, {k: (X[rows], y[rows]) for k, rows in enumerate(split) if len(rows)})
    areas = [area(classifier.novelty(familiar, kind), classifier.novelty(foreign, kind)) for kind in KINDS]
    rejected = [f"{100 * classifier.unknown(familiar, share).mean():.1f}" for share in (0.01, 0.05)]
    caught = [f"{100 * classifier.unknown(foreign, share).mean():.0f}" for share in (0.01, 0.05)]
    return f"| {name} | {areas[0]:.3f} | {areas[1]:.3f} | {' / '.join(rejected)} | {' / '.join(caught)} |"


KINDS: tuple[Distance, ...] = ("relative", "mahalanobis")


def main() -> None:
    """Print one row a pair of sets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pairs", nargs="+")
    parser.add_argument("--head", default="lda-sketch")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| known / foreign | relative | Mahalanobis | known rejected at 1 / 5 % | foreign rejected |")
    print("|---|---|---|---|---|")
    for pair in given.pairs:
        print(trial(pair, given.head), flush=True)


if __name__ == "__main__":
    main()
