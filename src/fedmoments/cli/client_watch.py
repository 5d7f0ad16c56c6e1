"""Watching one's own node: what left it, what the server said, and when it may stop."""

import json as json_module
import re
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedmoments.cli.client_record import event_text, record_lines
from fedmoments.cli.federation_runs import tell
from fedmoments.cli.ledger import withheld_text
from fedmoments.cli.output import plural, print_line, print_table, readable_bytes
from fedmoments.federation.deploy.network import listens
from fedmoments.federation.outbox.kept import DEPARTED
from fedmoments.federation.outbox.progress import Done, read_progress

__all__ = ["ClientWatch", "Outcome"]

#: Seconds between two looks.
LOOK = 0.5
#: Seconds between two lines on how far encoding is.
OFTEN = 10.0
#: Seconds that a node stays after the server closed the run: its last reply must have been fetched.
SETTLE = 5.0
#: Seconds that a node stays after a refusal or after having declined, for the server may still ask for a test.
LINGER = 30.0
#: Seconds for which a node that was not asked yet waits for a server that went away: a machine starts again in less.
RETURN = 600.0
_RAISED = re.compile(r"fedmoments\.errors\.(\w+): (.+)")
_DECIDING = ("sent", "acknowledged", "refused", "declined")


@dataclass
class Outcome:
    """What became of a client's part in a run.

    Parameters
    ----------
    good
        Whether everything that was requested was sent and acknowledged.
    sentence
        Why not.
    events
        Lines of the record that were written meanwhile.
    contributions
        The newest contribution to each federation that asked, with its receipt.
    record
        The file that says all this, and what happened before.
    """

    good: bool
    sentence: str
    events: list[dict[str, Any]]
    contributions: list[dict[str, Any]]
    record: Path

    def document(self) -> dict[str, Any]:
        """Return all of it, ready for JSON."""
        return {"contributions": self.contributions, "events": self.events, "record": str(self.record)}

    def show(self) -> None:
        """Print what was sent."""
        from fedmoments.core.observations import plain_moments

        rows = [_line(entry) for entry in self.contributions if not _has_left(entry)]
        for entry in filter(_has_left, self.contributions):
            print_line(
                f"{entry['client']} has left: the ledger holds nothing of its version {entry['version']} since entry"
                f" {entry['receipt']['seq']} of its log; 'fedmoments rejoin {self.record.parent}' lets it send again"
            )
        if rows:
            columns = ["client", "version", "classes", "samples", "withheld", "bytes", "receipt"]
            print_table(columns, rows, right=["version", "classes", "samples", "bytes"])
            for moments in dict.fromkeys(", ".join(entry["moments"]) for entry in self.contributions):
                print_line(f"sent: {plain_moments(moments.replace(', ', ' + '))}")
        if samples := self._column("evaluated", "samples"):
            left = f"sent: test results, {plural(len(samples), 'time')}"
            print_line(f"{left}, of {plural(sum(samples), 'sample')} in all")
        if sizes := self._column("tuned", "bytes"):
            left = f"sent: parameters that were trained on its samples, {plural(len(sizes), 'time')}"
            print_line(f"{left}, {readable_bytes(sum(sizes))} in all")
        self._show_record()

    def _show_record(self) -> None:
        kept = self.record.exists() and self.record.stat().st_size
        print_line(f"the record of all that was sent and withheld: {self.record}" if kept else "nothing was sent")

    def _column(self, event: str, fact: str) -> list[int]:
        """Return one fact of all events of a kind."""
        return [entry[fact] for entry in self.events if entry["event"] == event]


