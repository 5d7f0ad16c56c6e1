"""Sums of losses that a server asks for in a tuning: crafted parameters read no single sample from them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr")
pytest.importorskip("cryptography")

from tests.federation.flower.test_tuning_consent import asked, change, record
from tests.federation.flower.tuning_trials import Made, collected

from fedmoments.errors import InputError, OwnDataError, PolicyError
from fedmoments.federation.evaluation.coarse import MOST_LOSS, coarse_losses, rounded_part
from fedmoments.federation.flower.holdings import holdings_of
from fedmoments.federation.flower.tuning_memory import forget_all
from fedmoments.federation.flower.tuning_node import TuningNode
from fedmoments.federation.flower.tuning_task import Task
from fedmoments.settings.client import ClientSettings
from fedmoments.tuning.engine import pack_parameters


def _read(task: Task, head: bytes, settings: ClientSettings, least: int) -> float:
    """Return how far the attacker's guess of a held-out sample lies from it, as a share of its length.

    The attacker is as strong as can be: it knows a direction in which the sample lies alone at the edge. Heads that
    give everybody else no loss then have a loss that is linear in that sample's features.
    """
    holdings = holdings_of(settings, task.terms)
    tests = [holdings.test(client) for client in holdings.clients]
    X, y = np.concatenate([part.X for part in tests]), np.concatenate([part.y for part in tests])
    start = task.start(head)
    names = list(start.arrays())
    weights, bias = (start.arrays()[name] for name in names)
    centre = X[y == y[0]].mean(axis=0)
    target = int(np.argmax(np.linalg.norm(X - centre, axis=1) * (y == y[0])))
    away = X[target] - centre
    away /= np.linalg.norm(away)
    edge = np.sort(X[y == y[0]] @ away)[-2:].mean()
    node, guesses = TuningNode(settings), []
    scale, wrong = 200.0, (int(y[0]) + 1) % weights.shape[1]
    for axis in [None, *range(X.shape[1])]:
        direction = away if axis is None else away + 0.01 * np.eye(X.shape[1])[axis]
        W, b = np.zeros_like(weights), np.full_like(bias, -1e6)
        b[int(y[0])] = 0.0  # all others of the node's samples are far on the safe side
        W[:, wrong], b[wrong] = scale * direction * task.temperature, -scale * edge * task.temperature
        arrays = {names[0]: W.astype(weights.dtype), names[1]: b.astype(bias.dtype)}
        told = node.score(task, "test", [], pack_parameters(arrays), head)
        assert told.samples >= least
        guesses.append(told.loss)
    # every other class costs the same in all of them: differences are of the target alone
    estimate = (np.array(guesses[1:]) - guesses[0]) / (scale * 0.01)
    return float(np.linalg.norm(estimate - X[target]) / np.linalg.norm(X[target]))


def test_crafted_heads_read_no_sample_from_sums_of_losses(make: Made, tmp_path: Path) -> None:
    forget_all()
    plan = collected(make)
    task, head, _ = asked(plan)
    exact = replace(change(plan, tmp_path / "open", tuning="lp", min_count=1), partitions=(0,))
    coarse = replace(change(plan, tmp_path / "shut", tuning="lp", min_count=5), partitions=(0,))
    before, after = _read(task, head, exact, 1), _read(task, head, coarse, 5)
    assert before < 0.05  # the attack works where a party hides nothing
    assert after > 0.8


def test_the_same_request_gets_the_same_sum(make: Made, tmp_path: Path) -> None:
    """Chances that were drawn again could be averaged away."""
    plan = collected(make)
    task, head, parameters = asked(plan)
    settings = replace(change(plan, tmp_path / "box", tuning="lp", min_count=5), partitions=(0,))
    scores = {TuningNode(settings).score(task, "test", [], parameters, head) for _ in range(4)}
    [score] = scores
    assert score.loss % MOST_LOSS == 0
    assert score.correct == 0 or min(score.correct, score.samples - score.correct) in (0, *range(5, score.samples))
    sums = {tuple(TuningNode(settings).temperature(task, [0.1, 1.0, 10.0], ["client-0000"], head)) for _ in range(3)}
    assert all(value % MOST_LOSS == 0 for value in next(iter(sums)))
    assert len(sums) == 1


def test_sums_are_bounded_where_nothing_is_said_of_rounds(
    make: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedmoments.federation.policy.USUAL_ROUNDS", 1)
    forget_all()
    plan = collected(make)
    task, head, parameters = asked(plan)
    settings = replace(change(plan, tmp_path / "box", tuning="lp", min_count=1), partitions=(0,))
    node = TuningNode(settings)
    for place in range(5):
        node.temperature(task, [1.0 + place], ["client-0000"], head)
    with pytest.raises(PolicyError, match="more sums of losses than 1 rounds need"):
        node.score(task, "test", [], parameters, head)
    with pytest.raises(InputError, match="from 1 to 50 temperatures"):
        node.temperature(task, list(range(1, 52)), ["client-0000"], head)


def test_a_sum_that_fails_is_charged_and_tells_nothing(
    make: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether a sum fails may depend on one sample: a server does not ask that for nothing."""
    monkeypatch.setattr("fedmoments.federation.policy.USUAL_ROUNDS", 1)
    forget_all()
    plan = collected(make)
    task, head, parameters = asked(plan)
    node = TuningNode(replace(change(plan, tmp_path / "box", tuning="lp", min_count=5), partitions=(0,)))

    def fail(*_: object, **__: object) -> None:
        raise InputError("sample 7 is 3.25")

    monkeypatch.setattr(TuningNode, "_test", fail)
    monkeypatch.setattr("fedmoments.tuning.temperature.cross_entropy_sums", fail)
    for place in range(4):
        with pytest.raises(OwnDataError) as caught:
            node.temperature(task, [1.0 + place], ["client-0000"], head)
        assert "3.25" not in str(caught.value)
        assert "3.25" in record(tmp_path / "box", "declined")[-1]["sentence"]
    with pytest.raises(OwnDataError):
        node.score(task, "test", [], parameters, head)
    with pytest.raises(PolicyError, match="more sums of losses than 1 rounds need"):
        node.temperature(task, [9.0], ["client-0000"], head)


