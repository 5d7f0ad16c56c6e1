"""Tuning takes consent: what a client allows, what it writes down, what it remembers, and what no terms allow."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")
pytest.importorskip("cryptography")

from tests.federation.flower.tuning_trials import ALLOWED, PLAN, Made, collected, notes, run, settings_of

from fedmoments.errors import DeploymentError, InputError, PolicyError
from fedmoments.federation.deploy.local import LocalFederation
from fedmoments.federation.flower.node import Node
from fedmoments.federation.flower.tuning_memory import Remembered, recall, remember
from fedmoments.federation.flower.tuning_node import MissingStartError, TuningNode
from fedmoments.federation.flower.tuning_task import Task
from fedmoments.federation.policy import ClientPolicy
from fedmoments.federation.results import fit_heads
from fedmoments.federation.store import FederationStore
from fedmoments.federation.terms import Terms
from fedmoments.privacy.protection import Agreed
from fedmoments.settings.client import ClientSettings
from fedmoments.settings.policy import TUNING
from fedmoments.tuning import TuningPlan
from fedmoments.tuning.draws import held_out
from fedmoments.tuning.engine import pack_parameters, unpack_parameters
from fedmoments.tuning.start import start_from
from fedmoments.tuning.temperature import cross_entropy_sums

RUN = "ab" * 16


def change(plan: LocalFederation, folder: Path | None = None, **policy: Any) -> ClientSettings:
    """Change the rules of all clients, and where they keep things."""
    own = ClientSettings.load(plan.shared_settings)
    changed = replace(own, policy=policy, folder=str(folder or ""))
    plan.shared_settings.write_text(changed.to_toml())
    return changed


def record(folder: Path, event: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / "record.jsonl").read_text().splitlines()]
    return [line for line in lines if line["event"] == event]


def asked(plan: LocalFederation, **fields: Any) -> tuple[Task, bytes, bytes]:
    """Return a task, its start, and the parameters of a first round."""
    with FederationStore.open(plan.server.ledger) as store:
        head = fit_heads(store, ["fedncm"])["fedncm"].classifier.to_bytes()
        terms = store.terms
    from hashlib import sha256

    task = Task(terms, TuningPlan(**fields), RUN, "fedncm", sha256(head).hexdigest(), 0.1)
    return task, head, pack_parameters(task.start(head).arrays())


# -------------------------------------------------------------------------------------------------- the policy


def test_nothing_is_trained_unless_a_client_says_so(make: Made, tmp_path: Path) -> None:
    plan = collected(make, policy={"min_count": 1})
    with pytest.raises(DeploymentError, match=r"no client takes part in this tuning.*allowed is none"):
        run(plan, settings_of(plan, tmp_path / "out"))
    (first, *_) = notes(plan, "declined")
    assert "fedmoments client … --allow-tuning lp" in first["clients"][0]["why"]
    assert not (tmp_path / "out" / "run.json").exists()


@pytest.mark.parametrize("allowed", TUNING)
@pytest.mark.parametrize("stage", TUNING[1:])
def test_a_stage_allows_those_before_it(make: Made, allowed: str, stage: str) -> None:
    with FederationStore.open(make().server.ledger) as store:
        terms = store.terms
    policy = ClientPolicy(tuning=allowed)
    if TUNING.index(stage) <= TUNING.index(allowed):
        policy.require_tuning(terms, stage)
    else:
        with pytest.raises(PolicyError, match=f"the server asks for {stage}, allowed is {allowed}"):
            policy.require_tuning(terms, stage)


@pytest.mark.parametrize(
    ("agreed", "words"),
    [(Agreed(secure="sums"), "secure sums"), (Agreed(epsilon=8.0), "epsilon of 8.0")],
)
def test_terms_that_promise_to_hide_single_clients_rule_tuning_out(
    make: Made, tmp_path: Path, agreed: Agreed, words: str
) -> None:
    plan = make(policy=ALLOWED, privacy=agreed, heads=("fed3r",))
    with pytest.raises(PolicyError, match=words):
        run(plan, settings_of(plan, tmp_path / "out", start="fed3r"))
    with FederationStore.open(plan.server.ledger) as store, pytest.raises(PolicyError, match=words):
        ClientPolicy(tuning="ft").require_tuning(store.terms, "lp")


def test_a_client_that_blurs_its_counts_is_not_tuned_on(make: Made) -> None:
    plan = collected(make)
    settings = change(plan, tuning="lp", min_count=1, obfuscate="laplace:0.5")
    task, head, _ = asked(plan)
    told = TuningNode(settings).greet(task, head)
    assert told["clients"] == []
    assert "exact number of samples" in told["declined"][0]["why"]


def test_other_rules_of_a_client_hold_for_tuning_too(make: Made) -> None:
    plan = collected(make)
    task, head, parameters = asked(plan)
    strict = change(plan, tuning="lp", min_count=1, moments=["gram"])
    assert "moments: the server asks for" in TuningNode(strict).greet(task, head)["declined"][0]["why"]
    small = change(plan, tuning="lp", min_count=1, max_bytes=100)
    with pytest.raises(PolicyError, match="max_bytes"):
        TuningNode(small).tune(task, "client-0001", 1, parameters, last=0, start=head)
    elsewhere = replace(small, federation="cd" * 32)
    with pytest.raises(PolicyError, match="read those first"):
        TuningNode(elsewhere).tune(task, "client-0001", 1, parameters, last=0, start=head)


def test_withheld_samples_are_neither_trained_nor_validated_on(make: Made) -> None:
    plan = collected(make)
    settings = change(plan, tuning="lp", min_count=8, max_per_class=12)
    task, head, _ = asked(plan, validation=0.25)
    told = TuningNode(settings).greet(task, head)
    chooser = Node(settings).chooser(task.terms)
    for each in told["clients"]:
        n = len(chooser.choose(each["client"]).held.y)
        assert (each["train"], each["validation"]) == (n - n // 4, n // 4)
    assert sum(each["train"] for each in told["clients"]) < 200


def test_consent_to_tuning_makes_no_new_contribution(make: Made, tmp_path: Path) -> None:
    plan = make(policy={"min_count": 1})
    with FederationStore.open(plan.server.ledger) as store:
        terms = store.terms
    before = Node(change(plan, tmp_path / "box", min_count=1)).contribute(terms, most_bytes=2**30)
    after = Node(change(plan, tmp_path / "box", min_count=1, tuning="ft", max_rounds=9))
    assert after.contribute(terms, most_bytes=2**30).bundle == before.bundle
    assert len(record(tmp_path / "box", "prepared")) == 12


# -------------------------------------------------------------------------------------------------- what is kept


def test_the_record_has_a_line_for_every_round(make: Made, tmp_path: Path) -> None:
    plan = collected(make)
    change(plan, tmp_path / "box", **ALLOWED)
    found = run(plan, settings_of(plan, tmp_path / "out", plan={**PLAN, "validation": 0.2, "check_every": 3}))
    lines = record(tmp_path / "box", "tuned")
    assert sorted(line["round"] for line in lines) == sorted([1, 2, 3] * 6)
    numbers = json.loads((tmp_path / "out" / "tuning.json").read_text())["clients"]
    for line in lines:
        assert line["stage"] == "lp"
        assert line["samples"] == numbers[line["client"]]["train"]
        assert line["bytes"] > 4 * 21
        assert len(line["digest"]) == 64
    assert len({line["run"] for line in lines}) == 1
    scored = record(tmp_path / "box", "scored")
    assert {line["part"] for line in scored} == {"validation", "test"}
    assert found.tuned.points[-1].accuracy is not None


def test_refusals_are_recorded(make: Made, tmp_path: Path) -> None:
    plan = collected(make)
    settings = change(plan, tmp_path / "box", min_count=1)
    task, head, parameters = asked(plan)
    TuningNode(settings).greet(task, head)
    with pytest.raises(PolicyError):
        TuningNode(settings).tune(task, "client-0001", 1, parameters, last=0, start=head)
    with pytest.raises(PolicyError):
        TuningNode(settings).score(task, "test", ["client-0001"], parameters)
    with pytest.raises(PolicyError):
        TuningNode(settings).temperature(task, [1.0], ["client-0001"])
    everybody = "all clients of this node"
    declined = record(tmp_path / "box", "declined")
    assert [line["client"] for line in declined] == [everybody, "client-0001", everybody, everybody]
    small = change(plan, tmp_path / "box", min_count=1, tuning="lp", max_bytes=100_000)
    TuningNode(small).tune(task, "client-0001", 1, parameters, last=0, start=head)
    small = replace(small, policy={**small.policy, "max_bytes": 100})
    with pytest.raises(PolicyError, match="max_bytes"):
        TuningNode(small).tune(task, "client-0001", 2, parameters, last=0)
    assert "max_bytes" in record(tmp_path / "box", "declined")[-1]["sentence"]
    assert len(record(tmp_path / "box", "tuned")) == 1


# -------------------------------------------------------------------------------------------------- the memory


def test_law_a_round_that_is_asked_for_twice_is_answered_alike(make: Made, tmp_path: Path) -> None:
    plan = collected(make)
    settings = change(plan, tmp_path / "box", **ALLOWED)
    task, head, _ = asked(plan, optimiser="scaffold", lr=0.5, batch_size=4)
    start = task.start(head)
    control = {name: np.full_like(array, 0.01) for name, array in start.arrays().items()}
    parameters = pack_parameters(start.arrays(), control)
    answers = [TuningNode(settings).tune(task, "client-0001", 1, parameters, last=0, start=head)]
    answers.append(TuningNode(settings).tune(task, "client-0001", 4, parameters, last=1))
    assert TuningNode(settings).tune(task, "client-0001", 4, parameters, last=1) == answers[1]
    lost = TuningNode(settings).tune(task, "client-0001", 6, parameters, last=1)  # round 4 never arrived
    assert lost[1] != answers[1][1]
    with pytest.raises(InputError, match="after round 4, but those that are kept are of rounds 1, 6"):
        TuningNode(settings).tune(task, "client-0001", 7, parameters, last=4)
    _, change_of, _ = unpack_parameters(answers[0][1], "test")
    assert change_of is not None
    assert max(np.abs(array).max() for array in change_of.values()) > 0


def test_a_memory_survives_its_file_and_is_the_clients_own(tmp_path: Path) -> None:
    made = Remembered().charged(RUN, "first").after(RUN, 0, 3, {"control/a/head/bias": np.arange(3.0)})
    remember(str(tmp_path), "ef" * 32, "a", made)
    read = recall(str(tmp_path), "ef" * 32, "a")
    assert (read.rounds, read.run, read.asked) == ({RUN: 1}, RUN, "first")
    np.testing.assert_array_equal(read.state(RUN, 3)["control/a/head/bias"], np.arange(3.0))
    assert read.state(RUN, 0) == {}
    assert recall(str(tmp_path), "ef" * 32, "b").rounds == {}
    assert recall(str(tmp_path), "aa" * 32, "a").rounds == {}
    with pytest.raises(InputError, match="was its folder lost"):
        read.state("cd" * 16, 3)


def test_the_start_is_kept_and_must_be_the_one_that_is_named(make: Made, tmp_path: Path) -> None:
    plan = collected(make)
    settings = change(plan, tmp_path / "box", **ALLOWED)
    task, head, parameters = asked(plan)
    with pytest.raises(MissingStartError):
        TuningNode(settings).tune(task, "client-0001", 1, parameters, last=0)
    with pytest.raises(InputError, match="is not the start"):
        TuningNode(settings).tune(task, "client-0001", 1, parameters, last=0, start=head + b"x")
    TuningNode(settings).greet(task, head)
    TuningNode(settings).tune(task, "client-0001", 1, parameters, last=0)
    assert len(list((tmp_path / "box").rglob("start-*.safetensors"))) == 1


# -------------------------------------------------------------------------------------------------- what may be asked


def test_a_node_serves_its_own_clients_and_known_parts_only(make: Made) -> None:
    plan = collected(make)
    settings = replace(change(plan, **ALLOWED), partitions=(0, 1))
    task, head, parameters = asked(plan)
    node = TuningNode(settings)
    node.greet(task, head)
    with pytest.raises(PolicyError, match="does not serve the client 'client-0007'"):
        node.tune(task, "client-0007", 1, parameters, last=0)
    with pytest.raises(PolicyError, match="does not serve"):
        node.score(task, "validation", ["client-0007"], parameters)
    with pytest.raises(InputError, match="validation or test"):
        node.score(task, "secrets", ["client-0000"], parameters)
    for wrong in ([], [0.0], [float("nan")], [1.0] * 1001):
        with pytest.raises(InputError, match="temperatures"):
            node.temperature(task, wrong, ["client-0000"])


def test_fewer_samples_than_the_minimum_are_not_told_of(make: Made) -> None:
    plan = collected(make)
    settings = replace(change(plan, tuning="lp", min_count=40), partitions=(0,))
    task, head, parameters = asked(plan, validation=0.2)
    node = TuningNode(settings)
    node.greet(task, head)
    assert node.score(task, "validation", ["client-0000"], parameters).samples == 0
    assert node.score(task, "test", ["client-0000"], parameters).samples == 0
    silent = replace(change(plan, tuning="lp", min_count=1), evaluate=False)
    told = TuningNode(silent).greet(task, head)
    assert {each["validation"] for each in told["clients"]} == {0}
    assert TuningNode(silent).score(task, "test", ["client-0000"], parameters).samples == 0


def test_no_share_for_validation_leaves_fewer_samples_to_train_on_than_the_minimum(make: Made, tmp_path: Path) -> None:
    plan = collected(make)
    settings = replace(change(plan, tmp_path / "box", tuning="lp", min_count=10), partitions=(0,))
    n = len(Node(settings).chooser(asked(plan)[0].terms).choose("client-0000").held.y)
    assert n - int(0.9 * n) < 10 <= n
    task, head, parameters = asked(plan, validation=0.9)
    words = "would train on fewer samples than its policy's min_count, 10, with a validation share of 0.9"
    (told,) = TuningNode(settings).greet(task, head)["declined"]
    assert re.search(words, told["why"])
    assert f"{n} samples" not in told["why"]
    assert f"{n - int(0.9 * n)} of its {n} samples" in record(tmp_path / "box", "declined")[-1]["sentence"]
    with pytest.raises(PolicyError, match=words):
        TuningNode(settings).tune(task, "client-0000", 1, parameters, last=0)
    with pytest.raises(PolicyError, match=words):
        TuningNode(settings).temperature(task, [1.0], ["client-0000"])
    assert not record(tmp_path / "box", "tuned")
    assert not record(tmp_path / "box", "scored")


def test_a_name_that_is_a_path_reads_no_file(make: Made, tmp_path: Path) -> None:
    plan = collected(make)
    settings = change(plan, tmp_path / "box", **ALLOWED)
    task, head, parameters = asked(plan)
    (tmp_path / "box" / "tuning" / task.terms.id[:16]).mkdir(parents=True)
    (tmp_path / "box" / "other.safetensors").write_bytes(b"private")
    with pytest.raises(PolicyError, match="does not serve the client"):
        TuningNode(settings).tune(task, "../../other", 1, parameters, last=0, start=head)


def test_temperatures_are_tried_on_what_is_trained_on(make: Made) -> None:
    plan = collected(make)
    settings = change(plan, **ALLOWED)
    task, head, _ = asked(plan, validation=0.4)
    held = Node(settings).chooser(task.terms).choose("client-0001").held
    rows, _ = held_out(len(held.y), 0.4, seed=0, client="client-0001")
    expected = cross_entropy_sums(task.start(head), held.X[rows], held.y[rows], [0.5, 2.0])
    found = TuningNode(settings).temperature(task, [0.5, 2.0], ["client-0001"], head)
    assert found == pytest.approx(list(expected), rel=1e-12)


def test_a_start_that_never_saw_a_class_is_told_to_who_holds_it(make: Made) -> None:
    plan = collected(make)
    task, head, _ = asked(plan)
    from hashlib import sha256

    from fedmoments.core.classifier import load_bytes

    seen = load_bytes(head)
    blind = replace(seen, present=np.array([True, True, False])).to_bytes()
    other = replace(task, start_digest=sha256(blind).hexdigest())
    told = TuningNode(change(plan, **ALLOWED)).greet(other, blind)
    assert any("has never seen" in each["why"] for each in told["declined"])
    assert not any("the class '" in each["why"] for each in told["declined"])
    holds = {each["client"]: "never seen" in each["why"] for each in told["declined"]}
    halved = replace(other, plan=replace(task.plan, validation=0.9))
    spared = {each["client"] for each in TuningNode(change(plan, **ALLOWED)).greet(halved, blind)["clients"]}
    assert spared & holds.keys()  # who only validates on it takes part
    assert start_from(seen, "x").present.all()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"run": "x"}, "must name its run"),
        ({"start": None}, "must name its run"),
        ({"start": {"name": "a", "digest": "b", "temperature": 0}}, "temperature of a tuning"),
        ({"start": {"name": "a", "digest": "b", "temperature": True}}, "temperature of a tuning"),
        ({"plan": {"epochs": "many"}}, "'epochs' must be of type int"),
        ({"plan": {"depth": 3}}, "unknown key of the plan of the server"),
        ({"plan": [1]}, "must be a table"),
    ],
)
def test_a_client_reads_what_it_is_asked_without_believing_it(make: Made, words: Any, sentence: str) -> None:
    plan = collected(make)
    task, _, _ = asked(plan)
    terms: Terms = task.terms
    assert Task.read(task.fields(), terms) == task
    with pytest.raises(InputError, match=sentence):
        Task.read({**task.fields(), **words}, terms)
