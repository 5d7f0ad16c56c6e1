"""The client's outbox: measured once, the same bytes every time, receipts that fit, and a record of all that left."""

import json
import stat
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.waiting import HANG

from fedmoments import Statistics, StatisticsSpec
from fedmoments.errors import FedMomentsError, InputError, LedgerError
from fedmoments.federation.outbox import Newest, Outbox, Refusal
from fedmoments.federation.store import FederationStore, Receipt
from fedmoments.federation.terms import Terms
from fedmoments.samples.fingerprint import Fingerprint
from fedmoments.wire import IdentityKey, Reason, Withheld, encode, read_header

DIM = 16
PETS = Fingerprint("none", "none", None, ("cat", "dog", "eel"))
TERMS = Terms("pets", {"name": "identity", "options": {}}, PETS, DIM, StatisticsSpec.of("client_means", "gram"))
KEY = IdentityKey.generate()


def maker(client: str = "clinic", seed: int = 0) -> Callable[[int], bytes]:
    rng = np.random.default_rng(seed)
    stats = Statistics.of(rng.normal(size=(5, DIM)), [0, 0, 0, 2, 2], TERMS.spec, n_classes=3)

    def make(version: int) -> bytes:
        told = Withheld(classes=1, samples=4)
        return encode(stats, TERMS.agreement, client=client, version=version, key=KEY, withheld=told)

    return make


def never(version: int) -> bytes:
    raise AssertionError(f"measured again, for version {version}")


def receipt_of(data: bytes, seq: int = 7, event: str = "joined") -> Receipt:
    header = read_header(data, TERMS.agreement)
    who = (header.federation, header.client, header.version, header.digest)
    return Receipt(*who, seq, "ef" * 32, event, "2030-01-01T00:00:00.000Z")


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "record.jsonl").read_text().splitlines()]


@pytest.fixture
def outbox(tmp_path: Path) -> Iterator[Outbox]:
    with Outbox(tmp_path / "box") as made:
        yield made


# ---------------------------------------------------------------------------------------------- preparing


def test_the_same_source_is_measured_once_and_sent_as_the_same_bytes_also_by_another_process(outbox: Outbox) -> None:
    first = outbox.prepare(TERMS, "clinic", "may", maker())
    assert read_header(first, TERMS.agreement).version == 1
    assert outbox.prepare(TERMS, "clinic", "may", never) == first
    outbox.close()
    with Outbox(outbox.folder) as again:
        assert again.prepare(TERMS, "clinic", "may", never) == first


def test_another_source_is_the_next_version_and_the_former_source_is_then_another_one(outbox: Outbox) -> None:
    made = [outbox.prepare(TERMS, "clinic", source, maker()) for source in ("may", "june", "may")]
    assert [read_header(data, TERMS.agreement).version for data in made] == [1, 2, 3]


def test_clients_and_federations_do_not_meet(outbox: Outbox) -> None:
    other = replace(TERMS, nonce="another one")
    outbox.prepare(TERMS, "clinic", "may", maker())
    outbox.prepare(TERMS, "lab", "may", maker("lab"))
    stats = Statistics.zero(other.spec, n_classes=3, dim=DIM)
    made = outbox.prepare(
        other, "lab", "may", lambda version: encode(stats, other.agreement, client="lab", version=version, key=KEY)
    )
    assert read_header(made, other.agreement).version == 1
    assert outbox.pending(TERMS.id) == ("clinic", "lab")
    assert outbox.pending(other.id) == ("lab",)
    assert outbox.newest(other.id, "clinic") is None


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda version: b"?", "not a contribution to 'pets': truncated"),
        (maker("lab"), "is version 1 of client 'lab'"),
        (lambda version: maker()(version + 1), "it is version 2 of client 'clinic'"),
        (lambda version: maker()(version)[:296] + b"\0" * 9, "not a contribution to 'pets'"),
    ],
)
def test_what_is_no_contribution_of_that_version_is_not_stored(
    outbox: Outbox, make: Callable[[int], bytes], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        outbox.prepare(TERMS, "clinic", "may", make)
    assert outbox.newest(TERMS.id, "clinic") is None
    assert outbox.prepare(TERMS, "clinic", "may", maker()) == maker()(1)


def test_no_source_and_no_name_are_refused(outbox: Outbox) -> None:
    with pytest.raises(InputError, match="not empty"):
        outbox.prepare(TERMS, "clinic", "", never)
    with pytest.raises(InputError, match="a client's name"):
        outbox.prepare(TERMS, "../clinic", "may", never)


def test_two_threads_that_prepare_the_same_get_the_same(outbox: Outbox) -> None:
    """All measure at once, for none has stored anything yet; one is first, and the others send what it stored."""
    gate, found = threading.Barrier(4), []

    def measure(version: int) -> bytes:
        if version == 1:
            gate.wait(timeout=HANG)
        return maker(seed=threading.get_ident())(version)

    def work() -> None:
        found.append(outbox.prepare(TERMS, "clinic", "may", measure))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=HANG)
    assert len(found) == 4
    assert len(set(found)) == 1
    assert [line["event"] for line in lines(outbox.folder)] == ["prepared"]


