"""The commands of a client: its settings, what it would send, when it stops, and coming back after having left.

The node that the command watches is a process that sleeps; what a server's messages make it do is done here by the
same code, on the same files.
"""

import json
import re
import shutil
import socket
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Timer
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")
pytest.importorskip("cryptography")


from tests.waiting import HANG

from fedmoments.cli import client_watch
from fedmoments.cli.client_watch import ClientWatch
from fedmoments.errors import RefusedError
from fedmoments.federation.deploy.processes import Process
from fedmoments.federation.flower.helper import FINISHED
from fedmoments.federation.flower.node import Node
from fedmoments.federation.outbox import Outbox
from fedmoments.federation.store import FederationStore
from fedmoments.settings.client import ClientSettings
from fedmoments.wire import unpack_bundle

TERMS = ("--terms", "a.ledger.terms.json")


@pytest.fixture
def own(run: Any, features: str) -> tuple[str, ...]:
    """A federation with one enrolled client, and how that client is typed."""
    run("server", "create", "a.ledger", "--name", "pets", "--data", features, "--heads", "fedcof")
    run("keys", "client", "keys", "--name", "clinic")
    run("server", "enrol", "a.ledger", "keys/clinic.card")
    return "client", "clinic", "--keys", "keys", "--data", features


@pytest.fixture
def refuse(run: Any, workshop: Path) -> Any:
    """Run a command that must be refused without leaving anything, and return its sentence."""

    def check(*arguments: str, code: int = 2) -> str:
        before = sorted(workshop.rglob("*"))
        result = run(*arguments, code=code)
        assert result.stderr.startswith("error: ")
        assert result.stderr.count("\n") == 1
        if code == 2:
            assert sorted(workshop.rglob("*")) == before
        return str(result.stderr)

    return check


# -------------------------------------------------------------------------------------------------- --plan


def test_plan_shows_the_very_bytes_and_sends_nothing(own: Any, run: Any, arrays: Any) -> None:
    found = json.loads(run(*own, "--plan", *TERMS, "--min-count", "60", "--json").stdout)
    (sent,) = found["contributions"]
    counts = np.bincount(arrays["y_train"], minlength=10)
    assert sent["classes"] == {f"class {label}": int(n) for label, n in enumerate(counts) if n >= 60}
    assert sent["withheld"] == {
        "classes": int((counts < 60).sum()),
        "samples": int(counts[counts < 60].sum()),
        "class_names": [f"class {label}" for label in np.flatnonzero(counts < 60)],
        "unreadable": {"samples": 0, "names": []},
    }
    assert sorted(path.name for path in Path("clinic").iterdir()) == ["client.toml", "terms.json"]
    settings = ClientSettings.load("clinic/client.toml")
    node = Node(settings)
    with FederationStore.open("a.ledger") as store:
        offer = node.contribute(store.terms, most_bytes=2**30)
    assert sent["bytes"] == len(unpack_bundle(offer.bundle, max_bytes=2**30, max_items=1)[0])


def test_plan_for_people(own: Any, run: Any) -> None:
    text = run(*own, "--plan", *TERMS).stdout
    assert re.search(r"clinic would send [\d.]+ kB: counts \+ client_means of 600 samples of 10 classes", text)
    assert "nothing was sent" in text


def test_plan_says_what_the_own_rules_forbid(own: Any, refuse: Any) -> None:
    sentence = refuse(*own, "--plan", *TERMS, "--allow", "gram", code=1)
    assert "client clinic would send nothing" in sentence
    assert "the server asks for client_means" in sentence
    assert "max_bytes" in refuse(*own, "--plan", *TERMS, "--max-bytes", "10", code=1)


def test_settings_are_written_with_paths_that_mean_the_same_everywhere(own: Any, run: Any, features: str) -> None:
    rules = ("--max-per-class", "9", "--max-means", "1", "--allow", "client_means,gram", "--no-evaluate")
    run(*own, "--plan", *TERMS, *rules, "--folder", "state", "--part", "2/3", "--threads", "1")
    written = tomllib.loads(Path("state/client.toml").read_text())
    assert written["data"] == str(Path(features).resolve())
    assert written["keys"] == str(Path("keys").resolve())
    assert written["folder"] == str(Path("state").resolve())
    assert (written["split"], written["clients"], written["partitions"]) == ("iid", 3, [1])
    assert (written["evaluate"], written["threads"]) == (False, 1)
    assert written["policy"] == {"max_per_class": 9, "max_means": 1, "moments": ["client_means", "gram"]}


