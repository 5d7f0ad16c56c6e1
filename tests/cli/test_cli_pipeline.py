"""The long way (files of every client, merged, fitted, evaluated) and the short ones give the same accuracy."""

import json
from typing import Any

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
