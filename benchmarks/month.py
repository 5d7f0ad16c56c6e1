"""A month of a federation, over TLS and in real processes: every state is compared with a plain recomputation.

    python benchmarks/month.py                          # four parties with features that are drawn
    python benchmarks/month.py --photos office-caltech10   # four folders DOMAIN/CLASS of images, a party each

Parties join by card and by kit, delete and correct data, get a class, call one otherwise, add, withdraw, come back;
machines are switched off (kill -9), and an old copy is restored. After every round the ledger and the heads that the
server fitted are compared, bit for bit, with samples that this script keeps a list of by itself. Prints a line a day,
and ends with 1 at the first bit that differs. ``--page PORT`` serves the live page meanwhile.
"""

import argparse
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fedmoments.core.api import fit
from fedmoments.core.statistics import Statistics
from fedmoments.federation.deploy.network import choose_port
from fedmoments.federation.flower.held import Held
from fedmoments.federation.flower.measured import measure_held
from fedmoments.federation.store import FederationStore
from fedmoments.federation.terms import Terms
from fedmoments.samples.encoders import load_encoder
from fedmoments.samples.encoders.batches import encode_in_batches
from fedmoments.samples.encoders.encoder import Encoder

COMMAND = [sys.executable, "-m", "fedmoments"]
LEDGER, HEADS = "fed.ledger", ("fed3r", "fedcof")
#: Seconds after which a process is taken to hang.
HANG = 900
#: Days: short enough for a month of minutes.
HALF_LIFE = 0.001


@dataclass(frozen=True)
class Sample:
    """A sample as its party has it: a row of features, or the path of an image."""

    name: str
    label: str
    item: Any


class Drawn:
    """Features of four parties: classes a, b, c; the fourth has x, and calls a 'eh'."""

    classes, later, alias = ("a", "b", "c"), "x", ("eh", "a")
    encoder = ("--encoder", "identity", "--dim", "8")

    def __init__(self, folder: Path) -> None:
        rng = np.random.default_rng(0)
        places = {"a": 0, "eh": 0, "b": 1, "c": 2, "x": 3}
        self.folder = folder
        self.samples: dict[str, list[Sample]] = {}
        for name, own in {"ann": "abcx", "bob": "abc", "cem": "ab", "dora": ["eh", "b", "x"], "more": "ax"}.items():
            labels = [own[row % len(own)] for row in range(60)]
            X = rng.normal(size=(60, 8)) + 4.0 * np.eye(8)[[places[label] for label in labels]]
            rows = zip(labels, X.astype(np.float32), strict=True)
            self.samples[name] = [Sample(f"train sample {row}", *each) for row, each in enumerate(rows)]
            self._write(name)

    def source(self, name: str) -> str:
        """Return what a party types after ``--data``."""
        return str(self.folder / f"{name}.npz")

    def correct(self, name: str, places: Sequence[int], label: str) -> None:
        """Give samples another label."""
        for place in places:
            former = self.samples[name][place]
            self.samples[name][place] = Sample(former.name, label, former.item)
        self._write(name)

    @staticmethod
    def features(items: Sequence[Any]) -> Any:
        """Return the rows."""
        return np.stack(items)

    def _write(self, name: str) -> None:
        kept = self.samples[name]
        names = sorted({sample.label for sample in kept})
        arrays: dict[str, Any] = {"x_train": np.stack([sample.item for sample in kept])}
        arrays |= {"x_test": arrays["x_train"][:5] + 1, "y_test": np.zeros(5, np.int64), "classes": np.array(names)}
        np.savez(self.source(name), y_train=np.array([names.index(sample.label) for sample in kept]), **arrays)


