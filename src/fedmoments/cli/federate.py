"""``fedmoments federate``: a whole federation on one machine, with the processes, keys and bytes of a real one."""

import shlex
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from fedmoments.cli.agreements import agreed_from
from fedmoments.cli.federation_runs import (
    RunLines,
    fail_run,
    follow,
    read_results,
    results_document,
    show_results,
    tell,
    why,
)
from fedmoments.cli.generate import command, typed
from fedmoments.cli.given import Given, Taken
from fedmoments.cli.options import OF_CREWS, Json, example
from fedmoments.cli.output import print_json, print_line
from fedmoments.cli.places import existing_file, results_folder
from fedmoments.cli.server import longest
from fedmoments.errors import DeploymentError, FedMomentsError, InputError
from fedmoments.privacy.protection import Agreed
from fedmoments.settings.policy import PolicyRules
from fedmoments.settings.server import ServerSettings, TermsSettings
from fedmoments.settings.study import StudySettings

if TYPE_CHECKING:
    from fedmoments.core.observations import Report

__all__ = ["federate"]

EXAMPLE = example("fedmoments federate --data runs/demo/digits.npz --local 3 --clients 12")
#: Settings of a study that a federation has none of, or that are its server's.
OF_SIMULATIONS = (
    "heads", "hyper", "shrinkages", "budget_curve", "participation", "privacy", "seeds", "memory_limit",
    *OF_CREWS,
)  # fmt: skip

#: Settings of a server that mean something on one machine.
OF_SERVER = ("heads", "hyper", "rounds", "per_round", "fit_each_round", "evaluate", "robust", "max_client_samples")

#: Maps of a federation's terms that a study has none of.
OF_MAPS = ("normalize", "fourier", "bandwidth")


#: What is studied, and how its server and its parties work: options that a federation on one machine takes of them.
Study = Annotated[
    Given[StudySettings],
    Taken(
        without=OF_SIMULATIONS,
        help={
            "clients": "Number of clients.",
            "splits": "One split; see 'fedmoments split --help'.",
            "means_per_client": "Means that a client sends per class.",
            "seed": "Seed of every random choice.",
        },
        file=True,
    ),
]
Maps = Annotated[
    Given[TermsSettings],
    Taken(
        only=OF_MAPS,
        help={
            "fourier": "Then map to D random Fourier features, for the head fed3r-rf.",
            "bandwidth": "Kernel width of --fourier, in feature units.",
        },
        file=True,
    ),
]
Policy = Annotated[
    Given[PolicyRules],
    Taken(
        only=("min_count", "sketch_spare"),
        help={
            "min_count": "Clients withhold classes with fewer samples; 1 sends every class. Noise that hides one "
            "sample requires 1 and defaults to it.",
            "sketch_spare": "Clients with fewer samples beyond one per class send no sketch rows.",
        },
        file=True,
    ),
]


