"""The feature cache: a second run against the first, hashing and checking included."""

import time
from collections.abc import Callable
from pathlib import Path

from fedmoments.samples.encoders.pipeline import encode_samples
from fedmoments.samples.encoders.registry import load_encoder
from fedmoments.samples.sources.registry import load_data


def test_a_second_run_is_twenty_times_faster(tmp_path: Path, note: Callable[[str, str, str], None]) -> None:
    samples, encoder = load_data("digits").train, load_encoder("efficientnet-lite0", size=96)
    start = time.perf_counter()
    encode_samples(encoder, samples, cache_dir=tmp_path)
    middle = time.perf_counter()
    encode_samples(encoder, samples, cache_dir=tmp_path)
    ratio = (middle - start) / (time.perf_counter() - middle)
    note("feature cache, first run / second run", f"{ratio:.0f}", ">= 20")
    assert ratio >= 20
