"""Looking at a federation that runs, or that ran: ledger, invitations and what the run says of itself, as one view."""

import time
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from fedmoments.federation.enrolment.invitations import Invitation, Invitations, invitations_of
from fedmoments.federation.flower.live import read_live
from fedmoments.federation.outcome import privacy_card_of
from fedmoments.federation.store import FederationStore
from fedmoments.federation.store.members import Enrolled
from fedmoments.federation.store.status import Contributor, Status
from fedmoments.pages.live_view import LiveView, Party
from fedmoments.samples.natural_order import natural_key

__all__ = ["Viewer"]

#: Seconds after which what a run said last is not shown any more.
SILENT = 120.0
#: What the log notes of a party that is not in.
_TROUBLES = ("declined", "node failed")


def _is_silent(live: dict[str, Any]) -> bool:
    """Say whether a run said nothing for long though it was not over: its process is gone, or it fits or adds up."""
    last = live.get("time")
    over = str(live.get("phase", "")).startswith("the run")
    return isinstance(last, float) and not over and time.time() - last > SILENT


#: States of a party, those first that somebody has to do something about.
_BY_URGENCY = ("failed", "refused", "measuring", "connected", "enrolled", "invited", "contributed", "revoked")


class Viewer:
    """Looks at one federation again and again; what has not changed is not read again.

    Parameters
    ----------
    ledger, home
        The federation's, and that of Flower's processes.
    """

    def __init__(self, ledger: Path, home: Path) -> None:
        self._ledger, self._home = ledger, home
        self._last: tuple[Any, LiveView] | None = None
        self._read = 0
        self._rounds: list[dict[str, Any]] = []
        self._troubles: dict[str, tuple[str, str]] = {}
        self._accuracy: dict[str, float | None] = {}
        self._phase = "no run was started yet"

    def look(self) -> LiveView:
        """Return the federation as it is now; the same object as before where nothing changed."""
        live = read_live(self._home)
        with FederationStore.open(self._ledger) as store:
            said = "reason" if store.terms.privacy.mode.noise.is_on else "sentence"  # sentences hold exact numbers
            for entry in store.audit(self._read):
                self._read = entry.seq
                self._take(entry.event, entry.details, said)
            invited: tuple[Invitation, ...] = ()
            if invitations_of(self._ledger).exists():
                with Invitations(self._ledger, store.terms.id) as invitations:
                    invited = invitations.all()
            silent = _is_silent(live)
            mark = (self._read, live.get("time"), invited, silent)
            if self._last is None or self._last[0] != mark:
                self._last = (mark, self._view(store, {} if silent else live, invited))
        return self._last[1]

    def _take(self, event: str, facts: dict[str, Any], said: str) -> None:
        if event == "note":
            self._take_note(str(facts.get("note")), facts)
        elif event == "refused" and facts.get("client"):
            self._troubles[facts["client"]] = ("refused", str(facts.get(said, "")))
        elif event in ("joined", "replaced", "reported"):
            self._troubles.pop(str(facts.get("client")), None)

    def _take_note(self, note: str, facts: dict[str, Any]) -> None:
        """Follow what the run noted about itself."""
        if note == "run started":
            self._rounds, self._troubles, self._accuracy, self._phase = [], {}, {}, "a run has started"
        elif note == "run finished":
            self._phase = "the run is over"
        elif note == "round closed":
            self._rounds.append(facts)
        elif note == "evaluated":
            self._accuracy = dict(facts.get("accuracy") or {})
        elif note in _TROUBLES:
            state = "refused" if note == "declined" else "failed"
            troubles = map(dict[str, Any], facts.get("clients", [facts]))
            self._troubles |= {_whose(trouble, facts): (state, _why(trouble)) for trouble in troubles}

    def _view(self, store: FederationStore, live: dict[str, Any], invited: tuple[Invitation, ...]) -> LiveView:
        status, terms = store.status(), store.terms
        mode, dense = terms.privacy.mode, 8 * terms.layout.size
        counts = mode.is_in_ledger  # a page is read by others: under an epsilon it holds nothing of the exact sums
        return LiveView(
            name=terms.name,
            federation=terms.id,
            phase=str(live.get("phase", self._phase)),
            waiting=str(live.get("waiting", "")),
            parties=tuple(self._parties(store, status, live, invited)),
            classes=dict(zip(terms.classes, status.class_counts, strict=True)) if counts else {},
            n_classes=len(terms.classes),
            covered=status.classes_covered if counts else 0,
            clients=status.clients,
            samples=status.samples if counts else 0,
            bytes=mode.publishable_bytes(status.bytes, dense=dense * status.clients),
            rounds=tuple(
                {**told, "bytes": mode.publishable_bytes(told.get("bytes", 0), dense=dense * told.get("accepted", 0))}
                for told in self._rounds
            ),
            accuracy=dict(self._accuracy),
            refusals=tuple(
                f"{entry.details.get('client') or 'somebody'}: "
                f"{entry.details.get('reason' if mode.noise.is_on else 'sentence')}"
                for entry in status.last_refusals
            ),
            refused=status.refused,
            card=privacy_card_of(terms, status, None),
        )

    def _party(
        self,
        member: Enrolled,
        places: Iterable[tuple[Collection[str], str]],
        sent: Contributor | None,
        accuracies: Any,
    ) -> Party:
        state, detail = ("revoked", "") if member.status == "revoked" else self._state(member.client, places)
        samples, size = (sent.samples, sent.bytes) if sent else (None, None)
        return Party(member.client, state, detail[:300], samples, size, accuracies)

    def _parties(
        self, store: FederationStore, status: Status, live: dict[str, Any], invited: tuple[Invitation, ...]
    ) -> list[Party]:
        contributed = {contributor.client: contributor for contributor in status.contributors}
        reported = set(status.waiting).union(*(batch.clients for batch in store.batches()))
        here, pending = (self._clients(store, live.get(key)) for key in ("here", "pending"))
        places = ((contributed.keys() | reported, "contributed"), (pending, "measuring"), (here, "connected"))
        shown = contributed if store.terms.privacy.mode.is_open else {}
        told = live.get("sites")
        sites = told if isinstance(told, dict) else {}
        parties = [
            self._party(member, places, shown.get(member.client), _accuracies(sites, member.client))
            for member in store.enrolled()
        ]
        known = {party.name for party in parties}
        strangers = [Party(who, state, why[:300]) for who, (state, why) in self._troubles.items() if who not in known]
        return sorted([*parties, *_guests(invited, known), *strangers], key=_urgency)

    def _state(self, name: str, places: Iterable[tuple[Collection[str], str]]) -> tuple[str, str]:
        """Return how far an enrolled party is, and its trouble: what it contributed counts before that."""
        (contributed, done), *others = places
        if name in contributed:
            return done, ""
        if name in self._troubles:
            return self._troubles[name]
        return next((state for names, state in others if name in names), "enrolled"), ""

    def _clients(self, store: FederationStore, nodes: Any) -> set[str]:
        from fedmoments.federation.flower.live import Live

        names = Live(str(self._home), store)
        return {names.client(node) for node in nodes if isinstance(node, int)} if isinstance(nodes, list) else set()


def _urgency(party: Party) -> tuple[Any, ...]:
    """Return a key that puts whoever an operator has to see before those who are done; a list may be cut."""
    place = _BY_URGENCY.index(party.state) if party.state in _BY_URGENCY else len(_BY_URGENCY)
    return place, natural_key(party.name)


def _guests(invited: Iterable[Invitation], known: Collection[str]) -> list[Party]:
    """Return the parties that were invited and are not enrolled yet."""
    return [
        Party(one.client, "invited", f"until {one.expires[:10]}" if one.is_open else "the kit has ended")
        for one in invited
        if one.client not in known
    ]


def _accuracies(sites: Mapping[str, Any], name: str) -> dict[str, float]:
    """Return how accurate every head was at a party, as the run tells."""
    return {head: tested["accuracy"] for head, tested in sites.get(name, {}).items()}


def _whose(trouble: Mapping[str, Any], facts: Mapping[str, Any]) -> str:
    return str(trouble.get("client") or f"node {facts.get('node')}")


def _why(trouble: Mapping[str, Any]) -> str:
    return str(trouble.get("why") or trouble.get("reason") or "")
