"""The live page: who is where, told to a browser, a terminal and a monitor; read-only, and not to everybody."""

import json
import ssl
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

pytest.importorskip("starlette")
pytest.importorskip("flwr")

from fedmoments import Statistics, StatisticsSpec
from fedmoments.errors import DeploymentError, RefusedError
from fedmoments.federation.deploy.live_page import LivePage
from fedmoments.federation.deploy.metrics import own_metrics
from fedmoments.federation.deploy.viewing import Viewer
from fedmoments.federation.deploy.web import Web
from fedmoments.federation.enrolment.invitations import Invitations
from fedmoments.federation.flower.live import LIVE, REGISTERED, Live, read_live
from fedmoments.federation.flower.server import wait_for_nodes
from fedmoments.federation.keys import make_authority
from fedmoments.federation.store import FederationStore
from fedmoments.federation.terms import Terms
from fedmoments.pages.live_view import page_of
from fedmoments.privacy.protection import Agreed
from fedmoments.samples.fingerprint import Fingerprint
from fedmoments.settings.server import ServerSettings
from fedmoments.wire import IdentityKey, encode

EVIL = '<img src=x onerror="alert(1)">'


class Town:
    """A ledger with some parties, and the home of a run."""

    def __init__(self, folder: Path, n: int = 6, epsilon: float | None = None) -> None:
        agreed = Agreed(epsilon=epsilon)
        fingerprint = Fingerprint("none", "none", agreed.mode.noise.bounded(None), (EVIL, "dog"))
        spec, form = StatisticsSpec.of("client_means"), agreed.mode.noise.form()
        encoder: dict[str, Any] = {"name": "identity", "options": {}}
        self.terms = Terms("pets", encoder, fingerprint, 3, spec, fixed_point=form, privacy=agreed)
        self.ledger, self.home = folder / "ledger", folder / "home"
        (self.home / "superlink").mkdir(parents=True)
        self.keys = {f"clinic-{number}": IdentityKey.generate() for number in range(n)}
        with FederationStore.create(self.ledger, self.terms) as store:
            store.enrol_many((name, key.public, f"ssh {name}") for name, key in self.keys.items())
        nodes = {f"ssh {name}": 100 + number for number, name in enumerate(self.keys)}
        (self.home / REGISTERED).write_text(json.dumps(nodes))

    def contribute(self, *names: str) -> None:
        stats = Statistics.of(np.ones((4, 3)) / 2, [0, 1, 1, 1], self.terms.spec, n_classes=2)
        with FederationStore.open(self.ledger) as store:
            store.submit_many(
                [encode(stats, self.terms.agreement, client=name, version=1, key=self.keys[name]) for name in names]
            )

    def states(self) -> dict[str, str]:
        return {party.name: party.state for party in Viewer(self.ledger, self.home).look().parties}


@pytest.fixture
def town(tmp_path: Path) -> Town:
    return Town(tmp_path)


def test_under_an_epsilon_the_page_holds_nothing_of_the_exact_sums(tmp_path: Path) -> None:
    """Counts, and bytes, which tell how many classes a party holds, have no noise on them."""
    town = Town(tmp_path, epsilon=2.0)
    town.contribute("clinic-0", "clinic-1")
    with FederationStore.open(town.ledger) as store:
        store.note("round closed", round=1, asked=2, accepted=2, bytes=1234, refused=0, declined=0, failures=0)
        exact = store.status()
    view = Viewer(town.ledger, town.home).look()
    assert (exact.samples, exact.class_counts) == (8, (2, 6))
    assert (view.samples, view.classes, view.covered, view.clients) == (0, {}, 0, 2)
    assert {(party.samples, party.bytes) for party in view.parties} == {(None, None)}
    dense = 8 * town.terms.layout.size
    assert (view.bytes, [told["bytes"] for told in view.rounds]) == (2 * dense, [2 * dense])


