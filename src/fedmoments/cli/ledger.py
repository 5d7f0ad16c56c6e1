"""``fedmoments status``, ``leave``, ``refit`` and ``fedmoments ledger …``: what a federation's ledger holds."""

import re
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from fedmoments.cli.agreements import spent_text
from fedmoments.cli.command import PlainCommand, PlainGroup
from fedmoments.cli.federation_runs import DIGITS, check_served, default_heads, read_results, show_results
from fedmoments.cli.options import Json, Set, example, hyper_of_heads, listed, results_folder
from fedmoments.cli.output import fail, plural, print_json, print_line, print_table, readable_bytes
from fedmoments.cli.privacy_options import MaxClientSamples, Robust

__all__ = ["leave_command", "ledger_commands", "refit_command", "status_command"]

FEDERATE = "fedmoments federate --data runs/demo/digits.npz --local 3 --clients 12 --engine memory --out trial"
LEDGER = "trial/federation/ledger.db"
STATUS_EXAMPLE = example(FEDERATE, f"fedmoments status {LEDGER}")
LEAVE_EXAMPLE = example(FEDERATE, f"fedmoments leave {LEDGER} client-0007")
REFIT_EXAMPLE = example(FEDERATE, f"fedmoments refit {LEDGER} --heads fedcof --out refitted")
VERIFY_EXAMPLE = example(FEDERATE, f"fedmoments ledger verify {LEDGER}")
LOG_EXAMPLE = example(FEDERATE, f"fedmoments ledger log {LEDGER} --last 5")
SNAPSHOT = f"fedmoments ledger snapshot {LEDGER} today.ledger"
SNAPSHOT_EXAMPLE = example(FEDERATE, SNAPSHOT)
RESTORE_EXAMPLE = example(FEDERATE, SNAPSHOT, "fedmoments ledger restore today.ledger again.ledger")
SHOWN = 20

Ledger = Annotated[Path, typer.Argument(help="The ledger of a federation.")]


