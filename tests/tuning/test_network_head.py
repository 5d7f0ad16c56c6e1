"""The head in torch scores what the start scores, of every kind and behind every map, and gradients flow through it."""

from typing import Any

import numpy as np
import pytest

import fedmoments as fm
from fedmoments.core.maps import (
    Clip,
    FeatureMap,
    Identity,
    Normalize,
    Offset,
    RandomFourier,
    RandomProjection,
)
from fedmoments.errors import InputError
from fedmoments.tuning.start import BIAS, WEIGHTS, Start, start_from

torch = pytest.importorskip("torch")

from fedmoments.tuning.network.modules.head import TorchHead, differentiable  # noqa: E402

D, C = 6, 4
HEADS = ["fedncm", "fedcof", "fed3r", "gh-lda", "gh-nb", "gh-qda", "gh-dlr-qda", "gh-qda-fisher"]
MAPS: list[FeatureMap] = [
    Identity(),
    Normalize(),
    Clip(2.0),
    Offset(np.arange(D)),
    RandomProjection(D, 5, seed=1),
    RandomFourier(D, 9, bandwidth=2.0, seed=1),
    Normalize() | RandomProjection(D, 3, seed=2),
]


def data(seed: int = 0, n: int = 80) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    y = np.arange(n) % (C - 1)  # the last class has no sample
    return (rng.normal(size=(n, D)) + 2 * np.eye(D)[y]).astype(np.float32), y


def made(head: str, feature_map: FeatureMap | None = None, temperature: float = 0.7) -> Start:
    X, y = data()
    parties = {"a": (X[:40], y[:40]), "b": (X[40:], y[40:])}
    return start_from(fm.fit(head, parties, n_classes=C, feature_map=feature_map), head, temperature)


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("shift", [0.0, 1.0], ids=["start", "moved"])
def test_every_kind_of_head_scores_as_its_start(head: str, shift: float) -> None:
    start = made(head)
    rng = np.random.default_rng(3)
    arrays = {n: (a + shift * rng.normal(size=a.shape)).astype(np.float32) for n, a in start.arrays().items()}
    module = TorchHead(start, D)
    with torch.no_grad():
        module.weights.copy_(torch.from_numpy(arrays[WEIGHTS]))
        module.bias.copy_(torch.from_numpy(arrays[BIAS]))
    X, _ = data(1)
    expected = start.scores(arrays, X)[:, start.present]
    assert expected.shape == (80, C - 1)
    if not start.linear:  # a frozen base is less the highest of its row, which softmax does not see
        expected -= start.classifier.scores(X)[:, start.present].max(axis=1, keepdims=True)
    found = module(torch.from_numpy(X)).detach()
    np.testing.assert_allclose(found, expected / start.temperature, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("head", ["gh-nb", "gh-qda", "gh-dlr-qda"])
def test_scores_far_from_all_means_keep_their_digits(head: str) -> None:
    start = made(head)
    X = data(1)[0] + np.float32(3000)
    scores = start.classifier.scores(X.astype(np.float64))[:, start.present]
    assert np.abs(scores).max() > 1e6
    near = np.flatnonzero(start.present)
    assert len(near) == C - 1
    found = TorchHead(start, D)(torch.from_numpy(X)).detach().double().numpy()
    expected = (scores - scores.max(axis=1, keepdims=True)) / start.temperature
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-3)


@pytest.mark.parametrize("feature_map", MAPS, ids=lambda each: each.kind)
def test_every_map_is_the_map_of_numpy(feature_map: FeatureMap) -> None:
    X, _ = data(1)
    X[0] = 0
    function = differentiable(feature_map)
    found = torch.from_numpy(X.astype(np.float64)) if function is None else function(torch.from_numpy(X).double())
    np.testing.assert_allclose(found, feature_map(X), rtol=1e-12, atol=1e-12)
    start = made("fedncm", feature_map)
    scores = TorchHead(start, D)(torch.from_numpy(X)).detach()
    np.testing.assert_allclose(scores, start.scores(start.arrays(), X)[:, :-1] / 0.7, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("feature_map", [None, MAPS[-1], MAPS[2]], ids=["none", "chain", "clip"])
def test_gradients_at_the_features_are_those_of_finite_differences(head: str, feature_map: FeatureMap | None) -> None:
    start = made(head, feature_map, temperature=1.0)
    X, y = data(2, n=5)

    def loss(features: Any) -> float:
        scores = start.classifier.scores(features.astype(np.float64))[:, :-1]
        top = scores.max(axis=1, keepdims=True)
        return float((np.log(np.exp(scores - top).sum(axis=1)) + top[:, 0] - scores[np.arange(5), y]).sum())

    x = torch.from_numpy(X).requires_grad_(True)
    torch.nn.functional.cross_entropy(TorchHead(start, D)(x), torch.from_numpy(y), reduction="sum").backward()
    assert x.grad is not None
    step, numeric = 1e-5, np.zeros((5, D))
    for place in np.ndindex(5, D):
        moved = [X.astype(np.float64) for _ in range(2)]
        moved[0][place] += step
        moved[1][place] -= step
        numeric[place] = (loss(moved[0]) - loss(moved[1])) / (2 * step)
    np.testing.assert_allclose(x.grad, numeric, rtol=2e-3, atol=2e-3)
    assert np.abs(numeric).max() > 1e-2


def test_a_row_of_zeros_has_finite_gradients_behind_normalisation() -> None:
    x = torch.zeros(1, D, requires_grad=True)
    TorchHead(made("fedncm", Normalize()), D)(x).sum().backward()
    assert x.grad is not None
    assert torch.isfinite(x.grad).all()


def test_an_unknown_map_is_refused_by_name() -> None:
    from fedmoments.core.maps import base

    class Strange(FeatureMap, kind="strange"):
        def _apply(self, X: Any) -> Any:
            return X

    try:
        with pytest.raises(InputError, match=r"behind the feature map 'strange': .* identity, normalize, clip"):
            differentiable(Strange())
    finally:
        base._KINDS.remove("strange")
