"""``npz:PATH``: features and images in arrays."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmoments.errors import FileFormatError, InputError
from fedmoments.samples import load_data


def save(folder: Path, **arrays: Any) -> str:
    np.savez(folder / "f.npz", **arrays)
    return f"npz:{folder / 'f.npz'}"


X = np.arange(24.0).reshape(8, 3)
Y = np.array([0, 1, 2, 3, 0, 1, 2, 3])


def test_features_with_everything(tmp_path: Path) -> None:
    text = save(
        tmp_path, x_train=X, y_train=Y, x_test=X[:2], y_test=Y[:2], classes=list("abcd"),
        domain_train=Y % 2, domains=["photo", "sketch"], client_train=np.arange(8), domain_test=[1, 0],
    )  # fmt: skip
    data = load_data(text)
    assert data.modality == "features"
    assert data.class_names == ("a", "b", "c", "d")
    np.testing.assert_array_equal(data.train.items, X)
    assert data.train.domains is not None
    assert data.test.domains is not None
    assert data.train.clients is not None
    assert data.train.domains.tolist() == ["photo", "sketch"] * 4
    assert data.test.domains.tolist() == ["sketch", "photo"]
    assert data.train.clients.tolist() == [str(i) for i in range(8)]


def test_without_a_test_part_one_is_held_out_and_classes_are_numbered(tmp_path: Path) -> None:
    data = load_data(save(tmp_path, x_train=X, y_train=Y * 2), test_share=0.5)
    assert data.class_names == tuple("0123456")
    assert (len(data.train), len(data.test)) == (4, 4)
    assert sorted(data.train.labels.tolist()) == [0, 2, 4, 6]
    assert [problem.where for problem in data.problems] == ["class 1", "class 3", "class 5"]


@pytest.mark.parametrize("shape", [(4, 6, 5), (4, 6, 5, 3)])
def test_images(tmp_path: Path, shape: tuple[int, ...]) -> None:
    images = np.arange(np.prod(shape)).reshape(shape).astype(np.uint8)
    data = load_data(save(tmp_path, x_train=images, y_train=["b", "a", "b", "a"]), test_share=0)
    assert data.modality == "image"
    assert data.class_names == ("a", "b")
    np.testing.assert_array_equal(data.train.items, images)


def test_flawed_images_are_problems(tmp_path: Path) -> None:
    images = np.arange(8 * 6 * 5).reshape(8, 6, 5).astype(np.uint8)
    text = save(tmp_path, x_train=images, y_train=[0, 1, 0, 1, 5, -1, 0, 1], classes=["a", "b"])
    data = load_data(text, test_share=0)
    assert [str(problem) for problem in data.problems] == [
        "train sample 4: its label 5 is not one of the 2 classes",
        "train sample 5: its label -1 is not one of the 2 classes",
    ]
    np.testing.assert_array_equal(data.train.items, images[[0, 1, 2, 3, 6, 7]])
    with pytest.raises(InputError, match="train sample 4"):
        load_data(text, test_share=0, strict=True)


def test_flawed_features_are_refused(tmp_path: Path) -> None:
    bad = X.copy()
    bad[2, 1] = np.nan
    with pytest.raises(InputError, match=r"f\.npz: train sample 2: its features hold NaN or infinity"):
        load_data(save(tmp_path, x_train=bad, y_train=Y))
    with pytest.raises(InputError, match=r"f\.npz: test sample 2: its label 2 is not one of the 2 classes"):
        load_data(save(tmp_path, x_train=X, y_train=Y % 2, x_test=X, y_test=Y, classes=["a", "b"]))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x_train": X}, "lacks the array 'y_train'"),
        ({"x_train": X, "y_train": Y[:3]}, r"'y_train' .* must be one label a sample of 'x_train', \(8,\)"),
        ({"x_train": X[0], "y_train": Y}, r"must be features \(n, d\), or images"),
        ({"x_train": np.zeros((8, 2, 2)), "y_train": Y}, r"must be features \(n, d\), or images"),
        ({"x_train": np.zeros((8, 2, 2, 4), np.uint8), "y_train": Y}, r"must be features \(n, d\), or images"),
        ({"x_train": X, "y_train": Y, "x_test": X[:, :2], "y_test": Y}, "were two encoders used"),
        ({"x_train": X, "y_train": Y, "classes": ["a", "a"]}, "must be different names"),
        ({"x_train": X, "y_train": Y * 10**9}, "hardly a class number"),
        ({"x_train": X, "y_train": Y, "client_train": [1]}, "'client_train' .* must be one a sample"),
        ({"x_train": X, "y_train": Y, "domain_train": Y, "domains": ["a"]}, "must name the domains 0 to 3"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_data(save(tmp_path, **arrays))


def test_damaged_archives_and_pickles_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="pickled"):
        load_data(save(tmp_path, x_train=X, y_train=np.array([{}] * 8, dtype=object)))
    (tmp_path / "g.npz").write_bytes(b"nothing")
    with pytest.raises(FileFormatError, match=r"must be a valid \.npz archive"):
        load_data(str(tmp_path / "g.npz"))
    with pytest.raises(InputError, match="no such file"):
        load_data("npz:nowhere.npz")


def test_arrays_that_nothing_reads_are_refused_by_name(tmp_path: Path) -> None:
    from fedmoments.samples.features import load_features

    arrays: Any = {"x_train": np.ones((4, 2)), "y_train": np.array([0, 1, 0, 1])}
    np.savez(tmp_path / "a.npz", **arrays, class_names=np.array(["dog", "cat"]))
    for read in (lambda: load_data(f"npz:{tmp_path}/a.npz"), lambda: load_features(tmp_path / "a.npz", ["train"])):
        with pytest.raises(InputError, match=r"'class_names', which nothing reads: did you mean 'classes'\?"):
            read()
