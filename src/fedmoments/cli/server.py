"""``fedmoments server``: create a federation, enrol its clients, run it."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from fedmoments.cli.federation_runs import check_served, default_heads, read_results, results_document, show_results
from fedmoments.cli.generate import command, positional, typed
from fedmoments.cli.given import Given, Taken
from fedmoments.cli.ledger import Ledger, open_ledger
from fedmoments.cli.options import Json, example
from fedmoments.cli.output import plural, print_json, print_line
from fedmoments.cli.places import existing_file, results_folder
from fedmoments.cli.server_create import CREATE, class_names
from fedmoments.cli.server_runs import SLACK, Serving, lifetime
from fedmoments.errors import InputError
from fedmoments.settings.server import ServerSettings

__all__ = ["amend", "app", "enrol", "longest", "revoke", "run"]

ENROL = "fedmoments server enrol trial.ledger keys/clinic.card"
CLIENT_KEYS = "fedmoments keys client keys --name clinic"
ENROL_EXAMPLE = example(CREATE, CLIENT_KEYS, ENROL)
AMEND_EXAMPLE = example(CREATE, "fedmoments server amend trial.ledger --classes ten,eleven")
REVOKE_EXAMPLE = example(CREATE, CLIENT_KEYS, ENROL, "fedmoments server revoke trial.ledger clinic")
RUN_EXAMPLE = example(
    CREATE,
    "fedmoments keys server keys --host fed.example.org",
    CLIENT_KEYS,
    ENROL,
    "fedmoments server run trial.ledger --keys keys --host 0.0.0.0 --out results",
).replace(
    "Example, after 'fedmoments demo':", "Example, after 'fedmoments demo'; it waits for 'fedmoments client' elsewhere:"
)
APP_EXAMPLE = example("fedmoments server app flower-app")


# -------------------------------------------------------------------------------------------------- clients


@command("enrol", ENROL_EXAMPLE)
def enrol(
    ledger: Ledger,
    cards: Annotated[list[Path], positional(help="Cards that clients handed in (NAME.card).")],
    *,
    json: Json = False,
) -> None:
    """Allow clients to contribute, each with the keys on its card; a new key needs the signature of the old one."""
    from fedmoments.federation.keys.parties import read_card
    from fedmoments.federation.keys.rotation import rotation_of

    read = [read_card(existing_file(path)) for path in cards]
    rotations = [rotation for rotation in map(rotation_of, cards) if rotation is not None]
    with open_ledger(ledger) as store:
        known = {member.client for member in store.enrolled()}
        for rotation in filter(lambda rotation: rotation.client in known, rotations):
            store.rotate(rotation)
        store.enrol_many([(card.name, card.identity, card.node_key) for card in read])
        enrolled = store.status().enrolled
    if json:
        print_json({"enrolled": [card.name for card in read], "in_all": enrolled})
        return
    print_line(f"enrolled {', '.join(card.name for card in read)}; {plural(enrolled, 'client')} in all")
    print_line("a server that is running already admits them from its next start on; parties with a kit, at once")


@command("revoke", REVOKE_EXAMPLE)
def revoke(
    ledger: Ledger,
    client: Annotated[str, positional(help="The client to revoke.")],
    *,
    json: Json = False,
) -> None:
    """Bar a client from contributing, for good; an unused kit of that name becomes void."""
    with open_ledger(ledger) as store:
        withdrawn = _withdrawn(ledger, store.terms.id, client)
        if withdrawn and client not in {member.client for member in store.enrolled()}:
            store.note("invitation withdrawn", client=client)
            if json:
                print_json({"withdrawn": client})
            else:
                print_line(f"the kit of {client} is void")
            return
        store.revoke(client)
        present = client in {contributor.client for contributor in store.status().contributors}
    if json:
        print_json({"revoked": client, "contribution_stays": present})
        return
    print_line(f"client {client} contributes no more")
    if present:
        print_line(f"what it contributed stays: 'fedmoments leave {ledger} {client}' takes it out")


@command("amend", AMEND_EXAMPLE)
def amend(
    ledger: Ledger,
    classes: Annotated[
        str, typed(help="New classes: a file with one per line, or names separated by commas.", metavar="FILE|NAME,…")
    ],
    *,
    json: Json = False,
) -> None:
    """Add classes to the signed terms. Contributions stay valid; parties that accept may send the new classes."""
    from fedmoments.files import write_whole

    public = ledger.with_name(f"{ledger.name}.terms.json")
    with open_ledger(ledger) as store:
        terms = store.amend(class_names(classes, alone=True))
    write_whole(public, f"{terms.to_json()}\n".encode())
    if json:
        print_json({"terms_file": str(public), "id": terms.id, "terms": terms.digest, "classes": list(terms.classes)})
        return
    print_line(f"'{terms.name}' has {plural(len(terms.classes), 'class')} now; the new terms are in {public}")
    print_line("parties take part without the new classes until 'fedmoments client NAME --accept-terms FILE'")


# -------------------------------------------------------------------------------------------------- run


@command("run", RUN_EXAMPLE)
def run(
    ledger: Ledger,
    settings: Annotated[
        Given[ServerSettings],
        Taken(
            without=("seed", "poll", "bundle_bytes"),
            help={"heads": "Names, separated by commas; by default fedcof, or all that the terms serve."},
            file=True,
        ),
    ],
    serving: Annotated[Serving, Taken()],
    *,
    json: Json = False,
) -> None:
    """Serve a federation until its run is over: collect contributions, fit heads, let clients test them.

    Exit code 0 only if the run completed. Accepted contributions stay in the ledger even if the run fails.
    """
    from fedmoments.extras import require

    require("flwr", "A server of a federation", "flower")
    authority = serving.authority()
    own, mode = _checked(ledger, settings)
    status = serving.run(own, ledger, longest(own, mode), authority)
    _show(ledger, own, settings.values.get("out", own.out), status, json=json)


def _checked(ledger: Path, given: Given[ServerSettings]) -> tuple[ServerSettings, Any]:
    """Return the server's settings once the ledger allows them, and how contributions are added up."""
    from fedmoments.federation.results import require_filterable

    own = given.build(ledger=str(ledger.resolve()), **lifetime(given))
    if own.out:
        results_folder(Path(own.out))
    with open_ledger(ledger) as store:
        if own.heads == ServerSettings.heads and "heads" not in given.values:
            own = replace(own, heads=default_heads(store))
        check_served(store.terms, own.heads, own.hyper)
        require_filterable(store.terms, own.robust, own.max_client_samples)
        members = sum(member.status == "enrolled" for member in store.enrolled()) + _invited(ledger, store.terms.id)
        mode = store.terms.privacy.mode
    if own.quorum > max(members, ServerSettings.quorum):
        raise InputError(
            f"--quorum {own.quorum} cannot be reached: {plural(members, 'client')} may contribute; enrol more"
        )
    return own, mode


