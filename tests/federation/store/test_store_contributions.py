"""What is taken in, what is refused, and that it happens exactly once."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedmoments.core.statistics import Statistics
from fedmoments.errors import InputError, LedgerError, RefusedError
from fedmoments.federation.store import FederationStore, Receipt
from fedmoments.wire import IdentityKey, Withheld, decode

Federations = Callable[..., Any]


def events(store: FederationStore) -> list[str]:
    return [entry.event for entry in store.audit()]


def refusal(store: FederationStore, data: bytes) -> str:
    before = store.digest()
    with pytest.raises(RefusedError) as caught:
        store.submit(data, source="node 1")
    assert store.digest() == before
    return caught.value.reason


def test_a_receipt_says_what_the_log_says(federation: Any, store: FederationStore) -> None:
    data = federation.data("a", withheld=Withheld(1, 4))
    receipt = store.submit(data, source="node 1")
    entry = list(store.audit())[-1]
    assert (receipt.seq, receipt.chain, receipt.event, receipt.time) == (entry.seq, entry.hash, "joined", entry.time)
    assert (receipt.federation, receipt.client, receipt.version) == (federation.terms.id, "a", 1)
    contribution = decode(data, federation.terms.agreement, lambda client: federation.key(client).public)
    assert entry.details == {
        "client": "a",
        "version": 1,
        "digest": contribution.digest,
        "moments": ["gram", "client_means"],
        "bytes": len(data),
        "classes": len(contribution.statistics.classes),
        "samples": 12,
        "withheld": {"classes": 1, "samples": 4},
        "source": "node 1",
        "counter": 0,
    }
    assert Receipt.from_json(receipt.to_json()) == receipt


def test_the_same_again_gets_the_same_receipt_and_nothing_is_written(
    federation: Any, store: FederationStore, tmp_path: Path
) -> None:
    data = federation.data("a")
    first = store.submit(data)
    entries, state = len(events(store)), store.digest()
    with FederationStore.open(tmp_path / "ledger") as other:
        again = [store.submit(data), other.submit(data), *store.submit_many([data, data])]
    assert {receipt.to_json() for receipt in again if isinstance(receipt, Receipt)} == {first.to_json()}
    assert len(again) == 4
    assert len(events(store)) == entries
    assert store.digest() == state


def test_another_content_under_a_version_that_is_in_is_quarantined(federation: Any, store: FederationStore) -> None:
    store.submit(federation.data("a", 1, content=1))
    other = federation.data("a", 1, content=2)
    assert refusal(store, other) == "conflict"
    assert events(store)[-2:] == ["quarantined", "refused"]
    assert store.status().quarantined == 1
    assert refusal(store, other) == "conflict"
    assert store.status().quarantined == 1


def test_a_higher_version_replaces_and_a_lower_one_is_a_replay(federation: Any, store: FederationStore) -> None:
    first, second = federation.data("a", 1, content=1), federation.data("a", 3, content=2)
    store.submit(first)
    assert store.submit(second).event == "replaced"
    assert list(store.audit())[-1].details["former"] == 1
    assert store.statistics() == federation.statistics(2)
    assert refusal(store, first) == "replayed"
    assert refusal(store, federation.data("a", 2, content=3)) == "replayed"


def test_who_left_returns_only_with_a_new_version(federation: Any, store: FederationStore) -> None:
    data = federation.data("a", 5)
    store.submit(data)
    left = store.leave("a")
    assert (left.event, left.version) == ("left", 5)
    assert store.leave("a").to_json() == left.to_json()
    assert refusal(store, data) == "replayed"
    assert refusal(store, federation.data("a", 4, content=9)) == "replayed"
    assert store.submit(federation.data("a", 6)).event == "joined"
    assert store.status().left == 0
    with pytest.raises(LedgerError, match="'b' cannot leave"):
        store.leave("b")


def test_only_enrolled_clients_with_their_own_key_contribute(federation: Any, store: FederationStore) -> None:
    assert refusal(store, federation.data("nobody")) == "unknown-client"
    stranger = IdentityKey.generate()
    federation.keys["b"] = stranger
    assert refusal(store, federation.data("b")) == "bad-signature"
    store.submit(federation.data("c"))
    store.revoke("c")
    assert refusal(store, federation.data("c", 2)) == "revoked-client"
    assert [member.status for member in store.enrolled()] == ["enrolled", "enrolled", "revoked", "enrolled"]
    assert store.status().clients == 1
    store.leave("c")
    assert store.status().clients == 0
    assert store.verify().whole


def test_enrolling_again_is_fine_only_with_the_same_keys(federation: Any, store: FederationStore) -> None:
    key = federation.key("a").public
    length = len(events(store))
    store.enrol("a", key)
    assert len(events(store)) == length
    store.enrol("a", key, "ecdsa-sha2-nistp384 AAAA")
    store.enrol("a", key, "ecdsa-sha2-nistp384 AAAA")
    assert len(events(store)) == length + 1
    assert store.enrolled()[0].node_key == "ecdsa-sha2-nistp384 AAAA"
    with pytest.raises(LedgerError, match="on the node with the key"):
        store.enrol("a", key, "ecdsa-sha2-nistp384 BBBB")
    with pytest.raises(LedgerError, match="is enrolled with the key"):
        store.enrol("a", IdentityKey.generate().public)
    store.revoke("a")
    store.revoke("a")
    with pytest.raises(LedgerError, match="revoked, which is final"):
        store.enrol("a", key)
    with pytest.raises(LedgerError, match="nobody of that name"):
        store.revoke("x")
    with pytest.raises(InputError, match="name must be"):
        store.enrol("a/b", key)
    with pytest.raises(InputError, match="node_key"):
        store.enrol("x", key, "two\nlines")
    assert store.verify().whole


def test_more_samples_than_agreed_are_refused_one_by_one(federation_of: Federations, tmp_path: Path) -> None:
    federation = federation_of("gram", max_samples=30)
    with federation.store(tmp_path / "ledger", "abc") as store:
        answers = store.submit_many([federation.data(client, samples=12) for client in "abc"])
        assert [getattr(answer, "reason", "in") for answer in answers] == ["in", "in", "too-many-samples"]
        assert store.submit(federation.data("a", 2, samples=15)).event == "replaced"  # 12 go, 15 come
        assert refusal(store, federation.data("a", 3, samples=19)) == "too-many-samples"
        assert store.status().samples == 27
        store.leave("b")
        assert store.submit(federation.data("c", samples=12)).event == "joined"
        assert store.verify().whole


def test_a_batch_refuses_each_item_by_itself(federation: Any, store: FederationStore) -> None:
    good = {client: federation.data(client) for client in "abc"}
    items = [
        good["a"],
        b"",
        good["b"],
        good["a"],
        good["b"][:-1],
        federation.data("a", 1, content=77),
        federation.data("nobody"),
        memoryview(good["c"]),
        federation.data("b", 2, content=5),
        good["b"],
    ]
    answers = store.submit_many(items, source="node 9")
    reasons = [answer.reason if isinstance(answer, RefusedError) else answer.event for answer in answers]
    assert reasons == [
        "joined",
        "truncated",
        "joined",
        "joined",
        "truncated",
        "conflict",
        "unknown-client",
        "joined",
        "replaced",
        "replayed",
    ]
    assert answers[3] == answers[0]
    parts = [federation.data("a"), federation.data("b", 2, content=5), federation.data("c")]
    decoded = [decode(data, federation.terms.agreement, lambda client: federation.key(client).public) for data in parts]
    assert store.statistics() == Statistics.merge(item.statistics for item in decoded)
    assert store.verify().whole
    assert store.submit_many([]) == []


def test_a_batch_of_many_bytes_is_taken_in_by_several_commits(
    federation: Any, store: FederationStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    items = [federation.data(client) for client in "abcd"]
    monkeypatch.setattr("fedmoments.federation.store.arrivals.PART_BYTES", 2 * len(items[0]) + 100)
    commits = []
    writing = store._database.writing

    def counted(*words: str) -> Any:
        commits.append(words)
        return writing(*words)

    monkeypatch.setattr(store._database, "writing", counted)
    receipts = store.submit_many(items)
    assert len(commits) == 2
    assert [receipt.client for receipt in receipts if isinstance(receipt, Receipt)] == [*"abcd"]
    assert store.verify().whole


def test_threads_that_share_a_store_wait_for_each_other(federation: Any, tmp_path: Path) -> None:
    clients = [f"c{number}" for number in range(40)]
    items = [federation.data(client) for client in clients]
    with federation.store(tmp_path / "ledger", clients) as store, ThreadPoolExecutor(4) as threads:
        receipts = list(threads.map(store.submit, items * 3))
        assert len({receipt.seq for receipt in receipts}) == 40
        assert store.status().clients == 40
        assert store.verify().whole


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), st.sampled_from("abcd"), st.integers(1, 4), st.integers(0, 3)),
        st.tuples(st.just("leave"), st.sampled_from("abcd"), st.just(0), st.just(0)),
    ),
    max_size=20,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(operations=OPERATIONS, batch=st.integers(1, 6))
def test_any_history_ends_as_the_model_says(
    federation: Any, tmp_path_factory: pytest.TempPathFactory, operations: list[tuple[str, str, int, int]], batch: int
) -> None:
    present: dict[str, tuple[int, int]] = {}
    last: dict[str, int] = {}
    history: dict[str, str] = {}
    waiting: list[bytes] = []
    expected: list[str] = []

    def flush() -> None:
        answers = store.submit_many(waiting)
        got = [answer.reason if isinstance(answer, RefusedError) else answer.event for answer in answers]
        assert got == expected
        waiting.clear()
        expected.clear()

    with federation.store(tmp_path_factory.mktemp("model") / "ledger", "abcd") as store:
        for kind, client, version, content in operations:
            if kind == "leave":
                flush()
                if client in present:
                    store.leave(client)
                    del present[client]
                continue
            waiting.append(federation.data(client, version, content=content))
            if present.get(client) == (version, content):
                expected.append(history[client])
            elif client in present and present[client][0] == version:
                expected.append("conflict")
            elif version <= last.get(client, 0):
                expected.append("replayed")
            else:
                history[client] = "replaced" if client in present else "joined"
                expected.append(history[client])
                present[client], last[client] = (version, content), version
            if len(waiting) == batch:
                flush()
        flush()
        zero = federation.statistics(0) - federation.statistics(0)
        parts = [federation.statistics(present[client][1]) for client in sorted(present)]
        merged = store.statistics()
        assert merged == Statistics.merge([zero, *parts])
        np.testing.assert_array_equal(
            merged.arrays["client_means"], Statistics.merge([zero, *parts]).arrays["client_means"]
        )
        assert store.verify().problems == ()
