"""Federated splits: which client holds which sample.

A scheme is a pure function ``(labels or size, n_clients, …, seed) -> Split``; :func:`parse_split` finds one by the
text that a person types (``dirichlet:0.1``).

>>> import numpy as np
>>> from fedmoments.data import parse_split
>>> split = parse_split("dirichlet:0.1").apply(np.arange(1000) % 10, n_clients=20, seed=0)
>>> len(split), int(split.sizes.sum())
(20, 1000)
"""

from fedmoments.data.dirichlet import dirichlet_per_class, dirichlet_per_client
from fedmoments.data.draws import Seed
from fedmoments.data.natural import by_domain, by_id
from fedmoments.data.pathological import classes_per_client
from fedmoments.data.quantity import iid, quantity_skew
from fedmoments.data.schemes import SCHEMES, Request, Scheme, SplitRecipe, parse_split
from fedmoments.data.split import DROPPED, Split

__all__ = [
    "DROPPED",
    "SCHEMES",
    "Request",
    "Scheme",
    "Seed",
    "Split",
    "SplitRecipe",
    "by_domain",
    "by_id",
    "classes_per_client",
    "dirichlet_per_class",
    "dirichlet_per_client",
    "iid",
    "parse_split",
    "quantity_skew",
]
