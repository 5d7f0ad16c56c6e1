"""Ledger, outbox and helper are durable files: private from the first byte, and never ahead of a failing disk."""

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.federation.store.conftest import Federation
from tests.federation.store.test_store_failures import SHIM
from tests.federation.test_client_outbox_failures import TERMS, prepare
from tests.privacy.secure_workshop import Workshop

from fedmoments.errors import LedgerError
from fedmoments.federation.outbox import Outbox
from fedmoments.federation.store import FederationStore
from fedmoments.privacy.dense import DenseLayout
from fedmoments.privacy.secure.threshold import ThresholdHelper

ROOT = Path(__file__).parents[1]


@pytest.fixture
def wide_open() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*")}


def only_theirs(folder: Path, *names: str) -> None:
    """Check that these files, and no others, are in a folder, and their owner's alone."""
    assert modes(folder) == dict.fromkeys(names, 0o600)


# ------------------------------------------------------------------------------------------------ modes


@pytest.mark.usefixtures("wide_open")
def test_a_ledger_its_snapshots_and_what_is_restored_are_their_owners_alone(tmp_path: Path) -> None:
    federation = Federation.of("client_means", "gram")
    with federation.store(tmp_path / "ledger.db", "ab") as store:
        store.submit(federation.data("a"))
        only_theirs(tmp_path, "ledger.db", "ledger.db.journal", "ledger.db.key", "ledger.db-wal", "ledger.db-shm")
        store.snapshot(tmp_path / "snapshot.db")
    ledger = ("ledger.db", "ledger.db.journal", "ledger.db.key", "snapshot.db", "snapshot.db.sha256")
    only_theirs(tmp_path, *ledger)
    with FederationStore.restore(tmp_path / "snapshot.db", tmp_path / "restored.db") as store:
        store.submit(federation.data("b"))
        only_theirs(
            tmp_path,
            *ledger,
            "restored.db",
            "restored.db.journal",
            "restored.db.key",
            "restored.db-wal",
            "restored.db-shm",
        )


@pytest.mark.usefixtures("wide_open")
def test_a_ledger_that_others_could_read_is_narrowed_when_it_is_opened(tmp_path: Path) -> None:
    federation = Federation.of("client_means", "gram")
    federation.store(tmp_path / "ledger.db", "a").close()
    (tmp_path / "ledger.db").chmod(0o644)
    with FederationStore.open(tmp_path / "ledger.db") as store:
        store.submit(federation.data("a"))
        only_theirs(tmp_path, "ledger.db", "ledger.db.journal", "ledger.db.key", "ledger.db-wal", "ledger.db-shm")


@pytest.mark.usefixtures("wide_open")
def test_an_outbox_is_its_owners_alone(tmp_path: Path) -> None:
    folder = tmp_path / "box"
    with Outbox(folder) as outbox:
        prepare(outbox, "clinic", "may", 0)
        only_theirs(folder, "outbox.db", "outbox.db-wal", "outbox.db-shm", "record.jsonl")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for path in folder.iterdir():
        path.chmod(0o644)
    with Outbox(folder) as outbox:
        prepare(outbox, "lab", "may", 0)
        only_theirs(folder, "outbox.db", "outbox.db-wal", "outbox.db-shm", "record.jsonl")


@pytest.mark.usefixtures("wide_open")
def test_what_a_helper_remembers_is_its_owners_alone(tmp_path: Path) -> None:
    shop = Workshop(path=tmp_path / "box" / "memory.db")
    shop.helper.sum(shop.request("abc"))
    only_theirs(tmp_path / "box", "memory.db", "memory.db-wal", "memory.db-shm")
    shop.helper.close()
    federation = Federation.of("client_means")
    layout = DenseLayout(federation.terms.spec.additive, federation.terms.dim, 5)
    ThresholdHelper(shop.helper, layout, 2, tmp_path / "box" / "thresholds.db").close()
    only_theirs(tmp_path / "box", "memory.db", "thresholds.db")


# ------------------------------------------------------------------------------------------------ a failing disk


def fail_and_say(folder: str, trigger: str) -> None:
    """Use outbox and helper while fsync fails and after; the program of the test below."""
    os.fsync = lambda fd: None  # the record's lines reach the disk, the commits do not
    shop = Workshop(path=Path(folder, "memory.db"))
    outbox = Outbox(folder)
    prepare(outbox, "lab", "may", 0)  # begins the log, so that commits can follow in it
    steps: dict[str, Callable[[], object]] = {
        "outbox": lambda: prepare(outbox, "clinic", "may", len(outcomes)),
        "newest": lambda: outbox.newest(TERMS.id, "clinic"),
        "helper": lambda: shop.helper.sum(shop.request("abc")),
    }
    outcomes: list[tuple[str, str]] = []
    for fails in (True, True, False, False):
        if fails:
            Path(trigger).touch()
        else:
            Path(trigger).unlink(missing_ok=True)
        for name, step in steps.items():
            try:
                answer = step()
            except LedgerError as error:
                outcomes.append((name, "failed" if "disk I/O error" in str(error) else str(error)))
            else:
                text = answer.tobytes() if isinstance(answer, np.ndarray) else answer
                outcomes.append((name, repr(text)))
    sys.stdout.write(json.dumps(outcomes))


def test_while_fsync_fails_nothing_leaves_outbox_or_helper_not_even_when_it_is_asked_for_again(tmp_path: Path) -> None:
    compiler = next((name for name in ("gcc", "cc") if _runs(name)), None)
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("a failing fsync is injected with a preloaded library, which takes Linux and a C compiler")
    library, trigger = tmp_path / "shim.so", tmp_path / "trigger"
    (tmp_path / "shim.c").write_text(SHIM)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, tmp_path / "shim.c", "-ldl"], check=True)
    program = "import sys; from tests.test_durable_everywhere import fail_and_say; fail_and_say(*sys.argv[1:])"
    process = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "box"), str(trigger)],
        cwd=ROOT,
        env=os.environ | {"LD_PRELOAD": str(library), "FSYNC_FAILS": str(trigger)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    outcomes = json.loads(process.stdout)
    assert [answer for _, answer in outcomes[:6]] == ["failed"] * 6
    assert outcomes[6:9] == outcomes[9:12]
    assert all(answer not in ("failed", "None") for _, answer in outcomes[6:])


def _runs(command: str) -> bool:
    try:
        return subprocess.run([command, "--version"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False
