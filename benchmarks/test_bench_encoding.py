"""Encoding from JPEG files against the model alone: reading ahead must hide nearly all of the reading.

Both sides use two cores, so times are of the wall clock, best of short rounds that take turns: neighbours disturb the
best least.
"""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from fedmoments.samples.encoders.encoder import Encoder
from fedmoments.samples.encoders.entry import Runtime
from fedmoments.samples.encoders.pipeline import encode_samples
from fedmoments.samples.encoders.registry import load_encoder
from fedmoments.samples.samples import Samples

N_FILES, BATCH = 256, 32

Note = Callable[[str, str, str], None]


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Samples:
    """Return JPEG files of 300 to 500 pixels a side, smooth with some noise, as photographs are: 25 to 70 kB each."""
    pillow = pytest.importorskip("PIL.Image")
    folder = tmp_path_factory.mktemp("photographs")
    rng = np.random.default_rng(0)
    paths: list[Path] = []
    for i in range(N_FILES):
        width, height = (int(side) for side in rng.integers(300, 501, 2))
        smooth = pillow.fromarray(rng.integers(0, 256, (12, 12, 3), dtype=np.uint8)).resize((width, height), 3)
        noisy = np.asarray(smooth, np.float32) + rng.normal(0, 6, (height, width, 3)).astype(np.float32)
        paths.append(folder / f"{i}.jpg")
        pillow.fromarray(np.clip(noisy, 0, 255).astype(np.uint8)).save(paths[-1], quality=90)
    return Samples(paths, np.zeros(N_FILES, np.int64), ("any",), "image")


@pytest.mark.slow
@pytest.mark.parametrize(("runtime", "per_round", "rounds"), [("onnx", 256, 6), ("torch", 64, 4)])
def test_end_to_end_from_jpeg_files_against_the_model_alone(
    photographs: Samples, note: Note, tmp_path: Path, runtime: Runtime, per_round: int, rounds: int
) -> None:
    """The issue's bound: at 224 px with efficientnet-lite0, at least 0.8 × the model-only rate of the same runtime."""
    pytest.importorskip("onnxruntime" if runtime == "onnx" else "torch")
    encoder = load_encoder("efficientnet-lite0", runtime=runtime, threads=2, batch_size=BATCH, cache=tmp_path)
    some = photographs.take(np.arange(per_round))
    inputs = [encoder.prepare(item) for item in some.items]
    encoder.encode(inputs[:BATCH])
    alone, whole, reading = [], [], []
    for turn in range(rounds):
        cache = tmp_path / f"turn {turn}"
        alone.append(_seconds(lambda: _model_only(encoder, inputs)))
        whole.append(_seconds(partial(encode_samples, encoder, some, cache_dir=cache)))
        reading.append(_seconds(lambda: [encoder.prepare(item) for item in some.items]))
    ratio = min(alone) / min(whole)
    rates = [per_round / min(times) for times in (whole, alone, reading)]
    shown = f"{rates[0]:.0f} of {rates[1]:.0f}/s"
    print(f"\n{runtime}: {shown}, ratio {ratio:.2f}; one thread prepares {rates[2]:.0f}/s")
    note(f"encoding from files, {runtime}: images a second of the model's alone", shown, "")
    note(f"encoding from files, {runtime}: end to end / model only", f"{ratio:.2f}", ">= 0.8")
    assert ratio >= 0.8


def _model_only(encoder: Encoder, inputs: list[object]) -> None:
    for start in range(0, len(inputs), BATCH):
        encoder.encode(inputs[start : start + BATCH])


def _seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start
