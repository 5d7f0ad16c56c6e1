"""How well a classifier does on features it has not seen: at one party, or added up over many."""

from fedmoments.federation.evaluation.figures import Calibration, Confusion, Evaluation
from fedmoments.federation.evaluation.local import N_BINS, LocalEvaluation

__all__ = ["N_BINS", "Calibration", "Confusion", "Evaluation", "LocalEvaluation"]
