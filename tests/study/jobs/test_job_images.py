"""Jobs on image files: named problems, domains, the cache, and a real encoder."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedmoments.errors import InputError
from fedmoments.settings.study import StudySettings
from fedmoments.study.jobs import run_job

SETTINGS = ("--encoder", "blocks", "--heads", "fedncm,fedcof", "--clients", "4", "--seeds", "1")


def test_a_folder_of_images_is_encoded_once(photos: str) -> None:
    config = StudySettings(data=photos, encoder="blocks", heads=("fedncm", "fedcof"), clients=(4,), seeds=1)
    first, again = run_job(config, Path("out")), run_job(config)
    assert (first.encoded, again.encoded) == (48, 0)
    assert first.document["data"]["class_names"] == ["blue", "green", "red"]
    assert first.report.rows[0].accuracy == again.report.rows[0].accuracy
    assert first.document["rows"][0]["accuracy"] > 0.8
    assert run_job(config, cache_dir=False).encoded == 48
    about = first.document["data"]["encoder"]
    assert (about["name"], about["dim"], about["options"]) == ("blocks", 48, {})
    assert run_job(replace(config, size=64)).document["data"]["encoder"]["options"] == {"size": 64}


@pytest.fixture
def damaged(photos: str) -> list[str]:
    """Four files that are not images, two of them of the test part."""
    sound = Path("photos/train/red/0.jpg").read_bytes()
    bad = {"train/red/3.jpg": b"", "train/green/z.jpg": b"text", "test/blue/2.jpg": sound[:200], "test/red/5.jpg": b"x"}
    for name, content in bad.items():
        Path("photos", name).write_bytes(content)
    return sorted(bad)


def test_damaged_images_are_named_and_counted_and_the_run_goes_on(run: Any, photos: str, damaged: list[str]) -> None:
    result = run("simulate", photos, *SETTINGS, "--out", "out")
    assert "4 problems:" in result.stdout
    assert all(f"  {name}: " in result.stdout for name in damaged)
    document = json.loads(Path("out/results.json").read_text("utf-8"))
    assert sorted(problem["where"] for problem in document["data"]["problems"]) == damaged
    assert all(problem["why"] for problem in document["data"]["problems"])
    assert (document["data"]["train"], document["data"]["test"]) == (29, 16)
    page = Path("out/report.html").read_text("utf-8")
    assert all(name in page for name in damaged)
    # They are remembered with the features, and named again.
    assert "4 problems:" in run("simulate", photos, *SETTINGS).stdout


def test_a_strict_run_stops_at_a_damaged_image_and_leaves_nothing(run: Any, photos: str, damaged: list[str]) -> None:
    for _ in range(2):
        sentence = run("simulate", photos, *SETTINGS, "--strict", "--out", "out", code=2).stderr
        assert sentence.startswith(("error: train/green/z.jpg: ", "error: train/red/3.jpg: "))
        assert not Path("out").exists()
    for name in damaged:
        Path("photos", name).unlink()
    assert "problem" not in run("simulate", photos, *SETTINGS, "--strict").stdout


def test_files_that_are_no_images_and_empty_classes_are_named(run: Any, photos: str) -> None:
    Path("photos/train/notes.txt").write_text("hello")
    Path("photos/train/yellow").mkdir()
    found = json.loads(run("simulate", photos, *SETTINGS, "--json").stdout)
    assert [problem["where"] for problem in found["data"]["problems"]] == ["train/notes.txt", "class yellow"]
    assert found["data"]["class_names"] == ["blue", "green", "red", "yellow"]
    assert found["rows"][0]["accuracy"] > 0.8


def test_a_class_that_loses_all_its_images_is_named(run: Any, photos: str) -> None:
    for file in Path("photos/train/red").iterdir():
        file.write_bytes(b"")
    found = json.loads(run("simulate", photos, *SETTINGS, "--json").stdout)
    assert "class red" in [problem["where"] for problem in found["data"]["problems"]]
    confusion = found["details"][0]["confusion"]
    assert [row[2] for row in confusion] == [0, 0, 0]
    assert sum(confusion[2]) == 6


def test_when_no_image_can_be_read_that_is_an_error(run: Any, photos: str) -> None:
    for file in Path("photos/train").rglob("*.jpg"):
        file.write_bytes(b"")
    sentence = run("simulate", photos, *SETTINGS, "--out", "out", code=2).stderr
    assert "none of the 30 samples can be encoded; the first is train/blue/0.jpg" in sentence
    assert not Path("out").exists()


def test_domains_are_clients(run: Any, draw_photos: Callable[..., list[Path]]) -> None:
    for seed, domain in enumerate(("amazon", "dslr", "webcam")):
        draw_photos(Path("office", domain), 5 + seed, seed)
    arguments = ["simulate", "folder:office", "--domains", "--split", "domain", "--encoder", "blocks", "--seeds", "1"]
    text = run(*arguments, "--heads", "fedncm,gh-lda", "--out", "out").stdout
    assert "clients as the data say" in text
    document = json.loads(Path("out/results.json").read_text("utf-8"))
    assert document["holders"]["clients"] == ["amazon", "dslr", "webcam"]
    assert document["holders"]["n_clients"] == 3
    assert [row["seeds"][0]["clients"] for row in document["rows"]] == [3, 3]
    assert [row["clients"] for row in document["rows"]] == [None, None]
    held = [sum(count for client, _, count in document["holders"]["cells"] if client == k) for k in range(3)]
    assert sum(held) == document["data"]["train"]
    assert held == sorted(held)
    assert document["data"]["class_names"] == ["blue", "green", "red"]


def test_without_domains_their_split_is_refused_before_encoding(photos: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedmoments.study.jobs.encoding.encode_parts", None)
    with pytest.raises(InputError, match="domains"):
        run_job(StudySettings(data=photos, encoder="blocks", splits=("domain",)))


def test_data_without_a_test_part_are_refused(tmp_path: Path, draw_photos: Any) -> None:
    draw_photos(tmp_path / "shots", 3)
    with pytest.raises(InputError, match="folder:shots holds no sample to test on"):
        run_job(StudySettings(data="folder:shots", encoder="blocks", test_share=0.0))


def test_an_encoder_for_something_else_is_refused(photos: str) -> None:
    with pytest.raises(InputError, match="takes text, but the data are image"):
        run_job(StudySettings(data=photos, encoder="letters"))
    with pytest.raises(InputError, match="'identity' takes features that are given"):
        run_job(StudySettings(data=photos, encoder="identity"))


@pytest.mark.slow
def test_a_real_encoder_from_jpeg_files_to_predictions(run: Any, photos: str) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("onnxruntime")
    encoder = ("--encoder", "squeezenet-1.1", "--size", "64", "--threads", "1")
    run("simulate", photos, *encoder, "--heads", "fedncm", "--clients", "4", "--seeds", "1", "--out", "out")
    document = json.loads(Path("out/results.json").read_text("utf-8"))
    about = document["data"]["encoder"]
    assert (about["name"], about["dim"], about["options"]) == ("squeezenet-1.1", 512, {"size": 64})
    files = sorted(str(file) for file in Path("photos/test").rglob("*.jpg"))
    found = json.loads(run("predict", "out/heads/fedncm.safetensors", *files, "--json").stdout)["predictions"]
    right = [each["class"] == Path(each["source"]).parent.name for each in found]
    assert sum(right) / len(right) == pytest.approx(document["rows"][0]["accuracy"])
