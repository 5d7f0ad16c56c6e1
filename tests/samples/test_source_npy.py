"""Arrays in a folder of .npy files: mapped, checked like those of an archive, and never unpickled."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmoments.errors import FileFormatError, InputError
from fedmoments.samples.encoders import load_encoder
from fedmoments.samples.encoders.pipeline import encode_samples
from fedmoments.samples.sources.registry import load_data

X = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
Y = np.arange(40) % 2


def save(folder: Path, **arrays: Any) -> str:
    folder.mkdir(exist_ok=True)
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    return f"npy:{folder}"


def is_mapped(array: Any) -> bool:
    while array is not None:
        if isinstance(array, np.memmap):
            return True
        array = getattr(array, "base", None)
    return False


def test_rows_stay_in_the_file_until_they_are_used(tmp_path: Path) -> None:
    text = save(tmp_path / "f", x_train=X, y_train=Y, x_test=X[:4], y_test=Y[:4], group_train=Y)
    data = load_data(text)
    assert is_mapped(data.train.items)
    encoded = encode_samples(load_encoder("identity", dim=3), data.train)
    assert is_mapped(encoded.features)
    np.testing.assert_array_equal(encoded.features, X)
    assert data.train.groups is not None
    whole = load_data(save(tmp_path / "g", x_train=X, y_train=Y), test_share=0.0)
    assert is_mapped(whole.train.items)


def test_a_folder_says_what_an_archive_says(tmp_path: Path) -> None:
    arrays = {"x_train": X, "y_train": Y, "classes": np.array(["a", "b"]), "client_train": Y}
    np.savez(tmp_path / "f.npz", **arrays)  # type: ignore[arg-type]
    one, other = load_data(save(tmp_path / "f", **arrays)), load_data(f"npz:{tmp_path / 'f.npz'}")
    assert one.digest == other.digest
    assert one.class_names == other.class_names
    np.testing.assert_array_equal(one.test.items, other.test.items)


def test_folders_that_hold_something_else_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a folder"):
        load_data("npy:nowhere")
    with pytest.raises(InputError, match="lacks the array 'y_train'"):
        load_data(save(tmp_path / "a", x_train=X))
    with pytest.raises(InputError, match="which nothing reads"):
        load_data(save(tmp_path / "b", x_train=X, y_train=Y, labels=Y))
    with pytest.raises(FileFormatError, match="pickled"):
        load_data(save(tmp_path / "c", x_train=X, y_train=np.array([{}] * 40, dtype=object)))
    (tmp_path / "a" / "y_train.npy").write_bytes(b"nothing")
    with pytest.raises(FileFormatError, match="damaged"):
        load_data(f"npy:{tmp_path / 'a'}")
    bad = X.copy()
    bad[7] = np.nan
    with pytest.raises(InputError, match="train sample 7: its features hold NaN"):
        load_data(save(tmp_path / "d", x_train=bad, y_train=Y))