@command("federate", EXAMPLE)
def federate(
    study: Study,
    server: Annotated[Given[ServerSettings], Taken(only=OF_SERVER, file=True)],
    privacy: Annotated[Given[Agreed], Taken(without=("helper",), file=True)],
    maps: Maps,
    policy: Policy,
    *,
    local: Annotated[
        int, typed(metavar="N", least=1, help="Node processes; each simulates some of the clients.", common=1)
    ],
    tls: Annotated[bool, typed("--tls/--no-tls", help="Use TLS certificates and node keys, as in deployment.")] = True,
    engine: Annotated[
        str,
        typed(help="flower: real processes; ray: Flower's own simulation; memory: one process, no network."),
    ] = "flower",
    alpha: Annotated[float | None, typed(help="0.5 is short for --split dirichlet:0.5.", group="Federation")] = None,
    after: Annotated[
        Path | None,
        typed(
            metavar="LEDGER",
            help="Run a second exchange in the Fisher directions of this ledger, which holds the first (--heads "
            "gh-qda).",
            group="Federation",
        ),
    ] = None,
    out: Annotated[Path, typed("--out", "-o", help="Folder for classifiers, federation.json and report.html.")] = Path(
        "runs/federation"
    ),
    keep: Annotated[
        Path | None,
        typed(
            help="Folder for ledger, keys and nodes; by default OUT/federation, then OUT/federation-2 …", group="Output"
        ),
    ] = None,
    timeout: Annotated[
        float | None, typed(help="Seconds after which the run is given up.", metavar="SECONDS", group="Output")
    ] = None,
    json: Json = False,
) -> None:
    """Run a whole federation on one machine: server, nodes, keys and bytes are those of a real one.

    The classifiers equal those of 'fedmoments simulate' with the same split, to the last bit, also with --secure sums;
    the command to compare with is printed. With --secure one more node is the helper.
    """
    from fedmoments.extras import require
    from fedmoments.federation.deploy.local import ENGINES
    from fedmoments.federation.drawing_up import usual_heads

    require("flwr", "A federation", "flower")
    if engine not in ENGINES:
        raise InputError(f"--engine must be one of {', '.join(ENGINES)}, not '{engine}'")
    study = _with_alpha(study, alpha)
    results_folder(out)
    place = keep or _fresh(out)
    _require_empty(place)
    agreed = agreed_from(privacy.values)
    own = server.build(ledger=str(place / "ledger.db"), out=str(out.resolve()))
    if own.heads == ServerSettings.heads and "heads" not in server.values:
        own = replace(own, heads=usual_heads(agreed, means_per_client=study.build().means_per_client[0]))
    rules = {"min_count": _least(policy, agreed), "sketch_spare": _spare(policy, own)}
    behind = maps.build()
    ways: dict[str, Any] = {"nodes": local, "engine": engine, "tls": tls, "maps": behind}
    first = None if after is None else existing_file(after)
    plan = _prepared(place, study, own, agreed, rules | _of_all_parties(own, agreed, behind), after=first, **ways)
    _run(plan, engine, tls=tls, timeout=timeout or longest(plan.server, agreed.mode))
    report = read_results(out)
    # a simulation with qda-exchange does both exchanges, but of no ledger that stands somewhere
    line = _simulation(study, server, privacy, own.heads, rules) if after is None and not maps.values else ""
    _show(report, plan, line, engine, complete=_is_complete(report, plan, agreed), json=json)


def _of_all_parties(own: ServerSettings, agreed: Agreed, behind: TermsSettings) -> dict[str, Any]:
    """Return what the policies allow of parties that are all the user's own."""
    # heads are tested whatever was promised, with noise for no more of them
    tests = {"allow_evaluation": True, "max_heads": max(len(own.heads), 1 if agreed.mode.noise.is_on else 20)}
    return {**tests, "maps": "any"} if behind.fourier else tests


def _is_complete(report: Any, plan: Any, agreed: Agreed) -> bool:
    """Say whether all clients took part, so that a simulation gives the same classifiers."""
    same = report.rows[0].setting.clients == plan.clients and agreed.mode.is_repeatable
    return bool(same and not (report.privacy is not None and report.privacy.dropped))


def _with_alpha(study: Given[StudySettings], alpha: float | None) -> Given[StudySettings]:
    """Return what was typed, with the split that ``--alpha`` is short for."""
    if alpha is None:
        return study
    if "splits" in study.values:
        raise InputError("--alpha is short for --split dirichlet:ALPHA: give one of them")
    return study.also(splits=[f"dirichlet:{alpha:g}"])


def _prepared(
    place: Path,
    study: Given[StudySettings],
    server: ServerSettings,
    agreed: Agreed,
    rules: dict[str, Any],
    *,
    engine: str,
    **ways: Any,
) -> Any:
    """Return the files of the federation, once everything can be run."""
    from fedmoments.federation.deploy.local import prepare_local
    from fedmoments.study.checks import check_study

    own = study.build(heads=server.heads, hyper=server.hyper, seeds=1)
    check_study(own)
    for name in ("clients", "splits", "means_per_client", "budgets"):
        if len(getattr(own, name)) > 1:
            raise InputError(f"a federation has one value of {name}, but {getattr(own, name)} arrived")
    plan = prepare_local(place, own, server, engine=engine, policy=rules, privacy=agreed, **ways)
    agreed.mode.check_clients(plan.clients)
    tell(f"{plan.clients:,} clients on {plan.nodes} nodes ({engine}); ledger {plan.server.ledger}")
    return plan


