"""The outbox when things fail: killed at any point, several at once, a full disk. This file is also their program."""

import json
import os
import random
import resource
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.waiting import HANG

from fedmoments import Statistics, StatisticsSpec
from fedmoments.errors import FileFormatError, LedgerError
from fedmoments.federation.outbox import Outbox
from fedmoments.federation.terms import Terms
from fedmoments.samples.fingerprint import Fingerprint
from fedmoments.wire import IdentityKey, encode, read_header

DIM = 64
PETS = Fingerprint("none", "none", None, ("cat", "dog"))
SPEC = StatisticsSpec.of("gram")
TERMS = Terms("pets", {"name": "identity", "options": {}}, PETS, DIM, SPEC, nonce="the same in every process")


def prepare(outbox: Outbox, client: str, source: str, salt: int) -> bytes:
    """Measure other numbers with every salt, so that two measurements never give the same bytes."""
    X = np.random.default_rng(salt).normal(size=(4, DIM))
    stats = Statistics.of(X, [0, 0, 1, 1], SPEC, n_classes=2)
    key = IdentityKey.from_bytes(bytes(32))
    return outbox.prepare(
        TERMS, client, source, lambda version: encode(stats, TERMS.agreement, client=client, version=version, key=key)
    )


def tell(client: str, source: str, data: bytes) -> None:
    """Say what would now be sent, in one write, so that a kill cannot cut it in two."""
    header = read_header(data, TERMS.agreement)
    os.write(1, json.dumps([client, source, header.version, header.digest]).encode() + b"\n")


def write_for_ever(folder: str, first: str) -> None:
    with Outbox(folder) as outbox:
        number = int(first)
        while True:
            source = f"source {number // 4}"
            tell("shared", source, prepare(outbox, "shared", source, os.getpid() * 1000 + number))
            own = f"client {first} {number}"
            tell(own, source, prepare(outbox, own, source, number))
            number += 1


def kill_writers(folder: str) -> None:
    """Start four writers at once and kill each after a random while, again and again, until they got something done."""
    rng = random.Random(0)
    with tempfile.TemporaryDirectory() as scratch, Outbox(scratch) as outbox:
        prepare(outbox, "first", "may", 0)  # everything is imported before the first fork
    record = Path(folder, "record.jsonl")
    for turn in range(100):
        if turn >= 6 and record.read_bytes().count(b"\n") > 200:
            return
        pids = []
        for i in range(4):
            pids.append(os.fork())
            if pids[-1] == 0:
                write_for_ever(folder, str(1000 * (4 * turn + i)))
        for pid in pids:
            time.sleep(rng.uniform(0.01, 0.1))
            os.kill(pid, signal.SIGKILL)
        assert [os.waitpid(pid, 0)[1] for pid in pids] == [signal.SIGKILL] * 4


def write_all(folder: str, clients: str, source: str) -> None:
    with Outbox(folder) as outbox:
        for number in range(int(clients)):
            tell(f"client {number}", source, prepare(outbox, f"client {number}", source, os.getpid() * 1000 + number))


def write_until_full(folder: str, most: str) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(most), int(most)))
    with Outbox(folder) as outbox:
        for number in range(1000):
            try:
                data = prepare(outbox, f"client {number}", "may", number)
            except LedgerError as error:
                os.write(1, json.dumps([str(error)]).encode() + b"\n")
                return
            tell(f"client {number}", "may", data)


def start(task: str, *arguments: object) -> subprocess.Popen[bytes]:
    command = [sys.executable, __file__, task, *map(str, arguments)]
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)


def told(process: subprocess.Popen[bytes]) -> list[list[Any]]:
    out, errors = process.communicate(timeout=HANG)
    assert errors == b""
    return [json.loads(line) for line in out.splitlines()]


def events(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "record.jsonl").read_text().splitlines()]


def test_after_kill_9_at_any_point_what_was_returned_is_stored_and_the_rest_is_not_half_there(tmp_path: Path) -> None:
    """Twenty-four writers or more on one outbox, each killed at a random point."""
    process = start("kill_writers", tmp_path)
    answers: dict[tuple[str, int], tuple[str, str]] = {}
    for client, source, version, digest in told(process):
        # every answer under one version is the same content, whoever gave it
        assert answers.setdefault((client, version), (digest, source)) == (digest, source)
    assert process.returncode == 0
    assert len(answers) > 50
    prepared, torn = set(), 0
    for line in (tmp_path / "record.jsonl").read_text().splitlines():
        try:
            facts = json.loads(line)
        except ValueError:
            torn += 1
        else:
            prepared.add((facts["client"], facts["version"], facts["digest"]))
    assert torn < 4
    with Outbox(tmp_path) as outbox:
        assert outbox._database.rows("PRAGMA integrity_check") == [("ok",)]
        stored = {
            (client, version): (digest, source, payload)
            for client, version, digest, source, payload in outbox._database.rows(
                "SELECT client, version, digest, source, payload FROM contributions"
            )
        }
    for key, answer in answers.items():
        assert stored[key][:2] == answer
    for (client, version), (digest, _, payload) in stored.items():
        assert read_header(payload, TERMS.agreement).digest == digest
        assert (client, version, digest) in prepared
    versions = sorted(version for client, version in stored if client == "shared")
    assert versions == list(range(1, len(versions) + 1))


