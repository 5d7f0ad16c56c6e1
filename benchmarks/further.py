"""What ideas beyond the papers are worth, beside today's heads: accuracy and bytes a client.

    python benchmarks/further.py targets BANKING77.npz [--clients 100] [--alpha 0.1] [--seeds 3]
    python benchmarks/further.py heads BANKING77.npz CIFAR10.npz PACS.npz [--most 10000] [--out FILE]
    python benchmarks/further.py clusters BANKING77.npz CIFAR10.npz PACS.npz
    python benchmarks/further.py page docs/reproduction/further.json > docs/reproduction/further.md

Every file is a features file (``fedmoments.load_features``), split by Dirichlet per class and tested on all test
samples. ``targets`` prints the table of docs/targets.md: labels of which a sample has any number (words in the names of
classes). ``heads`` measures heads from cheap uploads and those of the papers' future work, keeps what is in ``--out``
already (docs/reproduction/further.json); ``clusters`` tries means of sub-clusters, several Gaussians a class; ``page``
prints the page made of both.
"""

import argparse
import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

import fedmoments as fm
from fedmoments.samples.features import Features, load_features
from fedmoments.samples.splits.dirichlet import dirichlet_per_class

Floats = NDArray[np.float64]
#: A word is a label if so many names of classes hold it.
SEVERAL = 3
#: How samples are split: {alpha} is the option's.
SPLITS = ("dirichlet:{alpha}", "domain")
#: Data sets by the stems of their files.
DATA = {
    "banking77-minilm": "BANKING77, MiniLM",
    "cifar10-squeezenet11": "CIFAR-10, SqueezeNet",
    "pacs-efficientnetlite0": "PACS, EfficientNet",
}


