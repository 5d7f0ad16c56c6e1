"""The local rule on torch: laws of the optimisers, referees in plain autograd, agreement with the other engine."""

from typing import Any

import numpy as np
import pytest

import fedmoments as fm
from fedmoments.errors import InputError, UnknownNameError
from fedmoments.samples.encoders import load_encoder
from fedmoments.settings.plan import TuningPlan
from fedmoments.tuning.draws import batches, held_out
from fedmoments.tuning.engine import Arrays, DivergedError, Update
from fedmoments.tuning.network import NetworkEngine
from fedmoments.tuning.probing import FeatureEngine
from fedmoments.tuning.start import BIAS, WEIGHTS, Start, random_start, start_from

torch = pytest.importorskip("torch")

SIZE = 32
CLASSES = 3


@pytest.fixture(scope="module")
def encoder() -> Any:
    return load_encoder("squeezenet-1.1", size=SIZE, threads=1)


def images(n: int, seed: int = 0) -> tuple[Any, Any]:
    """Return images whose brightness in one channel tells the class."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % CLASSES
    pixels = rng.integers(0, 120, (n, 3, SIZE, SIZE))
    pixels[np.arange(n), labels] += 100
    return pixels.astype(np.uint8), labels


@pytest.fixture(scope="module")
def parts() -> dict[str, Any]:
    X, y = images(20)
    return {"a": (X[:7], y[:7]), "b": (X[7:12], y[7:12]), "c": (X[12:], y[12:])}


@pytest.fixture(scope="module")
def start(encoder: Any, parts: dict[str, Any]) -> Start:
    features = {client: (encoder.encode(X), y) for client, (X, y) in parts.items()}
    # Hot enough for some doubt, without which there would be hardly a gradient.
    return start_from(fm.fit("fedncm", features, n_classes=CLASSES), "fedncm", temperature=30.0)


def averaged(updates: Any) -> Arrays:
    total = sum(update.samples for update in updates)
    names = updates[0].arrays
    return {name: sum(u.samples / total * u.arrays[name].astype(np.float64) for u in updates) for name in names}


def same(left: Arrays, right: Arrays) -> bool:
    return left.keys() == right.keys() and all(np.array_equal(left[name], right[name]) for name in left)


def referee(encoder: Any, start: Start, steps: Any, *, lr: float, momentum: float = 0.0, decay: float = 0.0) -> Any:
    """Return a network and head after torch's own SGD on batches of (images, labels), and the losses."""
    import copy

    model = copy.deepcopy(encoder.model).requires_grad_(True)
    weights = torch.tensor(start.arrays()[WEIGHTS], requires_grad=True)
    bias = torch.tensor(start.arrays()[BIAS], requires_grad=True)
    used = [p for name, p in model.named_parameters() if "conv10" not in name]
    sgd = torch.optim.SGD([*used, weights, bias], lr=lr, momentum=momentum, weight_decay=decay)
    losses = []
    offset = getattr(start.classifier, "offset", None)
    shift = torch.zeros(encoder.dim) if offset is None else torch.tensor(offset, dtype=torch.float32)
    for X, y in steps:
        sgd.zero_grad()
        scores = (model(torch.from_numpy(X)) - shift) @ weights + bias
        loss = torch.nn.functional.cross_entropy(scores / start.temperature, torch.from_numpy(y))
        loss.backward()
        sgd.step()
        losses.append(float(loss.detach()))
    found = {f"encoder/{n}": p.detach().numpy() for n, p in model.body.named_parameters() if "conv10" not in n}
    return {**found, WEIGHTS: weights.detach().numpy(), BIAS: bias.detach().numpy()}, losses


