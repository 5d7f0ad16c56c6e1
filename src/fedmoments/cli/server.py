"""``fedmoments server``: create a federation, enrol its clients, run it.

What commands that serve a run share: certificates, following it to its end, stopping it when it must not go on.
"""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from fedmoments.cli.federation_runs import (
    check_served,
    default_heads,
    fail_run,
    follow,
    read_results,
    results_document,
    show_results,
    tell,
    why,
)
from fedmoments.cli.generate import command, positional, typed
from fedmoments.cli.given import Given, Taken
from fedmoments.cli.ledger import Ledger, open_ledger
from fedmoments.cli.options import Json, example
from fedmoments.cli.output import plural, print_json, print_line
from fedmoments.cli.places import existing_file, results_folder
from fedmoments.cli.server_create import CREATE, class_names
from fedmoments.errors import DeploymentError, InputError
from fedmoments.settings.server import ServerSettings

__all__ = [
    "SLACK",
    "Home",
    "Host",
    "Insecure",
    "Keys",
    "Port",
    "RunTimeout",
    "amend",
    "app",
    "authority_of",
    "enrol",
    "lifetime",
    "longest",
    "revoke",
    "run",
    "serve_run",
]


Keys = Annotated[Path | None, typed(help="Folder that 'fedmoments keys server' filled.", metavar="FOLDER")]
Host = Annotated[str, typed(help="Address to listen at; 0.0.0.0 for all of this machine.")]
Port = Annotated[int, typed(help="Port to listen at.")]
Home = Annotated[
    Path | None,
    typed(help="Folder for Flower's state and logs; LEDGER.flower by default.", metavar="FOLDER", group="Server"),
]
RunTimeout = Annotated[
    float | None,
    typed(help="Seconds until it is given up; all waits together by default.", metavar="SECONDS", group="Server"),
]
Insecure = Annotated[
    bool, typed("--insecure", help="Without certificates, on this machine only: for trials.", group="Server")
]

#: Seconds that a run may take beyond its own waits: starting processes, fitting, writing.
SLACK = 300.0


def authority_of(keys: Path | None, *, insecure: bool) -> Any:
    """Return the certificates that a folder holds; None for a trial on this machine.

    Parameters
    ----------
    keys
        The folder that ``fedmoments keys server`` filled.
    insecure
        Whether to do without.
    """
    from fedmoments.federation.keys.expiry import require_valid
    from fedmoments.federation.keys.parties import Authority

    if insecure == (keys is not None):
        raise InputError(
            "say how clients know the server: --keys FOLDER with the certificates that 'fedmoments keys server' made, "
            "or --insecure for a trial on this machine"
        )
    if keys is None:
        return None
    authority = Authority(keys.resolve())
    for path in (authority.root, authority.certificate, authority.key):
        existing_file(path)
    for path, what in ((authority.root, "the root certificate"), (authority.certificate, "the server's certificate")):
        for note in require_valid(path, what):
            tell(f"warning: {note}")
    return authority


def lifetime(given: Given[Any]) -> dict[str, float]:
    """Return how long messages live where only the deadline was typed: half as long again.

    Parameters
    ----------
    given
        What was typed of a server's settings.
    """
    typed_alone = "deadline" in given.values and "ttl" not in given.values
    return {"ttl": 1.5 * given.values["deadline"]} if typed_alone else {}


def serve_run(settings: Any, home: Path, timeout: float, *, authority: Any, host: str, port: int) -> Any:
    """Serve until the run is over, and return its status.

    Parameters
    ----------
    settings
        The server's.
    home
        Folder for Flower's state and logs.
    timeout
        Seconds.
    authority, host, port
        Certificates, or None; where to listen.
    """
    from fedmoments.federation.deploy.home import FlowerHome
    from fedmoments.federation.deploy.serving import serve

    with serve(settings, FlowerHome(home), authority=authority, host=host, port=port) as server:
        tell(f"serving at {server.link.address}, {'with TLS' if authority else 'without TLS'}; Ctrl-C stops it")
        return _finish(server, timeout)


def _finish(server: Any, timeout: float) -> Any:
    """Run to the end; a run that does not complete is stopped, and ends the command with exit code 1."""
    try:
        server.submit()
        status = follow(server, timeout)
    except DeploymentError as error:
        _stop(server)
        fail_run(str(error), server.settings.ledger)
    except KeyboardInterrupt:
        _stop(server)
        tell("interrupted; what was taken in stays in the ledger")
        raise
    if not status.succeeded:
        fail_run(why(server.log(), status.status, status.details), server.settings.ledger)
    return status


