"""Simulations of 10,000, 100,000 and 1,000,000 clients: CPU a client, and memory beside the features.

Five samples a client, 64 dimensions, 100 classes; fedncm, fedcof and fed3r. FEDMOMENTS_MOST_CLIENTS leaves larger ones
out. Cost is to be linear: a client of a million may cost no more than one of a hundred thousand.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest

SIMULATED = """
import json, sys, time
from pathlib import Path
import numpy as np
from fedmoments.samples.features import Features, Samples
from fedmoments.study.simulation import simulate

def resident(field):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(field)) / 1024

n_clients, dim, classes, rng = int(sys.argv[1]), 64, 100, np.random.default_rng(0)
n = 5 * n_clients
centres = 0.5 * rng.standard_normal((classes, dim), dtype=np.float32)
y, ids = rng.integers(classes, size=n), rng.integers(n_clients, size=n)
X = rng.standard_normal((n, dim), dtype=np.float32)
for block in range(0, n, 65536):
    X[block : block + 65536] += centres[y[block : block + 65536]]
part = Samples(X, y)
features = Features("drawn", classes, part, Samples(X[:2000], y[:2000]), ids=ids)
simulate(Features("small", classes, Samples(X[:500], y[:500]), Samples(X[:9], y[:9])), ["fedcof"], seeds=1, clients=[5])
Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
before, start = resident("VmRSS"), time.process_time()
report = simulate(features, ["fedncm", "fedcof", "fed3r"], splits=["id"], seeds=1)
used, peak = time.process_time() - start, resident("VmHWM")
outcomes = {row.head: row.outcomes[0] for row in report.rows}
assert all(outcome.reason is None for outcome in outcomes.values()), outcomes
print(json.dumps({"seconds": used, "memory": peak - before, "why": outcomes["fedcof"].float64,
                  "accuracy": {name: outcome.accuracy for name, outcome in outcomes.items()}}))
"""


def run(n_clients: int) -> dict[str, float]:
    one = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", SIMULATED, str(n_clients)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=one)
    found: dict[str, float] = json.loads(done.stdout)
    return found


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is read from /proc")
def test_cost_is_linear_up_to_a_million_clients(note: Callable[[str, str, str], None]) -> None:
    most = int(os.environ.get("FEDMOMENTS_MOST_CLIENTS", "1000000"))
    each: dict[int, float] = {}
    for n_clients in (10_000, 100_000, 1_000_000):
        if n_clients > most:
            continue
        found = run(n_clients)
        each[n_clients] = found["seconds"] / n_clients
        text = f"{1e6 * each[n_clients]:.1f} µs, {found['memory']:.0f} MB"
        note(f"Simulation of {n_clients:,} clients: CPU a client, memory", text, "-")
    for few, many in pairwise(sorted(each)):
        assert each[many] <= 1.5 * each[few], f"a client of {many:,} costs more than one of {few:,}: {each}"
    if 1_000_000 in each:
        assert found["memory"] < 1500, "kept means alone would take 2,500 MB"
    assert np.isfinite(list(each.values())).all()
