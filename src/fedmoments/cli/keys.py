"""``fedmoments keys``: certificates for a server, keys for a client and for a helper. Made once, never overwritten."""

from pathlib import Path
from typing import Annotated, Any

from fedmoments.cli.generate import command, positional, typed
from fedmoments.cli.options import Json, example
from fedmoments.cli.output import print_json, print_line, print_table

__all__ = ["client", "helper", "renew", "rotate", "server"]

SERVER_EXAMPLE = example("fedmoments keys server keys --host fed.example.org --host 10.0.0.7")
CLIENT_EXAMPLE = example("fedmoments keys client keys --name clinic")
HELPER_EXAMPLE = example("fedmoments keys helper keys --name notary")
ROTATE_EXAMPLE = example("fedmoments keys client keys --name clinic", "fedmoments keys rotate keys --name clinic")
RENEW_EXAMPLE = example("fedmoments keys server keys --host fed.example.org", "fedmoments keys renew keys")

Passphrase = Annotated[
    Path | None,
    typed(metavar="FILE", help="Protect the secret key with the passphrase in this file, which only you can read."),
]


@command("server", SERVER_EXAMPLE)
def server(
    folder: Annotated[Path, positional(help="Folder for the files; created if missing.")],
    *,
    host: Annotated[
        list[str] | None,
        typed(
            help="Name or address under which clients reach the server; may be repeated. localhost and 127.0.0.1 are "
            "always among them."
        ),
    ] = None,
    days: Annotated[int, typed(help="Days that the certificates are valid.")] = 825,
    json: Json = False,
) -> None:
    """Make the certificates with which a server proves its identity to clients."""
    from fedmoments.federation.keys.parties import make_authority

    authority = make_authority(folder, host or [], days)
    files = {
        authority.root: ("public", "hand it to every client: it checks the server with it"),
        authority.certificate: ("public", "the server shows it"),
        authority.key: ("secret", "of the server; never leaves it"),
        authority.root_key: ("secret", "makes further certificates; keep it elsewhere, the server does not need it"),
    }
    _show(files, {"folder": str(folder), "hosts": host or [], "hand_over": [str(authority.root)]}, json=json)


@command("client", CLIENT_EXAMPLE)
def client(
    folder: Annotated[Path, positional(help="Folder for the files; created if missing.")],
    *,
    name: Annotated[str, typed(help="The client's name in the federation: letters, digits, '.', '_', '-'.")],
    passphrase_file: Passphrase = None,
    json: Json = False,
) -> None:
    """Make a client's two keys, and the card with which the operator enrols it."""
    from fedmoments.federation.keys.parties import make_client

    keys = make_client(folder, name, _passphrase(passphrase_file))
    files = {
        keys.card: ("public", "hand it to the server's operator, who enrols you with it"),
        keys.node_public: ("public", "is in the card"),
        keys.identity: ("secret", "signs what you send; anybody who has it can act in your name"),
        keys.node: ("secret", "opens the connection to the server"),
    }
    _show(files, {"folder": str(folder), "name": name, "hand_over": [str(keys.card)]}, json=json)
    if not json:
        print_line("ask the operator for the server's ca.crt, its address and the terms of the federation")


@command("helper", HELPER_EXAMPLE)
def helper(
    folder: Annotated[Path, positional(help="Folder for the files; created if missing.")],
    *,
    name: Annotated[str, typed(help="Name of the helper: letters, digits, '.', '_', '-'.")],
    passphrase_file: Passphrase = None,
    json: Json = False,
) -> None:
    """Make the keys of a helper, the second server of secure sums, which must be another party than the first.

    Its public key becomes part of the federation's terms, and every client encrypts for it.
    """
    from fedmoments.extras import require
    from fedmoments.federation.keys.helper import make_helper, read_helper_card

    require("cryptography", "Making keys", "privacy")
    keys = make_helper(folder, name, _passphrase(passphrase_file))
    files = {
        keys.card: ("public", "hand it to the server's operator, who draws up the terms with it, and to clients"),
        keys.node_public: ("public", "is in the card"),
        keys.key: (
            "secret",
            "opens masks; anybody who has it and the server's reports can read every client's numbers",
        ),
        keys.node: ("secret", "opens the connection to the server"),
    }
    key = read_helper_card(keys.card).key
    _show(files, {"folder": str(folder), "name": name, "key": key, "hand_over": [str(keys.card)]}, json=json)
    if not json:
        print_line(f"the key {key} is in the terms: clients compare it with the one that you give them yourself")


@command("rotate", ROTATE_EXAMPLE)
def rotate(
    folder: Annotated[Path, positional(help="Where the client's keys are.")],
    *,
    name: Annotated[str, typed(help="The client.")],
    passphrase_file: Passphrase = None,
    json: Json = False,
) -> None:
    """Make a new identity key for a client; the old one signs it, and the operator enrols the new card.

    Do not rotate a key that somebody else may have: ask the operator to revoke it.
    """
    from fedmoments.federation.keys.parties import ClientKeys
    from fedmoments.federation.keys.rotation import rotate_client

    former = rotate_client(folder, name, _passphrase(passphrase_file))
    keys = ClientKeys(folder, name)
    files = {
        keys.card: ("public", "hand it to the server's operator: 'fedmoments server enrol LEDGER CARD'"),
        keys.identity: ("secret", "the new key, which signs from now on"),
        former: ("secret", "the old key: delete it once the operator has enrolled the card"),
    }
    _show(files, {"folder": str(folder), "name": name, "hand_over": [str(keys.card)]}, json=json)


@command("renew", RENEW_EXAMPLE)
def renew(
    folder: Annotated[Path, positional(help="Where ca.key and the server's certificate are.")],
    *,
    days: Annotated[int, typed(help="Days that the new certificate is valid.")] = 825,
    json: Json = False,
) -> None:
    """Make a new server certificate before the old one expires; clients keep their ca.crt unless it expires, too."""
    from fedmoments.federation.keys.renewal import renew_server

    authority, end = renew_server(folder, days)
    document = {"certificate": str(authority.certificate), "valid_until": f"{end:%Y-%m-%d}"}
    if json:
        print_json(document)
        return
    print_line(f"wrote {authority.certificate}, valid until {end:%Y-%m-%d}: start the server again")


def _passphrase(path: Path | None) -> bytes | None:
    from fedmoments.federation.keys.files import read_passphrase

    return None if path is None else read_passphrase(path)


def _show(files: dict[Path, tuple[str, str]], document: dict[str, Any], *, json: bool) -> None:
    if json:
        kinds = {kind: [str(path) for path, (own, _) in files.items() if own == kind] for kind in ("public", "secret")}
        print_json({**document, **kinds})
        return
    print_table(["file", "", "what for"], [[str(path), kind, what] for path, (kind, what) in files.items()])
