"""Heads that need sums alone see how wide classes are in each client's own, where the server reads them."""

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("cryptography")
pytest.importorskip("flwr")

from tests.federation.living import Party, ask, enrol, loaded, new_ledger, write_features

import fedmoments as fm
from fedmoments.core.gaussian import client_draws
from fedmoments.federation import results
from fedmoments.federation.results import fit_heads, source_of
from fedmoments.federation.store import FederationStore

CLASSES = ("cat", "dog", "yak")
HEADS = ("fedncm", "fedcof-diagonal")


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight parties of different sizes, in a ledger of sums and squares."""
    home = tmp_path_factory.mktemp("apart")
    new_ledger(home / "ledger", CLASSES, HEADS)
    sizes = [{"cat": 6 + 3 * place, "dog": 30 - 3 * place, "yak": 8 + place} for place in range(8)]
    parties = [
        Party(f"p{place}", home / f"p{place}", str(write_features(home / f"{place}.npz", size, place)))
        for place, size in enumerate(sizes)
    ]
    enrol(home / "ledger", *parties)
    for one in parties:
        ask(home / "ledger", one)
    return home / "ledger"


@pytest.mark.parametrize("name", HEADS)
def test_a_deployed_head_has_the_temperature_of_one_fitted_beside_the_data(ledger: Path, name: str) -> None:
    home = ledger.parent
    data = [loaded(str(home / f"{place}.npz")) for place in range(8)]
    parties = {place: (arrays["x_train"], arrays["y_train"]) for place, arrays in enumerate(data)}
    with FederationStore.open(ledger) as store:
        assert "client_means" not in store.terms.spec.moments
        fitted = fit_heads(store, [name])[name]
        digest = store.statistics().restricted(fm.spec_for(name)).digest()
        form = store.statistics().fixed_point
    here = fm.fit(name, parties, n_classes=3, fixed_point=form)
    assert fitted.classifier.digest() == here.digest()
    assert fitted.classifier.temperature == here.temperature
    assert fitted.statistics_digest == digest, "what it is compared by is still the sums"
    assert fitted.sends == str(fm.spec_for(name))


def test_sums_that_weigh_by_age_or_are_too_many_are_added_up(ledger: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with FederationStore.open(ledger) as store:
        source = source_of(store)
        apart = fit_heads(store, ["fedncm"], source=source)["fedncm"].classifier
        pooled = fit_heads(store, ["fedncm"], source=replace(source, parts=None))["fedncm"].classifier
        assert source_of(store, half_life=30.0).parts is None
        monkeypatch.setattr(results, "MOST_KEPT", 100)
        assert client_draws.MOST_KEPT > 100
        large = fit_heads(store, ["fedncm"], source=source)["fedncm"].classifier
    assert apart.digest() == pooled.digest() == large.digest()
    assert large.temperature == pooled.temperature != apart.temperature


def test_a_filter_leaves_out_the_sums_of_whom_it_leaves_out(ledger: Path) -> None:
    with FederationStore.open(ledger) as store:
        source = source_of(store, max_samples=48)
        left = len(list(store.contributions())) - len(source.dropped)
        assert 1 < left < 8
        assert source.parts is not None
        assert len(list(source.parts())) == left
        head = fit_heads(store, ["fedncm"], source=source)["fedncm"].classifier
        kept = [part for client, part in store.contributions() if client not in source.dropped]
    expected = fm.make_head("fedncm").fit(
        fm.measure(dict(enumerate(kept)), fm.spec_for("fedncm"), fixed_point=kept[0].fixed_point)
    )
    assert head.temperature == expected.temperature
