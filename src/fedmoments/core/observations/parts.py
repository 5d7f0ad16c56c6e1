"""What a report holds beside its table: the data, who holds what, and what single heads and clients did."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.diagnostics import Diagnostics
from fedmoments.core.observations.figures import ClassFigures
from fedmoments.core.observations.observation import Observation, Scalar

__all__ = [
    "Bin",
    "ClientInfluence",
    "Data",
    "Diagnosis",
    "Dropped",
    "Examination",
    "FederationEvents",
    "HeadDetail",
    "Holders",
    "PrivacyCard",
    "Problem",
    "Reliability",
    "RoundAccuracy",
    "RoundCurve",
    "ServerRound",
    "SiteAccuracy",
    "SplitReport",
    "Spread",
    "Trouble",
    "round_observations",
]


#: Why a head of a federation has no accuracy.
UNTESTED = "no client evaluated it"
#: Why one has none, though clients were asked.
UNTOLD = "no client sent a result: clients send none for classes with fewer test samples than their min_count"


@dataclass(frozen=True)
class Problem:
    """A sample that could not be used, and why."""

    where: str
    why: str


@dataclass(frozen=True)
class Data:
    """What was measured on.

    Parameters
    ----------
    name, description, modality
        What it is.
    train, test
        Samples; None where nobody knows.
    dim, classes, class_names
        Of the features.
    digest, fingerprint
        Of the samples, and of what clients measure.
    feature_map
        Public, behind which clients measure; described as classifier files have it.
    problems
        Samples that could not be used.
    encoder
        The encoder's note of itself, as classifier files have it.
    notes
        Sentences that a reader of results must know of the data.
    """

    name: str = ""
    description: str = ""
    train: int | None = None
    test: int | None = None
    dim: int | None = None
    classes: int = 0
    class_names: tuple[str, ...] = ()
    modality: str | None = None
    digest: str | None = None
    fingerprint: str | None = None
    feature_map: Mapping[str, Any] | None = None
    problems: tuple[Problem, ...] = ()
    encoder: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def class_name(self, label: int) -> str:
        """Return the name of a class, its number if it has none.

        Examples
        --------
        >>> Data(class_names=("cat",)).class_name(0), Data().class_name(3)
        ('cat', 'class 3')
        """
        return self.class_names[label] if 0 <= label < len(self.class_names) else f"class {label}"


@dataclass(frozen=True)
class SplitReport:
    """Sizes of one split: of one seed, where it was drawn."""

    scheme: str
    samples: int = 0
    clients: int = 0
    empty_clients: int = 0
    smallest: int = 0
    largest: int = 0
    dropped: int = 0
    why: str = ""
    notes: tuple[str, ...] = ()
    seed: int | None = None


# ---------------------------------------------------------------------------------------------- heads


@dataclass(frozen=True)
class Bin:
    """Answers of about the same confidence: how many, their mean confidence, and the share that is right."""

    low: float
    high: float
    count: int
    confidence: float | None = None
    accuracy: float | None = None


@dataclass(frozen=True)
class Reliability:
    """Whether probabilities can be believed: answers by confidence, and the expected calibration error.

    ``confidence`` is the mean at the temperature that a classifier has after its tests, where these told it.
    """

    bins: tuple[Bin, ...] = ()
    ece: float | None = None
    temperature: float | None = None
    confidence: float | None = None


@dataclass(frozen=True)
class Revealed:
    """One kind of thing that contributions reveal: how surely, what, of how many clients, about how many samples.

    ``severity`` is ``exposed``, ``weak`` or ``counts``, as in :mod:`fedmoments.privacy.leaks`.
    """

    severity: str
    text: str
    clients: int
    samples: int


@dataclass(frozen=True, eq=False)
class HeadDetail:
    """A closer look at one fitted head of one seed.

    Parameters
    ----------
    head, seed
        Which; without a seed where nothing is drawn.
    confusion
        (C, C) test samples by true (row) and predicted (column) class; None where nobody looked.
    calibration
        How well confidence fits accuracy.
    figures
        Sensitivity, specificity and AUC of every class, macro-F1.
    choice
        What the head chose for itself, and why.
    digest, statistics_digest, measured
        Of the classifier and of the merged statistics that it was fitted from, and what clients measured: what a
        deployed federation's classifier can be compared with.
    digest_reason
        Why there is no digest.
    audit
        What each client's contribution for this head reveals, over all clients; nothing where servers cannot read it.

    Examples
    --------
    >>> detail = HeadDetail("fedcof", 0, np.array([[3, 1], [0, 2]]))
    >>> detail.accuracies.tolist(), detail.confusions(5)
    ([0.75, 1.0], [(0, 1, 1)])
    """

    head: str
    seed: int | None = None
    confusion: NDArray[np.int64] | None = None
    calibration: Reliability | None = None
    figures: ClassFigures | None = None
    choice: str | None = None
    digest: str | None = None
    statistics_digest: str | None = None
    measured: str | None = None
    digest_reason: str | None = None
    audit: tuple[Revealed, ...] = ()

    @cached_property
    def tested(self) -> NDArray[np.int64]:
        """(C,) test samples of every class."""
        if self.figures is not None:
            return self.figures.tested
        return np.zeros(0, np.int64) if self.confusion is None else np.asarray(self.confusion.sum(axis=1))

    @cached_property
    def found(self) -> NDArray[np.int64]:
        """(C,) right answers on test samples of every class."""
        if self.figures is not None:
            return self.figures.found
        return np.zeros(0, np.int64) if self.confusion is None else np.asarray(np.diagonal(self.confusion))

    @cached_property
    def accuracies(self) -> NDArray[np.float64]:
        """(C,) share of every class that was found; NaN for a class that was not tested."""
        return np.where(self.tested > 0, self.found / np.maximum(self.tested, 1), np.nan)

    def confusions(self, most: int) -> list[tuple[int, int, int]]:
        """Return (true class, predicted class, samples) of the pairs that cost most samples."""
        if self.confusion is None:
            return []
        wrong = self.confusion.copy()
        np.fill_diagonal(wrong, 0)
        order = np.argsort(-wrong, axis=None, kind="stable")[:most].tolist()
        pairs = [(*divmod(place, len(wrong)), int(wrong.flat[place])) for place in order]
        return [pair for pair in pairs if pair[2] > 0]


@dataclass(frozen=True)
class Diagnosis:
    """Which federation was diagnosed, and what was found: or the ``reason`` why nothing was.

    ``measure`` is the command by which clients would measure what is not known.
    """

    clients: int | None = None
    split: str | None = None
    means_per_client: int | None = None
    projection: int | None = None
    seed: int | None = None
    reason: str | None = None
    measure: str | None = None
    diagnostics: Diagnostics | None = None


# ---------------------------------------------------------------------------------------------- clients


@dataclass(frozen=True, eq=False)
class Holders:
    """Who holds which classes: (n, 3) client, class and samples of every cell; names of clients, if they have any."""

    n_clients: int
    cells: NDArray[np.int64]
    clients: tuple[str, ...] = ()
    seed: int | None = None
    split: str | None = None


@dataclass(frozen=True)
class RoundAccuracy:
    """After a round: clients seen so far, and the accuracy (None where the head cannot be fitted yet)."""

    round: int
    seen: int
    accuracy: float | None


@dataclass(frozen=True)
class RoundCurve:
    """Accuracy of one head on one seed, round by round, while clients take part a few at a time.

    Examples
    --------
    >>> curve = RoundCurve("fedcof", 2, False, 0, (RoundAccuracy(1, 2, None), RoundAccuracy(2, 4, 0.9)))
    >>> curve.clients, curve.participation
    (4, '2')
    """

    head: str
    per_round: int
    replacement: bool
    seed: int
    points: tuple[RoundAccuracy, ...]
    split: str | None = None

    derived: ClassVar[tuple[str, ...]] = ("clients",)

    @property
    def clients(self) -> int:
        """How many clients were seen in the end."""
        return self.points[-1].seen if self.points else 0

    @property
    def participation(self) -> str:
        """How clients take part, as it is typed."""
        return f"{self.per_round}:replacement" if self.replacement else str(self.per_round)


def round_observations(curves: Iterable[RoundCurve], place: Mapping[str, Scalar]) -> Iterator[Observation]:
    """Yield the accuracy after every round, at a place, ``round``, ``seen`` and how clients took part, over seeds.

    Examples
    --------
    >>> curves = [RoundCurve("fedcof", 2, False, seed, (RoundAccuracy(1, 4, 0.9 - seed / 10),)) for seed in (0, 1)]
    >>> [(each.where["round"], each.values) for each in round_observations(curves, {"split": "iid"})]
    [(1, (0.9, 0.8))]
    """
    accuracies: dict[tuple[str, str, int, int], dict[int, float | None]] = {}
    for curve in curves:
        for point in curve.points:
            key = (curve.head, curve.participation, point.round, point.seen)
            accuracies.setdefault(key, {})[curve.seed] = point.accuracy
    for (head, participation, number, seen), by_seed in accuracies.items():
        where = {"head": head, **place, "participation": participation, "round": number, "seen": seen}
        reason = "too few clients were seen to fit it" if None in by_seed.values() else None
        yield Observation(where, tuple(by_seed.values()), "accuracy by round", reason, tuple(by_seed))


@dataclass(frozen=True)
class Dropped:
    """A client that the server left out, and why."""

    client: str
    reason: str


@dataclass(frozen=True)
class ClientInfluence:
    """What one client does to a head: change of class probabilities, share of points that change class, its samples."""

    client: str
    change: float
    flips: float | None = None
    samples: int | None = None
    share: float | None = None


@dataclass(frozen=True)
class Examination:
    """Whom the server left out, and who moves a head most.

    Parameters
    ----------
    clients
        How many contributed, those left out among them.
    examined
        Whether the server looked at contributions.
    dropped, untested
        Whom it left out, and class means that had too few others to be compared with.
    head, influence
        Whose influence is measured, and that of every client.
    attack, attackers, caught, false
        What a simulation played, who attacked, how many of them were found and how many honest clients left out.
    """

    clients: int
    examined: bool = False
    dropped: tuple[Dropped, ...] = ()
    untested: int = 0
    head: str = ""
    influence: tuple[ClientInfluence, ...] = ()
    attack: str | None = None
    attackers: tuple[str, ...] = ()
    caught: int | None = None
    false: int | None = None


@dataclass(frozen=True)
class PrivacyCard:
    """In plain language, who learns what, under which assumption, and what is not promised.

    Parameters
    ----------
    mode
        How contributions travelled.
    agreed, min_count, withheld, spent, obfuscation, robust, dropped, exposed, sketches, simulated
        As in :func:`fedmoments.privacy.card.privacy_card`, which makes cards.
    facts, sees
        Pairs (name, value): the rules, and who learns what.
    assumptions, not_promised
        Sentences.
    """

    mode: str
    agreed: Mapping[str, Any] = field(default_factory=dict)
    min_count: int | None = None
    withheld: Mapping[str, int] | None = None
    spent: Mapping[str, Any] | None = None
    obfuscation: str | None = None
    robust: str | None = None
    dropped: Mapping[str, str] = field(default_factory=dict)
    exposed: Mapping[str, int] | None = None
    sketches: Mapping[str, float] | None = None
    simulated: bool = False
    facts: tuple[tuple[str, str], ...] = ()
    sees: tuple[tuple[str, str], ...] = ()
    assumptions: tuple[str, ...] = ()
    not_promised: tuple[str, ...] = ()


@dataclass(frozen=True)
class Trouble:
    """A node or a client that took no part, or a contribution that was refused, and why.

    Parameters
    ----------
    node, client
        Whose it is, as far as the server knows; ``all`` nodes together where results were only seen added up.
    reason
        In a word, or as the node's machine said it.
    why, sentence
        In full: of a client that kept its contribution back, and of the server that refused one.
    version, federation
        Of the contribution that was refused.
    code, kind
        Of the message that a node did not answer.

    Examples
    --------
    >>> Trouble(7, reason="no answer").who, Trouble(7, "lab", why="too few samples").because
    ('node 7', 'too few samples')
    """

    node: int | str | None = None
    client: str | None = None
    reason: str | None = None
    why: str | None = None
    sentence: str | None = None
    version: int | None = None
    federation: str | None = None
    code: int | None = None
    kind: str | None = None

    @property
    def who(self) -> str:
        """The client's name, or the node's number."""
        return self.client or f"node {'?' if self.node is None else self.node}"

    @property
    def because(self) -> str:
        """What is known of the reason."""
        return self.sentence or self.why or self.reason or "no reason given"

    def flattened(self) -> dict[str, Any]:
        """Return what is known, for JSON."""
        return {each.name: getattr(self, each.name) for each in fields(self) if getattr(self, each.name) is not None}


@dataclass(frozen=True)
class ServerRound:
    """What one round of asking brought; ``counts`` are all that was refused, declined or failed, of which some is told.

    ``bytes`` are those of contributions that arrived, unknown where they would tell too much; ``asked`` are nodes.
    """

    number: int = 0
    asked: tuple[int, ...] = ()
    accepted: int = 0
    refused: tuple[Trouble, ...] = ()
    declined: tuple[Trouble, ...] = ()
    failures: tuple[Trouble, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    bytes: int | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class SiteAccuracy:
    """Accuracy of a head on the samples of one site; ``alone``: of one fitted from that site's own samples alone."""

    accuracy: float
    samples: int
    alone: float | None = None


@dataclass(frozen=True)
class Spread:
    """How far the accuracies of nodes lie apart, and the largest share of tested samples that one of them has.

    Of results that were only seen added up, nothing is known but from how many ``clients`` they are. ``alone`` is the
    accuracy on the same samples of heads that each client fitted from its own samples alone.
    """

    nodes: int | None = None
    lowest: float | None = None
    median: float | None = None
    highest: float | None = None
    largest_share: float | None = None
    sites: tuple[SiteAccuracy, ...] = ()
    clients: int | None = None
    alone: float | None = None


@dataclass(frozen=True)
class FederationEvents:
    """A federation that ran: its terms and state, and what its server told of rounds and of nodes that failed.

    ``failures`` are nodes that did not test the heads; ``unfitted`` says why heads could not be fitted, ``spread`` how
    far the nodes' results of each head lie apart.
    """

    id: str = ""
    name: str = ""
    state: str = ""
    rounds: tuple[ServerRound, ...] = ()
    failures: tuple[Trouble, ...] = ()
    unfitted: Mapping[str, str] = field(default_factory=dict)
    spread: Mapping[str, Spread] = field(default_factory=dict)
