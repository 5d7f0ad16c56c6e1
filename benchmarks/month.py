"""A month of a federation, over TLS and in real processes: every state is compared with a plain recomputation.

    python benchmarks/month.py

Four parties with features that are drawn. Prints a line a day, and ends with 1 at the first bit that differs.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedmoments.core.statistics import Statistics
from fedmoments.federation.deploy.network import choose_port
from fedmoments.federation.flower.holdings import Holdings
from fedmoments.federation.flower.node import measure_held
from fedmoments.federation.own_memory import remembered_data
from fedmoments.federation.store import FederationStore
from fedmoments.settings.client import ClientSettings

COMMAND = [sys.executable, "-m", "fedmoments"]
NAMES = ("ann", "bob", "cem", "dora")
LEDGER = "fed.ledger"


class Month:
    """One federation in the working directory: its server, its parties, and what is expected of it."""

    def __init__(self, data: dict[str, str], classes: Sequence[str], later: str, encoder: Sequence[str]) -> None:
        self.data, self.later, self.days = data, later, 0
        self.port = choose_port("127.0.0.1")
        run("keys", "server", "keys", "--host", "localhost")
        Path("classes.txt").write_text("\n".join(classes))
        run(
            "server",
            "create",
            LEDGER,
            "--name",
            "month",
            "--classes",
            "classes.txt",
            "--heads",
            "fed3r,fedcof",
            *encoder,
        )
        shutil.copy(f"{LEDGER}.terms.json", "first.terms.json")
        for name in NAMES:
            run("keys", "client", "keys", "--name", name)
            run("server", "enrol", LEDGER, f"keys/{name}.card")

    def begin(self, name: str, *options: str, terms: str = "first.terms.json") -> None:
        """Let a party write its settings."""
        own = ("--keys", "keys", "--data", self.data[name], "--min-count", "1", "--terms", terms)
        run("client", name, *own, "--plan", *options)

    def round(self, *parties: str, kill: str = "", again: bool = False, **more: Sequence[str]) -> dict[str, int]:
        """Run the server and some clients to the end; kill and restart one of them on the way."""
        serve = ["server", "run", LEDGER, "--keys", "keys", "--port", str(self.port), "--nodes", str(len(parties)),
                 "--wait", "300", "--quorum", "1", "--no-evaluate", *(["--again"] if again else [])]  # fmt: skip
        server = self._start("server", serve)
        clients = {name: self._client(name, *more.get(name, ())) for name in parties}
        if kill == "server":
            wait_for("server.log", "connected", "waiting", "node")
            os.kill(server.pid, signal.SIGKILL)
            server.wait()
            server = self._start("server", serve)
        elif kill:
            wait_for(f"{kill}.log", "connecting to")
            os.kill(clients[kill].pid, signal.SIGKILL)
            clients[kill].wait()
            clients[kill] = self._client(kill, *more.get(kill, ()))
        codes = {name: client.wait(timeout=600) for name, client in clients.items()}
        codes["server"] = server.wait(timeout=600)
        return codes

    def _client(self, name: str, *options: str) -> subprocess.Popen[bytes]:
        join = ("--server", f"localhost:{self.port}", "--ca", "keys/ca.crt", "--timeout", "400")
        config = () if options else ("--config", f"{name}/client.toml")
        return self._start(name, ["client", name, *config, *options, *join])

    @staticmethod
    def _start(name: str, arguments: Sequence[str]) -> subprocess.Popen[bytes]:
        with Path(f"{name}.log").open("wb") as log:
            return subprocess.Popen([*COMMAND, *arguments], stdout=log, stderr=log)

    def require(self, what: str, *present: str) -> None:
        """Compare the ledger with measuring, plainly and now, what the present parties have; print the day."""
        self.days += 1
        with FederationStore.open(LEDGER) as store:
            found, terms = store.statistics(), store.terms
            here = [each.client for each in store.status().contributors]
            whole = store.verify().whole
        parts = []
        for name in sorted(present):
            settings = ClientSettings.load(f"{name}/client.toml")
            held = Holdings(settings, terms if settings.accepted or not settings.federation else terms.stages[0])
            parts.append(measure_held(held.train(name), terms))
        plain = Statistics.merge(parts)
        same = found == plain and all(found.raw(m).tobytes() == plain.raw(m).tobytes() for m in plain.spec.sent)
        digest = found.digest()[:12]
        line = {"day": self.days, "what": what, "in": here, "samples": found.n_samples, "digest": digest, "same": same}
        print(json.dumps(line), flush=True)
        if not same or not whole or here != sorted(present):
            raise SystemExit(f"day {self.days}, {what}: the ledger is not what a plain recomputation gives")


def run(*arguments: str, code: int = 0) -> str:
    """Run a command to its end."""
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=600, check=False)
    if done.returncode != code:
        raise SystemExit(f"fedmoments {' '.join(arguments)} ended with {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout + done.stderr


def wait_for(log: str, *words: str) -> None:
    """Wait until one of some words is in a log."""
    end = time.monotonic() + 300
    while not any(word in Path(log).read_text(errors="replace") for word in words):
        if time.monotonic() > end:
            raise SystemExit(f"{log} never said {words}")
        time.sleep(0.1)


def live(month: Month, alias: tuple[str, str]) -> None:
    """Let a month pass."""
    for name in ("ann", "bob", "cem"):
        month.begin(name, "--ignore-unknown")
    good(month.round("ann", "bob"))
    month.require("two parties join", "ann", "bob")
    good(month.round("cem", kill="cem"))
    month.require("a third joins; its machine is switched off and on", "ann", "bob", "cem")
    Path("gone.txt").write_text("\n".join(some_names("bob", 6)))
    run("client", "bob", "--forget", "gone.txt")
    good(month.round("bob", kill="server"))
    month.require("six samples are deleted; the server is switched off and on", "ann", "bob", "cem")
    run("ledger", "snapshot", LEDGER, "copy.db")
    run("server", "amend", LEDGER, "--classes", f"{month.later},")
    shutil.copy(f"{LEDGER}.terms.json", "second.terms.json")
    month.begin("dora", "--alias", f"{alias[0]}={alias[1]}", "--ignore-unknown", terms="second.terms.json")
    good(month.round("dora"))
    month.require("a new class, and a party with an alias", "ann", "bob", "cem", "dora")
    run("client", "ann", "--accept-terms", "second.terms.json")
    run("client", "ann", "--add", month.data["more"])
    good(month.round("ann"))
    month.require("a party accepts the class, and adds data", "ann", "bob", "cem", "dora")
    good(month.round("cem", cem=("--withdraw",)))
    month.require("a party withdraws", "ann", "bob", "dora")
    join = ("--server", f"localhost:{month.port}", "--ca", "keys/ca.crt")
    if "rejoin" not in run("client", "cem", "--config", "cem/client.toml", *join, code=1):
        raise SystemExit("a party that left was not told to rejoin")
    run("rejoin", "cem")
    good(month.round("cem"))
    month.require("it comes back", "ann", "bob", "cem", "dora")
    for path in Path().glob(f"{LEDGER}*"):
        if path.suffix not in (".journal", ".key") and path.is_file():
            path.rename(f"old-{path.name}")
    run("ledger", "restore", "copy.db", LEDGER, "--departed", "cem=out")
    run("server", "amend", LEDGER, "--classes", f"{month.later},")
    good(month.round("ann", "cem", "dora", again=True))
    month.require("an old copy is restored, and parties send again", "ann", "bob", "cem", "dora")
    print(run("refit", LEDGER, "--heads", "fed3r,fedcof", "--out", "heads"), flush=True)


def good(codes: dict[str, int]) -> None:
    """Require that all processes ended well."""
    if any(codes.values()):
        logs = {name: Path(f"{name}.log").read_text(errors="replace")[-1500:] for name, code in codes.items() if code}
        raise SystemExit(f"{codes}: {logs}")


def some_names(name: str, n: int) -> list[str]:
    """Return names of samples that a party trains on."""
    settings = ClientSettings.load(f"{name}/client.toml")
    part = remembered_data(settings, keep=False).train
    return [part.source(place) for place in range(n)]


def drawn(folder: Path) -> tuple[dict[str, str], list[str], str, list[str], tuple[str, str]]:
    """Draw features of four parties: classes a, b, c; the fourth has x, and calls a 'eh'."""
    rng = np.random.default_rng(0)
    data = {}
    holdings = {"ann": "abc", "bob": "abc", "cem": "ab", "dora": ["eh", "b", "x"], "more": "ax"}
    for name, own in holdings.items():
        y = np.arange(60) % len(own)
        place = np.array([{"a": 0, "eh": 0, "b": 1, "c": 2, "x": 3}[label] for label in own])[y]
        X = (rng.normal(size=(60, 8)) + 4.0 * np.eye(8)[place]).astype(np.float32)
        data[name] = str(folder / f"{name}.npz")
        np.savez(data[name], x_train=X[:50], y_train=y[:50], x_test=X[50:], y_test=y[50:], classes=np.array(list(own)))
    return data, ["a", "b", "c"], "x", ["--encoder", "identity", "--dim", "8"], ("eh", "a")


def main() -> None:
    """Run the script."""
    with tempfile.TemporaryDirectory() as place:
        data, classes, later, encoder, alias = drawn(Path(place))
        os.chdir(place)
        started = time.monotonic()
        month = Month(data, classes, later, encoder)
        live(month, alias)
        print(json.dumps({"days": month.days, "seconds": round(time.monotonic() - started, 1)}), flush=True)
        os.chdir("/")


if __name__ == "__main__":
    main()
