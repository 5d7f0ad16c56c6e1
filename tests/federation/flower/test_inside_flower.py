"""The recipe of docs/inside-flower.md: moments in an app of one's own give the head of all features in one place."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")

import fedmoments as fm
from fedmoments.errors import FileFormatError
from fedmoments.federation.flower.grid import run_in_process

PAGE = Path(__file__).parents[3] / "docs" / "inside-flower.md"


@pytest.fixture
def recipe(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    match = re.search(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert match
    names: dict[str, Any] = {}
    exec(match[1], names)
    monkeypatch.chdir(tmp_path)
    return names


def test_the_recipe_gives_the_head_of_all_clients(recipe: dict[str, Any]) -> None:
    configs = [{"partition-id": number} for number in range(5)]
    run_in_process(recipe["server_app"], recipe["client_app"], configs, {})
    found = fm.load("head.safetensors")
    contexts = [type("Some", (), {"node_config": config})() for config in configs]
    clients = {str(number): recipe["features_of"](context) for number, context in enumerate(contexts, 1)}
    wanted = fm.fit("fedcof", clients)
    X = np.concatenate([X for X, _ in clients.values()])
    np.testing.assert_allclose(found.scores(X), wanted.scores(X), rtol=1e-9, atol=1e-9)


def test_bytes_of_statistics_come_back_and_damaged_ones_do_not() -> None:
    stats = fm.Statistics.of([[1.0, 2.0], [3.0, 4.0]], [0, 1], fm.spec_for("fedcof", "gh-lda"), n_classes=3)
    data = stats.to_bytes()
    assert fm.Statistics.from_bytes(data) == stats
    for broken in (b"", data[:-1], data[:-8] + bytes(8), b"x" * 100):
        with pytest.raises(FileFormatError):
            fm.Statistics.from_bytes(broken)
