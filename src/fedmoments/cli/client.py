"""``fedmoments client`` (take part in a federation) and ``fedmoments rejoin`` (after having left one)."""

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from fedmoments.cli.client_plan import show_plan
from fedmoments.cli.command import PlainCommand
from fedmoments.cli.options import (
    BatchSize,
    Cache,
    Device,
    Domains,
    ImageColumn,
    Json,
    LabelColumn,
    Runtime,
    Strict,
    TestFile,
    TestShare,
    TextColumn,
    Threads,
    example,
    existing_file,
    listed,
)
from fedmoments.cli.output import fail, print_json, print_line
from fedmoments.errors import InputError

__all__ = ["client_command", "refused_key", "rejoin_command", "require_server"]

CREATE = "fedmoments server create trial.ledger --name trial --data runs/demo/digits.npz"
KEYS = "fedmoments keys client keys --name clinic"
OWN = "fedmoments client clinic --keys keys --data runs/demo/digits.npz --min-count 5"
PLAN = f"{OWN} --plan --terms trial.ledger.terms.json"
EXAMPLE = example(CREATE, KEYS, PLAN)
REJOIN_EXAMPLE = example(CREATE, KEYS, PLAN, "fedmoments rejoin clinic")
#: Seconds for which a client tries to reach a server that may start later.
JOIN = 600.0
#: Seconds for which a refused key is tried again: a server that has just begun may still be registering keys.
PATIENCE = 120.0


