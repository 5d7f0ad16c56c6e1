"""What two versions of a client's contribution tell together: their difference is a contribution of what changed.

Whoever holds both can subtract them, class by class. So a new version that differs in few samples tells of these alone,
however many both hold. The outbox keeps a key of every sample that it sent, and a client that would tell of fewer than
its rules allow sends nothing.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.errors import PolicyError
from fedmoments.federation.terms import Terms
from fedmoments.settings.policy import PolicyRules

__all__ = ["changed_samples", "require_wide_change", "sample_keys"]

#: Label and the first 8 bytes of the SHA-256 of a sample's features.
_KEY = np.dtype([("label", "<i4"), ("key", "<u8")])


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
    keys = np.zeros(len(rows), _KEY)
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
    before, after = np.frombuffer(former, _KEY), np.frombuffer(now, _KEY)
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
    """Refuse a new version whose difference from any former would tell of fewer samples than the rules allow.

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
    if terms.privacy.mode.adds_reports:  # every version has noise of its own, which the client's account counts
        return
    for former in formers:
        if changed := changed_samples(former, now):
            _require_wide(changed, terms, client, rules)


def _require_wide(changed: Mapping[int, int], terms: Terms, client: str, rules: PolicyRules) -> None:
    mode = terms.privacy.mode
    named = ", ".join(f"{n:,} of {terms.classes[label]}" for label, n in list(changed.items())[:10])
    if not mode.reads_contributions:
        error = PolicyError(
            f"client '{client}' has other samples than when it reported: under {mode.title} its numbers are in a sum "
            "or wait for one, and the difference of two sums would show what changed at this client alone. Withdraw "
            "while the report waits, let the whole batch be given up, or found a new federation"
        )
        error.add_note(f"samples that changed: {named}; one client changed, where {terms.privacy.batch} must together")
        raise error
    if min(changed.values()) < rules.min_count and not rules.small_changes:
        error = PolicyError(
            f"client '{client}' has a new version that differs from one that it sent in fewer samples of a class than "
            "min_count: whoever holds both can subtract them, and has the sums of these samples alone"
        )
        advice = f"change {rules.min_count} of a class together, or allow it with --small-changes"
        error.add_note(f"samples that changed: {named}; {advice}")
        raise error
