"""Noise that heads on client means and clients that trust nobody have, in the deployed apps."""

import json
import sqlite3
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.federation.flower.secure_trials import Made, digests, events, opened, run

from fedmoments.errors import InputError, PrivacyError, RefusedError
from fedmoments.federation.outbox import Outbox
from fedmoments.federation.policy import ClientPolicy
from fedmoments.federation.results import fit_heads
from fedmoments.privacy.protection import Agreed
from fedmoments.privacy.secure.report import make_open_report, read_report
from fedmoments.wire import IdentityKey
from fedmoments.wire.withdrawal import Withdrawal, make_withdrawal

MEANS = ("fedcof", "fedncm")
LOCAL = Agreed(epsilon=8.0, noise="local")


# -------------------------------------------------------------------------------------------------- client means


def test_client_means_are_released_in_two_steps_and_charged_once(make: Made, tmp_path: Path) -> None:
    plan = make(heads=MEANS, privacy=Agreed(epsilon=8.0), out=str(tmp_path / "out"))
    found = run(plan, helper=False)
    assert set(found.fitted) == set(MEANS), found.unfitted
    with opened(plan) as store:
        spent = store.status().spent
        assert spent is not None
        assert (spent["releases"], spent["epsilon"]) == (1, pytest.approx(8.0))
        assert store.verify().whole
        again = {name: each.classifier.digest() for name, each in fit_heads(store, MEANS).items()}
        exact = store.statistics()
    assert again == digests(found)  # the same release, at no cost
    [released] = events(plan, "released")
    assert released["mean_clip"] == pytest.approx(0.06)
    text = (tmp_path / "out" / "federation.json").read_text("utf-8")
    assert exact.digest() not in text
    assert json.loads(text)["privacy"]["spent"]["epsilon"] == pytest.approx(8.0)


def test_a_second_release_of_client_means_is_refused_past_the_budget(make: Made) -> None:
    plan = make(heads=MEANS, privacy=Agreed(epsilon=8.0))
    run(plan, helper=False, nodes=[0, 1])
    with pytest.raises(PrivacyError, match="would bring ε to"):
        run(plan, helper=False)


def test_a_flipped_bit_of_the_spread_is_noticed(make: Made) -> None:
    plan = make(heads=("fedcof",), privacy=Agreed(epsilon=8.0))
    run(plan, helper=False)
    with sqlite3.connect(plan.server.ledger) as connection:
        data = bytearray(connection.execute("SELECT data FROM releases").fetchone()[0])
        data[-20] ^= 1
        connection.execute("UPDATE releases SET data = ?", (bytes(data),))
    with opened(plan) as store:
        with pytest.raises(Exception, match="is not what was written"):
            fit_heads(store, ["fedcof"])
        assert not store.verify().whole


def test_client_means_of_fewer_digits_are_refused_under_an_epsilon(make: Made) -> None:
    plan = make(heads=("fedcof",), privacy=Agreed(epsilon=8.0))
    with opened(plan) as store, pytest.raises(InputError, match="with an epsilon client means travel as int64"):
        replace(store.terms, rows="float16")


# -------------------------------------------------------------------------------------------------- local noise


def test_every_client_noises_what_it_sends_and_the_server_adds_it_up(make: Made, tmp_path: Path) -> None:
    plan = make(heads=("fedncm",), privacy=LOCAL, out=str(tmp_path / "out"))
    found = run(plan, helper=False)
    assert set(found.fitted) == {"fedncm"}
    with opened(plan) as store:
        status, terms = store.status(), store.terms
        assert (status.clients, status.contributors) == (12, ())
        assert status.spent is not None
        assert (status.spent["releases"], status.spent["epsilon"]) == (1, pytest.approx(8.0))
        assert store.verify().whole
        vectors = dict(store.reported())
        assert {name: each.classifier.digest() for name, each in fit_heads(store, ["fedncm"]).items()} == digests(found)
    layout, form = terms.layout, terms.fixed_point
    sums = np.array([layout.signed(vector)[layout.classes_block] for vector in vectors.values()])
    rows = sums.reshape(len(vectors), layout.n_classes, -1)
    # a client holds few classes: in the others there is nothing but noise, on every one of them
    assert (np.abs(rows).max(axis=2) > 0).all()
    spread = form.dequantize(rows[:, :, 1:], 1).std()
    planned = terms.privacy.mode.noise.release_form(terms).describe()["noise"]["sums"]  # type: ignore[attr-defined]
    assert spread >= 0.8 * planned
    record = next((plan.folder / "nodes").rglob("record.jsonl")).read_text("utf-8")
    assert '"noise": "local"' in record


