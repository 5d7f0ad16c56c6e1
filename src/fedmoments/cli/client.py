"""``fedmoments client`` (take part in a federation) and ``fedmoments rejoin`` (after having left one).

What ``fedmoments client --plan`` shows: all that would be sent, measured and signed, but kept here.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from fedmoments.cli.client_changes import Changes, bound_to, changed_settings, require_part, withdraws
from fedmoments.cli.generate import command, positional, typed
from fedmoments.cli.given import Given, Taken
from fedmoments.cli.joining import Config, Joining, PlanOnly, TermsFile, keep_settings, read_terms
from fedmoments.cli.ledger import withheld_text
from fedmoments.cli.options import Json, example
from fedmoments.cli.output import SHOWN, fail, plural, print_json, print_line, print_table, readable_bytes
from fedmoments.errors import FedMomentsError, InputError
from fedmoments.settings.client import ClientSettings
from fedmoments.settings.policy import PolicyRules

__all__ = ["client", "rejoin", "show_plan"]


#: Classes that are listed.


def show_plan(path: Path, settings: ClientSettings, terms: Any, *, json: bool) -> None:
    """Measure and sign as if the server had asked, keep nothing, and show what it would get."""
    from fedmoments.federation.own_data import accepted_terms, read_own
    from fedmoments.federation.policy import ClientPolicy

    policy = ClientPolicy.from_dict(settings.policy)
    sent = _signed(settings, terms, policy)
    if not json:
        _show(path, settings, terms, policy, sent)
        return
    contributions = [
        {
            "client": contribution.client,
            "bytes": _size(contribution, terms),
            "samples": contribution.statistics.n_samples,
            "classes": _held(contribution, terms),
            "withheld": {"classes": contribution.withheld.classes, "samples": contribution.withheld.samples},
        }
        for contribution in sent
    ]
    document = {"settings": str(path), "federation": terms.id, "moments": list(terms.spec.sent)}
    document["unknown"] = read_own(settings, accepted_terms(settings, terms).classes)[2]
    document["tuning"] = "none" if terms.privacy.mode.promise else policy.tuning
    print_json({**document, "contributions": contributions})


def _signed(settings: ClientSettings, terms: Any, policy: Any) -> list[Any]:
    """Return the contributions that would be sent."""
    from fedmoments.federation.flower.node import Node, identity_of
    from fedmoments.wire import decode, unpack_bundle

    unsent = replace(settings, folder="", memory=settings.memory or settings.folder)
    own, clear = _unmasked(unsent, terms, policy)
    offer = Node(own).contribute(clear, most_bytes=2**62)
    if offer.declined:
        fail(" ".join(f"client {entry['client']} would send nothing: {entry['details']}" for entry in offer.declined))
    return [
        decode(item, clear.agreement, lambda client: identity_of(settings, client).public)
        for item in unpack_bundle(offer.bundle, max_bytes=2**62, max_items=2**20)
    ]


def _held(contribution: Any, terms: Any) -> dict[str, int]:
    """Return how many samples of each class it would tell of."""
    stats = contribution.statistics
    return {terms.classes[label]: int(n) for label, n in zip(stats.classes, stats.class_counts)}  # noqa: B905


def _show(path: Path, settings: ClientSettings, terms: Any, policy: Any, sent: list[Any]) -> None:
    from fedmoments.cli.server_create import show_terms
    from fedmoments.federation.own_data import accepted_terms, read_own

    show_terms(terms)
    for contribution in sent:
        _show_contribution(contribution, terms)
    data, _, unknown = read_own(settings, accepted_terms(settings, terms).classes)
    if unknown:
        print_line(f"left out, as the federation does not have them: {_counted(unknown)}; their names stay here")
    held_out = len(data.test)
    if held_out and settings.evaluate:
        print_line(_testing_text(policy, terms, held_out))
    print_line(_tuning_text(policy, terms))
    print_line(f"wrote {path}; nothing left this machine")
    print_line(f"'fedmoments audit --config {path} --terms FILE' says what it would reveal")


def _counted(classes: Mapping[str, int]) -> str:
    """Return classes with their numbers of samples.

    Examples
    --------
    >>> _counted({"yak": 3, "emu": 1})
    'yak (3 samples), emu (1 sample)'
    """
    named = [f"{name} ({plural(n, 'sample')})" for name, n in list(classes.items())[:SHOWN]]
    return ", ".join(named) + (f" and {len(classes) - SHOWN:,} more classes" if len(classes) > SHOWN else "")


def _show_contribution(contribution: Any, terms: Any) -> None:
    held, samples = _held(contribution, terms), contribution.statistics.n_samples
    print_line(
        f"\n{contribution.client} would send {readable_bytes(_size(contribution, terms))}"
        f"{terms.privacy.mode.masks}: {terms.spec} of {plural(samples, 'sample')} of {plural(len(held), 'class')}; "
        f"withheld: {withheld_text(contribution.withheld.classes, contribution.withheld.samples)}"
    )
    print_table(["class", "samples"], [[name, f"{n:,}"] for name, n in list(held.items())[:SHOWN]], right=["samples"])
    if len(held) > SHOWN:
        print_line(f"… and {len(held) - SHOWN:,} more classes")
    if not samples:
        print_line("it would contribute nothing: the rules keep everything back, or there is no sample")


def _testing_text(policy: Any, terms: Any, held_out: int) -> str:
    """Return in one sentence what would leave of held-out samples.

    Examples
    --------
    >>> from types import SimpleNamespace as Some
    >>> from fedmoments.privacy import Agreed
    >>> _testing_text(Some(allow_evaluation=False, max_heads=20), Some(privacy=Agreed(epsilon=1.0)), 9)
    'nothing of 9 further samples, held out to test, would leave: under an epsilon of 1.0 that takes --allow-evaluation'
    """
    mode, samples = terms.privacy.mode, plural(held_out, "further sample")
    if mode.promise and not policy.allow_evaluation:
        return (
            f"nothing of {samples}, held out to test, would leave: under {mode.promise} that takes --allow-evaluation"
        )
    form = "noised sums" if mode.noise.is_on else "coarse sums"
    return (
        f"of {samples}, held out to test, {form} of results would leave{mode.masks}, of at most "
        f"{plural(policy.max_heads, 'head')} in all"
    )


def _tuning_text(policy: Any, terms: Any) -> str:
    """Return in one sentence what may be trained on this client's samples.

    Examples
    --------
    >>> from types import SimpleNamespace as Some
    >>> from fedmoments.privacy import Agreed
    >>> _tuning_text(Some(tuning="none", max_rounds=None), Some(privacy=Agreed()))
    'no model would be trained on its samples: that takes --allow-tuning'
    """
    if terms.privacy.mode.promise:
        return "no model would be trained on its samples: the terms' promise rules it out"
    if policy.tuning == "none":
        return "no model would be trained on its samples: that takes --allow-tuning"
    what = {"lp": "a head", "feat": "a head or an encoder", "ft": "a head, an encoder or both"}[policy.tuning]
    rounds = "" if policy.max_rounds is None else f", in at most {plural(policy.max_rounds, 'round')}"
    return (
        f"if the server asks, {what} would be trained on the samples that are not withheld{rounds}; every round then "
        "sends parameters, which reveal more of single samples than moments do"
    )


def _unmasked(settings: ClientSettings, terms: Any, policy: Any) -> tuple[ClientSettings, Any]:
    """Return settings and terms under which this client would measure the same and send it in the clear, to itself.

    Its policy is asked about the true terms first.
    """
    if terms.privacy.mode.reads_contributions:
        return settings, terms
    try:
        policy.require(terms)
    except FedMomentsError as error:
        fail(f"client {settings.name} would send nothing: {error}")
    clear = replace(terms, privacy=terms.privacy.mode.unmasked)
    rules = {name: rule for name, rule in settings.policy.items() if name not in ("require_secure", "helper")}
    return replace(settings, policy=rules, federation=clear.id if settings.federation else ""), clear


def _size(contribution: Any, terms: Any) -> int:
    """Return the bytes that would leave: a masked report has places for all classes, held or not."""
    return int(terms.privacy.mode.cost(terms, clear=contribution.size).up)


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
    *,
    part: Annotated[
        str | None,
        typed(metavar="I/N", help="For trials: only the I-th of N random parts of the data.", group="Data"),
    ] = None,
    accept_terms: Annotated[
        Path | None,
        typed(
            help="Terms that were amended since this client began: take part under them from now on.", metavar="FILE"
        ),
    ] = None,
    add: Annotated[
        list[str] | None,
        typed(help="Data to measure from now on; once for each.", metavar="DATA", group="Data"),
    ] = None,
    forget: Annotated[
        Path | None,
        typed(help="File with a sample a line, a path or a name, that are as if they were not there.", group="Data"),
    ] = None,
    withdraw: Annotated[
        bool, typed("--withdraw", help="Let the server take out all that this client sent, by its signed word.")
    ] = False,
    config: Config = None,
    terms: TermsFile = None,
    plan: PlanOnly = False,
    yes: Annotated[bool, typed("--yes", help="With a kit: consent to its plan without being asked.")] = False,
    json: Json = False,
) -> None:
    """Take part in a federation: measure own data, send moments once, stay until the server has acknowledged them.

    With a kit, 'fedmoments client NAME.kit --data DATA' does all of it: it makes this client's keys, shows what would
    be sent, asks for consent, enrols and contributes. Without one, the operator enrols the card of its keys.
    The rules (--min-count …) are this client's own: samples that they keep back are never measured. The same
    contribution is sent, byte for byte, however often the command is started again. Nothing is trained here unless
    --allow-tuning says so. What left, and what it reveals, stands in record.jsonl.
    Look with --plan first; then --server HOST:PORT and --ca ca.crt lead to the server.

    A client that took part before may change: --add, --forget, --accept-terms, --withdraw. Its settings are in
    NAME/client.toml then, or where --config says. Without --server, what changed is sent at the next start.
    """
    settings = settings.also(**(_part(part) if part else {}))
    if name.endswith(KIT):
        _with_kit(Path(name), settings, join, plan=plan, yes=yes, json=json, more=(config, terms))
        return
    changes = Changes(accept_terms, tuple(add or ()), forget, withdraw=withdraw)
    if changes:
        config = config or changed_settings(name, settings)
        settings = changes.over(settings, config)
        if join.server is None and not plan:
            own = settings.build()
            keep_settings(own, own.folder, config.name)
            if withdraw:
                withdraws(own)
            return
    agreed = read_terms(terms or accept_terms)
    if not plan:
        join.require()
    if agreed is None:
        _require_terms_elsewhere(config, plan=plan)
    path, own = _own(name, settings, config, agreed)
    if agreed and not _is_bound(own, agreed) and not (plan and not own.federation):
        raise InputError(
            f"{path} is not bound to these terms: accept them with --accept-terms FILE, or begin in another folder"
        )
    if plan:
        show_plan(path, own, agreed, json=json)
    elif not withdraw or withdraws(own):
        require_part(own)
        _take_part(own, path, join, json=json)


def _with_kit(
    file: Path, settings: Given[ClientSettings], join: Joining, *, plan: bool, yes: bool, json: bool, more: Any
) -> None:
    """Take part with a start-up kit: unpack it, show the plan, ask, enrol, contribute."""
    from fedmoments.cli.client_kit import unpack

    if any(more) or settings.values.get("keys"):
        raise InputError("a kit brings terms and makes its own keys: leave --config, --terms and --keys out")
    if "data" not in settings.values:
        raise InputError(f"say what to measure: fedmoments client {file} --data DATA")
    kit = unpack(file, settings.values.get("folder"), join)
    path, own = _own(kit.name, settings.also(**kit.values(settings.values)), None, kit.terms)
    if not (yes and json and not plan):
        show_plan(path, own, kit.terms, json=json)
    if plan:
        return
    kit.consent(yes=yes)
    kit.join.require()
    kit.enrol(join.timeout)
    _take_part(own, path, kit.join, json=json)


def _require_terms_elsewhere(config: Path | None, *, plan: bool) -> None:
    """Refuse to go on without --terms: a plan needs them, and only a settings file may be bound to some already."""
    if plan:
        raise InputError("--plan shows what the terms of a federation ask for: give --terms FILE with it")
    if config is None:
        raise InputError("say which terms you read: --terms FILE, the federation's; no server is answered on others")


def _own(name: str, given: Given[ClientSettings], config: Path | None, terms: Any) -> tuple[Path, ClientSettings]:
    """Return this client's settings and their file, which is written unless one says all of them."""
    if config is None:
        if not {"keys", "data"}.issubset(given.values):
            raise InputError("a client needs --keys FOLDER and --data DATA, or --config FILE that names both")
        bound = {} if terms is None else bound_to(terms)
        own = given.build(name=name, folder=given.values.get("folder", name), **bound)
    else:
        own = given.build()
        if own.name not in ("", name):
            raise InputError(f"{config} is of client '{own.name}', not of '{name}'")
        if not own.folder:
            raise InputError(f"{config} names no folder, so that nothing would be kept until it is acknowledged")
    _require_own(own, terms)
    if config is not None and not given.values:
        return config.resolve(), own
    return keep_settings(own, own.folder, "client.toml"), own


def _is_bound(own: ClientSettings, terms: Any) -> bool:
    """Say whether a client read these terms; those that it read before classes were added are enough."""
    return own.federation == terms.id and (own.accepted or terms.id) in {stage.digest for stage in terms.stages}


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


def _require_own(settings: ClientSettings, terms: Any) -> None:
    """Refuse keys and data that cannot be used here, not in the log of a node."""
    from fedmoments.federation.keys.parties import load_identity
    from fedmoments.federation.own_data import accepted_terms, read_own
    from fedmoments.federation.policy import ClientPolicy
    from fedmoments.samples.reading import read_data

    if settings.name and settings.keys:
        load_identity(Path(settings.keys) / f"{settings.name}.identity")
    if terms is None:
        read_data(settings)
    else:
        read_own(settings, accepted_terms(settings, terms).classes)
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
        outcome = watch.run(stay=join.stay, timeout=join.timeout)
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
    """Give the next contribution a fresh version: a federation that was left takes no version that it had before."""
    from fedmoments.federation.outbox import Outbox

    if not folder.is_dir():
        raise InputError(f"{folder} is no client's folder: there is none")
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
