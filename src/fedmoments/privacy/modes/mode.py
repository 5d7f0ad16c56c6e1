"""What a privacy mode is: the one contract that simulations, servers, clients, helpers and commands speak with.

A mode says how contributions become a sum: who packs what, who reads what, who learns what. It is made from what all
parties agreed on (:class:`~fedmoments.privacy.protection.Agreed`) and has five parts:

==========  ============================================================================================
part        questions
==========  ============================================================================================
check       which rules, moments, heads, filters and numbers of clients it goes with; else the reason
collect     what a client packs, how the server takes it in, which reports may be added up now
sum         from what arrived to statistics: the same code in a simulation and in a deployment
card        who learns what, under which assumption; words for plans, status and tables
cost        bytes of a client up and down, and bytes of the helper
==========  ============================================================================================

A mode is one file of this room that declares it in ``MODES``, a tuple, or an entry point of ``fedmoments.privacy``.
Noise is a layer of its own (:mod:`~fedmoments.privacy.modes.noise`): every mode has one, which may add nothing.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from fedmoments.core.statistics import Statistics, StatisticsSpec
from fedmoments.errors import InputError, PrivacyError
from fedmoments.privacy.modes.messages import Ask, Remote, answer
from fedmoments.privacy.modes.noise import Noise
from fedmoments.privacy.secure.helper import Helper
from fedmoments.wire import IdentityKey, Withheld

if TYPE_CHECKING:  # the agreement makes its mode from these files
    from fedmoments.privacy.modes.opened import Opened
    from fedmoments.privacy.modes.parties import Asked, Crowd, Ledger, Sitting, TermsLike, Waiting
    from fedmoments.privacy.protection import Agreed
    from fedmoments.privacy.secure.report import Report

__all__ = ["CLIENTS_OBEY", "Cost", "Mode"]

CLIENTS_OBEY = "Clients run this code, so that their own policy applies before anything is measured."


@dataclass(frozen=True)
class Cost:
    """What a mode costs, in bytes.

    Parameters
    ----------
    up
        That one client sends, all phases together.
    down
        That are sent to one client between phases.
    helper
        That the helper is asked and answers, for one batch.

    Examples
    --------
    >>> Cost(up=100).helper
    0
    """

    up: int
    down: int = 0
    helper: int = 0


class Mode(ABC):
    """One way to add contributions up.

    Parameters
    ----------
    agreed
        What all parties agreed on.
    noise
        The layer on what is opened.

    Examples
    --------
    >>> from fedmoments.privacy.protection import Agreed
    >>> mode = Agreed(secure="sums").mode
    >>> mode.title, mode.reads_contributions, mode.promise
    ('secure sums', False, 'secure sums')
    """

    #: Its name in the terms (``secure``).
    name: ClassVar[str]
    #: Its name for people.
    title: ClassVar[str]
    #: Rules of `Agreed` that it obeys; others that differ from their defaults are refused by their readers.
    takes: ClassVar[tuple[str, ...]] = ()
    #: Whether a second server, the helper, takes part.
    has_helper: ClassVar[bool] = False
    #: Whether a client must keep what it sent: made again, it would be something else.
    must_keep: ClassVar[bool] = False
    #: Whether reports are in as they arrive: nobody has to add them up first.
    adds_reports: ClassVar[bool] = False
    #: Whether clients may report again after their batch was given up before it was collected.
    repeats: bool = False
    #: What the helper opens in one attempt only, whatever was given up: nothing (""), what a "client" reports, or
    #: anything of a "federation". See :mod:`fedmoments.privacy.secure.memory`.
    opens_once: str = "federation"
    #: Steps that the helper is requested, and which of them come before anybody reports.
    steps: tuple[str, ...] = ()
    preparing: ClassVar[tuple[str, ...]] = ()
    #: Whether the server reads every contribution.
    reads_contributions: ClassVar[bool] = False
    #: How a contribution travels, as the end of a sentence: empty, or with a comma in front.
    masks: ClassVar[str] = ""
    #: Whether it opens parts of a batch by themselves, so that the leader must keep reports until then.
    opens_parts: ClassVar[bool] = False
    #: Whether a class is opened only where as many clients as were agreed on (``contributors``) hold it.
    opens_classes: bool = False
    #: Exchanges of messages after the collection.
    exchanges: ClassVar[int] = 0
    #: Who adds noise, as text.
    noises: ClassVar[str] = "The server is trusted to add it"

    def __init__(self, agreed: "Agreed", noise: Noise) -> None:
        self.agreed, self.noise = agreed, noise

    # ---------------------------------------------------------------------------------------------- check

    def check_agreed(self) -> None:
        """Refuse rules that contradict each other."""
        if self.agreed.contributors != type(self.agreed).contributors and "contributors" not in self.takes:
            raise InputError(
                f"a class can wait for {self.agreed.contributors} contributors where two servers open classes one by "
                "one (secure 'sums', 'two-phase' and 'cohorts'); clear sums hold every class: choose one of these, or "
                "leave contributors out"
            )

    @abstractmethod
    def check_sketch(self, spec: StatisticsSpec) -> None:
        """Refuse scatter sketches where nobody may read a single contribution, or where noise must hide one."""

    def check(self, spec: StatisticsSpec) -> None:
        """Refuse moments of a head that it cannot serve."""
        self.check_sketch(spec)
        self.noise.check_spec(spec)

    def serving(self, spec: StatisticsSpec) -> "Mode":
        """Return the mode that serves a head with these moments in a simulation: this one, or a simpler one."""
        del spec
        return self

    def check_terms(self, terms: "TermsLike") -> None:
        """Refuse terms under which nothing could be added up, or less would be hidden than they promise."""
        self.check_sketch(terms.spec)
        self.noise.check_terms(terms)

    def check_clients(self, clients: int) -> None:
        """Refuse sums that so few clients can never make."""
        self.check_parties(clients)

    def check_parties(self, clients: int) -> None:
        """Refuse heads of so few clients where more were agreed on."""
        if clients < self.agreed.parties:
            raise InputError(
                f"a head is fitted from {self.agreed.parties} parties or more (--parties), but there are {clients}: "
                "lower it, or take more clients"
            )

    def check_filter(self, asked: str) -> None:
        """Refuse a filter, given as text, that cannot see contributions or that the noise does not account for."""
        self.noise.forbid(
            InputError(
                f"{asked} decides by the data who is counted, which the noise was not made for: with an epsilon nobody "
                "can be left out"
            )
        )

    def check_fits(self, fits: int) -> None:
        """Refuse to fit so many states of the sums, where each would be a release."""
        if self.reads_contributions:
            self.noise.check_fits(fits)

    # ---------------------------------------------------------------------------------------------- collect

    @abstractmethod
    def pack(
        self, stats: Statistics, terms: "TermsLike", *, client: str, version: int, key: IdentityKey, withheld: Withheld
    ) -> bytes:
        """Return what a client sends, signed.

        Parameters
        ----------
        stats
            What it measured, in fixed point.
        terms
            Of the federation.
        client, version, key
            Who sends it, which version of its contribution it is, and what signs it.
        withheld
            What it withheld, as far as the server may know.
        """

    def check_kept(self, client: str, *, kept: bool) -> None:
        """Refuse a client that does not keep what it sends on its own disk, where it must be able to send it again."""
        del client, kept

    def check_made(self, client: str, made: int) -> None:
        """Refuse to measure a client once more that has sent ``made`` versions."""
        del client, made

    def check_report(self, report: "Report", terms: "TermsLike") -> None:
        """Refuse a report, its signature verified, that nobody sends who follows the protocol."""
        del report, terms

    def weights(self, ledger: "Ledger") -> dict[str, int]:
        """Return how many samples each client that is in contributed, as far as the server can know."""
        return {party.client: party.samples for party in ledger.status().contributors}

    @abstractmethod
    def take_in(self, ledger: "Ledger", items: Sequence[bytes], sources: Sequence[str]) -> list[Any]:
        """Take what clients packed into a ledger; return for each its receipt, or why it was refused."""

    @abstractmethod
    def sender(self, item: bytes, terms: "TermsLike") -> tuple[str, int]:
        """Return who packed an item, and its version; RefusedError where that cannot be read."""

    def ready(self, ledger: "Ledger") -> tuple[list["Waiting"], str]:
        """Return the reports that wait, and why they cannot be added up now; empty if they can."""
        del ledger
        return [], ""

    @property
    def takes_classes(self) -> bool:
        """Whether classes can be added later: masked vectors and noised sums have a place for each from the start."""
        return self.reads_contributions and not self.noise.is_on

    @property
    def unmasked(self) -> "Agreed":
        """What clients would agree on to measure the same and send it in the clear."""
        return self.agreed

    @property
    def record(self) -> dict[str, Any]:
        """What a client's own record tells of it."""
        return {}

    # ---------------------------------------------------------------------------------------------- sum

    def check_step(self, step: str) -> None:
        """Refuse a step that its protocol does not have."""
        if step not in self.steps:
            raise PrivacyError(f"{self.promise} have the steps {', '.join(self.steps)}, but not {step[:40]!r}")

    def check_helper(self, terms: "TermsLike", minimum: int) -> None:
        """Refuse terms whose sums may be over fewer clients than the helper's own minimum."""
        del terms, minimum

    def gate(
        self,
        helper: Helper,
        asked: "Asked",
        *,
        minimum: int,
        folder: Path | None = None,
        randomness: bytes | None = None,
    ) -> Any:
        """Return what does the steps at the helper's end; it has a method of the name of each, and ``close``.

        Parameters
        ----------
        helper
            Adds up masks.
        asked
            What is added up.
        minimum
            Fewest clients of a sum: the terms' or the helper's own.
        folder
            Where it remembers; None: in memory.
        randomness
            What it draws, in a simulation that must draw the same again; None: from the operating system.
        """
        del helper, asked, minimum, folder, randomness
        raise InputError(f"{self.title} have no helper")

    def remote(self, asked: "Asked", ask: Ask, most_bytes: int) -> Any:
        """Return what does the steps at the leader's end, by asking a helper at another party."""
        return Remote(asked, ask, most_bytes)

    def answer(self, gate: Any, asked: "Asked", step: str, data: bytes) -> bytes:
        """Do one step that :meth:`remote` asked for, with what :meth:`gate` made."""
        return answer(gate, asked, step, data)

    def prepare(self, sitting: "Sitting") -> None:
        """Do what must be done with the helper before anybody reports."""
        del sitting

    def open(self, sitting: "Sitting") -> "Opened":
        """Add up a batch together with the helper."""
        del sitting
        raise InputError(f"{self.title} are not added up in batches")

    @abstractmethod
    def simulated(self, crowd: "Crowd") -> "Opened":
        """Return what the servers of a simulated federation open: all parties in this process."""

    def read(self, ledger: "Ledger") -> tuple[Statistics, Mapping[str, Any] | None]:
        """Return what heads are fitted from, and facts about the noise in it, if there is any."""
        return self.noise.read(ledger)

    def part_for(self, merged: Statistics, spec: StatisticsSpec) -> Statistics:
        """Return the part of what was opened that a head with ``spec`` is fitted from."""
        return self.noise.part_for(merged, spec)

    @property
    def is_open(self) -> bool:
        """Whether the server reads every contribution, and nothing is noised."""
        return self.reads_contributions and not self.noise.is_on

    @property
    def is_repeatable(self) -> bool:
        """Whether two federations of the same clients open the same bits."""
        return not self.noise.is_on

    @property
    def is_in_ledger(self) -> bool:
        """Whether the running sums of the ledger may be published."""
        return not self.noise.is_on

    @property
    def counts_samples(self) -> bool:
        """Whether the server knows how many samples there are."""
        return self.reads_contributions or self.is_in_ledger

    def contributors(self, status: Any) -> int:
        """Return how many clients contributed samples; behind masks, how many are in a sum."""
        return int(status.clients)

    def publishable_bytes(self, sent: int, dense: int) -> int:
        """Return the bytes of all clients for publication: as sent, or those of contributions of every class."""
        return self.noise.publishable_bytes(sent, dense) if self.reads_contributions else sent

    # ---------------------------------------------------------------------------------------------- card

    @property
    def promise(self) -> str:
        """What the terms promise, as text; empty for nothing."""
        return self.noise.promise

    def facts(self) -> list[tuple[str, str]]:
        """Return pairs (name, value) of what was agreed on."""
        return self.noise.facts()

    @abstractmethod
    def sees(self) -> list[tuple[str, str]]:
        """Return pairs (who, what it learns), but for those who read what is published."""

    def assumptions(self) -> list[str]:
        """Return what must be true for the promises to hold."""
        return [CLIENTS_OBEY, *self.noise.assumptions(self.noises)]

    @abstractmethod
    def not_promised(self) -> list[str]:
        """Return what a reader might think this mode promises, and what it does not."""

    def rows(self) -> dict[str, str]:
        """Return what the terms say of it, for a table."""
        few = {"smallest head": f"{self.agreed.parties} parties"} if self.agreed.parties > 1 else {}
        return {**few, **self.noise.rows()}

    @property
    def travels(self) -> str:
        """How a contribution travels, in full, as the end of a sentence."""
        return f"{self.masks} ({self.promise})" if self.masks else ""

    @property
    def hides(self) -> str:
        """What the server reads instead of a contribution, as a sentence; empty where it reads it."""
        return ""

    # ---------------------------------------------------------------------------------------------- cost

    @abstractmethod
    def cost(self, asked: "Asked", *, clear: int, clients: int = 1) -> Cost:
        """Return the bytes of a client and of the helper.

        Parameters
        ----------
        asked
            What is added up.
        clear
            Bytes that the client's contribution has in the clear.
        clients
            Of a batch, for the helper.
        """
