"""A server that is not honest about its log: what clients refuse, and what witnesses find."""

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fedmoments.errors import FileFormatError, LedgerError
from fedmoments.federation.outbox import Outbox
from fedmoments.federation.outbox.watching import Watching
from fedmoments.federation.store import FederationStore
from fedmoments.federation.store.audit import Entry
from fedmoments.federation.transparency.heads import LogHead
from fedmoments.federation.transparency.notebook import Notebook, Noted, compare
from fedmoments.wire import IdentityKey

_SPEC = importlib.util.spec_from_file_location("workshop", Path(__file__).parents[1] / "store" / "conftest.py")
assert _SPEC is not None
assert _SPEC.loader is not None
workshop = importlib.util.module_from_spec(_SPEC)
sys.modules["workshop"] = workshop
_SPEC.loader.exec_module(workshop)


@pytest.fixture
def federation() -> Any:
    return workshop.Federation.of("gram")


@pytest.fixture
def ledger(federation: Any, tmp_path: Path) -> Path:
    path = tmp_path / "ledger"
    with federation.store(path, "abcdef") as store:
        store.submit(federation.data("a"))
    return path


@pytest.fixture
def watching(tmp_path: Path) -> Callable[[str], Watching]:
    def make(name: str) -> Watching:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        return Watching(folder)

    return make


def show(ledger: Path, watching: Watching, data: bytes | None = None) -> tuple[list[str], list[str]]:
    """Submit something, and show a client the log as this ledger tells it."""
    with FederationStore.open(ledger) as store:
        receipts = [] if data is None else [store.submit(data)]
        shown = store.show([receipt.seq for receipt in receipts], watching.seen(store.terms.id))
        return watching.check([receipt.to_json() for receipt in receipts], shown)


def test_an_honest_log_is_believed_as_it_grows(federation: Any, ledger: Path, watching: Any) -> None:
    client = watching("b")
    for name in "bcdef":
        sound, problems = show(ledger, client, federation.data(name))
        assert (len(sound), problems) == (1, [])
    (finding,) = compare(client.notebook.noted())
    assert (finding.heads, finding.forks, finding.unjoined) == (5, (), ())


def test_a_receipt_is_kept_only_if_its_entry_is_in_the_log_that_is_shown(
    federation: Any, ledger: Path, watching: Any
) -> None:
    client = watching("b")
    with FederationStore.open(ledger) as store:
        receipt = store.submit(federation.data("b"))
        shown = store.show([receipt.seq])
        unsigned, forged = replace(receipt, signature=""), replace(receipt, digest="ab" * 32)
        elsewhere = store.signed(replace(receipt, chain="ab" * 32))  # the server signs what is not in its log
        other = store.signed(replace(receipt, federation="ab" * 32))
        texts = [value.to_json() for value in (receipt, unsigned, forged, elsewhere, other)]
    sound, problems = client.check(texts, shown)
    assert sound == texts[:1]
    assert [("not signed" in text, "not in the log" in text, "another federation" in text) for text in problems] == [
        (True, False, False),
        (True, False, False),
        (False, True, False),
        (False, False, True),
    ]
    for broken in (None, {}, {**shown, "head": "{}"}, {**shown, "included": {}}, {**shown, "consistent": "x"}):
        assert client.check(texts[:1], broken)[0] == []


def test_a_log_that_was_cut_rewritten_or_put_back_is_refused(
    federation: Any, ledger: Path, watching: Any, tmp_path: Path
) -> None:
    client = watching("b")
    for file in tmp_path.glob("ledger*"):
        shutil.copyfile(file, tmp_path / file.name.replace("ledger", "fork"))
    (tmp_path / "fork.key").chmod(0o600)
    for name in "bc":
        assert show(ledger, client, federation.data(name))[1] == []
    before = client.notebook.noted()
    for data in (federation.data("d"), federation.data("e"), federation.data("f"), None):
        sound, problems = show(tmp_path / "fork", client, data)
        assert sound == []
        assert "does not begin with the" in problems[0]
    assert client.notebook.noted() == before
    assert show(ledger, client, federation.data("d"))[1] == []


def test_a_counter_that_went_back_is_noticed_without_a_journal(
    federation: Any, ledger: Path, watching: Any, tmp_path: Path
) -> None:
    """Ledger and journal are both put back to the day before: only clients can tell."""
    client = watching("b")
    for file in tmp_path.glob("ledger*"):
        shutil.copyfile(file, tmp_path / file.name.replace("ledger", "yesterday"))
    with FederationStore.open(ledger) as store:
        store.leave("a")
    assert show(ledger, client, federation.data("b"))[1] == []
    (tmp_path / "yesterday.key").chmod(0o600)
    for name in "bcdef":
        sound, problems = show(tmp_path / "yesterday", client, federation.data(name))
        assert sound == []
        assert "counter went back from 1 to 0" in problems[0]