def test_the_same_samples_get_the_same_noise_for_ever(make: Made) -> None:
    plan = make(heads=("fedncm",), privacy=LOCAL)
    run(plan, helper=False)
    with opened(plan) as store:
        before = {client: vector.tobytes() for client, vector in store.reported()}
    run(plan, helper=False)
    with opened(plan) as store:
        assert {client: vector.tobytes() for client, vector in store.reported()} == before


def test_a_client_draws_no_more_noise_than_was_planned_for(make: Made) -> None:
    """A server that asks again and again would average the noise away; other samples need another draw, too."""
    plan = make(heads=("fedncm",), privacy=LOCAL)
    run(plan, helper=False)
    with opened(plan) as store:
        federation = store.terms.id
    with Outbox(next((plan.folder / "nodes").rglob("outbox.db")).parent) as outbox:
        client = next(name for known, name in outbox.federations() if known == federation)
        outbox.forget(federation, client)  # the bytes are gone: they would have to be made anew
    found = run(plan, helper=False, again=True)
    declined = [fact for report in found.rounds for fact in report.declined]
    assert any("has sent its sums 1 times with noise for 1" in str(fact.why) for fact in declined), declined


def test_leaving_takes_a_noised_report_out_exactly(make: Made) -> None:
    plan = make(heads=("fedncm",), privacy=LOCAL)
    run(plan, helper=False)
    with opened(plan) as store:
        client = store.waiting()[3].client
        store.leave(client)
        assert store.status().clients == 11
        assert client not in dict(store.reported())
        assert store.verify().whole
        fit_heads(store, ["fedncm"])


def test_a_report_beyond_samples_and_noise_is_refused(make: Made) -> None:
    """One client that claims 2⁶⁰ samples would be the whole sum."""
    plan = make(heads=("fedncm",), privacy=LOCAL)
    with opened(plan) as store:
        key, terms = IdentityKey.generate(), store.terms
        store.enrol("mallory", key.public)
        vector = np.zeros(terms.layout.size, np.int64)
        for place in (terms.layout.n_classes, terms.layout.n_classes + 1, len(vector) - 1):
            wrong = vector.copy()
            wrong[place] = -(2**61)
            data = make_open_report(wrong, terms.context, client="mallory", version=1, key=key)
            [answer] = store.report_many([data])
            assert isinstance(answer, RefusedError)
            assert answer.reason == "out-of-range"
        good = make_open_report(vector, terms.context, client="mallory", version=1, key=key)
        [answer] = store.report_many([good])
        assert not isinstance(answer, RefusedError)
        assert read_report(good, terms.context, len(vector), lambda _: key.public).client == "mallory"


def test_whoever_asks_for_secure_sums_does_not_get_local_noise(make: Made) -> None:
    plan = make(heads=("fedncm",), privacy=LOCAL)
    with opened(plan) as store, pytest.raises(Exception, match="require_secure"):
        ClientPolicy(require_secure=True, min_count=1).require(store.terms)


def test_a_deployed_simulation_and_a_federation_have_the_same_noise(make: Made) -> None:
    """Both add the noise of the same plan, so both lose about as much."""
    plan = make(heads=("fedncm",), privacy=LOCAL)
    run(plan, helper=False)
    with opened(plan) as store:
        _, facts = store.terms.privacy.mode.read(store)
        form = store.terms.privacy.mode.noise.release_form(store.terms)  # type: ignore[attr-defined]
    assert facts is not None
    assert facts["noise"]["sums"] == pytest.approx(form.describe()["noise"]["sums"] * np.sqrt(12))


def test_an_old_withdrawal_takes_no_later_report_out(make: Made) -> None:
    """A client's word that version 1 is to go must not be good against version 2, whoever repeats it."""
    plan = make(heads=("fedncm",), privacy=Agreed(epsilon=8.0, noise="local", releases=2))
    with opened(plan) as store:
        key, terms = IdentityKey.generate(), store.terms
        store.enrol("ward", key.public)
        word = make_withdrawal(Withdrawal(terms.id, "ward", 1), key)
        for version in (1, 2):
            vector = np.zeros(terms.layout.size, np.int64)
            data = make_open_report(vector, terms.context, client="ward", version=version, key=key)
            assert not isinstance(store.report_many([data])[0], RefusedError)
            answer = store.withdraw(word)
            assert isinstance(answer, RefusedError) == (version == 2)
        assert [client for client, _ in store.reported()] == ["ward"]
