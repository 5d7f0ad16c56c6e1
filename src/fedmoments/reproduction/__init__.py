"""The tables and figures of the papers, each a declarative file that one command runs.

>>> from fedmoments.reproduction import experiment, experiments
>>> experiment("fedcof/table3").title
'Training-free methods: accuracy and bytes'
"""

from fedmoments.reproduction.experiment import Experiment
from fedmoments.reproduction.library import PAPERS, experiment, experiments, find
from fedmoments.reproduction.measurement import Measurement
from fedmoments.reproduction.run import Request, run_experiment
from fedmoments.reproduction.world import World

__all__ = [
    "PAPERS",
    "Experiment",
    "Measurement",
    "Request",
    "World",
    "experiment",
    "experiments",
    "find",
    "run_experiment",
]
