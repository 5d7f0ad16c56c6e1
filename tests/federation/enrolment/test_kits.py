"""Start-up kits: tokens are good once, for one name, until a day; a kit can make no party's rules looser."""

import json
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("cryptography")
pytest.importorskip("starlette")

import contextlib

from fedmoments import StatisticsSpec
from fedmoments.errors import DeploymentError, FileFormatError, InputError, PolicyError
from fedmoments.federation.deploy.web import Web
from fedmoments.federation.enrolment import invitations as room
from fedmoments.federation.enrolment.asking import enrol_with
from fedmoments.federation.enrolment.desk import Desk
from fedmoments.federation.enrolment.invitations import Invitations, invitations_of
from fedmoments.federation.enrolment.kit import Kit, check_stricter
from fedmoments.federation.keys import make_authority, make_client, read_card
from fedmoments.federation.store import FederationStore
from fedmoments.federation.terms import Terms
from fedmoments.samples.fingerprint import Fingerprint

TOKEN = "A" * 43 + "="


def terms_of(name: str = "pets") -> Terms:
    fingerprint = Fingerprint("none", "none", None, ("cat", "dog"))
    return Terms(name, {"name": "identity", "options": {}}, fingerprint, 2, StatisticsSpec())


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Kit:
    authority = make_authority(tmp_path_factory.mktemp("kit") / "keys", ["localhost"])
    expires = "2999-01-01T00:00:00+00:00"
    return Kit("clinic", "fed.example.org:9092", "[::1]:9093", authority.root.read_text(), terms_of(), TOKEN, expires)


@pytest.fixture
def invited(tmp_path: Path) -> Any:
    with Invitations(tmp_path / "ledger", "ab" * 32) as invitations:
        yield invitations


# -------------------------------------------------------------------------------------------------- kits


def test_a_kit_is_read_as_it_was_written(sound: Kit) -> None:
    kit = replace(sound, policy={"min_count": 9})
    assert Kit.from_bytes(kit.to_bytes()) == kit


@pytest.mark.parametrize(
    ("part", "value", "words"),
    [
        ("name", "../clinic", "client's name"),
        ("name", 7, "texts"),
        ("server", "fed.example.org", "HOST:PORT"),
        ("server", "-o ProxyCommand=x:1", "HOST:PORT"),
        ("server", "user@fed.example.org:9092", "HOST:PORT"),
        ("desk", "fed.example.org:99999", "HOST:PORT"),
        ("desk", "fed.example.org:9093/other?", "HOST:PORT"),
        ("ca", "no certificate", "start-up kit"),
        ("ca", "é", "start-up kit"),
        ("token", "short", "token"),
        ("token", "!" * 44, "token"),
        ("expires", "tomorrow", "start-up kit"),
        ("expires", "2999-01-01T00:00:00", "time zone"),
        ("terms", "{}", "terms"),
        ("policy", {"min_count": 1}, "looser"),
        ("policy", {"tuning": "ft"}, "looser"),
        ("policy", {"allow_evaluation": True}, "looser"),
        ("policy", {"maps": "any"}, "looser"),
        ("policy", {"helper": "ab" * 32}, "looser"),
        ("policy", {"max_heads": 1000}, "looser"),
        ("policy", {"sketch_share": 1.0}, "looser"),
        ("policy", {"min_counts": 9}, "min_counts"),
        ("policy", [], "table"),
        ("format", 1, "invite you again"),
        ("format", 3, "format"),
        ("format", 2.0, "format"),
        ("server", "fed.example.com:9092", "changed or damaged since it was made"),
        ("digest", "ab" * 32, "changed or damaged since it was made"),
        ("fedmoments", "card", "mark"),
        ("more", "x", "parts"),
    ],
)
def test_a_part_of_a_kit_that_cannot_be_is_refused(sound: Kit, part: str, value: Any, words: str) -> None:
    document = {**json.loads(sound.to_bytes()), part: value}
    with pytest.raises(FileFormatError, match=words):
        Kit.from_bytes(json.dumps(document).encode())


@given(data=st.data())
def test_a_hostile_kit_is_answered_with_our_error(sound: Kit, data: st.DataObject) -> None:
    content = bytearray(sound.to_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(FileFormatError):
        Kit.from_bytes(bytes(content))


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists))
def test_any_document_in_the_place_of_a_kit_is_answered_with_our_error(document: Any) -> None:
    with pytest.raises(FileFormatError):
        Kit.from_bytes(json.dumps(document).encode())


