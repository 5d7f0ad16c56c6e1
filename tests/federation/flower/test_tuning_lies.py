"""Tuning when clients lie, or speak for others: each is refused by name, and the round goes on."""

import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")
pytest.importorskip("cryptography")

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from tests.federation.flower.test_tuning_failures import without
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

from fedmoments.federation.deploy.local import LocalFederation
from fedmoments.federation.flower.messages import content_of, read_content
from fedmoments.federation.flower.node import identity_of
from fedmoments.federation.flower.tuning_task import Task, greeting_bytes, signed_bytes
from fedmoments.federation.store import FederationStore
from fedmoments.settings.client import ClientSettings
from fedmoments.tuning.engine import Arrays, pack_parameters, unpack_parameters

ALL = {**PLAN, "fraction": 1.0, "rounds": 2}
BAD = "client-0005"

Honest = Callable[[], Message]


# -------------------------------------------------------------------------------------------------- lying


def signed(plan: LocalFederation, message: Message, client: str, body: bytes) -> Message:
    """Return a reply with a true signature of a false body."""
    settings = ClientSettings.load(plan.shared_settings)
    words, _ = read_content(message.content, most_bytes=2**30)
    with FederationStore.open(plan.server.ledger) as store:
        task = Task.read(words, store.terms)
    signature = identity_of(settings, client).sign(signed_bytes("update", task, body)).hex()
    return Message(content_of({"client": client, "signature": signature}, body), reply_to=message)


def reshaped(arrays: Arrays, control: Any, header: Any) -> bytes:
    return pack_parameters({**arrays, "head/bias": np.zeros(4, np.float32)}, control, **header)


def doubled(arrays: Arrays, control: Any, header: Any) -> bytes:
    return pack_parameters({name: array.astype(np.float64) for name, array in arrays.items()}, control, **header)


def not_finite(arrays: Arrays, control: Any, header: Any) -> bytes:
    return pack_parameters({**arrays, "head/bias": np.full(3, np.nan, np.float32)}, control, **header)


def lacking(arrays: Arrays, control: Any, header: Any) -> bytes:
    return pack_parameters({"head/bias": arrays["head/bias"]}, control, **header)


def renamed(arrays: Arrays, control: Any, header: Any) -> bytes:
    return pack_parameters({"head/weights": arrays["head/weights"], "head/b": arrays["head/bias"]}, control, **header)


def header_with(**changes: Any) -> Any:
    def make(arrays: Arrays, control: Any, header: Any) -> bytes:
        return pack_parameters(arrays, control, **{**header, **changes})

    return make


def controlled(arrays: Arrays, _: Any, header: Any) -> bytes:
    return pack_parameters(arrays, arrays, **{**header, "controlled": True})


def cut(arrays: Arrays, control: Any, header: Any) -> bytes:
    return pack_parameters(arrays, control, **header)[:-5]


def pickled(arrays: Arrays, _: Any, __: Any) -> bytes:
    return pickle.dumps(arrays)


def huge(arrays: Arrays, control: Any, header: Any) -> bytes:
    return pack_parameters(arrays, control, **header, padding="x" * 2**16)


@pytest.mark.parametrize(
    ("lie", "words"),
    [
        (reshaped, r"'head/bias' must be float32 of shape \(3,\), but float32 of shape \(4,\)"),
        (doubled, "must be float32 of shape .*, but float64"),
        (not_finite, "'head/bias' holds NaN or infinity"),
        (lacking, "must be 2 arrays, but head/weights is on one side only"),
        (renamed, "must be 2 arrays, but head/b"),
        (controlled, "sent control variates"),
        (header_with(samples=10**6), "samples 1000000, but .* was expected"),
        (header_with(samples=True), "samples True"),
        (header_with(round=7), "round 7, but 1 was expected"),
        (header_with(client="client-0000"), "client client-0000, but client-0005 was expected"),
        (header_with(steps=0), "steps 0"),
        (header_with(loss=float("inf")), "loss of client client-0005"),
        (header_with(loss="low"), "loss of client client-0005"),
        (header_with(loss=10**400), "loss of client client-0005"),
        (cut, "is invalid"),
        (pickled, "is invalid"),
        (huge, "is invalid: a message must hold one array of at most"),
    ],
)
def test_a_malformed_update_is_refused_by_name_and_the_round_goes_on(
    make: Made, tmp_path: Path, lie: Any, words: str
) -> None:
    def spoil(kind: str, message: Message, _: Context, honest: Honest) -> Message:
        reply = honest()
        if kind != "tune" or not of_client(message, BAD):
            return reply
        data = read_content(reply.content, most_bytes=2**30)[1]
        return signed(plan, message, BAD, lie(*unpack_parameters(data, "test")))

    plan = collected(make)
    settings = settings_of(plan, tmp_path / "out", plan={**ALL, "rounds": 1})
    found = run(plan, settings, spoiled(spoil))
    (failure,) = found.failures
    assert failure["client"] == BAD
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(failure["reason"])
    expected = without(plan, found.start, settings.tuning_plan, {1: {BAD}})
    for name, array in expected.arrays.items():
        np.testing.assert_allclose(found.tuned.arrays[name], array, rtol=0, atol=1e-6)


