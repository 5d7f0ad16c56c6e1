"""The two apps in one process: what a run gives, and what it gives when clients misbehave."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp

from fedmoments import Statistics, load, make_head
from fedmoments.errors import DeploymentError, InputError, MissingMomentError
from fedmoments.federation.deploy.local import LocalFederation, run_local
from fedmoments.federation.flower import client_app as real
from fedmoments.federation.flower.grid import InProcessGrid, run_in_process
from fedmoments.federation.flower.holdings import Holdings
from fedmoments.federation.flower.measured import measure_held
from fedmoments.federation.flower.messages import (
    ACKNOWLEDGE,
    CONTRIBUTE,
    EVALUATE,
    GREET,
    HELPER,
    PRESENT,
    SCORE,
    SECOND,
    TEMPERATURE,
    TUNE,
    UNMASK,
    content_of,
    read_content,
)
from fedmoments.federation.flower.node import Node, identity_of
from fedmoments.federation.flower.server import FederationRun, Progress, run_federation
from fedmoments.federation.results import fit_heads
from fedmoments.federation.store import FederationStore, Receipt
from fedmoments.settings.client import ClientSettings
from fedmoments.settings.files import with_values
from fedmoments.settings.server import ServerSettings
from fedmoments.wire import encode, pack_bundle, unpack_bundle

Made = Callable[..., LocalFederation]


def node_configs(plan: LocalFederation) -> list[dict[str, Any]]:
    common = {"client-config": str(plan.shared_settings), "num-partitions": plan.nodes}
    return [{**common, "partition-id": node} for node in range(plan.nodes)]


def run(
    plan: LocalFederation, app: ClientApp = real.app, progress: Progress | None = None, **changes: Any
) -> FederationRun:
    """Run a federation with some client app and return what happened."""
    from flwr.serverapp import ServerApp

    found: list[FederationRun] = []
    server = ServerApp()

    @server.main()
    def main(grid: Any, _: Context) -> None:
        found.append(run_federation(grid, replace(plan.server, **changes), progress))

    run_in_process(server, app, node_configs(plan), {})
    return found[0]


def spoiled(at: set[int], how: Any) -> ClientApp:
    """Return the client app, with the answers to one kind of message changed for some nodes."""
    app = ClientApp()

    def contribute(message: Message, context: Context) -> Message:
        reply = real.contribute(message, context)
        return how(message, reply, context) if context.node_id in at else reply

    app.query("contribute")(contribute)
    app.query("acknowledge")(real.acknowledge)
    app.query("evaluate")(real.evaluate)
    return app


def test_a_run_equals_merging_what_every_client_measured(make: Made) -> None:
    plan = make()
    found = run(plan)
    assert [report.accepted for report in found.rounds] == [12]
    with FederationStore.open(plan.server.ledger) as store:
        holdings = Holdings(ClientSettings.load(plan.shared_settings), store.terms)
        parts = [measure_held(holdings.train(client), store.terms) for client in holdings.clients]
        merged = Statistics.merge(parts)
        assert store.statistics().digest() == merged.digest()
        assert store.verify().whole
        by_hand = make_head("fedcof").fit(merged.restricted(make_head("fedcof").needs))
    assert found.fitted["fedcof"].classifier.digest() == by_hand.digest()
    assert found.evaluations["fedcof"].n_samples == 90
    assert found.evaluations["fedcof"].accuracy > 0.9
    ranks = found.fitted["fedcof"].classifier.ranks
    assert ranks is not None
    assert ranks.counts.sum() <= 90
    assert ranks.temperature == by_hand.temperature


@pytest.mark.parametrize("nodes", [1, 5, 12])
def test_how_clients_are_spread_over_nodes_changes_nothing(make: Made, nodes: int) -> None:
    one, other = run(make(nodes=4)), run(make(nodes=nodes))
    for head in ("fedcof", "fedncm"):
        assert one.fitted[head].classifier.digest() == other.fitted[head].classifier.digest()
        assert one.fitted[head].statistics_digest == other.fitted[head].statistics_digest
        assert other.evaluations[head].accuracy == pytest.approx(one.evaluations[head].accuracy, abs=0.02)


def test_progress_names_a_client_that_has_a_node_to_itself(make: Made) -> None:
    told: list[str] = []

    def named(plan: LocalFederation) -> list[str]:
        told.clear()
        run(plan, progress=lambda *words: told.append(words[2]))
        return sorted(words.removesuffix(" acknowledged") for words in told if words.endswith(" acknowledged"))

    clients = named(make(nodes=12))
    with FederationStore.open(make(nodes=12).server.ledger) as store:
        assert clients == sorted(member.client for member in store.enrolled())
    assert named(make(nodes=2)) == ["node 1", "node 2"]


def test_rounds_of_partial_participation_reach_the_same_state(make: Made) -> None:
    whole, rounds = run(make(nodes=12)), run(make(nodes=12, rounds=4, per_round=3, fit_each_round=True))
    assert [len(report.asked) for report in rounds.rounds] == [3, 3, 3, 3]
    asked = [node for report in rounds.rounds for node in report.asked]
    assert sorted(asked) == list(range(1, 13))
    assert rounds.fitted["fedcof"].classifier.digest() == whole.fitted["fedcof"].classifier.digest()


def test_a_later_run_against_the_same_ledger_takes_in_who_was_missing(make: Made) -> None:
    plan = make(nodes=12)
    early = run(plan, per_round=5, quorum=1)
    assert early.rounds[0].accepted == 5
    late = run(plan)
    assert late.fitted["fedcof"].classifier.digest() == run(make(nodes=12)).fitted["fedcof"].classifier.digest()
    with FederationStore.open(plan.server.ledger) as store:
        joined = [entry for entry in store.audit() if entry.event == "joined"]
        assert len(joined) == 12
        assert store.verify().whole


def test_too_few_clients_fail_the_run_and_lose_nothing(make: Made) -> None:
    plan = make(nodes=12)
    with pytest.raises(DeploymentError, match=r"7 clients with samples were requested .*, and the ledger has 5"):
        run(plan, per_round=5, quorum=7)
    with FederationStore.open(plan.server.ledger) as store:
        assert store.status().clients == 5


def test_too_few_nodes_fail_the_run_in_time(make: Made) -> None:
    with pytest.raises(DeploymentError, match=r"4 of 9 nodes came within 0.2 s"):
        run(make(), nodes=9, wait=0.2, poll=0.05)


def test_a_client_that_raises_is_named_and_the_round_goes_on(make: Made) -> None:
    def fail(message: Message, reply: Message, context: Context) -> Message:
        raise ValueError("the disk is on fire")

    plan = make()
    found = run(plan, spoiled({2}, fail))
    report = found.rounds[0]
    assert report.accepted == 9
    assert [(each.node, each.code) for each in report.failures] == [("2", 2)]
    assert "the disk is on fire" in (report.failures[0].reason or "")
    with FederationStore.open(plan.server.ledger) as store:
        assert any("on fire" in str(entry.details) for entry in store.audit())
        assert store.status().clients == 9


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (content_of({"declined": [], "more": False}, b"no bundle at all"), "is invalid"),
        (content_of({"more": False}, pack_bundle([])), "is invalid"),
        (content_of({"declined": 3}, pack_bundle([])), "is invalid"),
        (RecordDict({}), "is invalid"),
        (content_of({"clients": [], "more": False, "declined": [{"client": "x"}]}, pack_bundle([])), "is invalid"),
        (content_of({"clients": {}, "more": False, "declined": []}, pack_bundle([])), "is invalid"),
        (content_of({"clients": [], "more": True, "declined": []}, pack_bundle([b""] * 5000)), "is invalid"),
        (RecordDict({"words": ConfigRecord({"json": "[" * 100_000})}), "is invalid"),
        (RecordDict({"words": ConfigRecord({"json": "{" + " " * 2**25 + "}"})}), "is invalid"),
    ],
)
def test_a_reply_without_sense_spoils_only_itself(make: Made, content: RecordDict, why: str) -> None:
    app = spoiled({1}, lambda message, reply, context: Message(content, reply_to=message))
    report = run(make(), app).rounds[0]
    assert report.accepted == 9
    assert why in (report.failures[0].reason or "")


def test_what_a_node_declines_is_cut_and_cleaned_before_it_is_written_anywhere(make: Made, tmp_path: Path) -> None:
    told = [{"client": "x\ud800" * 70, "why": "\ud800\x1b[31m" + "y" * 1000}] * 3000
    words = {"clients": [], "more": False, "declined": told}
    app = spoiled({1}, lambda message, reply, context: Message(content_of(words, pack_bundle([])), reply_to=message))
    plan = make(out=str(tmp_path / "out"))
    found = run(plan, app)
    assert found.rounds[0].accepted == 9
    assert found.rounds[0].counts["declined"] == 3000
    assert len(found.rounds[0].declined) == 20
    assert (tmp_path / "out" / "federation.json").stat().st_size < 10**6
    with FederationStore.open(plan.server.ledger) as store:
        [entry] = [entry.details for entry in store.audit() if entry.details.get("note") == "declined"]
        assert (entry["count"], len(entry["clients"])) == (3000, 20)


def test_an_error_without_a_word_is_an_error_all_the_same(make: Made) -> None:
    app = spoiled({1}, lambda message, reply, context: Message(Error(2, " \n"), reply_to=message))
    report = run(make(), app).rounds[0]
    assert (report.failures[0].reason or "") == "no reason given"
    assert report.accepted == 9


def test_refusals_are_logged_with_the_node_that_sent_them(make: Made) -> None:
    def cut(message: Message, reply: Message, context: Context) -> Message:
        words, bundle = read_content(reply.content, most_bytes=2**30)
        items = [bytes(item)[:-1] for item in unpack_bundle(bundle, max_bytes=2**30, max_items=100)]
        return Message(content_of(words, pack_bundle(items)), reply_to=message)

    plan = make()
    run(plan, spoiled({2, 3}, cut))
    with FederationStore.open(plan.server.ledger) as store:
        refused = [entry.details["source"] for entry in store.audit() if entry.event == "refused"]
        joined = {entry.details["source"] for entry in store.audit() if entry.event == "joined"}
    assert set(refused) == {"node 2", "node 3"}
    assert joined == {"node 1", "node 4"}


def test_a_first_round_that_fits_nothing_does_not_end_the_run(make: Made) -> None:
    found = run(make(nodes=12, rounds=12, per_round=1, fit_each_round=True, heads=("fedcof",)))
    assert len(found.rounds) == 12
    assert "fedcof" in found.fitted


def test_a_head_that_the_terms_do_not_serve_is_refused_before_anybody_is_asked(make: Made) -> None:
    plan = make()
    with pytest.raises(MissingMomentError, match="gram"):
        run(plan, heads=("fed3r",))
    with FederationStore.open(plan.server.ledger) as store:
        assert store.status().clients == 0


def test_a_client_that_read_no_terms_loads_no_code_that_a_server_names(make: Made, tmp_path: Path) -> None:
    plan = make()
    evil = tmp_path / "evil.py"
    evil.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\ndef f(x): return x\n", "utf-8")
    with FederationStore.open(plan.server.ledger) as store:
        terms = replace(store.terms, encoder={"name": f"torch:{evil}:f", "options": {}})
    settings = replace(ClientSettings.load(plan.shared_settings), federation="")
    offer = Node(settings).contribute(terms, most_bytes=2**20)
    assert "nothing of it was loaded" in offer.declined[0]["why"]
    assert not (tmp_path / "ran").exists()
    with pytest.raises(InputError, match="no other options than size"):
        replace(terms, encoder={"name": "identity", "options": {"data": "csv:/etc/passwd"}})


def test_one_bad_receipt_does_not_lose_the_others(make: Made, tmp_path: Path) -> None:
    plan = make(nodes=1, clients=3)
    settings = replace(ClientSettings.load(plan.shared_settings), folder=str(tmp_path / "own"))
    with FederationStore.open(plan.server.ledger) as store:
        node = Node(settings)
        offer = node.contribute(store.terms, most_bytes=2**20)
        items = [bytes(item) for item in unpack_bundle(offer.bundle, max_bytes=2**30, max_items=9)]
        kept = [receipt for receipt in store.submit_many(items) if isinstance(receipt, Receipt)]
        receipts = [receipt.to_json() for receipt in kept]
        refusal = {"federation": store.terms.id, "client": "nobody", "version": 9, "reason": "x", "sentence": "y"}
        shown = store.show([receipt.seq for receipt in kept])
        problems = node.acknowledge([receipts[0], "{}", *receipts[1:]], [refusal], shown)
        assert len(problems) == 2
        assert node.contribute(store.terms, most_bytes=2**20).clients == ()


def test_a_client_with_a_new_key_signs_anew(make: Made, tmp_path: Path) -> None:
    plan = make(nodes=1, clients=2)
    settings = replace(ClientSettings.load(plan.shared_settings), folder=str(tmp_path / "own"))
    with FederationStore.open(plan.server.ledger) as store:
        first = Node(settings).contribute(store.terms, most_bytes=2**20)
        again = Node(settings).contribute(store.terms, most_bytes=2**20)
        other = Node(replace(settings, key_seed="another")).contribute(store.terms, most_bytes=2**20)
    assert first.bundle == again.bundle != other.bundle


def test_contributions_that_are_not_right_are_refused_one_by_one(make: Made) -> None:
    def change(message: Message, reply: Message, context: Context) -> Message:
        words, bundle = read_content(reply.content, most_bytes=2**30)
        items = [bytes(item) for item in unpack_bundle(bundle, max_bytes=2**30, max_items=100)]
        items[0] = items[0][:-1]
        items[1] = items[1][:-1] + bytes([items[1][-1] ^ 1])
        return Message(content_of(words, pack_bundle(items)), reply_to=message)

    plan = make()
    report = run(plan, spoiled({3}, change)).rounds[0]
    assert report.accepted == 10
    assert sorted(str(each.reason) for each in report.refused) == ["truncated", "wrong-digest"]
    with FederationStore.open(plan.server.ledger) as store:
        assert store.status().clients == 10
        assert {entry.details["reason"] for entry in store.audit() if entry.event == "refused"} == {
            "truncated",
            "wrong-digest",
        }


def test_a_client_cannot_speak_for_another(make: Made) -> None:
    plan = make()
    with FederationStore.open(plan.server.ledger) as store:
        terms = store.terms
    settings = ClientSettings.load(plan.shared_settings)
    victim = Holdings(settings, terms).clients[0]

    def pretend(message: Message, reply: Message, context: Context) -> Message:
        stats = Statistics.zero(terms.spec, n_classes=3, dim=6, fixed_point=terms.fixed_point)
        key = identity_of(settings, "client-0003")
        forged = encode(stats, terms.agreement, client=victim, version=9, key=key)
        return Message(
            content_of({"clients": [], "declined": [], "more": False}, pack_bundle([forged])), reply_to=message
        )

    report = run(plan, spoiled({4}, pretend)).rounds[0]
    assert [str(each.reason) for each in report.refused] == ["bad-signature"]
    assert report.accepted == 9


def test_bundles_that_are_too_small_for_all_are_sent_in_parts(make: Made) -> None:
    plan = make(nodes=1)
    parts, whole = run(plan, bundle_bytes=1500), run(make(nodes=1))
    assert parts.rounds[0].accepted == 12
    assert parts.fitted["fedcof"].classifier.digest() == whole.fitted["fedcof"].classifier.digest()


@pytest.mark.parametrize("rows", ["float16", "bfloat16"])
def test_rows_in_half_precision_cost_a_quarter_and_change_little(make: Made, rows: str) -> None:
    plan, whole = make(), make()
    with FederationStore.open(plan.server.ledger) as store:
        terms, members = store.terms, store.enrolled()
    narrow = replace(plan, server=replace(plan.server, ledger=f"{plan.server.ledger}.{rows}"))
    with FederationStore.create(narrow.server.ledger, replace(terms, rows=rows)) as store:
        store.enrol_many((each.client, each.key, each.node_key) for each in members)
    settings = replace(ClientSettings.load(plan.shared_settings), federation="")
    plan.shared_settings.write_text(settings.to_toml(), "utf-8")
    small, exact = run(narrow), run(whole)
    assert small.rounds[0].accepted == 12
    assert 0 < (small.rounds[0].bytes or 0) < (exact.rounds[0].bytes or 0)
    assert small.fitted["fedcof"].classifier.digest() != exact.fitted["fedcof"].classifier.digest()
    assert abs(small.evaluations["fedcof"].accuracy - exact.evaluations["fedcof"].accuracy) < 0.05


def test_a_client_answers_only_the_terms_that_it_read(make: Made) -> None:
    plan = make()
    with FederationStore.open(plan.server.ledger) as store:
        terms, members = store.terms, store.enrolled()
    other = replace(plan.server, ledger=f"{plan.server.ledger}.other")
    with FederationStore.create(other.ledger, replace(terms, nonce="other")) as store:
        store.enrol_many((each.client, each.key, each.node_key) for each in members)
    with pytest.raises(DeploymentError, match="read those first"):
        run(replace(plan, server=other))
    with FederationStore.open(other.ledger) as store:
        assert store.status().clients == 0


def test_a_head_that_cannot_be_fitted_fails_no_other(make: Made) -> None:
    plan = make(nodes=1, clients=1)
    found = run(plan)
    assert set(found.fitted) == {"fedncm"}
    assert "fedcof" in found.unfitted
    with pytest.raises(DeploymentError, match="no head could be fitted"):
        run(plan, heads=("fedcof",))


def test_a_policy_withholds_and_the_ledger_says_so(make: Made) -> None:
    plan = make(policy={"min_count": 8})
    run(plan)
    with FederationStore.open(plan.server.ledger) as store:
        rows = store.statistics().row_counts
        assert rows.min() >= 8
        withheld = [entry.details["withheld"]["samples"] for entry in store.audit() if entry.event == "joined"]
        assert sum(withheld) == 300 - store.status().samples > 0


def test_a_policy_that_forbids_the_terms_declines(make: Made) -> None:
    plan = make(policy={"moments": ["sums"]})
    with pytest.raises(DeploymentError, match="quorum"):
        run(plan)
    with FederationStore.open(plan.server.ledger) as store:
        declined = [entry.details for entry in store.audit() if entry.details.get("note") == "declined"]
        assert len(declined) == 4
        assert "client_means" in declined[0]["clients"][0]["why"]


def test_every_message_type_is_known_to_the_client_app() -> None:
    known = real.app._registered_funcs
    tuning = {GREET, TUNE, SCORE, TEMPERATURE}
    assert set(known) == {CONTRIBUTE, ACKNOWLEDGE, EVALUATE, HELPER, PRESENT, SECOND, UNMASK} | tuning


def test_the_grid_gives_each_recipient_a_content_of_its_own(make: Made) -> None:
    seen: list[bytes] = []
    app = ClientApp()

    @app.query("contribute")
    def spoil(message: Message, context: Context) -> Message:
        words, data = read_content(message.content, most_bytes=10)
        seen.append(data)
        message.content.config_records["words"]["json"] = '{"changed": true}'
        message.content.array_records["bytes"]["bytes"].data = b"changed"
        return Message(content_of(words), reply_to=message)

    from fedmoments.federation.flower.grid import _identify

    _identify()
    grid = InProcessGrid(app, [{}, {}, {}])
    shared = content_of({"terms": 1}, b"same")
    replies = list(grid.send_and_receive([Message(shared, node, CONTRIBUTE) for node in grid.get_node_ids()]))
    assert seen == [b"same"] * 3
    assert [read_content(reply.content, most_bytes=0)[0] for reply in replies] == [{"terms": 1}] * 3


def test_the_files_of_a_run_hold_the_classifier_that_was_fitted(make: Made, tmp_path: Path) -> None:
    plan = make(out=str(tmp_path / "out"))
    run_local(replace(plan, server=replace(plan.server, out=str(tmp_path / "out"))), "memory")
    with FederationStore.open(plan.server.ledger) as store:
        again = fit_heads(store, ["fedcof"])["fedcof"].classifier
    saved = load(tmp_path / "out" / "heads" / "fedcof.safetensors")
    assert saved.digest() == again.digest()
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert saved.digest()[:16] in page


def test_the_settings_of_both_sides_survive_their_files(make: Made, tmp_path: Path) -> None:
    plan = make(hyper={"fedcof": {"shrinkage": "relative:0.5"}})
    path = tmp_path / "server.toml"
    path.write_text(plan.server.to_toml(), "utf-8")
    assert ServerSettings.load(path) == plan.server
    client = ClientSettings.load(plan.shared_settings)
    path.write_text(client.to_toml(), "utf-8")
    assert ClientSettings.load(path) == client
    assert with_values(client, {"threads": 3}, "here").threads == 3
    np.testing.assert_equal(client.clients, 12)
