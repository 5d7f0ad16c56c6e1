"""Rounds on a network that are interrupted and gone on with, and what is imported before there is one."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmoments.samples.encoders import load_encoder
from fedmoments.settings.plan import TuningPlan
from fedmoments.tuning.engine import AVERAGED
from fedmoments.tuning.loop import Tuned, run_rounds
from fedmoments.tuning.network import NetworkEngine
from fedmoments.tuning.prices import Prices
from fedmoments.tuning.start import random_start

pytest.importorskip("torch")
pytest.importorskip("flwr")

SIZE = 32


def run(name: str, rounds: int, checkpoint: Path | None = None, **given: Any) -> Tuned:
    """Run rounds of a plan on a few images of three clients."""
    encoder = load_encoder(name, size=SIZE, threads=1)
    X = np.random.default_rng(0).integers(0, 256, (12, 3, SIZE, SIZE)).astype(np.uint8)
    y = np.arange(12) % 2
    parts = {client: (X[rows], y[rows]) for client, rows in zip("abc", np.split(np.arange(12), 3), strict=True)}
    start = random_start(encoder.dim, np.array([True, True]), seed=0, temperature=10.0)
    settings = {"stage": "ft", "lr": 1e-2, "fraction": 0.67, "batch_size": 2, "validation": 0.3, "check_every": 1}
    plan = TuningPlan(rounds=rounds, **{**settings, **given})
    engine = NetworkEngine(plan, start, encoder, parts, (X, y))
    return run_rounds(plan, engine, engine.initial(), prices=Prices(encoder.dim, 2), checkpoint=checkpoint)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("squeezenet-1.1", {"optimiser": "scaffold", "momentum": 0.5}),
        ("squeezenet-1.1", {"optimiser": "fedadam", "stage": "feat"}),
        pytest.param("efficientnet-lite0", {"batchnorm": "averaged", "lr": 1e-3}, marks=pytest.mark.slow),
    ],
    ids=["scaffold", "fedadam", "batchnorm"],
)
def test_rounds_that_were_interrupted_end_with_the_same_network_bit_for_bit(
    name: str, given: dict[str, Any], tmp_path: Path
) -> None:
    straight = run(name, 3, **given)
    run(name, 1, tmp_path / "checkpoint", **given)
    resumed = run(name, 3, tmp_path / "checkpoint", **given)
    assert resumed.resumed == 1
    assert resumed.arrays.keys() == straight.arrays.keys()
    assert all(np.array_equal(resumed.arrays[each], straight.arrays[each]) for each in straight.arrays)
    told, expected = ([(p.accuracy, p.loss, p.validation) for p in each.points] for each in (resumed, straight))
    assert told == expected
    assert any(each.startswith(AVERAGED) for each in straight.arrays) == ("batchnorm" in given)


def test_the_room_is_entered_without_torch() -> None:
    words = "import sys, fedmoments.tuning.network; print('torch' in sys.modules, 'flwr' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
