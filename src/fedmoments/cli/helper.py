"""``fedmoments helper``: be the second server of secure sums, which opens masks and sees no numbers."""

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from fedmoments.cli.agreements import privacy_rows
from fedmoments.cli.command import PlainCommand
from fedmoments.cli.options import Json, example, existing_file
from fedmoments.cli.output import fail, plural, print_json, print_line, print_table
from fedmoments.errors import DeploymentError, InputError

__all__ = ["helper_command"]

KEYS = "fedmoments keys helper keys --name notary"
CREATE = (
    "fedmoments server create masked.ledger --name masked --data runs/demo/digits.npz --heads fed3r --secure sums "
    "--helper keys/notary.helper.card"
)
CLIENT = "fedmoments keys client keys --name ward"
PLAN = "fedmoments helper notary --keys keys --terms masked.ledger.terms.json --member keys/ward.card --plan"
EXAMPLE = example(KEYS, CREATE, CLIENT, PLAN)
#: Seconds between two looks, and that a node stays after the run was closed: its last reply must have been fetched.
LOOK, SETTLE = 0.5, 5.0


def helper_command(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command("helper", cls=PlainCommand, short_help="Open masks for secure sums.", epilog=EXAMPLE)(_helper)


def _helper(
    name: Annotated[str, typer.Argument(help="The helper, as 'fedmoments keys helper' named it.")],
    *,
    server: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Where the server listens.")] = None,
    ca: Annotated[Path | None, typer.Option(help="The server's ca.crt.")] = None,
    keys: Annotated[Path | None, typer.Option(help="Folder with the helper's keys.")] = None,
    terms: Annotated[Path | None, typer.Option(help="The federation's terms, as read: no others are answered.")] = None,
    folder: Annotated[
        Path | None, typer.Option(help="Where the memory of what was opened is kept, for ever; ./NAME by default.")
    ] = None,
    minimum: Annotated[int, typer.Option(min=2, help="Open no sum over fewer clients, whatever the terms say.")] = 3,
    member: Annotated[
        list[Path] | None,
        typer.Option(help="Card of a client that you know to be real; may be repeated. Others are refused."),
    ] = None,
    anybody: Annotated[
        bool,
        typer.Option("--anybody", help="Instead of cards, for trials: a server that makes up clients can see one."),
    ] = False,
    config: Annotated[Path | None, typer.Option(help="A helper.toml, instead of the options above.")] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Write helper.toml and show what would be answered; nothing is.")
    ] = False,
    stay: Annotated[bool, typer.Option("--stay", help="Stay for later runs; Ctrl-C ends it.")] = False,
    timeout: Annotated[float | None, typer.Option(help="Seconds until it is given up; never by default.")] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Without certificates, on this machine only: for trials.")
    ] = False,
    json: Json = False,
) -> None:
    """Be the helper of a federation: add up the masks of a batch of clients, each report once, and never see a number.

    The helper must be another party than the server: whoever has both their files reads every client's numbers. It
    refuses sums over too few clients, and everything that it opened before. Never restore or delete its folder while
    its key is in use. It stays until the server closes the run, or with --stay.
    """
    path, settings = _settings(
        name, keys, terms, folder=folder, minimum=minimum, members=member or [], anybody=anybody, config=config
    )
    agreed = _require(settings, terms)
    if plan:
        _show_plan(path, settings, agreed, json=json)
        return
    from fedmoments.cli.client import require_server

    require_server(server, ca, insecure=insecure)
    key = None if insecure else (keys or Path(settings.key).parent) / f"{name}.node"
    answered = _serve(settings, path, str(server), ca, key, stay=stay, timeout=timeout)
    if json:
        print_json({"helper": name, "federation": settings.federation, "answered": answered, "folder": settings.folder})
    else:
        print_line(
            f"{plural(answered, 'step')} answered; all that was ever opened is in {settings.folder}/record.jsonl"
        )


