"""``fedmoments keys``: certificates for a server, keys for a client and for a helper. Made once, never overwritten."""

from pathlib import Path
from typing import Annotated, Any

import typer

from fedmoments.cli.command import PlainCommand, PlainGroup
from fedmoments.cli.options import Json, example
from fedmoments.cli.output import print_json, print_line, print_table

__all__ = ["keys_commands"]

SERVER_EXAMPLE = example("fedmoments keys server keys --host fed.example.org --host 10.0.0.7")
CLIENT_EXAMPLE = example("fedmoments keys client keys --name clinic")
HELPER_EXAMPLE = example("fedmoments keys helper keys --name notary")


def keys_commands(app: typer.Typer) -> None:
    """Add the commands to the app."""
    group = typer.Typer(cls=PlainGroup, no_args_is_help=True, rich_markup_mode=None)
    group.command("server", cls=PlainCommand, short_help="Certificates for a server.", epilog=SERVER_EXAMPLE)(_server)
    group.command("client", cls=PlainCommand, short_help="Keys for a client.", epilog=CLIENT_EXAMPLE)(_client)
    group.command("helper", cls=PlainCommand, short_help="Keys for a helper.", epilog=HELPER_EXAMPLE)(_helper)
    app.add_typer(group, name="keys", short_help="Make certificates and keys.", help="Make certificates and keys.")


def _server(
    folder: Annotated[Path, typer.Argument(help="Folder for the files; made if it is not there.")],
    *,
    host: Annotated[
        list[str] | None,
        typer.Option(
            help="Name or address under which clients reach the server; may be repeated. localhost and 127.0.0.1 are "
            "always among them."
        ),
    ] = None,
    days: Annotated[int, typer.Option(help="How long the certificates are valid.")] = 825,
    json: Json = False,
) -> None:
    """Make the certificates with which a server proves to clients that it is the one they mean."""
    from fedmoments.deploy.keys import make_authority

    made = make_authority(folder, host or [], days)
    files = {
        made.root: ("public", "hand it to every client: it checks the server with it"),
        made.certificate: ("public", "the server shows it"),
        made.key: ("secret", "of the server; never leaves it"),
        made.root_key: ("secret", "makes further certificates; keep it elsewhere, the server does not need it"),
    }
    _show(files, {"folder": str(folder), "hosts": host or [], "hand_over": [str(made.root)]}, json=json)


def _client(
    folder: Annotated[Path, typer.Argument(help="Folder for the files; made if it is not there.")],
    *,
    name: Annotated[str, typer.Option(help="The client's name in the federation: letters, digits, '.', '_', '-'.")],
    json: Json = False,
) -> None:
    """Make a client's two keys, and the card with which it asks to be enrolled."""
    from fedmoments.deploy.keys import make_client

    made = make_client(folder, name)
    files = {
        made.card: ("public", "hand it to the server's operator, who enrols you with it"),
        made.node_public: ("public", "stands in the card"),
        made.identity: ("secret", "signs what you send; whoever has it can speak for you"),
        made.node: ("secret", "opens the connection to the server"),
    }
    _show(files, {"folder": str(folder), "name": name, "hand_over": [str(made.card)]}, json=json)
    if not json:
        print_line("ask the operator for the server's ca.crt, its address and the terms of the federation")


def _helper(
    folder: Annotated[Path, typer.Argument(help="Folder for the files; made if it is not there.")],
    *,
    name: Annotated[str, typer.Option(help="What people call the helper: letters, digits, '.', '_', '-'.")],
    json: Json = False,
) -> None:
    """Make the keys of a helper, the second server of secure sums, which must be another party than the first.

    Its public key goes into the terms of a federation, and every client seals for it.
    """
    from fedmoments.deploy.helper_keys import make_helper, read_helper_card
    from fedmoments.extras import require

    require("cryptography", "Making keys", "privacy")
    made = make_helper(folder, name)
    files = {
        made.card: ("public", "hand it to the server's operator, who draws up the terms with it, and to clients"),
        made.node_public: ("public", "stands in the card"),
        made.key: ("secret", "opens masks; with the server's reports, whoever has it reads every client's numbers"),
        made.node: ("secret", "opens the connection to the server"),
    }
    key = read_helper_card(made.card).key
    _show(files, {"folder": str(folder), "name": name, "key": key, "hand_over": [str(made.card)]}, json=json)
    if not json:
        print_line(f"the key {key} stands in the terms: clients compare it with what you tell them yourself")


def _show(files: dict[Path, tuple[str, str]], document: dict[str, Any], *, json: bool) -> None:
    if json:
        kinds = {kind: [str(path) for path, (own, _) in files.items() if own == kind] for kind in ("public", "secret")}
        print_json({**document, **kinds})
        return
    print_table(["file", "", "what for"], [[str(path), kind, what] for path, (kind, what) in files.items()])
