"""``fedmoments reproduce``: what can be reproduced, runs on small data, what is refused, and exit codes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedmoments.study.papers.library as library
from fedmoments.study.papers import PAPERS, experiment, experiments
from fedmoments.study.papers.experiment import read_experiment

TABLE3 = ("reproduce", "fedcof/table3", "--seeds", "2", "--set", "clients=10")
FREE = """
title = "Numbers"
source = "Table 99"
about = "Numbers that a client sends."
needs = "nothing"
engine = "communication"
units = "floats"
tolerance = {tolerance}
rows = [{{ name = "FedNCM", where = {{ method = "fedncm" }} }}]
columns = [{{ name = "numbers", where = {{ quantity = "floats" }} }}]
settings = {{ methods = ["fedncm"], packed = false }}
[[paper]]
name = "d = 512"
settings = {{ dim = 512, classes = 10, clients = 2, present = 20 }}
values = [[{value}]]
"""


@pytest.fixture
def one_free(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return what puts an experiment that needs no data into the library."""

    def put(value: float, tolerance: float = 0.5) -> None:
        made = read_experiment("fedcof/table99", FREE.format(value=value, tolerance=tolerance))
        others = library.experiments()
        monkeypatch.setattr(library, "experiments", lambda: (*others, made))

    return put


def test_list_names_every_experiment_and_what_it_needs(run: Any) -> None:
    text = run("reproduce", "list").stdout
    assert all(each.name in text for each in experiments())
    assert all(words in text for paper, words in PAPERS.items() if any(e.name.startswith(paper) for e in experiments()))
    found = {each["name"]: each for each in json.loads(run("reproduce", "list", "--json").stdout)}
    assert found["fedcof/table1"]["here"] == "yes"
    assert found["fedcof/table1"]["runs"]
    assert found["fedcof/table3"] == {
        "name": "fedcof/table3",
        "source": "Table 3",
        "title": experiment("fedcof/table3").title,
        "needs": "features",
        "engine": "simulation",
        "long": False,
        "runs": True,
        "here": "yes, on digits; others with --data",
    }


def test_list_with_data_says_what_they_lack(run: Any, features: str) -> None:
    found = {each["name"]: each for each in json.loads(run("reproduce", "list", "--data", features, "--json").stdout)}
    assert found["fedcof/table3"]["here"].startswith("yes")
    images = [each for each in found.values() if each["needs"] == "images"]
    assert all("needs images, but" in each["here"] and not each["runs"] for each in images)
    domains = [each for each in found.values() if each["needs"] == "domains"]
    assert all("name the domain" in each["here"] and not each["runs"] for each in domains)


def test_list_knows_domains(run: Any, workshop: Path, arrays: dict[str, Any]) -> None:
    domains = np.array([f"site {i % 3}" for i in range(len(arrays["y_train"]))])
    np.savez(workshop / "sites.npz", **arrays, domain_train=domains)
    found = json.loads(run("reproduce", "list", "--data", "sites.npz", "--json").stdout)
    assert all(each["runs"] for each in found if each["needs"] in ("nothing", "features", "domains"))


def test_a_table_is_run_shown_and_written(run: Any, features: str) -> None:
    text = run(*TABLE3, "--data", features, "--out", "found").stdout
    assert "fedcof/table3 – Table 3" in text
    assert "The setting is reproduced, not the number: digits stands in" in text
    told = experiment("fedcof/table3")
    assert sum(block.name in text for block in told.paper) in (1, 2), "the nearest ones"
    assert all(each.text in text for each in told.claims)
    assert all(row.name in text for row in told.rows)
    assert "- clients is 10 instead of 100, as was requested" in text
    assert "- 2 seeds instead of 5" in text
    (folder,) = Path("found").glob("*/fedcof-table3")
    assert {"results.json", "measurements.csv", "report.html", "summary.md"} <= {path.name for path in folder.iterdir()}
    assert not Path("found", "index.html").exists(), "one alone needs no index"
    written = json.loads((folder / "results.json").read_text("utf-8"))
    assert written["settings"]["clients"] == [10], "one value of a list is a list of one"
    assert written["seeds"] == [0, 1]
    again = json.loads(run(*TABLE3, "--data", features, "--json").stdout)
    assert again["cached"] > 0
    assert again["measurements"] == written["measurements"]


def test_two_processes_measure_what_one_measures(run: Any, features: str) -> None:
    alone, crowd = (
        json.loads(run(*TABLE3, "--data", features, "--fresh", "--jobs", jobs, "--json").stdout) for jobs in ("1", "2")
    )
    assert crowd["cached"] == 0
    kept = [[each for each in found["measurements"] if each["quantity"] != "seconds"] for found in (alone, crowd)]
    assert kept[0] == kept[1] != []