class Photos:
    """Copies of some images of four domains; the last class comes later, the fourth party calls the first otherwise."""

    def __init__(self, folder: Path, place: Path, most: int) -> None:
        domains = sorted((each for each in place.iterdir() if each.is_dir()), key=lambda each: each.name)
        if len(domains) != 4:
            raise SystemExit(f"{place} should hold four folders DOMAIN/CLASS/IMAGE, not {len(domains)}")
        classes = sorted(each.name for each in domains[0].iterdir())
        *rest, self.later = classes
        self.classes, self.alias = tuple(rest), (f"my {classes[0]}", classes[0])
        self.encoder = ("--encoder", "efficientnet-lite0", "--size", "96")
        self.folder = folder
        self._known: dict[bytes, Any] = {}
        self.samples: dict[str, list[Sample]] = {}
        for name, domain in zip(("ann", "bob", "cem", "dora"), domains, strict=True):
            for label in classes:
                own = self.alias[0] if name == "dora" and label == classes[0] else label
                images = sorted(each for each in (domain / label).iterdir() if each.suffix in (".jpg", ".png"))
                self._copy(name, own, images[:most])
                if name == "ann":
                    self._copy("more", label, images[most : most + 3])
        for name in ("ann", "bob", "cem", "dora", "more"):
            self._read(name)

    @cached_property
    def _encoder(self) -> Encoder:
        return load_encoder("efficientnet-lite0", size=96)

    def _copy(self, name: str, label: str, images: Sequence[Path]) -> None:
        (self.folder / name / label).mkdir(parents=True)
        for image in images:
            shutil.copy(image, self.folder / name / label / image.name)

    def _read(self, name: str) -> None:
        top = self.folder / name
        paths = sorted(top.glob("*/*"), key=lambda path: path.relative_to(top).parts)
        self.samples[name] = [Sample(str(path.relative_to(top)), path.parent.name, path) for path in paths]

    def source(self, name: str) -> str:
        """Return what a party types after ``--data``."""
        return f"folder:{self.folder / name}"

    def correct(self, name: str, places: Sequence[int], label: str) -> None:
        """Move images to another class."""
        for place in places:
            path = self.samples[name][place].item
            path.rename(self.folder / name / label / f"moved-{path.name}")
        self._read(name)

    def features(self, items: Sequence[Any]) -> Any:
        """Return what the encoder makes of images; an image that it has seen is not asked again."""
        contents = {item: item.read_bytes() for item in items}
        new = {content: item for item, content in contents.items() if content not in self._known}
        encoder = self._encoder
        if new:
            prepared = [encoder.prepare(item) for item in new.values()]
            X = encode_in_batches(prepared, encoder.batch_size, encoder.dim, encoder.encode)
            self._known |= dict(zip(new, X, strict=True))
        return np.stack([self._known[contents[item]] for item in items])


