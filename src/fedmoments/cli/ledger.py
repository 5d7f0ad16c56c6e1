"""``fedmoments status``, ``leave``, ``refit`` and ``fedmoments ledger …``: what a federation's ledger holds."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from fedmoments.cli.agreements import spent_text
from fedmoments.cli.federation_runs import (
    DIGITS,
    check_served,
    default_heads,
    read_results,
    results_document,
    show_results,
)
from fedmoments.cli.generate import command, positional, typed
from fedmoments.cli.given import Given, Taken
from fedmoments.cli.options import Everybody, Json, example
from fedmoments.cli.output import (
    SHOWN,
    fail,
    plural,
    print_clients,
    print_files,
    print_json,
    print_line,
    print_table,
    readable_bytes,
)
from fedmoments.cli.places import results_folder
from fedmoments.settings.server import ServerSettings

__all__ = ["leave", "log", "refit", "restore", "snapshot", "status", "verify"]

FEDERATE = "fedmoments federate --data runs/demo/digits.npz --local 3 --clients 12 --engine memory --out trial"
LEDGER = "trial/federation/ledger.db"
STATUS_EXAMPLE = example(FEDERATE, f"fedmoments status {LEDGER}")
LEAVE_EXAMPLE = example(FEDERATE, f"fedmoments leave {LEDGER} client-0007")
REFIT_EXAMPLE = example(FEDERATE, f"fedmoments refit {LEDGER} --heads fedcof --out refitted")
VERIFY_EXAMPLE = example(FEDERATE, f"fedmoments ledger verify {LEDGER}")
LOG_EXAMPLE = example(FEDERATE, f"fedmoments ledger log {LEDGER} --last 5")
SNAPSHOT = f"fedmoments ledger snapshot {LEDGER} today.ledger"
SNAPSHOT_EXAMPLE = example(FEDERATE, SNAPSHOT)
RESTORE = f"fedmoments ledger restore today.ledger again.ledger --journal {LEDGER}.journal"
RESTORE_EXAMPLE = example(FEDERATE, SNAPSHOT, RESTORE)

Ledger = Annotated[Path, positional(help="The ledger of a federation.")]


def open_ledger(path: Path) -> Any:
    """Return an open ledger."""
    from fedmoments.federation.store import FederationStore

    return FederationStore.open(path)


# -------------------------------------------------------------------------------------------------- status


@command("status", STATUS_EXAMPLE)
def status(
    ledger: Ledger,
    *,
    everybody: Everybody = False,
    watch: Annotated[bool, typed("--watch", help="Refresh every two seconds during a run.")] = False,
    home: Annotated[
        Path | None,
        typed(help="With --watch: folder of Flower's state.", metavar="FOLDER", shown="LEDGER.flower"),
    ] = None,
    json: Json = False,
) -> None:
    """Show who contributed what, which classes are covered, and what was refused."""
    if watch:
        from fedmoments.cli.watching import watch_run

        watch_run(ledger, home or ledger.with_name(f"{ledger.name}.flower"), everybody=everybody, json=json)
        return
    with open_ledger(ledger) as store:
        state, terms = store.status(), store.terms
        waiting = _not_in(store, state)
    classes, moments = terms.classes, str(terms.spec)
    uncovered = [name for name, count in zip(classes, state.class_counts, strict=True) if not count]
    if json:
        document = asdict(state)
        document["last_refusals"] = [_entry(entry) for entry in state.last_refusals]
        document["class_counts"] = dict(zip(classes, state.class_counts, strict=True))
        extra = {"clients": state.clients, "samples": state.samples, "moments": moments}
        print_json({**document, **extra, "waiting": waiting, "classes_not_covered": uncovered})
        return
    _show_sums(state, terms, uncovered)
    _show_contributors(state.contributors, everybody=everybody)
    if waiting:
        print_line(f"enrolled, but not in: {_some(waiting, SHOWN)}")
    if state.refused:
        _show_refusals(state)
    print_line(f"log: {plural(state.entries, 'entry')}, the last is {state.head}")


def _not_in(store: Any, state: Any) -> list[str]:
    """Return who is enrolled, but neither contributed nor waits for a sum."""
    present = {entry.client for entry in state.contributors} | set(state.waiting)
    present |= {client for batch in store.batches() for client in batch.clients}
    return [
        member.client for member in store.enrolled() if member.status == "enrolled" and member.client not in present
    ]


def _show_refusals(state: Any) -> None:
    print_line(f"{plural(state.refused, 'refusal')}; the latest:")
    for entry in state.last_refusals:
        facts = entry.details
        print_line(f"  {entry.time}  {facts.get('client') or 'somebody'}: {facts['reason']}: {facts['sentence']}")


def _show_sums(state: Any, terms: Any, uncovered: Sequence[str]) -> None:
    """Print what the ledger holds in all, as far as the way of adding up lets anybody know."""
    from fedmoments.core.observations import plain_moments

    print_line(f"federation '{state.name}', id {state.federation}")
    mode, classes = terms.privacy.mode, terms.classes
    print_line(f"each client sends {plain_moments(str(terms.spec))}{mode.travels}")
    if state.spent is not None:
        print_line(spent_text(state.spent))
    if mode.has_helper:
        sums = ", ".join(f"{name} of {members:,} clients" for name, members in state.batches.items())
        print_line(f"sums that are in: {sums or 'none'}; {plural(len(state.waiting), 'report')} waiting for one")
    samples = f"{state.samples:,} samples in " if mode.counts_samples else ""
    print_line(
        f"{state.clients:,} of {plural(state.enrolled + state.revoked, 'client')} contributed "
        f"{samples}{readable_bytes(state.bytes)}; {state.left:,} left, "
        f"{state.revoked:,} revoked, {plural(state.quarantined, 'contribution')} in quarantine"
    )
    missing = f"; not covered: {_some(uncovered)}" if uncovered else ""
    if mode.counts_samples:
        print_line(f"{state.classes_covered:,} of {plural(len(classes), 'class')} covered{missing}")


def _show_contributors(contributors: Any, *, everybody: bool) -> None:
    if not contributors:
        return
    print_line()
    rows = [
        [
            entry.client,
            str(entry.version),
            f"{entry.classes:,}",
            f"{entry.samples:,}",
            readable_bytes(entry.bytes),
            withheld_text(entry.withheld_classes, entry.withheld_samples),
            entry.time,
        ]
        for entry in contributors
    ]
    numbers = ["version", "classes", "samples", "bytes"]
    print_clients(["client", *numbers, "withheld", "time"], rows, right=numbers, everybody=everybody)
    print_line()


def withheld_text(classes: int, samples: int) -> str:
    """Return what a client's own policy withheld.

    Examples
    --------
    >>> withheld_text(0, 0), withheld_text(1, 4)
    ('–', '1 class, 4 samples')
    """
    return f"{plural(classes, 'class')}, {plural(samples, 'sample')}" if classes or samples else "–"


def _some(names: Iterable[str], most: int = 10) -> str:
    every = list(names)
    return ", ".join(every[:most]) + (f" … ({len(every):,} in all)" if len(every) > most else "")


# -------------------------------------------------------------------------------------------------- leave, refit


@command("leave", LEAVE_EXAMPLE)
def leave(
    ledger: Ledger,
    client: Annotated[str, positional(help="The client to take out.")],
    *,
    json: Json = False,
) -> None:
    """Remove a client's contribution, as if it had never joined; classifiers fitted before still contain it."""
    with open_ledger(ledger) as store:
        receipt = store.leave(client)
        left = store.status().clients
    if json:
        print_json({**asdict(receipt), "clients": left})
        return
    print_line(
        f"client {client} left with version {receipt.version}; {plural(left, 'client')} "
        f"{'remains' if left == 1 else 'remain'}"
    )
    print_line(f"receipt: entry {receipt.seq} of the log, {receipt.time}, hash {receipt.chain}")
    print_line(
        f"classifiers and snapshots made before still contain it: run 'fedmoments refit {ledger} --out FOLDER', and "
        "replace or delete them"
    )


