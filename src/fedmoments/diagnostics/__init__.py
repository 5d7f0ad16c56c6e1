"""Whether the assumptions of Gaussian heads hold: pure functions of statistics."""

from fedmoments.diagnostics.cautions import Caution
from fedmoments.diagnostics.diagnosis import NEEDS, Diagnostics, Unknown, diagnose
from fedmoments.diagnostics.holdings import Holdings, holdings_of
from fedmoments.diagnostics.neighbours import Neighbours, nearest_classes
from fedmoments.diagnostics.shapes import Gaussianity, Tail, gaussianity
from fedmoments.diagnostics.spectrum import Conditioning, Spectrum, spectrum_of
from fedmoments.diagnostics.subspace import FisherCurve, fisher_curve

__all__ = [
    "NEEDS",
    "Caution",
    "Conditioning",
    "Diagnostics",
    "FisherCurve",
    "Gaussianity",
    "Holdings",
    "Neighbours",
    "Spectrum",
    "Tail",
    "Unknown",
    "diagnose",
    "fisher_curve",
    "gaussianity",
    "holdings_of",
    "nearest_classes",
    "spectrum_of",
]
