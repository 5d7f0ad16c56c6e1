"""What ideas beyond the papers are worth, beside today's heads: accuracy and bytes a client.

    python benchmarks/further.py targets BANKING77.npz [--clients 100] [--alpha 0.1] [--seeds 3]

Every file is a features file (``fedmoments.load_features``), split by Dirichlet per class and tested on all test
samples. Each part prints the table of its page in docs/: ``targets`` labels of which a sample has any number (words in
the names of classes).
"""

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import fedmoments as fm
from fedmoments.samples.features import Features, load_features
from fedmoments.samples.splits.dirichlet import dirichlet_per_class

Floats = NDArray[np.float64]
#: A word is a label if so many names of classes hold it.
SEVERAL = 3


def worlds(options: argparse.Namespace) -> Iterator[tuple[Features, int, list[NDArray[np.int64]]]]:
    """Yield the features, the seed and the samples of every client."""
    for file in options.files:
        features = load_features(file)
        for seed in range(options.seeds):
            yield features, seed, list(dirichlet_per_class(features.train.y, options.clients, options.alpha, seed=seed))


def print_means(found: dict[tuple[str, ...], list[tuple[float, ...]]], columns: str) -> None:
    """Print means over seeds, one line a setting."""
    print(columns)
    for key, values in found.items():
        print(" | ".join([*key, *(f"{value:.2f}" for value in np.mean(values, axis=0))]))


def targets(options: argparse.Namespace) -> None:
    """Labels of which a sample has any number: the words that several names of classes share."""
    found: dict[tuple[str, ...], list[tuple[float, ...]]] = {}
    for features, _, holders in worlds(options):
        names = [set(name.lower().strip("?").split("_")) for name in features.class_names]
        words = sorted({word for name in names for word in name})
        words = [word for word in words if sum(word in name for name in names) >= SEVERAL]
        marks = np.array([[word in name for word in words] for name in names])
        X, X_test = (part.X.astype(np.float64) for part in (features.train, features.test))
        train, test = marks[features.train.y], marks[features.test.y]
        for threshold in ("errors", "midpoint", 0.5):
            settings: dict[str, Any] = {"threshold": threshold}
            clients = {k: (X[own], train[own]) for k, own in enumerate(holders) if len(own)}
            models = {
                "federated": [fm.fit("multi-label", clients, **settings)],
                "pooled": [fm.fit("multi-label", {"all": (X, train)}, **settings)],
            }
            if threshold == "errors":
                models["each client alone"] = [fm.fit("multi-label", {k: pair}) for k, pair in clients.items()]
            for who, fitted in models.items():
                each = [(m.score(X_test, test), (m.predict(X_test) != test).mean()) for m in fitted]
                figures = 100 * np.mean(each, axis=0)
                found.setdefault((Path(features.name).stem, who, str(threshold)), []).append(tuple(figures))
    print_means(found, "features | fitted | threshold | micro F1 | wrong marks")


PARTS: dict[str, Callable[[argparse.Namespace], None]] = {"targets": targets}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=sorted(PARTS))
    parser.add_argument("files", nargs="+")
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--alpha", type=float, default=0.1)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    PARTS[options.part](options)


if __name__ == "__main__":
    main()
