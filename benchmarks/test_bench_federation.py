"""Ten thousand clients in one process, and the same two apps on Flower's own simulation."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

Note = Callable[[str, str, str], None]

#: Runs a federation of features in an own process, and prints seconds, peak megabytes and the classifier's digest.
_SCRIPT = """
import json, resource, sys, time
from pathlib import Path
from fedmoments.federation.deploy.local import prepare_local, run_local
from fedmoments.federation.results import fit_heads
from fedmoments.federation.store import FederationStore
from fedmoments.settings.server import ServerSettings
from fedmoments.settings.study import StudySettings

folder, data, clients, engine = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]
config = StudySettings(data=f"npz:{data}", clients=(clients,), splits=("classes:3",))
server = ServerSettings("ledger", heads=("fedcof",), nodes=clients, evaluate=False, deadline=800.0)
start = time.monotonic()
plan = prepare_local(folder, config, server, nodes=clients, engine=engine, policy={"min_count": 1})
run_local(plan, engine)
seconds = time.monotonic() - start
with FederationStore.open(plan.server.ledger) as store:
    found = fit_heads(store, ["fedcof"])["fedcof"]
    count = store.status().clients
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
print(json.dumps({"seconds": seconds, "peak": peak, "digest": found.classifier.digest(), "clients": count}))
"""


def features(folder: Path, clients: int) -> Path:
    """Write features of 100 classes in 512 dimensions, six samples a client."""
    rng = np.random.default_rng(0)
    y = np.arange(6 * clients) % 100
    X = rng.normal(size=(len(y), 512)).astype(np.float32) + rng.normal(size=(100, 512)).astype(np.float32)[y]
    path = folder / f"{clients}.npz"
    np.savez(path, x_train=X, y_train=y, x_test=X[:100], y_test=y[:100])
    return path


def run(folder: Path, data: Path, clients: int, engine: str) -> dict[str, object]:
    arguments = [sys.executable, "-c", _SCRIPT, str(folder / engine), str(data), str(clients), engine]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_ten_thousand_clients_in_one_process(tmp_path: Path, note: Note) -> None:
    found = run(tmp_path, features(tmp_path, 10_000), 10_000, "memory")
    assert found["clients"] == 10_000
    note("10,000 clients in one process, seconds", f"{found['seconds']:.1f}", "<= 60")
    note("10,000 clients in one process, peak MB", f"{found['peak']:.0f}", "<= 1000")
    assert float(str(found["seconds"])) <= 60
    assert float(str(found["peak"])) <= 1000


def test_two_hundred_clients_against_flowers_simulation(tmp_path: Path, note: Note) -> None:
    pytest.importorskip("ray")
    data = features(tmp_path, 200)
    ours, theirs = run(tmp_path, data, 200, "memory"), run(tmp_path, data, 200, "ray")
    assert ours["digest"] == theirs["digest"]
    ratio = float(str(theirs["seconds"])) / float(str(ours["seconds"]))
    note("200 clients, Flower's simulation / one process", f"{ratio:.1f}", ">= 10")
    assert ratio >= 10
