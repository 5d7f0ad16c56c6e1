"""``fedmoments helper``: be the second server of secure sums, which opens masks and sees no numbers."""

import time
from pathlib import Path
from typing import Annotated, Any

from fedmoments.cli.generate import command, positional, typed
from fedmoments.cli.given import Given, Taken
from fedmoments.cli.joining import Config, Joining, PlanOnly, TermsFile, keep_settings, read_terms
from fedmoments.cli.options import Json, example
from fedmoments.cli.output import fail, plural, print_json, print_line, print_table
from fedmoments.cli.places import existing_file
from fedmoments.errors import DeploymentError, InputError
from fedmoments.settings.helper import HelperSettings

__all__ = ["helper"]

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


@command("helper", EXAMPLE)
def helper(
    name: Annotated[str, positional(help="Name of the helper, as given to 'fedmoments keys helper'.")],
    settings: Annotated[Given[HelperSettings], Taken(file=True)],
    join: Annotated[Joining, Taken()],
    *,
    keys: Annotated[Path | None, typed(help="Folder with the helper's keys.", metavar="FOLDER")] = None,
    config: Config = None,
    terms: TermsFile = None,
    plan: PlanOnly = False,
    json: Json = False,
) -> None:
    """Run the helper of a federation: it adds up the masks of a batch of clients and sees no client's statistics.

    The helper must be another party than the server: whoever has both their files reads every client's numbers. It
    refuses sums over too few clients, and any report that it opened before. Never restore or delete its folder while
    its key is in use. It runs until the server closes the run, or longer with --stay.
    """
    agreed = read_terms(terms)
    path, own = _own(name, settings, keys, config, agreed)
    if plan:
        _show_plan(path, own, agreed, json=json)
        return
    join.require()
    answered = _serve(own, path, join, (keys or Path(own.key).parent) / f"{name}.node")
    if json:
        print_json({"helper": name, "federation": own.federation, "answered": answered, "folder": own.folder})
    else:
        print_line(f"{plural(answered, 'step')} answered; all that was ever opened is in {own.folder}/record.jsonl")


def _own(
    name: str, given: Given[HelperSettings], keys: Path | None, config: Path | None, terms: Any
) -> tuple[Path, HelperSettings]:
    """Return this helper's settings and their file, which is written unless one says all of them."""
    from fedmoments.federation.keys.helper import HelperKeys

    more = {} if keys is None else {"key": str(HelperKeys(keys, name).key)}
    if config is None:
        if keys is None or terms is None:
            raise InputError("a helper needs --keys FOLDER and --terms FILE, or --config FILE that says both")
        more |= {"folder": given.values.get("folder", name), "federation": terms.id}
    own = given.build(**more)
    for card in own.members:
        existing_file(Path(card))
    if terms is not None:
        _check(own, terms)
    if config is not None and not given.values and keys is None:
        return config.resolve(), own
    return keep_settings(own, own.folder, "helper.toml"), own


def _check(settings: HelperSettings, terms: Any) -> None:
    """Refuse a key, cards or terms that cannot be used here, not in the log of a node."""
    from fedmoments.federation.flower.helper import HelperNode
    from fedmoments.federation.keys.parties import read_card

    HelperNode(settings).require(terms)
    for card in settings.members:
        read_card(card)


def _show_plan(path: Path, settings: HelperSettings, terms: Any, *, json: bool) -> None:
    if terms is None:
        raise InputError("--plan shows what the terms of a federation ask of the helper: give --terms FILE with it")
    least = max(settings.minimum, terms.privacy.batch)
    if json:
        facts = {"minimum": least, "members": len(settings.members), "privacy": terms.privacy.to_dict()}
        print_json({"settings": str(path), "federation": terms.id, "key": terms.privacy.helper, **facts})
        return
    known = plural(len(settings.members), "client") + " whose cards are here" if settings.members else "anybody"
    shown = {"federation": terms.name, "id": terms.id, **terms.privacy.mode.rows()}
    shown |= {"this helper opens": f"sums over {least} clients or more", "reports are taken of": known}
    print_table(["what", "value"], [[what, value] for what, value in shown.items()])
    if not settings.members:
        print_line("note: with --anybody, a server that makes up clients can see the numbers of one that is real")
    print_line(f"wrote {path}; nothing was opened")


def _serve(own: HelperSettings, path: Path, join: Joining, key: Path) -> int:
    """Run the helper's node until the server needs it no more; return how many steps it answered."""
    from fedmoments.cli.federation_runs import tell

    place = Path(own.folder)
    before = _answered(place)
    secrets = [Path(own.key).parent]
    node = join.node(place, {"helper-config": str(path.resolve())}, key, secrets=secrets, remembers=True, name="helper")
    try:
        tell(f"connecting to {join.server}")
        node.start()
        tell(f"connected to {join.server}; waiting to be asked")
        with join.showing(lambda: _numbers(place, node)):
            _stay(place, node, stay=join.stay, timeout=join.timeout)
    except DeploymentError as error:
        fail(str(error))
    finally:
        node.stop()
    return _answered(place) - before


def _stay(place: Path, node: Any, *, stay: bool, timeout: float | None) -> None:
    """Return when the server has closed the run, or time is over."""
    from fedmoments.federation.flower.helper import FINISHED

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


def _numbers(place: Path, node: Any) -> tuple[dict[str, Any], str]:
    """Return what a monitor gets of a helper, and what is wrong."""
    connected = node.alive and node.node_id is not None
    numbers = {
        "fedmoments_connected": ("gauge", connected),
        "fedmoments_steps_answered_total": ("counter", _answered(place)),
    }
    return numbers, "" if connected else "it is not connected to the server"


def _answered(place: Path) -> int:
    """Return how many steps the record tells of."""
    record = place / "record.jsonl"
    return record.read_bytes().count(b'"answered"') if record.exists() else 0
