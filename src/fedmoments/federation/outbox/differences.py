"""What versions of a client's contribution tell together: their difference is a contribution of what changed.

Whoever holds several can add and subtract them, mean by mean. So a new version that differs in few samples tells of
these alone, however many both hold. The outbox keeps a key of every sample that it sent, and a client that would tell
of fewer than its rules allow sends nothing.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.statistics.checks import running_positions
from fedmoments.core.statistics.shares import deal_shares
from fedmoments.errors import PolicyError
from fedmoments.federation.terms import Terms
from fedmoments.settings.policy import PolicyRules

__all__ = ["SAMPLE_KEY", "changed_samples", "require_wide_change", "sample_keys", "tells_second_moments", "thin_parts"]

#: Label and the first 8 bytes of the SHA-256 of a sample's features.
SAMPLE_KEY = np.dtype([("label", "<i4"), ("key", "<u8")])


def sample_keys(X: NDArray[Any], y: NDArray[np.int64]) -> bytes:
    """Return what tells samples apart, 12 bytes each.

    Parameters
    ----------
    X, y
        (n, d) features and (n,) labels.

    Examples
    --------
    >>> len(sample_keys(np.ones((2, 3)), np.array([0, 1])))
    24
    """
    rows = np.ascontiguousarray(X)
    keys = np.zeros(len(rows), SAMPLE_KEY)
    keys["label"] = y
    keys["key"] = [int.from_bytes(hashlib.sha256(row.data).digest()[:8], "little") for row in rows]
    return keys.tobytes()


def changed_samples(former: bytes, now: bytes) -> dict[int, int]:
    """Return by label how many samples are in one of two versions and not in the other; classes without any are absent.

    Examples
    --------
    >>> X = np.arange(6.0).reshape(3, 2)
    >>> changed_samples(sample_keys(X, np.array([0, 0, 1])), sample_keys(X[1:], np.array([0, 1])))
    {0: 1}
    """
    before, after = np.frombuffer(former, SAMPLE_KEY), np.frombuffer(now, SAMPLE_KEY)
    both = np.concatenate([before, after])
    if not len(both):
        return {}
    kinds, places = np.unique(both, return_inverse=True)
    signs = np.concatenate([np.full(len(before), -1), np.ones(len(after), np.int64)])
    balance = np.abs(np.bincount(places, weights=signs)).astype(np.int64)
    labels, at = np.unique(kinds["label"], return_inverse=True)
    counts = np.bincount(at, weights=balance).astype(np.int64)
    return {int(label): int(n) for label, n in zip(labels, counts, strict=True) if n}


def require_wide_change(formers: Iterable[bytes], now: bytes, terms: Terms, client: str, rules: PolicyRules) -> None:
    """Refuse a new version if it and former ones together would tell of fewer samples than the rules allow.

    Parameters
    ----------
    formers, now
        Keys of the samples of all that were sent, which a server may have kept, and of what would be.
    terms, client, rules
        For whom, whose, and what it allows.

    Raises
    ------
    PolicyError
        With how many samples of which class as a note, which stays on this machine.
    """
    mode, sent = terms.privacy.mode, list(formers)
    if mode.adds_reports or not sent:  # every version has noise of its own, which the client's account counts
        return
    if not mode.reads_contributions:
        for changed in filter(None, (changed_samples(former, now) for former in sent)):
            raise _behind_masks(changed, terms, client)
    if rules.small_changes:
        return
    if thin := thin_parts(sent, now, rules.min_count, terms.spec.means_per_client, terms.seed):
        error = PolicyError(
            f"client '{client}' has a new version that differs from one that it sent in fewer samples of a class than "
            "min_count: whoever holds both can subtract them, and has the sums of these samples alone"
        )
        advice = f"change {rules.min_count} of a class together, or allow it with --small-changes"
        error.add_note(f"samples that changed: {_named(thin, terms)}; {advice}")
        raise error
    for former in sent:
        _require_many(former, now, terms, client, rules)


def thin_parts(formers: Sequence[bytes], now: bytes, fewest: int, n_shares: int = 1, seed: int = 0) -> dict[int, int]:
    """Return by label the smallest set of fewer than ``fewest`` samples that a new version tells apart from all others.

    What can be computed of several sums are combinations of sums over *cells*: different samples that all versions, and
    all their several means of a class, hold as often. So no cell that was added up as one may be cut into small ones.

    Parameters
    ----------
    formers, now
        Keys of the samples of all that were sent, and of what would be, in the order in which they are measured.
    fewest
        Fewest samples.
    n_shares, seed
        How a class is dealt to several means.

    Examples
    --------
    >>> X, y = np.arange(8.0).reshape(4, 2), np.zeros(4, np.int64)
    >>> thin_parts([sample_keys(X, y)], sample_keys(X[:3], y[:3]), 2)
    {0: 1}
    >>> thin_parts([sample_keys(X, y)], sample_keys(X[:2], y[:2]), 2)
    {}
    """
    versions = [np.frombuffer(keys, SAMPLE_KEY) for keys in (*formers, now)]
    kinds, places = np.unique(np.concatenate(versions), return_inverse=True)
    bounds = np.cumsum([0, *map(len, versions)])
    before = cells = kinds["label"].astype(np.int64)
    for version, start, stop in zip(versions, bounds[:-1], bounds[1:], strict=True):
        held = np.zeros((len(kinds), n_shares), np.int64)
        np.add.at(held, (places[start:stop], _shares(version["label"].astype(np.int64), n_shares, seed)), 1)
        before, cells = cells, np.unique(np.column_stack([cells, held]), axis=0, return_inverse=True)[1].ravel()
    fresh = np.ones(len(kinds), np.bool_)
    fresh[places[: bounds[-2]]] = False
    sizes, whole = np.bincount(cells), np.bincount(before, minlength=int(before.max(initial=0)) + 1)
    thin = (sizes[cells] < fewest) & (fresh | (sizes[cells] < whole[before]))
    found: dict[int, int] = {}
    for label, size in zip(kinds["label"][thin].tolist(), sizes[cells][thin].tolist(), strict=True):
        found[label] = min(size, found.get(label, size))
    return found


def _shares(labels: NDArray[np.int64], n_shares: int, seed: int) -> NDArray[np.int64]:
    """Return the mean of its class that every sample is dealt to."""
    if n_shares == 1 or not len(labels):
        return np.zeros(len(labels), np.int64)
    counts = np.bincount(labels)
    shares = deal_shares(labels, running_positions(labels, np.zeros(len(counts), np.int64)), n_shares, seed)
    return np.where(counts[labels] >= 2 * n_shares, shares, 0)


def _require_many(former: bytes, now: bytes, terms: Terms, client: str, rules: PolicyRules) -> None:
    """Refuse a change inside of classes whose second moment would be over no more samples than features have columns.

    Of a class that comes or goes as a whole, no more is told than by a first version.
    """
    moments = terms.spec.moments
    if rules.min_count == 1 or not all(tells_second_moments(keys, terms, rules) for keys in (former, now)):
        return
    before, after = (set(np.frombuffer(keys, SAMPLE_KEY)["label"].tolist()) for keys in (former, now))
    both = before & after
    inside = {label: n for label, n in changed_samples(former, now).items() if label in both}
    if not inside or (min if "class_grams" in moments else sum)(inside.values()) > terms.dim:
        return
    error = PolicyError(
        f"client '{client}' has a new version whose second moments differ from those of one that it sent by those of "
        f"no more samples than features have columns ({terms.dim}): whoever holds both can tell which samples these "
        "are, and where features are often 0 has them"
    )
    error.add_note(f"samples that changed: {_named(inside, terms)}; change more, or allow it with --small-changes")
    raise error


def tells_second_moments(keys: bytes, terms: Terms, rules: PolicyRules) -> bool:
    """Say whether a version tells second moments as a whole: matrices, or a sketch of all directions that there are."""
    plan, labels = terms.spec.plan, np.frombuffer(keys, SAMPLE_KEY)["label"]
    if plan is None or not len(labels):
        return bool({"class_grams", "gram"} & terms.spec.moments)
    held = np.unique(labels, return_counts=True)[1]
    spare = int(held.max()) - 1 if plan.by_class else len(labels) - len(held)
    rank = plan.choose(len(labels), len(held), terms.dim).rank
    return bool({"class_grams", "gram"} & terms.spec.moments) or min(rank, rules.sketch_share * spare) >= terms.dim


def _behind_masks(changed: Mapping[int, int], terms: Terms, client: str) -> PolicyError:
    error = PolicyError(
        f"client '{client}' has other samples than when it reported: under {terms.privacy.mode.title} its numbers are "
        "in a sum or wait for one, and the difference of two sums would show what changed at this client alone. "
        "Withdraw while the report waits, let the whole batch be given up, or create a new federation"
    )
    together = f"one client changed, where {terms.privacy.batch} must together"
    error.add_note(f"samples that changed: {_named(changed, terms)}; {together}")
    return error


def _named(changed: Mapping[int, int], terms: Terms) -> str:
    return ", ".join(f"{n:,} of {terms.classes[label]}" for label, n in list(changed.items())[:10])
