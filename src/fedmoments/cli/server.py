"""``fedmoments server``: create a federation, enrol its clients, run it."""

from pathlib import Path
from typing import Annotated, Any

import typer

from fedmoments.cli.command import PlainCommand, PlainGroup
from fedmoments.cli.federation_runs import check_served, default_heads, read_results, show_results, tell
from fedmoments.cli.ledger import Ledger, open_ledger
from fedmoments.cli.options import Json, Set, example, existing_file, hyper_of_heads, listed, results_folder
from fedmoments.cli.output import plural, print_json, print_line
from fedmoments.cli.privacy_options import MaxClientSamples, Robust
from fedmoments.cli.server_create import create
from fedmoments.cli.server_runs import SLACK, authority_of, finish
from fedmoments.cli.server_tune import tune
from fedmoments.errors import InputError

__all__ = ["longest", "server_commands"]

CREATE = "fedmoments server create trial.ledger --name trial --data runs/demo/digits.npz --heads fedcof,fed3r"
ENROL = "fedmoments server enrol trial.ledger keys/clinic.card"
CLIENT_KEYS = "fedmoments keys client keys --name clinic"
SECURE = "fedmoments server create secure.ledger --name secure --data runs/demo/digits.npz --heads fed3r --secure sums"
CREATE_EXAMPLE = example(
    "fedmoments keys helper keys --name notary", f"{SECURE} --helper keys/notary.helper.card", CREATE
)
ENROL_EXAMPLE = example(CREATE, CLIENT_KEYS, ENROL)
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
TUNE_EXAMPLE = example(
    CREATE,
    "fedmoments keys server keys --host fed.example.org",
    CLIENT_KEYS,
    ENROL,
    "fedmoments server run trial.ledger --keys keys --host 0.0.0.0",
    "fedmoments server tune trial.ledger --keys keys --host 0.0.0.0 --start fedcof --stage lp --rounds 20 --lr 0.1 "
    "--out tuned",
).replace(
    "Example, after 'fedmoments demo':",
    "Example, after 'fedmoments demo'; it waits for 'fedmoments client … --allow-tuning lp' elsewhere:",
)
APP_EXAMPLE = example("fedmoments server app flower-app")


def server_commands(app: typer.Typer) -> None:
    """Add the commands to the app."""
    group = typer.Typer(cls=PlainGroup, no_args_is_help=True, rich_markup_mode=None)
    commands = (
        ("create", "Draw up terms and make a ledger.", CREATE_EXAMPLE, create),
        ("enrol", "Let clients contribute.", ENROL_EXAMPLE, _enrol),
        ("revoke", "Let a client contribute no more.", REVOKE_EXAMPLE, _revoke),
        ("run", "Collect contributions and fit heads.", RUN_EXAMPLE, _run),
        ("tune", "Probe or fine-tune with the clients.", TUNE_EXAMPLE, tune),
        ("app", "Write a Flower app folder.", APP_EXAMPLE, _app),
    )
    for name, short, epilog, function in commands:
        group.command(name, cls=PlainCommand, short_help=short, epilog=epilog)(function)
    short = "Create a federation, enrol clients, run it."
    app.add_typer(group, name="server", short_help=short, help=short)


# -------------------------------------------------------------------------------------------------- clients


def _enrol(
    ledger: Ledger,
    cards: Annotated[list[Path], typer.Argument(help="Cards that clients handed in (NAME.card).")],
    *,
    json: Json = False,
) -> None:
    """Let clients contribute, each with the keys on its card."""
    from fedmoments.deploy.keys import read_card

    read = [read_card(existing_file(path)) for path in cards]
    with open_ledger(ledger) as store:
        store.enrol_many([(card.name, card.identity, card.node_key) for card in read])
        enrolled = store.status().enrolled
    if json:
        print_json({"enrolled": [card.name for card in read], "in_all": enrolled})
        return
    print_line(f"enrolled {', '.join(card.name for card in read)}; {plural(enrolled, 'client')} in all")
    print_line("a server that is running already admits them from its next start on")


def _revoke(
    ledger: Ledger,
    client: Annotated[str, typer.Argument(help="Whose key was lost, or who is no longer welcome.")],
    *,
    json: Json = False,
) -> None:
    """Let a client contribute no more, for good."""
    with open_ledger(ledger) as store:
        store.revoke(client)
        present = client in {each.client for each in store.status().contributors}
    if json:
        print_json({"revoked": client, "contribution_stays": present})
        return
    print_line(f"client {client} contributes no more")
    if present:
        print_line(f"what it contributed stays: 'fedmoments leave {ledger} {client}' takes it out")


# -------------------------------------------------------------------------------------------------- run


