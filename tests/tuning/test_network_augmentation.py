"""Images that are changed before each step: what changes, what never does, and that all of it is drawn by the seed."""

from typing import Any

import numpy as np
import pytest

from fedmoments.errors import InputError, UnknownNameError
from fedmoments.samples.encoders import load_encoder
from fedmoments.settings.plan import TuningPlan
from fedmoments.tuning.network import NetworkEngine
from fedmoments.tuning.network.augmentation import augmented
from fedmoments.tuning.start import random_start

torch = pytest.importorskip("torch")


def images(n: int, size: int = 32) -> Any:
    return np.random.default_rng(0).integers(0, 256, (n, 3, size, size)).astype(np.uint8)


def test_a_flip_mirrors_half_of_the_images_and_nothing_else() -> None:
    given = images(400, 4)
    made = augmented(given, frozenset({"flip"}), np.random.default_rng(1))
    mirrored = np.array([not np.array_equal(a, b) for a, b in zip(made, given, strict=True)])
    np.testing.assert_array_equal(made[mirrored], given[mirrored][..., ::-1])
    assert 150 < mirrored.sum() < 250


def test_a_crop_is_a_part_of_its_image_in_the_same_size() -> None:
    flat = np.full((20, 3, 16, 16), 77, np.uint8)
    np.testing.assert_array_equal(augmented(flat, frozenset({"crop"}), np.random.default_rng(0)), flat)
    ramp = np.broadcast_to(np.arange(0, 256, 8, dtype=np.uint8), (50, 3, 32, 32)).copy()
    made = augmented(ramp, frozenset({"crop"}), np.random.default_rng(0)).astype(int)
    steps = np.diff(made, axis=-1)
    assert made.shape == ramp.shape
    assert (steps >= 0).all()  # columns stay in order
    assert (np.ptp(made, axis=-2) == 0).all()  # rows were equal, and are
    widths = made[:, 0, 0, -1] - made[:, 0, 0, 0]
    assert widths.min() < 100 < 200 < widths.max() <= 248


@pytest.mark.parametrize("how", ["flip", "crop", "flip,crop"])
def test_training_sees_changed_images_by_seed_and_testing_never(how: str) -> None:
    encoder = load_encoder("squeezenet-1.1", size=32, threads=1)
    head = random_start(encoder.dim, np.array([True, True]), seed=0)
    part = (images(6), np.array([0, 1, 0, 1, 0, 1]))
    plan = TuningPlan(stage="feat", lr=1e-3, augment=how)
    runs = [
        NetworkEngine(each, head, encoder, {"a": part}, part)
        for each in (plan, plan, TuningPlan(stage="feat", lr=1e-3))
    ]
    ends = [engine.train(1, engine.initial(), None, ["a"])[0] for engine in runs]
    name = next(iter(ends[0].arrays))
    np.testing.assert_array_equal(ends[0].arrays[name], ends[1].arrays[name])
    assert not np.array_equal(ends[0].arrays[name], ends[2].arrays[name])
    assert runs[0].test(runs[0].initial()) == runs[2].test(runs[2].initial())


def test_what_cannot_be_augmented_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="unknown augmentation 'turn'"):
        TuningPlan(stage="ft", augment="flip,turn")
    with pytest.raises(InputError, match="features of stage 'lp' are computed once"):
        TuningPlan(augment="flip")
