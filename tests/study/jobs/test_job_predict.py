"""Predictions with what a job left: the classes that it reported, and never behind another encoder."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import fedmoments as fm
from fedmoments.cli.app import app
from fedmoments.settings.study import StudySettings
from fedmoments.study.jobs import run_job

MODEL = "out/heads/fedncm.safetensors"


@pytest.fixture
def model(photos: str) -> str:
    """A classifier of images of 64 pixels, which is not the encoder's own size."""
    config = StudySettings(data=photos, encoder="blocks", size=64, heads=("fedncm", "fedcof"), clients=(4,), seeds=1)
    run_job(config, Path("out"))
    return MODEL


@pytest.fixture
def model_of_sentences(sentences: str) -> str:
    config = StudySettings(
        data=sentences, encoder="letters", text="sentence", label="topic", heads=("fedncm",), clients=(3,), seeds=1
    )
    run_job(config, Path("out"))
    return MODEL


def noting(model: str, **encoder: Any) -> str:
    """Save the classifier with other notes on its encoder."""
    classifier = fm.load(model)
    classifier.noting(encoder={**classifier.info["encoder"], **encoder}).save("changed.safetensors")
    return "changed.safetensors"


def test_predictions_of_the_test_images_have_the_accuracy_that_was_reported(run: Any, model: str) -> None:
    document = json.loads(Path("out/results.json").read_text("utf-8"))
    files = sorted(str(file) for file in Path("photos/test").rglob("*.jpg"))
    for row in document["rows"]:
        found = json.loads(run("predict", f"out/heads/{row['head']}.safetensors", *files, "--json").stdout)
        assert found["problems"] == []
        assert [each["source"] for each in found["predictions"]] == files
        right = [each["class"] == Path(each["source"]).parent.name for each in found["predictions"]]
        assert np.mean(right) == pytest.approx(row["accuracy"])


def test_confidences_are_ranked_and_add_up_to_one(run: Any, model: str) -> None:
    arguments = ("predict", model, "photos/test/red/0.jpg", "--json")
    (each,) = json.loads(run(*arguments).stdout)["predictions"]
    shares = [other["probability"] for other in each["top"]]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) == pytest.approx(1)
    assert {other["class"] for other in each["top"]} == {"blue", "green", "red"}
    assert each["top"][0] == {"class": each["class"], "probability": each["probability"]}
    (only,) = json.loads(run(*arguments, "--top", "1").stdout)["predictions"]
    assert only["top"] == each["top"][:1]
    text = run(*arguments[:-1]).stdout
    assert "photos/test/red/0.jpg" in text
    assert each["class"] in text


@pytest.mark.parametrize("name", ["bad.jpg", "class 3.jpg"])
def test_an_image_that_cannot_be_read_is_named_and_the_others_are_classified(run: Any, model: str, name: str) -> None:
    Path(name).write_bytes(b"no image")
    text = run("predict", model, name, "photos/test/red/0.jpg").stdout
    assert f"not read: {name}: " in text
    assert "photos/test/red/0.jpg" in text
    found = json.loads(run("predict", model, name, "photos/test/red/0.jpg", "--json").stdout)
    assert [problem["where"] for problem in found["problems"]] == [name]
    assert len(found["predictions"]) == 1
    assert name in run("predict", model, name, code=2).stderr


def test_a_file_that_is_not_there_is_named_and_the_others_are_classified(run: Any, model: str) -> None:
    found = json.loads(run("predict", model, "nowhere.jpg", "photos/test/red/0.jpg", "--json").stdout)
    assert found["problems"] == [{"where": "nowhere.jpg", "why": "there is no such file"}]
    assert [each["source"] for each in found["predictions"]] == ["photos/test/red/0.jpg"]


def test_sentences_come_from_files_and_options(run: Any, model_of_sentences: str) -> None:
    Path("new.txt").write_text("rain rain snow\n \npiano choir\n", "utf-8")
    found = json.loads(run("predict", model_of_sentences, "new.txt", "--text", "zoë: windy", "--json").stdout)
    assert [each["source"] for each in found["predictions"]] == ["new.txt:1", "new.txt:3", "--text 1"]
    classifier = fm.load(model_of_sentences)
    assert all(each["class"] in classifier.class_names for each in found["predictions"])
    Path("new.bin").write_bytes(b"\xff\xfe\x00")
    assert "new.bin: it is not a text file" in run("predict", model_of_sentences, "new.bin", code=2).stderr


def test_an_encoder_with_another_fingerprint_is_refused(run: Any, model: str) -> None:
    photo = "photos/test/red/0.jpg"
    noted = fm.load(model).info["encoder"]
    assert (noted["name"], noted["options"]) == ("blocks", {"size": 64})
    other = "0" * 64
    sentence = run("predict", noting(model, fingerprint=other), photo, code=2).stderr
    assert "fitted behind the encoder blocks with fingerprint 0000000000000000" in sentence
    assert noted["fingerprint"][:16] in sentence
    assert "fingerprint" in run("predict", noting(model, options={}), photo, code=2).stderr
    assert "fingerprint" in run("predict", noting(model, options={"size": 32}), photo, code=2).stderr
    assert run("predict", model, photo, "--encoder", "blocks").stdout
    assert "unknown encoder" in run("predict", model, photo, "--encoder", "nothing", code=2).stderr
    assert "letters" in run("predict", model, photo, "--encoder", "letters", code=2).stderr


