"""Calibration of every head on sets of features: expected errors at T = 1 and at the temperature of the head.

    python benchmarks/calibration.py banking77.npz cifar10.npz --others pacs.npz --clients 100 [--held-out 0.2]

A set is an ``.npz`` file with ``x_train``, ``y_train``, ``x_test`` and ``y_test``; constants were chosen on the first
ones, ``--others`` took no part. With ``--held-out``, clients keep that share of their training samples for tests; a
third and a fourth error are those after exact sums of their results, and after coarse ones, as they leave clients that
are masked.
"""

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import fedmoments as fm
from fedmoments.core.classifier import Classifier
from fedmoments.federation.evaluation import LocalEvaluation
from fedmoments.federation.evaluation.refining import refined_temperature
from fedmoments.samples.splits.dirichlet import dirichlet_per_class

HEADS = (
    "fedncm,fed3r,fedcof,fedcof-oracle,fedcof-spherical,fedcof-diagonal,gh-lda,gh-nb,gh-qda,gh-dlr-qda,lda-free,nb-free,"
    "qda-free,sketch,lda-sketch,qda-sketch,auto,fishermix"
)


#: Below how many samples a client tells no count.
MINIMUM = 5

Data = dict[str, NDArray[Any]]


def errors(head: str, data: Data, options: argparse.Namespace) -> list[float]:
    """Return the expected calibration errors at T = 1, at the head's temperature and after tests, in per cent."""
    split = dirichlet_per_class(data["y_train"], options.clients, options.alpha, options.seed)
    rng = np.random.default_rng(1)
    kept = [np.split(rng.permutation(rows), [round(options.held_out * len(rows))]) for rows in split if len(rows)]
    parties = {place: (data["x_train"][rows], data["y_train"][rows]) for place, (_, rows) in enumerate(kept)}
    classifier = fm.fit(head, parties, n_classes=int(data["y_train"].max()) + 1)
    warmths = [1.0, classifier.temperature]
    if options.held_out:
        warmths += after_tests(classifier, [(data["x_train"][rows], data["y_train"][rows]) for rows, _ in kept])
    tested = [LocalEvaluation.of(classifier, data["x_test"], data["y_test"], warmth) for warmth in warmths]
    return [100 * found.expected_error for found in tested]


def after_tests(classifier: Classifier, held: list[tuple[NDArray[Any], NDArray[Any]]]) -> list[float]:
    """Return the temperatures that exact sums of clients' tests give, and coarse ones."""
    exact = coarse = LocalEvaluation.zero(classifier.n_classes)
    for X, y in held:
        if len(y):
            found = LocalEvaluation.of(classifier, X, y, classifier.temperature, drawn=True)
            exact, coarse = exact + found, coarse + found.coarse(MINIMUM)
    return [refined_temperature(sums, classifier.temperature) for sums in (exact, coarse)]


def line(name: str, cells: list[NDArray[np.float64]]) -> str:
    """Return a row of a table; a cell has errors (2 or 4) one after the other."""
    return f"| {name} | " + " | ".join(" → ".join(f"{error:.1f}" for error in each) for each in cells) + " |"


def read(path: Path, most: int) -> Data:
    """Return the arrays of a set, with so many training samples at most."""
    with np.load(path) as arrays:
        data = {name: arrays[name] for name in ("x_train", "y_train", "x_test", "y_test")}
    rows = np.random.default_rng(0).permutation(len(data["y_train"]))[:most]
    data |= {"x_train": data["x_train"][rows], "y_train": data["y_train"][rows]}
    return {name: array.astype(np.float64 if name[0] == "x" else np.int64) for name, array in data.items()}


def report(found: NDArray[np.float64], heads: list[str], names: list[str], chosen: int) -> None:
    """Print tables by head and by set of errors (heads, sets, 2 or 4), and where they are worse than at T = 1."""
    groups = [part for part in (found[:, :chosen], found[:, chosen:]) if part.shape[1]]
    print("\n| head | constants chosen on | others | worst set |\n|---|---|---|---|")
    for place, head in enumerate(heads):
        worst = int(found[place, :, 1].argmax())
        cells = [part[place].mean(axis=0) for part in groups]
        print(line(f"`{head}`", [*cells, found[place, worst]]) + f" {names[worst]} |")
    print(line("mean", [part.mean(axis=(0, 1)) for part in groups]))
    print("\n| set | mean over heads | worst head |\n|---|---|---|")
    for place, name in enumerate(names):
        worst = int(found[:, place, 1].argmax())
        print(line(name, [found[:, place].mean(axis=0), found[worst, place]]) + f" `{heads[worst]}` |")
    for place, when in list(enumerate(("at T = 1", "in closed form", "after exact sums", "after coarse sums")))[1:]:
        if place < found.shape[2]:
            worse = found[:, :, place] - found[:, :, 0]
            print(f"\n{when}, over 0.5 worse than T = 1: {int((worse > 0.5).sum())} of {worse.size}:", end=" ")
            cells = [f"{heads[h]} on {names[s]} {worse[h, s]:.1f}" for h, s in np.argwhere(worse > 0.5)]
            print(", ".join(cells))


def main() -> None:
    """Print errors head by head as they are found, then tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+", type=Path)
    parser.add_argument("--others", nargs="*", type=Path, default=[])
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--heads", default=HEADS)
    parser.add_argument("--alpha", type=float, default=0.1, help="Of the Dirichlet split per class.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--held-out", type=float, default=0.0, help="Share of samples that clients test on.")
    parser.add_argument("--most", type=int, default=15000, help="Training samples at most.")
    given = parser.parse_args()
    if not 0.0 <= given.held_out < 1.0:
        parser.error("--held-out is a share from 0 to below 1")
    warnings.simplefilter("ignore")
    loaded = {path.stem: read(path, given.most) for path in (*given.sets, *given.others)}
    heads = given.heads.split(",")
    found = []
    for head in heads:
        found.append([errors(head, data, given) for data in loaded.values()])
        print(line(f"`{head}`", [np.array(each) for each in found[-1]]), flush=True)
    report(np.array(found), heads, list(loaded), len(given.sets))


if __name__ == "__main__":
    main()
