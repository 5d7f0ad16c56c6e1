"""Federations of small made-up clients, all nodes and the helper in one process, and what is read off them."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from flwr.app import Context
from flwr.clientapp import ClientApp

from fedmoments.federation.deploy.local import LocalFederation
from fedmoments.federation.flower import client_app as real
from fedmoments.federation.flower.grid import run_in_process
from fedmoments.federation.flower.server import FederationRun, run_federation
from fedmoments.federation.store import FederationStore
from fedmoments.privacy.protection import Agreed

Made = Callable[..., LocalFederation]

HEADS = ("fed3r", "fedncm")
#: Cohorts are drawn by chance: where they leave one row a class, fedncm is fitted alone.
MEANS = ("fedcof", "fedncm")
SUMS = Agreed(secure="sums")
COHORTS = Agreed(secure="cohorts", cohort=4)
TWO_PHASES = Agreed(secure="two-phase")


def run(
    plan: LocalFederation,
    app: ClientApp = real.app,
    *,
    helper: bool = True,
    nodes: list[int] | None = None,
    **changes: Any,
) -> FederationRun:
    """Run a federation with some of its nodes, with or without the helper, and return what happened."""
    from flwr.serverapp import ServerApp

    found: list[FederationRun] = []
    server = ServerApp()
    own = list(range(plan.nodes)) if nodes is None else nodes

    @server.main()
    def main(grid: Any, _: Context) -> None:
        settings = replace(plan.server, wait=0.3, poll=0.05, nodes=len(own), **changes)
        found.append(run_federation(grid, settings))

    common = {"client-config": str(plan.shared_settings), "num-partitions": plan.nodes}
    configs: list[dict[str, Any]] = [{**common, "partition-id": node} for node in own]
    if helper:
        configs.append({"helper-config": str(plan.helper_settings)})
    run_in_process(server, app, configs, {})
    return found[0]


def spoiled(**handlers: Any) -> ClientApp:
    """Return the client app with some of its handlers replaced."""
    app = ClientApp()
    for name in ("contribute", "acknowledge", "evaluate", "helper", "unmask", "second"):
        app.query(name)(handlers.get(name, getattr(real, name)))
    return app


def opened(plan: LocalFederation) -> FederationStore:
    return FederationStore.open(plan.server.ledger)


def digests(found: FederationRun) -> dict[str, str]:
    return {name: fitted.classifier.digest() for name, fitted in found.fitted.items()}


def events(plan: LocalFederation, event: str) -> list[dict[str, Any]]:
    with opened(plan) as store:
        return [entry.details for entry in store.audit() if entry.event == event]