def close(left: Arrays, right: Arrays, before: Arrays, tolerance: float = 1e-3) -> None:
    """Assert that two sets of parameters changed alike: to a share of each array's change and a few last bits."""
    assert left.keys() == right.keys()
    changed = 0
    for name in left:
        change = np.abs(right[name] - before[name]).max()
        bits = 4 * np.finfo(np.float32).eps * np.abs(before[name]).max()
        assert np.abs(left[name] - right[name]).max() <= tolerance * change + bits, name
        changed += int(change > 10 * bits)
    assert changed > 0.8 * len(left)


def test_fedavg_with_one_full_batch_step_is_centralised_gradient_descent(
    encoder: Any, parts: dict[str, Any], start: Start
) -> None:
    plan = TuningPlan(stage="ft", lr=1e-2, batch_size=0)
    engine = NetworkEngine(plan, start, encoder, parts)
    before = engine.initial()
    merged = averaged(engine.train(1, before, None, engine.clients))
    whole = [(np.concatenate([X for X, _ in parts.values()]), np.concatenate([y for _, y in parts.values()]))]
    expected, _ = referee(encoder, start, whole, lr=1e-2)
    close(merged, expected, before)


def test_a_clients_round_is_torchs_own_sgd_over_its_batches(encoder: Any, parts: dict[str, Any], start: Start) -> None:
    plan = TuningPlan(stage="ft", lr=1e-2, momentum=0.9, weight_decay=0.1, batch_size=3, epochs=2, seed=5)
    engine = NetworkEngine(plan, start, encoder, parts)
    (update,) = engine.train(4, engine.initial(), None, ["c"])
    X, y = parts["c"]
    rows = batches(8, 3, seed=5, round_number=4, client="c", epochs=2)
    expected, losses = referee(encoder, start, [(X[r], y[r]) for r in rows], lr=1e-2, momentum=0.9, decay=0.1)
    close(update.arrays, expected, engine.initial())
    assert (update.steps, update.samples) == (6, 8)
    assert update.loss == pytest.approx(np.mean(losses), rel=1e-4)


def test_feat_leaves_the_head_bit_identical_and_does_not_send_it(
    encoder: Any, parts: dict[str, Any], start: Start
) -> None:
    full = NetworkEngine(TuningPlan(stage="ft"), start, encoder, parts).initial()
    engine = NetworkEngine(TuningPlan(stage="feat", lr=1e-3), start, encoder, parts, parts["a"])
    before = engine.initial()
    assert before.keys() == full.keys() - {WEIGHTS, BIAS}
    (update,) = engine.train(1, before, None, ["a"])
    assert update.arrays.keys() == before.keys()
    assert not same(update.arrays, before)
    head = engine._model.head
    assert np.array_equal(head.weights.detach().numpy(), start.arrays()[WEIGHTS])
    assert np.array_equal(head.bias.detach().numpy(), start.arrays()[BIAS])
    assert engine.test(update.arrays).loss < engine.test(before).loss  # type: ignore[union-attr]


def test_fedprox_without_mu_is_fedavg_bit_for_bit_and_with_mu_stays_closer(
    encoder: Any, parts: dict[str, Any], start: Start
) -> None:
    def run(**given: Any) -> Arrays:
        plan = TuningPlan(stage="ft", lr=1e-3, batch_size=2, **given)
        engine = NetworkEngine(plan, start, encoder, parts)
        return dict(engine.train(1, engine.initial(), None, ["a"])[0].arrays)

    before = NetworkEngine(TuningPlan(stage="ft"), start, encoder, parts).initial()
    plain = run(optimiser="fedavg")
    assert same(run(optimiser="fedprox", mu=0.0), plain)
    held = run(optimiser="fedprox", mu=100.0)

    def distance(arrays: Arrays) -> float:
        return float(sum(np.square(arrays[name] - before[name]).sum() for name in before))

    assert distance(held) < distance(plain)


