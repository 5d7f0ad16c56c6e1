"""Who moves the head, and how far: every client is left out, and the head is fitted again.

The change is measured on reference points, the clients' class means, so that no data are needed and every head can be
asked: the mean over points of ½ Σ_c |p_c − p'_c|, the total variation between the class probabilities with and without
the client. It is 0 when nothing changes, and 1 when every point changes its class with certainty or there is no head
without the client.

Fitting without a client is exact: statistics are subtracted. It takes one fit a client, so of many clients only those
are asked whose leaving moves class means farthest: that of class c moves by n_kc/(N_c − n_kc)·‖μ_kc − μ_c‖ exactly,
and this is added up over classes. A client that alone holds a class comes before all others. For heads on means that is
nearly the order of influence; for others it finds whoever stands out, but not the exact order of the rest.

What a report shows of all this: who was left out and why, and who moves the head.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.classifier import Classifier
from fedmoments.core.heads import Head
from fedmoments.core.observations.federated import ClientInfluence, Dropped, Examination
from fedmoments.core.statistics import Ledger, Statistics
from fedmoments.errors import InputError, NotEnoughDataError
from fedmoments.privacy.robust.centres import Cells, stack
from fedmoments.privacy.robust.filtering import Suspicion

__all__ = ["Influence", "influences", "mean_moves", "robust_record"]


Floats = NDArray[np.float64]

#: Most reference points, evenly chosen among the client means.
POINTS = 2000


@dataclass(frozen=True)
class Influence:
    """What one client does to a head.

    Parameters
    ----------
    client
        Its id.
    change
        Mean total variation between class probabilities with and without it, 0 to 1.
    flips
        Share of reference points whose class is another without it.
    samples, share
        Its samples, and their share of all.
    """

    client: Hashable
    change: float
    flips: float
    samples: int
    share: float

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "client": str(self.client),
            "change": self.change,
            "flips": self.flips,
            "samples": self.samples,
            "share": self.share,
        }


def influences(
    source: Ledger | Mapping[Any, Statistics], head: Head, *, most: int = 20, points: int = POINTS
) -> list[Influence]:
    """Return the clients that move a head most, the most influential first.

    Parameters
    ----------
    source
        A ledger that keeps its clients, or client -> statistics.
    head
        What is fitted with and without each.
    most
        Most clients that are left out in turn: see the module for which.
    points
        Most reference points.

    Examples
    --------
    >>> from fedmoments.core.heads import make_head
    >>> from fedmoments.core.statistics import StatisticsSpec
    >>> X, spec = np.array([[0.0, 1.0], [1.0, 0.0]]), StatisticsSpec()
    >>> parties = {k: Statistics.of(X, [0, 1], spec, n_classes=2) for k in "abcefgh"}
    >>> parties["d"] = Statistics.of(X, [1, 0], spec, n_classes=2)
    >>> influences(parties, make_head("fedncm"))[0].client
    'd'
    """
    if most < 1 or points < 1:
        raise InputError(f"most and points must be 1 or more, not {most} and {points}")
    parts = {client: source.client(client) for client in source.clients} if isinstance(source, Ledger) else dict(source)
    cells = stack(parts)
    if len(parts) < 2:
        raise InputError("influence compares a head with and without a client: it needs two clients or more")
    total = source.statistics() if isinstance(source, Ledger) else Statistics.merge(parts.values())
    chosen = np.argsort(-mean_moves(cells), kind="stable")[:most]
    places = np.unique(np.linspace(0, len(cells.labels) - 1, min(points, len(cells.labels))).round().astype(np.int64))
    reference = cells.means[places]
    before = _probabilities(head.fit(total), reference)
    rows = []
    for k in chosen.tolist():
        client = cells.clients[k]
        part = parts[client]
        change, flips = _changes(before, head, total, part, reference)
        rows.append(Influence(client, change, flips, part.n_samples, part.n_samples / max(total.n_samples, 1)))
    return sorted(rows, key=lambda influence: (-influence.change, str(influence.client)))


def _changes(before: Floats, head: Head, total: Statistics, part: Statistics, reference: Floats) -> tuple[float, float]:
    """Return how much probabilities change, and how many points change class, when a part is left out."""
    if not part.n_samples:
        return 0.0, 0.0
    if part.n_samples == total.n_samples:
        return 1.0, 1.0
    try:
        after = _probabilities(head.fit(total - part), reference)
    except NotEnoughDataError:
        return 1.0, 1.0
    change = float(np.abs(before - after).sum(axis=1).mean() / 2)
    return change, float((before.argmax(axis=1) != after.argmax(axis=1)).mean())


def mean_moves(cells: Cells) -> Floats:
    """Return how far all class means together move when a client leaves, (K,); infinity where a class ends.

    Examples
    --------
    >>> from fedmoments.core.statistics import StatisticsSpec
    >>> one = Statistics.of([[0.0], [2.0]], [0, 0], StatisticsSpec(), n_classes=1)
    >>> two = Statistics.of([[7.0]], [0], StatisticsSpec(), n_classes=1)
    >>> mean_moves(stack({"a": one, "b": two}))
    array([4., 2.])
    """
    sizes = np.bincount(cells.labels, cells.counts, cells.n_classes)
    totals = np.zeros((cells.n_classes, cells.means.shape[1]))
    np.add.at(totals, cells.labels, cells.means * cells.counts[:, None])
    gaps = cells.means - (totals / np.maximum(sizes, 1)[:, None])[cells.labels]
    rest = sizes[cells.labels] - cells.counts
    shares = cells.counts / np.maximum(rest, 1)
    moves = np.where(rest > 0, shares * np.sqrt(np.square(gaps).sum(axis=1)), np.inf)
    out = np.zeros(len(cells.clients))
    np.add.at(out, cells.holders, moves)
    return out


def _probabilities(classifier: Classifier, reference: Floats) -> Floats:
    """Return class probabilities of the reference points, which lie behind the feature map already."""
    probabilities = classifier.mapped(None).predict_proba(reference)
    return np.asarray(probabilities, np.float64)


def robust_record(
    suspicion: Suspicion | None = None,
    influences: Sequence[Influence] = (),
    *,
    clients: int,
    head: str = "",
    attack: str | None = None,
    attackers: Iterable[Hashable] = (),
) -> Examination:
    """Return the part ``robust`` of results.

    Parameters
    ----------
    suspicion
        Whom the server left out; None: nobody was examined.
    found
        Influences of clients, in the head named ``head``.
    clients
        How many contributed, those left out among them.
    attack, attackers
        What a simulation played, and who attacked.

    Examples
    --------
    >>> left_out = Suspicion({"c": "samples: too many"})
    >>> record = robust_record(left_out, clients=9, attack="flip:0.1", attackers=["c", "d"])
    >>> record.dropped, record.caught, record.false
    ((Dropped(client='c', reason='samples: too many'),), 1, 0)
    """
    dropped = suspicion.dropped if suspicion else {}
    who = frozenset(attackers)
    return Examination(
        clients,
        suspicion is not None,
        tuple(Dropped(str(client), reason) for client, reason in dropped.items()),
        suspicion.untested if suspicion else 0,
        head,
        tuple(ClientInfluence(**influence.to_dict()) for influence in influences),
        attack,
        tuple(sorted(str(client) for client in who)),
        None if attack is None else len(who & set(dropped)),
        None if attack is None else len(set(dropped) - who),
    )