def test_parts_are_disjoint_and_whole(own: Any, run: Any) -> None:
    found = [
        json.loads(run(*own, "--plan", *TERMS, "--part", f"{number}/3", "--json").stdout)["contributions"][0]
        for number in (1, 2, 3)
    ]
    assert sum(each["samples"] for each in found) == 600
    assert [each["samples"] for each in found] == [200, 200, 200]


def test_client_refuses_what_cannot_be(own: Any, refuse: Any, features: str) -> None:
    client, name, *rest = own
    assert "--server HOST:PORT" in refuse(*own)
    assert "--insecure for a trial" in refuse(*own, "--server", "localhost:1")
    assert "--insecure for a trial" in refuse(*own, "--server", "localhost:1", "--insecure", "--ca", "keys/ca.crt")
    assert "ca.crt does not exist" in refuse(*own, "--server", "localhost:1", "--ca", "keys/ca.crt")
    assert "give --terms FILE with it" in refuse(*own, "--plan")
    assert "no private key" in refuse(client, "bank", *rest, "--plan", *TERMS)
    assert "--keys FOLDER and --data DATA" in refuse(client, name, "--plan", *TERMS)
    assert "does not exist" in refuse(client, name, "--keys", "keys", "--data", "nowhere", "--plan", *TERMS)
    assert "from 1/N to N/N" in refuse(*own, "--plan", *TERMS, "--part", "0/2")
    assert "withholds everything" in refuse(*own, "--plan", *TERMS, "--min-count", "9", "--max-per-class", "2")
    assert "unknown moment" in refuse(*own, "--plan", *TERMS, "--allow", "grams")


def test_a_key_that_others_can_read_is_refused(own: Any, refuse: Any) -> None:
    Path("keys/clinic.identity").chmod(0o644)
    assert "chmod 600" in refuse(*own, "--plan", *TERMS)


def test_config_stands_for_the_options(own: Any, run: Any, refuse: Any) -> None:
    run(*own, "--plan", *TERMS, "--min-count", "60")
    shutil.move("clinic/client.toml", "mine.toml")
    config = ("client", "clinic", "--config", "mine.toml")
    found = json.loads(run(*config, "--plan", *TERMS, "--json").stdout)
    assert found["contributions"][0]["withheld"]["classes"] > 0
    assert found["settings"] == str(Path("mine.toml").resolve())
    typed = json.loads(run(*config, "--min-count", "5", "--plan", *TERMS, "--json").stdout)
    assert typed["contributions"][0]["withheld"]["classes"] == 0
    assert typed["settings"] == str(Path("clinic/client.toml").resolve())
    assert "min_count = 60" in Path("mine.toml").read_text()
    assert "is of client 'clinic', not of 'lab'" in refuse("client", "lab", *config[2:], "--plan", *TERMS)
    bound = Path("mine.toml").read_text()
    Path("mine.toml").write_text(bound.replace('federation = "', 'federation = "ab'))
    assert "not bound to these terms" in refuse(*config, "--plan", *TERMS)
    Path("mine.toml").write_text("mni_count = 5\n")
    assert "unknown key of mine.toml 'mni_count'" in refuse(*config, "--plan", *TERMS)


# -------------------------------------------------------------------------------------------------- taking part


class Sleeper(Process):
    """A process that stands where a SuperNode would."""

    node_id = 7

    def __init__(self, folder: Path, superlink: str) -> None:
        self.superlink = superlink
        super().__init__(
            "the node", ["/bin/sleep", "3600"], environment={}, log=folder / "log", folder=folder, grace=1.0
        )


@dataclass
class Stage:
    """A client's folder, its federation, and what a server would make its node do."""

    folder: Path
    settings: ClientSettings
    store: FederationStore
    port: int
    later: float = 0.0

    def watch(self) -> ClientWatch:
        return ClientWatch(self.folder, Sleeper(self.folder, f"127.0.0.1:{self.port}"))

    def contribute(self, *, answer: bool = True) -> None:
        node = Node(self.settings)
        offer = node.contribute(self.store.terms, most_bytes=2**30)
        with FederationStore.open(self.store.path) as store:  # an object belongs to one thread
            found = store.submit_many(unpack_bundle(offer.bundle, max_bytes=2**30, max_items=9)) if answer else []
            shown = store.show([each.seq for each in found if not isinstance(each, RefusedError)], offer.seen)
        for each in found:
            if isinstance(each, RefusedError):
                facts = {"federation": store.terms.id, "client": "clinic", "version": 1}
                node.acknowledge([], [{**facts, "reason": each.reason, "sentence": each.sentence}])
            else:
                node.acknowledge([each.to_json()], [], shown)

    def close(self) -> None:
        (self.folder / FINISHED).touch()

    def contribute_and_wait(self, *, answer: bool = True, closed: bool = False) -> None:
        """Contribute, and let the time pass after which a client no longer waits."""
        self.contribute(answer=answer)
        if closed:
            self.close()
            time.sleep(20 * client_watch.LOOK)
        self.later += 2 * HANG

    def contribute_and_close(self, *, answer: bool = True) -> None:
        self.contribute(answer=answer)
        self.close()