@command("refit", REFIT_EXAMPLE)
def refit(
    ledger: Ledger,
    server: Annotated[
        Given[ServerSettings],
        Taken(
            only=("heads", "hyper", "robust", "max_client_samples", "half_life"),
            help={"heads": "Names, separated by commas; by default fedcof, or all that the terms serve."},
        ),
    ],
    *,
    out: Annotated[Path, typed("--out", "-o", help="Folder for classifiers, federation.json and report.html.")],
    json: Json = False,
) -> None:
    """Fit heads from what the ledger holds now; clients send nothing again.

    With differential privacy, heads are fitted from the noised sums already made for the current contributions, at no
    cost. If contributions changed, a new release is made and charged, or refused once the budget is spent.
    """
    from fedmoments.core.observations.federated import FederationEvents
    from fedmoments.federation.outcome import write_federation
    from fedmoments.federation.results import fit_heads, source_of

    results_folder(out)
    with open_ledger(ledger) as store:
        own = server.build() if "heads" in server.values else server.build(heads=default_heads(store))
        check_served(store.terms, own.heads, own.hyper)
        source = source_of(store, robust=own.robust, max_samples=own.max_client_samples, half_life=own.half_life)
        fitted = fit_heads(store, own.heads, own.hyper, source=source)
        store.note("refitted", digests={name: outcome.classifier.digest() for name, outcome in fitted.items()})
        files = write_federation(out, store, fitted, {}, FederationEvents(), source=source)
    report = read_results(out)
    if json:
        print_json({**results_document(report), "out": str(out)})
        return
    show_results(report)
    print_files(files)