def _withdrawn(ledger: Path, federation: str, client: str) -> bool:
    """Take an invitation back, if there is one; say whether there was."""
    from fedmoments.federation.enrolment.invitations import Invitations, invitations_of

    if not invitations_of(ledger).exists():
        return False
    with Invitations(ledger, federation) as invitations:
        return invitations.withdraw(client)


def _invited(ledger: Path, federation: str) -> int:
    """Return how many may still enrol with a kit."""
    from fedmoments.federation.enrolment.invitations import Invitations, invitations_of

    if not invitations_of(ledger).exists():
        return 0
    with Invitations(ledger, federation) as invitations:
        return sum(invitation.is_open for invitation in invitations.all())


def _show(ledger: Path, own: ServerSettings, out: str, status: Any, *, json: bool) -> None:
    report = read_results(Path(own.out)) if own.out else None
    if json:
        facts = {"status": status.status, "run": status.run_id, "seconds": status.seconds}
        print_json({**facts, "out": own.out or None, "results": results_document(report) if report else None})
    elif report is not None:
        show_results(report)
        print_line(f"wrote {out}; open {Path(out) / 'report.html'} in a browser")
    else:
        print_line(f"the run completed; 'fedmoments status {ledger}' shows who took part")


def longest(settings: Any, mode: Any) -> float:
    """Return the seconds after which a run with these settings must be over; the helper is waited for, too."""
    exchanges = settings.rounds + settings.evaluate + mode.exchanges
    return float((1 + mode.has_helper) * settings.wait + exchanges * settings.deadline + SLACK)


@command("app", APP_EXAMPLE)
def app(
    folder: Annotated[Path, positional(help="Folder to write; files of the same name are replaced.")],
    *,
    json: Json = False,
) -> None:
    """Write a Flower app folder, to use 'flwr run' with your own SuperLink."""
    from fedmoments.federation.deploy.app_folder import write_app

    written = write_app(folder)
    if json:
        print_json({"app": str(written)})
        return
    print_line(f"wrote {written}: flwr run {written} CONNECTION -c \"server-config='/path/server.toml'\"")
