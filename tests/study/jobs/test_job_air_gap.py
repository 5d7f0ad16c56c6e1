"""From samples to a tested classifier through files alone: encode, measure, merge, fit and evaluate take any source."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmoments.core.statistics import load_statistics
from fedmoments.samples.features import load_features

MEASURE = ("--head", "gh-lda", "--fixed-point")


@pytest.fixture
def shots(tmp_path: Path, draw_photos: Callable[..., list[Path]]) -> str:
    """A folder in one part, 8 images of each of 3 classes, and one file that is not an image."""
    files = draw_photos(tmp_path / "shots", 8, seed=3)
    files[0].with_name("torn.jpg").write_bytes(b"no image")
    return "folder:shots"


def test_measuring_samples_is_measuring_their_features_file(run: Any, shots: str) -> None:
    run("encode", shots, "--encoder", "blocks", "--out", "shots.npz")
    run("measure", shots, "--encode", "blocks", *MEASURE, "--out", "a.stats")
    run("measure", "shots.npz", *MEASURE, "--out", "b.stats")
    run("measure", "npz:shots.npz", *MEASURE, "--client", "shots", "--out", "c.stats")
    run("measure", "shots", "--encode", "blocks", *MEASURE, "--out", "d.stats")  # a folder without tables
    first = Path("a.stats").read_bytes()
    assert all(Path(f"{name}.stats").read_bytes() == first for name in "bcd")


def test_samples_that_cannot_be_read_are_named_and_counted(run: Any, shots: str) -> None:
    for words in (("encode", shots, "--encoder", "blocks"), ("measure", shots, "--encode", "blocks", *MEASURE)):
        said = run(*words, "--out", "out.npz").stdout
        assert "1 problem:\n  blue/torn.jpg: it is not an image" in said
        found = json.loads(run(*words, "--out", "out.npz", "--json").stdout)
        assert len(found["problems"]) == 1
        assert found["samples"] in (24, {"train": 24})
    assert "This run is strict" in run("encode", shots, "--encoder", "blocks", "--strict", "-o", "x.npz", code=2).stderr
    assert not Path("x.npz").exists()


def test_a_features_file_holds_what_its_reader_promises(run: Any, photos: str) -> None:
    run("encode", photos, "--encoder", "blocks", "--size", "64", "--out", "both.npz")
    features = load_features("both.npz")
    assert (len(features.train), len(features.test), features.dim) == (30, 18, 48)
    assert features.class_names == ("blue", "green", "red")
    assert features.encoder is not None
    assert (features.encoder["name"], features.encoder["options"]) == ("blocks", {"size": 64})
    assert Path("both.npz").stat().st_mode & 0o077 == 0


def test_files_of_two_encoders_do_not_merge(run: Any, shots: str) -> None:
    run("measure", shots, "--encode", "blocks", *MEASURE, "--client", "a", "--out", "a.stats")
    run("encode", shots, "--encoder", "blocks", "--size", "64", "--out", "other.npz")
    run("measure", "other.npz", *MEASURE, "--client", "b", "--out", "b.stats")
    assert "because their encoders differ: blocks" in run("merge", "a.stats", "b.stats", "-o", "m.stats", code=2).stderr
    assert "made its features" in run("measure", "other.npz", *MEASURE, "--encoder", "x", "-o", "c", code=2).stderr


def test_a_classifier_is_tested_on_samples_and_on_their_features(run: Any, photos: str) -> None:
    run("measure", photos, "--encode", "blocks", *MEASURE, "--out", "a.stats")
    assert load_statistics("a.stats")[0].n_samples == 30  # the test part is not measured
    run("fit", "a.stats", "--head", "gh-lda", "--out", "a.head")
    run("encode", photos, "--encoder", "blocks", "--out", "both.npz")
    on_samples = json.loads(run("evaluate", "a.head", photos, "--json").stdout)
    on_features = json.loads(run("evaluate", "a.head", "both.npz", "--json").stdout)
    assert on_samples["samples"] == 18
    assert {**on_samples, "data": ""} == {**on_features, "data": ""}
    compared = json.loads(run("compare", "a.head", "a.head", "both.npz", "--json").stdout)
    assert compared["accuracy"] == [on_samples["accuracy"]] * 2


def test_a_classifier_of_features_with_a_named_encoder_is_tested_on_features(run: Any, features_file: str) -> None:
    run("measure", "features.npz", *MEASURE, "--encoder", "our own", "--out", "a.stats")
    run("fit", "a.stats", "--head", "gh-lda", "--out", "a.head")
    assert json.loads(run("evaluate", "a.head", features_file, "--json").stdout)["samples"] == 120


def test_sentences_go_the_same_way(run: Any, sentences: str) -> None:
    columns = ("--text", "sentence", "--label", "topic", "--client", "user")
    run("encode", sentences, "--encoder", "letters", *columns, "--test-share", "0.2", "--out", "said.npz")
    features = load_features("said.npz")
    assert (len(features.train), len(features.test)) == (72, 18)
    assert features.ids is not None
    assert set(features.ids.tolist()) == {"ann", "bob", "zoë"}
    run("measure", "said.npz", *MEASURE, "--out", "said.stats")
    run("fit", "said.stats", "--head", "gh-lda", "--out", "said.head")
    found = json.loads(run("evaluate", "said.head", "said.npz", "--json").stdout)
    assert (found["samples"], found["accuracy"] > 0.9) == (18, True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("measure", "shots", "--encode", "blocks", "--workers", "2", "-o", "x"), "are for tables, not shots"),
        (("measure", "shots", "--encode", "blocks", "--encoder", "x", "-o", "x"), "name the encoder by --encode"),
        (("measure", "folder:nowhere", "-o", "x"), "nowhere"),
        (("encode", "folder:shots", "--encoder", "blocks", "-o", "x.features"), "write to x.features.npz"),
        (("encode", "-o", "x.npz"), "nothing to encode"),
    ],
)
def test_what_cannot_be_done_is_said(run: Any, shots: str, words: tuple[str, ...], message: str) -> None:
    head = MEASURE if words[0] == "measure" else ()
    assert message in run(*words, *head, code=2).stderr


@pytest.mark.parametrize("note", [np.array(["a"]), np.array(3), np.array("{"), np.array("[]"), np.array('{"name": 3}')])
def test_a_damaged_note_of_the_encoder_is_refused(run: Any, features_file: str, note: Any) -> None:
    with np.load("features.npz") as archive:
        np.savez("noted.npz", **archive, encoder=note)
    assert "the array 'encoder' in noted.npz must be" in run("measure", "noted.npz", *MEASURE, "-o", "x", code=2).stderr
