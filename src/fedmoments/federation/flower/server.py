"""The server's part of a federation: rounds of collection, heads, their evaluation by the clients, files."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

from flwr.serverapp import Grid

from fedmoments.core.heads.choosing import choose_heads
from fedmoments.core.observations.federated import FederationEvents, ServerRound, Spread, Trouble
from fedmoments.errors import DeploymentError, FedMomentsError
from fedmoments.federation.evaluation import LocalEvaluation
from fedmoments.federation.evaluation.refining import refined
from fedmoments.federation.flower.collect import Collection
from fedmoments.federation.flower.evaluating import EvaluationRound
from fedmoments.federation.flower.exchange import Exchange
from fedmoments.federation.flower.live import Live
from fedmoments.federation.flower.messages import ACKNOWLEDGE, content_of
from fedmoments.federation.flower.secure import AloneRun, SecureRun, lead
from fedmoments.federation.outcome import write_federation
from fedmoments.federation.results import Fitted, Source, fit_heads, require_filterable, require_served, source_of
from fedmoments.federation.store import FederationStore
from fedmoments.settings.server import ServerSettings, TuningSettings

__all__ = ["FederationRun", "Progress", "dismiss", "run_federation", "wait_for_nodes"]

#: Seconds for which the server waits until nodes have heard that the run is over.
DISMISSAL = 60.0

#: Clients that the log names when a filter leaves them out.
MOST_TOLD = 200

#: Called with (done, in all, what happened).
Progress = Callable[[int, int, str], None]


@dataclass
class FederationRun:
    """What a run found.

    Parameters
    ----------
    rounds
        Reports of the rounds of collection.
    fitted
        Heads by name.
    unfitted
        Why other heads could not be fitted, by name.
    source
        What they were fitted from.
    evaluations
        Sums over all clients' held-out data, by head.
    spread
        How far nodes lie apart there, by head.
    failures
        Nodes that did not evaluate, and why.
    leading
        The server's part of adding up.
    """

    rounds: list[ServerRound] = field(default_factory=list)
    fitted: dict[str, Fitted] = field(default_factory=dict)
    unfitted: dict[str, str] = field(default_factory=dict)
    source: Source | None = None
    evaluations: dict[str, LocalEvaluation] = field(default_factory=dict)
    spread: dict[str, Spread] = field(default_factory=dict)
    failures: list[Trouble] = field(default_factory=list)
    leading: SecureRun | AloneRun = field(default_factory=AloneRun)


def run_federation(grid: Grid, settings: ServerSettings, progress: Progress | None = None) -> FederationRun:
    """Run a federation to its end.

    Parameters
    ----------
    grid
        Flower's, or ours.
    settings
        The server's own; its ledger holds the terms.
    progress
        Called when something happened.

    Raises
    ------
    DeploymentError
        When too few nodes came or too few clients are in the ledger; what was taken in stays there.
    """
    run = FederationRun()
    with FederationStore.open(settings.ledger) as store:
        store.note("run started", heads=list(settings.heads), rounds=settings.rounds)
        live = Live(settings.place, store)
        dismissed = False
        try:
            require_served(store.terms, choose_heads(settings.heads, settings.hyper))
            require_filterable(store.terms, settings.robust, settings.max_client_samples)
            if settings.fit_each_round:
                store.terms.privacy.mode.check_fits(settings.rounds)
            _collect(grid, store, settings, run, live=live, progress=progress)
            _require_quorum(store, settings, run, live)
            live.say(phase="fitting heads", at_once=True)
            _fit(store, settings, run)
            if not run.fitted:
                reasons = " | ".join(f"{name}: {reason}" for name, reason in run.unfitted.items())
                raise DeploymentError(f"no head could be fitted from what is in the ledger: {reasons}")
            if settings.evaluate:
                _evaluate(grid, store, settings, run, live)
                dismissed = True
        except FedMomentsError as error:
            live.say(phase="the run failed", waiting=str(error)[:1000], at_once=True)
            raise
        finally:
            if not dismissed:
                dismiss(grid, settings)
        digests = {name: fitted.classifier.digest() for name, fitted in run.fitted.items()}
        store.note("run finished", digests=digests)
        live.say(phase="the run is over", waiting="", asked=[], answered=[], at_once=True)
        if settings.out:
            write_federation(Path(settings.out), store, run.fitted, run.evaluations, _report(run), source=run.source)
    return run


def _collect(
    grid: Grid,
    store: FederationStore,
    settings: ServerSettings,
    run: FederationRun,
    *,
    live: Live,
    progress: Progress | None,
) -> None:
    """Run all rounds of collection."""
    mode = store.terms.privacy.mode
    run.leading = leader = lead(grid, store, settings, progress and (lambda what: progress(1, 1, what)))
    nodes = wait_for_nodes(grid, settings, progress, helper=mode.has_helper, live=live)
    leader.prepare()
    finished: set[int] = set()
    draw = Random(settings.seed)  # noqa: S311 - chooses who is asked first, protects nothing
    for number in range(1, settings.rounds + 1):
        nodes = leader.clients(sorted(set(nodes) | set(grid.get_node_ids())))
        asked = _chosen(nodes, finished, settings.per_round, draw)
        collection = Collection(grid, store, settings, number=number, progress=progress, live=live)
        run.rounds.append(collection.run(asked))
        finished |= collection.done
        last = number == settings.rounds
        if last or settings.fit_each_round:
            leader.collect()
        store.note("round closed", **_summary(run.rounds[-1]), clients=store.status().clients)
        if settings.fit_each_round and not last and mode.contributors(store.status()) >= settings.quorum:
            _fit(store, settings, run)


def _fit(store: FederationStore, settings: ServerSettings, run: FederationRun) -> None:
    """Fit all heads that can be fitted."""
    run.unfitted = {}

    def fail(name: str, error: FedMomentsError) -> None:
        run.unfitted[name] = str(error)
        store.note("not fitted", head=name, reason=str(error)[:500])

    run.source = source_of(
        store, robust=settings.robust, max_samples=settings.max_client_samples, half_life=settings.half_life
    )
    if run.source.dropped:
        dropped = dict(list(run.source.dropped.items())[:MOST_TOLD])
        store.note("left out", count=len(run.source.dropped), clients=dropped)
    run.fitted = fit_heads(store, settings.heads, settings.hyper, on_failure=fail, source=run.source)
    digests = {name: fitted.classifier.digest() for name, fitted in run.fitted.items()}
    store.note("fitted", digests=digests)


def dismiss(grid: Grid, settings: ServerSettings | TuningSettings) -> None:
    """Tell all nodes that the run is over, whatever became of it; those that do not hear it stay."""
    exchange = Exchange(grid, settings.ttl, settings.poll, 2**20, "over")
    fields = {"receipts": [], "refusals": [], "over": True}
    exchange.ask(ACKNOWLEDGE, {node: content_of(fields) for node in grid.get_node_ids()})
    exchange.hear(lambda _: None, until=time.monotonic() + min(DISMISSAL, settings.deadline))


def wait_for_nodes(
    grid: Grid,
    settings: ServerSettings | TuningSettings,
    progress: Progress | None,
    *,
    helper: bool = False,
    live: Live | None = None,
) -> list[int]:
    """Wait for as many nodes as were requested, and for one more that is the helper; without that one, go on."""
    until = time.monotonic() + settings.wait
    while True:
        nodes = sorted(grid.get_node_ids())
        if progress:
            progress(len(nodes), settings.nodes + helper, f"nodes are here{_who(live, nodes)}")
        if live:
            wanted = settings.nodes + helper
            missing = f"; missing: {_missing(live, nodes)}" if len(nodes) < wanted else ""
            live.say(phase="waiting for nodes", waiting=f"{len(nodes)} of {wanted} nodes are here{missing}", here=nodes)
        over = time.monotonic() >= until
        if len(nodes) >= settings.nodes + (helper and not over):
            return nodes
        if over:
            raise DeploymentError(
                f"{len(nodes)} of {settings.nodes} nodes came within {settings.wait:g} s{_who(live, nodes)}"
                f"{f'; missing: {_missing(live, nodes)}' if live and live.absent(nodes) else ''}: start the others "
                "('fedmoments client' there), wait longer (--wait SECONDS), or ask for fewer (--nodes N)"
            )
        time.sleep(settings.poll)


def _who(live: Live | None, nodes: list[int]) -> str:
    """Return who came, in brackets, where that is known."""
    known = [name for node in nodes if live and (name := live.client(node))]
    return f" ({', '.join(known[:20])}{' …' if len(known) > 20 else ''})" if known else ""


def _missing(live: Live, nodes: list[int]) -> str:
    absent = live.absent(nodes)
    return f"{', '.join(absent[:20])}{' …' if len(absent) > 20 else ''}" or "nobody who is enrolled"


def _chosen(nodes: list[int], finished: set[int], per_round: int, draw: Random) -> list[int]:
    """Return the nodes of a round: those that are not finished, or as many of them as a round asks."""
    left = [node for node in nodes if node not in finished]
    return sorted(draw.sample(left, per_round)) if 0 < per_round < len(left) else left


def _require_quorum(store: FederationStore, settings: ServerSettings, run: FederationRun, live: Live) -> None:
    clients = store.terms.privacy.mode.contributors(store.status())
    if clients < settings.quorum:
        store.note("no quorum", clients=clients, quorum=settings.quorum)
        troubles = [
            f"{trouble.client or live.name(int(trouble.node or 0))}: "
            f"{trouble.why or trouble.reason or trouble.sentence}"
            for report in run.rounds
            for trouble in (*report.declined, *report.refused, *report.failures)
        ]
        raise DeploymentError(
            f"{settings.quorum} clients with samples were requested (quorum), and the ledger has {clients}. What was "
            "sent is kept: start the same command again when more are there, or with a lower --quorum, or let "
            f"'fedmoments refit' fit heads from what is in{_not_in(store, live)}. {' | '.join(troubles[:5])}"
        )


def _not_in(store: FederationStore, live: Live) -> str:
    """Return who may contribute and has contributed nothing, where single contributions are seen."""
    if not store.terms.privacy.mode.reads_contributions:
        return ""
    present = {contributor.client for contributor in store.status().contributors}
    absent = [one.client for one in store.enrolled() if one.status == "enrolled" and one.client not in present]
    absent += live.never_enrolled()
    return f" (not in: {', '.join(absent[:10])}{' …' if len(absent) > 10 else ''})" if absent else ""


def _evaluate(grid: Grid, store: FederationStore, settings: ServerSettings, run: FederationRun, live: Live) -> None:
    """Broadcast the heads, and add up what nodes found on data of theirs."""
    # what they have seen is of no use to a test
    heads = {name: fitted.classifier.knowing(None).to_bytes() for name, fitted in run.fitted.items()}
    source = run.source or source_of(store)
    tested = EvaluationRound(grid, store, settings, heads=heads, leading=run.leading, source=source, live=live).run()
    run.evaluations, run.spread, run.failures = tested.evaluations, tested.spread, tested.failures
    for name, fitted in run.fitted.items():
        run.fitted[name] = replace(fitted, classifier=refined(fitted.classifier, run.evaluations[name]))
    if store.terms.privacy.mode.has_helper:
        dismiss(grid, settings)  # the helper evaluates nothing, but hears that the run is over


def _summary(report: ServerRound) -> dict[str, Any]:
    facts = {"round": report.number, "asked": len(report.asked), "accepted": report.accepted, "bytes": report.bytes}
    return {**facts, **report.counts}


def _report(run: FederationRun) -> FederationEvents:
    rounds, failures = tuple(run.rounds), tuple(run.failures)
    return FederationEvents(rounds=rounds, failures=failures, unfitted=run.unfitted, spread=run.spread)
