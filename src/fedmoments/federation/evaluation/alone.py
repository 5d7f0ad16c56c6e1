"""What a party would have without the others: the same head, fitted from its own samples alone."""

from dataclasses import fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmoments.core.api import fit
from fedmoments.core.classifier import Classifier
from fedmoments.core.heads import Head, make_head
from fedmoments.errors import FedMomentsError

__all__ = ["fitted_alone"]

#: What a party fits that has all its samples, in place of a head that chooses among estimates from means and sketches.
PLAIN = "gh-lda"


def fitted_alone(classifier: Classifier, X: NDArray[np.floating[Any]], y: NDArray[np.int64]) -> Classifier | None:
    """Return the classifier that its head makes of one party's features (n, d) and labels (n,), behind the same map.

    None where that cannot be said or made: its head is unknown here, takes long, or needs more samples. The classifier
    came from a server, so nothing but the name of its head is believed: hyper-parameters are the defaults.

    Examples
    --------
    >>> import fedmoments as fm
    >>> rng = np.random.default_rng(0)
    >>> y = np.arange(60) % 3
    >>> X = np.eye(3)[y] + 0.1 * rng.normal(size=(60, 3))
    >>> shared = fm.fit("fedcof", {"a": (X[:30], y[:30]), "b": (X[30:], y[30:])})
    >>> fitted_alone(shared, X[:30], y[:30]).score(X[30:], y[30:])
    1.0
    """
    name = classifier.info.get("head")
    try:
        if not isinstance(name, str) or not len(y) or (head := _exact(make_head(name))).slow:
            return None
        return fit(head, {"own": (X, y)}, n_classes=classifier.n_classes, feature_map=classifier.feature_map)
    except FedMomentsError:
        return None


def _exact(head: Head) -> Head:
    """Return the head on exact covariances: nobody estimates from means what it can compute from its own samples."""
    if not head.needs.keeps_clients_apart:
        return head
    if "covariance" in {field.name for field in fields(head)}:
        return replace(head, covariance="exact")  # type: ignore[call-arg]
    return make_head(PLAIN)
