"""Data sets, and federated splits: which client holds which sample.

:func:`load_data` finds a data set by the text that a person types (``folder:PATH``). A scheme is a pure function
``(labels or size, n_clients, …, seed) -> Split``; :func:`parse_split` finds one by such a text (``dirichlet:0.1``).

>>> import numpy as np
>>> from fedmoments.samples import parse_split
>>> split = parse_split("dirichlet:0.1").apply(np.arange(1000) % 10, n_clients=20, seed=0)
>>> len(split), int(split.sizes.sum())
(20, 1000)
"""

from fedmoments.samples.dataset import DataSet
from fedmoments.samples.digests import FileDigests, sample_digests
from fedmoments.samples.samples import Problem, Samples, item_digest
from fedmoments.samples.sources import Source, load_data, register_source, sources
from fedmoments.samples.sources.rows import hold_out
from fedmoments.samples.splits.dirichlet import dirichlet_per_class, dirichlet_per_client
from fedmoments.samples.splits.draws import Seed
from fedmoments.samples.splits.flower_partitioner import split_from_partitioner
from fedmoments.samples.splits.natural import by_domain, by_id
from fedmoments.samples.splits.pathological import classes_per_client
from fedmoments.samples.splits.quantity import iid, quantity_skew
from fedmoments.samples.splits.registry import SCHEMES, parse_split, register_split
from fedmoments.samples.splits.scheme import Request, Scheme, SplitRecipe
from fedmoments.samples.splits.split import DROPPED, Split

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
    "parse_split",
    "quantity_skew",
    "register_source",
    "register_split",
    "sample_digests",
    "sources",
    "split_from_partitioner",
]
