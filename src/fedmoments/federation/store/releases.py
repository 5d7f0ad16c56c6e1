"""Releases: sums that were noised once, kept permanently, and the account of what they cost.

All that leaves a federation with an epsilon is computed from a release. It is made once for a state of the ledger, in
the transaction that charges the account for it; whoever fits again from the same state computes from the same numbers
and pays nothing. A state that changed needs a new release, which is refused when the budget does not allow it.

Noised sums of secure batches are releases from the start. Each client is in one batch only, so that what hides a client
in one of them hides it in all: however many batches there are, the account is charged once.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.statistics import Statistics
from fedmoments.durable import Connection
from fedmoments.errors import LedgerError, PrivacyError
from fedmoments.federation.store.audit import append, entry
from fedmoments.federation.store.batches import Batch, keep_result, results_of
from fedmoments.federation.terms import Terms
from fedmoments.privacy.dp import Accountant, MeansForm, SumsForm
from fedmoments.privacy.dp.accountant import Spending
from fedmoments.privacy.modes.central_noise import CentralNoise

__all__ = ["CLOSED", "Release", "charge_again", "keep_released", "read_release", "read_spent", "release"]

Words = NDArray[np.uint64]

_ACCOUNT = "accountant"
#: Stands in a ledger of which nobody knows any more what was released.
CLOSED = "closed"


@dataclass(frozen=True, eq=False)
class Release:
    """What may be computed with and published.

    Parameters
    ----------
    state
        SHA-256 of the state of the ledger that it was made from; it stays with the operator.
    noisy
        (size,) uint64: the dense vector with the noise on it.
    terms
        What it was made under.
    facts
        The noise, and what it promises.
    batches
        How many noised sums of secure batches it adds up; 0: one server noised the sum of all.
    """

    state: str
    noisy: Words
    terms: Terms
    facts: Mapping[str, Any]
    batches: int = 0

    @cached_property
    def statistics(self) -> Statistics:
        """The sums, repaired so that heads can be fitted from them, in float64.

        Raises
        ------
        NotEnoughDataError
            When no class stands out of the noise.
        """
        return _form(self.terms).statistics(self.noisy, servers=2 * self.batches or 1)  # both noised every batch


def release(connection: Connection, terms: Terms, state: str, merged: Statistics) -> Release:
    """Return the release of a state, made and charged now if there is none; inside a transaction.

    Raises
    ------
    PrivacyError
        When the budget does not allow it; nothing is changed then.
    """
    stored = read_release(connection, terms, state)
    if stored is not None:
        return stored
    form = _form(terms)
    form.check(merged)
    facts = _charge(connection, terms, state)
    noisy = form.noised(merged)
    data = noisy.astype("<u8").tobytes()
    new = append(connection, "released", {"state": state, "data": hashlib.sha256(data).hexdigest(), **facts})
    connection.execute("INSERT INTO releases VALUES (?, ?, ?, ?)", (state, new.seq, json.dumps(facts), data))
    return Release(state, noisy, terms, facts)


def read_release(connection: Connection, terms: Terms, state: str) -> Release | None:
    """Return the release of a state, if there is one."""
    if not terms.privacy.mode.reads_contributions:
        return _of_batches(connection, terms)
    row = connection.execute("SELECT facts, data, seq FROM releases WHERE state = ?", (state,)).fetchone()
    if row is None:
        return None
    if hashlib.sha256(row[1]).hexdigest() != entry(connection, row[2]).details["data"]:
        raise LedgerError("the release of this state is not what was written: the ledger is damaged; run verify")
    return Release(state, _numbers(row[1], terms), terms, json.loads(row[0]))


def _of_batches(connection: Connection, terms: Terms) -> Release | None:
    """Return the sum of all noised batches; both servers' noise is in each of them."""
    parts = results_of(connection)
    if not parts:
        return None
    total = np.zeros(terms.layout.size, np.uint64)
    for data in parts.values():
        total += _numbers(data, terms)
    n, told = len(parts), _form(terms).describe()
    noise = {name: sigma * (2.0 * n) ** 0.5 for name, sigma in told["noise"].items()}
    facts = {**told, "noise": noise, "servers": 2, "batches": n}
    return Release(hashlib.sha256(b"".join(parts.values())).hexdigest(), total, terms, facts, n)