@dataclass(frozen=True)
class Measured:
    """A head with its hyper-parameters, in a group of rows of the page."""

    group: str
    name: str
    hyper: Mapping[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The head as it is typed."""
        return " ".join([f"`{self.name}`", *(f"{key}={value}" for key, value in self.hyper.items())])


_TODAY, _CHEAP, _FULL = "today's heads", "from gram and class squares (A, B, N, D)", "from class grams"
_MODES, _NONLINEAR = "several Gaussians, exact traces, robust weights", "not linear in the features"
#: Random features that are few enough for three data sets on two cores.
_FEW = {"n_features": 2000}

HEADS = (
    *(
        Measured(_TODAY, name)
        for name in ("fedncm", "fedcof", "fed3r", "gh-nb", "gh-lda", "lda-sketch", "qda-sketch", "auto")
    ),
    Measured(_CHEAP, "gh-nb-fisher"),
    Measured(_CHEAP, "fishermix-scaled", {"samples": 1000}),
    Measured(_CHEAP, "fishermix-scaled", {"samples": 1000, "spread": "diagonal"}),
    Measured(_CHEAP, "proto-hyper-scaled", {"samples": 1000}),
    Measured(_FULL, "fishermix", {"samples": 1000}),
    Measured(_FULL, "proto-hyper", {"samples": 1000}),
    Measured(_FULL, "gh-qda-fisher"),
    Measured(_MODES, "mixture-sketch"),
    *(Measured(_MODES, name) for name in ("lda-free", "lda-energy")),
    Measured(_MODES, "lda-free", {"covariance": "robust"}),
    *(Measured(_MODES, name) for name in ("qda-free", "qda-energy")),
    Measured(_NONLINEAR, "fisher-rf"),
    Measured(_NONLINEAR, "deep-ridge"),
    Measured(_NONLINEAR, "fed3r-rf", _FEW),
    Measured(_NONLINEAR, "fed3r-rf", {**_FEW, "scatter": "within", "covariance": "sketch"}),
)

HEAD = """\
# Heads beyond the papers' tables, side by side

Heads from cheaper uploads, and what the papers leave to future work, beside today's heads: accuracy and what a client
sends. Look here before you choose a head because its idea sounds good.

This page is made of `further.json`: `python benchmarks/further.py heads BANKING77.npz CIFAR10.npz PACS.npz` measures,
`python benchmarks/further.py page docs/reproduction/further.json` prints the page. At most 10,000 training samples, all
test samples, three seeds (± one standard deviation over splits and draws; exact heads do not depend on the split), all
hyper-parameters at their defaults but those shown, features as they are (`auto` in an application also takes √x of
image features). Bytes are those of all exchanges of one client, on average, as it sends them; sketches may take
FedCOF's bytes of the same width.
"""

TAIL = """

## What we read from it

- **Gram and class squares** (GH-OFL's own upload in its Tables 2 and 8) cost at most a tenth more than LDA's gram.
  `fishermix-scaled` is 0.1 to 0.7 above `gh-lda`; on images it is within half a point of `fishermix` from class grams,
  once above it. With 77 classes what helps is correlations, and they are lost: 90.6 against 92.1, for a seventeenth of
  the bytes. Drawing by variances alone (`spread=diagonal`) changes nothing.
- **Naive Bayes in the Fisher space** (`gh-nb-fisher`) is 2 to 18 above naive Bayes on features, and near LDA.
- **`proto-hyper-scaled` is LDA** on all three: its teacher knows little that LDA does not.
- **Sketched random features** (last row) have the accuracy of their gram on BANKING77 and CIFAR-10 for a 64th and a
  230th of its bytes, and are 1.7 below it on PACS. They are the best of the small uploads on CIFAR-10; on BANKING77
  `qda-sketch` has as much for a seventh of theirs.
- **Deep layers** are at or near the top everywhere, for 5 to 19 MB a client.
- **Modes, exact traces and robust weights** are for clients that differ in more than their labels. With a domain a
  client `mixture-sketch` is 1.0 above `lda-sketch`, and `qda-energy` repairs `qda-free` (39.4 to 78.7); exact traces
  and robust weights do nothing for LDA, there or under label skew.

**Tried, not built: sub-clusters.** A client could send several means of a class, found by k-means in its own samples,
as modes of a mixture with one covariance. `python benchmarks/further.py clusters BANKING77.npz CIFAR10.npz PACS.npz`,
10,000 samples, behind √x for features of images, exact covariance, mean of three seeds:

{clusters}
It gains up to 1.0 on BANKING77 and, where one client sees all domains, 0.7 on PACS; split over twenty clients it loses
there, and on CIFAR-10 always, by 2 to 4: clusters that are none. `qda-sketch` gains 2.8 on BANKING77 for FedCOF's
bytes. Modes of *clients*, which are there anyway, are in `mixture-sketch`.
"""


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


# ------------------------------------------------------------------------------------------------------------ heads


def fewer(features: Features, most: int) -> Features:
    """Return features of so many training samples at most."""
    some = np.random.default_rng(0).permutation(len(features.train))[:most]
    train = replace(features.train, X=features.train.X[some], y=features.train.y[some])
    domains = None if features.domains is None else features.domains[some]
    return replace(features, train=train, domains=domains, ids=None, groups=None)


def heads(options: argparse.Namespace) -> None:
    """Heads from cheap uploads (gram and squares), and those of the papers' future work: accuracy and bytes."""
    found: dict[str, Any] = json.loads(options.out.read_text()) if options.out.exists() else {}
    for file in options.files:
        features, name = fewer(load_features(file), options.most), Path(file).stem
        for split in SPLITS:
            if split == "domain" and features.domains is None:
                continue
            for head in HEADS:
                key = key_of(name, split, head)
                if key in found:
                    continue
                found[key] = _measured(features, split, head, options)
                options.out.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
                print(key, found[key], flush=True)


def _measured(features: Features, split: str, head: Measured, options: argparse.Namespace) -> dict[str, Any]:
    clients: dict[str, Any] = {} if split == "domain" else {"clients": [options.clients]}
    scheme = split.format(alpha=options.alpha)
    hyper = {head.name: dict(head.hyper)}
    report = fm.simulate(features, [head.name], splits=[scheme], seeds=options.seeds, hyper=hyper, **clients)
    rows = {each.quantity: list(each.values) for each in report.results.observations if each.where.get("head")}
    return {"accuracy": rows["accuracy"], "bytes": rows["up"], "d": features.dim, "classes": features.n_classes}


# --------------------------------------------------------------------------------------------------------- clusters


def clusters(options: argparse.Namespace) -> None:
    """Several Gaussians a class with one covariance, around means of sub-clusters that clients find."""
    found: dict[str, Any] = json.loads(options.out.read_text()) if options.out.exists() else {}
    table = found["clusters"] = found.get("clusters", {})
    for file in options.files:
        features = fewer(load_features(file), options.most)
        X, X_test = (part.X.astype(np.float64) for part in (features.train, features.test))
        if X.min() >= 0:
            X, X_test = np.sqrt(X), np.sqrt(X_test)
        row = table[Path(file).stem] = dict[str, float]()
        for n_clients, number in ((1, 1), (1, 2), (1, 4), (20, 2), (20, 4)):
            right = []
            for seed in range(options.seeds):
                owners = np.random.default_rng(seed).integers(0, n_clients, len(X))
                parts, labels = _sub_clusters(X, features.train.y, owners, number, seed)
                predicted = _mixture(X, parts, labels, X_test, features.n_classes)
                right.append(100 * float(np.mean(predicted == features.test.y)))
            name = "LDA" if number == 1 else f"{number} clusters, {n_clients} client{'s' * (n_clients > 1)}"
            row[name] = float(np.mean(right))
        options.out.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
        print(Path(file).stem, row, flush=True)


def _sub_clusters(X: Floats, y: Any, owners: Any, number: int, seed: int) -> tuple[Any, Any]:
    """Return the sub-cluster of every sample, and the class of every sub-cluster; ten samples or more each."""
    from sklearn.cluster import KMeans

    parts, labels = np.full(len(X), -1), list[int]()
    for owner in np.unique(owners):
        for label in np.unique(y[owners == owner]):
            rows = np.flatnonzero((y == label) & (owners == owner))
            most = min(number, max(1, len(rows) // 10))
            split = KMeans(most, n_init=1, random_state=seed, max_iter=30).fit(X[rows]).labels_
            for part in np.unique(split):
                parts[rows[split == part]] = len(labels)
                labels.append(int(label))
    return parts, np.array(labels)


def _mixture(X: Floats, parts: Any, labels: Any, X_test: Floats, n_classes: int) -> Any:
    counts = np.bincount(parts).astype(np.float64)
    means = np.stack([np.bincount(parts, column) for column in X.T], axis=1) / counts[:, None]
    rest, freedom = X - means[parts], len(X) - len(counts)
    covariance = rest.T @ rest / freedom
    covariance[np.diag_indices(len(covariance))] += 0.5 * np.trace(covariance) / freedom
    lower, centre = np.linalg.cholesky(covariance), X.mean(axis=0)
    centres, points = (np.linalg.solve(lower, (rows - centre).T).T for rows in (means, X_test))
    each = points @ centres.T - 0.5 * (centres**2).sum(axis=1) + np.log(counts)
    return np.stack([logsumexp(each[:, labels == c], axis=1) for c in range(n_classes)], axis=1).argmax(axis=1)


# ------------------------------------------------------------------------------------------------------------- page


def key_of(data: str, split: str, head: Measured) -> str:
    """Return the name of a measurement."""
    return " | ".join([data, split, head.label])


def page(found: Mapping[str, Any]) -> str:
    """Return the page of what was measured."""
    parts = [HEAD]
    titles = {SPLITS[0]: "## 100 clients, Dirichlet 0.1 a class", SPLITS[1]: "## A domain a client"}
    for split, title in titles.items():
        data = [name for name in DATA if any(key.startswith(f"{name} | {split} | ") for key in found)]
        if data:
            parts += [f"{title}\n", *_table(found, split, data)]
    return "\n".join(parts) + TAIL.replace("{clusters}", _clusters(found.get("clusters", {})))


def _table(found: Mapping[str, Any], split: str, data: list[str]) -> Iterator[str]:
    yield "| | " + " | ".join(f"{DATA[name]} | kB" for name in data) + " |"
    yield "|---|" + "---|---|" * len(data)
    group = ""
    for head in HEADS:
        cells = [found.get(key_of(name, split, head)) for name in data]
        if not any(cells):
            continue
        if head.group != group:
            group = head.group
            yield f"| *{group}* |" + " | |" * len(data)
        yield f"| {head.label} | " + " | ".join(_cell(cell) for cell in cells) + " |"


def _cell(cell: Mapping[str, Any] | None) -> str:
    if cell is None or not cell["accuracy"]:
        return "– | –"
    accuracies, sent = 100 * np.array(cell["accuracy"]), float(np.mean(cell["bytes"]))
    spread = f" ± {accuracies.std(ddof=1):.1f}" if len(accuracies) > 1 else ""
    return f"{accuracies.mean():.1f}{spread} | {sent / 1000:,.0f}"


def _clusters(found: Mapping[str, Mapping[str, float]]) -> str:
    columns = list(next(iter(found.values()), {}))
    lines = ["| | " + " | ".join(columns) + " |", "|---|" + "---|" * len(columns)]
    for name, row in found.items():
        lines.append(f"| {DATA.get(name, name)} | " + " | ".join(f"{row[column]:.1f}" for column in columns) + " |")
    return "\n".join(lines) + "\n"


def show_page(options: argparse.Namespace) -> None:
    """The page of what was measured."""
    print(page(json.loads(Path(options.files[0]).read_text())), end="")


PARTS: dict[str, Callable[[argparse.Namespace], None]] = {
    "targets": targets,
    "heads": heads,
    "clusters": clusters,
    "page": show_page,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=sorted(PARTS))
    parser.add_argument("files", nargs="+")
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--alpha", type=float, default=0.1)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--most", type=int, default=10_000, help="training samples at most")
    parser.add_argument("--out", type=Path, default=Path("docs/reproduction/further.json"))
    options = parser.parse_args()
    PARTS[options.part](options)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