def test_the_key_of_the_terms_or_of_the_first_head_is_the_only_one(
    federation: Any, ledger: Path, watching: Any
) -> None:
    with FederationStore.open(ledger) as store:
        shown, federation_id, key = store.show([]), store.terms.id, store.signing_key.public.hex
    stranger = IdentityKey.generate()
    head = LogHead.from_json(shown["head"])
    forged = LogHead.signed(
        stranger, head.federation, head.size, bytes.fromhex(head.root), counter=head.counter, time=head.time
    )
    first = watching("pinned")
    assert first.check([], shown) == ([], [])
    assert "as noted at first" in first.check([], {**shown, "head": forged.to_json()})[1][0]
    named = watching("named")
    named.trust(federation_id, key)
    assert "by the terms" in named.check([], {**shown, "head": forged.to_json()})[1][0]
    assert named.check([], shown) == ([], [])
    lied = replace(head, size=head.size + 1)
    assert "somebody else speaks" in watching("third").check([], {**shown, "head": lied.to_json()})[1][0]


def test_terms_name_the_servers_key(federation: Any, tmp_path: Path) -> None:
    key = IdentityKey.generate().public.hex
    terms = replace(federation.terms, server=key)
    assert type(terms).from_json(terms.to_json()) == terms
    assert terms.id != federation.terms.id
    assert "server" not in federation.terms.to_dict()
    with pytest.raises(LedgerError, match="is not there: bring it back"):
        FederationStore.create(tmp_path / "ledger", terms)


def test_a_lost_signing_key_is_not_replaced_in_silence(federation: Any, ledger: Path) -> None:
    ledger.with_name("ledger.key").unlink()
    with FederationStore.open(ledger) as store, pytest.raises(LedgerError, match="would be refused by every client"):
        store.submit(federation.data("b"))


# -------------------------------------------------------------------------------------------------- witnesses


@pytest.fixture
def forked(federation: Any, ledger: Path, watching: Any, tmp_path: Path) -> tuple[Path, Path]:
    """An operator shows b one history and c another; each of them alone is flawless."""
    for file in tmp_path.glob("ledger*"):
        shutil.copyfile(file, tmp_path / file.name.replace("ledger", "fork"))
    (tmp_path / "fork.key").chmod(0o600)
    assert show(ledger, watching("b"), federation.data("b"))[1] == []
    assert show(tmp_path / "fork", watching("c"), federation.data("c"))[1] == []
    return tmp_path / "b", tmp_path / "c"


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fedmoments", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_two_histories_that_are_shown_to_two_clients_are_noticed(forked: tuple[Path, Path], tmp_path: Path) -> None:
    alone = run("witness", tmp_path / "mine.jsonl", forked[0])
    assert (alone.returncode, "all of them are of one history" in alone.stdout) == (0, True)
    both = run("witness", tmp_path / "mine.jsonl", *forked)
    assert both.returncode == 1
    assert "showed two histories, both signed with its key" in both.stderr


def test_a_stranger_cannot_make_a_server_look_forked(
    federation: Any, ledger: Path, watching: Any, tmp_path: Path
) -> None:
    """Anybody can sign two heads with a key of their own: they say nothing of the server, and spoil no notebook."""
    assert show(ledger, watching("b"), federation.data("b"))[1] == []
    head, stranger = watching("b").notebook.noted()[-1].head, IdentityKey.generate()
    made = [
        LogHead.signed(stranger, head.federation, size, bytes([size % 7] * 32), counter=counter, time=head.time)
        for size, counter in ((head.size, 0), (head.size, 2**62), (2**62, 0))
    ]
    (tmp_path / "made.jsonl").write_bytes(b"".join(Noted(each).to_line() for each in made))
    assert run("witness", tmp_path / "mine.jsonl", tmp_path / "b").returncode == 0
    before = (tmp_path / "mine.jsonl").read_bytes()
    tried: dict[str, list[str | Path]] = {
        "mine": ["made.jsonl"],
        "new": ["made.jsonl", "b"],
        "other": ["made.jsonl", ledger],
    }
    for notebook, sources in tried.items():
        done = run("witness", tmp_path / f"{notebook}.jsonl", *(tmp_path / source for source in sources))
        assert done.returncode == 1
        assert "showed two histories" not in done.stderr
        assert "Compare with 'server' in the terms" in done.stderr
    assert (tmp_path / "mine.jsonl").read_bytes() == before
    assert Notebook(tmp_path / "new.jsonl").noted() == []
    assert run("witness", tmp_path / "mine.jsonl", tmp_path / "b").returncode == 0


