"""``hf:PATH``: data sets written here by ``datasets``; no network."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmoments.errors import InputError, MissingExtraError
from fedmoments.samples import load_data

datasets = pytest.importorskip("datasets")


def texts(n: int, **extra: Any) -> Any:
    features = {"sentence": datasets.Value("string"), "intent": datasets.ClassLabel(names=["z", "a"])}
    columns = {"sentence": [f"text {i}" for i in range(n)], "intent": [i % 2 for i in range(n)]} | extra
    features |= {name: datasets.Value("int64") for name in extra}
    return datasets.Dataset.from_dict(columns, features=datasets.Features(features))


def test_parts_columns_and_class_names_are_found(tmp_path: Path) -> None:
    parts = {
        "train": texts(6, user=[3, 3, 1, 1, 2, 2]),
        "validation": texts(3, user=[1, 1, 1]),
        "other": texts(1, user=[1]),
    }
    datasets.DatasetDict(parts).save_to_disk(str(tmp_path / "d"))
    data = load_data(f"hf:{tmp_path}/d", client="user")
    assert data.class_names == ("z", "a")
    assert data.train.items == [f"text {i}" for i in range(6)]
    assert data.train.labels.tolist() == [0, 1] * 3
    assert len(data.test) == 3
    assert data.train.clients is not None
    assert data.train.clients.tolist() == list("331122")
    assert len(load_data(f"hf:{tmp_path}/d", test="other").test) == 1
    with pytest.raises(InputError, match="no part 'nope' to test on: its parts are train, validation, other"):
        load_data(f"hf:{tmp_path}/d", test="nope")
    with pytest.raises(InputError, match="no part 'nope' to train on"):
        load_data(f"hf:{tmp_path}/d", train="nope")


def test_a_data_set_in_one_part_is_divided(tmp_path: Path) -> None:
    texts(20).save_to_disk(str(tmp_path / "d"))
    data = load_data(f"hf:{tmp_path}/d", test_share=0.3, seed=4)
    assert (len(data.train), len(data.test)) == (14, 6)


def test_images_are_read_when_they_are_asked_for(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    pictures = [image.fromarray(np.full((5, 4, 3), 40 * i, np.uint8)) for i in range(4)]
    features = datasets.Features({"img": datasets.Image(), "fine": datasets.ClassLabel(names=["no", "yes"])})
    rows = datasets.Dataset.from_dict({"img": pictures, "fine": [0, 1, 1, -1]}, features=features)
    rows.save_to_disk(str(tmp_path / "d"))
    data = load_data(f"hf:{tmp_path}/d", test_share=0)
    assert data.modality == "image"
    assert len(data.train) == 3
    assert [str(problem) for problem in data.problems] == ["train row 4: it has no label"]
    assert all(isinstance(item, bytes) and item[1:4] == b"PNG" for item in data.train.items)
    assert len({bytes(item) for item in data.train.items}) == 3


def test_what_cannot_be_loaded_is_an_input_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(InputError, match="cannot be loaded"):
        load_data(f"hf:{tmp_path}/nowhere")
    texts(4).remove_columns("intent").save_to_disk(str(tmp_path / "d"))
    with pytest.raises(InputError, match=r"which column of .* is label"):
        load_data(f"hf:{tmp_path}/d")


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "datasets", None)
    with pytest.raises(MissingExtraError, match=r"fedmoments\[hub\]"):
        load_data("hf:anything")
