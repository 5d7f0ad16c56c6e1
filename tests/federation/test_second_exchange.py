"""A second exchange in a federation: class covariances in the directions of what a first ledger holds."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cryptography")
pytest.importorskip("flwr")
pytest.importorskip("click")

from click.testing import CliRunner

import fedmoments as fm
from fedmoments.cli.app import app
from fedmoments.core.heads.second_exchange import fisher_directions
from fedmoments.core.maps import Directions
from fedmoments.core.statistics import Statistics
from fedmoments.federation.results import source_of
from fedmoments.federation.store import FederationStore

DIM, CLASSES = 8, 4
Run = Callable[..., Any]


@pytest.fixture
def drawn(tmp_path: Path) -> dict[str, Any]:
    """Classes of four spreads and shapes, where one covariance for all is not enough; in a file and in memory."""
    rng = np.random.default_rng(3)
    spread = np.geomspace(0.2, 3.0, DIM)[:, None]
    shapes = [spread * np.linalg.qr(rng.normal(size=(DIM, DIM)))[0] for _ in range(CLASSES)]
    y = np.arange(1200) % CLASSES
    X = np.stack([rng.normal(size=DIM) @ shapes[c] + 1.5 * np.eye(DIM)[c] for c in y])
    arrays: dict[str, Any] = {"x_train": X[:800].astype(np.float32), "y_train": y[:800]}
    arrays |= {"x_test": X[800:].astype(np.float32), "y_test": y[800:]}
    np.savez(tmp_path / "drawn.npz", **arrays, classes=np.array(["ant", "bee", "cat", "dog"]))
    return arrays


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drawn: dict[str, Any]) -> Run:
    monkeypatch.chdir(tmp_path)

    def federate(out: str, *options: str, code: int = 0) -> Any:
        common = ("federate", "--data", "npz:drawn.npz", "--local", "2", "--clients", "4", "--split", "iid")
        result = CliRunner().invoke(
            app, [*common, "--engine", "memory", "--out", out, "--json", *options], catch_exceptions=False
        )
        assert result.exit_code == code, result.output
        return result

    return federate


def ledger(out: str) -> str:
    return f"{out}/federation/ledger.db"


@pytest.mark.parametrize(("first", "source"), [("fed3r", "exact"), ("fedcof", "free"), ("lda-sketch", "sketch")])
def test_clients_send_exact_class_covariances_in_the_directions_of_the_first(
    run: Run, drawn: dict[str, Any], first: str, source: str
) -> None:
    run("first", "--heads", first, "--map", "none")
    run("second", "--heads", "gh-qda", "--after", ledger("first"))
    with FederationStore.open(Path(ledger("first"))) as store:
        directions = fisher_directions(store.statistics(), source)
    with FederationStore.open(Path(ledger("second"))) as store:
        received, terms = store.statistics(), store.terms
    assert isinstance(terms.map_or_none, Directions)
    np.testing.assert_array_equal(terms.map_or_none.matrix, directions.matrix)
    assert terms.map_or_none.output_dim(DIM) == CLASSES - 1
    # exact, whatever the covariance of the first exchange was: the grams of all samples, behind the directions
    central = Statistics.of(directions(drawn["x_train"]), drawn["y_train"], received.spec, n_classes=CLASSES)
    np.testing.assert_array_equal(received.counts, central.counts)
    for (ours, gram), (theirs, expected) in zip(received.class_grams, central.class_grams, strict=True):
        assert ours == theirs
        np.testing.assert_allclose(gram, expected, rtol=1e-6, atol=1e-4)
    fitted = fm.load("second/heads/gh-qda.safetensors")
    together = fm.fit("gh-qda", central, feature_map=directions)
    assert np.mean(fitted.predict(drawn["x_test"]) == together.predict(drawn["x_test"])) >= 0.995


def test_secure_sums_mask_both_exchanges_and_give_the_same_head(run: Run, drawn: dict[str, Any]) -> None:
    for name, protection in (("open", ()), ("masked", ("--secure", "sums"))):
        run(f"{name}-1", "--heads", "fed3r", "--map", "none", *protection)
        run(f"{name}-2", "--heads", "gh-qda", "--after", ledger(f"{name}-1"), *protection)
    with FederationStore.open(Path(ledger("masked-2"))) as store:
        masked = source_of(store).statistics
    with FederationStore.open(Path(ledger("open-2"))) as store:
        assert masked.digest() == store.statistics().digest()
    heads = [fm.load(f"{name}-2/heads/gh-qda.safetensors") for name in ("open", "masked")]
    np.testing.assert_array_equal(heads[0].scores(drawn["x_test"]), heads[1].scores(drawn["x_test"]))


def test_it_tells_classes_apart_that_differ_in_their_covariances(run: Run, drawn: dict[str, Any]) -> None:
    run("first", "--heads", "fed3r,gh-lda", "--map", "none")
    run("second", "--heads", "gh-qda", "--after", ledger("first"))
    once, twice = (
        fm.load(f"{out}/heads/{head}.safetensors") for out, head in (("first", "gh-lda"), ("second", "gh-qda"))
    )
    X, y = drawn["x_test"], drawn["y_test"]
    assert np.mean(twice.predict(X) == y) > np.mean(once.predict(X) == y) + 0.02


def test_a_second_exchange_takes_its_map_from_the_first_alone(run: Run) -> None:
    run("first", "--heads", "fed3r", "--map", "none")
    said = run("second", "--heads", "gh-qda", "--after", ledger("first"), "--project", "4", code=2).stderr
    assert "leave --map and --project out" in said
    assert "not" in run("third", "--heads", "gh-qda", "--after", "nowhere.db", code=2).stderr
    run("means", "--heads", "fedncm", "--map", "none")
    assert "pooled covariance" in run("third", "--heads", "gh-qda", "--after", ledger("means"), code=2).stderr
