"""What the commands that run a federation share: which heads, what the run says meanwhile, what it found."""

import io
import re
import time
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, NoReturn

from fedmoments.cli.agreements import spent_text
from fedmoments.cli.output import fail, plural, print_line, print_note, print_table, readable_bytes
from fedmoments.errors import InputError

if TYPE_CHECKING:
    from fedmoments.core.observations import Report

__all__ = [
    "RunLines",
    "check_served",
    "default_heads",
    "fail_run",
    "follow",
    "read_results",
    "results_document",
    "show_results",
    "tell",
    "why",
]

#: Hexadecimal digits of a digest that a table shows.
DIGITS = 16
_OURS = re.compile(r"fedmoments (\d+)/(\d+): (.*)")
_RAISED = re.compile(r"^(?:.*\s)?(?:fedmoments\.errors\.)?(\w+Error): (.+)$")


def tell(text: str) -> None:
    """Print a line of progress on stderr, at once."""
    print_note(text)


class RunLines(io.TextIOBase):
    r"""A file that passes the lines of our server app on to stderr, each once, and drops all others.

    Examples
    --------
    >>> import contextlib, sys
    >>> with contextlib.redirect_stderr(sys.stdout):
    ...     _ = RunLines().write("INFO: starting\nfedmoments 1/3: nodes are here\nfedmoments 1/3: nodes are here\n")
    1/3: nodes are here
    """

    def __init__(self) -> None:
        self._rest, self._last = "", ""

    def write(self, text: str) -> int:
        """Take text; a line is passed on once it is whole."""
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            match = _OURS.search(line)
            if match and match[0] != self._last:
                self._last = match[0]
                tell(f"{match[1]}/{match[2]}: {match[3].strip()}")
        return len(text)


def follow(server: Any, timeout: float, watch: Sequence[Any] = ()) -> Any:
    """Wait for the end of a server's run, tell what it says meanwhile, and return its true status.

    Parameters
    ----------
    server
        A :class:`fedmoments.federation.deploy.serving.Server` whose run was submitted.
    timeout
        Seconds.
    watch
        Processes without which the run cannot end.
    """
    over: Future[Any] = Future()

    def wait() -> None:
        try:
            over.set_result(server.wait(timeout, tuple(watch)))
        except BaseException as error:
            over.set_exception(error)

    path: Path = server.link.control.run_log(server.run_id)
    lines, seen = RunLines(), 0
    Thread(target=wait, daemon=True).start()
    while True:
        last = over.done()  # asked before the log is read, so that nothing of it is missed
        log = path.read_text("utf-8", errors="replace") if path.exists() else ""
        lines.write(log[seen:])
        seen = max(seen, len(log))  # a log that is followed anew begins from its start
        if last:
            return over.result()
        time.sleep(0.3)


def why(log: str, status: str, details: str) -> str:
    r"""Return in one sentence why a run failed: the last error in its log, or else the log's last lines.

    Examples
    --------
    >>> why("INFO: x\nfedmoments.errors.DeploymentError: no nodes came\nINFO: bye", "finished:failed", "")
    'the run failed: no nodes came'
    >>> why("", "finished:stopped", "by the operator")
    'the run ended as finished:stopped: by the operator'
    """
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    raised = [match[2] for line in lines if (match := _RAISED.match(line))]
    reason = raised[-1] if raised else " | ".join(lines[-5:])
    cause = details.removeprefix("ServerApp failed with exception: ")
    begin = "the run failed" if status == "finished:failed" else f"the run ended as {status}"
    return ": ".join(filter(None, [begin, cause, "" if reason in cause else reason])).rstrip(". ")


def plain(reason: str) -> str:
    """Return why a node failed, without what Flower puts around the text of an exception.

    Examples
    --------
    >>> plain("<class 'fedmoments.errors.InputError'>:<'no such file'>")
    'no such file'
    """
    match = re.fullmatch(r"<class '[^']*'>:<(['\"])(.*)\1>", reason.strip(), re.DOTALL)
    return match[2] if match else reason


def fail_run(reason: str, ledger: str | Path, most: int = 3) -> NoReturn:
    """End the command with exit code 1: say why a run failed, and what stood in the way according to its ledger."""
    troubles = _troubles(ledger) if "In its way were" not in reason else []
    more = f" | … and {len(troubles) - most:,} more" if len(troubles) > most else ""
    obstacles = f". In its way were: {' | '.join(troubles[:most])}{more}" if troubles else ""
    fail(f"{reason.rstrip('. ')}{obstacles}. What was taken in stays in {ledger}")


def _troubles(ledger: str | Path) -> list[str]:
    """Return who was refused, declined or failed since the last run started, and why."""
    from fedmoments.federation.store import FederationStore

    troubles: list[str] = []
    with FederationStore.open(ledger) as store:
        for entry in store.audit():
            facts = entry.details
            if facts.get("note") in ("run started", "tuning started"):
                troubles = []
            elif entry.event == "refused" or facts.get("note") in ("declined", "node failed"):
                for trouble in facts.get("clients", [facts]):  # a node declines for several clients at once
                    who = trouble.get("client") or f"node {trouble.get('node', '?')}"
                    said = str(trouble.get("sentence") or trouble.get("why") or trouble.get("reason"))
                    troubles.append(f"{who}: {plain(said)}")
    return troubles


# -------------------------------------------------------------------------------------------------- heads


