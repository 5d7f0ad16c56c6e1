"""Whole federations on one machine: features in, one table over heads, splits and settings out.

A features file is split over clients as a scheme says; one ledger of the least statistics that serve all heads is
measured from it; every head is fitted from that ledger and tested on held-out features.

>>> import numpy as np
>>> from fedmoments.samples.features import Features, Samples
>>> from fedmoments.study.simulation import simulate
>>> y = np.arange(200) % 4
>>> X = np.eye(4)[y] + np.random.default_rng(0).normal(scale=0.1, size=(200, 4))
>>> features = Features("toy", 4, train=Samples(X[:120], y[:120]), test=Samples(X[120:], y[120:]))
>>> result = simulate(features, ["fedncm", "fedcof"], clients=[10], splits=["iid"], seeds=2)
>>> [(row.head, row.accuracy) for row in result.rows]
[('fedncm', 1.0), ('fedcof', 1.0)]
"""

from fedmoments.study.simulation.fit import Confusion, Evaluation, evaluate, predict_blocks
from fedmoments.study.simulation.measuring import Federation
from fedmoments.study.simulation.payload import upload_size
from fedmoments.study.simulation.points import Point
from fedmoments.study.simulation.sweep import standard_heads
from fedmoments.study.simulation.table import simulate

__all__ = [
    "Confusion",
    "Evaluation",
    "Federation",
    "Point",
    "evaluate",
    "predict_blocks",
    "simulate",
    "standard_heads",
    "upload_size",
]