def test_the_proximal_term_is_the_gradient_of_half_mu_times_the_squared_distance(
    encoder: Any, parts: dict[str, Any], start: Start
) -> None:
    plan = TuningPlan(stage="lp", optimiser="fedprox", mu=2.0, lr=0.1, batch_size=4)
    engine = NetworkEngine(plan, start, encoder, parts)
    (update,) = engine.train(1, engine.initial(), None, ["a"])
    X, y = parts["a"]
    z = torch.from_numpy(start.inputs(encoder.encode(X)))
    w0, b0 = (torch.tensor(start.arrays()[name]) for name in (WEIGHTS, BIAS))
    w, b = w0.clone().requires_grad_(True), b0.clone().requires_grad_(True)
    for rows in batches(7, 4, seed=0, round_number=1, client="a"):
        scores = (z[rows] @ w + b) / start.temperature
        loss = torch.nn.functional.cross_entropy(scores, torch.from_numpy(y[rows]))
        loss = loss + 1.0 * (((w - w0) ** 2).sum() + ((b - b0) ** 2).sum())
        g, h = torch.autograd.grad(loss, (w, b))
        with torch.no_grad():
            w -= 0.1 * g
            b -= 0.1 * h
    np.testing.assert_allclose(update.arrays[WEIGHTS], w.detach(), atol=1e-4)
    np.testing.assert_allclose(update.arrays[BIAS], b.detach(), atol=1e-4)


def scaffold_round(
    engine: NetworkEngine, number: int, arrays: Arrays, control: Arrays
) -> tuple[Arrays, Arrays, list[Update]]:
    """Return parameters and control variates after a round of all clients, by the paper's rule."""
    updates = list(engine.train(number, arrays, control, engine.clients))
    merged = {name: value.astype(np.float32) for name, value in averaged(updates).items()}
    moved = {n: c + sum(u.control[n] for u in updates if u.control) / len(updates) for n, c in control.items()}
    return merged, moved, updates


def test_scaffold_with_identical_clients_is_fedavg(encoder: Any, parts: dict[str, Any], start: Start) -> None:
    same_parts = dict.fromkeys(("x", "y"), parts["a"])
    plain = NetworkEngine(TuningPlan(stage="ft", lr=1e-2, batch_size=0), start, encoder, same_parts)
    controlled = NetworkEngine(
        TuningPlan(stage="ft", lr=1e-2, batch_size=0, optimiser="scaffold"), start, encoder, same_parts
    )
    first = arrays = other = plain.initial()
    control = {name: np.zeros_like(value) for name, value in arrays.items()}
    for number in (1, 2, 3):
        before = arrays
        arrays = {n: v.astype(np.float32) for n, v in averaged(plain.train(number, arrays, None, ["x", "y"])).items()}
        other, control, _ = scaffold_round(controlled, number, other, control)
        assert not same(arrays, before)
    close(other, arrays, first)


def test_scaffolds_control_variates_are_the_mean_raw_gradients_of_the_round(
    encoder: Any, parts: dict[str, Any], start: Start
) -> None:
    plan = TuningPlan(stage="ft", lr=1e-3, batch_size=2, optimiser="scaffold")
    engine = NetworkEngine(plan, start, encoder, parts)
    arrays = engine.initial()
    control = {name: np.zeros_like(value) for name, value in arrays.items()}
    merged, moved, updates = scaffold_round(engine, 1, arrays, control)
    for update in updates:  # option II of the paper, from control variates 0 and without momentum
        for name in arrays:
            expected = (arrays[name] - update.arrays[name]) / (update.steps * plan.step)
            scale = np.abs(expected).max()
            assert np.abs(update.control[name] - expected).max() <= 2e-3 * scale + 1e-3, name  # type: ignore[index]
    _, _, second = scaffold_round(engine, 2, merged, moved)
    own = engine.state()
    for update in second:  # what is sent is the change
        before = next(u for u in updates if u.client == update.client).control
        for name in arrays:
            kept = own[f"control/{update.client}/{name}"]
            np.testing.assert_allclose(kept - before[name], update.control[name], atol=1e-6)  # type: ignore[index]


