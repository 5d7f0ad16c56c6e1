"""The tables and figures of the papers, each a declarative file that one command runs.

>>> from fedmoments.study.papers import experiment, experiments
>>> experiment("fedcof/table3").title
'Training-free methods: accuracy and bytes'
"""

from fedmoments.core.observations import Observation
from fedmoments.study.papers.experiment import Experiment
from fedmoments.study.papers.library import PAPERS, experiment, experiments, find
from fedmoments.study.papers.run import Request, run_experiment
from fedmoments.study.papers.world import World

__all__ = [
    "PAPERS",
    "Experiment",
    "Observation",
    "Request",
    "World",
    "experiment",
    "experiments",
    "find",
    "run_experiment",
]
