"""Secure sums in the deployed apps, all nodes in one process."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, Message
from tests.federation.flower.secure_trials import (
    COHORTS,
    HEADS,
    MEANS,
    SUMS,
    TWO_PHASES,
    Made,
    digests,
    events,
    opened,
    run,
    spoiled,
)

from fedmoments.errors import DeploymentError, InputError, LedgerError, MissingExtraError, PrivacyError
from fedmoments.federation.flower import client_app as real
from fedmoments.federation.flower.helper import HelperNode
from fedmoments.federation.flower.messages import content_of, read_content
from fedmoments.federation.flower.node import Node
from fedmoments.federation.results import fit_heads
from fedmoments.federation.store import FederationStore
from fedmoments.federation.store.journal import journal_of
from fedmoments.federation.store.masked_ledger import BatchReports
from fedmoments.privacy.protection import Agreed
from fedmoments.privacy.secure import SumRequest
from fedmoments.settings.client import ClientSettings
from fedmoments.settings.helper import HelperSettings
from fedmoments.wire import pack_bundle, unpack_bundle


def test_secure_sums_give_the_classifiers_of_clear_sums_bit_for_bit(make: Made) -> None:
    clear, plan = run(make(heads=HEADS), helper=False), make(heads=HEADS, privacy=SUMS)
    found = run(plan)
    assert digests(found) == digests(clear)
    for name in HEADS:
        assert found.fitted[name].statistics_digest == clear.fitted[name].statistics_digest
        assert not found.evaluations[name].n_samples  # nobody allowed it
    assert all("allow_evaluation" in str(failure.reason) for failure in found.failures[:4])
    with opened(plan) as store:
        assert store.verify().whole
        status = store.status()
        assert (status.clients, status.samples, len(status.contributors), status.enrolled) == (12, 300, 1, 12)
        assert [member.client for member in store.enrolled()] == [f"client-{k:04d}" for k in range(12)]


def test_no_number_of_a_client_reaches_the_ledger_or_the_log(make: Made) -> None:
    plan = make(heads=("fedncm",), privacy=SUMS)
    seen: list[bytes] = []

    def listen(message: Message, context: Context) -> Message:
        reply = real.contribute(message, context)
        _, bundle = read_content(reply.content, most_bytes=2**30)
        seen.extend(bytes(item) for item in unpack_bundle(bundle, max_bytes=2**30, max_items=99))
        return reply

    run(plan, spoiled(contribute=listen))
    assert len(seen) == 12
    with opened(plan) as store:
        for entry in store.audit():
            if entry.event == "reported":
                assert set(entry.details) == {"client", "version", "digest", "report", "bytes", "source", "counter"}
    everything = b"".join(path.read_bytes() for path in Path(plan.server.ledger).parent.glob("ledger.db*"))
    for item in seen:  # the masked vectors are erased once they were added up
        assert item[-64:] not in everything


def test_clients_that_drop_out_are_simply_not_in_the_sum(make: Made) -> None:
    clear, plan = make(heads=HEADS), make(heads=HEADS, privacy=SUMS)
    some = run(clear, helper=False, nodes=[0, 1, 3])
    assert digests(run(plan, nodes=[0, 1, 3])) == digests(some)
    with opened(plan) as store:
        assert store.status().clients == 9


def test_who_comes_later_is_a_batch_of_its_own_or_waits(make: Made) -> None:
    plan = make(heads=HEADS, privacy=replace(SUMS, contributors=1))  # of three, fewer may hold a class
    run(plan, nodes=[0, 1, 3])
    late = run(plan)
    assert digests(late) == digests(run(make(heads=HEADS), helper=False))
    with opened(plan) as store:
        assert sorted(store.status().batches.values()) == [3, 9]
        assert store.verify().whole
    other = make(heads=HEADS, privacy=replace(SUMS, batch=4))
    run(other, nodes=[0, 1, 3])
    run(other)
    with opened(other) as store:
        assert (store.status().clients, len(store.status().waiting)) == (9, 3)
        note = [entry.details for entry in store.audit() if entry.details.get("note") == "reports wait"]
        assert "4 clients or more" in note[-1]["reason"]


def test_a_missing_helper_fails_the_run_and_loses_nothing(make: Made) -> None:
    plan = make(heads=HEADS, privacy=SUMS)
    with pytest.raises(DeploymentError, match=r"helper with the key \w{16}… is not there.* 12 clients are kept"):
        run(plan, helper=False)
    with opened(plan) as store:
        assert len(store.status().waiting) == 12
        assert store.status().clients == 0
    found = run(plan)
    assert sum(report.accepted for report in found.rounds) == 0
    assert digests(found) == digests(run(make(heads=HEADS), helper=False))


def test_a_node_that_only_says_it_is_the_helper_is_not_asked(make: Made) -> None:
    plan = make(heads=HEADS, privacy=SUMS)
    with opened(plan) as store:
        key = store.terms.privacy.helper
    asked: list[int] = []

    def boast(message: Message, context: Context) -> Message:
        if context.node_id == 1:
            return Message(content_of({"helper": key, "proof": "ab" * 32}), reply_to=message)
        return real.helper(message, context)

    def listen(message: Message, context: Context) -> Message:
        asked.append(context.node_id)
        return real.unmask(message, context)

    found = run(plan, spoiled(helper=boast, unmask=listen))
    assert asked == [5, 5]  # who holds classes, then their sums
    assert found.rounds[0].accepted == 9  # who says that it is a helper is not asked for data


def test_an_answer_that_is_no_sum_of_masks_spoils_no_ledger(make: Made) -> None:
    for agreed in (SUMS, Agreed(secure="sums", epsilon=4.0)):
        plan = make(heads=HEADS, privacy=agreed)

        def lie(message: Message, context: Context) -> Message:
            reply = real.unmask(message, context)
            _, data = read_content(reply.content, most_bytes=2**30)
            return Message(content_of({}, bytes(b ^ 0x55 for b in data)), reply_to=message)

        with pytest.raises(LedgerError, match="such as no data have"):
            run(plan, spoiled(unmask=lie))
        with opened(plan) as store:
            assert store.status().clients == 0
            assert store.verify().whole
            spent = store.status().spent
            assert spent is None or spent["releases"] == 0


def test_a_report_is_the_same_bytes_however_often_it_is_sent(make: Made) -> None:
    plan = make(nodes=1, clients=3, heads=("fedncm",), privacy=SUMS)
    settings = ClientSettings.load(plan.shared_settings)
    with opened(plan) as store:
        first = Node(settings).contribute(store.terms, most_bytes=2**20)
        again = Node(settings).contribute(store.terms, most_bytes=2**20)
        assert first.bundle == again.bundle
        items = [bytes(item) for item in unpack_bundle(first.bundle, max_bytes=2**20, max_items=9)]
        receipts = store.report_many(items)
        assert store.report_many(items) == receipts
        assert store.status().entries == len(list(store.audit()))
        kept_nowhere = Node(replace(settings, folder="")).contribute(store.terms, most_bytes=2**20)
        assert "must be kept until it is acknowledged" in kept_nowhere.declined[0]["why"]


def test_a_lost_answer_of_the_helper_is_asked_for_again_and_counts_once(make: Made) -> None:
    plan = make(heads=HEADS, privacy=SUMS)
    lost: list[int] = []

    def lose(message: Message, context: Context) -> Message:
        reply = real.unmask(message, context)
        if len(lost) < 1:
            lost.append(1)
            raise OSError("the line is dead")
        return reply

    with pytest.raises(DeploymentError, match=r"did not answer \(OSError: the line is dead\).*run again"):
        run(plan, spoiled(unmask=lose))
    with opened(plan) as store:
        assert [batch.status for batch in store.batches()] == ["asked"]
        with pytest.raises(LedgerError, match="cannot leave by itself"):
            store.leave("client-0003")
    assert digests(run(plan)) == digests(run(make(heads=HEADS), helper=False))
    assert len(events(plan, "collected")) == 1


def test_the_helper_opens_nothing_twice_and_answers_no_other_terms(make: Made) -> None:
    plan = make(heads=("fedncm",), privacy=SUMS)
    asked: list[bytes] = []

    def listen(message: Message, context: Context) -> Message:
        asked.append(read_content(message.content, most_bytes=2**30)[1])
        return real.unmask(message, context)

    run(plan, spoiled(unmask=listen))
    with opened(plan) as store:
        terms = store.terms
    helper = HelperNode(HelperSettings.load(plan.helper_settings))
    learned, data = asked
    (piece,) = unpack_bundle(data, max_bytes=2**30, max_items=1)
    request = SumRequest.from_bytes(bytes(piece))
    assert helper.answer(terms, "open", data) == helper.answer(terms, "open", data)
    assert helper.answer(terms, "learn", learned) == helper.answer(terms, "learn", learned)
    fewer = SumRequest(request.context, request.reports[:-1], request.blocks)
    with pytest.raises(PrivacyError, match="groups are opened whole"):
        helper.answer(terms, "open", pack_bundle([fewer.to_bytes()]))
    for stop, why in ((-1, "was unmasked before"), (2, "3 reports or more")):
        part = SumRequest(request.context, request.reports[:stop], [(0, 3)]).to_bytes()
        with pytest.raises(PrivacyError, match=why):
            helper.answer(terms, "learn", pack_bundle([part, bytes(8 * 3)]))
    with pytest.raises(PrivacyError, match="have the steps learn, open, but not 'sum'"):
        helper.answer(terms, "sum", request.to_bytes())
    with pytest.raises(PrivacyError, match="not 'draw'"):
        helper.answer(terms, "draw", data)
    other = replace(terms, nonce="other")
    with pytest.raises(Exception, match="let its operator read those terms first"):
        helper.answer(other, "sum", data)


@pytest.mark.parametrize(("heads", "agreed"), [(HEADS, SUMS), (MEANS, COHORTS), (("fedcof",), TWO_PHASES)])
@pytest.mark.parametrize("data", [b"", b"abc", bytes(10**6)])
def test_an_answer_that_makes_no_sense_costs_no_report(
    make: Made, heads: tuple[str, ...], agreed: Agreed, data: bytes
) -> None:
    plan = make(heads=heads, privacy=agreed)
    with pytest.raises(DeploymentError, match="is not there"):  # so that cohorts are drawn when all reports are in
        run(plan, helper=False)

    def babble(message: Message, _: Context) -> Message:
        return Message(content_of({}, data), reply_to=message)

    with pytest.raises(DeploymentError, match="helper"):
        run(plan, spoiled(unmask=babble))
    with opened(plan) as store:
        kept = [*store.status().waiting, *(client for batch in store.batches() for client in batch.clients)]
        assert len(kept) == 12
    assert run(plan).fitted


def test_a_client_node_is_no_helper_and_a_helper_no_client(make: Made) -> None:
    plan = make(heads=("fedncm",), privacy=SUMS)
    with opened(plan) as store:
        words = {"terms": store.terms.to_json(), "step": "sum"}
        ask = {"terms": store.terms.to_json(), "most_bytes": 10, "again": False, "after": ""}
    from fedmoments.federation.flower.grid import InProcessGrid, _identify

    _identify()
    client = {"client-config": str(plan.shared_settings), "num-partitions": 4, "partition-id": 0}
    grid = InProcessGrid(real.app, [client, {"helper-config": str(plan.helper_settings)}])
    kinds: list[tuple[int, str, dict[str, Any]]] = [
        (1, "query.unmask", words),
        (2, "query.contribute", ask),
        (2, "query.evaluate", {**words, "over": True}),
    ]
    replies = list(grid.send_and_receive([Message(content_of(told, b""), node, kind) for node, kind, told in kinds]))
    said = [str(reply.error.reason) for reply in replies]
    assert "this node is not a helper" in said[0]
    assert "contributes nothing" in said[1]
    assert "evaluates nothing" in said[2]


@pytest.mark.parametrize(("heads", "agreed"), [(HEADS, SUMS), (MEANS, COHORTS), (("fedcof",), TWO_PHASES)])
def test_a_report_that_the_helper_cannot_open_is_left_out_and_named(
    make: Made, heads: tuple[str, ...], agreed: Agreed
) -> None:
    plan = make(heads=heads, privacy=agreed)
    with opened(plan) as store:
        terms = store.terms
    from fedmoments.federation.flower.node import identity_of
    from fedmoments.privacy.secure import HelperKey, make_report

    settings = ClientSettings.load(plan.shared_settings)

    def forge(message: Message, context: Context) -> Message:
        reply = real.contribute(message, context)
        if context.node_id != 2:
            return reply
        words, bundle = read_content(reply.content, most_bytes=2**30)
        items = [bytes(item) for item in unpack_bundle(bundle, max_bytes=2**30, max_items=99)]
        zero = np.zeros(terms.layout.size, np.uint64)
        key = identity_of(settings, "client-0001")
        sealed_for_another = HelperKey.generate().public
        items[0] = make_report(zero, terms.context, client="client-0001", version=1, helper=sealed_for_another, key=key)
        return Message(content_of(words, pack_bundle(items)), reply_to=message)

    found = run(plan, spoiled(contribute=forge))
    assert found.fitted
    [reopened] = events(plan, "reopened")
    assert reopened["without"] == ["client-0001"]
    assert "does not open" in reopened["reason"]
    with opened(plan) as store:
        assert store.status().clients == 11
        assert store.verify().whole


def test_a_sum_that_no_data_have_is_not_taken_in_and_its_batch_can_be_given_up(make: Made) -> None:
    plan = make(heads=HEADS, privacy=SUMS)
    with opened(plan) as store:
        terms = store.terms
    from fedmoments.federation.flower.node import identity_of
    from fedmoments.privacy.secure import make_report

    settings = ClientSettings.load(plan.shared_settings)

    def lie(message: Message, context: Context) -> Message:
        reply = real.contribute(message, context)
        if context.node_id != 2:
            return reply
        words, bundle = read_content(reply.content, most_bytes=2**30)
        items = [bytes(item) for item in unpack_bundle(bundle, max_bytes=2**30, max_items=99)]
        vector = np.full(terms.layout.size, 2**62, np.uint64)
        key, public = identity_of(settings, "client-0001"), terms.privacy.helper
        items[0] = make_report(vector, terms.context, client="client-0001", version=1, helper=public, key=key)
        return Message(content_of(words, pack_bundle(items)), reply_to=message)

    with pytest.raises(LedgerError, match=r"such as no data have.*the masks hide which client"):
        run(plan, spoiled(contribute=lie))
    with opened(plan) as store:
        assert [batch.status for batch in store.batches()] == ["asked"]
        assert store.status().samples == 0
        store.leave(store.batches()[0].name)
        assert [batch.status for batch in store.batches()] == ["left"]
        assert store.verify().whole


@pytest.mark.parametrize("agreed", [SUMS, Agreed(secure="sums", epsilon=4.0)])
def test_a_batch_is_not_taken_out_for_what_its_sum_is_innocent_of(
    make: Made, monkeypatch: pytest.MonkeyPatch, agreed: Agreed
) -> None:
    plan = make(heads=("fedncm",), privacy=agreed)

    def fail(*_: Any) -> None:
        raise error

    for error in (LedgerError("the disk fails"), MissingExtraError("Noise", "dp-accounting", "privacy")):
        with monkeypatch.context() as patched:
            patched.setattr(BatchReports, "masked", fail)
            with pytest.raises(type(error)):
                run(plan)
        with opened(plan) as store:
            assert [batch.status for batch in store.batches()] == ["asked"]
    assert run(plan).fitted
    with opened(plan) as store:
        assert store.status().clients == 12


def test_a_batch_leaves_as_a_whole_and_its_members_do_not_come_back(make: Made) -> None:
    plan = make(heads=HEADS, privacy=SUMS)
    run(plan)
    with opened(plan) as store:
        [name] = store.status().batches
        with pytest.raises(LedgerError, match=f"'{name}' of 12 clients.*The whole batch can be removed"):
            store.leave("client-0003")
        receipt = store.leave(name)
        assert store.leave(name) == receipt
        assert store.status().clients == 0
        assert store.statistics().n_samples == 0
        assert store.verify().whole
        settings = replace(ClientSettings.load(plan.shared_settings), folder=f"{plan.folder}/new", partitions=(3,))
        offer = Node(settings).contribute(store.terms, most_bytes=2**20)
        [item] = unpack_bundle(offer.bundle, max_bytes=2**20, max_items=9)
        [refused] = store.report_many([bytes(item)])
        assert "was in a sum that was removed" in str(refused)


def test_a_waiting_report_can_be_withdrawn_and_replaced(make: Made) -> None:
    plan = make(heads=HEADS, privacy=SUMS)
    with pytest.raises(DeploymentError):
        run(plan, helper=False)
    with opened(plan) as store:
        assert store.leave("client-0003").event == "withdrawn"
        assert store.verify().whole
    found = run(plan)
    with opened(plan) as store:
        assert store.status().clients == 11
    assert found.fitted


def test_a_secure_ledger_survives_a_snapshot(make: Made, tmp_path: Path) -> None:
    plan = make(heads=HEADS, privacy=SUMS)
    run(plan)
    with opened(plan) as store:
        store.snapshot(tmp_path / "copy")
        state = store.digest()
    journal = journal_of(Path(plan.server.ledger))
    with FederationStore.restore(tmp_path / "copy", tmp_path / "again", journal=journal) as restored:
        assert restored.digest() == state
        assert restored.verify().whole
        assert fit_heads(restored, ["fed3r"])["fed3r"].classifier.digest()


def test_clear_numbers_are_not_taken_where_masks_were_agreed_on(make: Made) -> None:
    plan = make(heads=HEADS, privacy=SUMS)
    with opened(plan) as store, pytest.raises(InputError, match="masked reports only"):
        store.submit(b"anything")


def test_a_policy_can_ask_for_masks_and_for_noise(make: Made) -> None:
    plan = make(heads=HEADS, policy={"min_count": 1, "require_secure": True})
    with pytest.raises(DeploymentError, match="require_secure: the terms let the server read every contribution"):
        run(plan, helper=False)
    noisy = make(heads=HEADS, policy={"min_count": 1, "max_epsilon": 1.0}, privacy=Agreed(epsilon=2.0))
    with pytest.raises(DeploymentError, match="max_epsilon: the terms promise an epsilon of 2, allowed is 1"):
        run(noisy, helper=False)
    assert run(make(heads=HEADS, policy={"min_count": 1, "require_secure": True}, privacy=SUMS)).fitted


def test_quorum_counts_the_members_of_batches(make: Made) -> None:
    plan = make(heads=HEADS, privacy=SUMS)
    with pytest.raises(DeploymentError, match=r"12 clients .* were requested .* has 9"):
        run(plan, nodes=[0, 1, 3], quorum=12)
    assert run(plan, quorum=12).fitted
