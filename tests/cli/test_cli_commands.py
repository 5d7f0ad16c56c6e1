"""Each command does what it says, for people and as JSON."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedmoments as fm
from fedmoments.cli.output import print_table
from fedmoments.data import Split


def document(result: Any) -> Any:
    assert result.stdout.count("\n}\n") == 1
    return json.loads(result.stdout)


def test_heads_lists_every_head_with_formula_and_paper(run: Any) -> None:
    text = run("heads").stdout
    found = document(run("heads", "--dim", "64", "--classes", "10", "--json"))
    for name, preset in fm.presets().items():
        assert name in text
        assert preset.paper in text
    by_name = {head["name"]: head for head in found["heads"]}
    assert by_name["fed3r"]["floats"] == 10 * 64 + 64 * 65 // 2
    assert by_name["fed3r"]["formula"] == "C·d + d(d+1)/2"
    assert by_name["fedcof-spherical"]["formula"] == "C·d + C"


def test_split_writes_a_split_and_says_who_holds_what(run: Any, features: str, arrays: Any) -> None:
    found = document(run("split", features, "--clients", "30", "--out", "s", "--json"))
    made = Split.load("s")
    assert found["digest"] == made.digest()
    assert [row["samples"] for row in found["holds"]] == made.sizes.tolist()
    text = run("split", features, "--clients", "30").stdout
    assert "… and 10 more clients" in text
    assert "more clients" not in run("split", features, "--clients", "30", "--all").stdout


def test_split_by_domain_names_the_domains(run: Any, workshop: Path, arrays: Any) -> None:
    domains = np.arange(len(arrays["y_train"])) % 2
    np.savez(workshop / "d.npz", **arrays, domain_train=domains, domains=np.array(["photo", "sketch"]))
    holds = document(run("split", "d.npz", "--split", "domain", "--json"))["holds"]
    assert [row["client"] for row in holds] == ["photo", "sketch"]


def test_measure_writes_what_the_library_measures(run: Any, features: str, arrays: Any) -> None:
    found = document(run("measure", features, "--head", "fedcof", "--head", "gh-lda", "-o", "a.stats", "--json"))
    stats, notes = fm.load_statistics("a.stats")
    spec = fm.spec_for("fedcof", "gh-lda")
    assert stats == fm.Statistics.of(arrays["x_train"], arrays["y_train"], spec, n_classes=10)
    assert notes["clients"] == ["digits"] == [found["client"]]
    assert notes["class_names"] == arrays["classes"].tolist()
    assert found["moments"] == ["gram", "client_means"]


def test_measure_behind_maps_and_in_fixed_point(run: Any, features: str, arrays: Any) -> None:
    maps = ["--normalize", "--project", "5", "--seed", "3"]
    fixed = ["--fixed-point", "--norm-bound", "8", "--max-samples", "100000"]
    run("measure", features, "--moments", "gram", *maps, *fixed, "-o", "a.stats")
    stats, notes = fm.load_statistics("a.stats")
    from fedmoments.maps import Normalize, RandomProjection, from_description

    expected = Normalize() | RandomProjection(12, 5, 3)
    assert from_description(notes["feature_map"]) == expected
    assert stats.fixed_point == fm.FixedPoint(8.0, 100000)
    np.testing.assert_allclose(stats.gram, np.einsum("ni,nj->ij", *2 * [expected(arrays["x_train"])]), atol=1e-6)


def test_merge_pools_and_adds_up(run: Any, features: str) -> None:
    run("split", features, "--split", "iid", "--clients", "3", "-o", "s")
    for client in range(3):
        run("measure", features, "--split", "s", "--client", client, "--head", "fedcof", "-o", f"{client}.stats")
    files = [f"{client}.stats" for client in range(3)]
    found = document(run("merge", *files, "-o", "all.stats", "--json"))
    assert found["clients"] == ["0", "1", "2"]
    assert found["rows"] == 30
    whole, _ = fm.load_statistics("all.stats")
    assert whole == fm.Statistics.merge(fm.load_statistics(file)[0] for file in files)
    run("merge", *files, "--pool", "-o", "pooled.stats")
    pooled, _ = fm.load_statistics("pooled.stats")
    assert not pooled.spec.keeps_clients_apart
    np.testing.assert_allclose(pooled.sums, whole.sums)
    refused = run("fit", "pooled.stats", "--head", "fedcof", "-o", "x", code=2)
    assert "pooled.stats" in refused.stderr


def test_inspect_tells_the_three_kinds_apart(run: Any, features: str) -> None:
    run("split", features, "--clients", "4", "-o", "s")
    run("measure", features, "--head", "gh-lda", "--client", "clinic", "-o", "a.stats")
    run("fit", "a.stats", "--head", "gh-lda", "-o", "a.classifier")
    expected = {
        "s": ("split", "dirichlet:0.1"),
        "a.stats": ("statistics", "clinic"),
        "a.classifier": ("classifier", "gh-lda"),
    }
    for file, (kind, word) in expected.items():
        assert document(run("inspect", file, "--json"))["kind"] == kind
        text = run("inspect", file).stdout
        assert word in text
        assert "sound" in text


def test_inspect_says_which_heads_statistics_suffice_for(run: Any, features: str) -> None:
    run("measure", features, "--head", "fedcof", "-o", "a.stats")
    found = document(run("inspect", "a.stats", "--json"))
    assert found["fits_heads"] == ["fedcof", "fedncm", "lda-free", "nb-free"]


def test_fit_takes_hyper_parameters(run: Any, features: str) -> None:
    run("measure", features, "--head", "gh-dlr-qda", "-o", "a.stats")
    settings = ["--set", "rank=2", "--set", "shrinkage=relative:0.5"]
    found = document(run("fit", "a.stats", "--head", "gh-dlr-qda", *settings, "-o", "c", "--json"))
    assert found["settings"] == {"rank": 2, "covariance": "exact", "shrinkage": "relative:0.5"}
    stats, _ = fm.load_statistics("a.stats")
    assert found["digest"] == fm.fit("gh-dlr-qda", stats, rank=2, shrinkage="relative:0.5").digest()


def test_fit_behind_random_fourier_features(run: Any, features: str) -> None:
    run("measure", features, "--head", "fed3r-rf", "--fourier", "40", "--bandwidth", "5", "-o", "a.stats")
    run("fit", "a.stats", "--head", "fed3r-rf", "-o", "c")
    assert fm.load("c").feature_map.output_dim(12) == 40  # type: ignore[union-attr]
    assert document(run("evaluate", "c", features, "--json"))["accuracy"] > 0.5


def test_evaluate_counts_right_and_wrong(run: Any, features: str, arrays: Any) -> None:
    run("measure", features, "--head", "fedncm", "-o", "a.stats")
    run("fit", "a.stats", "--head", "fedncm", "-o", "c")
    found = document(run("evaluate", "c", features, "--per-class", "--pairs", "2", "--json"))
    predicted = fm.load("c").predict(arrays["x_test"])
    right = predicted == arrays["y_test"]
    assert found["accuracy"] == pytest.approx(right.mean())
    by_class = [right[arrays["y_test"] == label].mean() for label in range(10)]
    assert found["balanced_accuracy"] == pytest.approx(np.mean(by_class))
    assert [row["accuracy"] for row in found["per_class"]] == pytest.approx(by_class)
    worst = found["confusions"][0]
    true, taken = (int(worst[key].split()[1]) for key in ("true", "predicted"))
    assert worst["count"] == ((arrays["y_test"] == true) & (predicted == taken)).sum()
    assert len(found["confusions"]) == 2
    assert "taken for" in run("evaluate", "c", features, "--per-class").stdout


def test_costs_prices_both_directions(run: Any) -> None:
    arguments = ["--dim", "512", "--classes", "100", "--clients", "100", "--present", "2870", "--sampled", "10"]
    train = ["--encoder-parameters", "735424", "--rounds", "7"]
    found = document(run("costs", "fedcof", "fedavg", "fedcof-oracle-paper", "--square", *arguments, *train, "--json"))
    fedcof, fedavg, oracle = found["methods"]
    assert fedcof["up_bytes"] == 2870 * 512 * 4
    assert fedcof["down_bytes"] == 0
    assert fedavg["down_bytes"] == fedavg["up_bytes"] == 4 * 70 * (735424 + 51200)
    assert oracle["up_bytes"] == pytest.approx(3015.3e6, rel=1e-4)
    assert found["sampling"]["rounds_without_replacement"] == 10
    assert "without replacement" in run("costs").stdout


def test_simulate_prints_a_table_and_writes_json(run: Any, features: str) -> None:
    sweep = ["--clients", "5,20", "--alpha", "0.5", "--shrinkage", "automatic,absolute:1", "--means-per-client", "1,2"]
    result = run("simulate", features, "--heads", "fedncm,fedcof", *sweep, "--seeds", "2", "--out", "r.json")
    written = json.loads(Path("r.json").read_text())
    assert len(written["rows"]) == 2 * 2 * 2 * 2
    assert result.stdout.count("fedcof") == 8
    assert "±" in result.stdout
    assert written["rows"][0]["split"] == "dirichlet:0.5"


def test_simulate_goes_on_when_a_head_cannot_be_fitted(run: Any, features: str) -> None:
    result = run("simulate", features, "--heads", "fedcof,fedncm", "--clients", "1", "--seeds", "2")
    assert "not fitted" in result.stdout
    assert "fedcof could not be fitted (2 times)" in result.stdout
    found = document(run("simulate", features, "--heads", "fedcof,fedncm", "--clients", "1", "--seeds", "1", "--json"))
    assert found["rows"][0]["accuracy"] is None
    assert found["rows"][0]["reasons"]
    assert found["rows"][1]["accuracy"] > 0.5


def test_simulate_all_leaves_out_only_what_has_a_map_of_its_own(run: Any, features: str) -> None:
    arguments = ["--clients", "5", "--seeds", "1", "--json"]
    heads = [row["head"] for row in document(run("simulate", features, *arguments))["rows"]]
    assert {*fm.head_names()} - {*heads} == {"fed3r-rf"}
    small = ["--heads", "all,fed3r-rf", "--set", "fed3r-rf.n_features=30"]
    last = document(run("simulate", features, *small, *arguments))["rows"][-1]
    assert last["head"] == "fed3r-rf"
    assert last["hyper"]["n_features"] == 30


def test_demo_writes_results_and_features(run: Any, workshop: Path) -> None:
    pytest.importorskip("sklearn")
    found = document(run("demo", "--json"))
    assert json.loads(Path("runs/demo/results.json").read_text())["rows"][0]["head"] == found["rows"][0]["head"]
    accuracy = {row["head"]: row["accuracy"] for row in found["rows"]}
    assert accuracy["fedcof"] > accuracy["fedncm"] > 0.85
    assert found["data"]["dim"] == 64


@pytest.mark.parametrize("width", [60, 80, 120])
def test_tables_fit_the_width_and_lose_no_word(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    rows = [["name", "a long sentence of many words that must wrap somewhere on its way", "1,234"] for _ in range(3)]
    print_table(["head", "what it is and why", "up"], rows, right=["up"])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    assert sum(line.count("somewhere") for line in lines) == 3
