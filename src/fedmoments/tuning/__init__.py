"""After the head: linear probing and fine-tuning in rounds, from a closed-form head or any other start.

A :class:`TuningPlan` says what is trained and how, a :class:`~fedmoments.tuning.start.Start` from where, an engine
(:mod:`fedmoments.tuning.engine`) trains on clients' data, an optimiser (:mod:`fedmoments.tuning.optimisers`) merges
what they send, and :func:`~fedmoments.tuning.loop.run_rounds` runs the rounds.
"""

from fedmoments.settings.optimisers import OPTIMISERS
from fedmoments.settings.plan import STAGES, TuningPlan
from fedmoments.tuning.head_tuning import TunedHead, tune
from fedmoments.tuning.loop import RoundPoint, Tuned, run_rounds
from fedmoments.tuning.prices import Prices
from fedmoments.tuning.probing import FeatureEngine
from fedmoments.tuning.start import Start, random_start, start_from
from fedmoments.tuning.temperature import choose_temperature

__all__ = [
    "OPTIMISERS",
    "STAGES",
    "FeatureEngine",
    "Prices",
    "RoundPoint",
    "Start",
    "Tuned",
    "TunedHead",
    "TuningPlan",
    "choose_temperature",
    "random_start",
    "run_rounds",
    "start_from",
    "tune",
]
