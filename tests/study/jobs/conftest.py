"""Small data of every kind, an encoder that needs no network and no torch, and results without their times."""

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedmoments.errors import InputError
from fedmoments.samples.encoders.encoder import Encoder
from fedmoments.samples.encoders.entry import EncoderEntry, Options
from fedmoments.samples.encoders.images import ImagePreprocessing
from fedmoments.samples.encoders.registry import encoders, register_encoder

COLOURS = {"blue": (40, 60, 190), "green": (50, 180, 60), "red": (200, 60, 50)}


class Blocks(Encoder):
    """The features of an image are the mean colours of 4 × 4 blocks; it is read as real encoders read it."""

    name = "blocks"
    modality = "image"
    batch_size = 7
    dim = 48
    weights_hash = "no weights"

    def __init__(self, size: int) -> None:
        self.images = ImagePreprocessing(size=size)

    @property
    def preprocessing(self) -> Mapping[str, Any]:
        return self.images.describe()

    def prepare(self, sample: Any) -> Any:
        return self.images.prepare(sample)

    def encode(self, batch: Sequence[Any]) -> NDArray[np.float32]:
        pixels = np.stack(batch).astype(np.float32) / 255
        n, channels, side, _ = pixels.shape
        blocks = pixels.reshape(n, channels, 4, side // 4, 4, side // 4).mean(axis=(3, 5))
        return np.asarray(blocks.reshape(n, -1), np.float32)


class Letters(Encoder):
    """The features of a sentence are how often each letter is in it."""

    name = "letters"
    modality = "text"
    dim = 26
    weights_hash = "no weights"
    preprocessing: Mapping[str, Any] = {"case": "lower"}

    def prepare(self, sample: Any) -> Any:
        text = str(sample).lower()
        if not text.strip():
            raise InputError("the sentence is empty")
        return [text.count(chr(ord("a") + i)) / len(text) for i in range(self.dim)]

    def encode(self, batch: Sequence[Any]) -> NDArray[np.float32]:
        return np.asarray(batch, np.float32)


def _blocks(_: str, options: Options) -> Encoder:
    return Blocks(options.size or 32)


@pytest.fixture(autouse=True)
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty current directory and feature cache, and the two small encoders among the others."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDMOMENTS_CACHE", str(tmp_path / "cache"))
    small = [
        EncoderEntry("blocks", "colours", _blocks, "image", takes=frozenset({"size"})),
        EncoderEntry("letters", "letters", lambda _, __: Letters(), "text"),
    ]
    for entry in small:
        register_encoder(entry)
    yield
    for entry in small:
        encoders().remove(entry.name)


@pytest.fixture
def features_file(tmp_path: Path) -> str:
    """Features of 5 classes, with domains and clients."""
    rng = np.random.default_rng(11)
    means = rng.normal(scale=1.1, size=(5, 9))
    arrays: dict[str, Any] = {"classes": np.array(["ant", "bee", "cat", "dog", "eel"])}
    for part, n in (("train", 300), ("test", 120)):
        y = rng.integers(5, size=n)
        arrays |= {f"x_{part}": (means[y] + rng.normal(size=(n, 9))).astype(np.float32), f"y_{part}": y}
    n = len(arrays["y_train"])
    arrays |= {"domain_train": np.arange(n) % 3, "domains": np.array(["day", "dusk", "night"])}
    np.savez(tmp_path / "features.npz", **arrays, client_train=np.arange(n) % 8)
    return "npz:features.npz"


def _jpeg(colour: tuple[int, int, int], rng: np.random.Generator) -> bytes:
    from PIL import Image

    pixels = np.clip(np.array(colour) + rng.normal(scale=60, size=(3, 4, 3)), 0, 255).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).resize((48, 40)).save(file, "JPEG", quality=90)
    return file.getvalue()


@pytest.fixture
def draw_photos() -> Callable[..., list[Path]]:
    """Fill folders of classes with JPEG files, and return them."""
    pytest.importorskip("PIL")

    def draw(folder: Path, each: int, seed: int = 0) -> list[Path]:
        rng = np.random.default_rng(seed)
        files = []
        for name, colour in COLOURS.items():
            (folder / name).mkdir(parents=True)
            for number in range(each):
                files.append(folder / name / f"{number}.jpg")
                files[-1].write_bytes(_jpeg(colour, rng))
        return files

    return draw


@pytest.fixture
def photos(tmp_path: Path, draw_photos: Callable[..., list[Path]]) -> str:
    """A folder with 10 images to train on and 6 to test on, of each of 3 classes."""
    draw_photos(tmp_path / "photos" / "train", 10, seed=1)
    draw_photos(tmp_path / "photos" / "test", 6, seed=2)
    return "folder:photos"


@pytest.fixture
def sentences(tmp_path: Path) -> str:
    """A table of sentences with the users who wrote them."""
    words = {"weather": ["rain", "snow", "cloudy", "windy", "sunny"], "music": ["piano", "violin", "choir", "drums"]}
    rng = np.random.default_rng(5)
    with (tmp_path / "said.csv").open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(["sentence", "topic", "user"])
        for number in range(90):
            topic = ("weather", "music")[number % 2]
            said = " ".join(rng.choice(words[topic], size=3)) + f" {number}"
            table.writerow([said, topic, ("ann", "bob", "zoë")[number % 3]])
    return "csv:said.csv"


TIMES = {"seconds", "fit_seconds", "client_seconds", "timings", "command"}


@pytest.fixture
def timeless() -> Callable[[Any], Any]:
    """Return a document without its times."""

    def strip(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: strip(each) for key, each in value.items() if key not in TIMES}
        return [strip(each) for each in value] if isinstance(value, list) else value

    return strip


@pytest.fixture
def run() -> Callable[..., Any]:
    """Run a command in this process; it must succeed unless another exit code is expected."""
    testing = pytest.importorskip("click.testing")
    from fedmoments.cli.app import app

    def invoke(*arguments: str, code: int = 0, lines: str = "") -> Any:
        result = testing.CliRunner().invoke(app, [str(each) for each in arguments], lines, catch_exceptions=False)
        assert result.exit_code == code, result.output
        if code == 2:
            assert result.stdout == ""
            assert result.stderr.startswith("error: ")
            assert result.stderr.count("\n") == 1
        return result

    return invoke