def test_rules_of_a_kit_can_only_be_stricter() -> None:
    check_stricter({"min_count": 6, "max_bytes": 10**6, "require_secure": True, "moments": ["counts"], "max_heads": 3})
    with pytest.raises(InputError, match="min_count = 4 is looser than 5"):
        check_stricter({"min_count": 4})


# -------------------------------------------------------------------------------------------------- tokens


def card_of(folder: Path, name: str = "clinic") -> Any:
    return read_card(make_client(folder, name).card)


def test_a_token_is_good_once_and_then_belongs_to_the_keys_that_used_it(invited: Invitations, tmp_path: Path) -> None:
    token, _ = invited.invite("clinic", days=1)
    mine, thief = card_of(tmp_path / "mine"), card_of(tmp_path / "thief")
    invited.use(mine, token)
    invited.use(mine, token)  # the answer was lost
    with pytest.raises(PolicyError, match="with other keys"):
        invited.use(thief, token)
    assert [invitation.is_open for invitation in invited.all()] == [False]


def test_of_many_at_once_one_wins(invited: Invitations, tmp_path: Path) -> None:
    token, _ = invited.invite("clinic", days=1)
    cards = [card_of(tmp_path / str(number)) for number in range(8)]
    start = threading.Barrier(8)

    def use(card: Any) -> bool:
        start.wait()
        try:
            invited.use(card, token)
        except PolicyError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(use, cards)) == 1


def test_a_token_is_bound_to_its_name_and_federation(invited: Invitations, tmp_path: Path) -> None:
    token, _ = invited.invite("clinic", days=1)
    invited.invite("lab", days=1)
    for card in (card_of(tmp_path, "lab"), card_of(tmp_path, "stranger")):
        with pytest.raises(PolicyError, match="no invitation"):
            invited.use(card, token)
    with (
        Invitations(tmp_path / "ledger", "cd" * 32) as elsewhere,
        pytest.raises(PolicyError, match="no invitation"),
    ):
        elsewhere.use(card_of(tmp_path), token)


