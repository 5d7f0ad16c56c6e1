"""Accuracy for bytes: what ``auto`` gains over FedCOF, and what it leaves to the ceiling of the frozen encoder.

    python benchmarks/accuracy.py FEATURES.npz … [--clients 10,100] [--alpha 0.05,0.5] [--seeds 2] [--out FILE]

Every file is a features file (``fedmoments.load_features``); ``digits`` are scikit-learn's pixels. Each setting is
split by Dirichlet per class, measured once a map and budget, and tested on all test samples. The ceiling is the best,
on test data, of logistic regression, Nyström kernel ridge, k-NN and a perceptron with all data in one place, each tuned
on a fifth of the training samples. With ``--out``, settings and ceilings that stand in the file are not measured again.
"""

import argparse
import json
import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import fedmoments as fm
from fedmoments.core.api import measure, spec_for
from fedmoments.core.automatic_map import automatic_map
from fedmoments.core.classifier import Classifier
from fedmoments.core.maps import FeatureMap
from fedmoments.core.statistics import Ledger
from fedmoments.samples.features import load_features
from fedmoments.samples.splits.dirichlet import dirichlet_per_class

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Heads on the same upload that hindsight may choose from, each with and without the public map.
CANDIDATES = ("lda-sketch", "qda-sketch", "mixture-sketch", "sketch", "fedncm")
#: Budgets of a client: FedCOF's float32 payload, and half of it.
BUDGETS = {"means": "at FedCOF's bytes", "means/2": "at half of them"}
#: What ``auto`` has to reach: (what, at least or at most, the value).
TARGETS = (
    ("gain over FedCOF, mean", ">=", 3.5),
    ("gain over FedCOF, least", ">=", -0.2),
    ("gain at half the bytes, mean", ">=", 3.0),
    ("gap to the ceiling, mean", "<=", 1.5),
    ("calibration error, mean", "<=", 4.0),
    ("below hindsight, mean", "<=", 0.5),
    ("below hindsight, most", "<=", 1.5),
    ("below lda-sketch, most", "<=", 0.2),
    ("times lda-sketch's time, most", "<=", 5.0),
)


@dataclass(frozen=True, eq=False)
class World:
    """Training and test samples of one features file."""

    name: str
    X: Floats
    y: Ints
    X_test: Floats
    y_test: Ints
    n_classes: int

    @classmethod
    def read(cls, path: str, most: int) -> "World":
        if path == "digits":
            from sklearn.datasets import load_digits

            X, y = load_digits(return_X_y=True)
            order = np.random.default_rng(0).permutation(len(y))
            X, y, cut = X[order], y[order].astype(np.int64), len(y) * 7 // 10
            return cls("digits", X[:cut], y[:cut], X[cut:], y[cut:], 10)
        features = load_features(path)
        train, test = features.train, features.test
        some = np.random.default_rng(0).permutation(len(train))[:most]
        return cls(
            Path(path).stem, np.asarray(train.X[some], float), train.y[some], np.asarray(test.X, float), test.y,
            features.n_classes,
        )  # fmt: skip


@dataclass
class Row:
    """What one federation gave; accuracies and errors in per cent, times in seconds."""

    data: str
    clients: int
    alpha: float
    seed: int
    fedcof: float = 0.0
    chosen: str = ""
    auto: dict[str, float] = field(default_factory=dict)
    lda: dict[str, float] = field(default_factory=dict)
    error: dict[str, float] = field(default_factory=dict)
    hindsight: dict[str, float] = field(default_factory=dict)
    best: str = ""
    seconds: float = 0.0
    lda_seconds: float = 0.0

    @property
    def key(self) -> str:
        return f"{self.data}/{self.clients}/{self.alpha}/{self.seed}"


def calibration_error(probabilities: Floats, y: Ints, bins: int = 15) -> float:
    """Return the expected calibration error in per cent, over bins of equal width."""
    sure, right = probabilities.max(axis=1), probabilities.argmax(axis=1) == y
    which = np.minimum((sure * bins).astype(int), bins - 1)
    gaps = (abs(right[which == b].mean() - sure[which == b].mean()) * (which == b).mean() for b in np.unique(which))
    return 100.0 * float(sum(gaps))


