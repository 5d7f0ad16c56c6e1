"""How well a classifier does on features it has not seen: at one party, or added up over many."""

from fedmoments.federation.evaluation.figures import Calibration, Confusion, Evaluation
from fedmoments.federation.evaluation.layout import N_BINS
from fedmoments.federation.evaluation.local import LocalEvaluation

__all__ = ["N_BINS", "Calibration", "Confusion", "Evaluation", "LocalEvaluation"]