def _stop(server: Any) -> None:
    """Stop a run that is not over, so that the next start does not find it in the SuperLink's state."""
    from contextlib import suppress

    if server.run_id is not None and server.link.alive:
        with suppress(DeploymentError):
            server.link.control.stop_run(server.run_id, timeout=20.0)


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
    """Let clients contribute, each with the keys on its card; a new key needs the signature of the old one."""
    from fedmoments.federation.keys.parties import read_card
    from fedmoments.federation.keys.rotation import rotation_of

    read = [read_card(existing_file(path)) for path in cards]
    rotations = [rotation for rotation in map(rotation_of, cards) if rotation is not None]
    with open_ledger(ledger) as store:
        known = {member.client for member in store.enrolled()}
        for rotation in rotations:
            if rotation.client in known:
                store.rotate(rotation)
        store.enrol_many([(card.name, card.identity, card.node_key) for card in read])
        enrolled = store.status().enrolled
    if json:
        print_json({"enrolled": [card.name for card in read], "in_all": enrolled})
        return
    print_line(f"enrolled {', '.join(card.name for card in read)}; {plural(enrolled, 'client')} in all")
    print_line("a server that is running already admits them from its next start on")


@command("revoke", REVOKE_EXAMPLE)
def revoke(
    ledger: Ledger,
    client: Annotated[str, positional(help="Whose key was lost, or who is no longer welcome.")],
    *,
    json: Json = False,
) -> None:
    """Let a client contribute no more, for good."""
    with open_ledger(ledger) as store:
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
        str, typed(help="Classes that are new: a file with one a line, or names with commas.", metavar="FILE|NAME,…")
    ],
    *,
    json: Json = False,
) -> None:
    """Add classes to the terms, signed. What parties sent stays; those that accept the terms may send the new ones.

    Write a comma behind a single name.
    """
    from fedmoments.files import write_whole

    public = ledger.with_name(f"{ledger.name}.terms.json")
    with open_ledger(ledger) as store:
        terms = store.amend(class_names(classes))
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
            help={"heads": "Names, separated by commas; fedcof, or all that the terms serve, by default."},
            file=True,
        ),
    ],
    *,
    keys: Keys = None,
    host: Host = "127.0.0.1",
    port: Port = 9092,
    home: Home = None,
    timeout: RunTimeout = None,
    insecure: Insecure = False,
    json: Json = False,
) -> None:
    """Serve a federation until its run is over: collect contributions, fit heads, let clients test them.

    Exit code 0 only if the run completed. What was taken in stays in the ledger, whatever happens.
    """
    from fedmoments.extras import require

    require("flwr", "A server of a federation", "flower")
    authority = authority_of(keys, insecure=insecure)
    own, mode = _checked(ledger, settings)
    place = home or ledger.with_name(f"{ledger.name}.flower")
    status = serve_run(own, place, timeout or longest(own, mode), authority=authority, host=host, port=port)
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
        members = sum(member.status == "enrolled" for member in store.enrolled())
        mode = store.terms.privacy.mode
    if own.quorum > max(members, ServerSettings.quorum):
        raise InputError(
            f"--quorum {own.quorum} cannot be reached: {plural(members, 'client')} may contribute; enrol more"
        )
    return own, mode


def _show(ledger: Path, own: ServerSettings, out: str, status: Any, *, json: bool) -> None:
    report = read_results(Path(own.out)) if own.out else None
    if json:
        facts = {"status": status.status, "run": status.run_id, "seconds": status.seconds}
        print_json({**facts, "out": own.out or None, "results": results_document(report) if report else None})
    elif report is not None:
        show_results(report)
        print_line(f"wrote {out}; open {Path(out) / 'report.html'} in a browser")
    else:
        print_line(f"the run completed; 'fedmoments status {ledger}' says who is in")


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
    """Write a ready Flower app folder, for those who use 'flwr run' with a SuperLink of their own."""
    from fedmoments.federation.deploy.app_folder import write_app

    written = write_app(folder)
    if json:
        print_json({"app": str(written)})
        return
    print_line(f"wrote {written}: flwr run {written} CONNECTION -c \"server-config='/path/server.toml'\"")
