"""Samples are hashed once in a run, however often their digests are requested, and again when a file has changed."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fedmoments.samples import digests
from fedmoments.samples.digests import sample_digests
from fedmoments.samples.samples import Samples, item_digest
from fedmoments.settings.study import StudySettings
from fedmoments.study.jobs import run_job


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counter[Any]:
    calls: Counter[Any] = Counter()

    def count(item: Any) -> bytes:
        calls[item if isinstance(item, Path | str) else np.asarray(item).tobytes()] += 1
        return item_digest(item)

    monkeypatch.setattr(digests, "item_digest", count)
    return calls


def pictures(folder: Path) -> str:
    rng = np.random.default_rng(0)
    for part, n in (("train", 6), ("test", 3)):
        for name in ("cat", "dog"):
            (folder / part / name).mkdir(parents=True)
            for i in range(n):
                pixels = rng.integers(0, 256, (40, 40, 3)).astype(np.uint8)
                Image.fromarray(pixels).save(folder / part / name / f"{i}.png")
    return f"folder:{folder}"


def arrays(path: Path) -> str:
    rng = np.random.default_rng(0)
    parts: dict[str, Any] = {}
    for part, n in (("train", 12), ("test", 6)):
        parts |= {f"x_{part}": rng.integers(0, 256, (n, 40, 40, 3)).astype(np.uint8), f"y_{part}": np.arange(n) % 2}
    np.savez(path, **parts)
    return f"npz:{path}"


@pytest.mark.parametrize("kind", ["files", "arrays"])
def test_every_image_is_hashed_once_in_a_simulation(kind: str, tmp_path: Path, counted: Counter[Any]) -> None:
    data = pictures(tmp_path / "photos") if kind == "files" else arrays(tmp_path / "photos.npz")
    study = StudySettings(
        data=data, encoder="blocks", heads=("fedncm", "gh-lda"), clients=(2,), splits=("iid",), seeds=2
    )
    run_job(study, tmp_path / "out")
    assert len(counted) == 18
    assert set(counted.values()) == {1}


def test_samples_of_a_client_are_not_hashed_again(counted: Counter[Any]) -> None:
    whole = Samples(["one", "two", "three"], np.array([0, 1, 0]), ("a", "b"), "text")
    found = sample_digests(whole)
    part = whole.take(np.array([2, 0]))
    np.testing.assert_array_equal(sample_digests(part), found[[2, 0]])
    assert set(counted.values()) == {1}


def test_a_file_that_changed_is_hashed_again(tmp_path: Path, counted: Counter[Any]) -> None:
    paths = [tmp_path / name for name in "ab"]
    for path in paths:
        path.write_text("first")
    samples = Samples(paths, np.array([0, 1]), ("a", "b"), "image")
    before = sample_digests(samples)
    np.testing.assert_array_equal(sample_digests(samples.take(np.array([1])))[0], before[1])
    paths[1].write_text("the second")
    after = sample_digests(samples)
    assert (after[0] == before[0]).all()
    assert (after[1] != before[1]).any()
    assert counted[paths[1]] == 2
