"""A month of a federation in real processes over TLS ends with every state as a plain recomputation gives it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "month.py"
#: Seconds; measured on two busy cores: 445.
MOST = 1000


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
    assert [day["day"] for day in days] == list(range(1, 9))
    assert all(day["same"] for day in days)