def other_contents(message: Message) -> list[RecordDict]:
    array = Array(dtype="float32", shape=(2**40,), stype="numpy.ndarray", data=b"abc")
    return [
        RecordDict(),
        content_of({}),
        content_of({"client": BAD, "signature": "zz"}, b"abc"),
        RecordDict({"words": ConfigRecord({"json": "[" * 10**5})}),
        RecordDict({"words": ConfigRecord({"json": "{}"}), "bytes": ArrayRecord({"weights": array})}),
        message.content,
    ]


@pytest.mark.parametrize("which", range(6))
@pytest.mark.parametrize("kind", ["tune", "score", "greet"])
def test_nonsense_never_ends_a_run(make: Made, tmp_path: Path, kind: str, which: int) -> None:
    def spoil(asked: str, message: Message, context: Context, honest: Honest) -> Message:
        if asked == kind and context.node_id == 2:
            return Message(other_contents(message)[which], reply_to=message)
        return honest()

    plan = collected(make)
    settings = settings_of(plan, tmp_path / "out", plan={**ALL, "rounds": 1, "validation": 0.2})
    found = run(plan, settings, spoiled(spoil))
    assert {failure["node"] for failure in found.failures} == {"2"}
    assert found.tuned.points[-1].participants == (12 if kind == "score" else 9)


@pytest.mark.parametrize("name", [[], {}, None, 7, ["client-0005"]])
def test_a_greeting_in_no_name_at_all_is_told_and_ends_nothing(make: Made, tmp_path: Path, name: Any) -> None:
    def spoil(kind: str, message: Message, context: Context, honest: Honest) -> Message:
        if kind == "greet" and context.node_id == 2:
            greeted = {"client": name, "train": 5, "validation": 0, "signature": "ab"}
            return Message(content_of({"clients": [greeted], "declined": []}), reply_to=message)
        return honest()

    plan = collected(make)
    found = run(plan, settings_of(plan, tmp_path / "out", plan={**ALL, "rounds": 1}), spoiled(spoil))
    assert found.tuned.points[-1].participants == 9
    (told,) = found.failures
    assert "nobody of that name is enrolled" in told["clients"][0]["why"]


@pytest.mark.parametrize(
    "lie",
    [
        {"samples": 10**9, "correct": 10**9, "loss": 0.0},
        {"samples": 5, "correct": 6, "loss": 0.0},
        {"samples": True, "correct": 0, "loss": 0.0},
        {"samples": 0, "correct": 0, "loss": float("nan")},
        {"samples": 0, "correct": 0, "loss": -1.0},
        {"samples": 0, "correct": 0, "loss": 10**400},
    ],
)
def test_scores_that_cannot_be_are_left_out(make: Made, tmp_path: Path, lie: dict[str, Any]) -> None:
    def spoil(kind: str, message: Message, context: Context, honest: Honest) -> Message:
        if kind == "score" and context.node_id == 3:
            return Message(content_of(lie), reply_to=message)
        return honest()

    plan = collected(make)
    tuning = {**ALL, "rounds": 1, "validation": 0.2}
    found = run(plan, settings_of(plan, tmp_path / "out", plan=tuning, evaluate=False), spoiled(spoil))
    assert {failure["node"] for failure in found.failures} == {"3"}
    assert 0 < (found.tuned.points[-1].validation or 0) <= 1


# -------------------------------------------------------------------------------------------------- who is who