@pytest.mark.parametrize("error", [InputError("sample 7 is 3.25"), RuntimeError("index 3.25 out of range")])
def test_a_round_that_fails_is_charged_and_tells_nothing(
    make: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    forget_all()
    plan = collected(make)
    task, head, parameters = asked(plan)
    settings = change(plan, tmp_path / "box", tuning="lp", min_count=1, max_rounds=2)

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("fedmoments.tuning.probing.FeatureEngine.train", fail)
    for number in (1, 1, 2):  # the very same again is no further one
        with pytest.raises(OwnDataError) as caught:
            TuningNode(settings).tune(task, "client-0001", number, parameters, last=0, start=head)
        assert str(caught.value) == "what this client measured does not fit these terms; its own record says why"
    assert "3.25" in record(tmp_path / "box", "declined")[-1]["sentence"]
    monkeypatch.undo()
    with pytest.raises(PolicyError, match="max_rounds: it would be round 3, allowed are 2"):
        TuningNode(settings).tune(task, "client-0001", 3, parameters, last=0)


def test_a_round_that_diverges_or_is_too_large_is_charged(make: Made, tmp_path: Path) -> None:
    forget_all()
    plan = collected(make)
    task, head, _ = asked(plan)
    settings = change(plan, tmp_path / "box", tuning="lp", min_count=1, max_rounds=2, max_bytes=100)
    start = task.start(head).arrays()
    extreme = pack_parameters({name: np.full_like(array, np.finfo(array.dtype).max) for name, array in start.items()})
    with pytest.raises(OwnDataError) as caught:
        TuningNode(settings).tune(task, "client-0001", 1, extreme, last=0, start=head)
    assert str(caught.value) == "the parameters grew beyond all numbers in training: ask for a lower learning rate"
    assert "of client 'client-0001' grew" in record(tmp_path / "box", "declined")[-1]["sentence"]
    with pytest.raises(PolicyError, match="more bytes than the 100 allowed"):
        TuningNode(settings).tune(task, "client-0001", 1, pack_parameters(start), last=0)
    with pytest.raises(PolicyError, match="max_rounds"):
        TuningNode(settings).tune(task, "client-0001", 2, pack_parameters(start), last=0)


def test_law_rounded_sums_are_right_on_average() -> None:
    rng = np.random.default_rng(0)
    true = np.array([3.0, 17.0, 40.0])
    drawn = np.array([coarse_losses(true, rng.random) for _ in range(4000)])
    assert drawn.mean(axis=0) == pytest.approx(true, abs=0.4)
    for part in range(31):
        told = [rounded_part(part, 30, 5, rng.random()) for _ in range(3000)]
        assert np.mean(told) == pytest.approx(part, abs=0.25)
        assert all(count == 0 or 5 <= count <= 25 or count == 30 for count in told)
