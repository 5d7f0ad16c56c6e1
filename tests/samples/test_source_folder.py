"""``folder:PATH``: classes from folders, and everything odd in them reported."""

import os
from pathlib import Path

import pytest

from fedmoments.errors import InputError
from fedmoments.samples import DataSet, load_data


def make(root: Path, *names: str) -> Path:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith("/"):
            path.mkdir(exist_ok=True)
        else:
            path.write_bytes(name.encode())
    return root


def load(root: Path, **options: object) -> DataSet:
    return load_data(f"folder:{root}", **options)


def said(data: DataSet) -> dict[str, str]:
    return {problem.where: problem.why for problem in data.problems}


def test_classes_are_folders_in_natural_order(tmp_path: Path) -> None:
    make(tmp_path, "class10/a.jpg", "class2/a.png", "Class1/a.JPEG", "Class1/img10.jpg", "Class1/img9.jpg")
    data = load(tmp_path, test_share=0)
    assert data.class_names == ("Class1", "class2", "class10")
    assert data.train.sources == [
        "Class1/a.JPEG",
        "Class1/img9.jpg",
        "Class1/img10.jpg",
        "class2/a.png",
        "class10/a.jpg",
    ]
    assert data.train.labels.tolist() == [0, 0, 0, 1, 2]
    assert data.train.items[0] == tmp_path / "Class1/a.JPEG"
    assert data.modality == "image"
    assert not data.problems
    assert data.description == "5 images in 3 classes: 5 to train on, 0 to test on."


def test_given_parts_win_over_holding_out(tmp_path: Path) -> None:
    make(tmp_path, "train/a/1.jpg", "train/b/1.jpg", "test/a/2.jpg", "test/c/1.jpg", "val/a/1.jpg")
    data = load(tmp_path, test_share=0.9)
    assert data.class_names == ("a", "b")
    assert data.train.sources == ["train/a/1.jpg", "train/b/1.jpg"]
    assert data.test.sources == ["test/a/2.jpg"]
    assert said(data) == {
        "val": "this folder beside 'train' and 'test' is not used",
        "test/c/1.jpg": "its class 'c' is not one of the 2 to train on",
    }
    assert data.description.endswith("(as given).")


def test_a_lonely_train_folder_is_no_class(tmp_path: Path) -> None:
    data = load(make(tmp_path, "train/a/1.jpg", "train/a/2.jpg", "train/b/1.jpg", "train/b/2.jpg"))
    assert data.class_names == ("a", "b")
    assert (len(data.train), len(data.test)) == (2, 2)


@pytest.mark.parametrize("part", ["", "train/"])
def test_domains_are_folders_of_classes(tmp_path: Path, part: str) -> None:
    make(tmp_path, *(f"{part}{domain}/{name}/{i}.jpg" for domain in "yx" for name in "ba" for i in range(2)))
    if part:
        make(tmp_path, "test/z/a/1.jpg")
    data = load(tmp_path, domains=True, test_share=0)
    assert data.class_names == ("a", "b")
    assert data.train.domains is not None
    assert data.train.domains.tolist() == ["x"] * 4 + ["y"] * 4
    assert data.train.labels.tolist() == [0, 0, 1, 1] * 2
    assert "2 domains" in data.description


def test_odd_files_are_reported_and_hidden_ones_are_not_looked_at(tmp_path: Path) -> None:
    make(
        tmp_path, "a/1.jpg", "a/notes.txt", "a/.hidden.jpg", "a/Thumbs.db", ".git/x.jpg", "loose.jpg", "a/deep/er/2.jpg"
    )
    data = load(tmp_path, test_share=0)
    assert data.train.sources == ["a/1.jpg", "a/deep/er/2.jpg"]
    assert said(data) == {
        "a/notes.txt": "a file that ends in '.txt' is not taken for an image",
        "loose.jpg": "it is not in the folder of a class",
    }


def test_an_empty_class_is_reported_and_keeps_its_place(tmp_path: Path) -> None:
    make(tmp_path, "a/1.jpg", "b/", "c/1.jpg")
    (tmp_path / "b").mkdir(exist_ok=True)
    data = load(tmp_path, test_share=0)
    assert data.class_names == ("a", "b", "c")
    assert data.train.labels.tolist() == [0, 2]
    assert said(data) == {"class b": "it has no sample to train on"}


def test_links_are_followed_once(tmp_path: Path) -> None:
    make(tmp_path / "data", "a/1.jpg", "b/1.jpg")
    make(tmp_path / "more", "2.jpg")
    (tmp_path / "data/a/more").symlink_to(tmp_path / "more")
    (tmp_path / "data/a/again").symlink_to(tmp_path / "data/a")
    (tmp_path / "data/b/up").symlink_to(tmp_path / "data")
    (tmp_path / "data/b/3.jpg").symlink_to(tmp_path / "more/2.jpg")
    data = load(tmp_path / "data", test_share=0)
    assert data.train.sources == ["a/1.jpg", "a/more/2.jpg", "b/1.jpg", "b/3.jpg"]
    assert said(data) == {
        "a/again": "it is a link to a folder that is read already",
        "b/up": "it is a link to a folder that is read already",
    }


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_may_not_be_read_is_reported(tmp_path: Path) -> None:
    make(tmp_path, "a/1.jpg", "b/1.jpg")
    (tmp_path / "b").chmod(0)
    try:
        assert "cannot be read" in said(load(tmp_path, test_share=0))["b"]
    finally:
        (tmp_path / "b").chmod(0o700)


def test_strict_stops_at_the_first_problem(tmp_path: Path) -> None:
    make(tmp_path, "a/1.jpg", "a/notes.txt")
    with pytest.raises(InputError, match=r"^a/notes\.txt: .*This run is strict"):
        load(tmp_path, strict=True)


def test_what_is_no_folder_of_classes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a folder"):
        load(tmp_path / "nowhere")
    with pytest.raises(InputError, match="holds no class folders"):
        load(make(tmp_path, "1.jpg"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="holds no sample to train on: 2 were left out"):
        load(tmp_path)


def test_the_digest_changes_with_content_labels_and_names_alone(tmp_path: Path) -> None:
    names = ["a/1.jpg", "a/2.jpg", "b/1.jpg", "b/2.jpg"]
    first = load(make(tmp_path / "first", *names))
    again = load(make(tmp_path / "second", *names))
    assert len(first.digest) == 64
    assert first.digest == again.digest
    (tmp_path / "second/b/2.jpg").write_bytes(b"changed")
    assert load(tmp_path / "second").digest != first.digest
    (tmp_path / "first/b").rename(tmp_path / "first/c")
    assert load(tmp_path / "first").digest != first.digest