def keep_released(connection: Connection, terms: Terms, batch: Batch, noised: bytes) -> None:
    """Keep the noised sum of a secure batch, and charge the account once for all of them; inside a transaction."""
    facts: dict[str, Any] = {"charged": False}
    if not _account(connection, terms).spendings:
        facts = {"charged": True, **_charge(connection, terms, batch.name)}
    keep_result(connection, batch, noised, facts)


def read_spent(connection: Connection, terms: Terms) -> dict[str, Any] | None:
    """Return what was spent and what is left of the budget; None without an epsilon."""
    agreed = terms.privacy
    if not agreed.mode.noise.is_on:
        return None
    account = _account(connection, terms)
    if agreed.mode.adds_reports:  # every client has an account of its own, and every version is charged to it
        most = connection.execute("SELECT coalesce(max(version), 0) FROM reports").fetchone()[0]
        each = (Spending(_form(terms).ratio, "a report"),) * min(most, agreed.releases)
        account = Accountant(account.epsilon, account.delta, each)
    return {
        "epsilon": account.spent,
        "left": account.left,
        "budget": agreed.epsilon,
        "delta": agreed.delta,
        "releases": len(account.spendings),
        "unit": agreed.unit,
        "neighbours": agreed.neighbours,
    }


def _account(connection: Connection, terms: Terms) -> Accountant:
    row = connection.execute("SELECT value FROM meta WHERE name = ?", (_ACCOUNT,)).fetchone()
    if row is None:
        n_releases = connection.execute("SELECT count(*) FROM releases").fetchone()[0]
        if n_releases or results_of(connection):
            raise LedgerError("the ledger holds releases, but no account of them: it is damaged; restore a snapshot")
        return Accountant(float(terms.privacy.epsilon or 0.0), terms.privacy.delta)
    account, agreed = Accountant.from_dict(json.loads(row[0])), terms.privacy
    if (account.epsilon, account.delta) != (agreed.epsilon, agreed.delta):
        raise LedgerError(
            f"the ledger's account is of a budget of ε = {account.epsilon:g} and δ = {account.delta:g}, but the terms "
            f"agree on {agreed.epsilon} and {agreed.delta:g}: it is damaged; restore a snapshot"
        )
    return account


def _charge(connection: Connection, terms: Terms, what: str) -> dict[str, Any]:
    """Charge the account for one release, and return what it promises."""
    account = _account(connection, terms)
    form = _form(terms)
    if connection.execute("SELECT 1 FROM meta WHERE name = ?", (CLOSED,)).fetchone():
        raise PrivacyError(
            "this ledger was restored without its journal, so that nobody knows what was released of it: nothing more "
            "is released; publish what was released before, or agree on a new federation"
        )
    account.record(form.ratio, what[:16])
    _keep_account(connection, account)
    return {**form.describe(), "spent": account.spent}


def charge_again(connection: Connection, terms: Terms, number: int, ratio: float, what: str) -> None:
    """Charge for a release that was made, and that this ledger does not know of, for it is older; in a transaction.

    Whatever was released was read: it is charged even if the account has no room for it.

    Parameters
    ----------
    number
        How many releases there were then, this one among them: no release is charged twice.
    ratio, what
        As in the account.
    """
    account = _account(connection, terms)
    if len(account.spendings) >= number:
        return
    account = Accountant(account.epsilon, account.delta, (*account.spendings, Spending(ratio, what)))
    _keep_account(connection, account)
    append(connection, "spent", {"ratio": ratio, "what": what})


def _keep_account(connection: Connection, account: Accountant) -> None:
    connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (_ACCOUNT, json.dumps(account.to_dict())))


def _form(terms: Terms) -> SumsForm | MeansForm:
    """Return how releases are made and read under these terms."""
    return CentralNoise(terms.privacy).release_form(terms)


def _numbers(data: bytes, terms: Terms) -> Words:
    if len(data) != 8 * (size := _form(terms).size):
        raise LedgerError(f"a noised sum has {len(data)} bytes instead of {8 * size}: run verify")
    return np.frombuffer(data, "<u8").astype(np.uint64)