def accuracy(classifier: Classifier, X: Floats, y: Ints) -> float:
    return 100.0 * float((classifier.predict(X) == y).mean())


def fitted(head: str, ledger: Ledger) -> tuple[Classifier, float]:
    """Return a classifier and the CPU seconds that it took, from statistics that nobody has looked at yet."""
    stats = ledger.statistics()
    start = time.process_time()
    classifier = fm.make_head(head).fit(stats)
    return classifier, time.process_time() - start


def federation(world: World, row: Row) -> Row:
    """Measure one federation and test all heads."""
    split = dirichlet_per_class(world.y, row.clients, row.alpha, row.seed)
    clients = {k: (world.X[i], world.y[i]) for k, i in enumerate(split) if len(i)}
    rule = automatic_map(clients.values())
    maps: dict[str, FeatureMap | None] = {"": None, "√": rule} if rule is not None else {"": None}
    seen = {word: (each(world.X_test) if each else world.X_test) for word, each in maps.items()}
    used = "√" if rule is not None else ""
    for budget in BUDGETS:
        found: dict[str, float] = {}
        for word, each in maps.items():
            ledger = measure(
                clients, spec_for("auto", budget=budget), n_classes=world.n_classes, feature_map=each, fold=True
            )
            for head in CANDIDATES:
                classifier, seconds = fitted(head, ledger)
                found[f"{head}{word}"] = accuracy(classifier, seen[word], world.y_test)
                if (head, word, budget) == ("lda-sketch", used, "means"):
                    row.lda_seconds = seconds
            if word == used:
                classifier, seconds = fitted("auto", ledger)
                row.auto[budget] = accuracy(classifier, seen[word], world.y_test)
                row.error[budget] = calibration_error(np.asarray(classifier.predict_proba(seen[word])), world.y_test)
                if budget == "means":
                    row.seconds, row.chosen = seconds, classifier.info["chosen"]
            if (word, budget) == ("", "means"):
                row.fedcof = accuracy(fitted("fedcof", ledger)[0], seen[word], world.y_test)
        row.lda[budget] = found["lda-sketch"]
        row.hindsight[budget] = max(*found.values(), row.auto[budget])
        if budget == "means":
            row.best = max(found, key=lambda name: found[name])
    return row


