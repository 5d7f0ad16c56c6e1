"""The small rows of a ledger's table ``meta``: what the log says of each, and where they differ.

Every row follows from the log or from another table, so that one which was changed, taken away or put there is found:

==============  ==================================================================================================
row             must be
==============  ==================================================================================================
terms           canonical JSON of the terms that the log begins with, and that its last amendment signed
head            the hash of the last entry (checked with the chain)
server_key      the key of the terms or, if those name none, that of the first entry
journal         number and hash of the last line that was taken in; the journal's own lines are compared with it
counter         that number, and not below any that a receipt carries
accountant      the budget of the terms, and a line for each release that the log tells of
attempts        the number of the last attempt, and who is asked again
cohorts         what the log has the digest of
departures      the digest of the table of those who left
closed          there if, and only if, the ledger was once restored without its journal
==============  ==================================================================================================
"""

import hashlib
import json
from typing import Any

from fedmoments.durable import Connection
from fedmoments.errors import FedMomentsError
from fedmoments.federation.store.attempts import last_attempt
from fedmoments.federation.store.departures import seal_problem
from fedmoments.federation.store.replay import Replay
from fedmoments.federation.terms import Terms
from fedmoments.privacy.dp import Accountant
from fedmoments.privacy.dp.accountant import Spending
from fedmoments.wire import Agreement

__all__ = ["noted_problems"]

#: Names of all rows.
_KNOWN = frozenset(
    {
        *("terms", "head", "server_key", "journal", "counter", "accountant"),
        *("attempts", "cohorts", "departures", "closed"),
    }
)


def noted_problems(connection: Connection, agreement: Agreement, replay: Replay) -> list[str]:
    """Return a sentence for each row that is not what the log says.

    Parameters
    ----------
    connection
        To the ledger.
    agreement
        What it was opened under.
    replay
        All of the log.
    """
    rows: dict[str, Any] = dict(connection.execute("SELECT name, value FROM meta").fetchall())
    problems = [
        f"the table of notes has a row {name!r:.60}, which no ledger writes" for name in sorted(set(rows) - _KNOWN)
    ]
    terms, problem = _terms_of(rows.get("terms"), agreement, replay)
    problems += [problem] if problem else []
    problems += _counter_problems(rows, replay)
    if terms is not None:
        problems += _key_problem(rows, terms.server or replay.server_key)
        problems += _account_problems(rows.get("accountant"), terms, replay)
    problems += _masked_problems(connection, rows, replay)
    return [*problems, *_closed_problem(rows, replay), *seal_problem(connection)]


def _closed_problem(rows: dict[str, Any], replay: Replay) -> list[str]:
    """Return whether the note that a ledger was restored without its journal is not what the log says."""
    if ("closed" in rows) == replay.is_closed and rows.get("closed", "") == "":
        return []
    is_was = "was" if replay.is_closed else "was never"
    note = "there" if "closed" in rows else "missing"
    return [f"the note 'closed' is {note}, but by the log the ledger {is_was} restored without its journal"]


def _key_problem(rows: dict[str, Any], known: str) -> list[str]:
    """Return whether the server's key is not the known one."""
    is_first_build = "counter" not in rows and "server_key" not in rows  # which signed nothing
    if not known or rows.get("server_key") == known or is_first_build:
        return []
    return [_differs("server_key", rows.get("server_key"), known)]


def _differs(name: str, noted: Any, logged: Any) -> str:
    return f"the note '{name}' is {noted!r:.80}, but by the log it is {logged!r:.80}"


def _terms_of(text: Any, agreement: Agreement, replay: Replay) -> tuple[Terms | None, str]:
    """Return the terms as they are noted, and what is wrong with them."""
    try:
        terms = Terms.from_json(text)
    except (FedMomentsError, TypeError) as error:
        return None, f"the note 'terms' cannot be read: {error!s:.200}"
    if text != terms.to_json():
        return terms, "the note 'terms' is not the canonical text of the terms"
    if terms.id != agreement.federation:
        return terms, _differs("terms", terms.id, agreement.federation)
    if terms.digest != (replay.amended or terms.id):
        return terms, _differs("terms", terms.digest, replay.amended or terms.id)
    return terms, ""


def _counter_problems(rows: dict[str, Any], replay: Replay) -> list[str]:
    """Return what is wrong with the counter of receipts and the last line of the journal that was taken in."""
    noted, journal = rows.get("counter"), rows.get("journal")
    if noted is None and journal is None:  # of the first build, in which nothing was counted
        return [] if not replay.counter else ["the notes 'counter' and 'journal' are missing"]
    seq, _, last = str(journal).partition(" ")
    if not _is_line(seq, last):
        return [f"the note 'journal' is {journal!r:.80}, which is not a line of a journal"]
    if noted != seq:
        return [f"the counter is {noted!r:.40}, but the journal has {seq} lines"]
    if int(seq) < (replay.counter or 0):
        return [f"the counter is {seq}, but a receipt in the log carries {replay.counter}"]
    return []


def _is_line(seq: str, last: str) -> bool:
    """Say whether a number and a hash can be a line of a journal: before the first line there is no hash."""
    is_number = seq.isascii() and seq.isdigit() and len(seq) < 19 and str(int(seq)) == seq
    return is_number and len(last) == (64 if int(seq) else 0)


def _account_problems(text: Any, terms: Terms, replay: Replay) -> list[str]:
    """Return where the account of privacy is not that of the releases in the log."""
    if text is None and not replay.charged:
        return []
    agreed = terms.privacy
    held = {} if text is None else json.loads(text)
    if agreed.epsilon is None:
        return ["there is an account of privacy, but the terms agree on no epsilon"]
    spendings = tuple(Spending(ratio, what) for ratio, what in replay.charged)
    expected = Accountant(agreed.epsilon, agreed.delta, spendings).to_dict()
    if text == json.dumps(expected):
        return []
    ratios = [spending["ratio"] for spending in held.get("spendings", [])]
    counts = f"{len(ratios)} releases, but the log of {len(replay.charged)}"
    noise = f"with noise of {ratios} and {[ratio for ratio, _ in replay.charged]} times Δ"
    return [f"the privacy account lists {counts}, {noise}; its budget is {held.get('epsilon')!r:.20}"]


def _masked_problems(connection: Connection, rows: dict[str, Any], replay: Replay) -> list[str]:
    """Return where attempts and cohorts are not those of the log."""
    problems = []
    if (text := rows.get("attempts")) is not None or replay.attempt:
        logged = json.dumps({"attempt": replay.attempt, "clients": sorted(replay.asked_again)})
        if replay.knows_names and text != logged:
            problems.append(_differs("attempts", text, logged))
        elif last_attempt(connection) != replay.attempt:
            problems.append(_differs("attempts", text, replay.attempt))
    text = rows.get("cohorts")
    digest = None if text is None else hashlib.sha256(str(text).encode()).hexdigest()
    if (text is None) != (replay.cohorts is None) or (replay.cohorts and replay.cohorts != digest):
        problems.append(_differs("cohorts", digest, replay.cohorts))
    return problems
