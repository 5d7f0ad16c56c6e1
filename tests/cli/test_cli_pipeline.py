"""The long way (files of every client, merged, fitted, evaluated) and the short ones give the same accuracy."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedmoments as fm
from fedmoments.samples import Split
from fedmoments.samples.features import load_features
from fedmoments.study.simulation import simulate


@pytest.mark.parametrize(("head", "means"), [("fedcof", 1), ("fedcof", 2), ("gh-lda", 1), ("gh-nb", 1)])
def test_files_of_every_client_give_the_accuracy_of_simulate_and_fit(
    run: Any, features: str, arrays: Any, head: str, means: int
) -> None:
    run("split", features, "--split", "dirichlet:0.5", "--clients", "6", "--seed", "0", "-o", "s")
    files = []
    for client in range(6):
        files.append(f"{client}.stats")
        several = ["--means-per-client", means] if means > 1 else []
        run("measure", features, "--split", "s", "--client", client, "--head", head, *several, "-o", files[-1])
    run("merge", *files, "-o", "merged.stats")
    run("fit", "merged.stats", "--head", head, "-o", "merged.classifier")
    run("fit", *files, "--head", head, "-o", "apart.classifier")

    split = Split.load("s")
    parties = {k: (arrays["x_train"][mine], arrays["y_train"][mine]) for k, mine in enumerate(split)}
    direct = fm.fit(head, parties, n_classes=10, means_per_client=means)
    expected = float((direct.predict(arrays["x_test"]) == arrays["y_test"]).mean())
    simulated = simulate(
        load_features(features), [head], clients=[6], splits=["dirichlet:0.5"], means_per_client=[means], seeds=1
    )
    assert simulated.rows[0].accuracy == pytest.approx(expected)
    for classifier in ("merged.classifier", "apart.classifier"):
        found = json.loads(run("evaluate", classifier, features, "--json").stdout)
        assert found["accuracy"] == pytest.approx(expected)


def test_fixed_point_files_give_one_digest_in_any_order(run: Any, features: str) -> None:
    run("split", features, "--clients", "3", "-o", "s")
    fixed = ["--fixed-point", "--norm-bound", "64", "--max-samples", "10000"]
    for client in range(3):
        run(
            "measure", features, "--split", "s", "--client", client, "--head", "gh-lda", *fixed, "-o", f"{client}.stats"
        )
    digests = set()
    for order in ("012", "210", "102"):
        result = run("fit", *(f"{client}.stats" for client in order), "--head", "gh-lda", "-o", "c", "--json")
        digests.add(json.loads(result.stdout)["digest"])
    assert len(digests) == 1


def test_statistics_files_merge_by_class_name_whatever_the_order(run: Any, arrays: Any, workshop: Path) -> None:
    names, order = arrays["classes"], np.array([3, 1, 0, 2, 4, 5, 6, 7, 9, 8])
    rows = np.arange(len(arrays["y_train"])) % 2 == 0
    place = np.argsort(order)  # class c stands at place[c] in the other file
    for name, mine, labels, classes in (
        ("a", rows, arrays["y_train"], names),
        ("b", ~rows, place[arrays["y_train"]], names[order]),
    ):
        np.savez(f"{name}.npz", x_train=arrays["x_train"][mine], y_train=labels[mine], classes=classes)
        run("measure", f"{name}.npz", "--head", "gh-lda", "--client", name, "--fixed-point", "--out", f"{name}.stats")
    np.savez("c.npz", x_train=arrays["x_train"][~rows], y_train=arrays["y_train"][~rows], classes=names)
    run("measure", "c.npz", "--head", "gh-lda", "--client", "b", "--fixed-point", "--out", "c.stats")
    run("merge", "a.stats", "b.stats", "--out", "by-name.stats")
    run("merge", "a.stats", "c.stats", "--out", "alike.stats")
    assert Path("by-name.stats").read_bytes() == Path("alike.stats").read_bytes()
    run("fit", "a.stats", "b.stats", "--head", "gh-lda", "--out", "one.head")
    run("fit", "a.stats", "c.stats", "--head", "gh-lda", "--out", "two.head")
    one, two = (fm.load(name).scores(arrays["x_train"]) for name in ("one.head", "two.head"))
    assert one.tobytes() == two.tobytes()
