"""Noise, and the robust filter, in the deployed apps."""

import json
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Context, Message
from tests.federation.flower.secure_trials import (
    COHORTS,
    HEADS,
    SUMS,
    Made,
    digests,
    events,
    opened,
    run,
    spoiled,
)

from fedmoments import Statistics
from fedmoments.core.observations import Row
from fedmoments.core.observations.federated import FederationEvents, ServerRound, Trouble
from fedmoments.errors import InputError, PrivacyError
from fedmoments.federation.deploy.local import prepare_local
from fedmoments.federation.flower import client_app as real
from fedmoments.federation.flower.messages import content_of
from fedmoments.federation.outcome import federation_report
from fedmoments.federation.results import fit_heads, source_of
from fedmoments.privacy.protection import Agreed
from fedmoments.settings.client import ClientSettings
from fedmoments.settings.server import ServerSettings
from fedmoments.settings.study import StudySettings
from fedmoments.wire import pack_bundle

# -------------------------------------------------------------------------------------------------- noise


def test_a_release_is_remembered_and_refitting_spends_nothing(make: Made, tmp_path: Path) -> None:
    plan = make(heads=HEADS, privacy=Agreed(epsilon=4.0), out=str(tmp_path / "out"))
    found = run(plan, helper=False)
    with opened(plan) as store:
        spent = store.status().spent
        assert spent is not None
        assert spent["epsilon"] == pytest.approx(4.0)
        assert spent["releases"] == 1
        assert store.verify().whole
    for _ in range(2):
        with opened(plan) as store:
            assert {name: each.classifier.digest() for name, each in fit_heads(store, HEADS).items()} == digests(found)
            assert store.status().spent == spent
    assert len(events(plan, "released")) == 1
    assert digests(run(plan, helper=False)) == digests(found)
    document = json.loads((tmp_path / "out" / "federation.json").read_text("utf-8"))
    assert document["privacy"]["spent"]["epsilon"] == pytest.approx(4.0)
    with opened(plan) as store:
        rows = federation_report(store, found.fitted, {}, FederationEvents(), source=source_of(store)).rows
    assert [Row.from_dict(row.to_dict()) for row in rows] == list(rows)
    assert {row["head"] for row in document["rows"]} == {row.head for row in rows}
    accuracy, sent, *_ = rows[0].observations
    assert (accuracy.where["epsilon"], accuracy.reason) == (4.0, "no client evaluated it")
    assert (sent.values, sent.unit) == ((document["rows"][0]["up_bytes_total"],), "bytes")


def test_what_is_published_holds_nothing_of_the_exact_sums(make: Made, tmp_path: Path) -> None:
    plan = make(heads=HEADS, privacy=Agreed(epsilon=4.0), out=str(tmp_path / "out"))
    found = run(plan, helper=False)
    with opened(plan) as store:
        exact = store.statistics()
        state = store.digest()
        released = source_of(store).statistics
    text = (tmp_path / "out" / "federation.json").read_text("utf-8")
    document = json.loads(text)
    assert state not in text
    assert exact.digest() not in text
    assert document["holders"]["cells"] == []
    assert [each["bytes"] for each in document["federation"]["rounds"]] == [None]  # bytes show who holds which class
    with opened(plan) as store:
        assert {row["up_bytes_per_client"] for row in document["rows"]} == {8 * store.terms.layout.size}
        digest = store.status().contributors[0].digest  # stands in the sentence of a conflict
        refusal = Trouble(client="client-0000", reason="conflict", sentence=f"version 1 has the digest {digest}")
        events = FederationEvents(rounds=(ServerRound(2, bytes=7, refused=(refusal,)),))
        published = federation_report(store, {}, {}, events, source=source_of(store)).to_dict()
    [told] = published["federation"]["rounds"][0]["refused"]
    assert (told["client"], told["reason"]) == ("client-0000", "conflict")
    assert digest not in json.dumps(published)
    assert document["data"]["train"] == released.n_samples
    for name in HEADS:
        assert found.fitted[name].statistics_digest != exact.restricted(found.fitted[name].head.needs).digest()


def test_a_new_state_is_refused_past_the_budget_and_nothing_is_lost(make: Made) -> None:
    plan = make(heads=HEADS, privacy=Agreed(epsilon=4.0))
    run(plan, helper=False, nodes=[0, 1])
    with pytest.raises(PrivacyError, match=r"would bring ε to .* but ε = 4"):
        run(plan, helper=False)
    with opened(plan) as store:
        assert store.status().clients == 12
        assert store.verify().whole
        spent = store.status().spent
        assert spent is not None
        assert spent["releases"] == 1
    planned = make(heads=HEADS, privacy=Agreed(epsilon=4.0, releases=2))
    run(planned, helper=False, nodes=[0, 1])
    assert run(planned, helper=False).fitted
    with opened(planned) as store:
        spent = store.status().spent
        assert spent is not None
        assert (spent["releases"], spent["epsilon"]) == (2, pytest.approx(4.0))


