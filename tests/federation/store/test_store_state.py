"""The state depends on who is in with what, and on nothing else; and what leaves is gone."""

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmoments.core.statistics import Statistics, StatisticsSpec
from fedmoments.errors import InputError, MissingMomentError
from fedmoments.federation.store import FederationStore, Receipt
from fedmoments.wire import decode

Federations = Callable[..., Any]
Totals = Callable[[Path], dict[tuple[str, int], bytes]]


def files_of(path: Path) -> bytes:
    """Everything that is on the disk, the write-ahead log included."""
    return b"".join(file.read_bytes() for file in sorted(path.parent.glob(f"{path.name}*")))


@pytest.mark.slow
@pytest.mark.parametrize(("moments", "n_clients"), [(("client_means",), 200), (("client_means", "class_grams"), 20)])
def test_50_orders_give_one_digest(
    moments: tuple[str, ...], n_clients: int, federation_of: Federations, tmp_path: Path, read_totals: Totals
) -> None:
    federation = federation_of(*moments)
    clients = [f"clinic {number}" for number in range(n_clients)]
    items = [federation.data(client) for client in clients]
    rng = np.random.default_rng(0)
    states, rows = set(), set()
    for order in range(50):
        path = tmp_path / f"ledger {order}"
        with federation.store(path, clients) as store:
            shuffled = [items[place] for place in rng.permutation(n_clients)]
            size = int(rng.integers(n_clients // 10, n_clients))
            for start in range(0, n_clients, size):
                assert all(isinstance(a, Receipt) for a in store.submit_many(shuffled[start : start + size]))
            states.add((store.digest(), frozenset(read_totals(path).items())))
            if order % 10 == 0:
                merged = store.statistics()
                rows.add((merged.digest(), merged.arrays["client_means"].tobytes(), merged.row_labels.tobytes()))
    assert len(states) == len(rows) == 1


def test_join_leave_join_again_is_one_digest(federation: Any, tmp_path: Path, read_totals: Totals) -> None:
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
                store.submit(federation.data("a", 2, content=11))
                store.leave("a")
                store.submit(federation.data("a", 3))
            if history == "replaced":
                store.submit(federation.data("b", 2, content=12))
                store.submit(federation.data("b", 3))
            states.append((store.digest(), store.statistics().digest(), read_totals(path)))
            assert store.verify().whole
    assert all(state == states[0] for state in states)


@pytest.mark.parametrize("moments", [(), ("client_means",), ("gram",), ("class_grams",), ("class_squares", "gram")])
def test_when_all_have_left_nothing_is_in(
    moments: tuple[str, ...], federation_of: Federations, tmp_path: Path, read_totals: Totals
) -> None:
    federation = federation_of(*moments)
    path = tmp_path / "ledger"
    with federation.store(path, "abcd") as store:
        empty = store.digest()
        assert store.statistics() == Statistics.zero(
            federation.terms.spec, n_classes=5, dim=8, fixed_point=federation.terms.fixed_point
        )
        for client in "abcd":
            store.submit(federation.data(client))
        assert store.digest() != empty
        for client in "cabd":
            store.leave(client)
        assert store.digest() == empty
        assert read_totals(path) == {}
        assert store.verify().whole


def test_a_client_without_samples_is_in_but_changes_no_sum(
    federation: Any, store: FederationStore, tmp_path: Path, read_totals: Totals
) -> None:
    before = read_totals(tmp_path / "ledger")
    store.submit(federation.data("a", samples=0))
    assert read_totals(tmp_path / "ledger") == before == {}
    assert store.status().clients == 1
    store.submit(federation.data("b"))
    store.leave("b")
    assert read_totals(tmp_path / "ledger") == {}
    assert store.verify().whole


@pytest.mark.parametrize(
    ("moments", "asked"),
    [
        (("client_means", "gram"), ("client_means", "gram")),
        (("client_means", "gram"), ("client_means",)),
        (("client_means", "gram"), ("gram",)),
        (("client_means", "gram"), ()),
        (("client_means", "class_grams"), ("client_means", "gram")),
        (("class_grams",), ("gram", "class_norms")),
        (("class_grams", "class_thirds"), ("class_squares",)),
        (("class_squares", "gram"), ("class_norms",)),
    ],
)
@pytest.mark.parametrize("rows", ["int64", "float16", "bfloat16"])
def test_statistics_are_the_merged_contributions(
    moments: tuple[str, ...], asked: tuple[str, ...], rows: str, federation_of: Federations, tmp_path: Path
) -> None:
    federation = federation_of(*moments, rows=rows)
    clients = ["é", "z", "Z", "a b", "10", "9", "日本"]
    items = {client: federation.data(client) for client in clients}
    with federation.store(tmp_path / "ledger", clients) as store:
        store.submit_many([items[client] for client in clients])
        spec = StatisticsSpec.of(*asked)
        found = store.statistics(spec)
    ordered = [items[client] for client in sorted(clients, key=str.encode)]
    decoded = [decode(data, federation.terms.agreement, lambda name: federation.key(name).public) for data in ordered]
    merged = Statistics.merge(item.statistics for item in decoded).restricted(spec)
    assert found == merged
    assert found.spec == merged.spec
    for name in merged.arrays:
        np.testing.assert_array_equal(found.arrays[name], merged.arrays[name])
    np.testing.assert_array_equal(found.row_labels, merged.row_labels)
    np.testing.assert_array_equal(found.row_counts, merged.row_counts)


def test_several_means_of_a_class_are_kept(federation_of: Federations, tmp_path: Path) -> None:
    federation = federation_of("client_means", means_per_client=2)
    with federation.store(tmp_path / "ledger", "ab") as store:
        store.submit_many([federation.data("b", content=2, samples=40), federation.data("a", content=1, samples=40)])
        merged = Statistics.merge([federation.statistics(1, 40), federation.statistics(2, 40)])
        assert store.statistics() == merged
        assert len(merged.row_labels) > len(merged.classes) * 2


def test_what_is_not_collected_cannot_be_asked_for(store: FederationStore) -> None:
    with pytest.raises(MissingMomentError, match=r"'test' collects .*gram"):
        store.statistics(StatisticsSpec.of("class_grams"))


def test_leaving_erases_the_bytes_from_file_and_log(federation: Any, store: FederationStore) -> None:
    patterns = []
    for version in (1, 2):
        data = federation.data("a", version, content=version)
        store.submit(data)
        patterns += [data[-64:], data[-256:-192], data[240:290]]  # the last: its signature
    conflict = federation.data("a", 2, content=50)
    with pytest.raises(Exception, match="conflict"):
        store.submit(conflict)
    kept = federation.data("b")
    store.submit(kept)
    assert all(pattern in files_of(store.path) for pattern in [*patterns[3:], conflict[-64:], kept[-64:]])
    sums = federation.statistics(2).raw("sums")
    store.leave("a")
    after = files_of(store.path)
    assert [pattern in after for pattern in [*patterns, conflict[-64:]]] == [False] * 7
    assert kept[-64:] in after
    assert not any(row.tobytes() in after for row in sums)
    assert store.status().quarantined == 0
    assert store.verify().whole


def test_memory_does_not_grow_with_the_clients(federation_of: Federations, tmp_path: Path) -> None:
    federation = federation_of("gram", dim=64)
    clients = [f"c{number}" for number in range(200)]
    with federation.store(tmp_path / "ledger", clients) as store:
        peaks = []
        tracemalloc.start()
        for start in range(0, 200, 20):
            items = [federation.data(client) for client in clients[start : start + 20]]
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            store.submit_many(items)
            store.statistics()
            peaks.append(tracemalloc.get_traced_memory()[1] - before)
            del items
        tracemalloc.stop()
    assert max(peaks[5:]) < 1.1 * max(peaks[:5]), peaks


def test_terms_that_the_file_cannot_hold_are_refused_at_once(federation_of: Federations, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="sum of 'gram'"):
        FederationStore.create(tmp_path / "ledger", federation_of("gram", dim=20_000).terms)
    assert list(tmp_path.iterdir()) == []
