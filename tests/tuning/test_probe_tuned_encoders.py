"""The probe of encoders that were tuned: what they were tuned from, what a folder holds, what is written."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedmoments as fm
from fedmoments.errors import FileFormatError, InputError, MergeError
from fedmoments.files import write_tensors
from fedmoments.handover.model import encoder_of
from fedmoments.settings.study import StudySettings
from fedmoments.study.jobs.probe import Tuned, base_of, find_tuned, run_probe

pytest.importorskip("torch")


@pytest.fixture
def images(tmp_path: Path) -> str:
    """Bright and dark squares, labelled by where they are."""
    rng = np.random.default_rng(0)
    arrays: dict[str, Any] = {"classes": np.array(["left", "right", "none"])}
    for part, n in (("train", 30), ("test", 15)):
        y = np.arange(n) % 3
        x = rng.integers(0, 60, size=(n, 16, 16), dtype=np.uint8)
        for i, label in enumerate(y):
            if label < 2:
                x[i, 4:12, 8 * label : 8 * label + 8] += 150
        arrays |= {f"x_{part}": x, f"y_{part}": y}
    np.savez(tmp_path / "images.npz", **arrays)
    return f"npz:{tmp_path / 'images.npz'}"


def tune(folder: Path, by: float) -> Path:
    """Write an encoder whose biases were moved, as if it had been tuned."""
    from fedmoments.samples.encoders import load_encoder
    from fedmoments.tuning.network import save_encoder

    folder.mkdir()
    encoder: Any = load_encoder("squeezenet-1.1", size=32, threads=1)
    state = encoder.model.body.state_dict()
    moved = {f"encoder/{name}": each.numpy() + by for name, each in state.items() if name.endswith("bias")}
    save_encoder(folder / "encoder.safetensors", encoder, moved)
    return folder


def test_an_encoder_whose_weights_did_not_change_gives_the_same_before_and_after(images: str, tmp_path: Path) -> None:
    tuned = find_tuned(tune(tmp_path / "same", 0.0))
    found = run_probe(StudySettings(data=images, heads=("fed3r", "gh-lda"), threads=1), tuned, cache_dir=False)
    assert found.document["probe"]["tuned"]
    assert [(row.after, row.gain) for row in found.result.rows] == [(row.before, 0.0) for row in found.result.rows]
    assert (found.result.rows[0].before or 0.0) > 0.5


def test_refits_are_written_with_the_tuned_encoder_and_predict_behind_it(images: str, tmp_path: Path) -> None:
    folder = tune(tmp_path / "moved", 0.3)
    config = StudySettings(data=images, heads=("fed3r",), threads=1)
    found = run_probe(config, find_tuned(folder), out=tmp_path / "refits", cache_dir=False)
    assert found.files == [tmp_path / "refits" / "fed3r.safetensors"]
    read = fm.load(found.files[0])
    assert read.digest() == found.result.refits["fed3r"].digest()
    about = found.document["probe"]
    assert read.info["encoder"]["fingerprint"] == about["encoder"]["fingerprint"] != about["base"]["fingerprint"]
    assert about["base"]["name"] == "squeezenet-1.1"
    encoder = encoder_of(read, threads=1)
    assert encoder.name == f"tuned:{folder}/encoder.safetensors"
    with pytest.raises(MergeError, match="fingerprint"):
        encoder_of(read, "squeezenet-1.1", threads=1)


def test_a_folder_without_an_encoder_compares_heads_on_the_same_features(images: str, tmp_path: Path) -> None:
    config = StudySettings(data=images, heads=("fedncm", "fed3r"), threads=1)
    first = run_probe(config, Tuned("squeezenet-1.1"), out=tmp_path / "heads", cache_dir=False)
    folder = tmp_path / "lp"
    folder.mkdir()
    fm.load(tmp_path / "heads" / "fedncm.safetensors").save(folder / "head.safetensors")
    found = run_probe(config, find_tuned(folder), cache_dir=False)
    assert not found.document["probe"]["tuned"]
    assert found.document["probe"]["encoder"]["name"] == "squeezenet-1.1"  # as the head says
    assert found.result.softmax == found.result.rows[0].after == first.result.rows[0].after


def test_the_base_is_what_the_file_names_with_its_preprocessing(tmp_path: Path) -> None:
    from fedmoments.samples.encoders import load_encoder

    path = tune(tmp_path / "moved", 0.3) / "encoder.safetensors"
    expected = load_encoder("squeezenet-1.1", size=32, threads=1)
    assert base_of(f"tuned:{path}", threads=1).fingerprint == expected.fingerprint


def test_a_file_or_folder_tells_what_was_tuned(tmp_path: Path) -> None:
    for name in ("encoder.safetensors", "head.safetensors"):
        (tmp_path / name).touch()
    both = Tuned(f"tuned:{tmp_path / 'encoder.safetensors'}", tmp_path / "head.safetensors")
    assert find_tuned(tmp_path) == find_tuned(tmp_path / "encoder.safetensors") == both
    (tmp_path / "encoder.safetensors").unlink()
    assert find_tuned(tmp_path) == Tuned(None, tmp_path / "head.safetensors")
    (tmp_path / "head.safetensors").unlink()
    with pytest.raises(InputError, match=r"neither encoder\.safetensors nor head\.safetensors"):
        find_tuned(tmp_path)
    with pytest.raises(InputError, match="does not exist"):
        find_tuned(tmp_path / "gone")


def test_files_that_do_not_say_what_was_tuned_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="name the other one as the base"):
        base_of("squeezenet-1.1")
    write_tensors(tmp_path / "odd", "encoder", {"a": np.zeros(1)}, {"base": "squeezenet-1.1"})
    with pytest.raises(FileFormatError, match="does not say which encoder was tuned"):
        base_of(f"tuned:{tmp_path / 'odd'}")
    header = {"base": "squeezenet-1.1", "options": {}, "fingerprint": "0" * 64}
    write_tensors(tmp_path / "other", "encoder", {"a": np.zeros(1)}, header)
    with pytest.raises(MergeError, match="weights or preprocessing differ"):
        base_of(f"tuned:{tmp_path / 'other'}", threads=1)