def _run(
    ledger: Ledger,
    *,
    keys: Annotated[Path | None, typer.Option(help="Folder that 'fedmoments keys server' filled.")] = None,
    host: Annotated[str, typer.Option(help="Address to listen at; 0.0.0.0 for all of this machine.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen at.")] = 9092,
    heads: Annotated[
        str | None, typer.Option(help="Names, separated by commas; fedcof, or all that the terms serve, by default.")
    ] = None,
    settings: Set = None,
    quorum: Annotated[int | None, typer.Option(help="Clients that must be in before heads are fitted; 1.")] = None,
    nodes: Annotated[int | None, typer.Option(help="Client nodes to wait for before the first round; 1.")] = None,
    wait: Annotated[float | None, typer.Option(help="For how many seconds to wait for them; 120.")] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds of collection; 1.")] = None,
    per_round: Annotated[int | None, typer.Option(help="Nodes asked in each; all that are not done.")] = None,
    deadline: Annotated[float | None, typer.Option(help="Seconds until a round is closed; 600.")] = None,
    ttl: Annotated[float | None, typer.Option(help="Seconds that a message lives; 1.5 times the deadline.")] = None,
    fit_each_round: Annotated[bool, typer.Option("--fit-each-round", help="Fit heads after every round.")] = False,
    no_evaluate: Annotated[bool, typer.Option("--no-evaluate", help="Do not ask clients to test the heads.")] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Ask also for what was acknowledged before, after a restore.")
    ] = False,
    robust: Robust = None,
    max_client_samples: MaxClientSamples = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for classifiers, federation.json and report.html.")
    ] = None,
    home: Annotated[
        Path | None, typer.Option(help="Folder for Flower's state and logs; LEDGER.flower by default.")
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(help="Seconds until it is given up; all waits together by default.")
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Without certificates, on this machine only: for trials.")
    ] = False,
    json: Json = False,
) -> None:
    """Serve a federation until its run is over: collect contributions, fit heads, let clients test them.

    Exit code 0 only if the run completed. What was taken in stays in the ledger, whatever happens.
    """
    from fedmoments.deploy.home import FlowerHome
    from fedmoments.deploy.serving import serve
    from fedmoments.extras import require
    from fedmoments.federation.results import require_filterable
    from fedmoments.flower.settings import ServerSettings

    require("flwr", "A server of a federation", "flower")
    authority = authority_of(keys, insecure=insecure)
    if out is not None:
        results_folder(out)
    hyper = hyper_of_heads(settings or [])
    with open_ledger(ledger) as store:
        chosen = tuple(listed(heads, str, "--heads")) if heads else default_heads(store)
        check_served(store.terms, chosen, hyper)
        require_filterable(store.terms, robust or "", max_client_samples or 0)
        secure = store.terms.privacy.secure
        members = sum(each.status == "enrolled" for each in store.enrolled())
    if quorum is not None and quorum > members:
        raise InputError(f"--quorum {quorum} cannot be reached: {plural(members, 'client')} may contribute; enrol more")
    typed: dict[str, Any] = {"quorum": quorum, "nodes": nodes, "wait": wait, "rounds": rounds, "per_round": per_round}
    typed |= {"deadline": deadline, "ttl": ttl if ttl or not deadline else 1.5 * deadline}
    typed |= {"robust": robust, "max_client_samples": max_client_samples}
    given: dict[str, Any] = {key: value for key, value in typed.items() if value is not None}
    given |= {"fit_each_round": fit_each_round, "evaluate": not no_evaluate, "again": again}
    chosen_out = "" if out is None else str(out.resolve())
    plan = ServerSettings(str(ledger.resolve()), chosen_out, chosen, hyper, **given)
    place = FlowerHome(home or ledger.with_name(f"{ledger.name}.flower"))
    with serve(plan, place, authority=authority, host=host, port=port) as server:
        tell(f"serving at {server.link.address}, {'with TLS' if authority else 'without TLS'}; Ctrl-C stops it")
        status = finish(server, timeout or longest(plan, secure))
    found = {"status": status.status, "run": status.run_id, "seconds": status.seconds}
    results = read_results(out) if out else None
    if json:
        print_json({**found, "out": chosen_out or None, "results": results})
    elif results is not None:
        show_results(results)
        print_line(f"wrote {out}; open {Path(str(out)) / 'report.html'} in a browser")
    else:
        print_line(f"the run completed; 'fedmoments status {ledger}' says who is in")


def longest(settings: Any, secure: str | None = None) -> float:
    """Return the seconds after which a run with these settings must be over; the helper is waited for, too."""
    steps = {None: 0, "two-phase": 2}.get(secure, 1)
    waits = 2 if secure else 1
    return float(waits * settings.wait + (settings.rounds + settings.evaluate + steps) * settings.deadline + SLACK)


def _app(
    folder: Annotated[Path, typer.Argument(help="Folder to write; files of the same name are replaced.")],
    *,
    json: Json = False,
) -> None:
    """Write a ready Flower app folder, for those who use 'flwr run' with a SuperLink of their own."""
    from fedmoments.deploy.app_folder import write_app

    written = write_app(folder)
    if json:
        print_json({"app": str(written)})
        return
    print_line(f"wrote {written}: flwr run {written} CONNECTION -c \"server-config='/path/server.toml'\"")
