"""A full disk and a disk that does not keep what it was told to: a contribution is in, or it is not.

This file is also the program that meets these failures, in a process of its own.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import HANG

from fedmoments.errors import LedgerError, RefusedError
from fedmoments.federation.store import FederationStore, Receipt
from fedmoments.wire import pack_bundle, unpack_bundle

#: fsync and fdatasync fail for as long as the file that FSYNC_FAILS names exists.
SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static int call(const char *name, int descriptor) {
    const char *trigger = getenv("FSYNC_FAILS");
    if (trigger && access(trigger, F_OK) == 0) { errno = EIO; return -1; }
    return ((int (*)(int)) dlsym(RTLD_NEXT, name))(descriptor);
}
int fsync(int descriptor) { return call("fsync", descriptor); }
int fdatasync(int descriptor) { return call("fdatasync", descriptor); }
"""


# ------------------------------------------------------------------------------------------------ the program


def meet_failing_fsync(ledger: Path, items: list[bytes], trigger: Path) -> dict[str, Any]:
    """Let each way to write fail once and then succeed; say what was seen."""
    seen: dict[str, Any] = {"errors": [], "receipts": []}
    with FederationStore.open(ledger) as store:
        steps: list[Callable[[], Sequence[object]]] = [
            lambda: [store.submit(items[0])],
            lambda: store.submit_many(items[1:6]),
            lambda: [store.leave("c1")],
            lambda: [store.submit(items[6])],
            lambda: [store.note("done")],
        ]
        for step in steps:
            before = store.status().clients
            trigger.touch()
            try:
                step()
                seen["errors"].append("none")
            except LedgerError as error:
                seen["errors"].append(str(error))
            trigger.unlink()
            seen.setdefault("clients", []).append([before, store.status().clients])
            assert store.verify().whole
            answers = step()
            assert not any(isinstance(answer, RefusedError) for answer in answers)
            seen["receipts"] += [answer.to_json() for answer in answers if isinstance(answer, Receipt)]
    with FederationStore.open(ledger) as store:
        assert store.verify().whole
        seen["digest"] = store.digest()
        for text in seen["receipts"]:
            assert store.verify(expect=Receipt.from_json(text).chain).whole
    return seen


def meet_full_disk(ledger: Path, items: list[bytes], filler: Path) -> dict[str, Any]:
    """Contribute until the disk is full, make room, contribute the rest; say what was seen."""
    seen: dict[str, Any] = {"errors": [], "taken": 0}
    receipts: dict[str, Receipt] = {}
    with FederationStore.open(ledger) as store:
        for data in items:
            try:
                receipt = store.submit(data)
            except LedgerError as error:
                seen["errors"].append(str(error))
                assert store.status().clients == len(receipts)
                assert store.verify().whole
            else:
                receipts[receipt.client] = receipt
            if len(seen["errors"]) == 3:
                break
        seen["taken"] = len(receipts)
        filler.unlink()
        for data in items:
            receipt = store.submit(data)
            assert receipts.setdefault(receipt.client, receipt) == receipt
        assert store.verify().whole
        seen["digest"] = store.digest()
    return seen


def main(kind: str, ledger: str, bundle: str, file: str) -> None:
    items = [bytes(item) for item in unpack_bundle(Path(bundle).read_bytes(), max_bytes=2**30, max_items=10**6)]
    meet = meet_failing_fsync if kind == "fsync" else meet_full_disk
    sys.stdout.write(json.dumps(meet(Path(ledger), items, Path(file))))


def run(kind: str, ledger: Path, items: list[bytes], file: Path, bundle: Path, **environment: str) -> dict[str, Any]:
    bundle.write_bytes(pack_bundle(items))
    command = [sys.executable, __file__, kind, str(ledger), str(bundle), str(file)]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **environment}, timeout=HANG, check=False
    )
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen


# ------------------------------------------------------------------------------------------------ the tests


