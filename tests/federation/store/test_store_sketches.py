"""Scatter sketches in the ledger: kept apart, left, replaced and verified like everything else."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmoments.core.maps import Directions
from fedmoments.core.statistics import SketchPlan, Statistics, StatisticsSpec
from fedmoments.core.statistics.files import pack_statistics, unpack_statistics
from fedmoments.errors import InputError, LedgerError
from fedmoments.federation.drawing_up import directions_after
from fedmoments.federation.store import FederationStore
from fedmoments.wire import decode

Federations = Callable[..., Any]
Totals = Callable[[Path], dict[tuple[str, int], bytes]]
PLANS = (SketchPlan("means"), SketchPlan(None, 3, "float16"), SketchPlan(None, 0), SketchPlan(rows="class"))
CLIENTS = ["é", "z", "Z", "a b", "10", "日本"]


def decoded(federation: Any, clients: list[str]) -> Statistics:
    items = [federation.data(client) for client in sorted(clients, key=str.encode)]
    terms = federation.terms.agreement
    return Statistics.merge(decode(data, terms, lambda name: federation.key(name).public).statistics for data in items)


@pytest.mark.parametrize("plan", PLANS, ids=str)
@pytest.mark.parametrize("more", [(), ("gram",), ("class_squares",)])
def test_statistics_are_the_merged_contributions_with_their_owners(
    plan: SketchPlan, more: tuple[str, ...], federation_of: Federations, tmp_path: Path
) -> None:
    federation = federation_of("scatter_sketch", *more, sketch=plan)
    with federation.store(tmp_path / "ledger", CLIENTS) as store:
        store.submit_many([federation.data(client) for client in CLIENTS])
        merged = decoded(federation, CLIENTS)
        found = store.statistics()
        assert found == merged
        assert found.spec == merged.spec == federation.terms.spec
        for name in ("rows", "sizes", "residuals", "owners", "labels"):
            np.testing.assert_array_equal(getattr(found.sketches, name), getattr(merged.sketches, name))
        np.testing.assert_array_equal(found.row_owners, merged.row_owners)
        assert sorted(set(found.sketches.owners.tolist())) == list(range(len(CLIENTS)))
        assert unpack_statistics(pack_statistics(found), "the row") == found
        means = StatisticsSpec.of("client_means", *more)
        assert store.statistics(means) == merged.restricted(means)
        assert store.statistics(StatisticsSpec.of("scatter_sketch")).spec.sketch == federation.terms.spec.sketch
        assert store.statistics(StatisticsSpec()) == merged.restricted(StatisticsSpec())


@pytest.mark.parametrize("plan", PLANS[:2], ids=str)
def test_law_join_leave_join_again_and_replace_are_one_state(
    plan: SketchPlan, federation_of: Federations, tmp_path: Path, read_totals: Totals
) -> None:
    federation = federation_of("scatter_sketch", "gram", sketch=plan)
    states = []
    for history in ("plain", "left", "returned", "replaced"):
        path = tmp_path / history
        with federation.store(path, "abcd") as store:
            store.submit(federation.data("a"))
            if history != "plain":
                store.submit(federation.data("c", 1, content=3))
            store.submit(federation.data("b"))
            if history != "plain":
                store.leave("c")
            if history == "returned":
                store.leave("a")
                store.submit(federation.data("a", 2))
            if history == "replaced":
                store.submit(federation.data("b", 2, content=12))
                store.submit(federation.data("b", 3))
            merged = store.statistics()
            assert merged == decoded(federation, ["a", "b"])
            states.append((store.digest(), merged.digest(), read_totals(path)))
            assert store.verify().whole
    assert all(state == states[0] for state in states)


def test_when_all_have_left_no_sketch_is_in(federation_of: Federations, tmp_path: Path, read_totals: Totals) -> None:
    federation = federation_of("scatter_sketch")
    path = tmp_path / "ledger"
    with federation.store(path, "abc") as store:
        empty = store.digest()
        assert len(store.statistics().sketches) == 0
        store.submit_many([federation.data(client) for client in "abc"])
        for client in "cab":
            store.leave(client)
        assert (store.digest(), read_totals(path)) == (empty, {})
        assert store.verify().whole


def test_a_client_without_samples_has_no_sketch(federation_of: Federations, tmp_path: Path) -> None:
    federation = federation_of("scatter_sketch")
    with federation.store(tmp_path / "ledger", "ab") as store:
        store.submit_many([federation.data("a", samples=0), federation.data("b")])
        found = store.statistics()
        assert found.sketches.owners.tolist() == [1]
        assert set(found.row_owners.tolist()) == {1}


def test_a_snapshot_holds_sketches_and_changed_bytes_are_found(federation_of: Federations, tmp_path: Path) -> None:
    federation = federation_of("scatter_sketch")
    with federation.store(tmp_path / "ledger", "ab") as store:
        store.submit_many([federation.data(client) for client in "ab"])
        state = store.digest()
        store.snapshot(tmp_path / "snapshot")
    with FederationStore.restore(tmp_path / "snapshot", tmp_path / "restored") as restored:
        assert restored.digest() == state
        assert restored.verify().whole
    with closing(sqlite3.connect(tmp_path / "restored", isolation_level=None)) as connection:
        data = bytearray(connection.execute("SELECT data FROM payloads WHERE client = 'a'").fetchone()[0])
        data[-1] ^= 1  # the last number of the sketch: sound, but another
        connection.execute("UPDATE payloads SET data = ? WHERE client = 'a'", (bytes(data),))
    with FederationStore.open(tmp_path / "restored") as damaged:
        assert not damaged.verify().whole
        with pytest.raises(LedgerError, match="client 'a' is not the one"):
            damaged.statistics()


@pytest.mark.parametrize("moments", [("scatter_sketch",), ("client_means",), ("gram",)])
def test_a_ledger_tells_the_directions_of_a_second_exchange(
    moments: tuple[str, ...], federation_of: Federations, tmp_path: Path
) -> None:
    federation = federation_of(*moments)
    with federation.store(tmp_path / "ledger", CLIENTS) as store:
        store.submit_many([federation.data(client, samples=40) for client in CLIENTS])
        asked = directions_after(store.terms, store.statistics())
    assert isinstance(asked, Directions)
    assert asked.n_components == len(federation.terms.classes) - 1
    fingerprint = replace(federation.terms.fingerprint, feature_map=asked)
    spec = StatisticsSpec.of("class_grams")
    second = replace(federation.terms, fingerprint=fingerprint, dim=asked.n_components, spec=spec, rows="int64")
    assert second.id != federation.terms.id  # a client that agreed to the first has not agreed to this
    assert second.map_outline.is_linear


def test_a_ledger_of_sums_alone_tells_no_directions(federation_of: Federations) -> None:
    terms = federation_of("class_norms").terms
    with pytest.raises(InputError, match=r"come from a pooled covariance, but the first one, 'test', collected"):
        directions_after(terms, Statistics.zero(terms.spec, n_classes=5, dim=8))
