"""Taking part through a proxy that the environment names: a real one on this machine, which sees bytes of TLS only."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.federation.enrolment.test_kits import Place
from tests.tunnels import NAME, proxy_variables, running_proxy
from tests.waiting import HANG, until

from fedmoments.errors import DeploymentError
from fedmoments.federation.deploy.network import choose_port
from fedmoments.federation.enrolment.asking import enrol_with
from fedmoments.federation.keys import make_client
from fedmoments.federation.store import FederationStore


@pytest.fixture
def through(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    def name(url: str) -> None:
        for key, value in proxy_variables(url).items():
            monkeypatch.setenv(key, value)
        for key in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(key, raising=False)

    return name


def test_a_party_enrols_through_the_proxy_that_the_environment_names(
    through: Callable[[str], None], tmp_path: Path
) -> None:
    place = Place(tmp_path / "server")
    with place.web, running_proxy() as proxy:
        through(proxy.url)
        kit = place.kit()
        enrol_with(kit, make_client(tmp_path / "party", "clinic"), patience=0)
        until(lambda: proxy.ended)
        assert proxy.asked == [f"CONNECT localhost:{place.web.port}"]
        assert kit.token.encode() not in b"".join(proxy.seen)
    assert place.enrolled() == ["clinic"]


def test_a_proxy_that_is_not_there_is_named_as_the_reason(through: Callable[[str], None], tmp_path: Path) -> None:
    through("http://127.0.0.1:9")
    place = Place(tmp_path / "server")
    with place.web, pytest.raises(DeploymentError, match="no enrolment server answers"):
        enrol_with(place.kit(), make_client(tmp_path / "party", "clinic"), patience=0)


@pytest.mark.long
def test_a_party_behind_a_proxy_takes_part_to_the_end(tmp_path: Path) -> None:
    """Its machine does not even know the server's name: enrolment and Flower's own connection go by the proxy."""
    y = np.arange(80) % 3
    X = np.random.default_rng(0).normal(size=(80, 8)).astype(np.float32)
    np.savez(tmp_path / "own.npz", x_train=X[:60], y_train=y[:60], x_test=X[60:], y_test=y[60:])
    port = choose_port("127.0.0.1")
    fedmoments(tmp_path, "keys", "server", "keys", "--host", NAME, "--host", "localhost")
    encoder = ("--encoder", "identity", "--dim", "8")
    fedmoments(tmp_path, "server", "create", "fed", "--name", "t", "--data", "own.npz", "--heads", "fed3r", *encoder)
    fedmoments(tmp_path, "server", "invite", "fed", "clinic", "--server", f"{NAME}:{port}")
    serve = ("server", "run", "fed", "--keys", "keys", "--port", str(port), "--nodes", "1", "--quorum", "1")
    with running_proxy() as proxy:
        behind = os.environ | proxy_variables(proxy.url) | {"NO_PROXY": "", "no_proxy": ""}
        client = ("client", "clinic.kit", "--data", "own.npz", "--yes")
        with started(tmp_path, *serve, "--wait", str(HANG)) as server, started(tmp_path, *client, env=behind) as party:
            assert (party.wait(HANG), server.wait(HANG)) == (0, 0), said(tmp_path)
    assert set(proxy.asked) == {f"CONNECT {NAME}:{port}", f"CONNECT {NAME}:{port + 1}"}
    with FederationStore.open(tmp_path / "fed") as store:
        assert [each.client for each in store.status().contributors] == ["clinic"]


def fedmoments(place: Path, *words: str) -> None:
    subprocess.run([sys.executable, "-m", "fedmoments", *words], cwd=place, check=True, capture_output=True)


@contextmanager
def started(place: Path, *words: str, env: Any = None) -> Iterator[subprocess.Popen[bytes]]:
    """Start a command whose words go to a file, and end it at the end, if it is still there."""
    with (place / f"{words[0]}.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "fedmoments", *words], cwd=place, env=env, stdout=log, stderr=log
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait(HANG)


def said(place: Path) -> str:
    return "\n".join(path.read_text(errors="replace")[-2000:] for path in place.glob("*.log"))
