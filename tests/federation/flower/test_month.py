"""A month of a federation in real processes over TLS ends with every state as a plain recomputation gives it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "month.py"
#: Seconds. Measured on two cores: 270 beside some other work, 1,000 where each process waits for ten others.
MOST = 3600


def test_a_month(tmp_path: Path) -> None:
    month = subprocess.run(
        [sys.executable, SCRIPT],
        env=os.environ | {"TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=MOST,
        check=False,
    )
    assert month.returncode == 0, month.stdout + month.stderr
    days = [json.loads(line) for line in month.stdout.splitlines() if line.startswith('{"day": ')]
    assert [day["day"] for day in days] == list(range(1, 10))
    assert all(day["same"] and day["heads"] for day in days)
    (aged,) = [json.loads(line) for line in month.stdout.splitlines() if line.startswith('{"half-life": ')]
    assert aged["same"]