@pytest.fixture
def stage(own: Any, run: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    monkeypatch.setattr(client_watch, "LOOK", 0.02)
    monkeypatch.setattr(client_watch, "SETTLE", 0.2)
    monkeypatch.setattr(client_watch, "LINGER", 0.6)
    run(*own, "--plan", *TERMS)
    folder = Path("clinic").resolve()
    with socket.create_server(("127.0.0.1", 0)) as server, FederationStore.open("a.ledger") as store:
        stage = Stage(folder, ClientSettings.load(folder / "client.toml"), store, server.getsockname()[1])
        clock = time.monotonic
        monkeypatch.setattr("fedmoments.cli.client_watch.time.monotonic", lambda: clock() + stage.later)
        yield stage


def later(seconds: float, action: Any, **how: Any) -> Timer:
    timer = Timer(seconds, action, kwargs=how)
    timer.start()
    return timer


def test_a_client_stays_until_the_run_is_closed_and_shows_its_receipt(stage: Stage, capsys: Any) -> None:
    stage.close()  # of an earlier run
    timer = later(0.3, stage.contribute_and_close)
    watch = stage.watch()
    outcome = watch.run(stay=False, timeout=HANG)
    timer.join()
    assert (outcome.good, outcome.sentence) == (True, "")
    assert [each["event"] for each in outcome.events] == ["audited", "prepared", "sent", "acknowledged"]
    (contribution,) = outcome.document()["contributions"]
    assert contribution["receipt"]["seq"] == stage.store.status().entries
    assert not watch.node.alive
    outcome.show()
    printed = capsys.readouterr()
    assert f"entry {contribution['receipt']['seq']}" in printed.out
    assert "clinic: version 1 reveals to the server: class counts; withheld: 0 samples" in printed.err
    assert "clinic: the server acknowledged version 1" in printed.err


def test_a_client_that_was_acknowledged_before_may_go_when_the_server_is_gone(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.contribute()
    with socket.create_server(("127.0.0.1", 0)) as server:
        stage.port = server.getsockname()[1]  # nobody listens there any more
    monkeypatch.setattr(client_watch, "RETURN", 0.6)
    outcome = stage.watch().run(stay=False, timeout=HANG)
    assert outcome.good
    assert outcome.events == []
    assert outcome.contributions[0]["receipt"]["event"] == "joined"


def test_a_client_that_was_not_asked_yet_stays_while_the_server_is_switched_off_and_on(stage: Stage) -> None:
    stage.contribute()
    with socket.create_server(("127.0.0.1", 0)) as server:
        stage.port = server.getsockname()[1]
    timer = later(5 * client_watch.LINGER, stage.close)
    assert stage.watch().run(stay=False, timeout=HANG).good
    timer.join(0)
    assert (stage.folder / FINISHED).exists()  # it stayed until the run was closed


def test_without_a_receipt_a_client_waits_and_then_says_so(stage: Stage) -> None:
    timer = later(0.1, stage.contribute_and_wait, answer=False)
    outcome = stage.watch().run(stay=False, timeout=HANG)
    timer.join()
    assert not outcome.good
    assert "no receipt for clinic" in outcome.sentence
    assert outcome.contributions[0]["receipt"] is None


def test_a_run_that_is_closed_without_a_receipt_is_no_success(stage: Stage) -> None:
    timer = later(0.1, stage.contribute_and_close, answer=False)
    outcome = stage.watch().run(stay=False, timeout=HANG)
    timer.join()
    assert not outcome.good
    assert "the server closed the run, and no receipt for clinic" in outcome.sentence


def test_a_refused_client_says_why(stage: Stage, run: Any) -> None:
    run("server", "revoke", "a.ledger", "clinic")
    timer = later(0.1, stage.contribute)
    outcome = stage.watch().run(stay=False, timeout=HANG)
    timer.join()
    assert not outcome.good
    assert re.search(r"client clinic was refused: [\w-]+: client 'clinic' was revoked", outcome.sentence)


def test_a_declining_client_says_why(stage: Stage) -> None:
    from dataclasses import replace

    stage.settings = replace(stage.settings, policy={"moments": ["gram"]})
    timer = later(0.1, stage.contribute)
    outcome = stage.watch().run(stay=False, timeout=HANG)
    timer.join()
    assert not outcome.good
    assert "client clinic declined: the federation 'pets' asks for" in outcome.sentence
    assert outcome.contributions == []


def test_an_app_that_fails_is_named(stage: Stage) -> None:
    watch = stage.watch()
    sentence = "fedmoments.errors.MergeError: the moments of this client must not be merged"

    def write() -> None:
        with (stage.folder / "log").open("a") as log:
            log.write(f"ERROR: {sentence}\n")

    timer = later(0.2, write)
    outcome = watch.run(stay=False, timeout=HANG)
    timer.join()
    assert not outcome.good
    assert f"this client's app failed: {sentence}" in outcome.sentence


def test_a_node_that_dies_ends_the_wait(stage: Stage) -> None:
    watch = stage.watch()
    timer = later(0.3, watch.node.kill)
    outcome = watch.run(stay=False, timeout=HANG)
    timer.join()
    assert not outcome.good
    assert "ended unexpectedly" in outcome.sentence


def test_who_stays_is_not_sent_away_by_a_closed_run(stage: Stage) -> None:
    timer = later(0.1, stage.contribute_and_wait, closed=True)
    outcome = stage.watch().run(stay=True, timeout=HANG)
    timer.join()
    assert outcome.good
    assert outcome.events[-1]["event"] == "acknowledged"


# -------------------------------------------------------------------------------------------------- rejoin


def test_rejoin_gives_a_fresh_version_after_leaving(stage: Stage, run: Any) -> None:
    stage.contribute()
    run("leave", "a.ledger", "clinic")
    stage.contribute()
    assert stage.store.status().clients == 0  # it was acknowledged: nothing is sent
    found = json.loads(run("rejoin", "clinic", "--json").stdout)
    assert found == [{"federation": stage.store.terms.id, "client": "clinic", "next_version": 2}]
    stage.contribute()
    (contributor,) = stage.store.status().contributors
    assert (contributor.client, contributor.version) == ("clinic", 2)
    assert "version 3" in run("rejoin", "clinic").stdout


def test_a_client_that_withdrew_reads_that_it_has_left(stage: Stage, capsys: Any) -> None:
    stage.contribute()
    with FederationStore.open(stage.store.path) as store, Outbox(stage.folder) as outbox:
        outbox.withdraw(store.terms.id, "clinic")
        offer = Node(stage.settings).contribute(store.terms, most_bytes=2**30)
        (item,) = unpack_bundle(offer.bundle, max_bytes=2**30, max_items=1)
        left: Any = store.withdraw(bytes(item))
        assert Node(stage.settings).acknowledge([left.to_json()], [], store.show([left.seq], offer.seen)) == []
    stage.close()
    stage.watch().run(stay=False, timeout=0.1).show()
    said = capsys.readouterr().out
    assert f"clinic has left: the ledger holds nothing of its version 1 since entry {left.seq} of its log" in said
    assert "receipt" not in said


def test_rejoin_needs_a_clients_folder(run: Any, refuse: Any, workshop: Path) -> None:
    assert "nowhere does not exist: give the folder of a client" in refuse("rejoin", "nowhere")
    Path("empty").mkdir()
    assert "nothing to rejoin" in run("rejoin", "empty").stdout
    assert list(Path("empty").iterdir()) == []


def test_an_outbox_knows_its_federations(stage: Stage) -> None:
    with Outbox(stage.folder) as outbox:
        assert outbox.federations() == ()
    stage.contribute()
    with Outbox(stage.folder) as outbox:
        assert outbox.federations() == ((stage.store.terms.id, "clinic"),)


# --------------------------------------------------------------------------------------- own names of classes


def test_an_alias_is_typed_and_kept_and_unknown_classes_are_left_out_by_name(own: Any, run: Any, refuse: Any) -> None:
    run("server", "create", "b.ledger", "--name", "few", "--classes", "class 0,first,second", "--dim", "12",
        "--encoder", "identity", "--heads", "fedcof")  # fmt: skip
    terms = ("--terms", "b.ledger.terms.json")
    said = refuse(*own, "--plan", *terms)
    assert "its own record names them: class 1, class 2, class 3" in said
    assert "--ignore-unknown" in said
    alias = ("--alias", "class 1=first", "--alias", "class 2=second", "--ignore-unknown")
    found = json.loads(run(*own, "--plan", *terms, *alias, "--json").stdout)
    assert list(found["contributions"][0]["classes"]) == ["class 0", "first", "second"]
    assert sorted(found["unknown"]) == [f"class {label}" for label in range(3, 10)]
    assert tomllib.loads(Path("clinic/client.toml").read_text())["classes"] == {"class 1": "first", "class 2": "second"}
    shown = run("client", "clinic", "--config", "clinic/client.toml", "--plan", *terms).stdout
    assert "left out: class 3 (" in shown


def test_new_classes_are_amended_by_the_server_and_accepted_by_the_client(own: Any, run: Any, refuse: Any) -> None:
    run(*own, "--plan", *TERMS)
    first = tomllib.loads(Path("clinic/client.toml").read_text())
    assert "11 classes" in run("server", "amend", "a.ledger", "--classes", "ten,").stdout
    assert "cannot be added" in run("server", "amend", "a.ledger", "--classes", "ten,", code=2).stderr
    said = run("client", "clinic", "--accept-terms", "a.ledger.terms.json").stdout
    assert "accepts 1 new classes of 'pets': ten" in said
    then = tomllib.loads(Path("clinic/client.toml").read_text())
    assert then["federation"] == first["federation"] != then["accepted"]
    assert "amended" in run(*own, "--plan", *TERMS).stdout
    run("server", "create", "b.ledger", "--name", "other", "--classes", "a,b", "--dim", "12", "--encoder", "identity")
    assert "does not follow" in refuse("client", "clinic", "--accept-terms", "b.ledger.terms.json")
    assert "is not there" in refuse("client", "lab", "--accept-terms", "a.ledger.terms.json")


def test_data_are_added_and_forgotten_by_a_client_that_has_begun(own: Any, run: Any, refuse: Any, arrays: Any) -> None:
    run(*own, "--plan", *TERMS)
    np.savez("more.npz", **{name: arrays[name][:50] for name in ("x_train", "y_train")}, classes=arrays["classes"])
    assert "also measures more.npz" in run("client", "clinic", "--add", "more.npz").stdout
    assert tomllib.loads(Path("clinic/client.toml").read_text())["also"] == [str(Path("more.npz").absolute())]

    def planned() -> int:
        found = run("client", "clinic", "--plan", *TERMS, "--config", "clinic/client.toml", "--json").stdout
        return int(json.loads(found)["contributions"][0]["samples"])

    before = planned()
    assert 600 < before < 650  # of those added, some are held out
    Path("gone.txt").write_text("train sample 599\n\n")
    assert "forgets 1 sample:" in run("client", "clinic", "--forget", "gone.txt").stdout
    assert planned() == before - 1
    Path("gone.txt").write_text("dog/7.png\n")
    assert "not among" in run("client", "clinic", "--forget", "gone.txt", code=2).stderr
    assert "is not there" in refuse("client", "lab", "--add", "more.npz")


def test_a_client_that_left_is_told_to_rejoin_before_it_connects(own: Any, run: Any) -> None:
    run(*own, "--plan", *TERMS)
    assert "nothing to withdraw" in run("client", "clinic", "--withdraw", code=2).stderr
    node = Node(ClientSettings.load("clinic/client.toml"))
    with FederationStore.open("a.ledger") as store:
        offer = node.contribute(store.terms, most_bytes=2**30)
        (item,) = unpack_bundle(offer.bundle, max_bytes=2**30, max_items=1)
        receipt = store.submit(bytes(item))
        assert node.acknowledge([receipt.to_json()], [], store.show([receipt.seq])) == []
        assert "withdraws version 1" in run("client", "clinic", "--withdraw").stdout
        offer = node.contribute(store.terms, most_bytes=2**30)
        (item,) = unpack_bundle(offer.bundle, max_bytes=2**30, max_items=1)
        left: Any = store.withdraw(bytes(item))
        assert node.acknowledge([left.to_json()], [], store.show([left.seq], offer.seen)) == []
        assert store.status().clients == 0
    start = ("client", "clinic", "--config", "clinic/client.toml", "--server", "127.0.0.1:1", "--insecure")
    assert "fedmoments rejoin" in run(*start, code=1).stderr
    assert "fedmoments rejoin" in run("client", "clinic", code=1).stderr  # not that an address is missing
    assert "has left already" in run("client", "clinic", "--withdraw").stdout
    run("rejoin", "clinic")
    with FederationStore.open("a.ledger") as store:
        assert node.contribute(store.terms, most_bytes=2**30).clients == ("clinic",)
