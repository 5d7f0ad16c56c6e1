"""``fedmoments client`` (take part in a federation) and ``fedmoments rejoin`` (after having left one)."""

import re
from pathlib import Path
from typing import Annotated, Any

from fedmoments.cli.client_changes import Changes, bound_to, require_part
from fedmoments.cli.client_folder import ClientFolder
from fedmoments.cli.client_plan import show_plan
from fedmoments.cli.generate import command, positional, typed
from fedmoments.cli.given import Given, Taken
from fedmoments.cli.joining import Config, Joining, PlanOnly, TermsFile, read_terms
from fedmoments.cli.options import Json, example
from fedmoments.cli.output import fail, print_json, print_line
from fedmoments.errors import InputError
from fedmoments.settings.client import ClientSettings
from fedmoments.settings.policy import PolicyRules

__all__ = ["client", "rejoin"]

#: How the file of a kit is called.
KIT = ".kit"
CREATE = "fedmoments server create trial.ledger --name trial --data runs/demo/digits.npz"
KEYS = "fedmoments keys client keys --name clinic"
OWN = "fedmoments client clinic --keys keys --data runs/demo/digits.npz --min-count 5"
PLAN = f"{OWN} --plan --terms trial.ledger.terms.json"
EXAMPLE = example(CREATE, KEYS, PLAN)
REJOIN_EXAMPLE = example(CREATE, KEYS, PLAN, "fedmoments rejoin clinic")


@command("client", EXAMPLE)
def client(
    name: Annotated[str, positional(help="The kit that the operator sent (NAME.kit), or this client's name.")],
    settings: Annotated[
        Given[ClientSettings],
        Taken(
            without=("client", "domain", "policy.report_withheld", "policy.small_sketches"),
            help={"seed": "Chooses the samples to test on."},
            tables={"policy": (PolicyRules,)},
            file=True,
        ),
    ],
    join: Annotated[Joining, Taken()],
    changes: Annotated[Changes, Taken()],
    *,
    part: Annotated[
        str | None,
        typed(metavar="I/N", help="For trials: only the I-th of N random parts of the data.", group="Data"),
    ] = None,
    config: Config = None,
    terms: TermsFile = None,
    plan: PlanOnly = False,
    yes: Annotated[bool, typed("--yes", help="With a kit: consent to its plan without being asked.")] = False,
    json: Json = False,
) -> None:
    """Take part in a federation: measure own data, send moments once, stay until the server has acknowledged them.

    First look at the plan with --plan; then give --server HOST:PORT and --ca ca.crt to connect.

    With a kit, 'fedmoments client NAME.kit --data DATA' does all of it: it makes this client's keys, shows what would
    be sent, asks for consent, enrols and contributes. Without one, the operator enrols the card of its keys.
    The rules (--min-count …) are this client's own: samples that they withhold are never measured. Starting the command
    again sends the same contribution, byte for byte. Nothing is trained here unless --allow-tuning allows it.
    The file record.jsonl lists what left and what it reveals.

    A client that took part before starts again with its name alone: its folder has settings, terms and the way to the
    server. It may change: --add, --forget, --accept-terms, --withdraw. Without --server, changes are sent at the next
    start.
    """
    settings = settings.also(**_part(part))
    if name.endswith(KIT):
        _with_kit(Path(name), settings, join, plan=plan, yes=yes, json=json, more=(config, terms))
        return
    config, settings = changes.over(name, settings, config)
    if changes and join.server is None and not plan:
        changes.keep(settings.build(), config)
        return
    folder = _folder(name, settings)
    if config is None:
        settings = folder.over(settings)
    agreed = folder.terms(read_terms(terms or changes.accepted_file))
    if not plan:
        join = _way(folder, settings, join, withdraws=changes.withdraw)
    path, own = _bound(name, settings, config, agreed, plan=plan)
    if plan:
        show_plan(path, own, agreed, json=json)
    elif changes.leave_a_part(own):
        require_part(own)
        _take_part(own, path, join, json=json)


def _way(folder: ClientFolder, settings: Given[ClientSettings], join: Joining, *, withdraws: bool) -> Joining:
    """Return the way to the server, of a client that takes part or withdraws."""
    if settings.base is not None and not withdraws:
        require_part(settings.build())  # before an address is asked for
    join = folder.joining(join)
    join.require()
    return join


def _folder(name: str, settings: Given[ClientSettings]) -> ClientFolder:
    """Return the folder of a client: as it was typed, as a file says, or its name."""
    said = settings.base.folder if settings.base is not None else ""
    return ClientFolder(Path(settings.values.get("folder") or said or name))


def _with_kit(
    file: Path, settings: Given[ClientSettings], join: Joining, *, plan: bool, yes: bool, json: bool, more: Any
) -> None:
    """Take part with a start-up kit: unpack it, show the plan, ask, enrol, contribute."""
    from fedmoments.cli.client_kit import unpack

    if any(more) or settings.values.get("keys"):
        raise InputError("a kit brings terms and makes its own keys: leave --config, --terms and --keys out")
    kit = unpack(file, settings.values.get("folder"), join)
    folder = ClientFolder(kit.folder)
    if "data" not in settings.values and folder.settings_file is None:
        raise InputError(f"no data to measure: fedmoments client {file} --data DATA")
    terms = folder.terms(kit.terms)
    path, own = _own(kit.name, folder.over(settings.also(**kit.values(settings.values))), None, terms)
    if not (yes and json and not plan):
        show_plan(path, own, terms, json=json)
    if plan:
        return
    kit.consent(yes=yes)
    kit.join.require()
    kit.enrol(join.timeout)
    _take_part(own, path, kit.join, json=json)


