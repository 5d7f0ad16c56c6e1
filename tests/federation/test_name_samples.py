"""Class names that count as samples in a federation: in its terms, in its heads, under every kind of sum."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cryptography")
pytest.importorskip("flwr")
pytest.importorskip("click")

from click.testing import CliRunner
from tests.federation.living import Party, ask, enrol, new_ledger, write_features
from tests.study.jobs.conftest import Letters

import fedmoments as fm
from fedmoments.cli.app import app
from fedmoments.core.maps import Normalize
from fedmoments.core.statistics import Statistics, StatisticsSpec
from fedmoments.errors import FedMomentsError, InputError
from fedmoments.federation.name_samples import MOST_NUMBERS, NameSamples
from fedmoments.federation.results import fit_heads, source_of
from fedmoments.federation.store import FederationStore
from fedmoments.federation.terms import Terms
from fedmoments.samples.encoders.entry import EncoderEntry
from fedmoments.samples.encoders.registry import encoders, register_encoder

CLASSES = ("cat", "dog", "yak")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDMOMENTS_CACHE", str(tmp_path / "cache"))
    register_encoder(EncoderEntry("letters", "letters", lambda _, __: Letters(), "text"))
    rows = ["sentence,topic"]
    for place in range(60):
        word, topic = (("violin", "music"), ("rain", "weather"))[place % 2]
        letters = "".join(chr(97 + digit) for digit in divmod(place, 8))  # copies of a sample count once
        rows.append(f"{word} {letters} is heard {'again ' * (place % 5)},{topic}")
    Path("said.csv").write_text("\n".join(rows) + "\n", "utf-8")

    def invoke(*arguments: str, code: int = 0) -> Any:
        result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
        assert result.exit_code == code, result.output
        return result

    yield invoke
    encoders().remove("letters")


def named(tmp_path: Path, **changes: Any) -> tuple[Path, Terms, Party]:
    """Return a ledger whose names count, its terms, and a party that contributed."""
    ledger = tmp_path / "pets.ledger"
    terms = new_ledger(ledger, CLASSES, ("gh-lda",), **changes)
    ledger.unlink()
    terms = replace(terms, names=NameSamples.of(2.0 * np.eye(3, 5)))
    FederationStore.create(ledger, terms).close()
    party = Party("clinic", tmp_path / "clinic", str(write_features(tmp_path / "a.npz", dict.fromkeys(CLASSES, 20), 1)))
    enrol(ledger, party)
    ask(ledger, party)
    return ledger, terms, party


def test_heads_are_fitted_from_clients_and_names(tmp_path: Path) -> None:
    ledger, terms, _ = named(tmp_path)
    with FederationStore.open(ledger) as store:
        received, source = store.statistics(), source_of(store).statistics
        (fitted,) = fit_heads(store, ["gh-lda"]).values()
        aged = source_of(store, half_life=1.0).statistics
        filtered = source_of(store, max_samples=1_000).statistics
    assert received.counts.tolist() == [20, 20, 20]  # what clients sent stays what they sent
    own = Statistics.of(
        2.0 * np.eye(3, 5), [0, 1, 2], received.spec, n_classes=3, seed=terms.seed, fixed_point=received.fixed_point
    )
    assert source == received + own == filtered
    assert aged.counts.min() > 1
    together = fm.fit("gh-lda", received + own, class_names=CLASSES)
    np.testing.assert_array_equal(fitted.classifier.scores(np.eye(5)), together.scores(np.eye(5)))
    assert fitted.classifier.info["name_samples"] == 3


def test_names_are_measured_behind_the_map_of_the_terms(tmp_path: Path) -> None:
    ledger, _, _ = named(tmp_path, feature_map=Normalize())
    with FederationStore.open(ledger) as store:
        difference = source_of(store).statistics - store.statistics()
    np.testing.assert_allclose(difference.sums, np.eye(3, 5), atol=1e-6)


def test_terms_with_names_travel_and_have_an_id_of_their_own(tmp_path: Path) -> None:
    _, terms, _ = named(tmp_path)
    assert Terms.from_json(terms.to_json()) == terms
    assert replace(terms, names=None).id != terms.id
    assert "names" not in replace(terms, names=None).to_dict()


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        {},
        {"n": 3, "dim": 5},
        {"n": 3, "dim": 5, "features": "%%"},
        {"n": 3, "dim": 5, "features": "AACAPw=="},
        {"n": -3, "dim": -5, "features": ""},
        {"n": True, "dim": 1, "features": "AACAPw=="},
        {"n": "3", "dim": 5, "features": ""},
        {"n": 2**40, "dim": 2**40, "features": ""},
        {"n": 1, "dim": 1, "features": "AADAfw=="},
        {"n": 1, "dim": 1, "features": 7},
        {"n": 1, "dim": 1, "features": "AACAPw==", "path": "/etc/passwd"},
        NameSamples.of(np.eye(4, 5)).to_dict(),
        NameSamples.of(np.eye(3, 4)).to_dict(),
    ],
)
def test_hostile_features_of_names_are_refused(value: Any, tmp_path: Path) -> None:
    terms = new_ledger(tmp_path / "ledger", CLASSES)
    with pytest.raises(FedMomentsError, match=r"class names|terms of a federation"):
        Terms.from_json(json.dumps({**terms.to_dict(), "names": value}))


def test_more_numbers_than_terms_may_hold_are_refused() -> None:
    with pytest.raises(InputError, match="at most"):
        NameSamples(MOST_NUMBERS, 2, "")
    with pytest.raises(InputError, match="shape"):
        NameSamples.of([1.0])


@pytest.mark.parametrize("protection", [(), ("--secure", "sums"), ("--epsilon", "50")])
def test_a_federation_counts_names_under_every_kind_of_sum(run: Any, protection: tuple[str, ...]) -> None:
    common = (
        "federate", "--data", "said.csv", "--text", "sentence", "--label", "topic", "--encoder", "letters",
        "--local", "2", "--clients", "4", "--split", "iid", "--engine", "memory", "--heads", "gh-nb",
        *protection, "--json",
    )  # fmt: skip
    run(*common, "--out", "plain")
    run(*common, "--names", "--out", "named")
    with FederationStore.open(Path("named/federation/ledger.db")) as store:
        assert store.terms.names is not None
        added = source_of(store).statistics.counts - store.terms.privacy.mode.read(store)[0].counts
    np.testing.assert_allclose(added, 1.0)
    assert fm.load("named/heads/gh-nb.safetensors").digest() != fm.load("plain/heads/gh-nb.safetensors").digest()


def test_create_encodes_names_that_are_words_and_shows_it(run: Any) -> None:
    common = ("--name", "talk", "--encoder", "letters", "--heads", "fedcof", "--names")
    shown = run("server", "create", "a.ledger", *common, "--classes", "card_arrival,top_up").stdout
    assert "count as one sample each" in shown
    assert "leave names out" in run("server", "create", "b.ledger", *common, "--classes", "17,18", code=2).stderr
    given = ("--name", "x", "--encoder", "identity", "--dim", "4", "--heads", "fedcof", "--names")
    said = run("server", "create", "c.ledger", *given, "--classes", "cat,dog", code=2).stderr
    assert "these samples are features" in said


def test_names_add_nothing_to_classes_that_joined_later() -> None:
    received = Statistics.of(np.eye(3), [0, 1, 2], StatisticsSpec.of("gram"), n_classes=3)
    assert NameSamples.of(np.eye(2, 3)).added_to(received, None, 0).counts.tolist() == [2, 2, 1]
