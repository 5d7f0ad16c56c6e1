"""``fedmoments personalise``: a client's own classifier from a broadcast file, and simulations of all clients."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedmoments as fm
from fedmoments.samples.features import load_features
from fedmoments.study.personal import simulate_personal
from fedmoments.study.simulation.points import make_split


def document(result: Any) -> Any:
    assert result.stdout.count("\n}\n") == 1
    return json.loads(result.stdout)


@pytest.fixture
def mine(workshop: Path, arrays: Any) -> str:
    """Features of a client that has classes 2 and 5, moved away from everybody else's, and their test samples."""
    chosen = {part: np.isin(arrays[f"y_{part}"], [2, 5]) for part in ("train", "test")}
    held = {f"{axis}_{part}": arrays[f"{axis}_{part}"][rows] for part, rows in chosen.items() for axis in "xy"}
    moved = {name: each + 3.0 if name.startswith("x") else each for name, each in held.items()}
    np.savez(workshop / "mine.npz", **moved, classes=arrays["classes"])
    return "mine.npz"


@pytest.fixture
def broadcast(run: Any, features: str) -> str:
    run("measure", features, "--head", "gh-lda", "--client", "everybody", "-o", "all.stats")
    return "all.stats"


def test_a_classifier_is_restricted_to_the_labels_of_the_client(run: Any, mine: str, broadcast: str) -> None:
    run("fit", broadcast, "--head", "gh-lda", "-o", "global")
    text = run("personalise", mine, "--model", "global", "-o", "personal").stdout
    assert "of 2 of 10 classes; predicts 2 labels" in text
    assert "before" in text
    assert "wrote personal" in text
    read = fm.load("personal")
    assert np.flatnonzero(read.present).tolist() == [2, 5]
    assert read.class_names == fm.load("global").class_names
    assert (read.info["own_labels"], read.info["head"]) == (["class 2", "class 5"], "gh-lda")


@pytest.mark.parametrize("head", ["fedncm", "gh-lda"])
def test_own_shares_are_those_of_the_library(run: Any, mine: str, broadcast: str, head: str) -> None:
    from fedmoments.core.statistics import load_statistics
    from fedmoments.tuning.personal import weigh_by_shares

    text = run("personalise", mine, "--model", broadcast, "--heads", head, "--shares", "-o", "personal").stdout
    assert "predicts 2 labels, as often as they occur" in text
    stats, own = load_statistics(broadcast)[0], load_features(mine).train
    totals = stats.counts if head == "gh-lda" else None
    expected = weigh_by_shares(fm.fit(head, stats), own.X, own.y, totals=totals)
    read = fm.load("personal")
    assert read.digest() == expected.digest()
    assert read.temperature == expected.temperature
    run("fit", broadcast, "--head", "fedncm", "-o", "global")
    found = document(run("personalise", mine, "--model", "global", "--shares", "-o", "personal", "--json"))
    assert found["shares"]
    assert head == "gh-lda" or found["digest"] == expected.digest()


def test_the_encoder_that_a_classifier_notes_stays_noted(run: Any, mine: str, broadcast: str) -> None:
    encoder = {"name": "minilm", "fingerprint": "0" * 64, "options": {}}
    run("fit", broadcast, "--head", "gh-lda", "-o", "global")
    fm.load("global").noting(encoder=encoder).save("noted")
    run("personalise", mine, "--model", "noted", "-o", "personal")
    assert fm.load("personal").info["encoder"] == encoder
    run("personalise", mine, "--model", broadcast, "-o", "personal")
    assert fm.load("personal").info["encoder"]["name"] == "identity"


