"""Waiting in tests: bounded, so that a hang ends; generous, so that a busy machine breaks nothing."""

import re
import time
from collections.abc import Callable

__all__ = ["HANG", "until", "without_progress"]

#: Seconds after which something is taken to hang. On an idle machine nothing that works needs a tenth of it.
HANG = 900.0


def until(done: Callable[[], object], *, pause: float = 0.05) -> None:
    """Wait until something is true; fail when it hangs."""
    end = time.monotonic() + HANG
    while not done():
        assert time.monotonic() < end, f"it did not happen within {HANG:g} s"
        time.sleep(pause)


def without_progress(text: str) -> str:
    """Return what a command said, less the lines on how far it is: these come on a slow machine only."""
    return re.sub(r"^\w+: \d+ of \d+.*\n", "", text, flags=re.MULTILINE)