def default_heads(store: Any) -> tuple[str, ...]:
    """Return the heads that a federation was created for; without any, fedcof or all heads that its terms serve.

    Where sketches were collected, these are the heads on them: the means beside are rounded to a budget.
    """
    from fedmoments.core.heads import make_head
    from fedmoments.study.simulation.methods import standard_heads

    terms = store.terms
    for entry in store.audit():
        if entry.details.get("note") == "created for":
            return tuple(entry.details["heads"])
    served = tuple(name for name in standard_heads() if make_head(name).needs <= terms.spec)
    if terms.spec.has_sketch:
        served = tuple(name for name in served if make_head(name).needs.has_sketch)
    if not served:
        raise InputError(f"no head can be fitted from {terms.spec}, which is what the federation collects")
    return ("fedcof",) if "fedcof" in served else served


def check_served(terms: Any, heads: Sequence[str], hyper: Any) -> None:
    """Refuse heads that the terms do not serve, before anybody is requested anything."""
    from fedmoments.core.heads.choosing import choose_heads
    from fedmoments.federation.results import require_served

    require_served(terms, choose_heads(heads, hyper))


# -------------------------------------------------------------------------------------------------- results


def read_results(out: Path) -> "Report":
    """Return what a run wrote into its folder."""
    from fedmoments.core.observations import read_report

    return read_report(out / "federation.json")


def _troubles_of(report: "Report") -> list[dict[str, str]]:
    """Return who declined, was refused or failed in the rounds of a run, and why."""
    rounds = report.federation.rounds if report.federation else ()
    troubles = [each for entry in rounds for each in (*entry.declined, *entry.refused, *entry.failures)]
    return [{"who": trouble.who, "why": plain(trouble.because)} for trouble in troubles]


def results_document(report: "Report") -> dict[str, Any]:
    """Return what commands print of a run, ready for JSON: one entry a head, and how many took part."""
    from fedmoments.core.observations.codec import to_plain

    details = {detail.head: detail for detail in report.details}
    federation, card = report.federation, report.privacy
    if federation is None or card is None:
        raise InputError("this is not a report of a federation: it lacks the federation itself, or its privacy card")
    heads = [
        {
            "head": row.head,
            "accuracy": row.accuracy,
            "bytes_per_client": row.up_bytes_per_client,
            "fit_seconds": row.fit_seconds,
            "classifier": details[row.head].digest,
            "statistics": details[row.head].statistics_digest,
        }
        for row in report.rows
    ]
    return {
        "federation": federation.id,
        "state": federation.state,
        "clients": report.rows[0].setting.clients,
        "samples": report.data.train,
        "tested": report.data.test,
        "heads": heads,
        "troubles": _troubles_of(report),
        "failed_evaluations": to_plain(federation.failures),
        "spread": to_plain(federation.spread),
        "privacy": {"mode": card.mode, "agreed": card.agreed, "spent": card.spent},
        "left_out": dict(card.dropped),
    }


def show_results(report: "Report") -> None:
    """Print what a run found as a table, and below it who did not take part and why."""
    _show_size(report)
    rows = [
        [
            row.head,
            "–" if row.accuracy is None else f"{100 * row.accuracy:.2f} %",
            readable_bytes(row.up_bytes_per_client),
            str(detail.digest)[:DIGITS],
            str(detail.statistics_digest)[:DIGITS],
        ]
        for row, detail in zip(report.rows, report.details, strict=True)
    ]
    columns = ["head", "accuracy", "bytes per client", "classifier digest", "statistics digest"]
    print_table(columns, rows, right=["accuracy", "bytes per client"])
    untold: dict[str, list[str]] = {}
    for row in report.rows:
        if row.accuracy is None and row.outcomes[0].reason:
            untold.setdefault(row.outcomes[0].reason, []).append(row.head)
    for reason, heads in untold.items():
        print_line(f"note: {', '.join(heads)}: {reason}")
    _show_spread(report)
    _show_troubles(report)


def _show_size(report: "Report") -> None:
    """Print how many samples of how many clients were measured and tested, and behind which protection."""
    card, data = report.privacy, report.data
    spent = card.spent if card else None
    tested = f"; tested by clients on {data.test:,} samples of their own" if data.test else ""
    clients = plural(report.rows[0].setting.clients or 0, "client")
    print_line(f"{'about ' if spent else ''}{data.train:,} samples of {clients}{tested}")
    if card and card.mode != "clear sums":
        print_line(f"{card.mode}{f'; {spent_text(spent)}' if spent else ''}")
    print_line()


def _show_spread(report: "Report") -> None:
    """Print how far the results of nodes lie apart."""
    for name, spread in (report.federation.spread if report.federation else {}).items():
        if spread.alone is not None:
            print_line(f"{name}: each client's own samples alone give {100 * spread.alone:.2f} % on the same tests")
        if (spread.nodes or 0) > 1:
            known = (spread.lowest, spread.median, spread.highest, spread.largest_share)
            low, middle, high, share = (100 * (value or 0.0) for value in known)
            most = f"none has more than {share:.0f} % of the tested samples"
            rates = f"{low:.2f} to {high:.2f} % on {spread.nodes} nodes, median {middle:.2f}"
            print_line(f"accuracy of {name} by node: {rates}; {most}")


def _show_troubles(report: "Report", most: int = 5) -> None:
    """Print who did not take part and why."""
    dropped = report.privacy.dropped if report.privacy else {}
    for client, reason in list(dropped.items())[:most]:
        print_line(f"note: {client} was left out: {reason}")
    troubles = _troubles_of(report)
    for trouble in troubles[:most]:
        print_line(f"note: {trouble['who']}: {trouble['why']}")
    if len(troubles) > most:
        print_line(f"note: … and {len(troubles) - most:,} more, all in federation.json")
    for failure in report.federation.failures[:most] if report.federation else ():
        print_line(f"note: {failure.who} did not test the heads: {plain(failure.because)}")