def ceiling(world: World) -> dict[str, float]:
    """Return the test accuracy of central learners, each tuned on a fifth of the training samples."""
    from sklearn.kernel_approximation import Nystroem
    from sklearn.linear_model import LogisticRegression, RidgeClassifier
    from sklearn.model_selection import train_test_split
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    width = 1.0 / world.X.shape[1]
    components = min(1500, len(world.X) // 2)
    families: dict[str, list[Any]] = {
        "logistic": [LogisticRegression(C=c, max_iter=200) for c in (1e-4, 1e-3, 1e-2, 1e-1)],
        "kernel ridge": [
            make_pipeline(Nystroem(gamma=g * width, n_components=components, random_state=0), RidgeClassifier(alpha=a))
            for g in (0.1, 0.3, 1.0)
            for a in (0.1, 1.0)
        ],
        "k-NN": [KNeighborsClassifier(k, metric="cosine") for k in (5, 15)],
        "perceptron": [
            MLPClassifier((256,), alpha=a, learning_rate_init=3e-4, early_stopping=True, max_iter=60, random_state=0)
            for a in (1e-2, 1.0)
        ],
    }
    scaler = StandardScaler().fit(world.X)
    X, X_test = scaler.transform(world.X), scaler.transform(world.X_test)
    fits, holds = train_test_split(np.arange(len(X)), test_size=0.2, random_state=0, stratify=world.y)
    found = {}
    for name, models in families.items():
        best = max(models, key=lambda model: model.fit(X[fits], world.y[fits]).score(X[holds], world.y[holds]))
        found[name] = 100.0 * float(best.fit(X, world.y).score(X_test, world.y_test))
    return found


def verdicts(rows: list[Row], ceilings: dict[str, dict[str, float]]) -> Iterator[str]:
    """Yield a line a target."""
    gain = np.array([row.auto["means"] - row.fedcof for row in rows])
    half = np.array([row.auto["means/2"] - row.fedcof for row in rows])
    gap = np.array([max(ceilings[row.data].values()) - row.auto["means"] for row in rows if row.data in ceilings])
    below = np.array([row.hindsight["means"] - row.auto["means"] for row in rows])
    under = np.array([row.lda[b] - row.auto[b] for row in rows for b in BUDGETS])
    error = np.array([row.error[b] for row in rows for b in BUDGETS])
    values = (
        gain.mean(), gain.min(), half.mean(), gap.mean() if len(gap) else np.nan, error.mean(), below.mean(),
        below.max(), under.max(), max(row.seconds / row.lda_seconds for row in rows),
    )  # fmt: skip
    for (name, sign, target), value in zip(TARGETS, values, strict=True):
        held = value >= target if sign == ">=" else value <= target
        yield f"{name:32s} {value:7.2f}  {sign} {target:<5g} {'held' if held else 'MISSED'}"


def table(rows: list[Row], ceilings: dict[str, dict[str, float]]) -> Iterator[str]:
    """Yield a line a data set and number of clients: means over α and seeds."""
    yield "| features | clients | FedCOF | lda-sketch | auto | head | ECE | auto, ½ | ECE, ½ | hindsight | ceiling |"
    yield "|" + "---|" * 11
    for data in dict.fromkeys(row.data for row in rows):
        best = f"{max(ceilings[data].values()):.1f}" if data in ceilings else "–"
        for clients in sorted({row.clients for row in rows if row.data == data}):
            some = [row for row in rows if (row.data, row.clients) == (data, clients)]
            cells = [
                [row.fedcof for row in some],
                [row.lda["means"] for row in some],
                [row.auto["means"] for row in some],
                [row.error["means"] for row in some],
                [row.auto["means/2"] for row in some],
                [row.error["means/2"] for row in some],
                [row.hindsight["means"] for row in some],
            ]
            text = [f"{np.mean(cell):.1f}" for cell in cells]
            text.insert(3, ", ".join(sorted({row.chosen.removesuffix("-sketch") for row in some})))
            yield f"| {data} | {clients} | " + " | ".join(text) + f" | {best} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("features", nargs="+", help="features files, or digits")
    parser.add_argument("--clients", default="10,50,100,300")
    parser.add_argument("--alpha", default="0.05,0.1,0.5")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--most", type=int, default=10_000, help="training samples of a set at most")
    parser.add_argument("--no-ceiling", action="store_true")
    parser.add_argument("--out", type=Path, help="JSON file of what was measured")
    given = parser.parse_args()
    known = json.loads(given.out.read_text()) if given.out and given.out.exists() else {"rows": [], "ceilings": {}}
    rows, ceilings = {row["key"]: Row(**row["row"]) for row in known["rows"]}, known["ceilings"]
    chosen: list[Row] = []

    def keep() -> None:
        if given.out:
            kept = [{"key": key, "row": asdict(row)} for key, row in rows.items()]
            given.out.write_text(json.dumps({"rows": kept, "ceilings": ceilings}, indent=1))

    for path in given.features:
        world = World.read(path, given.most)
        if not given.no_ceiling and world.name not in ceilings:
            ceilings[world.name] = ceiling(world)
            keep()
        for clients in map(int, given.clients.split(",")):
            for alpha in map(float, given.alpha.split(",")):
                for seed in range(given.seeds):
                    row = Row(world.name, clients, alpha, seed)
                    if row.key not in rows:
                        rows[row.key] = federation(world, row)
                        keep()
                    chosen.append(rows[row.key])
        print(*table([row for row in chosen if row.data == world.name], ceilings), sep="\n", flush=True)
    print(*table(chosen, ceilings), sep="\n")
    print(*verdicts(chosen, ceilings), sep="\n")


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # learners that stop early, heads that doubt their digits
    main()