@dataclass
class ClientWatch:
    """Follows the record of a client's folder while its node runs.

    Parameters
    ----------
    folder
        The client's own.
    node
        A :class:`fedmoments.federation.deploy.nodes.SuperNode` that was not started yet.
    """

    folder: Path
    node: Any
    events: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.record = self.folder / "record.jsonl"
        self._read = self.record.stat().st_size if self.record.exists() else 0
        self._raised: list[str] = []
        self._gone, self._asked = False, 0.0
        self._told = -OFTEN

    def run(self, *, stay: bool, timeout: float | None) -> Outcome:
        """Start the node, stay until it may stop, stop it, and return what became of it.

        Parameters
        ----------
        stay
            Stay for later runs.
        timeout
            Seconds; None never gives up.
        """
        from fedmoments.errors import DeploymentError
        from fedmoments.federation.flower.helper import FINISHED
        from fedmoments.federation.outbox import Outbox

        finished = self.folder / FINISHED
        finished.unlink(missing_ok=True)
        with Outbox(self.folder) as outbox:
            try:
                tell(f"connecting to {self.node.superlink}")
                self.node.start()
                tell(f"connected to {self.node.superlink}; waiting to be asked")
                problem = self._stay(outbox, finished, stay=stay, timeout=timeout)
            except DeploymentError as error:
                self._look()
                problem = str(error)
            except KeyboardInterrupt:
                self._look()
                settled = self._settled(outbox) and not self._trouble(settled=True)
                if stay and (settled or not self.events):
                    return self._outcome(outbox, "")
                tell(
                    "interrupted, but the server has acknowledged all that it asked for"
                    if settled
                    else "interrupted before the server acknowledged all that it asked for: what was made is kept in "
                    f"{self.folder}, and the same bytes are sent when this command is started again"
                )
                raise
            finally:
                self.node.stop()
            return self._outcome(outbox, problem)

    def _stay(self, outbox: Any, finished: Path, *, stay: bool, timeout: float | None) -> str:
        """Return "" once all is well, or why it is not."""
        start = time.monotonic()
        waiting = _Waiting()
        while True:
            time.sleep(LOOK)
            self.node.check("it was waiting for the server")
            self._look()
            settled = self._settled(outbox)
            trouble = self._trouble(settled=settled)
            if timeout is not None and time.monotonic() - start > timeout:
                missing = "" if settled else f"nothing more came within {timeout:g} s, {self._missing(outbox)}"
                return trouble or missing
            if not stay and self._is_over(waiting, finished, trouble, settled=settled):
                return trouble or ("" if settled else f"the server closed the run, {self._missing(outbox)}")

    def _is_over(self, waiting: "_Waiting", finished: Path, trouble: str, *, settled: bool) -> bool:
        """Say whether nothing more will come: the run is closed, trouble lasts, or the server is gone."""
        closed = waiting.closed.seconds(now=finished.exists() and self._replied())
        if closed > SETTLE:
            return bool(trouble) or settled or closed > LINGER
        if waiting.troubled.seconds(now=bool(trouble)) > LINGER:
            return True
        patience, holds = (LINGER, "all that was asked for") if self._asking() else (RETURN, "what was sent before")
        gone = waiting.gone.seconds(now=settled and self._lost()) > patience
        if gone:
            tell(f"the server cannot be reached any more; it has {holds}")
        return gone

    def numbers(self) -> tuple[dict[str, Any], str]:
        """Return what a monitor gets of this client, and what is wrong."""
        connected = self.node.alive and self.node.node_id is not None
        counts = Counter(line["event"] for line in self.events)
        progress = read_progress(self.folder)
        encoded = progress if progress and progress.what == "encoding" else Done("encoding", "sample", 0, 0)
        numbers: dict[str, Any] = {
            "fedmoments_connected": ("gauge", connected),
            "fedmoments_events_total": ("counter", {("event", event): n for event, n in counts.items()}),
            "fedmoments_bytes_sent_total": ("counter", sum(self._column_of("sent", "bytes"))),
            "fedmoments_samples_encoded": ("gauge", encoded.done),
            "fedmoments_samples_to_encode": ("gauge", encoded.total),
        }
        return numbers, "" if connected else "it is not connected to the server"

    def _column_of(self, event: str, fact: str) -> list[int]:
        return [line.get(fact, 0) for line in self.events if line["event"] == event]

    # ---------------------------------------------------------------------------------------------- looking

    def _look(self) -> None:
        """Read what was written to the record since the last look, and print it."""
        if self.record.exists():
            with self.record.open("rb") as file:
                file.seek(self._read)
                new = file.read()
            whole = new.rfind(b"\n") + 1
            self._read += whole
            for line in record_lines(new[:whole]):
                self.events.append(line)
                tell(event_text(line))
        self._look_at_progress()
        for failure in _RAISED.finditer(self.node.text()):
            if failure[0] not in self._raised:
                self._raised.append(failure[0])
                tell(f"this client's app failed: {failure[0]}")

    def _look_at_progress(self) -> None:
        """Say now and then how far encoding or measuring is: it may take hours."""
        now = read_progress(self.folder)
        if now and time.monotonic() - self._told >= OFTEN and now.done < now.total:
            self._told = time.monotonic()
            tell(f"{now.what}: {now.done:,} of {plural(now.total, now.unit)}")

    def _replied(self) -> bool:
        """Say whether the node has answered all that it received: the sign is given before the answer leaves."""
        log = self.node.text()
        return bool(log.count("Receiving: ") <= log.count("Sent successfully"))

    def _lost(self) -> bool:
        """Say whether nobody listens where the server was; looked up every few seconds."""
        if time.monotonic() - self._asked > SETTLE:
            self._gone, self._asked = not listens(self.node.superlink), time.monotonic()
        return self._gone

    def _latest(self) -> dict[tuple[str, str], dict[str, Any]]:
        """(federation, client) -> the last that happened to its contribution since the start."""
        mine = (line for line in self.events if line["event"] in _DECIDING)
        return {(line["federation"], line["client"]): line for line in mine}

    def _trouble(self, *, settled: bool) -> str:
        """Return why a contribution is not with the server and will not get there by waiting."""
        lines = [line for line in self._latest().values() if line["event"] in ("refused", "declined")]
        reasons = [
            f"client {line['client']} {'was refused' if line['event'] == 'refused' else 'declined'}: {line['sentence']}"
            for line in lines
        ]
        if not reasons and self._raised and not settled:
            return f"this client's app failed: {self._raised[-1]}"
        return " ".join(reasons[:3]) + (f" … and {len(reasons) - 3} more" if len(reasons) > 3 else "")

    def _asking(self) -> dict[str, None]:
        """Return the federations that asked since the start; an app that was refused asked for nothing."""
        return dict.fromkeys(line["federation"] for line in self.events if line["event"] != "refused app")

    def _waiting(self, outbox: Any) -> list[str]:
        """Return the clients that were asked since the start and wait for a receipt."""
        asked = self._asking()
        return [client for federation in asked for client in outbox.pending(federation)]

    def _settled(self, outbox: Any) -> bool:
        """Say whether the server holds what it asked for: now, or, if it asked for nothing, before."""
        asked = self._asking()
        known = asked or dict.fromkeys(federation for federation, _ in outbox.federations())
        return bool(known) and not any(outbox.pending(federation) for federation in known)

    def _missing(self, outbox: Any) -> str:
        waiting = self._waiting(outbox)
        if waiting:
            return f"and no receipt for {', '.join(waiting[:5])}: start this command again, the same bytes are sent"
        return "and the server asked for nothing that it does not hold" if self.events else "and nobody was asked"

    # ---------------------------------------------------------------------------------------------- telling

    def _outcome(self, outbox: Any, problem: str) -> Outcome:
        asked = self._asking()
        prepared = self._prepared()
        contributions = []
        for federation, client in outbox.federations():
            newest = outbox.newest(federation, client) if not asked or federation in asked else None
            if newest and (federation, client, newest.version) in prepared:
                facts = prepared[federation, client, newest.version]
                receipt = json_module.loads(newest.receipt) if newest.receipt else None
                contributions.append({**facts, "receipt": receipt})
        return Outcome(not problem, problem, self.events, contributions, self.record)

    def _prepared(self) -> dict[tuple[str, str, int], dict[str, Any]]:
        """(federation, client, version) -> what the record says of a contribution that was prepared, ever."""
        lines = record_lines(self.record.read_bytes()) if self.record.exists() else []
        return {
            (line["federation"], line["client"], line["version"]): {
                name: value for name, value in line.items() if name not in ("event", "time")
            }
            for line in lines
            if line["event"] == "prepared"
        }