# ---------------------------------------------------------------------------------------------- answers of a server


def test_a_whole_life_with_a_real_ledger(tmp_path: Path, outbox: Outbox) -> None:
    """Join, lose the answer, send again, replace, leave, be refused, join again."""
    with FederationStore.create(tmp_path / "ledger.db", TERMS) as store:
        store.enrol("clinic", KEY.public)
        first = outbox.prepare(TERMS, "clinic", "may", maker())
        lost = store.submit(first)
        receipt = store.submit(outbox.prepare(TERMS, "clinic", "may", never))
        assert receipt == lost
        assert outbox.pending(TERMS.id) == ("clinic",)
        outbox.acknowledge(receipt.to_json())
        assert (outbox.pending(TERMS.id), outbox.acknowledged(TERMS.id, "clinic")) == ((), True)

        second = outbox.prepare(TERMS, "clinic", "june", maker(seed=1))
        assert not outbox.acknowledged(TERMS.id, "clinic")
        outbox.acknowledge(store.submit(second).to_json())
        left = store.leave("clinic")
        outbox.acknowledge(left.to_json())
        assert outbox.newest(TERMS.id, "clinic") == Newest(2, left.digest, left.to_json(), None)

        with pytest.raises(FedMomentsError, match="replayed"):
            store.submit(outbox.prepare(TERMS, "clinic", "june", never))
        outbox.rejoin(TERMS.id, "clinic", above=left.version)
        third = outbox.prepare(TERMS, "clinic", "june", maker(seed=1))
        assert outbox.prepare(TERMS, "clinic", "june", never) == third
        again = store.submit(third)
        outbox.acknowledge(again.to_json())
        assert (again.version, again.event) == (3, "joined")
        assert outbox.acknowledged(TERMS.id, "clinic")
    events = [(line["event"], line["version"]) for line in lines(outbox.folder)]
    acknowledged = ["prepared", "acknowledged"]
    assert events == [
        *zip(acknowledged, [1, 1], strict=True),
        *zip([*acknowledged, "acknowledged"], [2, 2, 2], strict=True),
        *zip(acknowledged, [3, 3], strict=True),
    ]


def test_a_receipt_that_does_not_fit_is_refused_and_nothing_is_kept(outbox: Outbox) -> None:
    receipt = receipt_of(outbox.prepare(TERMS, "clinic", "may", maker()))
    wrong = [
        (replace(receipt, digest="ab" * 32).to_json(), "this client did not send"),
        (replace(receipt, client="lab").to_json(), "version 1 of client 'lab' .* was never made"),
        (replace(receipt, version=2).to_json(), "was never made"),
        (replace(receipt, version=2**70).to_json(), "version of a receipt must be from 1 to"),
        (replace(receipt, seq=0).to_json(), "seq of a receipt must be from 1 to"),
        (replace(receipt, federation="cd" * 32).to_json(), "was never made"),
        (replace(receipt, federation="\ud800").to_json(), "64 hexadecimal digits"),
        (replace(receipt, chain="EF" * 32).to_json(), "chain of a receipt must be 64 hexadecimal digits"),
        (
            replace(receipt, event="refused").to_json(),
            "joined, replaced, left, reported, withdrawn, but this is for 'refused'",
        ),
        (replace(receipt, client="\n").to_json(), "a name or time that is none"),
        (replace(receipt, time="soon").to_json(), "a name or time that is none"),
        (receipt.to_json().replace('"seq":7', '"seq":"7"'), "seq cannot be '7'"),
        (receipt.to_json().replace('"seq":7', '"seq":7,"more":1'), "the fields"),
        ("not JSON", "not JSON"),
        ("[" * 3000, "no receipt"),
        (" " * 5000, "at most 4096 characters, but 5000"),
    ]
    for text, words in wrong:
        with pytest.raises(LedgerError, match=words):
            outbox.acknowledge(text)
    assert outbox.pending(TERMS.id) == ("clinic",)
    assert [line["event"] for line in lines(outbox.folder)] == ["prepared"]
    outbox.acknowledge(receipt.to_json())
    assert outbox.acknowledged(TERMS.id, "clinic")