def test_nobody_speaks_for_another_client(make: Made, tmp_path: Path) -> None:
    def pretend(kind: str, message: Message, context: Context, honest: Honest) -> Message:
        reply = honest()
        if kind == "greet" and context.node_id == 2:
            words, _ = read_content(reply.content, most_bytes=0)
            mine = words["clients"][0]
            words["clients"] = [
                {**mine, "client": "client-0000"},
                {**mine, "client": "stranger"},
                *words["clients"][1:],
            ]
            return Message(content_of(words), reply_to=message)
        return reply

    plan = collected(make)
    found = run(plan, settings_of(plan, tmp_path / "out", plan=ALL), spoiled(pretend))
    (told,) = [failure["clients"] for failure in found.failures]
    assert [each["client"] for each in told] == ["client-0000", "stranger"]
    assert "not signed with the identity key" in told[0]["why"]
    assert "nobody of that name is enrolled" in told[1]["why"]
    assert found.tuned.points[-1].participants == 11  # client-0001 was not named


def test_who_says_to_have_too_many_samples_takes_no_part(make: Made, tmp_path: Path) -> None:
    plan = collected(make)
    counts = {client: len(y) for client, (_, y) in held(plan).items()}
    most = sorted(counts.values())[-2]
    settings = settings_of(plan, tmp_path / "out", plan={**ALL, "rounds": 1}, max_client_samples=most)
    found = run(plan, settings)
    assert found.tuned.points[-1].participants == sum(n <= most for n in counts.values()) < 12
    (told,) = (each for failure in found.failures for each in failure["clients"])
    assert told["client"] == max(counts, key=lambda client: counts[client])
    assert f"at most {most} are accepted" in told["why"]


def test_numbers_that_were_changed_on_the_way_are_refused(make: Made, tmp_path: Path) -> None:
    def raise_weight(kind: str, message: Message, context: Context, honest: Honest) -> Message:
        reply = honest()
        if kind == "greet" and context.node_id == 2:
            words, _ = read_content(reply.content, most_bytes=0)
            words["clients"][0]["train"] += 1000
            return Message(content_of(words), reply_to=message)
        return reply

    plan = collected(make)
    found = run(plan, settings_of(plan, tmp_path / "out", plan=ALL), spoiled(raise_weight))
    assert "not signed" in found.failures[0]["clients"][0]["why"]
    assert found.tuned.points[-1].participants == 11


def test_a_client_on_two_nodes_trains_once(make: Made, tmp_path: Path) -> None:
    plan = collected(make)
    twice = [*node_configs(plan), node_configs(plan)[1]]
    found = run(plan, settings_of(plan, tmp_path / "out", plan=ALL), nodes=twice)
    assert [each["why"] for each in found.failures[0]["clients"]] == ["it is served by node 2 already"] * 3
    require_same(found.tuned.arrays, run(plan, settings_of(plan, tmp_path / "other", plan=ALL)).tuned.arrays)


def test_who_joins_or_changes_after_the_beginning_takes_no_part(make: Made, tmp_path: Path) -> None:
    plan = collected(make)
    configs = node_configs(plan)
    run(plan, settings_of(plan, tmp_path / "out", plan={**ALL, "rounds": 1}, nodes=3), nodes=configs[:3])
    assert "client-0000" not in {k for k, (_, y) in held(plan).items() if np.bincount(y).max() <= 3}
    settings = ClientSettings.load(plan.shared_settings)
    capped = replace(settings, policy={**settings.policy, "max_per_class": 3})
    plan.shared_settings.write_text(capped.to_toml())
    found = run(plan, settings_of(plan, tmp_path / "out", plan=ALL))
    same = [k for k, (_, y) in held(plan).items() if int(k[-4:]) % 4 < 3 and np.bincount(y).max() <= 3]
    assert found.tuned.points[-1].participants == len(same) < 9
    told = {each["client"]: each["why"] for entry in notes(plan, "declined") for each in entry["clients"]}
    assert "was not there when the run began" in told["client-0003"]
    assert "when the run began" in told["client-0000"]
    assert "samples to train" in told["client-0000"]


def test_revoked_clients_take_no_part(make: Made, tmp_path: Path) -> None:
    plan = collected(make)
    with FederationStore.open(plan.server.ledger) as store:
        store.revoke("client-0004")
    found = run(plan, settings_of(plan, tmp_path / "out", plan=ALL))
    assert found.tuned.points[-1].participants == 11
    assert "revoked" in found.failures[0]["clients"][0]["why"]


def test_a_greeting_says_what_it_signs() -> None:
    assert greeting_bytes("a", 1, 23) != greeting_bytes("a", 12, 3)