def test_secure_noised_sums_are_never_stored_without_noise(make: Made) -> None:
    plan = make(heads=HEADS, privacy=Agreed(secure="sums", epsilon=4.0))
    found = run(plan)
    with opened(plan) as store:
        assert store.statistics().n_samples == 0
        assert store.status().clients == 12
        release = store.release()
        assert release.facts["servers"] == 2
        assert store.verify().whole
        spent = store.status().spent
        assert spent is not None
        assert spent["epsilon"] == pytest.approx(4.0)
        again = {name: each.classifier.digest() for name, each in fit_heads(store, HEADS).items()}
    assert again == digests(found)


def test_secure_batches_of_different_clients_spend_once(make: Made) -> None:
    plan = make(heads=HEADS, privacy=Agreed(secure="sums", epsilon=8.0))
    run(plan, nodes=[0, 1])
    run(plan)
    with opened(plan) as store:
        assert sorted(store.status().batches.values()) == [6, 6]
        assert store.release().batches == 2
        spent = store.status().spent
        assert spent is not None
        assert (spent["releases"], spent["epsilon"]) == (1, pytest.approx(8.0))


def test_a_whole_client_is_clipped_before_it_sends(make: Made) -> None:
    from fedmoments.privacy.dp.client_clip import weighted_norm
    from fedmoments.privacy.dp.noise_plan import plan as noise_plan

    agreed = Agreed(epsilon=8.0, unit="client", client_norm=10.0)
    plan = make(heads=("fedncm",), privacy=agreed)
    run(plan, helper=False)
    with opened(plan) as store:
        made = noise_plan(store.terms.layout, store.terms.fixed_point, agreed)
        norms = [weighted_norm(part, made) for _, part in store.contributions()]
    assert max(norms) <= 10.0
    assert max(norms) > 9.0


@pytest.mark.parametrize(
    ("heads", "agreed", "why"),
    [
        (("fedcof", "fed3r"), Agreed(epsilon=2.0), "client means are released with differential privacy alone"),
        (("fedcof",), Agreed(epsilon=2.0, noise="local"), "cannot be released with differential privacy"),
        (("fedcof",), SUMS, "agree on secure cohorts"),
        (("fed3r",), COHORTS, "agree on secure sums"),
    ],
)
def test_heads_that_the_protection_does_not_serve_are_refused_early(
    make: Made, heads: tuple[str, ...], agreed: Agreed, why: str
) -> None:
    with pytest.raises((InputError, PrivacyError), match=why):
        make(heads=heads, privacy=agreed)


# -------------------------------------------------------------------------------------------------- filter


def test_the_filter_leaves_poison_out_of_what_is_fitted_but_in_the_ledger(features: Path, tmp_path: Path) -> None:
    from fedmoments.federation.flower.node import identity_of
    from fedmoments.wire import encode

    settings = ServerSettings("ledger", heads=("fedncm",), deadline=20.0, out=str(tmp_path / "out"))
    config = StudySettings(data=f"npz:{features}", clients=(12,), splits=("iid",))
    plan = prepare_local(tmp_path / "f", config, settings, nodes=12, engine="memory", policy={"min_count": 1})
    own = ClientSettings.load(plan.shared_settings)
    with opened(plan) as store:
        terms = store.terms

    def flip(message: Message, context: Context) -> Message:
        if context.node_id != 1:
            return real.contribute(message, context)
        rng = np.random.default_rng(0)
        y = np.arange(60) % 3
        X = rng.normal(size=(60, 6)) + 3.0 * np.eye(3, 6)[(y + 1) % 3]
        stats = Statistics.of(X, y, terms.spec, n_classes=3)
        key = identity_of(own, "client-0000")
        data = encode(stats, terms.agreement, client="client-0000", version=1, key=key)
        words = {"clients": ["client-0000"], "declined": [], "more": False}
        return Message(content_of(words, pack_bundle([data])), reply_to=message)

    found = run(plan, spoiled(contribute=flip), helper=False, robust="mad")
    assert found.source is not None
    assert list(found.source.dropped) == ["client-0000"]
    with opened(plan) as store:
        assert store.status().clients == 12
        [note] = [entry.details for entry in store.audit() if entry.details.get("note") == "left out"]
        assert list(note["clients"]) == ["client-0000"]
        kept = Statistics.merge(part for client, part in store.contributions() if client != "client-0000")
    assert found.fitted["fedncm"].statistics_digest == kept.restricted(found.fitted["fedncm"].head.needs).digest()
    document = json.loads((tmp_path / "out" / "federation.json").read_text("utf-8"))
    assert list(document["privacy"]["dropped"]) == ["client-0000"]
    capped = run(plan, helper=False, max_client_samples=59)
    assert capped.source is not None
    assert "client-0000" in capped.source.dropped


def test_a_filter_is_refused_where_it_would_break_a_promise(make: Made) -> None:
    for agreed, why in ((SUMS, "needs to see every contribution"), (Agreed(epsilon=1.0), "the noise was not made for")):
        with pytest.raises(InputError, match=why):
            make(heads=HEADS, privacy=agreed, robust="mad")
        with pytest.raises(InputError, match=why):
            make(heads=HEADS, privacy=agreed, max_client_samples=10)