@pytest.mark.parametrize(
    "notes",
    ["blocks", [], {}, {"name": "blocks"}, {"fingerprint": "0" * 64}, {"name": 3, "fingerprint": 4}],
)
def test_a_classifier_that_does_not_say_its_encoder_is_refused(run: Any, model: str, notes: Any) -> None:
    fm.load(model).noting(encoder=notes).save("changed.safetensors")
    sentence = run("predict", "changed.safetensors", "photos/test/red/0.jpg", code=2).stderr
    assert "does not say which encoder" in sentence


def test_classifiers_of_features_take_no_images(run: Any, features_file: str) -> None:
    run_job(StudySettings(data=features_file, heads=("fedncm",), clients=(4,), seeds=1), Path("out"))
    Path("photo.jpg").write_bytes(b"")
    assert "an image, and this model takes features" in run("predict", MODEL, "photo.jpg", code=2).stderr
    fm.fit("fedncm", {"a": ([[0.0, 1.0]], [0]), "b": ([[1.0, 0.0]], [1])}).save("plain.safetensors")
    assert "an image, and this model takes features" in run("predict", "plain.safetensors", "photo.jpg", code=2).stderr


def test_nothing_to_classify_is_refused(run: Any, model: str) -> None:
    assert "nothing to classify" in run("predict", model, code=2).stderr
    assert "takes image, not --text" in run("predict", model, "--text", "hello", code=2).stderr
    assert "nowhere.jpg: there is no such file" in run("predict", model, "nowhere.jpg", code=2).stderr
    assert "config.toml" in run("predict", "out/config.toml", "photos/test/red/0.jpg", code=2).stderr


def test_a_folder_a_table_and_standard_input_give_what_single_files_give(run: Any, model: str) -> None:
    files = sorted(str(file) for file in Path("photos/test").rglob("*.jpg"))
    Path("photos/test/notes.txt").write_text("no image")
    Path("table.csv").write_text("id,picture\n" + "".join(f"{place},{name}\n" for place, name in enumerate(files)))
    single = json.loads(run("predict", model, *files, "--json").stdout)
    folder = json.loads(run("predict", model, "photos/test", "--json").stdout)
    table = json.loads(run("predict", model, "table.csv", "--column", "picture", "--json").stdout)
    expected = {each["source"]: each["top"] for each in single["predictions"]}
    assert {each["source"]: each["top"] for each in folder["predictions"]} == expected
    assert [each["top"] for each in table["predictions"]] == list(expected.values())
    assert table["predictions"][1]["source"] == "table.csv row 2"
    assert [problem["where"] for problem in folder["problems"]] == ["notes.txt"]
    lines = run("predict", model, "-", "--json", lines="\n".join(files))
    assert json.loads(lines.stdout)["predictions"] == single["predictions"]
    Path("photos/test/notes.txt").unlink()


def test_rows_of_comma_separated_values_say_what_json_says(run: Any, model: str) -> None:
    import csv
    import io

    arguments = ("predict", model, "photos/test/red/0.jpg", "nowhere.jpg", "--top", "2")
    result = run(*arguments, "--csv")
    (row,) = csv.DictReader(io.StringIO(result.stdout))
    (each,) = json.loads(run(*arguments, "--json").stdout)["predictions"]
    assert (row["sample"], row["class_1"]) == (each["source"], each["class"])
    assert float(row["probability_2"]) == each["top"][1]["probability"]
    assert "not read: nowhere.jpg" in result.stderr
    assert "two ways to print" in run(*arguments, "--csv", "--json", code=2).stderr


def test_names_that_a_spreadsheet_would_run_are_texts_in_csv(tmp_path: Path) -> None:
    """Class names come with others' files: '=…' in a cell would be a formula of theirs on this machine."""
    names = ["=HYPERLINK(A1)", "@SUM(1)", "-1", "+cmd", "cat", "\t=1+1"]
    y = np.arange(60) % 6
    X = 5.0 * np.eye(6)[y] + np.random.default_rng(0).normal(size=(60, 6))
    fm.fit("fedncm", {"a": (X, y)}, class_names=names).save(tmp_path / "head.safetensors")
    np.savez(tmp_path / "new.npz", x=5.0 * np.eye(6))
    words = ["predict", str(tmp_path / "head.safetensors"), str(tmp_path / "new.npz"), "--csv", "--top", "1"]
    lines = CliRunner().invoke(app, words).stdout.splitlines()[1:]
    shown = [line.split(",")[1] for line in lines]
    assert shown == ["'=HYPERLINK(A1)", "'@SUM(1)", "-1", "'+cmd", "cat", "\\t=1+1"]


def test_what_is_new_is_called_unknown(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    y = np.arange(300) % 3
    X = 3.0 * np.random.default_rng(1).normal(size=(3, 16))[y] + rng.normal(size=(300, 16))
    fm.fit("gh-lda", {"a": (X, y)}, class_names=["a", "b", "c"]).save(tmp_path / "head.safetensors")
    np.savez(tmp_path / "new.npz", x=np.vstack([X[:5], 60 + X[:2]]))
    words = ["predict", str(tmp_path / "head.safetensors"), str(tmp_path / "new.npz"), "--abstain", "1%"]
    result = CliRunner().invoke(app, [*words, "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)["predictions"]
    assert [answer["class"] for answer in found[5:]] == ["unknown", "unknown"]
    assert found[5]["probability"] is None
    assert [answer["class"] for answer in found[:5]] == ["a", "b", "c", "a", "b"]
    assert "unknown" in CliRunner().invoke(app, words).stdout
    assert CliRunner().invoke(app, [*words, "--csv"]).stdout.splitlines()[-1].endswith("true")
    refused = CliRunner().invoke(app, [*words[:-1], "200%"])
    assert refused.exit_code != 0
    assert "between 0 and 1" in refused.output
