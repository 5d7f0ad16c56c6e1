"""What a second exchange is worth, at equal bytes: class grams in Fisher directions, and random features of them.

    python benchmarks/exchanges.py PART BANKING77.npz … [--clients 100] [--alpha 0.1] [--seeds 3]

Every file is a features file (``fedmoments.load_features``), split by Dirichlet per class and tested on all test
samples. Each part prints a table of docs/:

fourier     ridge, LDA and QDA on random features of the Fisher space, at FedCOF's bytes in both exchanges together
            (docs/nonlinear.md)
grams       QDA on class grams in Fisher directions, by how many rows a client sent first (docs/sketch.md)
"""

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import fedmoments as fm
from fedmoments.core.api import measure, spec_for
from fedmoments.core.automatic_map import automatic_map
from fedmoments.core.heads.second_exchange import fisher_directions
from fedmoments.core.statistics import SketchPlan
from fedmoments.samples.features import Features, load_features
from fedmoments.samples.splits.dirichlet import dirichlet_per_class

Floats = NDArray[np.float64]


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


def as_auto_sees(features: Features, holders: list[NDArray[np.int64]]) -> tuple[dict[int, tuple[Any, Any]], Floats]:
    """Return every client's samples, and the test samples, behind the map that they call for."""
    X, X_test = features.train.X.astype(np.float64), features.test.X.astype(np.float64)
    clients = {k: (X[own], features.train.y[own]) for k, own in enumerate(holders) if len(own)}
    rule = automatic_map(clients.values())
    if rule is None:
        return clients, X_test
    return {k: (np.asarray(rule(X)), y) for k, (X, y) in clients.items()}, np.asarray(rule(X_test))


def accuracy(head: str, stats: fm.Statistics, X: Floats, y: NDArray[np.int64]) -> float:
    return 100.0 * float((fm.make_head(head).fit(stats).predict(X) == y).mean())


def fourier(options: argparse.Namespace) -> None:
    """Random features of the Fisher space: half of the bytes for the directions, half for means and rows behind them.

    Numbers of random features whose means take more than half of their bytes are left out.
    """
    found: dict[tuple[str, ...], list[tuple[float, ...]]] = {}
    for features, _, holders in worlds(options):
        clients, X_test = as_auto_sees(features, holders)
        y_test, n_classes, dim = features.test.y, features.n_classes, X_test.shape[1]

        def measured(budget: str, behind: Any = None) -> fm.Statistics:
            ledger = measure(clients, spec_for("auto", budget=budget), n_classes=n_classes, feature_map=behind)  # noqa: B023
            return ledger.statistics()

        whole, half = measured("means"), measured("means/2")
        figures = [accuracy(head, whole, X_test, y_test) for head in ("fedcof", "sketch", "lda-sketch", "auto")]
        for number in (width for width in (200, 400) if width <= dim):
            behind: Any = fm.make_head("fisher-rf", n_features=number).feature_map(dim, half.as_sent())
            stats, inside = measured(f"{2 * dim}/class", behind), np.asarray(behind(X_test))
            figures += [accuracy(head, stats, inside, y_test) for head in ("sketch", "lda-sketch", "qda-sketch")]
        found.setdefault((Path(features.name).stem,), []).append(tuple(figures))
    print_means(
        found, "features | fedcof | sketch | lda-sketch | auto | 200: ridge | LDA | QDA | 400: ridge | LDA | QDA"
    )


def grams(options: argparse.Namespace) -> None:
    """QDA on class grams in Fisher directions that a first exchange of so many int8 rows a client told."""
    found: dict[tuple[str, ...], list[tuple[float, ...]]] = {}
    for features, _, holders in worlds(options):
        clients, X_test = as_auto_sees(features, holders)
        y_test, n_classes = features.test.y, features.n_classes
        for rank in (3, 6, 14, 28, 42):
            plan = SketchPlan(None, rank=rank, code="int8", rows="pooled")
            spec = fm.StatisticsSpec.of("client_means", "scatter_sketch", sketch=plan)
            first = measure(clients, spec, n_classes=n_classes).statistics()
            directions = fisher_directions(first, "sketch")
            spec = fm.StatisticsSpec.of("class_grams")
            second = measure(clients, spec, n_classes=n_classes, feature_map=directions, fold=True).statistics()
            inside = fm.make_head("qda-exchange").solve(second)
            figures = (
                accuracy("lda-sketch", first, X_test, y_test),
                100.0 * float((inside.predict(np.asarray(directions(X_test))) == y_test).mean()),
            )
            found.setdefault((Path(features.name).stem, f"{rank} rows"), []).append(figures)
    print_means(found, "features | rows a client | lda-sketch | after a second exchange")


PARTS: dict[str, Callable[[argparse.Namespace], None]] = {"fourier": fourier, "grams": grams}


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