def test_under_an_epsilon_no_sentence_of_a_refusal_is_shown(tmp_path: Path) -> None:
    """A refusal tells the client's exact numbers: who was refused and its code may be read by others, no more."""
    town = Town(tmp_path, epsilon=2.0)
    town.contribute("clinic-0")
    other = Statistics.of(np.ones((7, 3)) / 2, [0] * 7, town.terms.spec, n_classes=2)
    with FederationStore.open(town.ledger) as store:
        first = store.status().contributors[0].digest
        again = encode(other, town.terms.agreement, client="clinic-0", version=1, key=town.keys["clinic-0"])
        (outcome,) = store.submit_many([again])
        assert isinstance(outcome, RefusedError)
        store.leave("clinic-0")
    view = Viewer(town.ledger, town.home).look()
    (refused,) = (party for party in view.parties if party.state == "refused")
    assert (refused.name, refused.detail) == ("clinic-0", "conflict")
    assert outcome.sentence not in page_of(view)
    assert first[:12] not in page_of(view)


def test_a_party_is_shown_in_the_state_that_it_is_in(town: Town) -> None:
    with Invitations(town.ledger, town.terms.id) as invitations:
        invitations.invite("ward", days=1)
    town.contribute("clinic-0")
    with FederationStore.open(town.ledger) as store:
        store.note("declined", node="103", count=1, clients=[{"client": "clinic-3", "why": "too few"}])
        store.revoke("clinic-4")
        live = Live(str(town.home), store)
        live.say(phase="round 1 of 1", here=[100, 101, 102], pending=[102], at_once=True)
    assert town.states() == {
        "clinic-0": "contributed",
        "clinic-1": "connected",
        "clinic-2": "measuring",
        "clinic-3": "refused",
        "clinic-4": "revoked",
        "clinic-5": "enrolled",
        "ward": "invited",
    }
    view = Viewer(town.ledger, town.home).look()
    assert (view.phase, view.clients, view.samples, view.covered) == ("round 1 of 1", 1, 4, 2)


def test_what_has_not_changed_is_not_read_again(town: Town) -> None:
    viewer = Viewer(town.ledger, town.home)
    first = viewer.look()
    assert viewer.look() is first
    town.contribute("clinic-0")
    assert viewer.look() is not first


def test_a_run_that_fell_silent_is_not_shown_as_running(town: Town) -> None:
    (town.home / LIVE).write_text(json.dumps({"phase": "round 1 of 1", "time": time.time() - 1000}))
    assert Viewer(town.ledger, town.home).look().phase == "no run was started yet"


@pytest.mark.parametrize("text", ["", "[]", "{", '{"time": "x", "here": 7, "pending": ["a"], "sites": []}', "[" * 9999])
def test_a_spoiled_file_of_a_run_spoils_nothing(town: Town, text: str) -> None:
    (town.home / LIVE).write_text(text)
    assert len(town.states()) == 6


def test_nodes_have_names_and_who_is_absent_is_named(town: Town) -> None:
    with FederationStore.open(town.ledger) as store:
        live = Live(str(town.home), store)
        assert (live.name(101), live.name(7)) == ("clinic-1", "node 7")
        assert live.absent([100, 101, 102, 103]) == ["clinic-4", "clinic-5"]
        with Invitations(town.ledger, town.terms.id) as invitations:
            for name in ("ward", "clinic-0"):
                invitations.invite(name, days=1)
        assert live.absent([100, 101, 102, 103]) == ["clinic-4", "clinic-5", "ward (has a kit, has not enrolled)"]


def test_once_enough_nodes_are_here_nobody_is_called_missing(town: Town) -> None:
    class Here:
        def get_node_ids(self) -> list[int]:
            return [100]

    with FederationStore.open(town.ledger) as store:
        live = Live(str(town.home), store)
        wait_for_nodes(cast("Any", Here()), ServerSettings(str(town.ledger), nodes=1), None, live=live)
        assert read_live(town.home)["waiting"] == "1 of 1 nodes are here"
        with pytest.raises(DeploymentError, match="missing: clinic-1, clinic-2"):
            wait_for_nodes(cast("Any", Here()), ServerSettings(str(town.ledger), nodes=2, wait=0), None, live=live)