def test_the_same_receipt_again_changes_nothing_a_late_one_neither_and_a_contradicting_one_is_refused(
    outbox: Outbox,
) -> None:
    data = outbox.prepare(TERMS, "clinic", "may", maker())
    joined, left = receipt_of(data), receipt_of(data, seq=9, event="left")
    for receipt in (joined, joined, left, joined):
        outbox.acknowledge(receipt.to_json())
    newest = outbox.newest(TERMS.id, "clinic")
    assert newest is not None
    assert newest.receipt == left.to_json()
    with pytest.raises(LedgerError, match="both entry 9 of the server's log"):
        outbox.acknowledge(replace(left, chain="ab" * 32).to_json())
    assert [line.get("seq") for line in lines(outbox.folder)] == [None, 7, 9]


def test_a_refusal_is_kept_stays_pending_and_is_over_when_a_receipt_comes(outbox: Outbox) -> None:
    data = outbox.prepare(TERMS, "clinic", "may", maker())
    outbox.refused(TERMS.id, "clinic", 1, Reason.UNKNOWN_CLIENT, "nobody\u2028 of that \ud800 name")
    newest = outbox.newest(TERMS.id, "clinic")
    assert newest is not None
    assert newest.refusal == Refusal("unknown-client", "nobody\u2028 of that \ud800 name")
    assert outbox.pending(TERMS.id) == ("clinic",)
    assert outbox.prepare(TERMS, "clinic", "may", never) == data
    outbox.acknowledge(receipt_of(data).to_json())
    newest = outbox.newest(TERMS.id, "clinic")
    assert newest is not None
    assert newest.refusal is None
    for version in (0, 2, 2**70, -(2**70)):
        with pytest.raises(LedgerError, match="was never made"):
            outbox.refused(TERMS.id, "clinic", version, Reason.REPLAYED, "…")


def test_rejoining_raises_the_version_and_never_lowers_it(outbox: Outbox) -> None:
    outbox.rejoin(TERMS.id, "clinic", above=5)
    outbox.rejoin(TERMS.id, "clinic", above=3)
    first = outbox.prepare(TERMS, "clinic", "may", maker())
    assert read_header(first, TERMS.agreement).version == 6
    outbox.rejoin(TERMS.id, "clinic", above=5)
    assert outbox.prepare(TERMS, "clinic", "may", never) == first
    outbox.rejoin(TERMS.id, "clinic", above=6)
    assert read_header(outbox.prepare(TERMS, "clinic", "may", maker()), TERMS.agreement).version == 7
    for wrong in (-1, True, 2**63, 1.0):
        with pytest.raises(InputError, match="versions are whole numbers"):
            outbox.rejoin(TERMS.id, "clinic", above=wrong)  # type: ignore[arg-type]


def test_what_was_forgotten_is_on_no_disk_but_its_version_stays_used(outbox: Outbox) -> None:
    data = outbox.prepare(TERMS, "clinic", "may", maker())
    other = outbox.prepare(TERMS, "lab", "may", maker("lab", seed=1))
    body = data[400:900]

    def on_disk(part: bytes) -> bool:
        return any(part in path.read_bytes() for path in outbox.folder.iterdir())

    assert on_disk(body)
    outbox.forget(TERMS.id, "clinic")
    assert not on_disk(body)
    assert on_disk(other[400:900])
    assert outbox.pending(TERMS.id) == ("lab",)
    assert read_header(outbox.prepare(TERMS, "clinic", "may", maker()), TERMS.agreement).version == 2
    with outbox.batch(), pytest.raises(LedgerError, match="inside of a batch"):
        outbox.forget(TERMS.id, "clinic")


# ---------------------------------------------------------------------------------------------- the record


