"""Client means behind masks in the deployed apps: cohorts and two phases."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Context, Message
from tests.federation.flower.secure_trials import (
    COHORTS,
    MEANS,
    TWO_PHASES,
    Made,
    digests,
    opened,
    run,
    spoiled,
)

from fedmoments.errors import DeploymentError
from fedmoments.federation.flower import client_app as real
from fedmoments.federation.flower.messages import read_content
from fedmoments.federation.flower.node import Node
from fedmoments.federation.outbox import Outbox
from fedmoments.privacy.secure import OVERHEAD_BYTES
from fedmoments.privacy.secure.broadcast import Broadcast
from fedmoments.settings.client import ClientSettings

# -------------------------------------------------------------------------------------------------- cohorts


def test_rows_of_cohorts_add_up_to_the_clear_sums(make: Made) -> None:
    clear, plan = make(heads=MEANS), make(heads=MEANS, privacy=COHORTS)
    run(clear, helper=False)
    found = run(plan)
    with opened(clear) as one, opened(plan) as other:
        exact, summed = one.statistics(), other.statistics()
        assert np.array_equal(exact.counts, summed.counts)
        assert np.array_equal(exact.sums, summed.sums)
        assert len(summed.row_labels) < len(exact.row_labels)
        assert other.verify().whole
        [facts] = [entry.details for entry in other.audit() if entry.details.get("note") == "cohorts"]
        assert facts["cohorts"] == [4, 4, 4]
    record = (plan.folder / "helper" / "record.jsonl").read_text("utf-8").splitlines()
    steps = [json.loads(line)["step"] for line in record]  # one message a step, however many cohorts there are
    assert steps == ["draw", "reveal", "draw", "reveal", "admit", "learn", "open"]
    again = run(plan, nodes=[0])
    assert digests(again) == digests(found)


def test_cohorts_without_some_clients_and_after_a_lost_answer(make: Made) -> None:
    plan = make(heads=MEANS, privacy=COHORTS)
    calls: list[str] = []

    def lose(message: Message, context: Context) -> Message:
        step = read_content(message.content, most_bytes=2**30)[0]["step"]
        reply = real.unmask(message, context)
        calls.append(step)
        if calls.count("open") == 1 and step == "open":
            raise OSError("the line is dead")
        return reply

    with pytest.raises(DeploymentError, match="did not answer"):
        run(plan, spoiled(unmask=lose), nodes=[0, 1, 3])
    run(plan, nodes=[0, 1, 3])
    with opened(plan) as store:
        assert store.status().clients == 9
        assert store.verify().whole
    run(plan)
    with opened(plan) as store:
        assert (store.status().clients, len(store.status().waiting)) == (9, 3)


# -------------------------------------------------------------------------------------------------- two phases


def test_two_phases_give_the_clear_classifier_to_the_resolution_of_the_numbers(make: Made, tmp_path: Path) -> None:
    clear, plan = make(heads=("fedcof",)), make(heads=("fedcof",), privacy=TWO_PHASES, out=str(tmp_path / "out"))
    exact, found = run(clear, helper=False), run(plan)
    one, other = exact.fitted["fedcof"].classifier, found.fitted["fedcof"].classifier
    X = np.random.default_rng(0).normal(size=(50, 6))
    assert np.allclose(one.scores(X), other.scores(X), atol=1e-6)
    # Masked clients round their tests, which the temperature follows.
    assert other.temperature == pytest.approx(one.temperature, rel=0.1)
    with opened(plan) as store:
        assert store.verify().whole
        assert store.status().clients == 12
        assert store.statistics().n_samples == 0
        first, second = store.terms.layout.size, 6 * 7 // 2 + 1
        assert store.status().bytes == 12 * (2 * OVERHEAD_BYTES + 8 * (first + second))
    document = json.loads((tmp_path / "out" / "federation.json").read_text("utf-8"))
    assert document["data"]["train"] == 300
    assert digests(run(plan)) == digests(found)
    with Outbox(plan.folder / "nodes") as outbox:
        assert not any(outbox.pending(federation) for federation, _ in outbox.federations())


def test_a_client_that_is_missing_in_the_second_phase_is_waited_for(make: Made) -> None:
    plan = make(heads=("fedcof",), privacy=TWO_PHASES)

    def stay_away(message: Message, context: Context) -> Message:
        if context.node_id == 2:
            raise OSError("gone home")
        return real.second(message, context)

    with pytest.raises(DeploymentError, match=r"3 of 12 clients of the first phase are missing.*gone home"):
        run(plan, spoiled(second=stay_away))
    with opened(plan) as store:
        assert [batch.status for batch in store.batches()] == ["asked"]
    assert run(plan).fitted
    with opened(plan) as store:
        assert store.status().clients == 12
        assert store.verify().whole


def test_a_client_answers_one_broadcast_and_none_from_other_samples(make: Made) -> None:
    plan = make(heads=("fedcof",), nodes=1, clients=6, privacy=TWO_PHASES)
    told: list[bytes] = []

    def listen(message: Message, context: Context) -> Message:
        told.append(read_content(message.content, most_bytes=2**30)[1])
        return real.second(message, context)

    run(plan, spoiled(second=listen))
    settings = ClientSettings.load(plan.shared_settings)
    with opened(plan) as store:
        terms = store.terms
    node = Node(settings)
    same = node.second(terms, told[0], most_bytes=2**20)
    assert len(same.clients) == 6
    heard = Broadcast.from_bytes(told[0])
    other = replace(heard, weights=heard.weights * 0.5)
    again = node.second(terms, other.to_bytes(), most_bytes=2**20)
    assert not again.clients
    assert "answers one broadcast only" in again.declined[0]["why"]
    changed = Node(replace(settings, policy={"min_count": 2})).second(terms, told[0], most_bytes=2**20)
    assert not changed.clients
    assert "same samples" in changed.declined[0]["why"]