def test_a_token_ends(invited: Invitations, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token, _ = invited.invite("clinic", days=1)
    card = card_of(tmp_path)
    later = datetime.now(UTC) + timedelta(days=2)
    monkeypatch.setattr(room, "_now", lambda: later)
    with pytest.raises(PolicyError, match="ended on"):
        invited.use(card, token)
    for days in (0, -1, 366, float("nan")):
        with pytest.raises(InputError, match="days"):
            invited.invite("clinic", days=days)


def test_a_new_invitation_makes_the_former_void(invited: Invitations, tmp_path: Path) -> None:
    former, _ = invited.invite("clinic", days=1)
    invited.invite("clinic", days=1)
    with pytest.raises(PolicyError):
        invited.use(card_of(tmp_path), former)
    assert invited.withdraw("clinic")
    assert not invited.withdraw("clinic")


def test_no_token_is_on_the_disk(invited: Invitations, tmp_path: Path) -> None:
    token, _ = invited.invite("clinic", days=1)
    for path in tmp_path.iterdir():
        assert token.encode() not in path.read_bytes()
    assert invitations_of(tmp_path / "ledger").stat().st_mode & 0o077 == 0


# -------------------------------------------------------------------------------------------------- the desk


class Place:
    """A desk over TLS on this machine, with a ledger, and what was admitted there."""

    def __init__(self, folder: Path) -> None:
        self.ledger, self.admitted = folder / "ledger", list[str]()
        self.authority = make_authority(folder / "keys", ["localhost"])
        self.terms = terms_of()
        FederationStore.create(self.ledger, self.terms).close()
        desk = Desk(self.ledger, self.admitted.append)
        self.web = Web(
            desk.app, "127.0.0.1", 0, certificate=self.authority.certificate, key=self.authority.key, what="the desk"
        )

    def kit(self, name: str = "clinic") -> Kit:
        with Invitations(self.ledger, self.terms.id) as invitations:
            token, expires = invitations.invite(name, days=1)
        address = f"localhost:{self.web.port}"
        return Kit(name, address, address, self.authority.root.read_text(), self.terms, token, expires)

    def enrolled(self) -> list[str]:
        with FederationStore.open(self.ledger) as store:
            return [member.client for member in store.enrolled()]


@pytest.fixture
def place(tmp_path: Path) -> Any:
    place = Place(tmp_path / "server")
    with place.web:
        yield place


def test_a_party_with_a_kit_is_enrolled_and_admitted_once(place: Place, tmp_path: Path) -> None:
    kit, keys = place.kit(), make_client(tmp_path / "party", "clinic")
    enrol_with(kit, keys, patience=0)
    enrol_with(kit, keys, patience=0)
    assert place.enrolled() == ["clinic"]
    assert set(place.admitted) == {read_card(keys.card).node_key}
    with pytest.raises(DeploymentError, match="with other keys"):
        enrol_with(kit, make_client(tmp_path / "thief", "clinic"), patience=0)


def test_a_token_used_once_stays_used_when_the_ledger_is_restored(place: Place, tmp_path: Path) -> None:
    with FederationStore.open(place.ledger) as store:
        store.snapshot(tmp_path / "copy")
    kit = place.kit()
    enrol_with(kit, make_client(tmp_path / "party", "clinic"), patience=0)
    for name in ("ledger", "ledger-wal", "ledger-shm"):
        (place.ledger.parent / name).unlink(missing_ok=True)
    FederationStore.restore(tmp_path / "copy", place.ledger).close()
    assert place.enrolled() == []
    with pytest.raises(DeploymentError, match="with other keys"):
        enrol_with(kit, make_client(tmp_path / "thief", "clinic"), patience=0)
    assert place.enrolled() == []


def test_a_card_without_its_key_is_not_enrolled(place: Place, tmp_path: Path) -> None:
    victim, thief = make_client(tmp_path / "victim", "clinic"), make_client(tmp_path / "thief", "clinic")
    thief.card.write_bytes(victim.card.read_bytes())
    with pytest.raises(DeploymentError, match="proof"):
        enrol_with(place.kit(), thief, patience=0)
    assert place.enrolled() == []


def test_another_server_is_not_given_the_token(place: Place, tmp_path: Path) -> None:
    other = make_authority(tmp_path / "other", ["localhost"])
    kit = replace(place.kit(), ca=other.root.read_text())
    with pytest.raises(DeploymentError, match="not the server"):
        enrol_with(kit, make_client(tmp_path / "party", "clinic"), patience=60)
    absent = replace(kit, desk="localhost:9")
    with pytest.raises(DeploymentError, match="no enrolment server answers"):
        enrol_with(absent, make_client(tmp_path / "again", "clinic"), patience=0)


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b"\xff", b'{"token": 1, "card": "", "proof": ""}', b"[" * 9000, b"x" * 20_000]
)
def test_a_hostile_request_is_answered_and_changes_nothing(place: Place, body: bytes) -> None:
    import ssl
    import urllib.error
    import urllib.request

    context = ssl.create_default_context(cafile=str(place.authority.root))
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"https://localhost:{place.web.port}/enrol", body, context=context, timeout=60)
    with refused.value:
        assert refused.value.code == 400
    assert place.enrolled() == []


def test_connections_that_say_nothing_keep_nobody_out(place: Place, tmp_path: Path) -> None:
    import socket
    import ssl
    from contextlib import ExitStack

    context = ssl.create_default_context(cafile=str(place.authority.root))
    with ExitStack() as stack:
        for _ in range(300):
            plain = socket.create_connection(("127.0.0.1", place.web.port), timeout=60)
            stack.enter_context(context.wrap_socket(plain, server_hostname="localhost"))
        enrol_with(place.kit(), make_client(tmp_path / "party", "clinic"), patience=0)
    assert place.enrolled() == ["clinic"]


def test_a_request_that_never_ends_is_answered(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    import socket
    import ssl

    monkeypatch.setattr("fedmoments.federation.enrolment.desk.ARRIVAL", 0.2)
    context = ssl.create_default_context(cafile=str(place.authority.root))
    plain = socket.create_connection(("127.0.0.1", place.web.port), timeout=60)
    with context.wrap_socket(plain, server_hostname="localhost") as connection:
        connection.sendall(b"POST /enrol HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9000\r\n\r\n{")
        assert connection.recv(100).startswith(b"HTTP/1.1 400")


def test_invitations_have_a_version_and_refuse_another(tmp_path: Path) -> None:
    with Invitations(tmp_path / "ledger", "ab" * 32):
        pass
    with sqlite3.connect(invitations_of(tmp_path / "ledger")) as connection:
        connection.execute("PRAGMA user_version=99")
    connection.close()
    with pytest.raises(FileFormatError, match="version 99"):
        Invitations(tmp_path / "ledger", "ab" * 32)
