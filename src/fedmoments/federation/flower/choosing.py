"""Which samples a client of this node measures: its own that its policy lets out, and those that others hand to it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedmoments.federation.audit import leaving
from fedmoments.federation.flower.held import Held
from fedmoments.federation.flower.holdings import MOST_NAMES
from fedmoments.federation.policy import ClientPolicy
from fedmoments.federation.terms import Terms
from fedmoments.privacy.small_classes import NOBODY, hand_over
from fedmoments.wire import Withheld

__all__ = ["Choosable", "Chooser", "Chosen"]


@dataclass(frozen=True, eq=False)
class Chosen:
    """What a client measures, and what is reported about the rest.

    Parameters
    ----------
    held
        The samples that are measured.
    withheld
        What the server is told: classes and samples of this client that are not in its contribution, whether nobody
        measures them or another client of the node does.
    notes
        For the client's own record: its rules, what they did, and what the contribution reveals.
    source
        Digest of all samples that it was chosen from.
    """

    held: Held
    withheld: Withheld
    notes: dict[str, Any]
    source: str


class Choosable(Protocol):
    """What a policy chooses among: :class:`~fedmoments.federation.flower.holdings.Holdings`, or their rows."""

    clients: tuple[str, ...]
    unknown: Mapping[str, int]
    #: Samples of the training and of the test part that could not be read.
    unreadable: list[tuple[str, ...]]

    def train(self, client: str) -> Held:
        """Return a client's training samples."""

    def notes_of_unreadable(self, part: int) -> dict[str, Any]:
        """Return what the party's own record says of samples that could not be read."""


class Chooser:
    """Applies the policy of a node to its clients.

    Parameters
    ----------
    holdings
        Who holds what.
    policy
        Of all clients of the node.
    terms
        What is requested.
    """

    def __init__(self, holdings: Choosable, policy: ClientPolicy, terms: Terms) -> None:
        self.holdings, self.policy, self.terms = holdings, policy, terms

    @property
    def _shares(self) -> bool:
        """Whether clients of this node measure each other's small classes."""
        return self.policy.merges and len(self.holdings.clients) > 1

    @cached_property
    def _takers(self) -> NDArray[np.int64]:
        """(K, C) who measures each client's samples of each class."""
        n_classes = len(self.terms.classes)
        counts = [np.bincount(self.holdings.train(k).y, minlength=n_classes) for k in self.holdings.clients]
        return hand_over(np.stack(counts), self.policy.least_of_class(self.terms.map_outline, self.terms.spec.moments))

    def choose(self, client: str) -> Chosen:
        """Return what a client measures."""
        own = self.holdings.train(client)
        pool, given, taken = self._pool(client, own) if self._shares else (own, {}, {})
        spec, behind = self.terms.spec, self.terms.map_outline
        mask, _ = self.policy.select(pool.y, spec.means_per_client, behind=behind, moments=spec.moments)
        mask &= ~np.isin(pool.y, pool.take(mask).repeated(self.policy.min_count))
        chosen = pool.take(mask)
        n_taken = sum(taken.values())
        of_own = chosen.y[: int(mask[: len(pool.y) - n_taken].sum())]  # own samples come first
        withheld = Withheld(len(set(own.y.tolist()) - set(of_own.tolist())), len(own.y) - len(of_own))
        notes = self._notes(chosen, withheld, given, taken)
        gone = sorted(set(own.y.tolist()) - set(of_own.tolist()))
        if gone:
            notes["classes_kept_back"] = [self.terms.classes[label] for label in gone[:MOST_NAMES]]
        notes |= self.holdings.notes_of_unreadable(0)
        withheld = replace(withheld, samples=withheld.samples + len(self.holdings.unreadable[0]))
        source = sha256(f"{own.digest()}{pool.digest()}".encode()).hexdigest() if self._shares else own.digest()
        return Chosen(chosen, withheld if self.policy.report_withheld else Withheld(), notes, source)

    def _pool(self, client: str, own: Held) -> tuple[Held, dict[str, int], dict[str, int]]:
        """Return a client's samples less those that it gives away or that nobody measures, and with those it takes."""
        clients = self.holdings.clients
        me = clients.index(client)
        destined = self._takers[me][own.y]
        stays = destined == me
        given = {clients[k]: int((destined == k).sum()) for k in np.unique(destined).tolist() if k not in (me, NOBODY)}
        parts, taken = [Held(own.X[stays], own.y[stays])], {}
        for k in np.flatnonzero((self._takers == me).any(axis=1)).tolist():
            if k == me:
                continue
            theirs = self.holdings.train(clients[k])
            mine = self._takers[k][theirs.y] == me
            if mine.any():
                parts.append(Held(theirs.X[mine], theirs.y[mine]))
                taken[clients[k]] = int(mine.sum())
        pool = Held(np.concatenate([part.X for part in parts]), np.concatenate([part.y for part in parts]))
        return pool, given, taken

    def _notes(self, chosen: Held, withheld: Withheld, given: dict[str, int], taken: dict[str, int]) -> dict[str, Any]:
        report = leaving(chosen.y, self.terms.spec, self.terms.dim, self.policy, behind=self.terms.map_outline)
        notes: dict[str, Any] = {
            "policy": self.policy.to_dict(),
            "kept_back": {"classes": withheld.classes, "samples": withheld.samples},
            "reveals": report.summary(),
            **self.terms.privacy.mode.record,
        }
        if self.holdings.unknown:
            unknown = self.holdings.unknown
            notes["unknown"] = {"classes": len(unknown), "samples": sum(unknown.values())}
        if given or taken:
            notes["merged"] = {"given": given, "taken": taken}
        if self.terms.spec.means_per_client > 1 and self.policy.merges:
            rows = leaving(chosen.y, self.terms.spec, self.terms.dim, ClientPolicy(min_count=1)).outline.rows
            notes["one_mean"] = sum(rows[label] != sizes for label, sizes in report.outline.rows.items())
        return notes