def test_fresh_forgets_what_an_earlier_run_measured(run: Any, features: str) -> None:
    first = json.loads(run(*TABLE3, "--data", features, "--json").stdout)
    known = json.loads(run(*TABLE3, "--data", features, "--json").stdout)
    fresh = json.loads(run(*TABLE3, "--data", features, "--fresh", "--json").stdout)
    assert (known["cached"] > 0, fresh["cached"]) == (True, 0)
    accuracies = [[m["values"] for m in each["measurements"] if m["quantity"] == "accuracy"] for each in (first, fresh)]
    assert accuracies[0] == accuracies[1] != []
    assert first["measurements"] == known["measurements"]
    assert json.loads(run(*TABLE3, "--data", features, "--json").stdout)["cached"] == known["cached"]


def test_own_data_are_compared_number_by_number(run: Any, features: str) -> None:
    part = experiment("fedcof/table3").paper[0].name
    found = json.loads(run(*TABLE3[:4], "--data", features, "--as", part, "--json").stdout)
    assert (found["mode"], found["same_as"]) == ("same data", part)
    text = run(*TABLE3[:4], "--data", features, "--as", part).stdout
    assert f"numbers agree with the paper’s on {part}" in text
    assert "ours: accuracy" in text
    assert f"are those of {part} is what you say" in text
    changed = run(*TABLE3, "--data", features, "--as", part).stdout
    assert "Settings were changed, so that numbers are not compared" in changed


def test_the_settings_of_a_part_stay_when_one_of_them_is_changed(run: Any, features: str) -> None:
    part = ("--as", "CIFAR-100, MobileNetV2")
    found = json.loads(run(*TABLE3, "--data", features, *part, "--set", "hyper.fedcof.ridge=0.02", "--json").stdout)
    assert found["settings"]["hyper"]["fedcof"] == {"ridge": 0.02, "shrinkage": "absolute:0.1"}
    assert found["settings"]["hyper"]["fedcof-oracle"]["shrinkage"] == "absolute:0.1"
    variant = found["settings"]["variants"][0]
    assert variant["hyper"] == {"fedcof": {"ridge": 0.02}}, "a variant follows a change, and keeps the rest of its own"


@pytest.mark.parametrize(
    ("what", "change", "words"),
    [
        ("fedcof/table3", "hyper=3", "--set hyper is a table"),
        ("fedcof/table3", "clients=many", "--set clients holds a number such as 100, but 'many' arrived"),
        ("fedcof/table3", "hyper.fedcof.ridge.x=1", "'hyper.fedcof.ridge' is not a table"),
        ("fedcof/table3", "heads=5", "'5'"),
        ("fedcof/table3", "obfuscations=zz:1", "zz"),
        ("fedcof/figure10", "client=9999", "client = 9999, as --set asks (IndexError"),
        ("gh-ofl/table10", "directions=0", "directions must be one number or more, each 1 or more, but [0] arrived"),
        ("fedcof/prop1", "draws=abc", "--set draws holds a number such as"),
    ],
)
def test_what_a_setting_cannot_be_is_told(run: Any, features: str, what: str, change: str, words: str) -> None:
    result = run("reproduce", what, "--data", features, "--seeds", "1", "--set", change, code=2)
    assert words in " ".join(result.stderr.split())


def test_what_was_named_and_cannot_be_run_stops_everything_before_it(run: Any, features: str) -> None:
    result = run("reproduce", "fedcof/table1", "fedcof/table5", "--data", features, "--out", "found", code=2)
    assert "fedcof/table5 cannot be run: it needs data that name the domain" in " ".join(result.stderr.split())
    assert not list(Path("found").rglob("results.json"))


def test_figures_without_a_table_are_printed_as_numbers(run: Any, features: str) -> None:
    told = ("reproduce", "fedcof/figure5-left", "--data", features, "--seeds", "1", "--set", "clients=5,10")
    text = run(*told, "--set", "splits=iid").stdout
    line = next(line for line in text.splitlines() if line.startswith("FedCOF, "))
    assert all(50 < float(word) <= 100 for word in line.split()[-2:])


def test_other_data_of_the_same_name_are_not_replaced(run: Any, features: str) -> None:
    Path("other").mkdir()
    with np.load(features) as arrays:
        np.savez("other/digits.npz", **{**arrays, "x_train": arrays["x_train"] + 1.0})
    run(*TABLE3, "--data", features, "--out", "found")
    before = next(Path("found").rglob("results.json")).read_bytes()
    result = run(*TABLE3, "--data", "npz:other/digits.npz", "--out", "found", code=2)
    assert "other data of the same name" in " ".join(result.stderr.split())
    assert next(Path("found").rglob("results.json")).read_bytes() == before


def test_settings_may_lie_deep(run: Any, features: str) -> None:
    options = ("--set", "hyper.fedcof.shrinkage=automatic", "--set", "splits=iid,dirichlet:0.5")
    found = json.loads(run(*TABLE3, *options, "--data", features, "--json").stdout)
    assert found["settings"]["hyper"]["fedcof"]["shrinkage"] == "automatic"
    assert "fedcof-oracle" in found["settings"]["hyper"], "what was not named stays"
    assert found["settings"]["splits"] == ["iid", "dirichlet:0.5"]


