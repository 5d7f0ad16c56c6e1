"""What all tests share: a process that hears signals, however the tests were started, and a browser."""

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from fedmoments.errors import MissingExtraError

# A busy machine takes long to draw and to run an example; that is no fault of the code.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


def pytest_configure() -> None:
    """Hear interrupts and hang-ups: `nohup` and shells in the background make all processes below them ignore these.

    Several tests are programs, too, which they start by their path; these import from `tests` as tests do.
    """
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    )
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)


#: Set where only light extras are installed: tests that need others are skipped there, by name, instead of failing.
WITHOUT_EXTRAS = "FEDMOMENTS_TESTS_WITHOUT_EXTRAS"


@contextmanager
def skipping_missing_extras() -> Iterator[None]:
    try:
        yield
    except (MissingExtraError, ModuleNotFoundError) as error:
        ours = isinstance(error, ModuleNotFoundError) and str(error.name).startswith(("fedmoments", "tests"))
        if ours or not os.environ.get(WITHOUT_EXTRAS):
            raise
        pytest.skip(f"{WITHOUT_EXTRAS}: {error}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Iterator[None]:
    with skipping_missing_extras():
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    with skipping_missing_extras():
        yield


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Start one headless Chromium for all tests; skip where there is none."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if not chromium or not driver:
        pytest.skip("no Chromium with chromedriver on the PATH: apt-get install chromium chromium-driver")
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed: pip install selenium")
    from selenium.webdriver.chrome.service import Service

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = chromium
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        started = webdriver.Chrome(options=options, service=Service(driver))
        try:
            yield started
        finally:
            started.quit()