def client_command(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command("client", cls=PlainCommand, short_help="Take part in a federation.", epilog=EXAMPLE)(_client)


def rejoin_command(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command("rejoin", cls=PlainCommand, short_help="Contribute again after leaving.", epilog=REJOIN_EXAMPLE)(
        _rejoin
    )


def _client(
    name: Annotated[str, typer.Argument(help="This client, as it is enrolled.")],
    *,
    server: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Where the server listens.")] = None,
    ca: Annotated[Path | None, typer.Option(help="The server's ca.crt.")] = None,
    keys: Annotated[Path | None, typer.Option(help="Folder with this client's keys.")] = None,
    data: Annotated[str | None, typer.Option(help="digits, folder:PATH, csv:PATH, npz:PATH … or a path.")] = None,
    text: TextColumn = None,
    image: ImageColumn = None,
    label: LabelColumn = None,
    domains: Domains = None,
    test: TestFile = None,
    test_share: TestShare = None,
    strict: Strict = None,
    seed: Annotated[int | None, typer.Option(help="Chooses the samples to test on.")] = None,
    part: Annotated[
        str | None, typer.Option(metavar="I/N", help="For trials: only the I-th of N random parts of the data.")
    ] = None,
    folder: Annotated[
        Path | None, typer.Option(help="Where contributions, receipts and the record are kept; ./NAME by default.")
    ] = None,
    min_count: Annotated[
        int | None, typer.Option(help="Withhold a class with fewer samples; 5. To send small classes, say 1.")
    ] = None,
    small_classes: Annotated[
        str | None, typer.Option(help="withhold, or merge: thin means of a class become one mean.")
    ] = None,
    obfuscate: Annotated[
        str | None,
        typer.Option(metavar="KIND:E", help="Blur counts: uniform, gaussian or laplace, 0 < E < 1, as laplace:0.5."),
    ] = None,
    max_per_class: Annotated[int | None, typer.Option(help="Measure only the first so many of a class.")] = None,
    max_bytes: Annotated[int | None, typer.Option(help="Send no contribution with more bytes.")] = None,
    allow: Annotated[str | None, typer.Option(metavar="MOMENT,…", help="Let only these moments out.")] = None,
    max_means: Annotated[int | None, typer.Option(help="Let a class be split into at most so many means.")] = None,
    require_secure: Annotated[
        bool, typer.Option("--require-secure", help="Take part only where sums are secure: nobody reads what is sent.")
    ] = False,
    max_epsilon: Annotated[
        float | None, typer.Option(help="Take part only under differential privacy with an epsilon of at most this.")
    ] = None,
    helper: Annotated[
        Path | None, typer.Option(help="Card of the helper that you know: take part only in secure sums through it.")
    ] = None,
    allow_tuning: Annotated[
        str | None,
        typer.Option(
            metavar="STAGE",
            help="Let a head (lp), an encoder (feat) or both (ft) be trained here; nothing by default: updates reveal "
            "more than moments.",
        ),
    ] = None,
    max_rounds: Annotated[int | None, typer.Option(help="Train in at most so many rounds of this federation.")] = None,
    runtime: Runtime = None,
    device: Device = None,
    threads: Threads = None,
    batch_size: BatchSize = None,
    cache: Cache = None,
    no_evaluate: Annotated[bool, typer.Option("--no-evaluate", help="Test no head on data of this client.")] = False,
    config: Annotated[
        Path | None, typer.Option(help="A client.toml, instead of the options on data and rules.")
    ] = None,
    terms: Annotated[
        Path | None, typer.Option(help="The federation's terms, as read: no server gets an answer under others.")
    ] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Write client.toml and show what would be sent; nothing leaves.")
    ] = False,
    stay: Annotated[bool, typer.Option("--stay", help="Stay for later runs; Ctrl-C ends it.")] = False,
    timeout: Annotated[float | None, typer.Option(help="Seconds until it is given up; never by default.")] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Without certificates, on this machine only: for trials.")
    ] = False,
    json: Json = False,
) -> None:
    """Take part in a federation: measure own data, send moments once, stay until the server has acknowledged them.

    The rules (--min-count …) are this client's own: samples that they keep back are never measured. The same
    contribution is sent, byte for byte, however often the command is started again. Nothing is trained here unless
    --allow-tuning says so. What left, and what it reveals, stands in record.jsonl.
    Look with --plan first; then --server HOST:PORT and --ca ca.crt lead to the server.
    """
    policy = {"min_count": min_count, "max_per_class": max_per_class, "max_bytes": max_bytes, "max_means": max_means}
    policy |= {"small_classes": small_classes, "obfuscate": obfuscate}  # type: ignore[dict-item]
    policy |= {"require_secure": require_secure or None, "max_epsilon": max_epsilon}  # type: ignore[dict-item]
    policy |= {"tuning": allow_tuning, "max_rounds": max_rounds}  # type: ignore[dict-item]
    policy |= {"helper": _helper_key(helper) if helper else None}  # type: ignore[dict-item]
    policy |= {"moments": listed(allow, str, "--allow") if allow else None}  # type: ignore[dict-item]
    typed: dict[str, Any] = {"data": data, "text": text, "image": image, "label": label, "domains": domains}
    typed |= {"test": test, "test_share": test_share, "strict": strict, "seed": seed, "runtime": runtime}
    typed |= {
        "device": device,
        "threads": threads,
        "batch_size": batch_size,
        "evaluate": False if no_evaluate else None,
    }
    typed |= {"cache": None if cache is None else str(cache.resolve()), "policy": _given(policy) or None}
    if plan and terms is None:
        raise InputError("--plan shows what the terms of a federation ask for: give --terms FILE with it")
    agreed = None if terms is None else _read_terms(terms)
    if config is None:
        typed |= {"federation": agreed.id if agreed else None}
    if not plan:
        require_server(server, ca, insecure=insecure)
        if agreed is None and config is None:
            raise InputError(
                "say which terms you read: --terms FILE, the federation's; no server is answered on others"
            )
    typed |= _part(part) if part else {}
    path, settings = _settings(name, _given(typed), keys, folder, config)
    if agreed and settings.federation != agreed.id and not (plan and not settings.federation):
        raise InputError(f'{path} is not bound to these terms: write federation = "{agreed.id}" into it')
    if plan:
        show_plan(path, settings, agreed, json=json)
        return
    key = None if insecure else (keys or Path(settings.keys)) / f"{name}.node"
    outcome = _take_part(settings, path, str(server), ca, key, stay=stay, timeout=timeout)
    if json:
        print_json({"client": name, "acknowledged": outcome.good, **outcome.document()})
    else:
        outcome.show()
    if not outcome.good:
        fail(outcome.sentence)


def _helper_key(card: Path) -> str:
    from fedmoments.deploy.helper_keys import read_helper_card

    return read_helper_card(existing_file(card)).key


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


# -------------------------------------------------------------------------------------------------- settings


