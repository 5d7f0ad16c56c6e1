"""Maps that let single samples through: a sum over a class is then that sample, though nothing is wider."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")

from fedmoments import StatisticsSpec
from fedmoments.core.maps import (
    Chain,
    Clip,
    Directions,
    FeatureMap,
    Normalize,
    Offset,
    Power,
    RandomFourier,
    RandomProjection,
    ReluBeside,
    ReluResidual,
)
from fedmoments.core.statistics import FixedPoint
from fedmoments.errors import PolicyError
from fedmoments.federation.flower.held import Held
from fedmoments.federation.flower.measured import measure_held
from fedmoments.federation.policy import ClientPolicy
from fedmoments.federation.terms import Terms
from fedmoments.privacy.map_leaks import MapOutline
from fedmoments.samples.fingerprint import Fingerprint

D = 16
DRAWN, BENT = RandomProjection(D, D, seed=0), RandomFourier(D, D, bandwidth=1.0, seed=0)
CHOSEN = Directions.of(np.eye(D)[:, :2])


def trap(loud: float = 1e5) -> tuple[FeatureMap, Any]:
    """Return a map that lets through what lies beyond a threshold in one direction, and who does."""
    first, second = ReluBeside(D, 8, seed=1), ReluBeside(D, 64, seed=2)
    aim, axis = first.matrix[:, 0], np.eye(D)[0]
    offset = aim * 0.52 * np.linalg.norm(aim) / (aim @ aim)  # a guess of how far the farthest of 20 unit vectors lies
    far, high = np.zeros((8, D)), np.zeros((64, D))
    far[0] = 1e3 * axis
    ready = second.matrix[0] > 0.15 * np.abs(second.matrix).max()
    high[ready] = loud * np.linalg.pinv(second.matrix[:, ready])
    layers = Offset(offset), ReluResidual.of(first, far), Offset(30.0 * axis), ReluResidual.of(second, high)
    return Chain(layers), lambda X: (X - offset) @ aim > 0


def test_a_sum_behind_two_layers_is_one_sample_and_the_policy_refuses_them() -> None:
    loud = 1e5
    feature_map, comes_through = trap(loud)
    fingerprint = Fingerprint("none", "none", feature_map, ("cat", "dog"))
    spec, form = StatisticsSpec.of("client_means"), FixedPoint(1e9, 10**4)
    terms = Terms("pets", {"name": "identity", "options": {}}, fingerprint, D, spec, form)
    X, y = np.random.default_rng(0).normal(size=(40, D)), np.repeat([0, 1], 20)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    (alone,) = np.flatnonzero(comes_through(X) & (y == 1))
    total = measure_held(Held(X, y), terms, ClientPolicy()).to_float().sums[1]
    offset = feature_map.maps[0].array  # type: ignore[attr-defined]
    np.testing.assert_allclose((total / loud)[1:], (X[alone] - offset)[1:], atol=1e-3)  # what the rule is for
    for maps in ("linear", "narrow", "scaled"):
        with pytest.raises(PolicyError, match="maps: the server asks for offset, relu_residual"):
            ClientPolicy(maps=maps).require(terms)
    ClientPolicy(maps="any", max_numbers=2**40).require(terms)
    assert "can be chosen to let single samples through" in terms.map_outline.text
    assert terms.map_outline.determines(10**6, ("sums",), "gram")
    ClientPolicy().require(replace(terms, fingerprint=replace(fingerprint, feature_map=Normalize())))


@pytest.mark.parametrize(
    ("stages", "chosen"),
    [
        ((Power(), Normalize(), DRAWN, BENT, Normalize()), False),
        ((DRAWN, CHOSEN, Clip(1.0)), False),
        ((Power(), Normalize(), DRAWN, BENT, Clip(1.0), RandomProjection(D, 4, seed=1)), False),
        ((Normalize(), DRAWN, Normalize(), RandomProjection(D, 4, seed=1), Directions.of(np.eye(4)[:, :2])), False),
        ((Offset(np.zeros(D)), DRAWN), True),
        ((Offset(np.ones(D)), Normalize()), True),
        ((Power(0.25), Normalize()), True),
        ((CHOSEN, Directions.of(np.eye(2))), True),
        ((DRAWN, Power()), True),
        ((Power(), CHOSEN, Normalize()), False),
        ((BENT, RandomProjection(D, 4, seed=1)), False),
        ((RandomProjection(D, 400, seed=1), Power(1e-6), Directions.of(np.eye(400)[:, :2])), True),
        ((RandomFourier(D, 400, bandwidth=1.0, seed=0), Directions.of(np.eye(400)[:, :2])), True),
        ((BENT, CHOSEN), True),
        ((Directions.of(np.eye(D)[:, :1]), Offset([0.5]), Clip(1e-3)), True),
        ((BENT, RandomFourier(D, D, bandwidth=1.0, seed=1)), True),
        ((DRAWN, Power(), RandomProjection(D, D, seed=1), Power()), True),
        ((Offset(np.ones(D)), Power(1e-6), Offset(np.ones(D)), Power(1e-6)), True),
        ((ReluBeside(D, 3, seed=0), RandomProjection(D + 3, D, seed=1)), True),
    ],
)
def test_chains_that_no_server_create_makes_are_chosen(stages: tuple[FeatureMap, ...], chosen: bool) -> None:
    chain = Chain(stages)
    assert MapOutline.of(chain, chain.output_dim(D)).chosen is chosen
