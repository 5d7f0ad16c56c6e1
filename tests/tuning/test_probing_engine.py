"""The engine on cached features: who takes part, shares, scores, and what it refuses."""

import re
from typing import Any

import numpy as np
import pytest
from tests.tuning.probing_workshop import CLASSES, DIM, PRESENT, SIZES, batch_gradient, clients, start, zeros

from fedmoments.errors import InputError, UnknownNameError
from fedmoments.settings.plan import TuningPlan
from fedmoments.tuning.draws import held_out
from fedmoments.tuning.engine import Engine
from fedmoments.tuning.probing import FeatureEngine
from fedmoments.tuning.start import BIAS, WEIGHTS


def test_it_is_an_engine() -> None:
    engine: Engine = FeatureEngine(TuningPlan(), start(), clients(), None)
    assert engine.state() == {}


def test_clients_without_samples_take_no_part() -> None:
    engine = FeatureEngine(TuningPlan(), start(), clients(), None)
    assert list(engine.clients) == [name for name, size in SIZES.items() if size]
    assert engine.samples == {name: size for name, size in SIZES.items() if size}
    with pytest.raises(UnknownNameError, match="unknown client with samples to train on 'empty'"):
        engine.train(1, start().arrays(), None, ["empty"])


def test_a_federation_without_any_samples_has_no_clients() -> None:
    parts = {"empty": (np.zeros((0, DIM)), np.zeros(0, int))}
    engine = FeatureEngine(TuningPlan(validation=0.5), start("quadratic"), parts, None)
    assert list(engine.clients) == []
    assert list(engine.train(1, start("quadratic").arrays(), None, [])) == []
    assert engine.validate(start("quadratic").arrays()).samples == 0


def test_one_sample_and_fewer_than_a_batch_make_one_step_an_epoch() -> None:
    plan = TuningPlan(batch_size=4, epochs=3)
    updates = FeatureEngine(plan, start(), clients(), None).train(1, start().arrays(), None, ["big", "lone", "a/b"])
    assert [(update.client, update.samples, update.steps) for update in updates] == [
        ("big", 13, 12),
        ("lone", 1, 3),
        ("a/b", 3, 3),
    ]


def test_a_learning_rate_of_0_changes_nothing() -> None:
    arrays = start().arrays()
    for update in FeatureEngine(TuningPlan(lr=0.0), start(), clients(), None).train(1, arrays, None, ["big", "odd"]):
        np.testing.assert_array_equal(update.arrays[WEIGHTS], arrays[WEIGHTS])
        np.testing.assert_array_equal(update.arrays[BIAS], arrays[BIAS])


def test_parameters_that_were_sent_stay_as_they_are() -> None:
    plan, arrays = TuningPlan(optimiser="scaffold", lr=0.5), start().arrays()
    control = zeros(arrays)
    FeatureEngine(plan, start(), clients(), None).train(1, arrays, control, ["big", "odd"])
    for key, array in start().arrays().items():
        np.testing.assert_array_equal(arrays[key], array)
        assert not control[key].any()


def test_batches_differ_from_round_to_round_and_client_to_client() -> None:
    part = clients()["big"]
    engine = FeatureEngine(TuningPlan(batch_size=4, lr=0.5), start(), {"a": part, "b": part}, None)
    first, second = (engine.train(number, start().arrays(), None, ["a", "b"]) for number in (1, 2))
    found = [update.arrays[WEIGHTS].tobytes() for update in (*first, *second)]
    assert len(set(found)) == 4


@pytest.mark.parametrize("kind", ["linear", "diagonal"])
def test_validation_shares_are_left_out_of_training_and_scored(kind: str) -> None:
    plan, head, parts = TuningPlan(validation=0.4), start(kind), clients()
    engine = FeatureEngine(plan, head, parts, None, dtype=np.float64)
    arrays = head.arrays(np.float64)
    samples, correct, loss = 0, 0, 0.0
    for name, (X, y) in parts.items():
        mine, held = held_out(len(X), 0.4, seed=0, client=name)
        assert engine.samples.get(name, 0) == len(mine)
        samples += len(held)
        correct += int(np.sum(head.scores(arrays, X[held]).argmax(axis=1) == y[held])) if len(held) else 0
        loss += batch_gradient(head, arrays, X[held], y[held], 0.0)[0] * len(held) if len(held) else 0.0
    score = engine.validate(arrays)
    assert (score.samples, score.correct) == (samples, correct)
    assert score.loss == pytest.approx(loss)
    assert engine.test(arrays) is None