def _spare(policy: Given[PolicyRules], server: ServerSettings) -> int:
    """Return with how many spare samples clients send sketch rows: as typed, or as their policy has it by default."""
    from fedmoments.core.heads.choosing import choose_heads

    if "sketch_spare" in policy.values:
        return int(policy.values["sketch_spare"])
    sketches = any(head.needs.has_sketch for head in choose_heads(server.heads, server.hyper).values())
    return PolicyRules.sketch_spare if sketches else 0


def _least(policy: Given[PolicyRules], agreed: Agreed) -> int:
    """Return from how many samples on clients send a class: as typed, or what goes with the noise."""
    if "min_count" in policy.values:
        least = int(policy.values["min_count"])
        agreed.mode.noise.check_rules(min_count=least)
        return least
    if not agreed.mode.noise.hides_samples:
        return PolicyRules.min_count
    tell("clients send classes of any size (--min-count 1): noise hides one sample, a minimum count would move several")
    return 1


def _fresh(out: Path) -> Path:
    """Return a folder that is not there yet: ledgers and keys of earlier trials are never overwritten."""
    places = (out / ("federation" if number == 1 else f"federation-{number}") for number in count(1))
    return next(place for place in places if not place.exists())


def _require_empty(place: Path) -> None:
    if place.is_dir() and any(place.iterdir()):
        raise InputError(
            f"{place} holds a federation already, whose ledger and keys are never overwritten: choose another --keep"
        )


def _run(plan: Any, engine: str, *, tls: bool, timeout: float) -> None:
    """Run to the end, telling what happens; a run that does not complete ends the command with exit code 1."""
    from fedmoments.federation.deploy.local import run_local, started

    try:
        if engine == "memory":
            with redirect_stdout(RunLines()):
                run_local(plan, engine)
        elif engine == "ray":
            tell("Flower's simulation starts; this takes a while")
            RunLines().write(f"{run_local(plan, engine, timeout=timeout)}\n")
        else:
            with started(plan, tls=tls) as (server, nodes):
                tell(f"serving at {server.link.address}, {'with TLS' if tls else 'without TLS'}")
                server.submit()
                status = follow(server, timeout, nodes)
                if not status.succeeded:
                    raise DeploymentError(why(server.log(), status.status, status.details))
    except FedMomentsError as error:
        fail_run(str(error), plan.server.ledger)


def _simulation(
    study: Given[StudySettings],
    server: Given[ServerSettings],
    privacy: Given[Agreed],
    heads: Sequence[str],
    rules: Mapping[str, int],
) -> str:
    """Return the command that simulates the same split in one process."""
    from fedmoments.core.heads.choosing import map_rule_of

    arguments = ["fedmoments", "simulate", study.values.get("data", StudySettings.data), "--heads", ",".join(heads)]
    arguments += study.arguments(without=["data"]) + server.arguments(only=["hyper"])
    if not study.values.get("feature_map") and map_rule_of(heads) == "none":
        arguments += ["--map", "none"]  # all heads of a federation share an upload, and so a map
    for name, value in rules.items():
        if (name, value) not in (("min_count", 1), ("sketch_spare", 0)):
            arguments += [f"--{name.replace('_', '-')}", f"{value}"]
    arguments += privacy.arguments(only=["secure", "batch", "cohort", "contributors"])
    return shlex.join([*arguments, "--seeds", "1"])


def _show(report: "Report", plan: Any, command: str, engine: str, *, complete: bool, json: bool) -> None:
    if json:
        facts = {"engine": engine, "nodes": plan.nodes, "clients_in_all": plan.clients, "ledger": plan.server.ledger}
        same = {"simulate": command, "complete": complete} if command else {}
        print_json({**results_document(report), **facts, "out": plan.server.out, **same})
        return
    show_results(report)
    print_line()
    for detail in report.details:
        print_line(f"{detail.head} classifier {detail.digest}")
        print_line(f"{detail.head} statistics {detail.statistics_digest}")
    if command:
        print_line(f"the same split in one process, with its digests: {command} --verbose")
    if command and not complete:
        print_line("the digests differ: not every client took part as simulated, or there is noise")
    print_line(f"wrote {plan.server.out}; 'fedmoments status {plan.server.ledger}' shows who took part")
