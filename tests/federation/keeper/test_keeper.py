"""Whoever asks the keeper gets signatures of its own federation, sums by the helper's rules, and never a key."""

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cryptography")

from fedmoments.core.statistics import FixedPoint, Statistics, StatisticsSpec
from fedmoments.errors import InputError, PolicyError, RefusedError
from fedmoments.federation.keeper import ClientKeeper, KeptIdentity, Line, serve
from fedmoments.federation.keys import load_identity, make_client
from fedmoments.privacy.secure import Context, HelperKey, make_report, read_report
from fedmoments.settings.client import ClientSettings
from fedmoments.wire import Agreement, decode, encode

FEDERATION, OTHER = "ab" * 32, "cd" * 32


def agreement_of(federation: str) -> Agreement:
    return Agreement(federation, "11" * 32, "22" * 32, 2, 3, StatisticsSpec(), FixedPoint(4.0, 1000))


@contextmanager
def line_to(answer: Callable[..., Any]) -> Iterator[Line]:
    """A keeper in a thread, and the line to it."""
    here, there = socket.socketpair()
    keeper = threading.Thread(target=serve, args=(there.detach(), answer))
    keeper.start()
    line = Line(here.detach())
    try:
        yield line
    finally:
        line.close()
        keeper.join()


@pytest.fixture
def settings(tmp_path: Path) -> ClientSettings:
    make_client(tmp_path / "keys", "clinic")
    make_client(tmp_path / "keys", "ward")
    (tmp_path / "clinic").mkdir()
    return ClientSettings(
        data="digits",
        name="clinic",
        keys=str(tmp_path / "keys"),
        folder=str(tmp_path / "clinic"),
        federation=FEDERATION,
    )


@pytest.fixture
def line(settings: ClientSettings) -> Iterator[Line]:
    with line_to(ClientKeeper(settings).answer) as line:
        yield line


def test_what_a_keeper_signs_is_what_the_key_signs(settings: ClientSettings, line: Line) -> None:
    key, kept = load_identity(Path(settings.keys) / "clinic.identity"), KeptIdentity(line, "clinic")
    assert kept.public == key.public
    assert kept.derive(b"noise") == key.derive(b"noise") != key.derive(b"other noise")
    stats = Statistics.of(np.ones((5, 3)), [0, 1, 1, 1, 1], StatisticsSpec(), n_classes=2)
    agreement = agreement_of(FEDERATION)
    data = encode(stats, agreement, client="clinic", version=1, key=kept)
    assert data == encode(stats, agreement, client="clinic", version=1, key=key)
    assert decode(data, agreement, lambda _: key.public).client == "clinic"
    context = Context(FEDERATION, 0, "ef" * 32)
    vector, helper = np.arange(4, dtype=np.uint64), HelperKey.generate().public
    report = make_report(vector, context, client="clinic", version=1, helper=helper, key=kept)
    assert read_report(report, context, 4, lambda _: key.public).client == "clinic"


def test_nothing_of_another_federation_or_client_is_signed(line: Line) -> None:
    kept = KeptIdentity(line, "clinic")
    stats = Statistics.of(np.ones((5, 3)), [0, 1, 1, 1, 1], StatisticsSpec(), n_classes=2)
    with pytest.raises(PolicyError, match="nothing was signed"):
        encode(stats, agreement_of(OTHER), client="clinic", version=1, key=kept)
    with pytest.raises(PolicyError, match="of 'ward' for"):
        encode(stats, agreement_of(FEDERATION), client="ward", version=1, key=kept)
    vector, helper = np.arange(4, dtype=np.uint64), HelperKey.generate().public
    with pytest.raises(PolicyError, match="nothing was signed"):
        make_report(vector, Context(OTHER, 0, "ef" * 32), client="clinic", version=1, helper=helper, key=kept)
    with pytest.raises(PolicyError, match="has the key of client 'clinic'"):
        KeptIdentity(line, "ward")


