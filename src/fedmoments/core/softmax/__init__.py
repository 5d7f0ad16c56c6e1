"""Softmax regression on labelled or softly labelled samples that come in blocks: a convex loss and its solver."""

from fedmoments.core.softmax.low_rank import fit_low_rank
from fedmoments.core.softmax.objective import Block, SoftmaxLoss
from fedmoments.core.softmax.solver import SoftmaxFit, fit_softmax

__all__ = ["Block", "SoftmaxFit", "SoftmaxLoss", "fit_low_rank", "fit_softmax"]
