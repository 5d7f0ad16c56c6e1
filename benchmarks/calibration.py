"""Calibration of every head on sets of features: expected errors at T = 1 and at the temperature of the head.

    python benchmarks/calibration.py banking77.npz cifar10.npz --clients 100 --heads fedcof,gh-lda

A set is an ``.npz`` file with ``x_train``, ``y_train``, ``x_test`` and ``y_test``.
"""

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import fedmoments as fm
from fedmoments.federation.evaluation import LocalEvaluation
from fedmoments.samples.splits.dirichlet import dirichlet_per_class

HEADS = (
    "fedncm,fed3r,fedcof,fedcof-oracle,fedcof-spherical,fedcof-diagonal,gh-lda,gh-nb,gh-qda,gh-dlr-qda,lda-free,nb-free,"
    "qda-free,sketch,lda-sketch,qda-sketch,auto,fishermix"
)


def errors(head: str, data: dict[str, NDArray[Any]], n_clients: int, seed: int) -> tuple[float, float]:
    """Return the expected calibration errors at T = 1 and at the head's temperature, in per cent."""
    split = dirichlet_per_class(data["y_train"], n_clients, 0.1, seed)
    parties = {place: (data["x_train"][rows], data["y_train"][rows]) for place, rows in enumerate(split) if len(rows)}
    classifier = fm.fit(head, parties, n_classes=int(data["y_train"].max()) + 1)
    X, y = data["x_test"], data["y_test"]
    plain = LocalEvaluation.of(classifier, X, y, 1.0)
    own = LocalEvaluation.of(classifier, X, y, classifier.temperature)
    return 100 * plain.expected_error, 100 * own.expected_error


def line(name: str, row: NDArray[np.float64]) -> str:
    """Return a row of the table: errors (sets, 2) before and after, and their means."""
    cells = [f"{before:.1f} → {after:.1f}" for before, after in [*row, row.mean(axis=0)]]
    return f"| {name} | " + " | ".join(cells) + " |"


def main() -> None:
    """Print one row a head, one column a set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+", type=Path)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--heads", default=HEADS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--most", type=int, default=15000, help="Training samples at most.")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    loaded = {}
    for path in given.sets:
        with np.load(path) as arrays:
            data = {name: arrays[name] for name in ("x_train", "y_train", "x_test", "y_test")}
        rows = np.random.default_rng(0).permutation(len(data["y_train"]))[: given.most]
        data |= {"x_train": data["x_train"][rows], "y_train": data["y_train"][rows]}
        loaded[path.stem] = {
            name: array.astype(np.float64 if name[0] == "x" else np.int64) for name, array in data.items()
        }
    print("| | " + " | ".join(loaded) + " | mean |\n|---|" + "---|" * (len(loaded) + 1))
    found = []
    for head in given.heads.split(","):
        found.append(np.array([errors(head, data, given.clients, given.seed) for data in loaded.values()]))
        print(line(f"`{head}`", found[-1]), flush=True)
    print(line("mean", np.mean(found, axis=0)))
    worse = np.concatenate([row[:, 1] - row[:, 0] for row in found])
    share = f"{int((worse > 0.5).sum())} of {len(worse)}, at most {worse.max():.1f}"
    print(f"\nmore than 0.5 points worse than at T = 1: {share}")


if __name__ == "__main__":
    main()
