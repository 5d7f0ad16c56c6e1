"""Several processes write to one ledger, and are killed while they do. This file is also the program that they run.

The program imports everything once, then forks the writers: so a killed one is back within milliseconds, and the ledger
stays under load. A writer sends every contribution three times, in an order of its own, one by one or many at once, and
notes every receipt in a file of its own, forced to the disk, before it goes on. It continues after what it noted.
"""

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import HANG

from fedmoments.federation.store import FederationStore, Receipt
from fedmoments.wire import pack_bundle, unpack_bundle

Totals = Callable[[Path], dict[tuple[str, int], bytes]]


# ------------------------------------------------------------------------------------------------ the program


def noted(notes: Path) -> list[str]:
    """Return the receipts that were noted whole; what was cut off by a kill is removed."""
    text = notes.read_bytes() if notes.exists() else b""
    whole = text[: text.rfind(b"\n") + 1]
    if whole != text:
        os.truncate(notes, len(whole))
    return whole.decode().splitlines()


def write(ledger: Path, items: list[bytes], notes: Path, seed: int) -> None:
    """Send everything three times, from where the notes end."""
    order = list(range(len(items))) * 3
    random.Random(seed).shuffle(order)
    done = len(noted(notes))
    descriptor = os.open(notes, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    sizes = random.Random(os.getpid())
    with FederationStore.open(ledger) as store:
        while done < len(order):
            places = order[done : done + sizes.choice((1, 1, 2, 3, 8))]
            if len(places) == 1:
                answers = [store.submit(items[places[0]], source=f"writer {seed}")]
            else:
                many = store.submit_many([items[place] for place in places], source=f"writer {seed}")
                answers = [answer for answer in many if isinstance(answer, Receipt)]
                assert len(answers) == len(places), many
            os.write(descriptor, "".join(f"{answer.to_json()}\n" for answer in answers).encode())
            os.fsync(descriptor)
            done += len(places)


def start(*arguments: Any) -> int:
    """Fork a writer; return its process id."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        write(*arguments)
        status = 0
    finally:
        os._exit(status)


def harass(ledger: Path, items: list[bytes], folder: Path, writers: int, kills: int) -> dict[str, Any]:
    """Run the writers until they are done, and kill them at random points on the way."""
    rng = random.Random(5)
    total = 3 * writers * len(items)
    # squared: half of the points lie in the first quarter, where most of what is sent is new
    points = sorted(int(0.9 * total * rng.random() ** 2) for _ in range(kills))
    notes = [folder / f"notes {number}" for number in range(writers)]
    running = {number: start(ledger, items, notes[number], number) for number in range(writers)}
    seen = {"kill points": 0, "processes killed": 0, "begun": time.monotonic()}
    while running:
        time.sleep(0.001 + 0.02 * rng.random())
        for number, process in list(running.items()):
            ended, status = os.waitpid(process, os.WNOHANG)
            if ended:
                assert status == 0, f"writer {number} failed"
                del running[number]
        progress = sum(file.read_bytes().count(b"\n") for file in notes if file.exists())
        if running and points and progress >= points[0]:
            points.pop(0)
            victims = list(running) if rng.random() < 0.2 else [rng.choice(list(running))]
            for number in victims:
                os.kill(running[number], signal.SIGKILL)
            for number in victims:
                _, status = os.waitpid(running[number], 0)
                seen["processes killed"] += os.WIFSIGNALED(status)
                running[number] = start(ledger, items, notes[number], number)
            seen["kill points"] += 1
        assert time.monotonic() - seen["begun"] < HANG, "the writers do not come to an end"
    seen["seconds"] = round(time.monotonic() - seen.pop("begun"), 1)
    return seen


def main(ledger: str, bundle: str, folder: str, writers: str, kills: str) -> None:
    items = [bytes(item) for item in unpack_bundle(Path(bundle).read_bytes(), max_bytes=2**30, max_items=10**6)]
    sys.stdout.write(json.dumps(harass(Path(ledger), items, Path(folder), int(writers), int(kills))))


# ------------------------------------------------------------------------------------------------ the tests


def check(
    federation: Any, folder: Path, read_totals: Totals, n_clients: int, writers: int, kills: int
) -> dict[str, Any]:
    """Let writers work, then compare with their receipts and with a serial run; return the figures."""
    clients = [f"client {number}" for number in range(n_clients)]
    items = [federation.data(client) for client in clients]
    ledger, bundle = folder / "ledger", folder / "bundle"
    federation.store(ledger, clients).close()
    bundle.write_bytes(pack_bundle(items))
    command = [sys.executable, __file__, str(ledger), str(bundle), str(folder), str(writers), str(kills)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout)
    acknowledged = [Receipt.from_json(line) for number in range(writers) for line in noted(folder / f"notes {number}")]
    assert len(acknowledged) == 3 * writers * n_clients
    with FederationStore.open(ledger) as store, federation.store(folder / "serial", clients) as serial:
        found = store.verify()
        assert found.problems == ()
        for data in items:
            serial.submit(data)
        receipts = {store.submit(data).to_json() for data in items}
        chain = {entry.hash for entry in store.audit()}
        lost = [item for item in acknowledged if item.to_json() not in receipts or item.chain not in chain]
        joined = [entry.details["client"] for entry in store.audit() if entry.event == "joined"]
        assert store.digest() == serial.digest()
        assert store.statistics().digest() == serial.statistics().digest()
        assert store.verify().entries == found.entries == 1 + 2 * n_clients
    assert read_totals(ledger) == read_totals(folder / "serial")
    with closing(sqlite3.connect(ledger)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    return seen | {
        "acknowledged": len(acknowledged),
        "lost": len(lost),
        "counted twice": len(joined) - len(set(joined)),
        "clients in": len(set(joined)),
    }


def test_two_processes_share_a_ledger(federation: Any, tmp_path: Path, read_totals: Totals) -> None:
    figures = check(federation, tmp_path, read_totals, n_clients=40, writers=2, kills=0)
    del figures["seconds"]
    assert figures == {
        "kill points": 0,
        "processes killed": 0,
        "acknowledged": 240,
        "lost": 0,
        "counted twice": 0,
        "clients in": 40,
    }


@pytest.mark.long
def test_200_kills_lose_nothing_and_count_nothing_twice(federation: Any, tmp_path: Path, read_totals: Totals) -> None:
    figures = check(federation, tmp_path, read_totals, n_clients=300, writers=4, kills=200)
    sys.stdout.write(f"{figures}\n")
    assert figures["kill points"] == 200
    assert figures["processes killed"] >= 200
    assert figures["acknowledged"] == 3600
    assert (figures["lost"], figures["counted twice"], figures["clients in"]) == (0, 0, 300)


if __name__ == "__main__":
    main(*sys.argv[1:])
