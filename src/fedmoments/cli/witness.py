"""``fedmoments witness``: keep heads of a federation's log, and compare them with those that others were shown."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from fedmoments.cli.generate import command, positional
from fedmoments.cli.ledger import FEDERATE, LEDGER
from fedmoments.cli.options import Json, example
from fedmoments.cli.output import fail, plural, print_json, print_line
from fedmoments.errors import InputError
from fedmoments.federation.terms import Terms
from fedmoments.federation.transparency.amended import apart, line_of
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
    Heads that another key signed prove nothing against it and are not noted: anybody can make them.
    Nor are two stories of a federation that your notebook did not know before, which anybody can found.
    Terms with added classes are compared, too: the server signs each amendment, and one follows from another.
    Proofs connect heads of different lengths: clients receive them, or the operator makes them with 'fedmoments witness
    FILE LEDGER YOUR-NOTEBOOK' and hands them out.
    """
    own = Notebook(notebook)
    notes = _all_noted(own, sources)
    trusted = _trusted(own.noted(), notes)
    amended, findings = _all_amended(own, sources), compare(notes)
    _note_down(own, notes, amended, trusted=trusted, strange=_strange(own, findings, amended))
    if json:
        document = {"notebook": str(notebook), "federations": [asdict(finding) for finding in findings]}
        print_json({**document, "amendments": [[one.digest, two.digest] for one, two in apart(amended)]})
    show = (lambda _: None) if json else print_line
    for finding in findings:
        if trusted.get(finding.federation) == finding.key:
            show(f"federation {finding.federation[:16]}…: {plural(finding.heads, 'head')} noted in {notebook}")
            _require_one_history(finding)
    _require_one_key(findings, trusted)
    _require_one_story(amended)
    if findings:
        show("all of them are of one history")


def _all_noted(own: Notebook, sources: list[Path]) -> list[Noted]:
    """Return the heads of one's own notebook and of all sources."""
    notes = own.noted() + [noted for source in sources if not _is_ledger(source) for noted in _book(source).noted()]
    for ledger in filter(_is_ledger, sources):
        notes += _joined(ledger, notes)
    return notes


def _note_down(
    own: Notebook, notes: list[Noted], amended: list[Terms], *, trusted: dict[str, str], strange: set[str]
) -> None:
    """Write into one's own notebook what trusted keys signed, but nothing of strange federations."""
    known = {federation: key for federation, key in trusted.items() if federation not in strange}
    own.add(noted for noted in notes if known.get(noted.head.federation) == noted.head.key)
    own.add_lines(line_of(terms) for terms in amended if terms.id not in strange)


def _all_amended(own: Notebook, sources: list[Path]) -> list[Terms]:
    """Return the terms with added classes of one's own notebook and of all sources, each once."""
    shown = own.amended() + [terms for source in sources for terms in _amended(source)]
    return list({terms.digest: terms for terms in shown}.values())


def _strange(own: Notebook, findings: list[Findings], amended: list[Terms]) -> set[str]:
    """Return the federations that a notebook in use does not know, and of which two stories are told.

    Anybody can found one and tell two stories of it: noted, they would have every later comparison fail.
    """
    known = {noted.head.federation for noted in own.noted()} | {terms.id for terms in own.amended()}
    told = {finding.federation for finding in findings if finding.forks or finding.unjoined}
    told |= {one.id for one, _ in apart(amended)}
    return told - known if known else set()


def _trusted(own: list[Noted], notes: list[Noted]) -> dict[str, str]:
    """Return by federation the key that signs for it: the first one noted, else that of all heads if it is one."""
    keys: dict[str, set[str]] = {}
    for noted in notes:
        keys.setdefault(noted.head.federation, set()).add(noted.head.key)
    only = {federation: next(iter(signers)) for federation, signers in keys.items() if len(signers) == 1}
    return only | {noted.head.federation: noted.head.key for noted in reversed(own)}


def _require_one_key(findings: list[Findings], trusted: dict[str, str]) -> None:
    for finding in findings:
        key = trusted.get(finding.federation)
        if key != finding.key:
            known = f"your notebook has heads of the key {key}" if key else "others are signed by another key"
            fail(
                f"{plural(finding.heads, 'head')} of {finding.federation[:16]}… are signed by {finding.key}, but "
                f"{known}; they were not noted. Compare with 'server' in the terms: either somebody else made them, or "
                "the server signs with two keys"
            )


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


def _require_one_story(amended: list[Terms]) -> None:
    for one, two in apart(amended)[:1]:
        fail(
            f"the server of {one.id[:16]}… signed two amendments of which neither follows from the other, one with the "
            f"classes {', '.join(map(repr, one.classes[:20]))} and one with {', '.join(map(repr, two.classes[:20]))}: "
            f"it told two stories; the proof is two lines of your notebook, {one.digest} and {two.digest}"
        )


def _is_ledger(source: Path) -> bool:
    """Say whether a file is a ledger, by its first bytes."""
    if not source.exists():
        raise InputError(f"there is no {source}")
    if source.is_dir():
        return False
    with source.open("rb") as file:
        return file.read(16) == b"SQLite format 3\0"


def _book(source: Path) -> Notebook:
    from fedmoments.federation.outbox.watching import HEADS

    return Notebook(source / HEADS if source.is_dir() else source)


def _amended(source: Path) -> list[Terms]:
    """Return the amended terms that a party was shown, or that a ledger stands by."""
    if not _is_ledger(source):
        return _book(source).amended()
    from fedmoments.federation.store import FederationStore

    with FederationStore.open(source) as store:
        return [store.terms] if store.terms.amended else []


def _joined(ledger: Path, notes: list[Noted]) -> list[Noted]:
    """Return the head of a ledger, and proofs that it begins with the heads that were noted of its federation."""
    from fedmoments.federation.store import FederationStore

    with FederationStore.open(ledger) as store:
        return store.join(noted.head.size for noted in notes if noted.head.federation == store.terms.id)
