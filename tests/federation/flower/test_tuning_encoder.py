"""Tuning an encoder by the two apps in one process: the same parameters as one process that holds all images."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr")
pytest.importorskip("cryptography")
pytest.importorskip("torch")
pytest.importorskip("PIL")

from PIL import Image
from tests.federation.flower.tuning_trials import ALLOWED, run, settings_of

from fedmoments import load
from fedmoments.errors import DeploymentError
from fedmoments.federation.deploy.local import LocalFederation, prepare_local, run_local
from fedmoments.federation.flower.holdings import Holdings
from fedmoments.federation.store import FederationStore
from fedmoments.samples.encoders import load_encoder
from fedmoments.settings.client import ClientSettings
from fedmoments.settings.server import ServerSettings
from fedmoments.settings.study import StudySettings
from fedmoments.tuning.loop import run_rounds
from fedmoments.tuning.network import NetworkEngine, prepare_all
from fedmoments.tuning.prices import Prices

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty images of two classes: bright above, or bright below."""
    folder, rng = tmp_path_factory.mktemp("images"), np.random.default_rng(3)
    for name, half in (("above", 0), ("below", 1)):
        (folder / name).mkdir()
        for number in range(20):
            pixels = rng.integers(0, 120, (32, 32, 3))
            pixels[16 * half : 16 * half + 16] += 100
            Image.fromarray(pixels.astype(np.uint8)).save(folder / name / f"{number}.png")
    return folder


@pytest.fixture
def federation(images: Path, tmp_path: Path) -> LocalFederation:
    config = StudySettings(
        data=f"folder:{images}",
        encoder="squeezenet-1.1",
        size=32,
        clients=(3,),
        splits=("iid",),
        threads=1,
        cache=str(tmp_path / "cache"),
    )
    server = ServerSettings("ledger", heads=("fedncm",), evaluate=False)
    made = prepare_local(tmp_path / "federation", config, server, nodes=2, engine="memory", policy=ALLOWED)
    run_local(made, "memory")
    return made


@pytest.mark.parametrize(("stage", "optimiser"), [("ft", "fedavg"), ("feat", "scaffold")])
def test_law_a_deployment_tunes_an_encoder_as_one_process_does(
    federation: LocalFederation, tmp_path: Path, stage: str, optimiser: str
) -> None:
    plan = {"stage": stage, "optimiser": optimiser, "rounds": 2, "lr": 1e-3, "batch_size": 8, "temperature": 1.0}
    settings = settings_of(federation, tmp_path / "out", start="fedncm", plan=plan)
    found = run(federation, settings)
    with FederationStore.open(federation.server.ledger) as store:
        holdings = Holdings(ClientSettings.load(federation.shared_settings), store.terms)
    parts = {}
    for client in sorted(holdings.clients):
        rows, labels = holdings.rows(client)
        items = holdings.samples().items
        parts[client] = (prepare_all(holdings.encoder, [items[row] for row in rows]), labels)
    engine = NetworkEngine(settings.tuning_plan, found.start, holdings.encoder, parts)
    prices = Prices(found.start.width, 2)
    simulation = run_rounds(settings.tuning_plan, engine, engine.initial(), prices=prices)
    assert set(found.tuned.arrays) == set(simulation.arrays)
    for name, array in simulation.arrays.items():
        np.testing.assert_allclose(found.tuned.arrays[name], array, rtol=0, atol=1e-6, err_msg=name)
    before = engine.initial()
    assert max(np.abs(array - before[name]).max() for name, array in simulation.arrays.items()) > 1e-4
    assert ("head/weights" in found.tuned.arrays) == (stage == "ft")
    if stage == "feat":
        assert found.classifier.digest() == found.start.classifier.digest()
    tuned = load_encoder(f"tuned:{tmp_path / 'out' / 'encoder.safetensors'}", threads=1)
    saved = load(tmp_path / "out" / "tuned.safetensors")
    assert saved.info["encoder"]["fingerprint"] == tuned.fingerprint != holdings.encoder.fingerprint
    assert found.tuned.points[0].accuracy is not None
    assert not found.failures


def test_consent_to_a_head_is_none_to_an_encoder(federation: LocalFederation, tmp_path: Path) -> None:
    own = ClientSettings.load(federation.shared_settings)
    federation.shared_settings.write_text(replace(own, policy={"min_count": 1, "tuning": "feat"}).to_toml())
    with pytest.raises(DeploymentError, match="the server asks for ft, allowed is feat"):
        run(federation, settings_of(federation, tmp_path / "out", start="fedncm", plan={"stage": "ft", "rounds": 1}))
