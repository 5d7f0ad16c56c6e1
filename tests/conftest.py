"""What all tests share: a process that hears signals, however the tests were started."""

import os
import signal
from pathlib import Path

from hypothesis import HealthCheck, settings

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
