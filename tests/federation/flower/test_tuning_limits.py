"""How often a client trains, and how many sums of losses it tells: bounded, over all runs, whatever is asked."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr")
pytest.importorskip("cryptography")

from tests.federation.flower.test_tuning_consent import asked, change
from tests.federation.flower.tuning_trials import PLAN, Made, collected, run, settings_of

from fedmoments.errors import DeploymentError, PolicyError
from fedmoments.federation.flower.tuning_memory import forget_all
from fedmoments.federation.flower.tuning_node import TuningNode
from fedmoments.tuning.engine import pack_parameters


@pytest.mark.parametrize("folder", ["", "box"])
def test_a_client_counts_its_rounds_over_all_runs(make: Made, tmp_path: Path, folder: str) -> None:
    forget_all()
    plan = collected(make)
    settings = change(plan, tmp_path / folder if folder else None, min_count=1, tuning="lp", max_rounds=2)
    task, head, parameters = asked(plan)
    first = TuningNode(settings).tune(task, "client-0001", 1, parameters, last=0, start=head)
    again = TuningNode(settings).tune(task, "client-0001", 1, parameters, last=0)
    assert first == again  # the very same request is answered alike, and is no further round
    other = replace(task, run="cd" * 16)
    TuningNode(settings).tune(other, "client-0001", 1, parameters, last=0)
    with pytest.raises(PolicyError, match="max_rounds: it would be round 3, allowed are 2"):
        TuningNode(settings).tune(task, "client-0001", 2, parameters, last=1)
    changed = pack_parameters({name: array + 1 for name, array in task.start(head).arrays().items()})
    with pytest.raises(PolicyError, match="max_rounds"):
        TuningNode(settings).tune(other, "client-0001", 1, changed, last=0)
    TuningNode(settings).tune(task, "client-0002", 1, parameters, last=0)


@pytest.mark.parametrize(
    "changes", [{"seed": 1}, {"epochs": 2}, {"batch_size": 1}, {"validation": 0.5}, {"temperature": 9.0}]
)
def test_a_round_under_another_plan_is_a_further_round(make: Made, tmp_path: Path, changes: dict[str, Any]) -> None:
    plan = collected(make)
    settings = change(plan, tmp_path / "box", min_count=1, tuning="lp", max_rounds=1)
    task, head, parameters = asked(plan)
    first = TuningNode(settings).tune(task, "client-0001", 1, parameters, last=0, start=head)
    more = replace(task, plan=replace(task.plan, rounds=999))  # the same round, of more
    assert TuningNode(settings).tune(more, "client-0001", 1, parameters, last=0) == first
    temperature = float(changes.get("temperature", task.temperature))
    other = replace(task, plan=replace(task.plan, **changes), temperature=temperature)
    with pytest.raises(PolicyError, match="max_rounds: it would be round 2, allowed are 1"):
        TuningNode(settings).tune(other, "client-0001", 1, parameters, last=0)


@pytest.mark.parametrize("folder", ["", "box"])
def test_sums_of_losses_are_bounded_by_the_rounds_that_are_allowed(make: Made, tmp_path: Path, folder: str) -> None:
    forget_all()
    plan = collected(make)
    settings = change(plan, tmp_path / folder if folder else None, min_count=1, tuning="lp", max_rounds=1)
    settings = replace(settings, evaluate=True)
    task, head, _ = asked(plan)
    TuningNode(settings).greet(task, head)

    def other(change: float) -> bytes:
        return pack_parameters({name: array + change for name, array in task.start(head).arrays().items()})

    for number in range(4):
        found = TuningNode(settings).score(task, "test", ["client-0001"], other(number))
        assert found.samples
        assert TuningNode(settings).score(task, "test", ["client-0001"], other(number)) == found  # no further sum
    TuningNode(settings).temperature(task, [0.1, 1.0], ["client-0001"])
    with pytest.raises(PolicyError, match="more sums of losses than 1 rounds need"):
        TuningNode(settings).score(task, "test", ["client-0001"], other(5.0))
    with pytest.raises(PolicyError, match="nothing was sent"):
        TuningNode(settings).temperature(task, [0.2, 1.0], ["client-0001"])
    elsewhere = replace(settings, partitions=(0, 1))
    assert TuningNode(elsewhere).score(task, "test", ["client-0001"], other(5.0)).samples


def test_rounds_go_on_without_clients_that_have_had_enough(make: Made, tmp_path: Path) -> None:
    forget_all()
    plan = collected(make)
    change(plan, tmp_path / "box", min_count=1, tuning="lp", max_rounds=1)
    settings = settings_of(plan, tmp_path / "out", plan={**PLAN, "rounds": 3, "fraction": 0.5})
    with pytest.raises(DeploymentError, match=r"round 3 brought 0 updates of 6.*declined.*max_rounds"):
        run(plan, settings)
