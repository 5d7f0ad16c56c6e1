"""What tests of tuning in one process share: a federation whose clients allow it, and apps that misbehave."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

from fedmoments.federation.deploy.local import LocalFederation, run_local
from fedmoments.federation.flower import client_app as real
from fedmoments.federation.flower.grid import run_in_process
from fedmoments.federation.flower.messages import read_content
from fedmoments.federation.flower.tuning_server import TuningRun, run_tuning
from fedmoments.federation.store import FederationStore
from fedmoments.settings.server import TuningSettings

Made = Callable[..., LocalFederation]

ALLOWED: dict[str, Any] = {"min_count": 1, "tuning": "ft"}
PLAN: dict[str, Any] = {"rounds": 3, "lr": 0.5, "batch_size": 8, "fraction": 0.5}


def collected(make: Made, **options: Any) -> LocalFederation:
    """Return a federation of 12 clients whose ledger holds what they sent."""
    plan = make(**{"policy": ALLOWED, "evaluate": False, **options})
    run_local(plan, "memory")
    return plan


def settings_of(federation: LocalFederation, out: Path, **changes: Any) -> TuningSettings:
    """Return a server's settings for a tuning of that federation."""
    base = TuningSettings(federation.server.ledger, str(out), PLAN, nodes=federation.nodes, deadline=20.0, poll=0.05)
    return replace(base, **changes)


def node_configs(plan: LocalFederation) -> list[dict[str, Any]]:
    common = {"client-config": str(plan.shared_settings), "num-partitions": plan.nodes}
    return [{**common, "partition-id": node} for node in range(plan.nodes)]


def run(
    plan: LocalFederation,
    settings: TuningSettings,
    app: ClientApp = real.app,
    progress: Any = None,
    nodes: list[dict[str, Any]] | None = None,
) -> TuningRun:
    """Run a tuning with some client app."""
    found: list[TuningRun] = []
    server = ServerApp()

    @server.main()
    def main(grid: Any, _: Context) -> None:
        found.append(run_tuning(grid, settings, progress))

    run_in_process(server, app, nodes or node_configs(plan), {})
    return found[0]


def spoiled(how: Callable[[str, Message, Context, Callable[[], Message]], Message]) -> ClientApp:
    """Return the client app with every answer changed: ``how`` gets the kind, message, context, and the true answer."""
    app = ClientApp()

    def wrapped(kind: str, function: Any) -> Any:
        def answer(message: Message, context: Context) -> Message:
            return how(kind, message, context, lambda: function(message, context))

        return answer

    for name in ("acknowledge", "greet", "score", "temperature"):
        app.query(name)(wrapped(name, getattr(real, name)))
    app.train("tune")(wrapped("tune", real.tune))
    return app


def notes(plan: LocalFederation, note: str) -> list[dict[str, Any]]:
    with FederationStore.open(plan.server.ledger) as store:
        return [each.details for each in store.audit() if each.event == "note" and each.details["note"] == note]


def of_client(message: Message, client: str) -> bool:
    words, _ = read_content(message.content, most_bytes=2**30)
    return bool(words.get("client") == client)
