"""Real image files, sound and damaged, through loading, preparing and the pipeline; and features that are given."""

import io
from collections.abc import Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedmoments.errors import InputError
from fedmoments.samples import Samples, load_data
from fedmoments.samples.encoders.encoder import Encoder
from fedmoments.samples.encoders.images import ImagePreprocessing
from fedmoments.samples.encoders.pipeline import encode_samples
from fedmoments.samples.encoders.registry import load_encoder

pillow = pytest.importorskip("PIL.Image")


class MeanColour(Encoder):
    """The features of an image are its mean colour; it is read as real encoders read it."""

    name = "mean-colour"
    modality = "image"
    batch_size = 3
    dim = 3
    preprocessing = MappingProxyType({"size": 32})
    weights_hash = "w"
    images = ImagePreprocessing(size=32)

    def prepare(self, sample: Any) -> Any:
        return self.images.prepare(sample)

    def encode(self, batch: Sequence[Any]) -> NDArray[np.float32]:
        colours: NDArray[np.float32] = np.stack(batch).mean(axis=(2, 3), dtype=np.float32)
        return colours


def jpeg(red: int) -> bytes:
    file = io.BytesIO()
    pillow.fromarray(np.full((40, 60, 3), (red, 100, 50), np.uint8)).save(file, "JPEG", quality=95)
    return file.getvalue()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, data in {
        "good/1.jpg": jpeg(10),
        "good/2.jpg": jpeg(200),
        "good/empty.jpg": b"",
        "good/text.jpg": b"I am not an image",
        "good/truncated.jpg": jpeg(90)[:300],
        "lost/only.jpg": jpeg(30)[:200],
    }.items():
        path = tmp_path / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    (tmp_path / "data/good/gone.jpg").symlink_to(tmp_path / "nowhere.jpg")
    return tmp_path / "data"


def test_damaged_images_are_named_and_the_run_goes_on(folder: Path, tmp_path: Path) -> None:
    data = load_data(f"folder:{folder}", test_share=0)
    for _ in range(2):
        found = encode_samples(MeanColour(), data.train, cache_dir=tmp_path / "cache")
        assert [problem.where for problem in found.problems] == [
            "good/empty.jpg", "good/gone.jpg", "good/text.jpg", "good/truncated.jpg", "lost/only.jpg", "class lost",
        ]  # fmt: skip
        assert all(problem.why for problem in found.problems)
        np.testing.assert_allclose(found.features[:, 0], [10, 200], atol=3)
        assert found.class_names == ("good", "lost")
    with pytest.raises(InputError, match=r"^good/empty\.jpg: "):
        encode_samples(MeanColour(), data.train, cache_dir=tmp_path / "cache", strict=True)


def test_a_file_that_is_mended_is_tried_again(folder: Path, tmp_path: Path) -> None:
    data = load_data(f"folder:{folder}", test_share=0)
    encode_samples(MeanColour(), data.train, cache_dir=tmp_path / "cache")
    (folder / "lost/only.jpg").write_bytes(jpeg(30))
    (tmp_path / "nowhere.jpg").write_bytes(jpeg(70))
    found = encode_samples(MeanColour(), data.train, cache_dir=tmp_path / "cache")
    assert found.computed == 2
    np.testing.assert_allclose(found.features[:, 0], [10, 200, 70, 30], atol=3)


def test_images_in_a_table_and_in_files_give_the_same_features(folder: Path, tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    files = [folder / "good/1.jpg", folder / "good/2.jpg", folder / "good/text.jpg"]
    cells = [path.read_bytes() for path in files]
    parquet.write_table(arrow.table({"image": cells, "label": ["a", "a", "a"]}), tmp_path / "t.parquet")
    table = encode_samples(MeanColour(), load_data(f"{tmp_path}/t.parquet", test_share=0).train, cache_dir=False)
    plain = Samples(files, np.zeros(3, np.int64), ("a",), "image")
    np.testing.assert_array_equal(table.features, encode_samples(MeanColour(), plain, cache_dir=False).features)
    assert [problem.where for problem in table.problems] == ["t.parquet row 3"]


def test_digits_are_images(tmp_path: Path) -> None:
    some = load_data("digits").test.take(np.arange(20))
    found = encode_samples(MeanColour(), some, cache_dir=tmp_path)
    assert found.features.shape == (20, 3)
    assert np.ptp(found.features[:, 0]) > 0


def test_given_features_are_not_copied_unless_rows_are_left_out() -> None:
    X = np.arange(12, dtype=np.float32).reshape(4, 3)
    seen: list[tuple[int, int]] = []
    encoder = load_encoder("identity", dim=3)
    samples = Samples(X, np.array([0, 0, 1, 1]), ("a", "b"), "features")
    found = encode_samples(encoder, samples, progress=lambda *step: seen.append(step))
    assert np.shares_memory(found.features, X)
    assert X.flags.writeable
    assert not found.features.flags.writeable
    assert seen == [(4, 4)]
    X[2:] = np.nan
    found = encode_samples(encoder, samples)
    np.testing.assert_array_equal(found.kept, [0, 1])
    assert [problem.where for problem in found.problems] == ["sample 2", "sample 3", "class b"]
    with pytest.raises(InputError, match="sample 2: its features are not all finite"):
        encode_samples(encoder, samples, strict=True)
    with pytest.raises(InputError, match=r"of the shape \(n, 4\), but are float32 \(4, 3\)"):
        encode_samples(load_encoder("identity", dim=4), samples)
