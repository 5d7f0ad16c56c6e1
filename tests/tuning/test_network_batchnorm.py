"""Batch normalisation while an encoder is tuned: frozen or averaged, and what travels."""

from typing import Any

import numpy as np
import pytest

from fedmoments.samples.encoders import load_encoder
from fedmoments.settings.plan import TuningPlan
from fedmoments.tuning.draws import batches
from fedmoments.tuning.engine import AVERAGED
from fedmoments.tuning.network import NetworkEngine, save_encoder
from fedmoments.tuning.start import Start, random_start

torch = pytest.importorskip("torch")

SIZE = 32


@pytest.fixture(scope="module")
def encoder() -> Any:
    return load_encoder("efficientnet-lite0", size=SIZE, threads=1)


@pytest.fixture(scope="module")
def parts() -> dict[str, Any]:
    X = np.random.default_rng(0).integers(0, 256, (9, 3, SIZE, SIZE)).astype(np.uint8)
    y = np.arange(9) % 2
    return {"a": (X[:4], y[:4]), "b": (X[4:8], y[4:8]), "one": (X[8:], y[8:])}


@pytest.fixture(scope="module")
def start(encoder: Any) -> Start:
    return random_start(encoder.dim, np.array([True, True]), seed=0)


def plan(batchnorm: str, **given: Any) -> TuningPlan:
    return TuningPlan(**{"stage": "feat", "batchnorm": batchnorm, "lr": 1e-3, "batch_size": 2, **given})


def running(state: Any) -> dict[str, Any]:
    return {name: value.numpy().copy() for name, value in state.items() if "running" in name}


def test_frozen_running_values_are_neither_sent_nor_touched_but_scales_are_trained(
    encoder: Any, parts: dict[str, Any], start: Start
) -> None:
    engine = NetworkEngine(plan("frozen"), start, encoder, parts)
    before = engine.initial()
    assert not any(name.startswith(AVERAGED) or "running" in name for name in before)
    kept = running(engine._model.network.body.state_dict())
    assert len(kept) == 2 * 49
    (update,) = engine.train(1, before, None, ["a"])
    after = running(engine._model.network.body.state_dict())
    assert all(np.array_equal(kept[name], after[name]) for name in kept)
    assert not np.array_equal(update.arrays["encoder/net._bn0.weight"], before["encoder/net._bn0.weight"])


def test_layers_that_give_imagenet_scores_are_neither_trained_nor_sent(encoder: Any, start: Start) -> None:
    names = NetworkEngine(plan("averaged"), start, encoder, {}).initial()
    assert not any("_fc" in name or "num_batches" in name for name in names)
    body = encoder.model.body.state_dict()
    sent = {name.removeprefix(AVERAGED).removeprefix("encoder/") for name in names}
    assert set(body) - sent == {n for n in body if "num_batches" in n} | {"net._fc.weight", "net._fc.bias"}


def test_averaged_running_values_are_those_that_torch_learns_from_the_batches(
    encoder: Any, parts: dict[str, Any], start: Start
) -> None:
    engine = NetworkEngine(plan("averaged", lr=0.0), start, encoder, parts)
    before = engine.initial()
    updates = engine.train(1, before, None, ["a", "b"])
    assert all(np.array_equal(u.arrays[n], before[n]) for u in updates for n in before if not n.startswith(AVERAGED))
    merged = {n: np.mean([u.arrays[n] for u in updates], axis=0) for n in before if n.startswith(AVERAGED)}
    expected: list[dict[str, Any]] = []
    for client in ("a", "b"):  # the same weights, for the learning rate is 0
        network = load_encoder("efficientnet-lite0", size=SIZE, threads=1).model  # type: ignore[attr-defined]
        for module in network.modules():
            module.training = isinstance(module, torch.nn.BatchNorm2d)
        before_threads = torch.get_num_threads()
        torch.set_num_threads(1)  # as the engine has it
        with torch.no_grad():
            for rows in batches(4, 2, seed=0, round_number=1, client=client):
                network(torch.from_numpy(parts[client][0][rows]))
        torch.set_num_threads(before_threads)
        expected.append(running(network.body.state_dict()))
    assert {AVERAGED + "encoder/" + name for name in expected[0]} == merged.keys()
    for name in expected[0]:
        found, first = merged[f"{AVERAGED}encoder/{name}"], before[f"{AVERAGED}encoder/{name}"]
        hand = (expected[0][name] + expected[1][name]) / 2
        np.testing.assert_allclose(found, hand, rtol=1e-4, atol=1e-5)
        assert not np.array_equal(found, first)


def test_a_batch_of_one_is_normalised_by_running_values_and_leaves_them(
    encoder: Any, parts: dict[str, Any], start: Start
) -> None:
    averaged = NetworkEngine(plan("averaged"), start, encoder, parts)
    frozen = NetworkEngine(plan("frozen"), start, encoder, parts)
    before = averaged.initial()
    (update,) = averaged.train(1, before, None, ["one"])
    (other,) = frozen.train(1, frozen.initial(), None, ["one"])
    assert update.loss == other.loss
    for name in before:
        assert np.array_equal(update.arrays[name], before[name] if name.startswith(AVERAGED) else other.arrays[name])


def test_an_encoder_without_batch_normalisation_is_the_same_either_way(parts: dict[str, Any]) -> None:
    encoder = load_encoder("squeezenet-1.1", size=SIZE, threads=1)
    start = random_start(encoder.dim, np.array([True, True]), seed=0, temperature=30.0)
    found = []
    for batchnorm in ("frozen", "averaged"):
        engine = NetworkEngine(plan(batchnorm), start, encoder, parts)
        found.append(engine.train(1, engine.initial(), None, ["a"])[0].arrays)
    assert found[0].keys() == found[1].keys()
    assert all(np.array_equal(found[0][name], found[1][name]) for name in found[0])


def test_tests_use_the_running_values_that_were_averaged_and_so_does_the_saved_encoder(
    encoder: Any, parts: dict[str, Any], start: Start, tmp_path: Any
) -> None:
    X, y = parts["a"]
    engine = NetworkEngine(plan("averaged"), start, encoder, parts, (X, y))
    (update,) = engine.train(1, engine.initial(), None, ["b"])
    arrays = dict(update.arrays)
    save_encoder(tmp_path / "tuned.safetensors", encoder, arrays)
    tuned = load_encoder(f"tuned:{tmp_path / 'tuned.safetensors'}", threads=1)
    features = engine.features(arrays, X)
    np.testing.assert_allclose(tuned.encode(X), features, atol=1e-5)
    shifted = {n: a + 1 if n.endswith("_bn1.running_mean") else a for n, a in arrays.items()}
    assert not np.allclose(engine.features(shifted, X), features, atol=1e-2)
    assert engine.test(arrays) == engine.test(arrays)
