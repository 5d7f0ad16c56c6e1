"""Whether the assumptions of Gaussian heads hold: pure functions of statistics."""

from fedmoments.core.diagnostics.cautions import Caution
from fedmoments.core.diagnostics.diagnosis import NEEDS, Diagnostics, Unknown, diagnose
from fedmoments.core.diagnostics.holdings import Holdings, Neighbours, holdings_of, nearest_classes
from fedmoments.core.diagnostics.shapes import Gaussianity, Tail, gaussianity
from fedmoments.core.diagnostics.spectrum import Conditioning, FisherCurve, Spectrum, fisher_curve, spectrum_of

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
