"""Maps that all parties measure behind: projections, and Fourier features whose width a first exchange gives."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cryptography")
pytest.importorskip("flwr")
pytest.importorskip("click")

from click.testing import CliRunner
from tests.federation.living import DIM, Party, ask, enrol, held, loaded, write_features

from fedmoments.cli.app import app
from fedmoments.core.heads import make_head
from fedmoments.core.maps import RandomFourier, RandomProjection
from fedmoments.core.statistics import Statistics
from fedmoments.federation.results import fit_heads
from fedmoments.federation.store import FederationStore

CLASSES = "cat,dog,yak"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)

    def invoke(*arguments: str, code: int = 0) -> Any:
        result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
        assert result.exit_code == code, result.output
        return result

    return invoke


def create(run: Any, ledger: str, *options: str, code: int = 0) -> Any:
    given = ("--name", ledger, "--classes", CLASSES, "--encoder", "identity", "--dim", str(DIM))
    return run("server", "create", ledger, *given, *options, code=code)


def party(tmp_path: Path, ledger: str, **changes: Any) -> Party:
    data = write_features(tmp_path / "a.npz", {"cat": 20, "dog": 20, "yak": 20}, 1)
    one = Party("clinic", tmp_path / f"clinic-{ledger}", str(data), changes)
    enrol(tmp_path / ledger, one)
    return one


def test_a_projection_in_the_terms_is_what_is_measured_behind(run: Any, tmp_path: Path) -> None:
    shown = create(run, "narrow.ledger", "--heads", "fed3r", "--normalize", "--project", "3").stdout
    assert "3" in shown
    one = party(tmp_path, "narrow.ledger")
    ask(tmp_path / "narrow.ledger", one)
    stats = held(tmp_path / "narrow.ledger")
    assert stats.dim == 3
    arrays = loaded(one.data)
    X = arrays["x_train"] / np.linalg.norm(arrays["x_train"], axis=1, keepdims=True)
    plain = Statistics.of(RandomProjection(DIM, 3, 0)(X), arrays["y_train"], stats.spec, n_classes=3)
    np.testing.assert_allclose(stats.gram, plain.gram, atol=1e-5)
    assert "leave --project out" in create(run, "b.ledger", "--heads", "fed3r", "--project", "99", code=2).stderr


def test_fourier_features_take_their_width_from_the_norms_of_a_first_exchange(run: Any, tmp_path: Path) -> None:
    said = create(run, "rf.ledger", "--heads", "fed3r-rf", code=2).stderr
    assert "--after LEDGER" in said
    create(run, "first.ledger", "--heads", "gh-nb")
    options = ("--heads", "fed3r-rf", "--fourier", "64", "--after", "first.ledger")
    assert "'first.ledger', holds 0 samples: collect it" in create(run, "rf.ledger", *options, code=2).stderr
    ask(tmp_path / "first.ledger", party(tmp_path, "first.ledger"))
    create(run, "rf.ledger", *options)
    one = party(tmp_path, "rf.ledger")
    with FederationStore.open(tmp_path / "rf.ledger") as store:
        terms = store.terms
    assert isinstance(terms.map_or_none, RandomFourier)
    X = loaded(one.data)["x_train"].astype(float)
    distances = np.linalg.norm(X[:, None] - X[None], axis=2)[np.triu_indices(len(X), 1)]
    assert terms.map_or_none.bandwidth == pytest.approx(np.sqrt((distances**2).mean()), rel=1e-5)
    refused = one.offer(terms)
    assert "maps" in refused.declined[0]["why"]  # what expands is refused unless the party says so
    one.changes["policy"] = {"min_count": 1, "maps": "any"}
    ask(tmp_path / "rf.ledger", one)
    with FederationStore.open(tmp_path / "rf.ledger") as store:
        (fitted,) = fit_heads(store, ["fed3r-rf"]).values()
    test = loaded(one.data)
    assert (fitted.classifier.predict(test["x_test"]) == test["y_test"]).mean() > 0.8
    assert make_head("fed3r-rf").has_own_map


def test_a_first_exchange_behind_another_map_or_without_norms_gives_no_width(run: Any, tmp_path: Path) -> None:
    create(run, "first.ledger", "--heads", "gh-nb", "--normalize")
    ask(tmp_path / "first.ledger", party(tmp_path, "first.ledger"))
    options = ("--heads", "fed3r-rf", "--fourier", "64", "--after", "first.ledger")
    assert "give both the same" in create(run, "rf.ledger", *options, code=2).stderr
    create(run, "rf.ledger", *options, "--normalize")
    create(run, "means.ledger", "--heads", "fedcof")
    said = create(run, "c.ledger", *options[:-1], "means.ledger", code=2).stderr
    assert "comes from norms" in said


def test_a_local_federation_measures_behind_a_projection(run: Any, tmp_path: Path) -> None:
    data = write_features(tmp_path / "a.npz", {"cat": 40, "dog": 40, "yak": 40}, 1)
    common = ("--data", str(data), "--local", "2", "--clients", "4", "--engine", "memory", "--heads", "fed3r")
    run("federate", *common, "--project", "3", "--out", "trial", "--json")
    with FederationStore.open(tmp_path / "trial" / "federation" / "ledger.db") as store:
        assert store.terms.dim == 3
    assert json.loads((tmp_path / "trial" / "federation.json").read_text())
