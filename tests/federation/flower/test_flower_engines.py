"""One process, Flower's simulation and a deployment over TLS give the same classifier, to the last bit."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import HANG

from fedmoments.federation.deploy.local import ENGINES, prepare_local, run_local
from fedmoments.federation.results import fit_heads
from fedmoments.federation.store import FederationStore
from fedmoments.settings.server import ServerSettings
from fedmoments.settings.study import StudySettings

pytestmark = pytest.mark.long


def test_all_engines_give_the_same_bits(features: Path, tmp_path: Path) -> None:
    found = {}
    for engine in ENGINES:
        config = StudySettings(data=f"npz:{features}", clients=(6,), splits=("dirichlet:0.5",))
        settings = ServerSettings("ledger", heads=("fedcof", "gh-lda"), evaluate=False)
        plan = prepare_local(tmp_path / engine, config, settings, nodes=2, engine=engine, policy={"min_count": 1})
        run_local(plan, engine, timeout=HANG)
        with FederationStore.open(plan.server.ledger) as store:
            assert store.status().clients == 6
            fitted = fit_heads(store, ["fedcof", "gh-lda"])
            found[engine] = [(each.statistics_digest, each.classifier.digest()) for each in fitted.values()]
    assert found["flower"] == found["ray"] == found["memory"]


def test_a_deployment_on_digits_prints_the_digest_of_a_simulation(tmp_path: Path) -> None:
    def command(*arguments: str) -> dict[str, Any]:
        whole = [str(Path(sys.executable).parent / "fedmoments"), *arguments, "--json"]
        done = subprocess.run(whole, capture_output=True, text=True, timeout=HANG, cwd=tmp_path, check=False)
        assert done.returncode == 0, done.stderr
        document: dict[str, Any] = json.loads(done.stdout)
        return document

    same = ("--size", "96", "--clients", "12", "--heads", "fedcof", "--cache")
    deployed = command("federate", "--local", "3", "--tls", *same, str(tmp_path / "one"))
    simulated = command("simulate", "digits", "--seeds", "1", "--min-count", "5", *same, str(tmp_path / "other"))
    [head], [detail] = deployed["heads"], simulated["details"]
    assert head["classifier"] == detail["digest"]
    assert head["statistics"] == detail["statistics_digest"]
    assert head["accuracy"] == simulated["rows"][0]["accuracy"]