def test_scaffold_steps_along_the_servers_control_variate_where_the_clients_own_has_taken_its_gradient_away(
    encoder: Any, parts: dict[str, Any], start: Start
) -> None:
    plan = TuningPlan(stage="ft", lr=1e-2, batch_size=0, optimiser="scaffold")
    engine = NetworkEngine(plan, start, encoder, parts)
    first = engine.initial()
    engine.train(1, first, {name: np.zeros_like(value) for name, value in first.items()}, ["a"])
    rng = np.random.default_rng(0)
    control = {name: rng.normal(size=value.shape).astype(np.float32) for name, value in first.items()}
    (update,) = engine.train(2, first, control, ["a"])  # g − c_k = 0, but for the order of the samples in its sum
    close(dict(update.arrays), {name: first[name] - plan.step * control[name] for name in first}, first)


def test_mimes_steps_subtract_the_gradient_of_their_batch_at_what_was_sent(
    encoder: Any, parts: dict[str, Any], start: Start
) -> None:
    plan = TuningPlan(stage="ft", lr=0.01, batch_size=0, epochs=3, optimiser="mime", server_momentum=0.4)
    engine = NetworkEngine(plan, start, encoder, parts)
    first, client = engine.initial(), "a"
    (told,) = engine.train(1, first, None, [client])
    assert (told.arrays, told.steps) == ({}, 0)
    assert told.control is not None
    moved = {name: 0.5 * array for name, array in told.control.items()}
    (update,) = engine.train(1, first, moved, [client])
    assert (update.control, update.steps) == (None, 3)
    own = first
    for _ in range(3):  # one batch: told anew at every step, it is the gradient of the batch there
        (here,) = engine.train(1, own, None, [client])
        assert here.control is not None
        steps = {n: 0.6 * (here.control[n] - told.control[n]) + moved[n] for n in moved}
        own = {n: (array - 0.01 * steps[n]).astype(np.float32) for n, array in own.items()}
    close(update.arrays, own, first)


def test_scaffold_goes_on_from_its_state_bit_for_bit(encoder: Any, parts: dict[str, Any], start: Start) -> None:
    plan = TuningPlan(stage="ft", lr=1e-3, batch_size=2, optimiser="scaffold", momentum=0.5)

    def made() -> NetworkEngine:
        return NetworkEngine(plan, start, encoder, parts)

    engine = made()
    control = {name: np.zeros_like(value) for name, value in engine.initial().items()}
    arrays, control, _ = scaffold_round(engine, 1, engine.initial(), control)
    state = {name: array.copy() for name, array in engine.state().items()}
    *straight, _ = scaffold_round(engine, 2, arrays, control)
    resumed = made()
    resumed.restore(state)
    *again, _ = scaffold_round(resumed, 2, arrays, control)
    assert same(straight[0], again[0])
    assert same(straight[1], again[1])
    fresh = made()
    *other, _ = scaffold_round(fresh, 2, arrays, control)
    assert not same(straight[0], other[0])
    with pytest.raises(InputError, match="other clients or another stage"):
        fresh.restore({"control/nobody/head/bias": np.zeros(CLASSES, np.float32)})
    with pytest.raises(InputError, match="not those of this encoder"):
        fresh.restore({"control/a/head/bias": np.zeros(CLASSES, np.float32)})