# -------------------------------------------------------------------------------------------------- the log


@command("verify", VERIFY_EXAMPLE)
def verify(
    ledger: Ledger,
    *,
    expect: Annotated[
        str | None, typed(metavar="HASH", help="A hash that the log must contain: from a receipt, or noted earlier.")
    ] = None,
    json: Json = False,
) -> None:
    """Check the chain of hashes, replay the log, and recompute all sums; exit code 1 if anything differs."""
    with open_ledger(ledger) as store:
        verdict = store.verify(expect)
    if json:
        print_json({**asdict(verdict), "whole": verdict.whole})
    elif verdict.whole:
        print_line(
            f"whole: {plural(verdict.entries, 'entry')}, every hash right; members, "
            f"contributions and sums of {plural(verdict.clients, 'client')} are what the log says"
        )
        print_line(f"head {verdict.head}")
    if not verdict.whole:
        fail(f"{ledger} is broken: {'; '.join(verdict.problems)}")


@command("log", LOG_EXAMPLE)
def log(
    ledger: Ledger,
    *,
    last: Annotated[int, typed(least=1, help="How many of the latest entries to show.")] = SHOWN,
    json: Json = False,
) -> None:
    """Show the latest entries of the log: what arrived, was refused, left, and what the server did."""
    from collections import deque

    with open_ledger(ledger) as store:
        entries = deque(store.audit(), maxlen=last)
    if json:
        print_json([_entry(entry) for entry in entries])
        return
    rows = [[str(entry.seq), entry.time, *_event_and_facts(entry)] for entry in entries]
    print_table(["entry", "time", "event", "facts"], rows, right=["entry"])


def _entry(entry: Any) -> dict[str, Any]:
    return {**asdict(entry), "facts": entry.details}


def _event_and_facts(entry: Any) -> tuple[str, str]:
    """Return what happened, and the details; a note of the server names its event itself."""
    facts = entry.details
    return facts.pop("note", entry.event) if entry.event == "note" else entry.event, _facts(facts)


def _facts(facts: Any) -> str:
    """Return the facts of an entry on one line; long hashes are cut."""
    if isinstance(facts, dict):
        return ", ".join(f"{name} {_facts(value)}" for name, value in facts.items())
    if isinstance(facts, list):
        return " + ".join(_facts(value) for value in facts) or "none"
    text = str(facts)
    return f"{text[:DIGITS]}…" if re.fullmatch("[0-9a-f]{64}", text) else text


@command("snapshot", SNAPSHOT_EXAMPLE)
def snapshot(
    ledger: Ledger,
    file: Annotated[Path, positional(help="The copy; its SHA-256 is written beside it.")],
    *,
    json: Json = False,
) -> None:
    """Copy a ledger as it is now, while others may write to it."""
    with open_ledger(ledger) as store:
        checksum = store.snapshot(file)
    size = file.stat().st_size
    if json:
        print_json({"file": str(file), "bytes": size, "checksum": checksum})
        return
    print_line(f"wrote {file} ({readable_bytes(size)}) and {file}.sha256: {checksum}")


@command("restore", RESTORE_EXAMPLE)
def restore(
    file: Annotated[Path, positional(help="A snapshot, with its checksum beside it.")],
    ledger: Annotated[Path, positional(help="The ledger to create; nothing is overwritten.")],
    *,
    departed: Annotated[
        list[str] | None,
        typed(
            metavar="NAME=out|in",
            help="For a client that left since the snapshot: keep it out, or bring it back. May be repeated.",
        ),
    ] = None,
    journal: Annotated[
        Path | None,
        typed(metavar="FILE", help="The former ledger's journal, if it is not in the new one's folder."),
    ] = None,
    lost_journal: Annotated[
        bool,
        typed(help="Continue without a journal: nothing more is released under an epsilon, and clients will notice."),
    ] = False,
    json: Json = False,
) -> None:
    """Make a ledger from a snapshot, after checking all of it; it replaces the former ledger.

    Revocations, new keys and privacy budget spent since the snapshot are kept. For each client that left since, choose
    whether it stays out.
    """
    from fedmoments.federation.store import FederationStore

    decisions = dict(text.rpartition("=")[::2] for text in departed or [])
    with FederationStore.restore(file, ledger, journal=journal, departed=decisions, lost_journal=lost_journal) as store:
        state = store.status()
    if json:
        print_json({"ledger": str(ledger), "federation": state.federation, "clients": state.clients})
        return
    print_line(f"wrote {ledger}: federation '{state.name}' with {plural(state.clients, 'client')}")
    print_line("the former ledger takes nothing in any more: this one took its place")
    print_line("what was taken in after the snapshot is not in it: 'fedmoments server run … --again' asks for it")
