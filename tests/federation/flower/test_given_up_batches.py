"""A helper that was wrong or absent costs a repetition; a batch that is given up costs its clients a second report.

And what a leader might make of second reports: two sums to subtract, a mask used twice, noise drawn twice. The argument
stands in docs/federation.md; each sentence of it is attacked here.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, Message
from tests.federation.flower.secure_trials import COHORTS, HEADS, SUMS, TWO_PHASES, Made, digests, opened, run, spoiled

from fedmoments.errors import LedgerError, PrivacyError
from fedmoments.federation.flower import client_app as real
from fedmoments.federation.flower.helper import HelperNode
from fedmoments.federation.flower.messages import content_of, read_content
from fedmoments.federation.flower.node import Node
from fedmoments.federation.keeper import HelperKeeper
from fedmoments.privacy.protection import Agreed
from fedmoments.privacy.secure.envelope import ENVELOPE_BYTES
from fedmoments.privacy.secure.report import OVERHEAD_BYTES
from fedmoments.settings.client import ClientSettings
from fedmoments.settings.helper import HelperSettings
from fedmoments.wire import pack_bundle, unpack_bundle

NOISED = Agreed(secure="sums", epsilon=4.0)


def lie(message: Message, context: Context) -> Message:
    """Answer as a helper whose disk, key or mind is broken."""
    reply = real.unmask(message, context)
    _, data = read_content(reply.content, most_bytes=2**30)
    return Message(content_of({}, bytes(byte ^ 0x55 for byte in data)), reply_to=message)


def give_up(plan: Any) -> str:
    """Let a helper be wrong, and give the batch up; return its name."""
    with pytest.raises(LedgerError, match="run again to ask the helper for the same sum again"):
        run(plan, spoiled(unmask=lie))
    with opened(plan) as store:
        [batch] = store.batches()
        assert batch.status == "asked"
        store.leave(batch.name)
        assert store.verify().whole
    return batch.name


@pytest.mark.parametrize("agreed", [SUMS, NOISED], ids=["sums", "noised"])
def test_a_wrong_answer_of_the_helper_costs_a_repetition_and_nothing_else(make: Made, agreed: Agreed) -> None:
    plan = make(heads=("fedncm",), privacy=agreed)
    with pytest.raises(LedgerError, match="All reports are kept"):
        run(plan, spoiled(unmask=lie))
    with opened(plan) as store:
        assert [batch.status for batch in store.batches()] == ["asked"]
        assert store.status().clients == 0
        assert store.verify().whole
    found = run(plan)
    assert found.fitted
    with opened(plan) as store:
        [batch] = store.batches()
        assert (batch.status, len(batch.members)) == ("collected", 12)
        assert store.verify().whole
        assert store.terms.attempt == 0
    if agreed is SUMS:
        assert digests(found) == digests(run(make(heads=("fedncm",)), helper=False))


def test_clients_of_a_batch_that_was_given_up_report_again_in_a_new_one(make: Made) -> None:
    plan = make(heads=HEADS, privacy=SUMS)
    former = give_up(plan)
    with opened(plan) as store:
        assert (store.terms.attempt, len(store.given_up())) == (1, 12)
    found = run(plan)
    assert sum(report.accepted for report in found.rounds) == 12
    assert digests(found) == digests(run(make(heads=HEADS), helper=False))
    with opened(plan) as store:
        assert {batch.name: batch.status for batch in store.batches() if batch.name == former} == {former: "left"}
        assert [batch.status for batch in store.batches() if batch.name != former] == ["collected"]
        assert store.given_up() == []
        assert store.verify().whole
    again = run(plan)  # who is in a sum that stands is not asked for a third report
    assert sum(report.accepted for report in again.rounds) == 0
    assert not [entry for report in again.rounds for entry in report.refused]


def test_a_second_report_has_another_mask_and_the_same_numbers(make: Made) -> None:
    plan = make(heads=("fedncm",), privacy=SUMS)
    heard: list[list[bytes]] = []

    def listen(message: Message, context: Context) -> Message:
        reply = real.contribute(message, context)
        _, bundle = read_content(reply.content, most_bytes=2**30)
        heard.append([bytes(item) for item in unpack_bundle(bundle, max_bytes=2**30, max_items=99)])
        return reply

    with pytest.raises(LedgerError):
        run(plan, spoiled(contribute=listen, unmask=lie))
    with opened(plan) as store:
        store.leave(store.batches()[0].name)
    run(plan, spoiled(contribute=listen))
    first, second = ([item for items in part for item in items] for part in (heard[:4], heard[4:8]))
    assert len(first) == len(second) == 12
    for one, other in zip(first, second, strict=True):
        assert one[:ENVELOPE_BYTES] != other[:ENVELOPE_BYTES]
        masks = [np.frombuffer(report, np.uint64, offset=OVERHEAD_BYTES) for report in (one, other)]
        # equal numbers behind equal masks would be equal; behind masks that are not random, the difference would repeat
        difference = masks[0] - masks[1]
        assert len(np.unique(difference)) > 0.99 * len(difference)


def test_a_batch_that_lacks_one_client_of_the_former_sum_is_refused(make: Made) -> None:
    plan = make(heads=("fedncm",), privacy=SUMS)
    give_up(plan)  # the helper has answered: the leader may know the sum of all twelve

    def drop(message: Message, context: Context) -> Message:
        reply = real.contribute(message, context)
        fields, bundle = read_content(reply.content, most_bytes=2**30)
        items = [bytes(item) for item in unpack_bundle(bundle, max_bytes=2**30, max_items=99)]
        keep = items[1:] if context.node_id == 2 else items
        return Message(content_of(fields, pack_bundle(keep)), reply_to=message)

    with pytest.raises(PrivacyError, match="the difference of two batches must be"):
        run(plan, spoiled(contribute=drop))
    with opened(plan) as store:
        assert len(store.waiting()) == 11
    run(plan)  # when it is there, too, nothing is lost
    with opened(plan) as store:
        assert [len(batch.members) for batch in store.batches() if batch.status == "collected"] == [12]


def test_a_client_whose_samples_or_rules_changed_does_not_report_again(make: Made) -> None:
    plan = make(nodes=1, clients=3, heads=("fedncm",), privacy=SUMS)
    own = ClientSettings.load(plan.shared_settings)
    with opened(plan) as store:
        terms = store.terms
    first = Node(own).contribute(terms, most_bytes=2**20)
    assert len(first.clients) == 3
    changed = replace(own, policy={**own.policy, "max_per_class": 2})
    told = Node(changed).contribute(terms.at(1), most_bytes=2**20, given_up=first.clients)
    assert not told.clients
    assert "would show what changed" in told.declined[0]["why"]
    # not even if the change was reported before, within the same attempt: the first report may be in a sum
    Node(changed).contribute(terms, most_bytes=2**20)
    told = Node(changed).contribute(terms.at(1), most_bytes=2**20, given_up=first.clients)
    assert not told.clients


def test_a_leader_cannot_go_back_to_an_attempt_that_is_over(make: Made) -> None:
    plan = make(nodes=1, clients=3, heads=("fedncm",), privacy=SUMS)
    node = Node(ClientSettings.load(plan.shared_settings))
    with opened(plan) as store:
        terms = store.terms
    names = node.contribute(terms, most_bytes=2**20).clients
    once = node.contribute(terms.at(3), most_bytes=2**20, given_up=names)
    assert once.clients == names
    assert node.contribute(terms.at(3), most_bytes=2**20, given_up=names).bundle == once.bundle
    for earlier in (0, 1, 2):
        told = node.contribute(terms.at(earlier), most_bytes=2**20, given_up=names)
        assert not told.clients
        assert "is over" in told.declined[0]["why"]


@pytest.mark.parametrize("agreed", [NOISED, TWO_PHASES, COHORTS])
def test_where_a_second_report_would_tell_more_there_is_none(make: Made, agreed: Agreed) -> None:
    plan = make(heads=("fedncm",) if agreed is NOISED else ("fedcof",), privacy=agreed)
    with opened(plan) as store:
        terms = store.terms
    for attempt in (1, 7):
        with pytest.raises(PrivacyError, match="a client reports once"):
            terms.at(attempt)
    for odd in (-1, 10**9, "1", 1.0, True):
        with pytest.raises(PrivacyError):
            terms.at(odd)
    helper = HelperKeeper(HelperNode(HelperSettings.load(plan.helper_settings)))
    with pytest.raises(PrivacyError, match="a client reports once"):
        helper.answer("step", {"terms": terms.to_json(), "step": "sum", "attempt": 1}, b"")


def test_clients_of_a_sum_that_left_stay_out(make: Made) -> None:
    plan = make(heads=("fedncm",), privacy=SUMS)
    run(plan)
    with opened(plan) as store:
        store.leave(store.batches()[0].name)
        assert (store.terms.attempt, store.given_up()) == (0, [])
    with pytest.raises(Exception, match=r"quorum|no head could be fitted"):
        run(plan, again=True)
    with opened(plan) as store:
        assert store.status().clients == 0
