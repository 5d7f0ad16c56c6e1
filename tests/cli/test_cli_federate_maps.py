"""``fedmoments federate`` behind the maps that terms may hold."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedmoments as fm
from fedmoments.core.maps import Normalize, RandomFourier, compose

pytest.importorskip("flwr")
pytest.importorskip("cryptography")

FEDERATE = ("federate", "--local", "2", "--clients", "6", "--engine", "memory", "--min-count", "1", "--out", "trial")


def test_random_features_in_a_federation_are_those_of_all_samples_in_one_place(run: Any, features: str) -> None:
    maps = ("--heads", "fed3r-rf", "--normalize", "--fourier", "40", "--bandwidth", "0.7")
    run(*FEDERATE, "--data", features, *maps)
    [saved] = Path("trial").rglob("fed3r-rf*.safetensors")
    classifier = fm.load(saved)
    with np.load(features.removeprefix("npz:")) as arrays:
        X, y = arrays["x_train"], arrays["y_train"]
    behind = compose(Normalize(), RandomFourier(X.shape[1], 40, 0.7, 0))
    pooled = fm.fit("fed3r", {"all": (behind(X), y)}, n_classes=classifier.n_classes)
    assert (classifier.predict(X) == pooled.predict(behind(X))).mean() > 0.99, "but for rounding in fixed point"


@pytest.mark.parametrize("given", [("--fourier", "40"), ("--bandwidth", "0.7")])
def test_features_and_their_width_belong_together(run: Any, features: str, given: tuple[str, ...]) -> None:
    result = run(*FEDERATE, "--data", features, "--heads", "fed3r-rf", *given, code=2)
    assert "--fourier and --bandwidth belong together" in result.stderr
