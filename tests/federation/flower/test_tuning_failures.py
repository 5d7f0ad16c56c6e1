"""Tuning when clients fail: each costs the round its own update, is told by name, and spoils nothing."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")
pytest.importorskip("cryptography")

from flwr.app import Context, Error, Message
from tests.federation.flower.test_tuning_in_process import held, require_same
from tests.federation.flower.tuning_trials import (
    PLAN,
    Made,
    collected,
    node_configs,
    notes,
    of_client,
    run,
    settings_of,
    spoiled,
)

from fedmoments.errors import DeploymentError
from fedmoments.federation.deploy.local import LocalFederation
from fedmoments.federation.flower import tuning_node
from fedmoments.federation.flower.grid import InProcessGrid
from fedmoments.federation.flower.messages import read_content
from fedmoments.federation.flower.tuning_memory import forget_all
from fedmoments.tuning.engine import Arrays, Update
from fedmoments.tuning.loop import run_rounds
from fedmoments.tuning.prices import Prices
from fedmoments.tuning.probing import FeatureEngine

ALL = {**PLAN, "fraction": 1.0, "rounds": 2}
BAD = "client-0005"

Honest = Callable[[], Message]


def without(plan: LocalFederation, start: Any, tuning: Any, missing: dict[int, set[str]]) -> Any:
    """Simulate with a client's update lost in some rounds, and its control variates as they were before."""

    class Lossy(FeatureEngine):
        def train(
            self, round_number: int, arrays: Arrays, control: Arrays | None, clients: Sequence[str]
        ) -> Sequence[Update]:
            before = self.state()
            lost = missing.get(round_number, set())
            updates = super().train(round_number, arrays, control, clients)
            mine = {name: value for name, value in self.state().items() if name.split("/")[1] not in lost}
            mine |= {name: value for name, value in before.items() if name.split("/")[1] in lost}
            self.restore(mine)
            return [update for update in updates if update.client not in lost]

    engine = Lossy(tuning, start, held(plan), None)
    return run_rounds(tuning, engine, start.arrays(), prices=Prices(start.width, len(start.present)))


# -------------------------------------------------------------------------------------------------- failing


@pytest.mark.parametrize("optimiser", ["fedavg", "scaffold"])
def test_law_a_client_that_fails_in_a_round_is_as_if_it_had_not_been_drawn(
    make: Made, tmp_path: Path, optimiser: str
) -> None:
    def fail(kind: str, message: Message, _: Context, honest: Honest) -> Message:
        reply = honest()  # it has trained, and kept its control variates, but its reply is lost
        if (
            kind == "tune"
            and of_client(message, BAD)
            and read_content(message.content, most_bytes=2**30)[0]["round"] == 1
        ):
            raise ValueError("the disk is on fire")
        return reply

    plan = collected(make)
    settings = settings_of(plan, tmp_path / "out", plan={**ALL, "optimiser": optimiser, "rounds": 3})
    found = run(plan, settings, spoiled(fail))
    assert [point.participants for point in found.tuned.points] == [0, 11, 12, 12]
    (failure,) = found.failures
    assert (failure["client"], failure["round"], failure["code"]) == (BAD, 1, 2)
    assert "the disk is on fire" in failure["reason"]
    assert notes(plan, "node failed")[0]["client"] == BAD
    expected = without(plan, found.start, settings.tuning_plan, {1: {BAD}})
    for name, array in expected.arrays.items():
        np.testing.assert_allclose(found.tuned.arrays[name], array, rtol=0, atol=1e-6)


def test_a_round_with_too_few_updates_fails_and_can_be_gone_on_with(make: Made, tmp_path: Path) -> None:
    broken = {"now": True}

    def fail(kind: str, message: Message, context: Context, honest: Honest) -> Message:
        second = kind == "tune" and read_content(message.content, most_bytes=2**30)[0]["round"] == 2
        if broken["now"] and second and context.node_id > 1:
            raise ValueError("the power is out")
        return honest()

    plan = collected(make)
    settings = settings_of(plan, tmp_path / "out", plan=ALL, minimum=4)
    with pytest.raises(DeploymentError, match=r"round 2 brought 3 updates of 12 .*but 4 are needed.*the power is out"):
        run(plan, settings, spoiled(fail))
    broken["now"] = False
    found = run(plan, settings, spoiled(fail))
    assert found.tuned.resumed == 1
    require_same(found.tuned.arrays, run(plan, settings_of(plan, tmp_path / "whole", plan=ALL)).tuned.arrays)