def _settings(
    name: str,
    keys: Path | None,
    terms: Path | None,
    *,
    folder: Path | None,
    minimum: int,
    members: list[Path],
    anybody: bool,
    config: Path | None,
) -> tuple[Path, Any]:
    """Return the settings file of this helper, written from what was typed unless one was given, and its content."""
    from fedmoments.deploy.helper_keys import HelperKeys
    from fedmoments.federation.terms import Terms
    from fedmoments.files import write_whole
    from fedmoments.flower.helper import HelperSettings

    if config is not None:
        if keys or folder or members or anybody:
            raise InputError(f"{config} says all about keys, folder and members: leave out the options that say it too")
        return config.resolve(), HelperSettings.load(existing_file(config))
    if keys is None or terms is None:
        raise InputError("a helper needs --keys FOLDER and --terms FILE, or --config FILE that says both")
    read = Terms.from_json(existing_file(terms).read_text("utf-8", errors="replace"))
    place = (folder or Path(name)).resolve()
    settings = HelperSettings(
        str(place),
        str(HelperKeys(keys.resolve(), name).key),
        read.id,
        minimum,
        tuple(str(existing_file(card).resolve()) for card in members),
        anybody,
    )
    _check(settings, read)
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = place / "helper.toml"
    write_whole(path, settings.to_toml().encode())
    return path, settings


def _check(settings: Any, terms: Any) -> None:
    """Refuse a key, cards or terms that cannot be used here, not in the log of a node."""
    from fedmoments.deploy.keys import read_card
    from fedmoments.flower.helper import HelperNode

    HelperNode(settings).require(terms)
    for card in settings.members:
        read_card(card)


def _require(settings: Any, terms: Path | None) -> Any:
    """Return the terms, if they were given, once they are known to be those of the settings."""
    from fedmoments.federation.terms import Terms

    if terms is None:
        return None
    read = Terms.from_json(existing_file(terms).read_text("utf-8", errors="replace"))
    _check(settings, read)
    return read


def _show_plan(path: Path, settings: Any, terms: Any, *, json: bool) -> None:
    if terms is None:
        raise InputError("--plan shows what the terms of a federation ask of the helper: give --terms FILE with it")
    least = max(settings.minimum, terms.privacy.batch)
    if json:
        facts = {"minimum": least, "members": len(settings.members), "privacy": terms.privacy.to_dict()}
        print_json({"settings": str(path), "federation": terms.id, "key": terms.privacy.helper, **facts})
        return
    known = plural(len(settings.members), "client") + " whose cards are here" if settings.members else "anybody"
    shown = {"federation": terms.name, "id": terms.id, **privacy_rows(terms)}
    shown |= {"this helper opens": f"sums over {least} clients or more", "reports are taken of": known}
    print_table(["what", "value"], [[what, value] for what, value in shown.items()])
    if not settings.members:
        print_line("note: with --anybody, a server that makes up clients can see the numbers of one that is real")
    print_line(f"wrote {path}; nothing was opened")


def _serve(
    settings: Any, path: Path, server: str, ca: Path | None, key: Path | None, *, stay: bool, timeout: float | None
) -> int:
    """Run the helper's node until the server needs it no more; return how many steps it answered."""
    from fedmoments.cli.client import JOIN, PATIENCE, refused_key
    from fedmoments.cli.federation_runs import tell
    from fedmoments.deploy.home import FlowerHome
    from fedmoments.deploy.nodes import SuperNode

    place = Path(settings.folder)
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    before = _answered(place)
    node = SuperNode(
        FlowerHome(place / "flower"),
        server,
        root_certificates=ca,
        key=key,
        config={"helper-config": str(path)},
        timeout=timeout or JOIN,
        patience=min(PATIENCE, timeout or JOIN),
        on_refused=refused_key,
        name="helper",
    )
    try:
        tell(f"connecting to {server}")
        node.start()
        tell(f"connected to {server} as node {node.node_id}; waiting to be asked")
        _stay(place, node, stay=stay, timeout=timeout)
    except DeploymentError as error:
        fail(str(error))
    finally:
        node.stop()
    return _answered(place) - before


def _stay(place: Path, node: Any, *, stay: bool, timeout: float | None) -> None:
    """Return when the server has closed the run, or time is over."""
    from fedmoments.flower.client_app import FINISHED

    finished = place / FINISHED
    finished.unlink(missing_ok=True)
    end = None if timeout is None else time.monotonic() + timeout
    closed: float | None = None
    while end is None or time.monotonic() < end:
        time.sleep(LOOK)
        node.check("it was waiting for the server")
        if not stay and finished.exists():
            closed = closed or time.monotonic()
            if time.monotonic() - closed > SETTLE:
                return


def _answered(place: Path) -> int:
    """Return how many steps the record tells of."""
    record = place / "record.jsonl"
    return record.read_bytes().count(b'"answered"') if record.exists() else 0