def test_the_record_tells_everything_that_left(outbox: Outbox) -> None:
    data = outbox.prepare(TERMS, "clinic", "may", maker())
    outbox.sent(TERMS, "clinic")
    outbox.acknowledge(receipt_of(data).to_json())
    outbox.sending("evaluated", TERMS, "clinic", heads=2, samples=3)
    outbox.declined(TERMS, "clinic", "max_means:\nasked are 4")
    header = read_header(data, TERMS.agreement)
    common = {"federation": TERMS.id, "name": "pets", "client": "clinic"}
    contribution = common | {
        "version": 1,
        "digest": header.digest,
        "moments": ["gram", "client_means"],
        "bytes": len(data),
        "classes": 2,
        "samples": 5,
        "withheld": {"classes": 1, "samples": 4},
    }
    found = lines(outbox.folder)
    assert all(line.pop("time").endswith("+00:00") for line in found)
    assert found[:3] == [
        {"event": "prepared"} | contribution,
        {"event": "sent"} | contribution,
        {"event": "acknowledged", "seq": 7, "chain": "ef" * 32, "sentence": "joined"} | contribution,
    ]
    assert found[3] == {"event": "evaluated", "heads": 2, "samples": 3} | common
    assert found[4] == {"event": "declined", "sentence": "max_means:\nasked are 4"} | common


def test_only_the_owner_reads_the_folder(outbox: Outbox) -> None:
    outbox.prepare(TERMS, "clinic", "may", maker())
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in outbox.folder.iterdir()}
    assert {"outbox.db", "outbox.db-wal", "record.jsonl"} <= set(modes)
    assert set(modes.values()) == {0o600}
    assert stat.S_IMODE(outbox.folder.stat().st_mode) == 0o700


def test_after_a_line_that_was_cut_off_the_next_one_is_whole(outbox: Outbox) -> None:
    outbox.declined(TERMS, "clinic", "first")
    with (outbox.folder / "record.jsonl").open("a") as file:
        file.write('{"event": "pre')
    outbox.declined(TERMS, "clinic", "second")
    first, torn, second = (outbox.folder / "record.jsonl").read_text().splitlines()
    assert torn == '{"event": "pre'
    assert [json.loads(line)["sentence"] for line in (first, second)] == ["first", "second"]


def test_sending_what_was_not_prepared_is_an_error(outbox: Outbox) -> None:
    with pytest.raises(LedgerError, match=r"version 0 of client 'clinic' .* was never made"):
        outbox.sent(TERMS, "clinic")
    assert lines(outbox.folder) == []


# ---------------------------------------------------------------------------------------------- batches


def test_a_batch_is_all_or_nothing_and_others_see_it_at_its_end(outbox: Outbox) -> None:
    other = Outbox(outbox.folder)
    with outbox.batch():
        made = [outbox.prepare(TERMS, f"client {i}", "may", maker(f"client {i}")) for i in range(20)]
        for data in made:
            outbox.acknowledge(receipt_of(data).to_json())
        assert outbox.prepare(TERMS, "client 3", "may", never) == made[3]
        assert other.newest(TERMS.id, "client 3") is None
        assert lines(outbox.folder) == []
    assert other.acknowledged(TERMS.id, "client 3")
    assert [line["event"] for line in lines(outbox.folder)] == ["prepared"] * 20 + ["acknowledged"] * 20
    other.close()


def test_a_batch_that_raises_never_was(outbox: Outbox) -> None:
    def batch() -> None:
        with outbox.batch():
            outbox.prepare(TERMS, "lab", "may", maker("lab"))
            raise FileNotFoundError("image")

    with pytest.raises(FileNotFoundError, match="image"):
        batch()
    assert outbox.newest(TERMS.id, "lab") is None
    assert lines(outbox.folder) == []


def test_one_client_that_fails_in_a_batch_does_not_spoil_the_others(outbox: Outbox) -> None:
    def failing(version: int) -> bytes:
        raise FileNotFoundError("image")

    with outbox.batch():
        outbox.prepare(TERMS, "clinic", "may", maker())
        with pytest.raises(FileNotFoundError):
            outbox.prepare(TERMS, "lab", "may", failing)
        with pytest.raises(LedgerError, match="never made"):
            outbox.refused(TERMS.id, "lab", 1, Reason.REPLAYED, "…")
    assert outbox.pending(TERMS.id) == ("clinic",)
