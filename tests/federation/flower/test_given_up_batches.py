"""A helper that was wrong or absent costs a repetition; a batch that is given up costs its clients a second report.

And what a leader might make of second reports: two sums to subtract, a mask used twice, noise drawn twice. The argument
stands in docs/federation.md; each sentence of it is attacked here.
"""

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, Message
from tests.federation.flower.secure_trials import COHORTS, HEADS, SUMS, TWO_PHASES, Made, digests, opened, run, spoiled

from fedmoments.errors import DeploymentError, FedMomentsError, LedgerError, PrivacyError, RefusedError
from fedmoments.federation.flower import client_app as real
from fedmoments.federation.flower.helper import HelperNode
from fedmoments.federation.flower.messages import content_of, read_content
from fedmoments.federation.flower.node import Node
from fedmoments.federation.keeper import HelperKeeper
from fedmoments.privacy.protection import Agreed
from fedmoments.privacy.secure.context import Context as Circumstances
from fedmoments.privacy.secure.envelope import ENVELOPE_BYTES, read_envelope
from fedmoments.privacy.secure.helper import Helper
from fedmoments.privacy.secure.report import OVERHEAD_BYTES, make_report, read_report
from fedmoments.privacy.secure.request import SumRequest
from fedmoments.privacy.secure.seal import HelperKey
from fedmoments.settings.client import ClientSettings
from fedmoments.settings.helper import HelperSettings
from fedmoments.wire import IdentityKey, pack_bundle, unpack_bundle

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


MORE_THAN_ONE_SUM = pytest.mark.parametrize(
    "agreed", [NOISED, TWO_PHASES, COHORTS], ids=["noised", "two phases", "cohorts"]
)


def heads_of(agreed: Agreed) -> tuple[str, ...]:
    return ("fedncm",) if agreed is NOISED else ("fedcof", "fedncm")


def silent(message: Message, context: Context) -> Message:
    """Answer as a helper that is gone once cohorts are drawn: nothing is opened."""
    fields, _ = read_content(message.content, most_bytes=2**30)
    if fields["step"] in ("draw", "reveal"):
        return real.unmask(message, context)
    raise OSError("the helper's machine is gone")


def give_up_unopened(plan: Any) -> None:
    """Let the helper vanish before it opens anything, and give the batch up."""
    with pytest.raises(DeploymentError):
        run(plan, spoiled(unmask=silent), deadline=2.0)
    with opened(plan) as store:
        [batch] = store.batches()
        assert (batch.status, len(batch.members)) == ("asked", 12)
        store.leave(batch.name)
        assert (store.terms.attempt, len(store.given_up())) == (1, 12)


@MORE_THAN_ONE_SUM
def test_a_helper_that_opened_nothing_costs_nobody_its_place(make: Made, agreed: Agreed) -> None:
    plan = make(heads=heads_of(agreed), privacy=agreed)
    give_up_unopened(plan)
    found = run(plan)
    assert sum(report.accepted for report in found.rounds) == 12
    with opened(plan) as store:
        assert [len(batch.members) for batch in store.batches() if batch.status == "collected"] == [12]
        assert store.given_up() == []
        assert store.verify().whole
    if agreed is TWO_PHASES:  # exact: the head of clients that reported once, to the last bits of a sum of fractions
        clear = run(make(heads=heads_of(agreed), privacy=agreed))
        for name, fitted in clear.fitted.items():
            assert fitted.classifier.digest() == found.fitted[name].classifier.digest()


def answer_lost(message: Message, context: Context) -> Message:
    """Open what is requested, and lose the answer: the leader may have read it."""
    fields, _ = read_content(message.content, most_bytes=2**30)
    reply = real.unmask(message, context)
    if fields["step"] in ("draw", "reveal", "admit"):  # nothing is opened there
        return reply
    raise OSError("the answer was lost")


@pytest.mark.parametrize("agreed", [TWO_PHASES, COHORTS], ids=["two phases", "cohorts"])
def test_where_sums_of_a_federation_were_opened_no_other_attempt_is(make: Made, agreed: Agreed) -> None:
    """A class over twelve clients, and over eleven of them, is what the twelfth holds."""
    plan = make(heads=heads_of(agreed), privacy=agreed)
    with pytest.raises(DeploymentError):
        run(plan, spoiled(unmask=answer_lost), deadline=2.0)
    with opened(plan) as store:
        store.leave(store.batches()[0].name)
    for nodes in ([0, 1, 2, 3], [1, 2, 3]):
        with pytest.raises(PrivacyError, match=r"sums of attempt 0 of this federation were opened"):
            run(plan, nodes=nodes)
    with opened(plan) as store:
        assert store.status().clients == 0
        assert not [batch for batch in store.batches() if batch.status == "collected"]


def test_noise_is_drawn_once_over_a_client_whatever_is_given_up(make: Made) -> None:
    """Two draws over the same numbers have 1/√2 of the noise that was agreed on, and a hundred a tenth."""
    plan = make(heads=("fedncm",), privacy=NOISED)
    with pytest.raises(DeploymentError):
        run(plan, spoiled(unmask=answer_lost), deadline=2.0)
    with opened(plan) as store:
        store.leave(store.batches()[0].name)
    with pytest.raises(Exception, match=r"quorum|no head could be fitted|nothing"):
        run(plan)
    with opened(plan) as store:
        assert not [batch for batch in store.batches() if batch.status == "collected"]
        assert store.given_up() == []  # and they are not asked for a third report
        reasons = [entry.details["reason"] for entry in store.audit() if entry.event == "reopened"]
    assert len(reasons) >= 9  # one by one, until too few are left for a sum
    assert all("is in a noised sum that was opened in attempt 0" in reason for reason in reasons)


