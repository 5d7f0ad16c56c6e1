"""``fedmoments status --watch``: what the live page shows, in a terminal."""

import json as json_module
import sys
import time
from pathlib import Path
from typing import Any

from fedmoments.cli.output import SHOWN, plural, print_line, print_table, readable_bytes
from fedmoments.cli.places import existing_file

__all__ = ["watch_run"]

#: Seconds between two looks.
LOOK = 2.0
_CLEAR = "\x1b[H\x1b[2J"


def watch_run(ledger: Path, home: Path, *, everybody: bool, json: bool) -> None:
    """Show a federation whenever it changes, until its run is over or Ctrl-C is typed.

    Parameters
    ----------
    ledger, home
        The federation's, and that of Flower's processes.
    everybody
        List all parties.
    json
        Print one JSON document a line instead.
    """
    from fedmoments.extras import require

    require("flwr", "Watching a run", "flower")
    from fedmoments.federation.deploy.viewing import Viewer

    viewer, last = Viewer(existing_file(ledger), home), None
    try:
        while True:
            view = viewer.look()
            if view is not last:
                last = view
                if json:
                    print_line(json_module.dumps(_document(view)))
                else:
                    _show(view, everybody=everybody)
                sys.stdout.flush()
            if view.phase.startswith("the run"):
                return
            time.sleep(LOOK)
    except KeyboardInterrupt:
        return


def _document(view: Any) -> dict[str, Any]:
    facts = {"phase": view.phase, "waiting": view.waiting, "clients": view.clients, "bytes": view.bytes}
    parties = {party.name: {"state": party.state, "detail": party.detail} for party in view.parties}
    return {**facts, "accuracy": view.accuracy, "parties": parties}


def _row(party: Any) -> list[str]:
    return [
        party.name,
        party.state,
        "–" if party.samples is None else f"{party.samples:,}",
        "–" if party.bytes is None else readable_bytes(party.bytes),
        ", ".join(f"{head} {100 * share:.1f}" for head, share in party.accuracy.items()),
        party.detail,
    ]


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.2f} %"


def _show(view: Any, *, everybody: bool) -> None:
    if sys.stdout.isatty():
        sys.stdout.write(_CLEAR)
    print_line(f"{view.name}: {view.phase}{f'; {view.waiting}' if view.waiting else ''}")
    states = ", ".join(f"{n:,} {state}" for state, n in view.states.items() if n)
    print_line(
        f"{plural(view.clients, 'client')} in, {readable_bytes(view.bytes)}; {view.covered:,} of "
        f"{plural(view.n_classes, 'class')} covered; {states}"
    )
    shown = view.parties if everybody else view.parties[:SHOWN]
    if shown:
        columns = ["party", "state", "samples", "sent", "accuracy %", "detail"]
        print_table(columns, [_row(party) for party in shown], right=["samples", "sent"])
    if len(shown) < len(view.parties):
        print_line(f"… and {len(view.parties) - len(shown):,} more; --all lists them")
    for head, share in view.accuracy.items():
        print_line(f"{head}: {_percent(share)} over all")
    print_line()