class Month:
    """One federation in the working directory: its server, its parties, and what each of them should hold."""

    def __init__(self, world: Drawn | Photos, page: int | None) -> None:
        self.world, self.days, self.page = world, 0, page
        self.port = choose_port("127.0.0.1")
        self.data = {name: [name] for name in world.samples if name != "more"}
        self.forgotten: dict[str, set[str]] = {name: set() for name in self.data}
        self.accepted = dict.fromkeys(self.data, len(world.classes))
        self.now: dict[str, Statistics] = {}
        self.join = ("--server", f"localhost:{self.port}", "--ca", "keys/ca.crt")
        run("keys", "server", "keys", "--host", "localhost")
        Path("classes.txt").write_text("\n".join(world.classes))
        more = ("--classes", "classes.txt", "--heads", ",".join(HEADS), *world.encoder)
        run("server", "create", LEDGER, "--name", "month", *more)
        shutil.copy(f"{LEDGER}.terms.json", "first.terms.json")

    def enrol(self, name: str, *options: str, terms: str = "first.terms.json") -> None:
        """Enrol a party by the card of its keys, and let it write its settings."""
        run("keys", "client", "keys", "--name", name)
        run("server", "enrol", LEDGER, f"keys/{name}.card")
        run("client", name, "--keys", "keys", "--terms", terms, "--plan", *self.own(name), *options)

    def invite(self, name: str) -> None:
        """Make a kit, with which a party enrols when it starts."""
        run("server", "invite", LEDGER, name, "--server", f"localhost:{self.port}")

    def own(self, name: str) -> tuple[str, ...]:
        """Return what a party types of its data and rules."""
        return ("--data", self.world.source(name), "--test-share", "0", "--min-count", "1")

    def round(self, *parties: str, kill: str = "", again: bool = False, **typed: Sequence[str]) -> None:
        """Run the server and some clients to the end; kill and restart one of them on the way."""
        serve = ["server", "run", LEDGER, "--keys", "keys", "--port", str(self.port), "--nodes", str(len(parties)),
                 "--wait", "600", "--quorum", "1", "--heads", ",".join(HEADS), "--no-evaluate",
                 *(["--again"] if again else []), *(["--page", str(self.page)] if self.page else [])]  # fmt: skip
        server = start("server", serve)
        clients = {name: self._client(name, typed.get(name, ())) for name in parties}
        if kill == "server":
            wait_for("server.log", "nodes are here (")
            server = switch_off_and_on(server, "server", lambda: start("server", serve))
        elif kill:
            wait_for(f"{kill}.log", "connecting to")
            clients[kill] = switch_off_and_on(clients[kill], kill, lambda: self._client(kill, typed.get(kill, ())))
        codes = {name: process.wait(timeout=HANG) for name, process in (*clients.items(), ("server", server))}
        if any(codes.values()):
            logs = {name: Path(f"{name}.log").read_text(errors="replace")[-1500:] for name in codes if codes[name]}
            raise SystemExit(f"{codes}: {logs}")

    def _client(self, name: str, typed: Sequence[str]) -> subprocess.Popen[bytes]:
        return start(name, ["client", *(typed or (name, "--config", f"{name}/client.toml", *self.join))])

    def require(self, what: str, *present: str) -> None:
        """Compare ledger and heads with measuring, plainly and now, what the parties hold by this script's own list."""
        self.days += 1
        with FederationStore.open(LEDGER) as store:
            found, terms = store.statistics(), store.terms
            here = [each.client for each in store.status().contributors]
            whole = store.verify().whole
        self.now = {name: self._plain(name, terms) for name in sorted(present)}
        plain = Statistics.merge(list(self.now.values()))
        same = found == plain and all(found.raw(m).tobytes() == plain.raw(m).tobytes() for m in plain.spec.sent)
        wanted = {head: fit(head, plain, class_names=terms.classes).digest() for head in HEADS}
        heads = dict(re.findall(r"(\w+): classifier (\w+)", Path("server.log").read_text(errors="replace"))) == wanted
        line = {"day": self.days, "what": what, "in": here, "samples": found.n_samples, "digest": found.digest()[:12]}
        print(json.dumps({**line, "same": same, "heads": heads}), flush=True)
        if not (same and heads and whole and here == sorted(present)):
            raise SystemExit(f"day {self.days}, {what}: not what a plain recomputation gives; verified: {whole}")

    def _plain(self, name: str, terms: Terms) -> Statistics:
        """Measure what remains of a party's samples, by their names in the federation, in order."""
        agreed = dict([self.world.alias]) if name == "dora" else {}
        known = list(terms.classes[: self.accepted[name]])
        samples = [each for source in self.data[name] for each in self.world.samples[source]]
        kept = [
            (each.item, known.index(label))
            for each in samples
            if (label := agreed.get(each.label, each.label)) in known and each.name not in self.forgotten[name]
        ]
        X = self.world.features([item for item, _ in kept])
        return measure_held(Held(X, np.array([label for _, label in kept])), terms)

    def require_ageing(self) -> None:
        """Compare a head with half-life with the plain sum of as many copies of each party as it weighs."""
        said = json.loads(
            run("refit", LEDGER, "--heads", "fed3r", "--half-life", str(HALF_LIFE), "--out", "aged", "--json")
        )
        with FederationStore.open(LEDGER) as store:
            terms = store.terms
            times = {each.client: datetime.fromisoformat(each.time).timestamp() for each in store.status().contributors}
        ages = {name: (max(times.values()) - time) / 86_400 for name, time in times.items()}
        weights = {name: round(16 * 2 ** (-age / HALF_LIFE)) for name, age in ages.items()}
        copies = {name: weight // math.gcd(*weights.values()) for name, weight in weights.items()}
        parts = [self.now[name].restricted(terms.spec.additive) for name in copies for _ in range(copies[name])]
        wanted = fit("fed3r", Statistics.merge(parts), class_names=terms.classes).digest()
        same = wanted in json.dumps(said)
        print(json.dumps({"half-life": HALF_LIFE, "copies": copies, "same": same}), flush=True)
        if not same:
            raise SystemExit(f"the head with half-life is not the one of the plain sum: {wanted} is not in {said}")


def run(*arguments: str, code: int = 0) -> str:
    """Run a command to its end, and return what it says: results where it is JSON, else all."""
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=HANG, check=False)
    if done.returncode != code:
        raise SystemExit(f"fedmoments {' '.join(arguments)} ended with {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout if "--json" in arguments else done.stdout + done.stderr


def start(name: str, arguments: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start a command whose words go to ``NAME.log``."""
    with Path(f"{name}.log").open("wb") as log:
        return subprocess.Popen([*COMMAND, *arguments], stdout=log, stderr=log)


def switch_off_and_on(
    process: subprocess.Popen[bytes], name: str, again: Callable[[], subprocess.Popen[bytes]]
) -> subprocess.Popen[bytes]:
    """Kill a process with the signal that nothing survives, and start it again."""
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    shutil.copy(f"{name}.log", f"{name}.killed.log")
    return again()


def wait_for(log: str, words: str) -> None:
    """Wait until some words are in a log."""
    end = time.monotonic() + HANG
    while words not in Path(log).read_text(errors="replace"):
        if time.monotonic() > end:
            raise SystemExit(f"{log} never said {words!r}")
        time.sleep(0.1)


def first_weeks(month: Month) -> None:
    """Three parties join; data are deleted and corrected; machines go off and on."""
    world = month.world
    for name in ("ann", "cem"):
        month.enrol(name, "--ignore-unknown")
    month.invite("bob")
    with_kit = ("bob.kit", *month.own("bob"), "--ignore-unknown", "--yes")
    month.round("ann", "bob", bob=with_kit)
    month.require("one party joins by card, one by kit", "ann", "bob")
    month.round("cem", kill="cem")
    month.require("a third joins; its machine is switched off and on", "ann", "bob", "cem")
    month.forgotten["bob"] = {sample.name for sample in world.samples["bob"][:6]}
    Path("gone.txt").write_text("\n".join(sorted(month.forgotten["bob"])))
    run("client", "bob", "--forget", "gone.txt")
    month.round("bob", kill="server")
    month.require("six samples are deleted; the server is switched off and on", "ann", "bob", "cem")
    world.correct("ann", (0, 1, 2), world.classes[1])
    month.round("ann", "cem")
    month.require("three labels are corrected; one party has nothing new", "ann", "bob", "cem")
    run("ledger", "snapshot", LEDGER, "copy.db")


def amend(month: Month) -> None:
    """Add the class that comes later."""
    run("server", "amend", LEDGER, "--classes", f"{month.world.later},")
    shutil.copy(f"{LEDGER}.terms.json", "second.terms.json")


def last_weeks(month: Month) -> None:
    """A class comes; a party leaves and returns; an old copy takes the ledger's place."""
    everybody = ("ann", "bob", "cem", "dora")
    amend(month)
    alias = "=".join(month.world.alias)
    month.enrol("dora", "--alias", alias, "--ignore-unknown", terms="second.terms.json")
    month.accepted["dora"] += 1
    month.round("dora")
    month.require("a new class, and a party with an alias", *everybody)
    run("client", "ann", "--accept-terms", "second.terms.json")
    run("client", "ann", "--add", month.world.source("more"))
    month.accepted["ann"] += 1
    month.data["ann"].append("more")
    month.round("ann")
    month.require("a party accepts the class, and adds data", *everybody)
    month.round("cem", cem=("cem", "--withdraw", *month.join))
    month.require("a party withdraws", "ann", "bob", "dora")
    if "rejoin" not in run("client", "cem", "--config", "cem/client.toml", *month.join, code=1):
        raise SystemExit("a party that left was not told to rejoin")
    run("rejoin", "cem")
    month.round("cem")
    month.require("it comes back", *everybody)
    for path in Path().glob(f"{LEDGER}*"):
        if path.suffix not in (".journal", ".key") and path.is_file():
            path.rename(f"old-{path.name}")
    run("ledger", "restore", "copy.db", LEDGER, "--departed", "cem=out")
    amend(month)
    run("server", "enrol", LEDGER, "keys/dora.card")
    month.round("ann", "cem", "dora", again=True)
    month.require("an old copy is restored, and parties send again", *everybody)


def main() -> None:
    """Run the script."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=Path, help="folder DOMAIN/CLASS/IMAGE of four domains")
    parser.add_argument("--most", type=int, default=20, help="images of a class that each domain gives")
    parser.add_argument("--page", type=int, help="port of the live page")
    typed = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        data = Path(place, "data")
        data.mkdir()
        world = Photos(data, typed.photos.resolve(), typed.most) if typed.photos else Drawn(data)
        os.chdir(place)
        os.environ["XDG_CACHE_HOME"] = str(Path(place, "cache"))
        started = time.monotonic()
        month = Month(world, typed.page)
        first_weeks(month)
        last_weeks(month)
        month.require_ageing()
        print(run("ledger", "drift", LEDGER, "--since", "0.002d"), flush=True)
        print(json.dumps({"days": month.days, "seconds": round(time.monotonic() - started, 1)}), flush=True)
        os.chdir("/")


if __name__ == "__main__":
    main()