def _require_terms_elsewhere(*, known: bool, plan: bool) -> None:
    """Refuse to go on without --terms: a plan needs them, and only a settings file may be bound to some already."""
    if plan:
        raise InputError("--plan shows what the terms of a federation ask for: give --terms FILE with it")
    if not known:
        raise InputError("give the federation's terms, --terms FILE: requests under other terms are declined")


def _bound(
    name: str, settings: Given[ClientSettings], config: Path | None, terms: Any, *, plan: bool
) -> tuple[Path, ClientSettings]:
    """Return this client's settings and their file, once they are bound to the terms that were read."""
    if terms is None:
        _require_terms_elsewhere(known=settings.base is not None, plan=plan)
    path, own = _own(name, settings, config, terms)
    if terms and not _is_bound(own, terms) and not (plan and not own.federation):
        raise InputError(
            f"{path} is not bound to these terms: accept them with --accept-terms FILE, or begin in another folder"
        )
    return path, own


def _own(name: str, given: Given[ClientSettings], config: Path | None, terms: Any) -> tuple[Path, ClientSettings]:
    """Return this client's settings and their file, which is written unless one says all of them."""
    if given.base is None:
        if not {"keys", "data"}.issubset(given.values):
            raise InputError("a client needs --keys FOLDER and --data DATA, or --config FILE that names both")
        bound = {} if terms is None else bound_to(terms)
        own = given.build(name=name, folder=given.values.get("folder", name), **bound)
    else:
        own, file = given.build(), config or Path(given.base.folder) / "client.toml"
        if own.name not in ("", name):
            raise InputError(f"{file} is of client '{own.name}', not of '{name}'")
        if not own.folder:
            raise InputError(f"{file} names no folder, so that nothing would be kept until it is acknowledged")
    _require_own(own, terms)
    if config is not None and not given.values:
        return config.resolve(), own
    return ClientFolder(Path(own.folder)).keep(own, terms), own


def _is_bound(own: ClientSettings, terms: Any) -> bool:
    """Say whether a client read these terms; those that it read before classes were added are enough."""
    return own.federation == terms.id and (own.accepted or terms.id) in {stage.digest for stage in terms.stages}


def _part(text: str | None) -> dict[str, Any]:
    """Return the settings of a client that plays one part of a data set; None: it plays all.

    Examples
    --------
    >>> _part("2/3")
    {'split': 'iid', 'clients': 3, 'partitions': (1,)}
    """
    if not text:
        return {}
    match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise InputError(f"--part is typed as I/N, from 1/N to N/N, but '{text}' arrived")
    return {"split": "iid", "clients": int(match[2]), "partitions": (int(match[1]) - 1,)}


def _require_own(settings: ClientSettings, terms: Any) -> None:
    """Refuse keys and data that cannot be used here, not in the log of a node."""
    from fedmoments.federation.keys.parties import load_identity
    from fedmoments.federation.own_data import accepted_terms, own_classes
    from fedmoments.federation.policy import ClientPolicy
    from fedmoments.samples.lakes.lake import LakeFiles
    from fedmoments.samples.reading import read_data

    if settings.name and settings.keys:
        load_identity(Path(settings.keys) / f"{settings.name}.identity")
    if terms is not None:
        own_classes(settings, accepted_terms(settings, terms))
    elif settings.by_file:
        LakeFiles(settings)
    else:
        read_data(settings)
    ClientPolicy.from_dict(settings.policy)


def _take_part(own: ClientSettings, path: Path, join: Joining, *, json: bool) -> None:
    """Run a node until the server needs it no more, and say what became of it."""
    from fedmoments.cli.client_watch import ClientWatch

    place = Path(own.folder)
    keys = Path(own.keys)
    samples = [path for path in own.files if path.exists()]
    config, key = {"client-config": str(path.resolve())}, keys / f"{own.name}.node"
    node = join.node(place, config, key, secrets=[keys], private=samples)
    watch = ClientWatch(place, node)
    with join.showing(watch.numbers):
        try:
            outcome = watch.run(stay=join.stay, timeout=join.timeout)
        finally:
            if node.node_id is not None:  # a wrong address is not kept
                ClientFolder(place).keep_way(join)
    if json:
        print_json({"client": own.name, "acknowledged": outcome.good, **outcome.document()})
    else:
        outcome.show()
    if not outcome.good:
        fail(outcome.sentence)


# -------------------------------------------------------------------------------------------------- rejoin


@command("rejoin", REJOIN_EXAMPLE)
def rejoin(
    folder: Annotated[Path, positional(help="Where the client keeps its contributions (./NAME).")],
    *,
    json: Json = False,
) -> None:
    """Let a client that left contribute again: give its next contribution a new version, as old ones are refused."""
    from fedmoments.federation.outbox import Outbox

    if not folder.is_dir():
        raise InputError(f"{folder} does not exist: give the folder of a client")
    rejoined = []
    if (folder / "outbox.db").is_file():
        with Outbox(folder) as outbox:
            for federation, client in outbox.federations():
                newest = outbox.newest(federation, client)
                if newest is not None:
                    outbox.rejoin(federation, client, above=newest.version)
                    rejoined.append({"federation": federation, "client": client, "next_version": newest.version + 1})
    if json:
        print_json(rejoined)
        return
    for entry in rejoined:
        print_line(
            f"the next contribution of {entry['client']} to {str(entry['federation'])[:12]}… has version "
            f"{entry['next_version']}: start 'fedmoments client' again"
        )
    if not rejoined:
        print_line(f"nothing was contributed from {folder} yet: there is nothing to rejoin")
