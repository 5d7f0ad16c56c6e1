"""Linear probing in one call: what it returns, goes on from, refuses."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedmoments as fm
from fedmoments.errors import FitWarning, InputError
from fedmoments.tuning import TuningPlan, tune

C, D = 3, 5
Part = tuple[np.ndarray, np.ndarray]


def draw(n: int, seed: int) -> Part:
    rng = np.random.default_rng(seed)
    y = rng.integers(C, size=n)
    return (np.eye(C, D)[y] + rng.normal(size=(n, D))).astype(np.float32), y


def parties(seed: int = 0) -> dict[str, Part]:
    X, y = draw(120, seed)
    return {f"clinic {k}": (X[k::4], y[k::4]) for k in range(4)}


def scaled(held: dict[str, Part]) -> dict[str, Part]:
    return {name: (X * np.float32(2), y) for name, (X, y) in held.items()}


def test_the_classifier_is_that_of_the_last_point() -> None:
    test = draw(200, 9)
    found = tune(parties(), "fedncm", TuningPlan(rounds=4, lr=0.05, temperature="auto"), test=test)
    assert found.points[-1].accuracy == (found.classifier.predict(test[0]) == test[1]).mean()
    assert found.points[0].accuracy == (fm.fit("fedncm", parties()).predict(test[0]) == test[1]).mean()
    assert found.classifier.temperature == found.temperature
    assert (found.points[0].total_bytes, {point.flops for point in found.points}) == (0, {None})


def test_a_random_start_keeps_the_temperature_1_where_heads_have_theirs_chosen() -> None:
    plan = TuningPlan(rounds=0, lr=0.01, temperature="auto")
    assert tune(scaled(parties()), "random", plan).temperature == 1.0
    assert tune(scaled(parties()), "fedncm", plan).temperature > 1.0


@pytest.mark.parametrize(
    "change",
    [
        {"parties": scaled(parties())},
        {"parties": {name: (X, (y + 1) % C) for name, (X, y) in parties().items()}},
        {"parties": {name: (X.astype(np.float64), y) for name, (X, y) in parties().items()}},
        {"parties": {name.replace("clinic", "hospital"): part for name, part in parties().items()}},
        {"test": draw(50, 8)},
        {"test": None},
    ],
    ids=["features", "labels", "types", "names", "test", "no test"],
)
def test_a_checkpoint_of_other_samples_is_refused(change: dict[str, Any], tmp_path: Path) -> None:
    same: dict[str, Any] = {"parties": parties(), "start": "random", "test": draw(50, 7)}
    file = tmp_path / "head.checkpoint"
    tune(**same, plan=TuningPlan(rounds=2), checkpoint=file)
    with pytest.raises(InputError, match="checkpoint of another run"):
        tune(**{**same, **change}, plan=TuningPlan(rounds=4), checkpoint=file)
    on, whole = (
        tune(**same, plan=TuningPlan(rounds=4), checkpoint=file),
        tune(**same, plan=TuningPlan(rounds=4)),
    )
    assert on.points == whole.points
    assert on.classifier.digest() == whole.classifier.digest()


@pytest.mark.parametrize("start", ["random", "fedncm"])
def test_a_class_that_only_validation_shares_hold_counts_as_wrong(start: str) -> None:
    held = {name: (X, np.where(y == 2, 0, y)) for name, (X, y) in parties().items()}
    held["clinic 0"][1][0] = 2  # one sample of class 2
    kept = {}
    for seed in range(8):
        found = tune(held, start, TuningPlan(rounds=2, validation=0.5, check_every=1, seed=seed), n_classes=C)
        kept[seed] = bool(found.classifier.present[2])
        first = found.points[0].validation
        assert first is not None
        assert 0 < first < 1
        assert (found.points[0].validation_loss == float("inf")) == (not kept[seed])
    assert set(kept.values()) == {False, True}  # the sample was held out by some seeds, and trained on by others


def test_nobody_with_a_sample_is_refused() -> None:
    with pytest.raises(InputError, match="no party has a sample"):
        tune({"clinic": (np.zeros((0, D)), np.zeros(0, int))}, "random")


def test_a_temperature_at_the_end_of_the_grid_is_told() -> None:
    tiny = {name: (X * np.float32(1e-5), y) for name, (X, y) in parties().items()}
    with pytest.warns(FitWarning, match="the end of the grid"):
        found = tune(tiny, "fedncm", TuningPlan(rounds=1, lr=0.01, temperature="auto"))
    assert found.temperature == 0.001