@pytest.mark.parametrize(("once", "wrong"), [("client", RefusedError), ("federation", PrivacyError)])
@pytest.mark.parametrize("order", [(0, 1), (1, 0), (7, 3)])
def test_a_leader_that_kept_reports_of_two_attempts_has_one_of_them_opened(
    once: str, wrong: type[Exception], order: tuple[int, int], tmp_path: Any
) -> None:
    keys = {name: IdentityKey.generate() for name in "abcd"}
    secret = HelperKey.generate()

    def asked(attempt: int, names: str) -> SumRequest:
        context = Circumstances("ab" * 32, attempt, "cd" * 32)
        reports = []
        for name in names:
            vector = np.arange(3, dtype=np.uint64)
            data = make_report(vector, context, client=name, version=1, helper=secret.public, key=keys[name])
            reports.append(read_report(data, context, 3, lambda client: keys[client].public))
        return SumRequest(context, [(report.id, report.sealed) for report in reports], [(0, 3)])

    def noise(places: Any) -> Any:
        return np.full(len(places), 5, np.int64)

    draws = noise if once == "client" else None
    first, second = asked(order[0], "abc"), asked(order[1], "abc")
    with Helper(secret, minimum=3, path=tmp_path / "memory.db", once=once) as helper:
        answer = helper.sum(first, noise=draws)
        with pytest.raises(wrong, match=f"attempt {order[0]}"):
            helper.sum(second, noise=draws)
        with pytest.raises(wrong, match=f"attempt {order[0]}"):
            helper.sum(asked(order[1], "abcd"), noise=draws)
    with Helper(secret, minimum=3, path=tmp_path / "memory.db", once=once) as helper:  # and it never forgets
        np.testing.assert_array_equal(helper.sum(first, noise=draws), answer)
        with pytest.raises(wrong):
            helper.sum(second, noise=draws)
        assert helper.batches == 1


def test_cohorts_are_the_same_in_every_attempt(make: Made) -> None:
    """Whoever could draw again by giving a batch up would choose the cohorts it likes."""
    plan = make(heads=heads_of(COHORTS), privacy=COHORTS)
    give_up_unopened(plan)
    dealt: list[Any] = []

    def listen(message: Message, context: Context) -> Message:
        fields, _ = read_content(message.content, most_bytes=2**30)
        reply = real.unmask(message, context)
        dealt.extend([bytes(read_content(reply.content, most_bytes=2**30)[1])] if fields["step"] == "reveal" else [])
        return reply

    run(plan, spoiled(unmask=listen))
    with closing(sqlite3.connect(Path(HelperSettings.load(plan.helper_settings).folder) / "cohorts.db")) as memory:
        assert memory.execute("SELECT count(*) FROM draws").fetchone() == (1,)
    assert dealt
    assert len(set(dealt)) == 1


@pytest.mark.parametrize("odd", [-1, 10**9, "1", 1.0, True])
def test_odd_attempts_are_refused_by_client_and_helper(make: Made, odd: Any) -> None:
    plan = make(heads=("fedncm",), privacy=NOISED)
    with opened(plan) as store:
        terms = store.terms
    with pytest.raises(PrivacyError):
        terms.at(odd)
    helper = HelperKeeper(HelperNode(HelperSettings.load(plan.helper_settings)))
    with pytest.raises(PrivacyError):
        helper.answer("step", {"terms": terms.to_json(), "step": "sum", "attempt": odd}, b"")
    with opened(make(heads=("fedncm",))) as store, pytest.raises(PrivacyError, match="a client reports once"):
        store.terms.at(1)


def test_a_seed_never_comes_out_of_a_helpers_keeper(make: Made) -> None:
    """Whoever has the helper's worker asks its keeper to open one report's seed, by every step."""
    plan = make(heads=("fedncm",), privacy=SUMS)
    with opened(plan) as store:
        terms = store.terms
    keeper = HelperKeeper(HelperNode(HelperSettings.load(plan.helper_settings)))
    key, vector = IdentityKey.generate(), np.arange(terms.layout.size, dtype=np.uint64)
    context = terms.context
    data = make_report(
        vector, context, client="victim", version=1, helper=str(keeper.answer("public", {}, b"")[0]["key"]), key=key
    )
    report = read_report(data, context, len(vector), lambda _: key.public)
    seed = (vector - report.masked).tobytes()  # what a seed would give: its stream
    for sealed in (report.sealed, read_envelope(report.sealed, context).sealed, data):
        assert keeper.answer("prove", {}, sealed)[0] == {"proof": ""}
    request = SumRequest(context, [(report.id, report.sealed)], [(0, len(vector))])
    fields = {"terms": terms.to_json(), "attempt": 0}
    for step in ("sum", "open", "prove", "seed", "reveal", "count", ""):
        try:
            _, answer = keeper.answer("step", {**fields, "step": step}, request.to_bytes())
        except FedMomentsError:
            continue
        assert seed not in answer


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