def status_command(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command("status", cls=PlainCommand, short_help="Who contributed to a federation.", epilog=STATUS_EXAMPLE)(
        _status
    )


def leave_command(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command("leave", cls=PlainCommand, short_help="Take a client's contribution out.", epilog=LEAVE_EXAMPLE)(_leave)


def refit_command(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command("refit", cls=PlainCommand, short_help="Fit heads from a ledger, again.", epilog=REFIT_EXAMPLE)(_refit)


def ledger_commands(app: typer.Typer) -> None:
    """Add the commands to the app."""
    group = typer.Typer(cls=PlainGroup, no_args_is_help=True, rich_markup_mode=None)
    commands = (
        ("verify", "Check and replay the log.", VERIFY_EXAMPLE, _verify),
        ("log", "Show what happened.", LOG_EXAMPLE, _log),
        ("snapshot", "Copy a ledger.", SNAPSHOT_EXAMPLE, _snapshot),
        ("restore", "Make a ledger from a snapshot.", RESTORE_EXAMPLE, _restore),
    )
    for name, short, epilog, function in commands:
        group.command(name, cls=PlainCommand, short_help=short, epilog=epilog)(function)
    short = "Check, read, copy and restore a ledger."
    app.add_typer(group, name="ledger", short_help=short, help=short)


def open_ledger(path: Path) -> Any:
    """Return an open ledger."""
    from fedmoments.federation.store import FederationStore

    return FederationStore.open(path)


# -------------------------------------------------------------------------------------------------- status


def _status(
    ledger: Ledger,
    *,
    everybody: Annotated[bool, typer.Option("--all", help=f"List all clients, not the first {SHOWN}.")] = False,
    json: Json = False,
) -> None:
    """Say who contributed what, which classes are covered, and what was refused."""
    with open_ledger(ledger) as store:
        found, members, classes = store.status(), store.enrolled(), store.terms.classes
        moments, secure = str(store.terms.spec), store.terms.privacy.secure
        summed = {client for batch in store.batches() for client in batch.clients}
    present = {each.client for each in found.contributors} | summed | set(found.waiting)
    waiting = [each.client for each in members if each.status == "enrolled" and each.client not in present]
    uncovered = [name for name, count in zip(classes, found.class_counts, strict=True) if not count]
    if json:
        document = asdict(found)
        document["last_refusals"] = [_entry(each) for each in found.last_refusals]
        document["class_counts"] = dict(zip(classes, found.class_counts, strict=True))
        extra = {"clients": found.clients, "samples": found.samples, "moments": moments}
        print_json({**document, **extra, "waiting": waiting, "classes_not_covered": uncovered})
        return
    print_line(f"federation '{found.name}', id {found.federation}")
    print_line(f"each client sends {moments}{f', masked (secure {secure})' if secure else ''}")
    if found.spent is not None:
        print_line(spent_text(found.spent))
    if secure:
        sums = ", ".join(f"{name} of {members:,} clients" for name, members in found.batches.items())
        print_line(f"sums that are in: {sums or 'none'}; {plural(len(found.waiting), 'report')} waiting for one")
    unknown = secure == "two-phase" or (secure is not None and found.spent is not None)  # not in the running sums
    print_line(
        f"{found.clients:,} of {plural(found.enrolled + found.revoked, 'client')} contributed "
        f"{'' if unknown else f'{found.samples:,} samples in '}{readable_bytes(found.bytes)}; {found.left:,} left, "
        f"{found.revoked:,} revoked, {plural(found.quarantined, 'contribution')} in quarantine"
    )
    missing = f"; not covered: {_some(uncovered)}" if uncovered else ""
    if not unknown:
        print_line(f"{found.classes_covered:,} of {plural(len(classes), 'class')} covered{missing}")
    _show_contributors(found.contributors, everybody=everybody)
    if waiting:
        print_line(f"enrolled, but not in: {_some(waiting, SHOWN)}")
    if found.refused:
        print_line(f"{plural(found.refused, 'refusal')}; the latest:")
        for each in found.last_refusals:
            facts = each.details
            print_line(f"  {each.time}  {facts.get('client') or 'somebody'}: {facts['reason']}: {facts['sentence']}")
    print_line(f"log: {plural(found.entries, 'entry')}, the last is {found.head}")


def _show_contributors(contributors: Any, *, everybody: bool) -> None:
    if not contributors:
        return
    print_line()
    shown = contributors if everybody else contributors[:SHOWN]
    rows = [
        [
            each.client,
            str(each.version),
            f"{each.classes:,}",
            f"{each.samples:,}",
            readable_bytes(each.bytes),
            withheld_text(each.withheld_classes, each.withheld_samples),
            each.time,
        ]
        for each in shown
    ]
    numbers = ["version", "classes", "samples", "bytes"]
    print_table(["client", *numbers, "withheld", "time"], rows, right=numbers)
    if len(shown) < len(contributors):
        print_line(f"… and {len(contributors) - len(shown):,} more clients; --all lists them")
    print_line()


def withheld_text(classes: int, samples: int) -> str:
    """Return what a client's own policy kept back.

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


def _leave(
    ledger: Ledger,
    client: Annotated[str, typer.Argument(help="Who leaves.")],
    *,
    json: Json = False,
) -> None:
    """Take a client's contribution out, as if it had never joined; classifiers that exist already still contain it."""
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


def _refit(
    ledger: Ledger,
    *,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for classifiers, federation.json and report.html.")],
    heads: Annotated[
        str | None, typer.Option(help="Names, separated by commas; fedcof, or all that the terms serve, by default.")
    ] = None,
    settings: Set = None,
    robust: Robust = None,
    max_client_samples: MaxClientSamples = None,
    json: Json = False,
) -> None:
    """Fit heads from what the ledger holds now; nobody has to send anything again.

    With differential privacy they are fitted from the noised sums that were made once of what is in, at no cost; if
    that has changed, a new release is made and charged, or refused where the budget is spent.
    """
    from fedmoments.federation.results import fit_heads, source_of
    from fedmoments.jobs.federation import write_federation

    results_folder(out)
    hyper = hyper_of_heads(settings or [])
    with open_ledger(ledger) as store:
        chosen = listed(heads, str, "--heads") if heads else default_heads(store)
        check_served(store.terms, chosen, hyper)
        source = source_of(store, robust=robust or "", max_samples=max_client_samples or 0)
        fitted = fit_heads(store, chosen, hyper, source=source)
        store.note("refitted", digests={name: each.classifier.digest() for name, each in fitted.items()})
        files = write_federation(out, store, fitted, {}, {"rounds": [], "failures": []}, source=source)
    found = read_results(out)
    if json:
        print_json({**found, "out": str(out)})
        return
    show_results(found)
    print_line(f"wrote {', '.join(str(path) for path in files)}")


# -------------------------------------------------------------------------------------------------- the log


def _verify(
    ledger: Ledger,
    *,
    expect: Annotated[
        str | None, typer.Option(metavar="HASH", help="A hash that must be in the log: of a receipt, or noted before.")
    ] = None,
    json: Json = False,
) -> None:
    """Follow the chain of hashes, replay the log, and compute all sums anew; exit code 1 if anything differs."""
    with open_ledger(ledger) as store:
        found = store.verify(expect)
    if json:
        print_json({**asdict(found), "whole": found.whole})
    elif found.whole:
        print_line(
            f"whole: {plural(found.entries, 'entry')}, every hash right; members, "
            f"contributions and sums of {plural(found.clients, 'client')} are what the log says"
        )
        print_line(f"head {found.head}")
    if not found.whole:
        fail(f"{ledger} is broken: {'; '.join(found.problems)}")


def _log(
    ledger: Ledger,
    *,
    last: Annotated[int, typer.Option(min=1, help="How many entries, the latest ones.")] = SHOWN,
    json: Json = False,
) -> None:
    """Show the latest entries of the log: what arrived, was refused, left, and what the server did."""
    from collections import deque

    with open_ledger(ledger) as store:
        entries = deque(store.audit(), maxlen=last)
    if json:
        print_json([_entry(each) for each in entries])
        return
    rows = [[str(each.seq), each.time, *_told(each)] for each in entries]
    print_table(["entry", "time", "event", "facts"], rows, right=["entry"])


def _entry(entry: Any) -> dict[str, Any]:
    return {**asdict(entry), "facts": entry.details}


def _told(entry: Any) -> tuple[str, str]:
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


def _snapshot(
    ledger: Ledger,
    file: Annotated[Path, typer.Argument(help="The copy; its SHA-256 is written beside it.")],
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


def _restore(
    file: Annotated[Path, typer.Argument(help="A snapshot, with its checksum beside it.")],
    ledger: Annotated[Path, typer.Argument(help="The ledger to make; nothing is overwritten.")],
    *,
    json: Json = False,
) -> None:
    """Make a ledger from a snapshot, after checking all of it."""
    from fedmoments.federation.store import FederationStore

    with FederationStore.restore(file, ledger) as store:
        found = store.status()
    if json:
        print_json({"ledger": str(ledger), "federation": found.federation, "clients": found.clients})
        return
    print_line(f"wrote {ledger}: federation '{found.name}' with {plural(found.clients, 'client')}")
    print_line("what was taken in after the snapshot is not in it: 'fedmoments server run … --again' asks for it")
