"""A node: what one party's machine does when the federation asks. Knows nothing of Flower.

The node decides. It checks the terms against its own policy, measures its own data, signs, keeps what it sends on its
own disk until it is acknowledged, and writes down what left.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

from fedmoments.core.statistics import Statistics
from fedmoments.errors import FedMomentsError, LedgerError, PolicyError, in_full, told_elsewhere
from fedmoments.federation.flower.choosing import Chooser, Chosen
from fedmoments.federation.flower.holdings import holdings_of
from fedmoments.federation.flower.measured import facts_of_report, measure_held, shown_to, source_of
from fedmoments.federation.flower.second_report import SecondPhase, require_same_source, second_report
from fedmoments.federation.keys.parties import load_identity
from fedmoments.federation.outbox import Outbox
from fedmoments.federation.outbox.absent import NoOutbox
from fedmoments.federation.outbox.differences import require_wide_change
from fedmoments.federation.outbox.rare_changes import Measured, SharedValues, require_common_change
from fedmoments.federation.outbox.watching import Watching
from fedmoments.federation.own_data import accepted_terms, measuring
from fedmoments.federation.policy import ClientPolicy
from fedmoments.federation.terms import Terms
from fedmoments.files import write_whole
from fedmoments.privacy.secure.broadcast import Broadcast
from fedmoments.samples.encoders.registry import require_trusted
from fedmoments.settings.client import ClientSettings
from fedmoments.wire import IdentityKey, pack_bundle
from fedmoments.wire.withdrawal import Withdrawal, make_withdrawal

#: What says what a client sends, and for what.
_Saying = Callable[[str], tuple[bytes | None, Terms | None]]
#: Where a party finds terms with classes that it has not accepted yet.
AMENDED = "amended.terms.json"

__all__ = ["AMENDED", "Node", "Offer", "identity_of", "left_sentence"]


@dataclass(frozen=True)
class Offer:
    """What a node sends when it is asked to contribute.

    Parameters
    ----------
    bundle
        Contributions, packed.
    clients
        Whose they are.
    declined
        What was not sent: client, and the rule or error that kept it back; its ``details`` stay here.
    more
        Whether others wait for the next time.
    seen
        Size of the last head of the log that this node saw: the server must show that its log begins with it.
    held
        Clients that hold a receipt and sent nothing: the server says so if one of them has left.
    """

    bundle: bytes
    clients: tuple[str, ...]
    declined: tuple[Mapping[str, str], ...]
    more: bool = False
    seen: int = 0
    held: tuple[str, ...] = ()

    def fields(self) -> dict[str, Any]:
        """Return all but the bundle, ready for JSON."""
        return {
            "clients": list(self.clients),
            "more": self.more,
            "seen": self.seen,
            "held": list(self.held),
            "declined": [{"client": entry["client"], "why": entry["why"]} for entry in self.declined],
        }


def left_sentence(client: str, folder: str) -> str:
    """Return what a client that has left is told."""
    return (
        f"client '{client}' has left this federation, and its ledger holds nothing of it: to contribute again, run "
        f"'fedmoments rejoin {folder or 'FOLDER'}' and start it again"
    )


def _behind(after: str, clients: tuple[str, ...]) -> tuple[str, ...]:
    """Return the clients behind one, none where it is not there; all of them without a name."""
    if not after:
        return clients
    return clients[clients.index(after) + 1 :] if after in clients else ()


def identity_of(settings: ClientSettings, client: str) -> IdentityKey:
    """Return the key that signs a client's contributions: from its file, or derived in a simulation."""
    if settings.key_seed:
        return IdentityKey.from_bytes(sha256(f"fedmoments\n{settings.key_seed}\n{client}".encode()).digest())
    return load_identity(Path(settings.keys) / f"{client}.identity")