def test_training_is_bit_identical_whoever_trained_before_and_threads_are_fixed_and_put_back(
    encoder: Any, parts: dict[str, Any], start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = TuningPlan(stage="ft", lr=1e-3, batch_size=2)
    first, second = (NetworkEngine(plan, start, encoder, parts) for _ in range(2))
    arrays = first.initial()
    threads, loss = torch.get_num_threads(), first._model.loss
    seen: list[int] = []

    def watched(*given: Any) -> Any:
        seen.append(torch.get_num_threads())
        return loss(*given)

    monkeypatch.setattr(first._model, "loss", watched)
    torch.set_num_threads(2)
    try:
        alone = first.train(3, arrays, None, ["c"])[0]
        after = second.train(3, arrays, None, ["a", "b", "c"])[2]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    assert seen == [1] * 4
    assert same(dict(alone.arrays), dict(after.arrays))
    assert alone.loss == after.loss
    assert same(arrays, first.initial())


@pytest.mark.parametrize("stage", ["ft", "feat", "lp"])
@pytest.mark.parametrize("head", ["fedncm", "fedcof", "gh-nb", "gh-qda", "fed3r"])
def test_the_first_point_is_the_heads_own_accuracy(encoder: Any, parts: dict[str, Any], stage: str, head: str) -> None:
    features = {client: (encoder.encode(X), y) for client, (X, y) in parts.items()}
    classifier = fm.fit(head, features, n_classes=CLASSES)
    X, y = images(40, seed=1)
    y = np.where(np.arange(40) % 4 == 0, (y + 1) % CLASSES, y)  # some are wrong by construction
    engine = NetworkEngine(TuningPlan(stage=stage), start_from(classifier, head), encoder, parts, (X, y))
    score = engine.test(engine.initial())
    assert score is not None
    assert score.samples == 40
    assert score.correct == int((classifier.predict(encoder.encode(X)) == y).sum())
    assert 0 < score.correct < 40


def test_linear_probing_through_the_network_is_linear_probing_on_features(
    encoder: Any, parts: dict[str, Any], start: Start
) -> None:
    plan = TuningPlan(
        stage="lp", lr=0.01, momentum=0.9, weight_decay=0.01, batch_size=2, epochs=2, validation=0.3, seed=3
    )
    features = {client: (encoder.encode(X), y) for client, (X, y) in parts.items()}
    X, y = images(10, seed=2)
    network = NetworkEngine(plan, start, encoder, parts, (X, y))
    probing = FeatureEngine(plan, start, features, (encoder.encode(X), y))
    arrays = start.arrays()
    assert network.initial().keys() == arrays.keys()
    assert list(network.clients) == list(probing.clients)
    assert (
        network.samples
        == probing.samples
        == {c: len(held_out(len(p[1]), 0.3, seed=3, client=c)[0]) for c, p in parts.items()}
    )
    ours, theirs = (engine.train(1, arrays, None, ["c", "a"]) for engine in (network, probing))
    for mine, other in zip(ours, theirs, strict=True):
        assert (mine.client, mine.samples, mine.steps) == (other.client, other.samples, other.steps)
        assert mine.loss == pytest.approx(other.loss, rel=1e-4)
        assert not np.allclose(other.arrays[WEIGHTS], arrays[WEIGHTS])
        for name in arrays:
            np.testing.assert_allclose(mine.arrays[name], other.arrays[name], rtol=1e-4, atol=1e-4)
    moved = dict(ours[0].arrays)
    for score, other_score in (
        (network.test(moved), probing.test(moved)),
        (network.validate(moved), probing.validate(moved)),
    ):
        assert score is not None
        assert other_score is not None
        assert (score.samples, score.correct) == (other_score.samples, other_score.correct)
        assert score.loss == pytest.approx(other_score.loss, rel=1e-3)


def test_classes_without_a_sample_take_no_part_and_do_not_change(encoder: Any, parts: dict[str, Any]) -> None:
    start = random_start(encoder.dim, np.array([True, False, True, True]), seed=0)
    moved = {client: (X, np.array([0, 2, 3])[y]) for client, (X, y) in parts.items()}
    X, y = images(4)
    engine = NetworkEngine(TuningPlan(stage="ft", lr=1e-3, weight_decay=0.1), start, encoder, moved, (X, y))
    before = engine.initial()
    (update,) = engine.train(1, before, None, ["a"])
    assert np.array_equal(update.arrays[WEIGHTS][:, 1], before[WEIGHTS][:, 1])
    assert not np.array_equal(update.arrays[WEIGHTS][:, 0], before[WEIGHTS][:, 0])
    score = engine.test(before)
    assert score is not None
    assert score.loss == np.inf
    with pytest.raises(InputError, match="holds samples of class 1, which the start 'random' has never seen"):
        NetworkEngine(TuningPlan(stage="ft"), start, encoder, {"x": (X, y)})


def test_classes_that_are_only_validated_on_are_wrong_with_an_infinite_loss_as_on_features(
    encoder: Any, parts: dict[str, Any]
) -> None:
    X, y = parts["a"]
    train, validation = held_out(len(y), 0.3, seed=0, client="a")
    labels = np.where(np.isin(np.arange(len(y)), validation[:1]), 1, np.array([0, 2])[y % 2])
    start = random_start(encoder.dim, np.array([True, False, True]), seed=0)
    mine = {"a": (X, labels), "b": (parts["b"][0], np.array([0, 2])[parts["b"][1] % 2])}
    engine = NetworkEngine(TuningPlan(stage="ft", validation=0.3), start, encoder, mine)
    features = {client: (encoder.encode(images), each) for client, (images, each) in mine.items()}
    score = engine.validate(engine.initial())
    expected = FeatureEngine(TuningPlan(validation=0.3), start, features, None).validate(start.arrays())
    assert (score.samples, score.correct, score.loss) == (expected.samples, expected.correct, np.inf)
    assert expected.loss == np.inf
    assert engine.train(1, engine.initial(), None, ["a"])[0].samples == len(train)
    with pytest.raises(InputError, match="client 'a' holds samples of class 1, which the start 'random' has never"):
        NetworkEngine(TuningPlan(stage="ft"), start, encoder, mine)


def test_parameters_beyond_all_numbers_are_said_to_have_diverged(
    encoder: Any, parts: dict[str, Any], start: Start
) -> None:
    engine = NetworkEngine(TuningPlan(stage="ft", lr=1e30, batch_size=2), start, encoder, parts)
    with pytest.raises(DivergedError, match=r"in round 3 the parameters of client 'b' .*rate of 1e\+30 is too high"):
        engine.train(3, engine.initial(), None, ["b"])


def test_what_does_not_fit_is_refused(encoder: Any, parts: dict[str, Any], start: Start) -> None:
    engine = NetworkEngine(TuningPlan(stage="ft"), start, encoder, {**parts, "none": (parts["a"][0][:0], [])})
    assert list(engine.clients) == ["a", "b", "c"]
    assert engine.memory == 20 * 3 * SIZE * SIZE
    arrays = engine.initial()
    with pytest.raises(UnknownNameError, match="none"):
        engine.train(1, arrays, None, ["none"])
    with pytest.raises(InputError, match="missing head/bias, head/weights; unknown none"):
        engine.train(1, {n: a for n, a in arrays.items() if not n.startswith("head")}, None, ["a"])
    with pytest.raises(InputError, match=r"'head/bias' must have the shape \(3,\)"):
        engine.train(1, {**arrays, BIAS: np.zeros(4, np.float32)}, None, ["a"])
    with pytest.raises(InputError, match="must not come with the server's control variates, but some arrived"):
        engine.train(1, arrays, arrays, ["a"])
    with pytest.raises(InputError, match="3 samples of client 'x' need as many labels"):
        NetworkEngine(TuningPlan(stage="ft"), start, encoder, {"x": (parts["a"][0][:3], [0])})
    with pytest.raises(InputError, match="whole numbers from 0 to 2"):
        NetworkEngine(TuningPlan(stage="ft"), start, encoder, {"x": (parts["a"][0][:1], [3])})
    with pytest.raises(InputError, match="scores features of 4 dimensions, but the encoder's are of 512"):
        NetworkEngine(TuningPlan(stage="ft"), random_start(4, start.present, seed=0), encoder, parts)
    with pytest.raises(InputError, match="'identity' cannot be tuned"):
        NetworkEngine(
            TuningPlan(stage="ft"), random_start(3, start.present, seed=0), load_encoder("identity", dim=3), {}
        )
