"""A node's policy: small classes that are merged, counts that are blurred, and what the record tells of both."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")
pytest.importorskip("cryptography")

from fedmoments.federation.deploy.local import LocalFederation
from fedmoments.federation.evaluation import LocalEvaluation
from fedmoments.federation.flower.choosing import Chooser
from fedmoments.federation.flower.holdings import Holdings
from fedmoments.federation.flower.node import Node, identity_of
from fedmoments.federation.flower.testing import Examiner
from fedmoments.federation.policy import ClientPolicy
from fedmoments.federation.store import FederationStore
from fedmoments.federation.terms import Terms
from fedmoments.settings.client import ClientSettings
from fedmoments.wire import Contribution, decode, unpack_bundle

Made = Callable[..., LocalFederation]


@pytest.fixture
def trial(make: Made) -> tuple[ClientSettings, Terms]:
    """Settings of a node that serves all twelve clients, and the terms."""
    plan = make(nodes=1)
    with FederationStore.open(plan.server.ledger) as store:
        return ClientSettings.load(plan.shared_settings), store.terms


def offered(settings: ClientSettings, terms: Terms) -> dict[str, Contribution]:
    offer = Node(settings).contribute(terms, most_bytes=2**40)
    assert not offer.declined
    items = unpack_bundle(offer.bundle, max_bytes=2**40, max_items=2**20)
    found = [decode(item, terms.agreement, lambda name: identity_of(settings, name).public) for item in items]
    return {each.client: each for each in found}


def record(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "record.jsonl").read_text().splitlines()]


def total(sent: dict[str, Contribution]) -> Any:
    return sum(each.statistics.counts for each in sent.values())


def test_without_a_rule_small_classes_stay_at_home(trial: Any) -> None:
    settings, terms = trial
    sent = offered(replace(settings, policy={}), terms)
    assert min(each.statistics.class_counts.min(initial=5) for each in sent.values()) >= 5
    assert total(sent).sum() + sum(each.withheld.samples for each in sent.values()) == 300
    assert sum(each.withheld.samples for each in sent.values()) > 0


def test_small_classes_are_measured_once_by_another_client_of_the_node(trial: Any, tmp_path: Path) -> None:
    settings, terms = trial
    merging = replace(settings, policy={"small_classes": "merge", "min_count": 8}, folder=str(tmp_path / "box"))
    sent = offered(merging, terms)
    assert min(each.statistics.class_counts.min(initial=8) for each in sent.values()) >= 8
    np.testing.assert_array_equal(total(sent), [100, 100, 100])  # all together have enough of every class
    audits = {line["client"]: line for line in record(tmp_path / "box") if line["event"] == "audited"}
    given = {(a, b): n for a, line in audits.items() for b, n in line.get("merged", {}).get("given", {}).items()}
    taken = {(a, b): n for b, line in audits.items() for a, n in line.get("merged", {}).get("taken", {}).items()}
    assert given == taken
    assert sum(given.values()) == sum(each.withheld.samples for each in sent.values()) > 0


def test_a_merged_contribution_holds_the_samples_that_its_client_took(trial: Any) -> None:
    settings, terms = trial
    policy = ClientPolicy(min_count=8, small_classes="merge")
    holdings = Holdings(settings, terms)
    chooser = Chooser(holdings, policy, terms)
    everything = np.concatenate([chooser.choose(client).held.X for client in holdings.clients])
    whole = np.concatenate([holdings.train(client).X for client in holdings.clients])
    np.testing.assert_array_equal(np.sort(everything, axis=0), np.sort(whole, axis=0))


def test_what_is_withheld_is_told_only_if_the_policy_says_so_but_always_recorded(trial: Any, tmp_path: Path) -> None:
    settings, terms = trial
    silent = replace(settings, policy={"min_count": 8, "report_withheld": False}, folder=str(tmp_path / "box"))
    sent = offered(silent, terms)
    assert sum(each.withheld.samples for each in sent.values()) == 0
    audits = [line for line in record(tmp_path / "box") if line["event"] == "audited"]
    assert sum(line["kept_back"]["samples"] for line in audits) == 300 - total(sent).sum() > 0


def test_the_record_tells_what_is_revealed_before_it_tells_that_it_was_sent(trial: Any, tmp_path: Path) -> None:
    settings, terms = trial
    open_handed = replace(settings, policy={"min_count": 1}, folder=str(tmp_path / "box"))
    sent = offered(open_handed, terms)
    lines = record(tmp_path / "box")
    for client, each in sent.items():
        mine = [line for line in lines if line["client"] == client]
        assert [line["event"] for line in mine] == ["audited", "prepared", "sent"]
        single = int((each.statistics.class_counts == 1).sum())
        assert mine[0]["reveals"].get("exposed", {}).get("sample", 0) == single
        assert mine[0]["policy"]["min_count"] == 1
        assert "replaces" not in mine[0]
    offered(replace(open_handed, policy={"min_count": 2, "small_changes": True}), terms)
    audits = [line for line in record(tmp_path / "box") if line["event"] == "audited"]
    assert {line["replaces"] for line in audits if line["version"] == 2} == {1}


# -------------------------------------------------------------------------------------------------- obfuscation


def test_blurred_counts_are_drawn_once_and_sent_again_as_the_very_same_bytes(trial: Any, tmp_path: Path) -> None:
    settings, terms = trial
    for folder in ("", str(tmp_path / "box")):
        blurring = replace(settings, policy={"min_count": 1, "obfuscate": "laplace:0.2"}, folder=folder)
        first = Node(blurring).contribute(terms, most_bytes=2**40)
        again = Node(blurring).contribute(terms, most_bytes=2**40)
        assert first.bundle == again.bundle
    true, blurred = offered(settings, terms), offered(blurring, terms)
    differ = [not np.array_equal(true[k].statistics.counts, blurred[k].statistics.counts) for k in true]
    assert sum(differ) >= 10
    for client, each in blurred.items():
        means = each.statistics.rows.block_means()
        ours = true[client].statistics
        where = np.searchsorted(ours.classes, each.statistics.classes)
        np.testing.assert_allclose(means, ours.rows.block_means()[where], atol=1e-6)
    audits = [line for line in record(tmp_path / "box") if line["event"] == "audited"]
    assert {line["policy"]["obfuscate"] for line in audits} == {"laplace:0.2"}


def test_clients_of_a_node_have_noise_of_their_own(trial: Any) -> None:
    settings, terms = trial
    true = offered(settings, terms)
    sent = offered(replace(settings, policy={"min_count": 1, "obfuscate": "laplace:0.1"}), terms)
    noise = {tuple((sent[k].statistics.counts - true[k].statistics.counts).tolist()) for k in true}
    assert len(noise) > 8


def test_a_policy_that_blurs_beside_a_gram_declines(make: Made) -> None:
    plan = make(nodes=1, heads=("fed3r",), policy={"obfuscate": "laplace:0.5"})
    with FederationStore.open(plan.server.ledger) as store:
        terms = store.terms
    offer = Node(ClientSettings.load(plan.shared_settings)).contribute(terms, most_bytes=2**40)
    assert offer.clients == ()
    assert "obfuscate: counts cannot be obfuscated beside the moment 'gram'" in offer.declined[0]["why"]


# -------------------------------------------------------------------------------------------------- evaluation


def test_only_classes_that_the_node_has_enough_test_samples_of_are_evaluated(trial: Any) -> None:
    from fedmoments import make_head

    settings, terms = trial
    holdings = Holdings(settings, terms)
    stats = next(iter(offered(settings, terms).values())).statistics
    classifier = make_head("fedncm").fit(stats.restricted(make_head("fedncm").needs))
    data = replace(classifier, class_names=terms.classes).to_bytes()
    counts = np.bincount(np.concatenate([holdings.test(k).y for k in holdings.clients]), minlength=3)
    assert counts.tolist() == [30, 30, 30]
    for least, expected in ((1, 90), (30, 90), (31, 0)):
        answer = Examiner(Node(replace(settings, policy={"min_count": least, "max_heads": 9}))).answer(terms, [data])
        (part,) = unpack_bundle(answer.bundle, max_bytes=2**20, max_items=1)
        assert LocalEvaluation.from_bytes(bytes(part), 3).n_samples == expected
