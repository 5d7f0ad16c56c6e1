"""A classifier survives its file, which is safetensors and never pickle; damage is noticed."""

import io
import json
import pickletools
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import fedmoments as fm
from fedmoments.core.classifier import load
from fedmoments.core.maps import Clip, Normalize, RandomProjection
from fedmoments.errors import FileFormatError, InputError
from fedmoments.files import read_tensors, write_tensors

rng = np.random.default_rng(0)
LABELS = np.arange(60) % 3
X = rng.normal(size=(60, 5)) + 3 * np.eye(3, 5)[LABELS]
PARTIES = {k: (X[k::4], LABELS[k::4]) for k in range(4)}
NAMES = ["chat", "Ω", "a 'quoted' name", "never seen"]


def fitted(name: str, **options: Any) -> fm.Classifier:
    hyper: dict[str, Any] = {"n_features": 16} if name == "fed3r-rf" else {}
    return fm.fit(name, PARTIES, n_classes=4, class_names=NAMES, **hyper, **options)


@pytest.mark.parametrize("name", fm.head_names())
def test_a_classifier_comes_back_as_it_was(name: str, tmp_path: Path) -> None:
    classifier = fitted(name).noting(fingerprint="abc", years=[1, 2], nested={"a": None, "b": 0.5})
    path = tmp_path / "head.safetensors"
    classifier.save(path)
    again = load(path)
    assert type(again) is type(classifier)
    assert again.digest() == classifier.digest()
    assert again.class_names == tuple(NAMES)
    assert dict(again.info) == dict(classifier.info)
    assert again.feature_map == classifier.feature_map
    assert np.array_equal(again.present, classifier.present)
    assert again.present.dtype == np.bool_
    np.testing.assert_allclose(again.scores(X), classifier.scores(X), rtol=1e-12)
    assert np.array_equal(again.predict(X), classifier.predict(X))
    assert [entry.name for entry in tmp_path.iterdir()] == ["head.safetensors"]


def test_a_chain_of_maps_comes_back(tmp_path: Path) -> None:
    chain = Normalize() | RandomProjection(5, 3, seed=7) | Clip(0.9)
    classifier = fitted("gh-lda", feature_map=chain)
    classifier.save(tmp_path / "file")
    again = load(tmp_path / "file")
    assert again.feature_map == chain
    np.testing.assert_allclose(again.scores(X), classifier.scores(X), rtol=1e-12)
    assert again.dim == 3


def test_the_file_is_safetensors_with_a_readable_header_and_no_pickle(tmp_path: Path) -> None:
    path = tmp_path / "file"
    classifier = fitted("gh-qda")
    classifier.save(path)
    tensors = load_file(path)
    seen = {"familiar.means", "familiar.variances", "familiar.shares"}
    assert set(tensors) == {"present", *(name for name, _ in classifier.arrays()), *seen}
    raw = path.read_bytes()
    outer = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
    header = json.loads(outer["__metadata__"]["fedmoments"])
    assert header["kind"] == "classifier"
    assert header["header"]["classifier"] == "quadratic"
    assert header["header"]["class_names"] == NAMES
    assert "Ω" in outer["__metadata__"]["fedmoments"]  # readable, not escaped
    with pytest.raises(ValueError, match=r"."):
        pickletools.dis(raw, out=io.StringIO())


def test_loading_never_imports_pickle_machinery(tmp_path: Path) -> None:
    path = tmp_path / "file"
    fitted("gh-lda").save(path)
    code = (
        "import pickle, sys\n"
        "def refuse(*a, **k): raise SystemExit('unpickled')\n"
        "pickle.load = pickle.loads = pickle.Unpickler = refuse\n"
        f"import fedmoments; print(fedmoments.load({str(path)!r}).n_classes)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "4"


@pytest.mark.parametrize("flip", [0x01, 0x04, 0x20, 0xFF])
def test_every_flipped_byte_is_noticed(tmp_path: Path, flip: int) -> None:
    path = tmp_path / "file"
    fitted("fedncm").noting(note="n").save(path)
    raw = path.read_bytes()
    header = 8 + int.from_bytes(raw[:8], "little")
    positions = [*range(header), *range(header, len(raw), 7)]
    for position in positions:
        damaged = bytearray(raw)
        damaged[position] ^= flip
        path.write_bytes(damaged)
        with pytest.raises(FileFormatError, match="file"):
            load(path)


def test_every_truncation_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    fitted("fedncm").save(path)
    raw = path.read_bytes()
    for length in [*range(0, len(raw), 11), len(raw) - 1]:
        path.write_bytes(raw[:length])
        with pytest.raises(FileFormatError, match="file"):
            load(path)


@pytest.mark.parametrize("content", [b"", b"hello", b"\x80\x04K\x01.", b"\xff" * 64, b"PK\x03\x04" + b"\0" * 60])
def test_what_is_no_classifier_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match="not a valid fedmoments file"):
        load(path)


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    stats = fm.Statistics.of(X, LABELS, fm.StatisticsSpec(), n_classes=3)
    fm.save_statistics(path, stats)
    with pytest.raises(FileFormatError, match="holds 'statistics', but a file of 'classifier'"):
        load(path)


@pytest.mark.parametrize(
    "change",
    [
        {"classifier": "forest"},
        {"classifier": None},
        {"class_names": ["too", "few"]},
        {"class_names": 3},
        {"feature_map": {"kind": "unknown"}},
        {"feature_map": 7},
        {"feature_map": {"kind": "clip", "norm": -1.0}},
    ],
)
def test_a_sound_file_with_a_wrong_header_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    path = tmp_path / "file"
    fitted("gh-lda").save(path)
    tensors, header = read_tensors(path, "classifier")
    write_tensors(path, "classifier", tensors, {**header, **change})
    with pytest.raises(InputError):
        load(path)


@pytest.mark.parametrize(
    "change",
    [
        {"weights": None},
        {"present": None},
        {"surplus": np.zeros(3)},
    ],
)
def test_a_sound_file_with_missing_or_surplus_arrays_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    path = tmp_path / "file"
    fitted("gh-lda").save(path)
    tensors, header = read_tensors(path, "classifier")
    changed = {name: array for name, array in {**tensors, **change}.items() if array is not None}
    write_tensors(path, "classifier", changed, header)
    with pytest.raises(FileFormatError, match="valid classifier of kind 'linear'"):
        load(path)


def test_a_missing_file_is_not_a_damaged_one(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "nowhere")
