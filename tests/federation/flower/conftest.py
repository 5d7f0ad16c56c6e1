"""A small federation of features in one process: the same two apps as in a deployment."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmoments.federation.deploy.local import LocalFederation, prepare_local
from fedmoments.privacy.protection import Agreed
from fedmoments.settings.server import ServerSettings
from fedmoments.settings.study import StudySettings

Made = Callable[..., LocalFederation]


@pytest.fixture(scope="session")
def features(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Features (300 + 90, 6) of three classes that a linear classifier tells apart."""
    rng = np.random.default_rng(7)
    y = np.arange(390) % 3
    X = (rng.normal(size=(390, 6)) + 3.0 * np.eye(3, 6)[y]).astype(np.float32)
    path = tmp_path_factory.mktemp("features") / "toy.npz"
    np.savez(path, x_train=X[:300], y_train=y[:300], x_test=X[300:], y_test=y[300:])
    return path


@pytest.fixture
def make(features: Path, tmp_path: Path) -> Made:
    """Prepare a federation of 12 clients on 4 nodes in one process; keywords change the server's settings.

    Clients send all that they have, unless a policy is given.
    """
    count = 0

    def prepare(
        *,
        nodes: int = 4,
        clients: int = 12,
        policy: dict[str, Any] | None = None,
        privacy: Agreed | None = None,
        **server: Any,
    ) -> Any:
        nonlocal count
        count += 1
        settings = replace(ServerSettings("ledger", heads=("fedcof", "fedncm"), deadline=20.0), **server)
        config = StudySettings(data=f"npz:{features}", clients=(clients,), splits=("dirichlet:0.5",))
        folder = tmp_path / f"federation-{count}"
        rules = policy or {"min_count": 1}
        agreed = privacy or Agreed()
        return prepare_local(folder, config, settings, nodes=nodes, engine="memory", policy=rules, privacy=agreed)

    return prepare
