"""What a report holds beside its table: the data, who holds what, and what single heads and clients did."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.diagnostics import Diagnostics
from fedmoments.core.observations.figures import ClassFigures
from fedmoments.core.observations.observation import Observation, Scalar

__all__ = [
    "Bin",
    "Data",
    "Diagnosis",
    "HeadDetail",
    "Holders",
    "Problem",
    "Reliability",
    "RoundAccuracy",
    "RoundCurve",
    "SplitReport",
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
