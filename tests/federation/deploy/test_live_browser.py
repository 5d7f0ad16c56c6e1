"""The live page as an operator uses it, in headless Chromium: it changes by itself, on a desk and on a phone."""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.federation.deploy.test_live_page import EVIL, Town
from tests.waiting import until

pytest.importorskip("starlette")

from fedmoments.federation.deploy.live_page import LivePage
from fedmoments.federation.deploy.web import Web
from fedmoments.federation.flower.live import Live
from fedmoments.federation.store import FederationStore


@pytest.fixture
def town(tmp_path: Path) -> Town:
    return Town(tmp_path)


@pytest.fixture(params=[1280, 390])
def window(browser: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    size = {"width": request.param, "height": 800, "deviceScaleFactor": 1, "mobile": request.param < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get_log("browser")
    yield browser
    browser.get("about:blank")  # lets go of the stream of events


def words(window: Any) -> str:
    return str(window.find_element("tag name", "body").text)


def test_the_page_follows_a_run_without_being_loaded_again(town: Town, window: Any) -> None:
    with Web(LivePage(town.ledger, town.home).app, "127.0.0.1", 0) as web:
        window.get(f"{web.url}/")
        window.execute_script("window.loadedOnce = true")
        assert "6 enrolled" in words(window)
        with FederationStore.open(town.ledger) as store:
            Live(str(town.home), store).say(
                phase="round 1 of 1", waiting="waiting for clinic-1", here=[100, 101], pending=[101], at_once=True
            )
        town.contribute("clinic-0")
        until(lambda: "1 contributed" in words(window) and "Waiting for clinic-1" in words(window))
        assert window.execute_script("return window.loadedOnce")
        wide, shown = window.execute_script(
            "return [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
        )
        assert wide <= shown
        assert window.find_elements("css selector", "img") == []  # a class is called EVIL
        assert EVIL not in window.page_source
        assert window.get_log("browser") == []


def test_a_page_whose_server_stopped_says_so_and_goes_on_with_the_next_one(town: Town, window: Any) -> None:
    with Web(LivePage(town.ledger, town.home).app, "127.0.0.1", 0) as web:
        port = web.port
        window.get(f"{web.url}/")
        before = words(window)
    until(lambda: words(window) != before and socket_is_free(port))
    with Web(LivePage(town.ledger, town.home).app, "127.0.0.1", port):
        town.contribute("clinic-3")
        until(lambda: "1 contributed" in words(window))


def socket_is_free(port: int) -> bool:
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