def _has_left(contribution: dict[str, Any]) -> bool:
    """Say whether the newest receipt of a contribution is the one of its removal."""
    return bool(contribution["receipt"]) and contribution["receipt"]["event"] in DEPARTED


class _Since:
    """For how many seconds something has been so."""

    def __init__(self) -> None:
        self._start: float | None = None

    def seconds(self, *, now: bool) -> float:
        """Take whether it is so now, and return since when: 0 if it is not."""
        moment = time.monotonic()
        self._start = (self._start or moment) if now else None
        return moment - self._start if self._start else 0.0


@dataclass
class _Waiting:
    """Since when the run is closed, something is wrong, and nobody listens where the server was."""

    closed: _Since = field(default_factory=_Since)
    troubled: _Since = field(default_factory=_Since)
    gone: _Since = field(default_factory=_Since)


def _line(entry: dict[str, Any]) -> list[str]:
    """Return the line about one contribution."""
    return [
        entry["client"],
        str(entry["version"]),
        f"{entry['classes']:,}",
        f"{entry['samples']:,}",
        withheld_text(entry["withheld"]["classes"], entry["withheld"]["samples"]),
        readable_bytes(entry["bytes"]),
        f"entry {entry['receipt']['seq']}" if entry["receipt"] else "none",
    ]
