"""A node that was killed with a message in its hands and is back before anybody noticed is asked again, in time."""

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr")

from flwr.app import Message

from fedmoments.federation.deploy.local import prepare_local
from fedmoments.federation.flower.client_app import app
from fedmoments.federation.flower.collect import Collection
from fedmoments.federation.flower.exchange import LOST, Exchange, Failure, Reply
from fedmoments.federation.flower.grid import InProcessGrid, _identify
from fedmoments.federation.flower.messages import CONTRIBUTE, PRESENT, content_of
from fedmoments.federation.store import FederationStore
from fedmoments.settings.server import ServerSettings
from fedmoments.settings.study import StudySettings


class Forgetful(InProcessGrid):
    """The SuperLink as a kill leaves it: the node is listed all the time, and one message that it took is gone."""

    def __init__(self, *given: Any, lost: int = 1, slow: float = 0.0) -> None:
        super().__init__(*given)
        self.lost, self.slow, self.asked = lost, slow, list[str]()
        self._taken: dict[str, float] = {}

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        sent = list(messages)
        ids = list(super().push_messages(sent))
        for name, message in zip(ids, sent, strict=True):
            self.asked.append(message.metadata.message_type)
            self._taken[name] = time.monotonic()
            if message.metadata.message_type == CONTRIBUTE and message.metadata.dst_node_id == 1 and self.lost:
                self.lost -= 1
                del self._waiting[name]
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Answer in order, as a node does, and not before it has computed for a while."""
        now = time.monotonic()
        return super().pull_messages([name for name in message_ids if now - self._taken[name] >= self.slow])


@pytest.fixture
def plan(features: Path, tmp_path: Path) -> Any:
    _identify()
    config = StudySettings(data=f"npz:{features}", clients=(4,), splits=("iid",))
    settings = ServerSettings("ledger", heads=("fedncm",), poll=0.01, deadline=60.0, ttl=120.0)
    return prepare_local(tmp_path / "p", config, settings, nodes=2, engine="memory", policy={"min_count": 1})


def grid_of(plan: Any, **how: Any) -> Forgetful:
    common = {"client-config": str(plan.shared_settings), "num-partitions": plan.nodes}
    return Forgetful(app, [{**common, "partition-id": node} for node in range(plan.nodes)], **how)


def test_a_node_that_lost_its_message_is_asked_again_in_the_same_round(plan: Any) -> None:
    grid = grid_of(plan)
    with FederationStore.open(plan.server.ledger) as store:
        collection = Collection(grid, store, plan.server, number=1)
        collection._exchange.quiet = 0.2
        began = time.monotonic()
        report = collection.run([1, 2])
        assert time.monotonic() - began < plan.server.deadline
        assert report.accepted == 4
        assert report.counts["failures"] == 0
        assert len(store.status().waiting) == 0
        assert store.status().clients == 4
        notes = [entry.details for entry in store.audit() if entry.event == "note"]
    assert [note["node"] for note in notes if note["note"] == "node back"] == ["1"]
    assert grid.asked.count(PRESENT) == 1


def test_a_node_that_is_slow_is_not_taken_for_one_that_lost_its_message(plan: Any) -> None:
    grid = grid_of(plan, lost=0, slow=0.5)
    exchange = Exchange(grid, 60.0, 0.01, 2**20, quiet=0.1)
    answers: list[Reply | Failure] = []
    assert not exchange.ask(CONTRIBUTE, {1: content_of({})})
    exchange.hear(answers.append, until=time.monotonic() + 60)
    assert [answer.code for answer in answers if isinstance(answer, Failure)] == [2]  # our app's own error, not LOST
    assert grid.asked.count(PRESENT) == 1


def test_what_is_lost_for_good_is_told_within_the_deadline(plan: Any) -> None:
    grid = grid_of(plan, lost=99)
    with FederationStore.open(plan.server.ledger) as store:
        collection = Collection(grid, store, plan.server, number=1)
        collection._exchange.quiet = 0.1
        report = collection.run([1, 2])
    assert report.accepted == 2
    assert [failure.code for failure in report.failures] == [LOST]
    assert grid.asked.count(CONTRIBUTE) == 4  # three times the one, once the other