def test_several_have_an_index_and_what_cannot_run_is_skipped(
    run: Any, features: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = read_experiment("gh-ofl/table98", FREE.format(value=10240, tolerance=0.5).replace('"nothing"', '"images"'))
    some = (experiment("fedcof/table1"), experiment("fedcof/table3"), images)
    monkeypatch.setattr(library, "experiments", lambda: some)
    result = run("reproduce", "all", "--data", features, "--seeds", "1", "--out", "found")
    assert "skipped gh-ofl/table98" in result.stderr
    assert "it needs images, but" in result.stderr
    assert "fedcof/table1" in result.stdout
    page = Path("found", "index.html").read_text("utf-8")
    assert "fedcof-table1/report.html" in page
    assert "gh-ofl" not in page
    documents = json.loads(run("reproduce", "fedcof/*", "--data", features, "--seeds", "1", "--json").stdout)
    assert [each["experiment"]["name"] for each in documents] == ["fedcof/table1", "fedcof/table3"]
    assert "cannot be run: it needs images" in run("reproduce", "gh-ofl/table98", "--data", features, code=2).stderr
    assert "nothing of gh-ofl/*" in run("reproduce", "gh-ofl/*", "--data", features, code=2).stderr


@pytest.mark.parametrize(("value", "code"), [(10240, 0), (10241, 3), (20000, 3)])
def test_numbers_that_need_no_data_must_be_the_papers(run: Any, one_free: Any, value: int, code: int) -> None:
    one_free(value)
    text = run("reproduce", "fedcof/table99", code=code).stdout
    assert "10,240" in text
    assert ("The number agrees" in text) == (code == 0)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["fedcof/tabel3"], "did you mean 'fedcof/table3'?"),
        (["fedcof/table3", "--as", "CIFAR-100, SqeezeNet"], "did you mean 'CIFAR-100, SqueezeNet'?"),
        (["fedcof/table3", "--set", "client=10"], "unknown setting of the engine 'simulation' 'client'"),
        (["fedcof/table3", "--set", "clients"], "--set is typed as NAME=VALUE here, but 'clients' arrived"),
        (["fedcof/table3", "--seeds", "0"], "--seeds must be 1 or more, but 0 arrived"),
        (["list", "fedcof/table3"], "'list' stands alone"),
        (["fedcof/table3", "--out", "runs/demo/digits.npz"], "is a file"),
    ],
)
def test_what_cannot_be_meant_is_refused(run: Any, features: str, arguments: list[str], words: str) -> None:
    data = [] if arguments[0] == "list" else ["--data", features]
    assert words in run("reproduce", *arguments, *data, code=2).stderr


def test_what_to_reproduce_must_be_said(run: Any) -> None:
    assert "WHAT" in run("reproduce", code=2).stderr


def test_list_says_which_extra_is_missing(run: Any, workshop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedmoments.samples.encoders.entry import EncoderEntry

    monkeypatch.setattr(EncoderEntry, "installed", property(lambda _: False))
    pixels = np.random.default_rng(0).integers(0, 255, size=(8, 6, 6), dtype=np.uint8)
    np.savez(workshop / "images.npz", x_train=pixels, y_train=np.arange(8) % 2, x_test=pixels, y_test=np.arange(8) % 2)
    found = {e["name"]: e for e in json.loads(run("reproduce", "list", "--data", "images.npz", "--json").stdout)}
    assert found["fedcof/table3"]["here"] == "no: the encoder efficientnet-lite0 needs fedmoments[torch]"
    assert found["fedcof/table1"]["here"] == "yes"


def test_several_encoders_are_run(run: Any, workshop: Path) -> None:
    pytest.importorskip("torch")
    names = "untrained:squeezenet-1.1:0,untrained:squeezenet-1.1:1"
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 255, size=(30, 8, 8), dtype=np.uint8), np.arange(30) % 3
    np.savez(workshop / "images.npz", x_train=x, y_train=y, x_test=x[:9], y_test=y[:9])
    options = ("--data", "images.npz", "--encoder", names, "--size", "32", "--set", "heads=fedncm", "--seeds", "1")
    found = json.loads(run("reproduce", "fedcof/table3", *options, "--set", "clients=2", "--json").stdout)
    assert len(found["data"]["fingerprints"]) == 2


def test_a_narrow_terminal_shows_the_nearest_part_below(
    run: Any, features: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = run(*TABLE3, "--data", features).stdout
    assert "the nearest to ours is shown" in text
    names = [block.name for block in experiment("fedcof/table3").paper]
    assert sum(any(line.strip() == name for line in text.splitlines()) for name in names) == 1