def test_without_a_validation_share_there_is_nothing_to_validate() -> None:
    score = FeatureEngine(TuningPlan(), start(), clients(), None).validate(start().arrays())
    assert (score.samples, score.correct, score.loss) == (0, 0, 0.0)


def test_a_test_sample_of_a_class_without_training_samples_is_wrong_and_has_an_infinite_loss() -> None:
    X, y = clients()["big"]
    score = FeatureEngine(TuningPlan(), start(), clients(), (X, np.full_like(y, 3))).test(start().arrays())
    assert score is not None
    assert (score.samples, score.correct, score.loss) == (13, 0, np.inf)


# -------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (([[0.0] * DIM], [3]), "client 'x' holds samples of class 3, which the start 'linear' has never seen"),
        (([[0.0] * DIM], [CLASSES]), "labels of client 'x' must be whole numbers from 0 to 4"),
        (([[0.0] * DIM], [-1]), "labels of client 'x' must be whole numbers from 0 to 4"),
        (([[0.0] * DIM], [0.0]), "labels of client 'x' must be whole numbers from 0 to 4"),
        (([[0.0] * DIM], [0, 1]), "client 'x' needs features of the shape (samples, dimensions) and as many labels"),
        (([0.0], [0]), "client 'x' needs features of the shape (samples, dimensions) and as many labels"),
        (([["a"] * DIM], [0]), "features of client 'x' must be numbers"),
        (([[0.0] * 3], [0]), "scores features of 4 dimensions, but 3 arrived"),
        (([[0.0] * DIM, [0.0, np.nan, 0.0, 0.0]], [0, 1]), "sample 1 of client 'x' holds NaN or infinity"),
    ],
)
def test_unsound_samples_are_refused_with_the_clients_name(part: Any, words: str) -> None:
    with pytest.raises(InputError, match=re.escape(words)):
        FeatureEngine(TuningPlan(), start(), {**clients(), "x": part}, None)


def test_only_the_head_can_be_trained_on_cached_features() -> None:
    with pytest.raises(InputError, match="cached features serve stage 'lp'"):
        FeatureEngine(TuningPlan(stage="ft"), start(), clients(), None)


@pytest.mark.parametrize(
    ("optimiser", "control", "words"),
    [
        ("scaffold", False, "a round of 'scaffold' must come with the server's control variates, but none arrived"),
        ("fedavg", True, "a round of 'fedavg' must not come with the server's control variates, but some arrived"),
    ],
)
def test_control_variates_come_with_scaffold_alone(optimiser: str, *, control: bool, words: str) -> None:
    engine, arrays = FeatureEngine(TuningPlan(optimiser=optimiser), start(), clients(), None), start().arrays()
    with pytest.raises(InputError, match=words):
        engine.train(1, arrays, zeros(arrays) if control else None, ["big"])


def test_a_client_trains_once_in_a_round() -> None:
    with pytest.raises(InputError, match="every client trains once in a round, but 2 names arrived"):
        FeatureEngine(TuningPlan(), start(), clients(), None).train(1, start().arrays(), None, ["big", "big"])


@pytest.mark.parametrize("arrays", [{}, {WEIGHTS: np.zeros((DIM, 2)), BIAS: np.zeros(2)}])
def test_parameters_of_another_head_are_refused(arrays: Any) -> None:
    engine = FeatureEngine(TuningPlan(), start(), clients(), None)
    with pytest.raises(InputError, match=r"parameters of a head on 4 inputs with 5 classes are head/weights \(4, 5\)"):
        engine.train(1, arrays, None, ["big"])


def test_a_learning_rate_that_is_too_high_is_told() -> None:
    plan = TuningPlan(lr=1e38, batch_size=1)
    with pytest.raises(InputError, match="in round 1 the parameters of client 'big' grew beyond all numbers"):
        FeatureEngine(plan, start(temperature=0.01), clients(), None).train(1, start().arrays(), None, ["big"])


@pytest.mark.parametrize("name", ["control/nobody/head/bias", "elsewhere/big/head/bias", "control/big/encoder/w"])
def test_a_state_of_another_run_is_refused(name: str) -> None:
    engine = FeatureEngine(TuningPlan(optimiser="scaffold"), start(), clients(), None)
    with pytest.raises(InputError, match=f"'{name}' is not a state of this engine"):
        engine.restore({name: np.zeros(CLASSES)})
    with pytest.raises(InputError, match="control variates of client 'big' of a head on 4 inputs"):
        engine.restore({"control/big/head/bias": np.zeros(PRESENT.sum())})