def _settings(
    name: str, typed: dict[str, Any], keys: Path | None, folder: Path | None, config: Path | None
) -> tuple[Path, Any]:
    """Return the settings file of this client, written from what was typed unless one was given, and its content."""
    from fedmoments.files import write_whole
    from fedmoments.flower.settings import ClientSettings, absolute_data

    if config is not None:
        if typed or folder:
            raise InputError(f"{config} says all about data, rules and folder: leave out the options that say it too")
        settings = ClientSettings.load(existing_file(config))
        if settings.name not in ("", name):
            raise InputError(f"{config} is of client '{settings.name}', not of '{name}'")
        if not settings.folder:
            raise InputError(f"{config} names no folder, so that nothing would be kept until it is acknowledged")
        _require_own(settings)
        return config.resolve(), settings
    if keys is None or "data" not in typed:
        raise InputError("a client needs --keys FOLDER and --data DATA, or --config FILE that names both")
    place = (folder or Path(name)).resolve()
    for option in ("data", "test"):
        if option in typed:
            typed[option] = absolute_data(typed[option], Path.cwd())
    settings = ClientSettings(folder=str(place), name=name, keys=str(keys.resolve()), **typed)
    _require_own(settings)
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = place / "client.toml"
    write_whole(path, settings.to_toml().encode())
    return path, settings


def _part(text: str) -> dict[str, Any]:
    """Return the settings of a client that plays one part of a data set.

    Examples
    --------
    >>> _part("2/3")
    {'split': 'iid', 'clients': 3, 'partitions': (1,)}
    """
    match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise InputError(f"--part is typed as I/N, from 1/N to N/N, but '{text}' arrived")
    return {"split": "iid", "clients": int(match[2]), "partitions": (int(match[1]) - 1,)}


def _require_own(settings: Any) -> None:
    """Refuse keys and data that cannot be used here, not in the log of a node."""
    from fedmoments.deploy.keys import load_identity
    from fedmoments.jobs.encoding import read_data

    if settings.name and settings.keys:
        load_identity(Path(settings.keys) / f"{settings.name}.identity")
    read_data(settings.job("", {}))


def _read_terms(path: Path) -> Any:
    from fedmoments.federation.terms import Terms

    return Terms.from_json(existing_file(path).read_text("utf-8", errors="replace"))


# -------------------------------------------------------------------------------------------------- taking part


def require_server(server: str | None, ca: Path | None, *, insecure: bool) -> None:
    """Refuse an address or a certificate that cannot lead to a server."""
    from fedmoments.extras import require

    require("flwr", "A client of a federation", "flower")
    if server is None or not re.fullmatch(r".+:\d{1,5}", server):
        raise InputError(f"say where the server listens: --server HOST:PORT{f', not {server!r}' if server else ''}")
    if insecure == (ca is not None):
        raise InputError("say how to know the server: --ca FILE, its ca.crt, or --insecure for a trial on this machine")
    if ca is not None:
        existing_file(ca)


def refused_key(_: str) -> None:
    """Tell why a key may be refused, and that it is tried again."""
    from fedmoments.cli.federation_runs import tell

    tell(
        "the server does not know this client's key (hand its .card to the operator, who enrols it and starts the "
        "server again), is still registering keys, or believes that this client is there already; trying again"
    )


def _take_part(
    settings: Any, path: Path, server: str, ca: Path | None, key: Path | None, *, stay: bool, timeout: float | None
) -> Any:
    """Run a node until the server needs it no more, and return what became of it."""
    from fedmoments.cli.client_watch import ClientWatch
    from fedmoments.deploy.home import FlowerHome
    from fedmoments.deploy.nodes import SuperNode

    place = Path(settings.folder)
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    node = SuperNode(
        FlowerHome(place / "flower"),
        server,
        root_certificates=ca,
        key=key,
        config={"client-config": str(path)},
        timeout=timeout or JOIN,
        patience=min(PATIENCE, timeout or JOIN),
        on_refused=refused_key,
    )
    return ClientWatch(place, node).run(stay=stay, timeout=timeout)


# -------------------------------------------------------------------------------------------------- rejoin


def _rejoin(
    folder: Annotated[Path, typer.Argument(help="Where the client keeps its contributions (./NAME).")],
    *,
    json: Json = False,
) -> None:
    """Give the next contribution a fresh version: a federation that was left takes no version that it had before."""
    from fedmoments.federation.outbox import Outbox

    if not folder.is_dir():
        raise InputError(f"{folder} is no client's folder: there is none")
    found = []
    if (folder / "outbox.db").is_file():
        with Outbox(folder) as outbox:
            for federation, client in outbox.federations():
                newest = outbox.newest(federation, client)
                if newest is not None:
                    outbox.rejoin(federation, client, above=newest.version)
                    found.append({"federation": federation, "client": client, "next_version": newest.version + 1})
    if json:
        print_json(found)
        return
    for each in found:
        print_line(
            f"the next contribution of {each['client']} to {str(each['federation'])[:12]}… has version "
            f"{each['next_version']}: start 'fedmoments client' again"
        )
    if not found:
        print_line(f"nothing was contributed from {folder} yet: there is nothing to rejoin")