@pytest.mark.parametrize(
    "data",
    [b"", b"anything", b"fedmoments contribution 1\n", b"fedmoments contribution 1\n" + bytes(232), os.urandom(500)],
)
def test_nothing_is_signed_that_is_no_word_of_the_protocol(line: Line, data: bytes) -> None:
    with pytest.raises((PolicyError, RefusedError)):
        KeptIdentity(line, "clinic").sign(data)


def test_a_tuning_is_signed_where_the_policy_allows_one(settings: ClientSettings, line: Line) -> None:
    data = f"fedmoments tuning\nupdate\n{FEDERATION}\nrun\n".encode() + b"parameters"
    with pytest.raises(PolicyError, match="does not allow one"):
        KeptIdentity(line, "clinic").sign(data)
    allowed = settings.changed({"policy": {"tuning": "lp"}})
    with line_to(ClientKeeper(allowed).answer) as other:
        kept = KeptIdentity(other, "clinic")
        assert kept.public.verify(kept.sign(data), data)
        with pytest.raises(PolicyError, match="nothing was signed"):
            kept.sign(data.replace(FEDERATION.encode(), OTHER.encode()))


def test_results_of_tests_are_signed_for_the_own_federation_alone(line: Line) -> None:
    kept = KeptIdentity(line, "clinic")
    results = f"fedmoments evaluation 1\n{FEDERATION}\n{'11' * 32}\n{'22' * 32}".encode()
    assert kept.public.verify(kept.sign(results), results)
    with pytest.raises(PolicyError, match="nothing was signed"):
        kept.sign(results.replace(FEDERATION.encode(), OTHER.encode()))
    vector, helper = np.arange(4, dtype=np.uint64), HelperKey.generate().public
    tests = Context(FEDERATION, 0, "ef" * 32).testing("11" * 32)
    assert make_report(vector, tests, client="clinic", version=1, helper=helper, key=kept)
    other = Context(OTHER, 0, "ef" * 32).testing("11" * 32)
    with pytest.raises(PolicyError, match="nothing was signed"):
        make_report(vector, other, client="clinic", version=1, helper=helper, key=kept)


def test_no_question_gets_the_key_out(settings: ClientSettings, line: Line) -> None:
    secret = load_identity(Path(settings.keys) / "clinic.identity").private_bytes()
    with pytest.raises(InputError, match="never leaves it"):
        KeptIdentity(line, "clinic").private_bytes()
    for what in ("private", "private_bytes", "key", "", "../keys", "_key"):
        with pytest.raises(InputError):
            line.ask(what, client="clinic")
    with pytest.raises((InputError, PolicyError)):
        line.ask("public", client="../keys/clinic")
    with pytest.raises(InputError):
        line.ask("public")
    answers = [line.ask(what, b"x" * 99, client="clinic")[1] for what in ("public", "derive")]
    assert not any(secret in answer for answer in answers)


def test_a_keeper_outlives_nonsense(settings: ClientSettings) -> None:
    deep = b'{"what": "sign", "fields": ' + b"[" * 10**5 + b"]" * 10**5 + b"}\n"
    for nonsense in (deep, b"", b"\n", b"[]\n", b'{"what": 1}\n', b'{"what": "sign", "fields": 7}\n', b"\xff" * 50):
        with line_to(ClientKeeper(settings).answer) as line:
            line._connection.send_bytes(nonsense)
            assert b'"error"' in line._connection.recv_bytes()
            assert KeptIdentity(line, "clinic").public.hex


def test_a_keeper_outlives_whatever_a_question_breaks() -> None:
    def broken(what: str, fields: Any, data: bytes) -> Any:
        raise {"index": IndexError, "depth": RecursionError, "memory": MemoryError, "name": AttributeError}[what]

    with line_to(broken) as line:
        for what in ("index", "depth", "memory", "name"):
            with pytest.raises(InputError, match="the keeper of the key cannot do that"):
                line.ask(what)