def test_a_fork_of_another_length_cannot_be_joined(
    federation: Any, ledger: Path, forked: tuple[Path, Path], watching: Any, tmp_path: Path
) -> None:
    assert show(ledger, watching("b"), federation.data("d"))[1] == []
    longer = [noted for noted in Notebook(forked[0] / "heads.jsonl").noted() if noted.head.size > 9]
    (tmp_path / "later.jsonl").write_bytes(b"".join(noted.to_line() for noted in longer))
    apart = run("witness", tmp_path / "mine.jsonl", tmp_path / "later.jsonl", forked[1])
    assert apart.returncode == 1
    assert "no proof joins the heads" in apart.stderr
    for served in (ledger, tmp_path / "fork"):  # neither ledger can join what it did not write
        joined = run("witness", tmp_path / "joined.jsonl", served, tmp_path / "later.jsonl", forked[1])
        assert joined.returncode == 1


def test_heads_of_honest_parties_are_joined_by_the_ledger(
    federation: Any, ledger: Path, watching: Any, tmp_path: Path
) -> None:
    for name in "bcd":
        show(ledger, watching(name), federation.data(name))
    folders = [tmp_path / name for name in "bcd"]
    apart = run("witness", tmp_path / "mine.jsonl", *folders)
    assert apart.returncode == 1
    assert "no proof joins" in apart.stderr
    joined = run("witness", tmp_path / "joined.jsonl", ledger, tmp_path / "mine.jsonl")
    assert (joined.returncode, joined.stderr) == (0, "")
    assert run("witness", tmp_path / "mine.jsonl", tmp_path / "joined.jsonl").returncode == 0


def test_a_notebook_that_was_changed_is_refused(federation: Any, ledger: Path, watching: Any) -> None:
    client = watching("b")
    show(ledger, client, federation.data("b"))
    path = client.notebook.path
    path.write_bytes(path.read_bytes().replace(b'"counter": 0', b'"counter": 7'))
    with pytest.raises(FileFormatError, match="a head that its key did not sign"):
        client.notebook.noted()


def test_the_first_key_that_is_believed_is_told_with_words(federation: Any, ledger: Path, watching: Any) -> None:
    """Where terms name no key, a client takes the first one: somebody must be able to compare it."""
    client = watching("mine")
    show(ledger, client, federation.data("b"))
    assert client.pinned is not None
    with Outbox(ledger.parent / "mine") as outbox:
        outbox.pinned(client.pinned.federation, "b", client.pinned.key)
    line = (ledger.parent / "mine" / "record.jsonl").read_text()
    assert client.pinned.key in line
    assert "the first one that it showed is trusted" in line
    show(ledger, client, federation.data("c"))
    assert client.pinned is None  # said once


def test_a_key_that_the_terms_name_is_not_pinned(federation: Any, ledger: Path, watching: Any) -> None:
    client = watching("mine")
    with FederationStore.open(ledger) as store:
        client.trust(store.terms.id, store.signing_key.public.hex)
    show(ledger, client, federation.data("b"))
    assert client.pinned is None


def test_receipts_and_heads_tell_a_client_nothing_of_others(federation: Any, ledger: Path) -> None:
    """Two clients whose entries stand around another's know all of its entry but what it sent, and try that out.

    Without a salt the second one's receipt is the hash of a chain that they can compute for every guess.
    """
    with FederationStore.open(ledger) as store:
        before, middle, after = (store.submit(federation.data(name)) for name in "bcd")
        victim, own = (next(entry for entry in store.audit() if entry.seq == seq) for seq in (middle.seq, after.seq))
    moments = [datetime.fromisoformat(receipt.time) for receipt in (before, after)]
    steps = int((moments[1] - moments[0]) / timedelta(milliseconds=1))
    times = [moments[0] + timedelta(milliseconds=step) for step in range(steps + 1)]
    said = [time.isoformat(timespec="milliseconds").replace("+00:00", "Z") for time in times]
    assert victim.time in said
    candidates = {middle.digest: "what it sent", "00" * 32: "something else"}
    found = set()
    for time in said:
        for digest, what in candidates.items():
            guess = Entry.following(before.chain, middle.seq, "joined", {**victim.details, "digest": digest}, time)
            if Entry.following(guess.hash, own.seq, "joined", own.details, own.time).hash == after.chain:
                found.add(what)
    assert not found
