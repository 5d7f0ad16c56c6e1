"""``fedmoments server invite``: one file a party, which is all that it needs to take part."""

from pathlib import Path
from typing import Annotated, Any

from fedmoments.cli.generate import command, positional, typed
from fedmoments.cli.given import Given, Taken
from fedmoments.cli.ledger import Ledger, open_ledger
from fedmoments.cli.options import Json, example
from fedmoments.cli.output import print_json, print_line
from fedmoments.cli.places import existing_file, writable_place
from fedmoments.cli.server_create import CREATE
from fedmoments.errors import InputError
from fedmoments.settings.policy import PolicyRules

__all__ = ["invite"]

EXAMPLE = example(
    CREATE, "fedmoments keys server keys --host fed.example.org", "fedmoments server invite trial.ledger clinic lab"
)
#: Rules that an operator may propose: those of which stricter and looser can be told.
PROPOSED = ("min_count", "max_per_class", "max_bytes", "max_means", "max_epsilon", "require_secure", "max_heads")


@command("invite", EXAMPLE)
def invite(
    ledger: Ledger,
    clients: Annotated[list[str], positional(help="Names of parties; NAME.kit is written for each.", metavar="NAME")],
    policy: Annotated[Given[PolicyRules], Taken(only=PROPOSED)],
    *,
    keys: Annotated[Path, typed(help="Folder that 'fedmoments keys server' wrote.", metavar="FOLDER", common=1)] = Path(
        "keys"
    ),
    server: Annotated[
        str | None,
        typed(
            help="Where parties reach the server.",
            metavar="HOST[:PORT]",
            shown="the first name in its certificate, port 9092",
            common=2,
        ),
    ] = None,
    desk: Annotated[
        int | None,
        typed(help="Port where parties enrol, as in 'server run'.", metavar="PORT", shown="the port after", common=3),
    ] = None,
    days: Annotated[float, typed(help="Days until an invitation expires.", common=4)] = 14.0,
    out: Annotated[Path, typed("-o", help="Folder for the kits.", metavar="FOLDER", common=5)] = Path(),
    json: Json = False,
) -> None:
    """Write a start-up kit for each party: terms, certificate, address, and a token that admits it once.

    The party types only 'fedmoments client NAME.kit --data DATA'. Send each kit to its party alone: whoever uses the
    token first is that party. Inviting a name again makes its former kit void. Rules given here are proposed to the
    party, which may make its own stricter or looser; rules looser than the built-in ones cannot be proposed.
    """
    from fedmoments.federation.enrolment.invitations import Invitations
    from fedmoments.federation.enrolment.kit import KIT, Kit, check_stricter
    from fedmoments.federation.keys.cards import check_name
    from fedmoments.federation.keys.parties import Authority
    from fedmoments.files import write_whole

    check_stricter(policy.values)
    certificate = existing_file(Authority(keys).root).read_text("ascii")
    address, port = _address(server, Authority(keys).certificate)
    out.mkdir(parents=True, exist_ok=True)
    files = {}
    for client in clients:
        check_name(client, "client")
        files[client] = writable_place(out / f"{client}{KIT}")
    with open_ledger(ledger) as store:
        _require_new(store, clients)
        with Invitations(ledger, store.terms.id) as invitations:
            for client, path in files.items():
                token, expires = invitations.invite(client, days=days)
                kit = Kit(
                    client, f"{address}:{port}", f"{address}:{desk or port + 1}", certificate, store.terms, token,
                    expires, policy.values,
                )  # fmt: skip
                write_whole(path, kit.to_bytes())
                path.chmod(0o600)
                store.note("invited", client=client, expires=expires)
    if json:
        print_json({"kits": {client: str(path) for client, path in files.items()}, "expires": expires})
        return
    print_line(f"wrote {', '.join(map(str, files.values()))}, good until {expires}")
    print_line("send each to its party alone; there: fedmoments client NAME.kit --data DATA")
    print_line(f"they reach the server at {address}:{port}, and enrol at port {desk or port + 1} while it runs")


def _address(server: str | None, certificate: Path) -> tuple[str, int]:
    """Return host and port of the server: what was typed, or the first name of its certificate that others can use."""
    from fedmoments.federation.keys.certificates import hosts_of

    hosts = hosts_of(existing_file(certificate))
    if server is None:
        return hosts[0], 9092
    host, colon, digits = server.rpartition(":") if not server.endswith("]") else (server, "", "")
    host, port = (host, digits) if colon else (server, "9092")
    if not port.isdigit() or not 0 < int(port) < 65535:
        raise InputError(f"--server is typed as HOST or HOST:PORT, not '{server}'")
    if host.strip("[]") not in hosts:
        raise InputError(
            f"the server's certificate is for {', '.join(hosts)}, which no party would believe at {host}: name one "
            "of these, or make certificates with --host"
        )
    return host, int(port)


def _require_new(store: Any, clients: list[str]) -> None:
    known = {member.client: member.status for member in store.enrolled()}
    taken = [f"{client} ({known[client]})" for client in clients if client in known]
    if taken:
        raise InputError(f"{', '.join(taken)}: a client that is known needs no kit; choose another name")
