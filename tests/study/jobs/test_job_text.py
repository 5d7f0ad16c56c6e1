"""Jobs on tables of sentences: columns, natural clients, and a real encoder."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedmoments as fm

SENTENCES = ("--text", "sentence", "--label", "topic")


def test_users_are_clients(run: Any, sentences: str) -> None:
    natural = ("--client", "user", "--split", "id", "--encoder", "letters", "--heads", "fedncm,fedcof", "--seeds", "1")
    run("simulate", sentences, *SENTENCES, *natural, "--out", "out")
    document = json.loads(Path("out/results.json").read_text("utf-8"))
    assert document["holders"]["clients"] == ["ann", "bob", "zoë"]
    assert [row["seeds"][0]["clients"] for row in document["rows"]] == [3, 3]
    assert document["data"]["class_names"] == ["music", "weather"]
    assert document["data"]["modality"] == "text"
    assert "zoë" in Path("out/report.html").read_text("utf-8")


def test_without_a_column_of_clients_their_split_is_refused(run: Any, sentences: str) -> None:
    arguments = ("--split", "id", "--encoder", "letters", "--out", "out")
    assert "ids" in run("simulate", sentences, *SENTENCES, *arguments, code=2).stderr
    assert "no column 'who'" in run("simulate", sentences, *SENTENCES, "--client", "who", *arguments, code=2).stderr
    assert not Path("out").exists()


def test_empty_sentences_are_named_by_row(run: Any, sentences: str) -> None:
    with Path("said.csv").open("a", encoding="utf-8") as file:
        file.write('"  ",music,ann\nno label here,,bob\n')
    arguments = ("--encoder", "letters", "--heads", "fedncm", "--clients", "3", "--seeds", "1")
    text = run("simulate", sentences, *SENTENCES, *arguments).stdout
    assert "2 problems:" in text
    assert "said.csv row 91: its text is empty" in text
    assert "said.csv row 92: it has no label" in text
    sentence = run("simulate", sentences, *SENTENCES, *arguments, "--strict", "--out", "out", code=2).stderr
    assert "said.csv row 91" in sentence
    assert not Path("out").exists()


def test_a_second_file_is_the_test_part(run: Any, sentences: str) -> None:
    lines = Path("said.csv").read_text("utf-8").splitlines()
    Path("later.csv").write_text("\n".join(lines[:21]) + "\n", "utf-8")
    arguments = ("--test", "later.csv", "--encoder", "letters", "--heads", "fedncm", "--clients", "3", "--seeds", "1")
    data = json.loads(run("simulate", sentences, *SENTENCES, *arguments, "--json").stdout)["data"]
    assert (data["train"], data["test"]) == (90, 20)


def test_names_count_as_one_sample_of_each_class(run: Any, sentences: str) -> None:
    arguments = ("--encoder", "letters", "--heads", "fedncm,auto", "--clients", "3", "--seeds", "1", "--out")
    run("simulate", sentences, *SENTENCES, *arguments, "plain")
    run("simulate", sentences, *SENTENCES, "--names", *arguments, "named")
    plain, named = (fm.load(f"{folder}/heads/fedncm.safetensors") for folder in ("plain", "named"))
    rows = [json.loads(Path(f"{folder}/results.json").read_text("utf-8"))["rows"] for folder in ("plain", "named")]
    assert plain.digest() != named.digest()
    uploads = [[row["up_bytes_per_client"] for row in each] for each in rows]
    assert uploads[0] == uploads[1]  # names are public: nobody sends them


def test_names_of_features_and_under_protection_are_refused(run: Any, sentences: str, tmp_path: Path) -> None:
    protected = ("--encoder", "letters", "--heads", "fedncm", "--clients", "3", "--names", "--secure", "sums")
    assert "leave one out" in run("simulate", sentences, *SENTENCES, *protected, code=2).stderr
    np.savez(tmp_path / "f.npz", x_train=np.eye(4), y_train=[0, 1, 0, 1], x_test=np.eye(4), y_test=[0, 1, 0, 1])
    given = ("simulate", str(tmp_path / "f.npz"), "--heads", "fedncm", "--clients", "2", "--split", "iid", "--names")
    assert "these samples are features" in run(*given, code=2).stderr


@pytest.mark.slow
def test_a_real_encoder_from_sentences_to_predictions(run: Any, sentences: str) -> None:
    pytest.importorskip("wordllama")
    arguments = ("--encoder", "wordllama", "--heads", "fedncm,gh-lda", "--clients", "5", "--seeds", "1")
    run("simulate", sentences, *SENTENCES, *arguments, "--out", "out")
    rows = json.loads(Path("out/results.json").read_text("utf-8"))["rows"]
    assert all(row["accuracy"] == 1.0 for row in rows)
    Path("new.txt").write_text("a choir and a piano\n\nmore snow, and windy\n", "utf-8")
    found = json.loads(
        run("predict", "out/heads/gh-lda.safetensors", "new.txt", "--text", "drums and violin", "--json").stdout
    )
    assert [(each["source"], each["class"]) for each in found["predictions"]] == [
        ("new.txt:1", "music"),
        ("new.txt:3", "weather"),
        ("--text 1", "music"),
    ]
