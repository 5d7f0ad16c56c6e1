"""Data sets, and federated splits: which client holds which sample.

:func:`load_data` finds a data set by the text that a person types (``folder:PATH``). A scheme is a pure function
``(labels or size, n_clients, …, seed) -> Split``; :func:`parse_split` finds one by such a text (``dirichlet:0.1``).

>>> import numpy as np
>>> from fedmoments.data import parse_split
>>> split = parse_split("dirichlet:0.1").apply(np.arange(1000) % 10, n_clients=20, seed=0)
>>> len(split), int(split.sizes.sum())
(20, 1000)
"""

from fedmoments.data.dataset import DataSet
from fedmoments.data.digests import FileDigests, sample_digests
from fedmoments.data.dirichlet import dirichlet_per_class, dirichlet_per_client
from fedmoments.data.draws import Seed
from fedmoments.data.flower_partitioner import parse_flower_split, split_from_partitioner
from fedmoments.data.holdout import hold_out
from fedmoments.data.natural import by_domain, by_id
from fedmoments.data.pathological import classes_per_client
from fedmoments.data.quantity import iid, quantity_skew
from fedmoments.data.samples import Problem, Samples, item_digest
from fedmoments.data.schemes import SCHEMES, Request, Scheme, SplitRecipe, parse_split
from fedmoments.data.sources import Source, load_data, sources
from fedmoments.data.split import DROPPED, Split

__all__ = [
    "DROPPED",
    "SCHEMES",
    "DataSet",
    "FileDigests",
    "Problem",
    "Request",
    "Samples",
    "Scheme",
    "Seed",
    "Source",
    "Split",
    "SplitRecipe",
    "by_domain",
    "by_id",
    "classes_per_client",
    "dirichlet_per_class",
    "dirichlet_per_client",
    "hold_out",
    "iid",
    "item_digest",
    "load_data",
    "parse_flower_split",
    "parse_split",
    "quantity_skew",
    "sample_digests",
    "sources",
    "split_from_partitioner",
]