class Node:
    """One party's machine, serving one client or several.

    Parameters
    ----------
    settings
        The client's own.
    identity
        Returns the key of a client; None: from its file, which a process that listens to a server cannot open.
    """

    def __init__(self, settings: ClientSettings, identity: Callable[[str], IdentityKey] | None = None) -> None:
        self.settings, self.policy = settings, ClientPolicy.from_dict(settings.policy)
        self.identity = identity or partial(identity_of, settings)
        self.outbox = Outbox(settings.folder) if settings.folder else NoOutbox()
        self.watching = Watching(Path(settings.folder)) if settings.folder else None
        self._choosing: Chooser | None = None

    def contribute(
        self,
        terms: Terms,
        *,
        most_bytes: int,
        again: bool = False,
        after: str = "",
        given_up: Collection[str] = (),
    ) -> Offer:
        """Return contributions that were not acknowledged yet, as many as fit; errors of one client stop no other.

        Parameters
        ----------
        terms
            What is requested.
        most_bytes
            Cap on the bundle; a single larger contribution goes alone, for the terms cap that.
        again
            Send also what was acknowledged before.
        after
            The last client of a bundle that had no room for all: go on behind it.
        given_up
            Clients whose batch was given up: what they reported counts no more, though it was acknowledged.
        """
        try:
            self.require_terms(terms)
            terms = self._accepted(terms)
            self.policy.require(terms)
            clients = _behind(after, holdings_of(self.settings, terms).clients)
        except (FedMomentsError, OSError, ValueError) as error:
            who = self.settings.name or "all clients of this node"
            return Offer(pack_bundle([]), (), (self.decline(terms, who, error),))

        def say(client: str) -> tuple[bytes | None, Terms | None]:
            leaving = self._leaving(terms, client)
            if leaving is not None:
                return leaving, None
            data = self._contribution(terms, client)
            return None if not again and self.outbox.acknowledged(terms.id, client) else data, terms

        return self._offer(terms, self._not_in_a_sum(terms, clients, given_up), say, self._watch(terms), most_bytes)

    def _offer(self, terms: Terms, clients: Iterable[str], say: _Saying, seen: int, most_bytes: int) -> Offer:
        """Return what clients say, as much as fits; an error of one stops no other.

        Parameters
        ----------
        terms, clients, seen, most_bytes
            What is asked, of whom, which head of the log was seen last, and the cap on the bundle.
        say
            Returns what a client sends: None if that was acknowledged before, nothing if it has left by its own word;
            and what the record tells is being sent for.
        """
        sent: dict[str, bytes] = {}
        held: list[str] = []
        declined: list[dict[str, str]] = []
        room, more = most_bytes, False
        with self.outbox.batch():  # on the disk before anything leaves: the bundle is returned after the block
            for client in clients:
                try:
                    data, of = say(client)
                except (FedMomentsError, OSError, ValueError, ArithmeticError) as error:
                    declined.append(self.decline(terms, client, error))
                    continue
                if data is None:
                    held.append(client)
                    continue
                if data and sent and len(data) > room:
                    more = True
                    break
                if data:
                    room -= len(data)
                    sent[client] = data
                if of is not None:
                    self.outbox.sent(of, client)
        bundle = pack_bundle(list(sent.values()))
        return Offer(bundle, tuple(sent), tuple(declined), more=more, seen=seen, held=() if more else tuple(held))

    def _not_in_a_sum(self, terms: Terms, clients: Iterable[str], given_up: Collection[str]) -> tuple[str, ...]:
        """Return the clients whose report is not in a sum that stands: of a first attempt, all of them."""
        known = self.outbox.acknowledged
        return tuple(one for one in clients if not terms.attempt or one in given_up or not known(terms.id, one))

    def _leaving(self, terms: Terms, client: str) -> bytes | None:
        """Return a client's withdrawal, where it withdraws, nothing once that is done, and None where it takes part.

        Raises
        ------
        PolicyError
            When the server took it out.
        """
        departure = self.outbox.departure(terms.id, client)
        if departure is None:
            return None
        if departure.gone and not departure.own:
            raise PolicyError(left_sentence(client, self.settings.folder))
        if departure.gone:
            return b""
        sentence = f"asks the server to take out version {departure.version}"
        self.outbox.sending("withdrawing", terms, client, version=departure.version, sentence=sentence)
        return make_withdrawal(Withdrawal(terms.id, client, departure.version), self.identity(client))

    def second(self, terms: Terms, broadcast: bytes, *, most_bytes: int, after: str = "") -> Offer:
        """Return reports of the second of two phases, of those clients that took part in the first, as many as fit."""
        self.require_terms(terms)
        self.policy.require(terms)
        phase = SecondPhase(terms, Broadcast.from_bytes(broadcast))
        clients = _behind(after, holdings_of(self.settings, terms).clients)
        of = cast("Terms", phase)
        seen = self._watch(terms, phase.id)
        return self._offer(terms, clients, lambda client: (self._second(phase, client), of), seen, most_bytes)

    def decline(self, terms: Terms, client: str, error: Exception) -> dict[str, str]:
        """Write down why something is not sent; return it, with what of it the server may know as ``why``."""
        sentence = in_full(error)
        self.outbox.declined(terms, client, sentence)
        return {"client": client, "why": told_elsewhere(error), "details": sentence}

    def _watch(self, terms: Terms, part: str = "") -> int:
        """Remember the server's key, and return the size of the last head of its log that this node saw."""
        if self.watching is None:
            return 0
        self.watching.trust(terms.id, terms.server, part)
        return self.watching.seen(terms.id)

    def acknowledge(
        self, receipts: Sequence[str], refusals: Sequence[Mapping[str, Any]], shown: Any = None
    ) -> list[str]:
        """Keep receipts and refusals, each by itself; return what was wrong with those that cannot be kept.

        Parameters
        ----------
        receipts, refusals
            What the server says of contributions.
        shown
            Its log, as far as it shows it: a receipt that is not in it is not kept.
        """
        problems: list[str] = []
        if self.watching is not None:
            receipts, problems = self.watching.check(receipts, shown)
            if self.watching.pinned is not None and isinstance(self.outbox, Outbox):
                who = self.settings.name or "all clients of this node"
                self.outbox.pinned(self.watching.pinned.federation, who, self.watching.pinned.key)
        with self.outbox.batch():
            for receipt in receipts:
                try:
                    self.outbox.acknowledge(receipt)
                except LedgerError as error:
                    problems.append(str(error))
            for refusal in refusals:
                given = [refusal[key] for key in ("federation", "client", "version", "reason", "sentence")]
                try:
                    self.outbox.refused(*given)
                except LedgerError as error:
                    problems.append(str(error))
        return problems

    def require_terms(self, terms: Terms) -> None:
        """Refuse terms that this client did not read."""
        require_trusted(terms.encoder["name"], self.settings.trust, "the federation's terms")
        if self.settings.federation and terms.id != self.settings.federation:
            raise PolicyError(
                f"this client takes part in the federation {self.settings.federation[:16]}…, but the server sent the "
                f"terms of {terms.id[:16]}… ('{terms.name}'): read those first, then name them in the settings"
            )

    def _accepted(self, terms: Terms) -> Terms:
        """Return the terms that this client accepted; tell it of classes that were added since, once."""
        if self.watching is not None:
            self.watching.notebook.follow_terms(terms, self.settings.accepted)
        accepted = accepted_terms(self.settings, terms)
        if accepted.digest != terms.digest and self.settings.folder:
            place, text = Path(self.settings.folder) / AMENDED, f"{terms.to_json()}\n".encode()
            if not place.exists() or place.read_bytes() != text:
                write_whole(place, text)
                new = terms.classes[len(accepted.classes) :]
                sentence = (
                    f"the server added classes to the terms: {', '.join(new[:10])}{' …' if len(new) > 10 else ''}. "
                    f"This client continues without them until --accept-terms {place}"
                )
                self.outbox.sending("amended", terms, self.settings.name or "this node", sentence=sentence)
        return accepted

    def chooser(self, terms: Terms) -> Chooser:
        """Return what applies the policy to this node's clients, made once for all of them."""
        holdings = holdings_of(self.settings, terms)
        if self._choosing is None or self._choosing.holdings is not holdings:
            self._choosing = Chooser(holdings, self.policy, terms)
        return self._choosing

    def _second(self, phase: SecondPhase, client: str) -> bytes:
        """Return a client's report of the second phase: the stored one, or one made from the samples of the first."""
        terms = phase.terms
        chosen = self.chooser(terms).choose(client)
        key = self.identity(client)
        source, noise = self._source(chosen, terms, key)
        source = source_of(client, source, terms.attempt, self.outbox.sources(terms.id, client))
        self.outbox.prepare(terms, client, source, require_same_source(client))
        facts: dict[bytes, Mapping[str, Any]] = {}

        def make(version: int) -> bytes:
            with measuring():
                stats = measure_held(chosen.held, terms, self.policy, noise=noise)
                data, record = second_report(phase, stats, client=client, version=version, key=key)
            self.policy.require_size(len(data))
            facts[data] = record
            return data

        return self.outbox.prepare(
            cast("Terms", phase), client, f"{source}{phase.broadcast.digest}", make, lambda data, _: facts[data]
        )

    def _source(self, chosen: Chosen, terms: Terms, key: IdentityKey) -> tuple[str, str]:
        """Return the digest of all that a contribution is made from, and what seeds its noise on counts.

        The latter is secret, and the same if made again: noise must not be another every time.
        """
        source = sha256(f"{chosen.source}{self.policy}{key.public.hex}".encode()).hexdigest()
        return source, key.derive(f"noise\n{terms.id}{source}".encode()).hex()

    def _contribution(self, terms: Terms, client: str) -> bytes:
        chosen = self.chooser(terms).choose(client)
        key = self.identity(client)
        source, noise = self._source(chosen, terms, key)
        former = self.outbox.sources(terms.id, client)
        source = source_of(client, source, terms.attempt, former)
        measured: list[Statistics] = []
        mode = terms.privacy.mode
        keys = chosen.held.keys()
        shown = cache(partial(shown_to, terms, chosen.held, self.policy))

        def make(version: int) -> bytes:
            mode.check_made(client, len(former))
            require_wide_change(self.outbox.measured(terms.id, client), keys, terms, client, self.policy)
            formers = self.outbox.shared(terms.id, client)
            with measuring():
                require_common_change(formers, Measured(keys, shown().compared), terms, client, self.policy)
                stats = measure_held(chosen.held, terms, self.policy, noise=noise, shown=shown())
            measured[:] = [stats]
            mode.check_kept(client, kept=bool(self.settings.folder))
            with measuring():
                data = mode.pack(stats, terms, client=client, version=version, key=key, withheld=chosen.withheld)
            self.policy.require_size(len(data))
            self.outbox.audited(terms, client, version, chosen.notes)
            return data

        def describe(data: bytes, version: int) -> Mapping[str, Any]:
            return facts_of_report(data, terms, client, version, stats=measured[0], withheld=chosen.withheld)

        described = None if mode.reads_contributions else describe

        def shared() -> bytes | None:
            return SharedValues.of(shown().compared, chosen.held.y).to_bytes() if shown().is_kept_apart else None

        return self.outbox.prepare(terms, client, source, make, described, samples=keys, shared=shared)