@pytest.fixture
def shim(tmp_path: Path) -> Path:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("a failing fsync is injected with a preloaded library, which takes Linux and a C compiler")
    source, library = tmp_path / "shim.c", tmp_path / "shim.so"
    source.write_text(SHIM)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True)
    return library


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("a disk that is really full takes the right to mount a small file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_failing_fsync_leaves_nothing_half_there(federation: Any, tmp_path: Path, shim: Path) -> None:
    clients = [f"c{number}" for number in range(7)]
    items = [federation.data(client) for client in clients]
    path = tmp_path / "ledger"
    federation.store(path, clients).close()
    trigger = tmp_path / "trigger"
    seen = run("fsync", path, items, trigger, tmp_path / "bundle", LD_PRELOAD=str(shim), FSYNC_FAILS=str(trigger))
    told = ("disk I/O error", "Input/output error")  # of SQLite, and of the journal
    assert all(any(words in error for words in told) for error in seen["errors"]), seen["errors"]
    for error, (before, after), possible in zip(
        seen["errors"], seen["clients"], [(0, 1), (1, 6), (6, 5), (5, 6), (6, 6)], strict=True
    ):
        assert before == possible[0], error
        assert after in possible, error  # all of it or nothing; never a part of a batch
    for error in [seen["errors"][place] for place in (0, 1, 3)]:
        assert "not taken in" in error
        assert "send it again" in error
    with federation.store(tmp_path / "serial", clients) as serial:
        serial.submit_many([data for data, client in zip(items, clients, strict=True) if client != "c1"])
        assert serial.digest() == seen["digest"]
    assert len(seen["receipts"]) == 8


def test_a_full_disk_refuses_and_recovers(federation: Any, tmp_path: Path, small_disk: Path) -> None:
    clients = [f"c{number}" for number in range(150)]
    items = [federation.data(client) for client in clients]
    path = small_disk / "ledger"
    federation.store(path, clients).close()
    filler = small_disk / "filler"
    with filler.open("wb") as file:
        file.write(bytes(os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_bsize - 2**19))
    seen = run("full", path, items, filler, tmp_path / "bundle")
    assert 0 < seen["taken"] < 150
    assert len(seen["errors"]) == 3
    for error in seen["errors"]:
        assert "not taken in" in error
        assert "send it again" in error
    with federation.store(tmp_path / "serial", clients) as serial:
        serial.submit_many(items)
        assert serial.digest() == seen["digest"]


def test_a_full_file_refuses_one_batch_and_takes_it_later(federation_of: Any, tmp_path: Path) -> None:
    federation = federation_of("gram", dim=64)
    with federation.store(tmp_path / "ledger", "abc") as store:
        store.submit(federation.data("a"))
        before = store.digest()
        connection = store._database.connection
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count={pages}")
        batch = [federation.data("b"), federation.data("c")]
        words = r"2 contributions were not taken in, .*database or disk is full.*send it again"
        with pytest.raises(LedgerError, match=words):
            store.submit_many(batch)
        assert store.digest() == before  # on a new connection, which does not know the limit
        store.submit_many(batch)
        assert store.status().clients == 3
        assert store.verify().whole


def test_a_writer_that_does_not_let_go_is_named(
    federation: Any, store: FederationStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedmoments.durable.file.BUSY_SECONDS", 0.2)
    with FederationStore.open(store.path) as other:
        store._database.connection.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerError, match=r"not taken in.*database is locked.*send it again"):
            other.submit(federation.data("a"))
        store._database.connection.execute("ROLLBACK")
        other.submit(federation.data("a"))


def test_leaving_says_when_a_reader_keeps_old_bytes_alive(
    federation: Any, store: FederationStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = federation.data("a")
    store.submit(data)
    monkeypatch.setattr("fedmoments.durable.file.BUSY_SECONDS", 0.2)
    with FederationStore.open(store.path) as leaver:
        with store._database.reading() as connection:
            assert connection.execute("SELECT count(*) FROM payloads").fetchone() == (1,)
            with pytest.raises(LedgerError, match=r"has left .entry 7., but bytes .* let it leave again"):
                leaver.leave("a")
            assert leaver.status().clients == 0
        assert leaver.leave("a").seq == 7
    files = b"".join(file.read_bytes() for file in store.path.parent.glob("ledger*"))
    assert data[-64:] not in files


if __name__ == "__main__":
    main(*sys.argv[1:])