@pytest.mark.parametrize("head", ["fedncm", "gh-lda", "fed3r"])
def test_a_blend_is_that_of_the_library(run: Any, mine: str, broadcast: str, head: str) -> None:
    from fedmoments.core.statistics import load_statistics
    from fedmoments.tuning.blending import blend
    from fedmoments.tuning.personal import mask_to_labels

    options = ["--model", broadcast, "--beta", "auto", "--newcomer", "--heads", head]
    found = document(run("personalise", mine, *options, "-o", "personal", "--json"))
    own = load_features(mine)
    made = blend(load_statistics(broadcast)[0], own.train.X, own.train.y, included=False)
    expected = mask_to_labels(made.fit(fm.make_head(head)), own.train.y.tolist())
    assert found["digest"] == expected.digest() == fm.load("personal").digest()
    assert found["blend"]["tau"] == made.tau
    assert found["after"] > found["before"]
    assert found["predicts"] == ["class 2", "class 5"]
    read = fm.load("personal")
    assert (read.info["head"], read.class_names[5]) == (head, "class 5")


def test_no_weight_and_all_labels_are_the_global_head(run: Any, mine: str, broadcast: str) -> None:
    run("fit", broadcast, "--head", "fedncm", "--set", "metric=euclidean", "-o", "global")
    run("personalise", mine, "--model", "global", "--beta", "0", "--all-labels", "-o", "personal")
    points = load_features("runs/demo/digits.npz").test.X
    assert np.array_equal(fm.load("personal").predict(points), fm.load("global").predict(points))
    text = run("personalise", mine, "--model", "global", "--beta", "0.5", "-o", "personal").stdout
    assert "own class means have the weight 0.50" in text


def test_means_behind_a_map_are_blended_behind_it(run: Any, mine: str, features: str) -> None:
    run("measure", features, "--head", "fedncm", "--normalize", "--project", "6", "-o", "all.stats")
    text = run("personalise", mine, "--model", "all.stats", "--beta", "auto", "--newcomer", "-o", "personal").stdout
    assert "leave-one-out takes the federation's class means for" in text
    read = fm.load("personal")
    assert read.dim == 6
    assert set(read.predict(load_features(mine).test.X)) <= {2, 5}


def test_class_names_decide_which_label_is_which(run: Any, mine: str, broadcast: str, workshop: Path) -> None:
    own = load_features(mine)
    order = np.array([5, 2])
    parts = {"train": own.train, "test": own.test}
    few: dict[str, Any] = {f"x_{part}": each.X for part, each in parts.items()}
    few |= {f"y_{part}": np.where(each.y == 5, 0, 1) for part, each in parts.items()}
    np.savez(workshop / "few.npz", **few, classes=np.array([f"class {label}" for label in order]))
    first, second = (
        document(run("personalise", name, "--model", broadcast, "--beta", "0.5", "-o", "p", "--json"))["digest"]
        for name in (mine, "few.npz")
    )
    assert first == second
    np.savez(workshop / "odd.npz", **few, classes=np.array(["class 5", "cow"]))
    refused = run("personalise", "odd.npz", "--model", broadcast, "-o", "p", code=2).stderr
    assert "all.stats does not have: cow" in refused


def test_classes_of_the_client_that_nobody_contributed_are_named(run: Any, workshop: Path, arrays: Any) -> None:
    known = arrays["y_train"] != 2
    part = {**arrays, "x_train": arrays["x_train"][known], "y_train": arrays["y_train"][known]}
    np.savez(workshop / "most.npz", **part)
    run("measure", "most.npz", "--head", "fedncm", "-o", "all.stats")
    result = run("personalise", "runs/demo/digits.npz", "--model", "all.stats", "--beta", "auto", "-o", "p")
    assert "no sample of class 2: never predicted" in result.stdout


