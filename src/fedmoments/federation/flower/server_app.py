"""The ServerApp: reads the server's settings file and collects contributions or, if it is one of tuning, tunes."""

import os
import sys

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedmoments.errors import InputError
from fedmoments.federation.flower.server import run_federation
from fedmoments.federation.flower.tuning_server import run_tuning
from fedmoments.settings.server import ServerSettings, TuningSettings

__all__ = ["app"]

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run a federation, or tune what came of it; an error fails the run."""
    tuning = str(context.run_config.get(TuningSettings.config_key, ""))
    if tuning:
        _tune(grid, TuningSettings.load_whole(tuning))
        return
    path = str(context.run_config.get("server-config", "") or os.environ.get("FEDMOMENTS_SERVER", ""))
    if not path:
        raise InputError(
            "the server does not know its settings: run with -c \"server-config='/path/server.toml'\", a file on the "
            "machine where the ServerApp runs"
        )
    run = run_federation(grid, ServerSettings.load_whole(path), _say)
    for name, fitted in run.fitted.items():
        evaluation = run.evaluations.get(name)
        shown = f", accuracy {evaluation.accuracy:.4f}" if evaluation and evaluation.n_samples else ""
        _say(1, 1, f"{name}: classifier {fitted.classifier.digest()}, statistics {fitted.statistics_digest}{shown}")


def _tune(grid: Grid, settings: TuningSettings) -> None:
    outcome = run_tuning(grid, settings, _say)
    point = outcome.tuned.result
    shown = "" if point.accuracy is None else f", accuracy {point.accuracy:.4f}"
    _say(
        1, 1, f"tuned from {outcome.start.name}: classifier {outcome.classifier.digest()} of round {point.round}{shown}"
    )


def _say(done: int, total: int, what: str) -> None:
    sys.stdout.write(f"fedmoments {done}/{total}: {what}\n")
    sys.stdout.flush()