def test_processes_that_prepare_the_same_at_once_send_the_same(tmp_path: Path) -> None:
    processes = [start("write_all", tmp_path, 30, "may") for _ in range(3)]
    answers = [told(process) for process in processes]
    assert len(answers[0]) == 30
    assert all(answer == answers[0] for answer in answers)
    assert all(version == 1 for _, _, version, _ in answers[0])
    assert [line["event"] for line in events(tmp_path)] == ["prepared"] * 30


def test_processes_with_different_data_get_different_versions(tmp_path: Path) -> None:
    processes = [start("write_all", tmp_path, 10, source) for source in ("may", "june", "july")]
    answers = [told(process) for process in processes]
    for of_one in zip(*answers, strict=True):
        assert sorted(version for _, _, version, _ in of_one) == [1, 2, 3]
        assert len({digest for *_, digest in of_one}) == 3


@pytest.mark.parametrize("most", [100_000, 400_000])
def test_on_a_full_disk_a_contribution_is_there_whole_or_not_at_all(tmp_path: Path, most: int) -> None:
    *answers, [error] = told(start("write_until_full", tmp_path, most))
    assert "cannot be used" in str(error)
    assert "nothing in it is half there" in str(error)
    assert answers
    with Outbox(tmp_path) as outbox:
        assert len(outbox.pending(TERMS.id)) == len(answers)
        for client, _, version, digest in answers:
            newest = outbox.newest(TERMS.id, str(client))
            assert newest is not None
            assert (newest.version, newest.digest) == (version, digest)
        prepare(outbox, "one more", "may", 1)
        assert "one more" in outbox.pending(TERMS.id)


# ---------------------------------------------------------------------------------------------- in one process


def test_a_record_that_cannot_be_written_stops_the_contribution(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path)
    outbox.declined(TERMS, "clinic", "first")
    (outbox.folder / "record.jsonl").unlink()
    (outbox.folder / "record.jsonl").mkdir()
    with pytest.raises(LedgerError, match=r"outbox.db cannot be used .*record.jsonl"):
        prepare(outbox, "clinic", "may", 0)
    with pytest.raises(LedgerError, match="record"), outbox.batch():
        prepare(outbox, "clinic", "may", 0)
    assert outbox.newest(TERMS.id, "clinic") is None
    (outbox.folder / "record.jsonl").rmdir()
    prepare(outbox, "clinic", "may", 0)
    assert [line["event"] for line in events(outbox.folder)] == ["prepared"]
    outbox.close()


def test_after_a_failed_statement_nothing_of_the_batch_is_kept_even_if_the_failure_is_overlooked(
    tmp_path: Path,
) -> None:
    outbox = Outbox(tmp_path)
    with sqlite3.connect(outbox.folder / "outbox.db") as connection:
        connection.execute("CREATE TRIGGER full BEFORE INSERT ON floors BEGIN SELECT raise(ROLLBACK, 'full'); END")
    connection.close()

    def batch() -> None:
        with outbox.batch():
            prepare(outbox, "clinic", "may", 0)
            with pytest.raises(LedgerError, match="full"):
                outbox.rejoin(TERMS.id, "clinic", above=3)
            with pytest.raises(LedgerError, match="nothing of this batch is kept"):
                prepare(outbox, "lab", "may", 0)

    with pytest.raises(LedgerError, match="nothing of this batch is kept"):
        batch()
    assert outbox.newest(TERMS.id, "clinic") is None
    assert events(outbox.folder) == []
    prepare(outbox, "clinic", "may", 0)
    assert outbox.pending(TERMS.id) == ("clinic",)
    outbox.close()


def test_a_file_that_is_no_outbox_is_refused(tmp_path: Path) -> None:
    (tmp_path / "outbox.db").write_bytes(b"something else entirely" * 100)
    with pytest.raises(FileFormatError, match="is no outbox, or is damaged"):
        Outbox(tmp_path)
    (tmp_path / "outbox.db").unlink()
    with sqlite3.connect(tmp_path / "outbox.db") as connection:
        connection.execute("CREATE TABLE mine (x)")
    connection.close()
    with pytest.raises(FileFormatError, match="an SQLite file, but no outbox"):
        Outbox(tmp_path)


def test_an_outbox_of_another_version_is_refused(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path)
    outbox.close()
    with sqlite3.connect(outbox.folder / "outbox.db") as connection:
        connection.execute("PRAGMA user_version=4")
    connection.close()
    with pytest.raises(FileFormatError, match="tables of version 4, but this release opens version 3"):
        Outbox(outbox.folder)


def test_a_folder_that_cannot_be_made_and_a_closed_outbox_say_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LedgerError, match="cannot be used"):
        Outbox(tmp_path / "file" / "box")
    with Outbox(tmp_path / "box") as outbox:
        outbox.declined(TERMS, "clinic", "…")
    with pytest.raises(LedgerError, match="was closed: open it again"):
        outbox.pending(TERMS.id)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
