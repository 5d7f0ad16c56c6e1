"""``fedmoments witness``: keep heads of a federation's log, and compare them with those that others were shown."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from fedmoments.cli.generate import command, positional
from fedmoments.cli.ledger import FEDERATE, LEDGER
from fedmoments.cli.options import Json, example
from fedmoments.cli.output import fail, plural, print_json, print_line
from fedmoments.errors import InputError
from fedmoments.federation.transparency.notebook import Findings, Notebook, Noted, compare

__all__ = ["witness"]

EXAMPLE = example(FEDERATE, f"fedmoments witness heads.jsonl {LEDGER}")


@command("witness", EXAMPLE)
def witness(
    notebook: Annotated[Path, positional(help="Your own notebook of heads; created if missing.")],
    sources: Annotated[
        list[Path], positional(help="Clients' folders, notebooks of other parties, or the ledger itself.")
    ],
    *,
    json: Json = False,
) -> None:
    """Note the heads that parties were shown, and check that all belong to one history; exit code 1 if not.

    A server signs every head of its log. Two heads that cannot belong to one log prove that it showed two histories.
    Proofs connect heads of different lengths: clients receive them, or the operator makes them with 'fedmoments witness
    FILE LEDGER YOUR-NOTEBOOK' and hands them out.
    """
    findings = compare(_all_noted(Notebook(notebook), sources))
    if json:
        print_json({"notebook": str(notebook), "federations": [asdict(finding) for finding in findings]})
    show = (lambda _: None) if json else print_line
    for finding in findings:
        show(f"federation {finding.federation[:16]}…: {plural(finding.heads, 'head')} noted in {notebook}")
        _require_one_history(finding)
    if findings:
        show("all of them are of one history")


def _all_noted(own: Notebook, sources: list[Path]) -> list[Noted]:
    """Return the heads of one's own notebook and of all sources, which are noted there from now on."""
    notes = own.noted() + [noted for source in sources if not _is_ledger(source) for noted in _read(source)]
    for ledger in filter(_is_ledger, sources):
        notes += _joined(ledger, notes)
    own.add(notes)
    return notes


def _require_one_history(finding: Findings) -> None:
    for one, two in finding.forks[:1]:
        fail(
            f"the server of {finding.federation[:16]}… showed two histories, both signed with its key: "
            f"{one.to_json()} and {two.to_json()}"
        )
    if finding.unjoined:
        sizes = ", ".join(map(str, finding.unjoined))
        fail(
            f"no proof joins the heads of {sizes} entries with the longest one of {finding.federation[:16]}…: let the "
            "operator run 'fedmoments witness FILE LEDGER YOUR-NOTEBOOK' and compare with FILE; a server that cannot "
            "join them showed two histories"
        )


def _is_ledger(source: Path) -> bool:
    """Say whether a file is a ledger, by its first bytes."""
    if not source.exists():
        raise InputError(f"there is no {source}")
    if source.is_dir():
        return False
    with source.open("rb") as file:
        return file.read(16) == b"SQLite format 3\0"


def _read(source: Path) -> list[Noted]:
    from fedmoments.federation.outbox.watching import HEADS

    return Notebook(source / HEADS if source.is_dir() else source).noted()


def _joined(ledger: Path, notes: list[Noted]) -> list[Noted]:
    """Return the head of a ledger, and proofs that it begins with the heads that were noted of its federation."""
    from fedmoments.federation.store import FederationStore

    with FederationStore.open(ledger) as store:
        return store.join(noted.head.size for noted in notes if noted.head.federation == store.terms.id)