def test_a_simulation_prints_the_figures_of_the_library(run: Any, features: str) -> None:
    options = ["--clients", "6", "--split", "dirichlet:0.2", "--heads", "fedncm,fedcof", "--seeds", "2", "--seed", "3"]
    text = run("personalise", features, *options, "--beta", "auto,0.5").stdout
    for words in ("blend 0.5 + labels", "mean of clients", "gain", "note: fedcof, local: client", "2 seeds"):
        assert words in text
    found = document(run("personalise", features, *options, "--beta", "auto,0.5", "--json"))
    rows = {(row["head"], row["variant"]): row for row in found["personal"]["rows"]}
    read = load_features(features)
    expected = [
        simulate_personal(
            read, make_split(read, 6, "dirichlet:0.2", seed), ["fedncm", "fedcof"], betas=["auto", "0.5"], seed=seed
        )
        for seed in (3, 4)
    ]
    for (head, variant), row in rows.items():
        figures = [each.row(head, variant).accuracy for each in expected]
        assert [each["accuracy"] for each in row["outcomes"]] == figures
        known = [figure for figure in figures if figure is not None]
        assert row["accuracy"] == (pytest.approx(np.mean(known)) if len(known) == 2 else None)
        assert bool(row["reason"]) == (len(known) < 2)
    assert (rows["fedncm", "labels"]["losses"], rows["fedncm", "global"]["gains"]) == (0.0, 0.0)


def test_several_settings_stand_in_one_table(run: Any, features: str) -> None:
    options = ["--clients", "3,6", "--split", "iid,dirichlet:0.2", "--heads", "fedncm", "--seeds", "1"]
    text = run("personalise", features, *options).stdout
    assert text.count("blend auto + shares") == 4
    assert "split" in text.splitlines()[0]


def test_clients_are_tested_on_what_they_hold_out(run: Any, features: str) -> None:
    options = ["--clients", "4", "--split", "iid", "--heads", "fedncm", "--seeds", "1", "--held-out", "0.25"]
    found = document(run("personalise", features, *options, "--json"))["personal"]
    assert found["held_out"] == 0.25
    assert {row["outcomes"][0]["tests"] for row in found["rows"]} == {4 * 37}
    assert "tested on 0.25 of their own samples" in run("personalise", features, *options).stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--model", "all.stats"], "--out FILE"),
        (["--model", "gone", "-o", "p"], "gone does not exist"),
        (["--model", "all.stats", "-o", "p", "--clients", "3", "--held-out", "0.1"], "--clients, --held-out: only for"),
        (["--clients", "3", "-o", "p", "--newcomer"], "--out, --newcomer: only for one client"),
        (["--model", "all.stats", "-o", "p", "--beta", "1", "--shares", "--all-labels"], "have no share"),
        (["--model", "all.stats", "-o", "p", "--heads", "fedncm,gh-lda"], "--heads names 2"),
        (["--model", "all.stats", "-o", "p", "--all-labels"], "nothing would be personal"),
        (["--model", "all.stats", "-o", "p", "--beta", "2"], "from 0 to 1 or 'auto'"),
        (["--model", "all.stats", "-o", "p", "--set", "gh-lda.priors=balanced"], "the head here is fedncm"),
        (["--model", "all.stats", "-o", "p", "--heads", "fedcof"], "client means"),
        (["--model", "cosine", "-o", "p", "--beta", "auto"], "does not hold class means"),
        (["--model", "cosine", "-o", "p", "--heads", "fedncm"], "not fitted again"),
        (["--model", "runs/demo/digits.npz", "-o", "p"], "not a valid fedmoments file"),
        (["--model", "halves", "-o", "p"], "holds 'split'"),
        (["--beta", "auto,often"], "'often' arrived"),
        (["--held-out", "1"], "above 0 and below 1"),
    ],
)
def test_what_cannot_be_personalised_is_refused_in_a_sentence(
    run: Any, features: str, broadcast: str, arguments: list[str], sentence: str
) -> None:
    run("fit", broadcast, "--head", "fedncm", "-o", "cosine")
    run("split", features, "--split", "iid", "--clients", "2", "-o", "halves")
    result = run("personalise", features, *arguments, code=2)
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert sentence in result.stderr
