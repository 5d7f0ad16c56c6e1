"""A head of one party is that party's class means: the terms say how many a head needs, and no choice leaves one."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cryptography")
pytest.importorskip("flwr")

from tests.federation.living import Party, ask, enrol, new_ledger, write_features

from fedmoments.errors import InputError, NotEnoughDataError, PolicyError
from fedmoments.federation.policy import ClientPolicy
from fedmoments.federation.results import source_of
from fedmoments.federation.store import FederationStore
from fedmoments.privacy.protection import Agreed

SIZES = {"ann": 6, "bob": 20, "eve": 21, "zoe": 22}


def ledger_of(folder: Path, sizes: dict[str, int], **agreed: Any) -> Path:
    """Return a ledger with parties of different sizes."""
    path = folder / "ledger"
    new_ledger(path, ("cat", "dog"), ("fed3r",), privacy=Agreed(**agreed))
    for seed, (name, size) in enumerate(sizes.items()):
        data = write_features(folder / f"{name}.npz", {"cat": size, "dog": size}, seed)
        one = Party(name, folder / name, str(data))
        enrol(path, one)
        ask(path, one)
    return path


def test_no_cap_on_samples_leaves_one_party_in_a_head(tmp_path: Path) -> None:
    with FederationStore.open(ledger_of(tmp_path, SIZES)) as store:
        with pytest.raises(NotEnoughDataError, match=r"cap of 12 samples only the contribution of 'ann' .* of 4"):
            source_of(store, max_samples=12)
        assert source_of(store, max_samples=40).statistics.n_samples == 12 + 40
        with pytest.raises(InputError, match="leave out all 4"):
            source_of(store, max_samples=5)


def test_no_filter_leaves_one_party_in_a_head(tmp_path: Path) -> None:
    why = "behind a cap of 12 samples and mad only the contribution"
    store = FederationStore.open(ledger_of(tmp_path, {"ann": 6, "eve": 20}))
    with store, pytest.raises(NotEnoughDataError, match=why):
        source_of(store, max_samples=12, robust="mad")


def test_a_party_without_samples_is_no_company(tmp_path: Path) -> None:
    path = ledger_of(tmp_path, {"ann": 6, "eve": 20})
    empty = Party("nil", tmp_path / "nil", str(write_features(tmp_path / "n.npz", {"cat": 3, "dog": 3}, 7)))
    empty.changes["policy"] = {"min_count": 5}
    enrol(path, empty)
    ask(path, empty)
    with FederationStore.open(path) as store:
        assert store.status().clients == 3
        with pytest.raises(NotEnoughDataError, match=r"only the contribution of 'ann' .* of 2"):
            source_of(store, max_samples=12)
        assert source_of(store, half_life=1e-9).statistics.n_samples == 0  # 'nil' came last


def test_no_head_is_fitted_from_fewer_parties_than_the_terms_say(tmp_path: Path) -> None:
    with FederationStore.open(ledger_of(tmp_path, SIZES, parties=3)) as store:
        assert source_of(store).statistics.n_samples == 2 * sum(SIZES.values())
        with pytest.raises(NotEnoughDataError, match=r"only 2 contributions have a weight, of 4, .* 3 parties or more"):
            source_of(store, max_samples=40)
        store.leave("ann")
        assert source_of(store).statistics.n_samples
        store.leave("bob")
        with pytest.raises(NotEnoughDataError, match="fewer than 3 parties, and 2 have samples"):
            source_of(store)
        with pytest.raises(NotEnoughDataError, match="fewer than 3 parties"):
            source_of(store, half_life=1.0)


def test_a_party_takes_part_only_where_heads_are_of_so_many_parties(tmp_path: Path) -> None:
    path = ledger_of(tmp_path, SIZES, parties=2)
    with FederationStore.open(path) as store:
        ClientPolicy(min_parties=2).require(store.terms)
        with pytest.raises(PolicyError, match="min_parties: a head may be of 2 parties, allowed are 3"):
            ClientPolicy(min_parties=3).require(store.terms)
    with pytest.raises(InputError, match=r"parties must be a whole number of 1 or more"):
        Agreed(parties=0)
    with pytest.raises(InputError, match=r"3 parties or more .* but there are 2"):
        Agreed(parties=3).mode.check_clients(2)