def get(url: str, **headers: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_page_metrics_and_health_on_this_machine(town: Town) -> None:
    town.contribute("clinic-0", "clinic-1")
    with Web(LivePage(town.ledger, town.home).app, "127.0.0.1", 0) as web:
        code, page = get(f"{web.url}/")
        assert (code, "clinic-5" in page, "2 contributed, " in page or "4 enrolled, 2 contributed" in page) == (
            200, True, True
        )  # fmt: skip
        assert EVIL not in page
        assert "connect-src 'self'" in page.replace("&#x27;", "'")
        _, numbers = get(f"{web.url}/metrics")
        assert 'fedmoments_parties{state="contributed"} 2' in numbers
        assert "fedmoments_classes_covered 2" in numbers
        assert json.loads(get(f"{web.url}/health")[1])["status"] == "ready"
        assert get(f"{web.url}/", Host="evil.example.org")[0] == 403
        for method in ("POST", "PUT", "DELETE"):
            request = urllib.request.Request(f"{web.url}/", b"", method=method)
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(request, timeout=60)
            with refused.value:
                assert refused.value.code == 405


def test_elsewhere_the_page_wants_its_token(town: Town, tmp_path: Path) -> None:
    authority = make_authority(tmp_path / "keys", ["localhost"])
    page = LivePage(town.ledger, town.home, LivePage.new_token())
    context = ssl.create_default_context(cafile=str(authority.root))
    opener = urllib.request.build_opener(
        urllib.request.HTTPSHandler(context=context), urllib.request.HTTPCookieProcessor()
    )
    with Web(page.app, "127.0.0.1", 0, certificate=authority.certificate, key=authority.key) as web:
        for path in (
            "/",
            "/metrics",
            "/events",
            "/health",
            "/?token=wrong",
            "/?token=\N{SNOWMAN}".encode().decode("latin1"),
        ):
            with pytest.raises((urllib.error.HTTPError, UnicodeError)) as refused:
                opener.open(f"{web.url}{path}", timeout=60)
            if isinstance(refused.value, urllib.error.HTTPError):
                with refused.value:
                    assert refused.value.code == 403
        with opener.open(f"{web.url}/?token={page.token}", timeout=60) as answer:
            assert "token" not in answer.url
            assert "clinic-5" in answer.read().decode()
        with opener.open(f"{web.url}/metrics", timeout=60) as answer:  # by the cookie
            assert answer.status == 200


def test_a_partys_numbers_are_for_its_own_machine() -> None:
    """A web page that gives its own name this machine's address would read how many samples a party has."""
    facts = {"fedmoments_samples_to_encode": ("gauge", 1234)}
    with Web(own_metrics(lambda: (facts, "")), "127.0.0.1", 0) as web:
        assert "1234" in get(f"{web.url}/metrics")[1]
        for host in ("rebound.example", f"rebound.example:{web.port}", "127.0.0.1.rebound.example", "0.0.0.0"):
            status, text = get(f"{web.url}/metrics", Host=host)
            assert (status, "1234" in text) == (403, False)


def test_changes_arrive_as_events(town: Town) -> None:
    with (
        Web(LivePage(town.ledger, town.home).app, "127.0.0.1", 0) as web,
        urllib.request.urlopen(f"{web.url}/events", timeout=60) as stream,
    ):
        first = next_parts(stream)
        assert set(first) == {"answer", "parties", "sums", "privacy"}
        town.contribute("clinic-0")
        second = next_parts(stream)
        assert "1 contributed" in second["parties"]
        assert "privacy" not in second


def next_parts(stream: Any) -> dict[str, str]:
    for line in stream:
        if line.startswith(b"data: "):
            parts: dict[str, str] = json.loads(line[6:])
            return parts
    raise AssertionError("the stream ended")


def test_who_is_missing_stands_before_who_is_done_and_ten_after_nine(tmp_path: Path) -> None:
    town = Town(tmp_path, 12)
    town.contribute("clinic-0", "clinic-2", "clinic-10")
    with FederationStore.open(town.ledger) as store:
        store.note("declined", node="103", count=1, clients=[{"client": "clinic-11", "why": "too few"}])
    names = [party.name for party in Viewer(town.ledger, town.home).look().parties]
    waited_for = [f"clinic-{number}" for number in (1, 3, 4, 5, 6, 7, 8, 9)]
    assert names == ["clinic-11", *waited_for, "clinic-0", "clinic-2", "clinic-10"]


def test_a_page_of_a_thousand_parties_is_bounded(tmp_path: Path) -> None:
    town = Town(tmp_path, 1200)
    town.contribute(*list(town.keys)[:600])
    viewer = Viewer(town.ledger, town.home)
    from fedmoments.pages.live_view import page_of

    page = page_of(viewer.look())
    assert "… and 200 more" in page
    assert len(page) < 1_000_000