def test_a_minimum_that_no_round_can_reach_is_refused_before_the_first(make: Made, tmp_path: Path) -> None:
    plan = collected(make)
    with pytest.raises(DeploymentError, match="12 clients take part, of which a round draws 6, but 7 updates"):
        run(plan, settings_of(plan, tmp_path / "out", minimum=7))
    assert not notes(plan, "tuning round")


def test_an_app_that_died_is_asked_again(make: Made, tmp_path: Path) -> None:
    died: list[int] = []

    class Dying(InProcessGrid):
        def _answer(self, message: Message) -> Message:
            if message.metadata.message_type == "train.tune" and not died:
                died.append(message.metadata.dst_node_id)
                return Message(Error(8, "the app process died"), reply_to=message)
            return super()._answer(message)

    from fedmoments.federation.flower.client_app import app
    from fedmoments.federation.flower.grid import _identify
    from fedmoments.federation.flower.tuning_server import run_tuning

    plan = collected(make)
    _identify()
    found = run_tuning(Dying(app, node_configs(plan)), settings_of(plan, tmp_path / "out", plan=ALL))
    assert died
    assert [point.participants for point in found.tuned.points] == [0, 12, 12]
    assert not found.failures


def test_a_node_that_went_and_came_back_is_asked_again(make: Made, tmp_path: Path) -> None:
    gone: list[int] = []
    looks: list[int] = []

    class Leaving(InProcessGrid):
        def get_node_ids(self) -> Any:
            here = list(super().get_node_ids())
            looks.extend(gone)
            return [node for node in here if node not in gone or len(looks) > 3]

        def _answer(self, message: Message) -> Message:
            if message.metadata.message_type == "train.tune" and not gone:
                gone.append(message.metadata.dst_node_id)
                return Message(Error(5, "the node is not available"), reply_to=message)
            return super()._answer(message)

    from fedmoments.federation.flower.client_app import app
    from fedmoments.federation.flower.grid import _identify
    from fedmoments.federation.flower.tuning_server import run_tuning

    plan = collected(make)
    _identify()
    found = run_tuning(Leaving(app, node_configs(plan)), settings_of(plan, tmp_path / "out", plan=ALL))
    assert len(looks) > 3
    assert [point.participants for point in found.tuned.points] == [0, 12, 12]


def test_a_node_that_stays_away_is_waited_for_once(make: Made, tmp_path: Path) -> None:
    class Left(InProcessGrid):
        left = False

        def get_node_ids(self) -> Any:
            return [node for node in super().get_node_ids() if not self.left or node != 2]

        def _answer(self, message: Message) -> Message:
            if message.metadata.message_type == "train.tune" and message.metadata.dst_node_id == 2:
                self.left = True
                return Message(Error(5, "the node is not available"), reply_to=message)
            return super()._answer(message)

    from fedmoments.federation.flower.client_app import app
    from fedmoments.federation.flower.grid import _identify
    from fedmoments.federation.flower.tuning_server import run_tuning

    plan = collected(make)
    _identify()
    grid = Left(app, node_configs(plan))
    settings = settings_of(plan, tmp_path / "out", plan={**ALL, "rounds": 3}, deadline=1.0)
    found = run_tuning(grid, settings)
    assert [point.participants for point in found.tuned.points] == [0, 9, 9, 9]
    reasons = {failure["reason"] for failure in found.failures}
    assert reasons == {"the node is not available", "no node that is here serves it"}


def test_a_node_that_lost_the_start_is_sent_it_again(make: Made, tmp_path: Path) -> None:
    def forget(kind: str, _: Message, __: Context, honest: Honest) -> Message:
        if kind == "tune":
            tuning_node._STARTS.clear()
        return honest()

    plan = collected(make)
    found = run(plan, settings_of(plan, tmp_path / "out", plan=ALL), spoiled(forget))
    assert not found.failures
    require_same(found.tuned.arrays, run(plan, settings_of(plan, tmp_path / "other", plan=ALL)).tuned.arrays)


def test_control_variates_that_were_lost_are_missed_by_name(make: Made, tmp_path: Path) -> None:
    def forget(kind: str, message: Message, _: Context, honest: Honest) -> Message:
        words = read_content(message.content, most_bytes=2**30)[0]
        if kind == "tune" and words["round"] == 2:
            forget_all()
        return honest()

    plan = collected(make)
    with pytest.raises(DeploymentError, match="counts on this client's control variates after round 1"):
        run(plan, settings_of(plan, tmp_path / "out", plan={**ALL, "optimiser": "scaffold"}), spoiled(forget))
