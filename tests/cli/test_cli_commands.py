"""Each command does what it says, for people and as JSON."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedmoments as fm
from fedmoments.cli import output
from fedmoments.cli.output import print_table, progress_bar
from fedmoments.samples import Split
from fedmoments.study.simulation import Federation


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
    from fedmoments.core.maps import Normalize, RandomProjection, from_description

    expected = Normalize() | RandomProjection(12, 5, 3)
    assert from_description(notes["feature_map"]) == expected
    assert stats.fixed_point == fm.FixedPoint(8.0, 100000)
    np.testing.assert_allclose(stats.gram, np.einsum("ni,nj->ij", *2 * [expected(arrays["x_train"])]), atol=1e-6)


def test_a_study_of_several_heads_says_its_answer_on_a_line_of_its_own(run: Any, features: str) -> None:
    """The line end after the answer came out as the two characters of its escape."""
    lines = run("simulate", features, "--heads", "fedncm,fed3r", "--clients", "3", "--seeds", "1").stdout.splitlines()
    answer = next(i for i, line in enumerate(lines) if " per client" in line and line.endswith("."))
    assert not lines[answer + 1]
    assert "\\n" not in "".join(lines)


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
    trained = ["fishermix", "fishermix-free", "lda-free", "nb-free", "proto-hyper", "proto-hyper-free"]
    assert found["fits_heads"] == ["auto-free", "fedcof", "fedncm", *trained, "qda-free"]


def test_fit_takes_hyper_parameters(run: Any, features: str) -> None:
    run("measure", features, "--head", "gh-dlr-qda", "-o", "a.stats")
    settings = ["--set", "rank=2", "--set", "shrinkage=relative:0.5"]
    found = document(run("fit", "a.stats", "--head", "gh-dlr-qda", *settings, "-o", "c", "--json"))
    given = {"rank": 2, "covariance": "exact", "shrinkage": "relative:0.5"}
    assert found["settings"] == {**given, "pooling": "automatic"}
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
    assert found["accuracy_interval"][0] < found["accuracy"] < found["accuracy_interval"][1]
    shares = fm.load("c").predict_proba(arrays["x_test"]).max(axis=1)
    assert found["mean_confidence"] == pytest.approx(shares.mean(), abs=1e-6)
    bins = np.minimum((15 * shares).astype(int), 14)
    errors = [abs((shares - right)[bins == place].sum()) for place in range(15)]
    assert found["expected_calibration_error"] == pytest.approx(sum(errors) / len(right), abs=1e-6)
    shown = run("evaluate", "c", features, "--per-class").stdout
    assert "taken for" in shown
    assert f"expected calibration error {100 * found['expected_calibration_error']:.1f} points" in shown


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
    result = run("simulate", features, "--heads", "fedncm,fedcof", *sweep, "--seeds", "2", "--out", "a/new/place", "-v")
    written = json.loads(Path("a/new/place/results.json").read_text("utf-8"))
    assert len(written["rows"]) == 2 * 2 * 2 * 2
    table, digests = result.stdout.split(
        "digests that a real federation of the same clients reproduces, seed 0, 5 clients, 1 mean per client and class"
    )
    assert sum(line.startswith("fedcof ") for line in table.splitlines()) == 8
    assert digests.count("fedcof") == 1
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
    heads = [row["head"] for row in document(run("simulate", features, "--heads", "all", *arguments))["rows"]]
    assert {*fm.head_names()} - {*heads} == {"fed3r-rf", "qda-exchange", "fisher-rf", "deep-ridge"}
    small = ["--heads", "all,fed3r-rf", "--set", "fed3r-rf.n_features=30"]
    last = document(run("simulate", features, *small, *arguments))["rows"][-1]
    assert last["head"] == "fed3r-rf"
    assert last["hyper"]["n_features"] == 30


def test_simulate_prints_the_whole_document_as_json(run: Any, features: str) -> None:
    arguments = ["--heads", "fedncm", "--clients", "5", "--seeds", "1", "--out", "r"]
    printed = document(run("simulate", features, *arguments, "--json"))
    assert printed == json.loads(Path("r/results.json").read_text("utf-8"))
    assert printed["config"]["heads"] == ["fedncm"]


def test_simulate_runs_the_configuration_that_it_wrote_and_typed_options_win(run: Any, features: str) -> None:
    settings = ["--clients", "5", "--seeds", "2", "--seed", "3", "--participation", "2,2:replacement"]
    first = document(run("simulate", features, "--heads", "fedcof,fedncm", *settings, "--out", "r", "--json"))
    again = document(run("simulate", "--config", "r/config.toml", "--json"))
    assert again["config"] == first["config"]
    assert again["rounds"] == first["rounds"]
    assert [row["accuracy"] for row in again["rows"]] == [row["accuracy"] for row in first["rows"]]
    other = document(run("simulate", "--config", "r/config.toml", "--seeds", "1", "--heads", "fedncm", "--json"))
    assert other["config"] == {**first["config"], "seeds": 1, "heads": ["fedncm"]}
    assert [outcome["seed"] for outcome in other["rows"][0]["seeds"]] == [3]


def test_simulate_again_keeps_what_was_found(run: Any, features: str) -> None:
    arguments = ["simulate", features, "--heads", "fedncm,fedcof", "--clients", "5", "--out", "r"]
    assert "kept" not in run(*arguments, "--seeds", "2").stdout
    assert "4 results of an earlier run in r were kept" in run(*arguments, "--seeds", "3").stdout


@pytest.mark.parametrize(
    ("after", "arguments", "told"),
    [
        (3, ["--out", "r"], "interrupted; 3 results are kept in r, the same command continues from there\n"),
        (1, ["--out", "r"], "interrupted; 1 result is kept in r, the same command continues from there\n"),
        (0, ["--out", "r"], "interrupted; no result is kept in r yet\n"),
        (3, [], "interrupted\n"),
    ],
)
def test_an_interrupted_simulation_says_what_is_kept_and_goes_on_from_there(
    run: Any, features: str, monkeypatch: pytest.MonkeyPatch, after: int, arguments: list[str], told: str
) -> None:
    really = Federation.outcome
    tried: list[Any] = []

    def interrupted(self: Federation, head: Any) -> Any:
        if len(tried) == after:
            raise KeyboardInterrupt
        tried.append(head)
        return really(self, head)

    command = ["simulate", features, "--heads", "fedncm,gh-lda", "--seeds", "2", "--clients", "5", *arguments]
    monkeypatch.setattr(Federation, "outcome", interrupted)
    result = run(*command, code=130)
    assert (result.stdout, result.stderr) == ("", told)
    monkeypatch.setattr(Federation, "outcome", really)
    kept = f"{after} result{'s' if after > 1 else ''} of an earlier run in r were kept"
    assert (kept in run(*command).stdout) == (bool(arguments) and after > 0)


def test_simulate_names_and_counts_what_is_missing(run: Any, workshop: Path, arrays: Any) -> None:
    few = arrays["y_train"] < 3
    np.savez(workshop / "gaps.npz", **{**arrays, "x_train": arrays["x_train"][few], "y_train": arrays["y_train"][few]})
    arguments = ["simulate", "gaps.npz", "--heads", "fedncm", "--clients", "5", "--seeds", "1"]
    text = run(*arguments).stdout
    assert text.startswith("7 problems:\n  class class 3: it has no sample to train on\n")
    assert "… and 2 more, all in results.json" in text
    problems = document(run(*arguments, "--json"))["data"]["problems"]
    assert [problem["where"] for problem in problems] == [f"class class {label}" for label in range(3, 10)]
    assert "class class 3" in run(*arguments, "--strict", code=2).stderr


def test_simulate_splits_as_a_flower_partitioner_with_commas_does(run: Any, features: str) -> None:
    pytest.importorskip("flwr_datasets")
    split = "flower:DirichletPartitioner(partition_by=label, alpha=0.5, min_partition_size=1),iid"
    found = document(
        run("simulate", features, "--split", split, "--heads", "fedncm", "--clients", "5", "--seeds", "1", "--json")
    )
    assert [row["split"] for row in found["rows"]] == [split.removesuffix(",iid"), "iid"]


def test_encoders_are_listed_for_people_and_machines(run: Any) -> None:
    from fedmoments.samples.encoders.registry import encoder_names

    text = run("encoders").stdout
    found = json.loads(run("encoders", "--json").stdout)
    assert [entry["name"] for entry in found] == list(encoder_names())
    for entry in found:
        assert entry["name"] in text
        assert entry["description"]
        assert set(entry["takes"].split(", ")) <= {"audio", "image", "text", "features"}
        assert isinstance(entry["installed"], bool)
    by_name = {entry["name"]: entry for entry in found}
    lite = by_name["efficientnet-lite0"]
    assert (lite["takes"], lite["dim"], lite["size"], lite["extra"]) == ("image", 1280, 224, "torch")
    assert by_name["identity"]["installed"]
    assert by_name["onnx:FILE"]["takes"] == "image, text, features"
    for entry in found:  # what is missing says what to type
        assert (entry["remedy"] is None) == entry["installed"]
    assert by_name["timm:NAME"]["remedy"] in {None, "pip install 'fedmoments[timm]'"}


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


def test_progress_without_a_terminal_is_a_line_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with progress_bar("counting") as quiet:
        quiet(1, 3, "one")
    assert capsys.readouterr().err == "", "what is over at once says nothing"
    monkeypatch.setattr(output, "QUIET", 0.0)
    with progress_bar("counting") as move:
        move(1, 3, "one")
        move(2, 3, "")
    assert capsys.readouterr().err == "counting: 1 of 3, one\ncounting: 2 of 3\n"


def test_simulate_takes_the_split_that_was_written(run: Any, features: str) -> None:
    how = ("--clients", "7", "--seed", "5")
    run("split", features, "--split", "dirichlet:0.3", *how, "--out", "seven.split")
    heads = ("--heads", "fedncm,gh-lda", "--json")
    by_file = json.loads(run("simulate", features, "--split", "seven.split", "--seeds", "2", *heads).stdout)
    drawn = json.loads(run("simulate", features, "--split", "dirichlet:0.3", *how, "--seeds", "1", *heads).stdout)
    assert [split["scheme"] for split in by_file["splits"]] == ["file:seven.split"] * 2
    assert {split["clients"] for split in by_file["splits"]} == {7}
    for row, other in zip(by_file["rows"], drawn["rows"], strict=True):
        assert row["accuracy"] == other["accuracy"]


def test_a_split_of_samples_that_are_held_out_from_goes_into_simulate(run: Any) -> None:
    share = ("--test-share", "0.4", "--seed", "3")
    run("split", "digits", "--split", "dirichlet:0.5", "--clients", "6", *share, "-o", "six.split")
    simulated = ("digits", "--encoder", "untrained:squeezenet-1.1", "--size", "32", "--heads", "fedncm", "--seeds", "1")
    same = [
        document(run("simulate", *simulated, *share, "--split", how, *more, "-o", f"out-{place}", "--json"))
        for place, (how, more) in enumerate([("file:six.split", ()), ("dirichlet:0.5", ("--clients", "6"))])
    ]
    assert [found["data"]["train"] for found in same] == [1078, 1078]
    assert same[0]["rows"][0]["accuracy"] == same[1]["rows"][0]["accuracy"]
    assert "the same --test-share and --seed" in run("simulate", *simulated, "--split", "six.split", code=2).stderr
